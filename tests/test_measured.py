"""Measurements in the repository: every file has a limit, so that none grows unseen, and tuning again adds nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.bench import measurements
from generator.language import tuned_file
from generator.tune import winners
from generator.tune.journal import Journal
from generator.verify import proof_records
from generator.verify.job_costs import JobCosts
from tests.helpers.support import ROOT

#: The most that a file may hold, in thousands of bytes. A file of a new name needs a limit here.
LIMITS = {
    "measured/coverage.json": 1,
    "measured/first_hour.json": 20,
    "measured/nvidia_h100_80gb_hbm3/bench_bands.json": 60,
    "measured/nvidia_h100_80gb_hbm3/bench_grouped.json": 10,
    "measured/nvidia_h100_80gb_hbm3/bench_models.json": 779,
    "measured/nvidia_h100_80gb_hbm3/bench_spine.json": 5,
    "measured/nvidia_h100_80gb_hbm3/bench_stored.json": 120,
    "measured/nvidia_h100_80gb_hbm3/bench_types.json": 80,
    "measured/nvidia_h100_80gb_hbm3/bench_unseen.json": 320,
    "measured/nvidia_h100_80gb_hbm3/bench_unseen_batches.json": 475,
    "measured/nvidia_h100_80gb_hbm3/bench_unseen_fp32.json": 400,
    "measured/nvidia_h100_80gb_hbm3/bench_unseen_fp8.json": 235,
    "measured/nvidia_h100_80gb_hbm3/bench_unseen_tokens.json": 240,
    "measured/nvidia_h100_80gb_hbm3/cubin.json": 2,
    "measured/nvidia_h100_80gb_hbm3/experts.json": 5,
    "measured/nvidia_h100_80gb_hbm3/fp32_errors.json": 5,
    "measured/nvidia_h100_80gb_hbm3/fragments.json": 90,
    "measured/nvidia_h100_80gb_hbm3/gradients.json": 3,
    "measured/nvidia_h100_80gb_hbm3/groups.json": 165,
    "measured/nvidia_h100_80gb_hbm3/launching_modules.json": 3,
    "measured/nvidia_h100_80gb_hbm3/launching_tables.json": 5,
    "measured/nvidia_h100_80gb_hbm3/llama_int4.json": 2,
    "measured/nvidia_h100_80gb_hbm3/quantised_layers.json": 15,
    "measured/nvidia_h100_80gb_hbm3/quantised_products.json": 40,
    "measured/nvidia_h100_80gb_hbm3/symmetric.json": 80,
    "measured/nvidia_h100_80gb_hbm3/torch_candidate.csv": 15,
    "measured/nvidia_h100_80gb_hbm3/training.json": 4,
    "measured/nvidia_h100_80gb_hbm3/tune_fp32.jsonl": 470,
    "measured/nvidia_h100_80gb_hbm3/tune_fp8_bands.jsonl": 355,
    "measured/nvidia_h100_80gb_hbm3/tune_fp8e4m3.jsonl": 85,
    "measured/nvidia_h100_80gb_hbm3/tune_fragments.jsonl": 190,
    "measured/nvidia_h100_80gb_hbm3/tune_gemm16.jsonl": 1850,
    "measured/nvidia_h100_80gb_hbm3/tune_symmetric.jsonl": 75,
    "measured/nvidia_h100_80gb_hbm3/tune_tf32x3.jsonl": 205,
    "measured/nvidia_h100_80gb_hbm3/whole_models.json": 10,
    "measured/nvidia_h200/bench_batched.json": 50,
    "measured/nvidia_h200/bench_decode.json": 150,
    "measured/nvidia_h200/bench_formulas.json": 160,
    "measured/nvidia_h200/bench_fused.json": 125,
    "measured/nvidia_h200/bench_grouped.json": 100,
    "measured/nvidia_h200/bench_inductor.json": 65,
    "measured/nvidia_h200/bench_speed.json": 1340,
    "measured/nvidia_h200/bench_spine.json": 60,
    "measured/nvidia_h200/bench_stored.json": 120,
    "measured/nvidia_h200/bench_types.json": 600,
    "measured/nvidia_h200/bench_unseen.json": 660,
    "measured/nvidia_h200/bench_unseen_fp8.json": 250,
    "measured/nvidia_h200/cubin.json": 1,
    "measured/nvidia_h200/gradients.json": 3,
    "measured/nvidia_h200/invariant.json": 20,
    "measured/nvidia_h200/launch.json": 15,
    "measured/nvidia_h200/launching.json": 5,
    "measured/nvidia_h200/llama.json": 4,
    "measured/nvidia_h200/llama_int4.json": 2,
    "measured/nvidia_h200/moe.json": 6,
    "measured/nvidia_h200/operators.json": 2,
    "measured/nvidia_h200/preparing.json": 5,
    "measured/nvidia_h200/profile.csv": 2,
    "measured/nvidia_h200/training.json": 4,
    "measured/nvidia_h200/training_two.json": 1,
    "measured/nvidia_h200/tune_batched.jsonl": 100,
    "measured/nvidia_h200/tune_fused.jsonl": 410,
    "measured/nvidia_h200/tune_gemm16.jsonl": 5230,
    "measured/nvidia_h200/tune_grouped.jsonl": 70,
    "measured/nvidia_h200/tune_stored.jsonl": 640,
    "measured/nvidia_h200/tune_types.jsonl": 2350,
    "measured/nvidia_h200/whole_models.json": 3,
    "measured/other_gpus.json": 2,
    "measured/proofs/interpreter_3.6.0.json": 530,
    "measured/proofs/interpreter_3.6.0_torch_2.11.0.json": 95,
    "measured/proofs/interpreter_3.8.0.json": 580,
    "measured/proofs/interpreter_3.9.0.json": 560,
    "measured/proofs/nvidia_h100_80gb_hbm3.json": 150,
    "measured/proofs/nvidia_h200.json": 530,
    "measured/proofs/nvidia_h200_triton_3.7.1.json": 13,
    "measured/proofs/nvidia_h200_triton_3.8.0.json": 13,
    "measured/proofs/nvidia_h200_triton_3.9.0.json": 13,
    "measured/proofs/triton_3.7.1.json": 740,
    "measured/proofs/triton_3.8.0.json": 140,
    "measured/proofs/triton_3.9.0.json": 90,
    "measured/resources.csv": 402,
    "measured/specs/bands.yaml": 1,
    "measured/specs/bands_sizes.yaml": 1,
    "measured/specs/fp8_bands.yaml": 2,
    "measured/specs/gemm16.yaml": 6,
    "measured/specs/symmetric.yaml": 3,
    "measured/specs/symmetric_sizes.yaml": 1,
    "measured/verifying.json": 1,
    "specs/tuned/nvidia_h100_80gb_hbm3/fp32.json": 145,
    "specs/tuned/nvidia_h100_80gb_hbm3/fp8e4m3_rcr.json": 90,
    "specs/tuned/nvidia_h100_80gb_hbm3/fragments.json": 60,
    "specs/tuned/nvidia_h100_80gb_hbm3/gemm16.json": 185,
    "specs/tuned/nvidia_h100_80gb_hbm3/symmetric.json": 20,
    "specs/tuned/nvidia_h100_80gb_hbm3/tf32x3.json": 85,
    "specs/tuned/nvidia_h100_80gb_hbm3/torch.json": 2,
    "specs/tuned/nvidia_h200/batched.json": 60,
    "specs/tuned/nvidia_h200/fp8_blocks.json": 45,
    "specs/tuned/nvidia_h200/fp8e4m3_rcr.json": 245,
    "specs/tuned/nvidia_h200/fused.json": 135,
    "specs/tuned/nvidia_h200/gemm16.json": 490,
    "specs/tuned/nvidia_h200/grouped_k.json": 30,
    "specs/tuned/nvidia_h200/int4_rcr.json": 75,
    "specs/tuned/nvidia_h200/int8_rcr.json": 80,
    "specs/tuned/nvidia_h200/sparse24.json": 65,
    "specs/tuned/nvidia_h200/tf32.json": 130,
    "specs/tuned/nvidia_h200/torch.json": 2,
    "specs/tuned/nvidia_h200/weights8_rcr.json": 155,
}
#: The most of all files together, in the same unit.
TOTAL = 24_950

FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in (ROOT / "measured", ROOT / "specs" / "tuned")
    for path in sorted(folder.rglob("*"))
    if path.is_file() and path.suffix != ".py"
}


def test_the_limits_are_of_the_files_there_are() -> None:
    assert set(LIMITS) == set(FILES)
    assert sum(LIMITS.values()) <= TOTAL


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_stays_below_its_limit(name: str) -> None:
    assert FILES[name].stat().st_size <= LIMITS[name] * 1000


def _tuned(path: Path) -> object:
    found = tuned_file.parse(path.read_text())
    # Rules of when torch's product is faster are in a file of their own.
    return found.aten or (found.winners and winners.read(path).winners)


#: How files of the commands are read: a pattern of their names, and what a file holds, which is never empty.
READERS: dict[str, Callable[[Path], object]] = {
    "specs/tuned/*/*.json": _tuned,
    "measured/*/tune_*.jsonl": lambda path: Journal(path).outcomes,
    "measured/*/bench_*.json": lambda path: measurements.load(path).records,
    "measured/proofs/*.json": lambda path: proof_records.read(path).proved,
}


@pytest.mark.parametrize("pattern", READERS)
def test_every_committed_file_is_read(pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths and {path.relative_to(ROOT).as_posix() for path in paths} <= set(FILES)
    assert [path for path in paths if not READERS[pattern](path)] == []


def test_the_shipped_durations_of_jobs_are_read() -> None:
    assert JobCosts.shipped().seconds
