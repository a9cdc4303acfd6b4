"""The program's own name, as it was called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from generator.files.program import program
from tests.helpers.support import BASE, GENERATED, Spoken


@pytest.mark.parametrize(
    ("called", "name"),
    [
        (["/usr/bin/gemm-generator", "gemm-generator.exe", "gemm-generator-script.py"], "gemm-generator"),
        (["/site/generator/__main__.py", "-c", ""], "python -m generator"),
    ],
)
def test_the_name(called: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in called:
        monkeypatch.setattr(sys, "argv", [each] if each else [])
        assert program() == name


def test_hints_repeat_it(cli: Callable[..., Spoken], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gemm-generator"])
    Path("family.yaml").write_text(BASE)
    said = [
        cli("family.yaml", "--check").err,
        cli("verify", "family.yaml").err,
        cli("new", "mine").out,
        cli("--json").err,
        cli("bench", "family.yaml", "--out", "nowhere").err,
        cli("verify", GENERATED / "ladder", "--level", "interpret", "--out", "nowhere", "--only", "nothing").err,
    ]
    assert "render with: gemm-generator family.yaml\n" in said[0] and "gemm-generator verify mine.yaml" in said[2]
    assert "render it first: gemm-generator family.yaml\n" in said[1] and said[3].startswith("gemm-generator: ")
    assert not any("python -m" in text for text in said)
    assert cli("verify").err.startswith("usage: gemm-generator verify ")
