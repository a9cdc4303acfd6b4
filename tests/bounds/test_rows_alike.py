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
