"""Kernels with `invariant: rows`: their choice of a configuration, which does not read M, is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.emit.render import kernel_source
from tests.helpers.bounds.kernels import proof_of
from tests.helpers.support import BASE, family_of

TILES = "tile:\n  - {m: 64, n: 64, k: 64, warps: 4}\n  - {m: 128, n: 128, k: 64, warps: 8}\n"


def text_of(keys: str) -> str:
    family = family_of(f"{BASE}{TILES}{keys}invariant: rows\n")
    (kernel,) = family.kernels
    return kernel_source(family.spec, kernel)


@pytest.mark.parametrize("keys", ["", "masking: mn\n", "schedule: split_k\n", "batch: strided\n", "select: fixed\n"])
def test_every_access_is_proved(keys: str, tmp_path: Path) -> None:
    proof = proof_of(tmp_path, text_of(keys))
    assert {access.state for access in proof.accesses} == {"proved"} and proof.order.state == "proved"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return min(rows, key=slowdown)", "return min(least, key=slowdown)", "_select, through which"),
        ("    least = {", "    rows = [{}]\n    least = {", "_select, through which"),
        ("    rows = [row for row in CONFIGS if _fits(row, 0, N, K)]", "    rows = CONFIGS", "_select, through which"),
        ('return K % row["BLOCK_K"] == 0', 'return K % row["BLOCK_K"] == 0 and M < 9', "_fits, which depends on M"),
    ],
)
def test_another_choice_is_not_understood(old: str, new: str, reason: str, tmp_path: Path) -> None:
    text = text_of("masking: mn\n")
    assert old in text
    accesses = proof_of(tmp_path, text.replace(old, new)).accesses
    assert accesses
    for access in accesses:
        assert access.state == "not proved" and reason in access.detail, access
