"""Measured times as samples: several outcomes of a size are combined, and unaligned operands are known."""

from __future__ import annotations

import pytest

from generator.language.model import Variant
from generator.plan.expand import expand
from generator.tune.outcome import Outcome, Timed, Winner
from generator.tune.samples import samples_of
from tests.helpers.support import BASE, read_text

KERNEL = "tiled_pointer_auto_grouped"


def variants(layout: str) -> dict[str, Variant]:
    spec = read_text(BASE.replace("layout: rcr", f"layout: {layout}"))
    return {kernel.variant.contract: kernel.variant for kernel in expand(spec).kernels}


def outcome(contract: str, sizes: tuple[int, int, int], times: dict[int, float]) -> Outcome:
    """Times by BLOCK_M."""
    timed = tuple(Timed(f"{contract}__{KERNEL}", {"BLOCK_M": m}, seconds) for m, seconds in times.items())
    best = min(timed, key=lambda each: each.seconds)
    return Outcome(timed, (), Winner(contract, *sizes, best.kernel, best.config, best.seconds))


def times_of(outcomes: list[Outcome], layout: str = "rcr") -> dict[int, float]:
    found = list(samples_of(outcomes, variants(layout)))
    assert len({sample.row for sample in found}) == len(found) and {sample.width for sample in found} == {2}
    return {dict(sample.row[2])["BLOCK_M"]: sample.seconds for sample in found}


def test_one_outcome_is_its_times() -> None:
    times = {16: 3e-6, 32: 2e-6}
    assert times_of([outcome("gemm_fp16_rcr_none", (64, 64, 64), times)]) == times


def test_times_at_a_lower_clock_rate_are_corrected() -> None:
    """Of two outcomes, the second at a tenth less speed, each has a row that the other lacks."""
    first, second = {16: 1e-6, 32: 2e-6, 64: 3e-6}, {16: 1.1e-6, 32: 2.2e-6, 128: 3.3e-6}
    found = times_of([outcome("gemm_fp16_rcr_none", (64, 64, 64), each) for each in (first, second)])
    assert {m: found[m] / found[16] for m in found} == pytest.approx({16: 1, 32: 2, 64: 3, 128: 3}, rel=1e-3)
    assert 1e-6 <= found[16] <= 1.1e-6


def test_sizes_are_apart() -> None:
    own = [outcome("gemm_fp16_rcr_none", (m, 64, 64), {16: m * 1e-8}) for m in (64, 128)]
    assert {s.sizes: s.seconds for s in samples_of(own, variants("rcr"))} == {
        (64, 64, 64): 64e-8,
        (128, 64, 64): 128e-8,
    }


def test_what_has_no_winner_or_is_of_another_contract_is_no_sample() -> None:
    own = outcome("gemm_fp16_rrr_none", (64, 64, 64), {16: 1e-6})
    assert not list(samples_of([own, Outcome()], variants("rcr")))


@pytest.mark.parametrize(
    ("layout", "sizes", "aligned"),
    [
        # Rows of A and of the transposed B are K elements long, and M does not matter.
        ("rcr", (1, 64, 4096), True),
        ("rcr", (64, 64, 72), False),
        # 208 bytes cross a line of 128 bytes, 32 bytes do not.
        ("rcr", (64, 64, 104), False),
        ("rcr", (64, 64, 16), True),
        ("rrr", (64, 104, 4096), False),
        # Columns of A are M elements long.
        ("ccr", (8, 64, 4096), False),
        ("ccr", (16, 64, 4096), True),
        ("ccr", (96, 64, 4096), False),
    ],
)
def test_unaligned_operands_are_known(layout: str, sizes: tuple[int, int, int], aligned: bool) -> None:
    (sample,) = samples_of([outcome(f"gemm_fp16_{layout}_none", sizes, {16: 1e-6})], variants(layout))
    assert sample.aligned == aligned
