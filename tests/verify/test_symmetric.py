"""Symmetric results: the triangle of tiles in every order, and kernels held to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.language import vocabulary
from generator.language.model import Tile
from generator.verify.coverage import Coverage
from generator.verify.job_selection import covered, plan
from generator.verify.jobs import JobState
from generator.verify.tile_order import tiles
from generator.verify.worker_pool import Pool
from tests.helpers.support import variant
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: Symmetric products.
layout: [rcr, ssc]
dtype: fp32
batch: [none, strided]
result: symmetric
epilogue: [save+scale+add]
masking: [auto, none]
swizzle: [grouped, linear]
schedule: [tiled, persistent, split_k]
tile:
  - {m: 16, n: 64, k: 16, group: 2, warps: 4, split: 2}
exclude:
  - {layout: ssc, swizzle: grouped, because: "one order is enough for it"}
  - {layout: rcr, swizzle: linear, because: "one order is enough for it"}
  - {masking: none, batch: strided, because: "one product is enough for it"}
"""


@pytest.mark.parametrize("swizzle", [word for word, order in vocabulary.SWIZZLE.items() if order.available])
@pytest.mark.parametrize("tall", [1, 2, 4])
def test_every_tile_of_the_triangle_has_one_number(swizzle: str, tall: int) -> None:
    v = variant(result="symmetric", swizzle=swizzle, masking="auto")
    tile = Tile(16, 16 * tall, 16, warps=4, group=3, chiplets=3)
    for blocks in range(10):
        found = list(tiles(v, tile, blocks * tall, blocks))
        triangle = [(m, n) for m in range(blocks * tall) for n in range(m // tall, blocks)]
        assert sorted(found) == triangle


def test_kernels_are_right_and_store_each_element_once(tmp_path: Path, pools: Callable[[str], Pool]) -> None:
    """What is expected below the diagonal is what is above it, of operands whose product is not symmetric."""
    family = rendered(tmp_path, "symmetric", SPEC)
    jobs, _ = covered(plan([family], ("interpret",)), [family], Coverage.parse("kernels"))
    for future in [pools("interpret").submit(job) for job in jobs]:
        result = future.result()
        assert result.state is JobState.PASSED, (result.job.name, result.failures, result.not_proved)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("mask=in_upper & (offs_m[:, None] < offs_n[None, :])", "mask=in_upper", "were stored twice"),
        ("(offs_m[:, None] <= offs_n[None, :])", "(offs_m[:, None] < offs_n[None, :])", "were never written"),
        ("fold_shift = 1 - num_blocks % 2", "fold_shift = 0", "were never written"),
    ],
)
def test_a_mistake_is_found_by_the_interpreter(
    tmp_path: Path, pools: Callable[[str], Pool], old: str, new: str, told: str
) -> None:
    spec = "summary: x\nlayout: rcr\ndtype: fp32\nresult: symmetric\ntile:\n  - {m: 16, n: 32, k: 16, warps: 4}\n"
    family = rendered(tmp_path, "symmetric", spec)
    (kernel,) = family.kernels
    text = family.file(kernel.name).read_text()
    first, found, rest = text.partition(old)
    assert found
    family.file(kernel.name).write_text(first + new + rest)
    job = next(job for job in plan([family], ("interpret",)) if job.name == kernel.name)
    result = pools("interpret").submit(job).result()
    assert any(told in failure.message for failure in result.failures), result.failures
