"""Axes that a spec leaves unset: the default words, and others on targets that cannot run these."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.support import BASE, called, family_of


@pytest.mark.parametrize("option", ["--list", "--check", "--diff"])
def test_the_warning_is_printed_whatever_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "x.yaml").write_text(f"{BASE}load: descriptor\n")
    done = called(capsys, tmp_path / "x.yaml", option, "--out", tmp_path / "out")
    assert "x.yaml:1:1: warning: targets: sm80 is a default target" in done.err


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_a_target_with_little_shared_memory_has_a_default_configuration(target: str) -> None:
    text = BASE.replace("fp16", '{a: fp16, sparsity: {b: "2:4"}}')
    (kernel,) = family_of(f"{text}targets: [sm80, {target}]\n").kernels
    assert kernel.targets == ("sm80", target)
    own = [index for index in range(len(kernel.tiles)) if index not in dict(kernel.not_offered)[target]]
    assert own == [len(kernel.tiles) - 1]
