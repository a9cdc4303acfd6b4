"""Axes that a spec leaves unset: the default words, and others on targets that cannot run these."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.plan import replacements
from tests.helpers.support import BASE, called, family_of

INT4 = "{a: bf16, b: int4, scales: {b: [128, 1]}}"
#: The mappings of the first table of docs/stored_operands.md whose direct product sm90 refuses.
PACKED = {
    "int4": INT4,
    "uint4": "{a: fp16, b: uint4, scales: {b: [64, 1]}, zeros: {b: true}}",
    "mxfp4": "{a: bf16, b: mxfp4}",
    "nvfp4": "{a: nvfp4, b: nvfp4}",
    "sparse": '{a: fp16, sparsity: {b: "2:4"}}',
}


def spec(dtype: str, more: str = "", layout: str = "rcr") -> str:
    return f"summary: A product.\nlayout: {layout}\ndtype: {dtype}\n{more}"


@pytest.mark.parametrize("option", ["--list", "--check", "--diff"])
def test_the_warning_is_printed_whatever_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "x.yaml").write_text(f"{BASE}load: descriptor\n")
    done = called(capsys, tmp_path / "x.yaml", option, "--out", tmp_path / "out")
    assert "x.yaml:1:1: warning: targets: sm80 is a default target" in done.err


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_a_target_with_little_shared_memory_has_a_default_configuration(target: str) -> None:
    (kernel,) = family_of(spec(PACKED["sparse"], f"targets: [sm80, {target}]\n")).kernels
    assert kernel.targets == ("sm80", target)
    own = [index for index in range(len(kernel.tiles)) if index not in dict(kernel.not_offered)[target]]
    assert own == [len(kernel.tiles) - 1]


def test_sums_that_do_not_repeat_are_never_chosen_unasked() -> None:
    assert "split_k_atomic" not in replacements._others("schedule")
