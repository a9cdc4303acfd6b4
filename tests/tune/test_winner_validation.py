"""Winners that a row which was not measured beside them promises to beat: left out, told, and measured by --refine."""

from __future__ import annotations

import json
import math

import pytest

from generator.bench.comparison_plan import Families
from generator.plan.devices import DEVICES
from generator.tune.outcome import ConfirmedWinner, Row, row_of
from generator.tune.samples import Sample
from generator.tune.winner_validation import DOUBTED, doubtful
from tests.helpers.tune import fake_gpu as fakes

from .conftest import Bench

CONTRACT = "gemm_fp16_rcr_none"
KERNEL = f"{CONTRACT}__tiled_pointer_auto_grouped"
ROWS = [{"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 16, "num_warps": 1, "num_stages": 2} for m, n in ((16, 16), (32, 16))]
SLOW, FAST = (row_of(CONTRACT, KERNEL, row) for row in ROWS)
SIZES = (32, 32, 32)


def rates(launch: float) -> tuple[float, ...]:
    """Rates by which everything takes what a launch does, and next to nothing else."""
    return (1, 1e-12, 1e-12, 1e-12, 1e18, launch / math.sqrt(2), 0.0, 0.0)


def doubted(
    bench: Bench, samples: list[Sample], promised: dict[Row, tuple[float, ...]], library: float | None = None
) -> bool:
    """Whether the winner of one size, with 3 ms, is in doubt."""
    winner = ConfirmedWinner(CONTRACT, *SIZES, KERNEL, ROWS[0], 3e-3, library)
    families = Families([bench.folder / "specs" / "tiny.yaml"], bench.folder / "generated")
    found = list(doubtful(families, "tiny", [winner], samples, promised, DEVICES["nvidia_h200"], "3.7.1"))
    assert not found or [each for each, _ in found] == [winner]
    return bool(found)


def test_a_winner_is_in_doubt_where_an_unmeasured_row_promises_far_more(bench: Bench) -> None:
    for promised, measured, library, expected in (
        (2e-3, [SLOW], 2.9e-3, True),
        # What was measured is known, whatever is promised.
        (2e-3, [SLOW, FAST], 2.9e-3, False),
        # The rates are off by as much.
        (3e-3 / DOUBTED * 1.01, [SLOW], 2.9e-3, False),
        (3e-3 / DOUBTED * 0.99, [SLOW], 2.9e-3, True),
        # Nobody was faster.
        (2e-3, [SLOW], 3.1e-3, False),
        (2e-3, [SLOW], None, True),
    ):
        samples = [Sample(row, SIZES, 2, 3e-3) for row in measured]
        found = doubted(bench, samples, {SLOW: rates(3e-3), FAST: rates(promised)}, library)
        assert found is expected, (promised, measured, library)
    # The model does not describe unaligned operands, and promises too much.
    for aligned in (True, False):
        assert doubted(bench, [Sample(SLOW, SIZES, 2, 3e-3, aligned)], {FAST: rates(1e-6)}) is aligned
    # A kernel that refuses the sizes, as one by descriptors does of rows that do not step by 16 bytes.
    path = bench.kernel("rcr", "grouped")
    path.write_text(path.read_text() + "\n\nCALL = SimpleNamespace(refusal=lambda **given: 'not these')\n")
    assert not doubted(bench, [], {FAST: rates(1e-6)})


def test_what_is_in_doubt_is_left_out_until_it_is_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes.Device, "library", 1e-3)
    shapes = [f"{16 * i}x{32 * i}x{32 * i}" for i in range(1, 5)]
    (bench.folder / "shapes.yaml").write_text(f"[{', '.join(shapes)}]")
    only = ("--only", f"{CONTRACT}__*")
    bench.tune(*only, "--candidates", "6")
    assert "left out" not in bench.said().out
    # The best candidate alone by the prior, which knows nothing of what these stand-ins cost: none of the fast ones.
    (bench.folder / "shapes.yaml").write_text("[64x48x64]")
    bench.tune(*only, "--candidates", "1")
    told = bench.said().out
    sizes = [(w["m"], w["n"], w["k"]) for w in json.loads(bench.winners.read_text())["winners"]]
    assert (64, 48, 64) not in sizes and len(sizes) == 4
    assert f"{CONTRACT} 64x48x64: " in told and "--refine measures it" in told
    bench.tune(*only, "--candidates", "1", "--refine")
    sizes = [(w["m"], w["n"], w["k"]) for w in json.loads(bench.winners.read_text())["winners"]]
    assert (64, 48, 64) in sizes
