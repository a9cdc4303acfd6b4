"""The files of a package of cubins.

    NAME.h, NAME.c             what a program includes and compiles; the cubins are arrays in NAME.c
    NAME.py                    the same by ctypes, of a shared library that NAME.c was compiled to
    CMakeLists.txt             targets for both, and for the example
    example.c                  one contract, compared with float64 on the GPU
    README.md                  what it is and how it is used

The cubins are in the C file, so that a program needs one more file, or one object, and finds it without a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.emit.cubin.compiled_contracts import CubinPackage
from generator.emit.cubin.contract_source import TAKEN, ContractSource
from generator.emit.cubin.example import example_of
from generator.emit.cubin.tables import Tables
from generator.emit.render import environment
from generator.files.package_data import data
from generator.language.errors import CallError, shown
from generator.language.family_names import why_no_family

#: The most bytes of all cubins together: a C file has about three characters for each.
MOST_BYTES = 32 * 2**20
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

#: What a function of the package returns, with its words, from 0 on.
STATUSES = {
    "OK": "done",
    "NO_HANDLE": "the handle is NULL: load it first",
    "NO_CALL": "the call, or the place for a result, is NULL",
    "NO_DRIVER": "libcuda.so.1 cannot be opened: install the NVIDIA driver",
    "OLD_DRIVER": "libcuda.so.1 lacks a function that is needed: install a later NVIDIA driver",
    "NO_MEMORY": "the host has no memory for the handle",
    "NO_CONTEXT": "no CUDA context is current in this thread: make one current first",
    "OTHER_CONTEXT": "the current CUDA context is not the one in which the handle was loaded",
    "OTHER_GPU": "the GPU has another compute capability than the package was made for",
    "SHARED_MEMORY": "the GPU has less shared memory for a program than a kernel needs",
    "SIZES": "the package has no kernel for these sizes; its header lists those that it has",
    "NO_ADDRESS": "an operand that has elements is NULL",
    "LEADING_DIMENSION": "a stride is negative, or the distance of two lines is less than a line",
    "OVERLAP": "a result overlaps itself: its strides are too small",
    "ALIGNMENT": "no kernel of the package takes operands with these addresses and strides",
    "SPAN": "an operand spans more elements than the kernel counts",
    "GRID": "the launch has more programs than a grid holds",
    "WORKSPACE": "the workspace is NULL, too small, or not at a multiple of 256 bytes",
}
#: What CUresult says most often.
_CUDA_WORDS = (
    (1, "invalid value"),
    (2, "out of memory"),
    (3, "not initialized: call cuInit first"),
    (4, "it is shutting down"),
    (100, "no GPU"),
    (200, "the image is invalid"),
    (201, "the context is invalid"),
    (209, "the image is for another GPU"),
    (222, "the image is of another version"),
    (400, "a stream or another handle is invalid"),
    (700, "an address is illegal; the context is lost"),
    (701, "too many registers or too much shared memory for the launch"),
    (719, "a kernel failed; the context is lost"),
    (900, "the operation is not permitted while the stream is captured"),
)


def require_c_name(name: str) -> None:
    """Raise `CallError` for a name that files and functions of C cannot begin with."""
    if not _NAME.fullmatch(name) or name in TAKEN:
        expected = "a lower-case letter, then up to 63 of a to z, 0 to 9 and _, and no word of C or C++"
        raise CallError(f"package: --name: {shown(name)} is no name for C; expected {expected}")
    reason = why_no_family(name)
    if reason is not None:
        raise CallError(f"package: --name: {reason}")


class CubinSources:
    """The files of a package; raises `CallError` for a name that C does not take, and for too many bytes."""

    def __init__(self, package: CubinPackage) -> None:
        require_c_name(package.name)
        size = sum(len(image.data) for image in package.images)
        if size > MOST_BYTES:
            told = f"{len(package.images)} cubins have {size} bytes, and a C file may have {MOST_BYTES}"
            raise CallError(f"package --format cubin: {told}: give fewer --shapes, or select contracts by --only")
        self.package = package
        self.contracts = [ContractSource.of(each, package) for each in package.contracts]

    def files(self) -> Iterator[tuple[str, str]]:
        """The path and the text of each file."""
        package, example = self.package, next(filter(None, map(example_of, self.contracts)), None)
        major, minor = package.device.capability
        words = {
            "name": package.name,
            "upper": package.name.upper(),
            "family": package.family,
            "device": package.device.name,
            "triton": package.triton,
            "count": package.count,
            "major": major,
            "minor": minor,
            "statuses": STATUSES,
            "cuda_words": _CUDA_WORDS,
            "contracts": self.contracts,
            "left_out": package.left_out,
            "tables": Tables(package),
            "example": example,
        }
        templates = environment(data("emit", "cubin"))
        for file in ("package.h", "package.c", "package.py", "CMakeLists.txt", "README.md", "example.c"):
            if file != "example.c" or example is not None:
                yield file.replace("package", package.name), templates.get_template(f"{file}.j2").render(words)
