"""Which modules of the library a family has: only those that its kernels and functions can need."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from generator.commands.command_line import main
from tests.helpers.support import python

INT4 = "dtype: {a: fp16, b: int4, scales: {b: [32, 1]}}\n"
PLAIN = "summary: A product.\nlayout: rcr\ndtype: fp16\nload: pointer\n"


def modules(folder: Path, spec: str) -> set[str]:
    """The modules of a rendered family, each of which Python can parse."""
    (folder / "family.yaml").write_text(spec)
    assert main([str(folder / "family.yaml"), "--out", str(folder)]) == 0
    paths = [*(folder / "family" / "_runtime").glob("*.py")]
    assert all(ast.parse(path.read_text()) for path in paths)
    return {path.stem for path in paths} - {"__init__"}


@pytest.mark.parametrize(
    "more", ["batch: strided\n", "epilogue: bias+relu\n", "dtype: {a: fp16, b: int4}\n", "dtype: fp16\n"]
)
def test_torchao_is_for_layers_with_a_stored_weight(tmp_path: Path, more: str) -> None:
    spec = PLAIN.replace("dtype: fp16\n", "" if "dtype" in more else INT4) + f"{more}with: torchao\n"
    (tmp_path / "family.yaml").write_text(spec)
    assert main([str(tmp_path / "family.yaml"), "--out", str(tmp_path)]) == 2


@pytest.mark.parametrize("brought", [True, False])
def test_one_module_of_a_family_names_torchao(tmp_path: Path, brought: bool) -> None:
    """`ao`, by what it imports, which is there where the spec asks for it."""
    found = modules(tmp_path, PLAIN.replace("dtype: fp16\n", INT4) + "with: torchao\n" * brought)
    assert ("torchao_weights" in found, (tmp_path / "family" / "ao.py").exists()) == (brought, brought)
    paths = [*(tmp_path / "family").rglob("*.py")]
    naming = {path.stem for path in paths if "torchao" in {name.split(".")[0] for name in _imported(path)}}
    assert naming == ({"torchao_weights"} if brought else set())
    importing = {path.stem for path in paths if "torchao_weights" in {name.split(".")[-1] for name in _imported(path)}}
    assert importing == ({"ao"} if brought else set())


def _imported(path: Path) -> set[str]:
    """The modules that a file imports."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


#: Calls a layer with a stored weight where torchao cannot be imported, and asks for what needs it.
WITHOUT = """
import sys, torch
sys.modules["torchao"] = None
import family
from family._pack import quantize
(name,) = family._KERNELS
assert getattr(family, name)(torch.ones(2, 32).half(), **quantize(torch.ones(32, 8), name)).shape == (2, 8)
assert "ao" in dir(family)
try:
    family.ao
except ModuleNotFoundError as error:
    print(error.name.partition(".")[0])
"""


def test_a_family_works_without_torchao(tmp_path: Path) -> None:
    modules(tmp_path, PLAIN.replace("dtype: fp16", f"{INT4}with: torchao"))
    ran = python("-c", WITHOUT, cwd=tmp_path, env={"TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)})
    assert (ran.returncode, ran.stdout) == (0, "torchao\n"), ran.stderr
