"""The files of a package of cubins.

    NAME.h, NAME.c             what a program includes and compiles: `launcher.c`, its tables, and the cubins as arrays
    NAME.py                    the same by ctypes, of a shared library that NAME.c was compiled to
    example.c                  one contract, compared with known results on the GPU

The cubins are in the C file, so that a program needs one more file, or one object, and finds it without a path.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from generator.emit.cubin.contracts import TAKEN, CubinContract, CubinPackage
from generator.emit.cubin.example import example_of
from generator.emit.cubin.tables import row
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


def require_c_name(name: str) -> None:
    """Raise `CallError` for a name that files and functions of C cannot begin with."""
    if not _NAME.fullmatch(name) or name in TAKEN:
        expected = "a lower-case letter, then up to 63 of a to z, 0 to 9 and _, and no word of C or C++"
        raise CallError(f"package: --name: {shown(name)} is no name for C; expected {expected}")
    reason = why_no_family(name)
    if reason is not None:
        raise CallError(f"package: --name: {reason}")


def files(package: CubinPackage) -> Iterator[tuple[str, str]]:
    """The path and the text of each file; raises `CallError` for a name that C does not take, or too many bytes."""
    require_c_name(package.name)
    size = sum(len(image.data) for image in package.images)
    if size > MOST_BYTES:
        size_text = f"{len(package.images)} cubins have {size} bytes, and a C file may have {MOST_BYTES}"
        raise CallError(f"package --format cubin: {size_text}: give fewer --shapes, or select contracts by --only")
    example = next(filter(None, (example_of(x, package.count) for x in package.contracts)), None)
    words = {
        "package": package,
        "name": package.name,
        "upper": package.name.upper(),
        "statuses": STATUSES,
        "contracts": [(x, [*_operands(package, x)], _runs(x)) for x in package.contracts],
        "images": [(x, _words(x.data)) for x in package.images],
        "launcher": data("emit", "cubin", "launcher.c").read_text(encoding="utf-8"),
        "example": example,
    }
    templates = environment(data("emit", "cubin"))
    for file in ("package.h", "package.c", "package.py", *(["example.c"] if example else [])):
        yield file.replace("package", package.name), templates.get_template(f"{file}.j2").render(words)


def _words(data: bytes) -> Iterator[str]:
    """The bytes of an image as lines of numbers of 8 bytes, the last ones filled up with zeros."""
    numbers = [f"0x{word:x}," for (word,) in struct.iter_unpack("<Q", data + bytes(-len(data) % 8))]
    return ("".join(numbers[at : at + 8]) for at in range(0, len(numbers), 8))


def _operands(package: CubinPackage, contract: CubinContract) -> Iterator[str]:
    """The row of each operand of a call."""
    call = f"{package.name}_{contract.name}_call"
    for x, (name, strides) in zip(contract.operands, contract.names):
        fields = [f"offsetof({call}, {strides[i]})" if i in strides else 0 for i in range(3)]
        described = (len(x.extents), -1 if x.unit is None else x.unit, x.bytes, x.written, x.loose)
        yield row(*described, package.tables.three(x.extents), f"offsetof({call}, {name})", fields)


def _runs(contract: CubinContract) -> list[str]:
    return [row(x.n, x.k, x.first, x.last, [*x.entries]) for x in contract.runs]
