"""A package of cubins compiled by gcc, called by ctypes in a process whose CUDA driver is `fake_cuda.c`."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generator.emit.cubin.contracts import CubinPackage
from generator.emit.cubin.sources import files

#: Warnings are errors.
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
_FAKE = Path(__file__).with_name("fake_cuda.c")
#: Calls the functions of a package as the standard input says, and prints the status and the words of each.
_CALLER = """
import importlib, json, os, sys
folder, name, library = sys.argv[1:]
sys.path.insert(0, folder)
package = importlib.import_module(name)
calls = json.load(sys.stdin)
answers = []
try:
    kernels = package.Kernels(library)
except package.Error as error:
    print(json.dumps([[error.status, str(error)]]))
    sys.exit()
for function, stream, fields, environment in calls:
    os.environ.update(environment)
    with open(os.environ["FAKE_CUDA_LOG"], "a") as log:
        print("--", file=log)
    try:
        called = getattr(kernels, function)
        answers.append([0, called(**fields) if stream is None else called(stream, **fields)])
    except package.Error as error:
        answers.append([error.status, str(error)])
with open(os.environ["FAKE_CUDA_LOG"], "a") as log:
    print("--", file=log)
try:
    kernels.close()
except package.Error as error:
    answers.append([error.status, str(error)])
print(json.dumps(answers))
"""


def compiled_with(*command: object) -> None:
    """Run a compiler; what it prints is the reason of a failure."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def fake_driver(folder: Path) -> Path:
    """The folder with a library `libcuda.so.1` that runs nothing."""
    made = folder / "driver"
    made.mkdir()
    compiled_with("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", _FAKE, "-lm", "-o", made / "libcuda.so.1")
    return made


def parameter_sizes(cubin: bytes, name: str) -> list[int]:
    """The bytes of each parameter of a kernel, as its image says."""
    (at,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + index * size) for index in range(count)]

    def name_of(section: tuple[int, ...]) -> str:
        start = sections[names][4] + section[0]
        return cubin[start : cubin.index(b"\0", start)].decode()

    (info,) = (section for section in sections if name_of(section) == f".nv.info.{name}")
    found, at, end = {}, info[4], info[4] + info[5]
    while at < end:
        form, attribute, length = struct.unpack_from("<BBH", cubin, at)
        # Of the forms only 4 has data behind its length; 0x17 describes a parameter.
        if (form, attribute) == (4, 0x17):
            _, ordinal, _, flags = struct.unpack_from("<IHHI", cubin, at + 4)
            found[ordinal] = flags >> 18
        at += 4 + (length if form == 4 else 0)
    return [found[ordinal] for ordinal in sorted(found)]


def hashed(data: bytes) -> str:
    """What `fake_cuda.c` writes for an image of these bytes."""
    found = 14695981039346656037
    for byte in data:
        found = (found ^ byte) * 1099511628211 % 2**64
    return f"{found:016x}"


@dataclass
class Built:
    """A package in a folder, with its shared library, for calls with the fake driver."""

    folder: Path
    package: CubinPackage
    driver: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path, text in files(self.package):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        source = self.folder / f"{self.package.name}.c"
        compiled_with("gcc", "-std=c11", *STRICT, "-shared", "-fPIC", source, "-o", self.library)
        sizes = [[len(x.data), *parameter_sizes(x.data, x.name)] for x in self.package.images]
        (self.folder / "sizes.txt").write_text("".join(f"{' '.join(map(str, each))}\n" for each in sizes))

    @property
    def library(self) -> Path:
        return self.folder / "library.so"

    def called(
        self, *calls: tuple[str, int | None, Mapping[str, Any]], environment: Mapping[str, str] = {}, **later: str
    ) -> tuple[list[list[Any]], list[list[list[str]]]]:
        """The answer of each call, and the words that the driver was called with: to load, by each call, to unload.

        A call is a function, a stream (None for functions without one) and fields. `later`: variables for the calls.
        """
        log = self.folder / "log.txt"
        log.unlink(missing_ok=True)
        variables = {"FAKE_CUDA_LOG": str(log), "FAKE_CUDA_SIZES": str(self.folder / "sizes.txt")}
        done = subprocess.run(
            [sys.executable, "-c", _CALLER, str(self.folder), self.package.name, str(self.library)],
            input=json.dumps([(*call, later) for call in calls]),
            env={**os.environ, **variables, "LD_LIBRARY_PATH": str(self.driver), **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        parts: list[list[list[str]]] = [[]]
        for line in log.read_text().splitlines() if log.exists() else ():
            if line == "--":
                parts.append([])
            elif not line.startswith("cuCtxGetCurrent"):
                parts[-1].append(line.split())
        return json.loads(done.stdout), parts


def of_kind(lines: Sequence[Sequence[str]], name: str) -> list[list[str]]:
    """The words of the calls of a function of the driver, without the function."""
    return [list(line[1:]) for line in lines if line[0] == name]
