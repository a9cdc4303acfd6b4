"""The word `torchao`: for which families it is, and that they work where the library is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.commands.command_line import main
from tests.helpers.support import python, render_spec

INT4 = "dtype: {a: fp16, b: int4, scales: {b: [32, 1]}}\n"
PLAIN = "summary: A product.\nlayout: rcr\ndtype: fp16\nload: pointer\n"


@pytest.mark.parametrize(
    "more", ["batch: strided\n", "epilogue: bias+relu\n", "dtype: {a: fp16, b: int4}\n", "dtype: fp16\n"]
)
def test_torchao_is_for_layers_with_a_stored_weight(tmp_path: Path, more: str) -> None:
    spec = PLAIN.replace("dtype: fp16\n", "" if "dtype" in more else INT4) + f"{more}with: torchao\n"
    (tmp_path / "family.yaml").write_text(spec)
    assert main([str(tmp_path / "family.yaml"), "--out", str(tmp_path)]) == 2


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
    render_spec(tmp_path, "family", PLAIN.replace("dtype: fp16", f"{INT4}with: torchao"))
    ran = python("-c", WITHOUT, cwd=tmp_path, env={"TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)})
    assert (ran.returncode, ran.stdout) == (0, "torchao\n"), ran.stderr
