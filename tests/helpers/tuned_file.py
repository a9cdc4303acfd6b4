"""Measurements as `tune` writes them, of a family of two kernels and two rows, and the spec that names their file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from generator.runtime import fitted
from tests.helpers.support import BASE

SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
LARGE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
TILES = "tile:\n  - {m: 64, n: 64, k: 64, warps: 4}\n  - {m: 128, n: 128, k: 64, warps: 8}\n"
SPEC = f"{BASE}masking: [auto, none]\nselect: table\ntuned: found.json\n{TILES}"
AUTO, NONE = "tiled_pointer_auto_grouped", "tiled_pointer_none_grouped"
#: A small tile that is quick to begin, a large one that is quick where there is much to do; the best for whole tiles.
RATES = {
    (AUTO, 0): (2, 3e-7, 2.5e-7, 1e-6, 1e12, 2e-6, -0.1, 0.2),
    (AUTO, 1): (1, 8e-7, 5e-7, 2e-6, 4e12, 4e-6, -0.1, 0.2),
    (NONE, 1): (1, 4e-7, 2.5e-7, 1e-6, 4e12, 1e-6, -0.1, 0.2),
}
DEVICE = "Some GPU"


def measured(contract: str = "gemm_fp16_rcr_none") -> dict[str, Any]:
    """A file as `tune` writes it, without what may be missing."""
    return {
        "format": 2,
        "device": DEVICE,
        "multiprocessors": 132,
        "torch": "2.11.0",
        "triton": "3.6.0",
        "error": 0.034,
        "regret": 0.05,
        "kernels": {f"{contract}__{how}": f"digest of {how}" for how in (AUTO, NONE)},
        "winners": [
            {"contract": contract, "m": m, "n": n, "k": k, "kernel": f"{contract}__{how}", "config": row}
            for m, n, k, how, row in ((4096, 4096, 64, AUTO, SMALL), (128, 256, 512, NONE, LARGE))
        ],
        "rates": [
            {"contract": contract, "kernel": f"{contract}__{how}", "config": (SMALL, LARGE)[row], "rates": list(rates)}
            for (how, row), rates in RATES.items()
        ],
    }


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """The text of a file that was changed."""
    found = copy.deepcopy(measured())
    change(found)
    return json.dumps(found)


GOOD = json.dumps(measured())


def one_seconds(
    row: dict[str, int],
    rates: tuple[float, ...],
    sizes: tuple[int, ...],
    multiprocessors: int,
    width: int,
    crossing: tuple[bool, bool] = (False, False),
) -> float:
    """The seconds of one configuration by the fitted cost model."""
    return fitted.seconds([fitted.rated(row, rates)], sizes, multiprocessors, width, crossing)[0]
