"""What the tests of the rendering half share: small specs, and the stages called by hand."""

from __future__ import annotations

import ast
import functools
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

from generator.commands.command_line import main
from generator.epilogue.chain import Epilogue
from generator.language.errors import SpecError
from generator.language.model import Dtype, Layout, Spec, Variant
from generator.language.spec import read
from generator.plan.expand import expand
from generator.plan.kernels import Family

ROOT = Path(__file__).resolve().parents[2]
SPECS = tuple(sorted((ROOT / "specs").glob("*.yaml")))
GENERATED = ROOT / "generated"

#: The files that every family has beside its kernels.
BESIDE_KERNELS = (
    ".gitattributes",
    "__init__.py",
    "__init__.pyi",
    "_runtime/__init__.py",
    "_runtime/call.py",
    "_runtime/launch.py",
    "_runtime/launchable.py",
    "_runtime/linear.py",
    "_runtime/operators.py",
    "_runtime/private.py",
    "_runtime/rows.py",
    "_shared_memory.py",
    "manifest.json",
    "nn.py",
    "py.typed",
)

#: How many files a family has beside its kernels where one takes only some sizes: that of such limits too.
LIMITED = len((*BESIDE_KERNELS, "_runtime/limits.py"))

#: Seconds after which a process is taken to hang: on a busy machine, seconds of work may take many minutes.
LONGEST = 3600

#: The three keys that a spec needs, on lines 1 to 3: what a test adds begins on line 4.
BASE = "summary: A product.\nlayout: rcr\ndtype: fp16\n"


@functools.cache
def pages() -> ModuleType:
    """docs/pages.py, which makes what README.md and docs/ take from code and data."""
    return module(ROOT / "docs" / "pages.py")


def module(path: Path) -> ModuleType:
    """A script that is in no package."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def read_text(text: str | bytes, name: str = "family.yaml", beside: Mapping[str, str] = {}) -> Spec:
    """The spec that a file of this content and name is; `beside` are the texts of other files of its folder."""
    with TemporaryDirectory() as folder:
        for file, content in beside.items():
            (Path(folder) / file).write_text(content)
        path = Path(folder) / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path)


def spec(keys: str) -> str:
    """A spec of these keys, between which stand semicolons."""
    return "".join(f"{key}\n" for key in f"summary: A product.; {keys}".split("; "))


def ops(text: str, chain: str = "none") -> str:
    """A spec with operations of its own, and a chain of them."""
    return f"{BASE}ops: {{{text}}}\nepilogue: {chain}\n"


def family_of(text: str, name: str = "family.yaml", beside: Mapping[str, str] = {}) -> Family:
    """The family of a spec."""
    return expand(read_text(text, name, beside))


def mistakes_of(text: str | bytes, name: str = "family.yaml", beside: Mapping[str, str] = {}) -> list[str]:
    """What is wrong with a spec, each mistake as it is printed, less the folder."""
    with pytest.raises(SpecError) as caught:
        expand(read_text(text, name, beside))
    return [f"{m.path.name}:{m.line}:{m.column}: {m.message}" for m in caught.value.mistakes]


def variant(**axes: object) -> Variant:
    """A variant of the plainest words, but for `axes`."""
    values: dict[str, object] = {
        "layout": Layout.of("rcr"),
        "dtype": Dtype.of("fp16"),
        "batch": "none",
        "epilogue": Epilogue(),
        "masking": "mnk",
        "swizzle": "grouped",
        "schedule": "tiled",
        "load": "pointer",
        "store": "as_load",
    }
    return Variant(**(values | axes))  # type: ignore[arg-type]


def render_spec(folder: Path, name: str, text: str, *options: object) -> Path:
    """Render a spec into the folder in which it is written; the folder of the family."""
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    assert main([str(folder / f"{name}.yaml"), "--out", str(folder), *map(str, options)]) == 0
    return folder / name


@dataclass(frozen=True)
class Spoken:
    """How a call ended, and what it said."""

    status: int
    out: str
    err: str


#: The fixture `cli`.
Cli = Callable[..., Spoken]


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> Spoken:
    """The command line in this process; argparse leaves by SystemExit."""
    capsys.readouterr()
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as left:
        status = int(left.code or 0)
    said = capsys.readouterr()
    return Spoken(status, said.out, said.err)


def python(
    *arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: int = LONGEST
) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that finds `generator` in the checkout."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    command = [sys.executable, *(str(argument) for argument in arguments)]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout)


def side_by_side(function: Callable[..., object], *calls: tuple[object, ...]) -> list[int | None]:
    """The exit statuses of processes that make these calls at the same time."""
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=function, args=call) for call in calls]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    return [run.exitcode for run in runs]


def unread(*arguments: object, cwd: Path, both: bool = False) -> int:
    """The status of a command whose output nobody reads: the reading end of its pipe is closed at once."""
    reading, writing = os.pipe()
    os.close(reading)
    call = [sys.executable, "-m", "generator", *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    other = writing if both else subprocess.PIPE
    ran = subprocess.run(call, cwd=cwd, env=variables, stdout=writing, stderr=other, timeout=LONGEST)
    os.close(writing)
    assert both or (b"Traceback" not in ran.stderr and b"Exception" not in ran.stderr)
    return ran.returncode


def ruff(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A call of ruff in the checkout."""
    command = [sys.executable, "-m", "ruff", *(str(argument) for argument in arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)


def assert_formatted(*folders: Path) -> None:
    """No formatter would change a file below the folders."""
    options = ("--no-cache", "--isolated", "--line-length", "120")
    checked = ruff("format", "--check", *options, *folders)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def forget(package: str) -> None:
    """Let the next test import another package of this name."""
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def files_of(folder: Path) -> list[Path]:
    """Every file below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its relative path; links are named, not followed."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts and (path.is_symlink() or path.is_file())
    }


def without_docstring(source: str) -> str:
    """The syntax tree of a module less its docstring."""
    tree = ast.parse(source)
    assert ast.get_docstring(tree, clean=False) is not None
    return ast.dump(ast.Module(tree.body[1:], []))
