"""What is measured and what is not: legality, the model's order, and the calls that compile the same code."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import generator.cli
from generator.bench.comparison_plan import Families
from generator.bench.problem import Shape
from generator.cost import analytic
from generator.language.errors import CallError
from generator.plan.kernels import Kernel
from generator.tune.trial_selection import Plan, calls, plan
from generator.verify.loading import load_kernel
from tests.helpers.support import ROOT, family_of

H200 = analytic.DEVICES["nvidia_h200"]
TRITON = "3.7.1"
SPEC = """\
summary: Every reason to leave a row out.
name: mixed
layout: rcr
dtype: fp16
masking: [none, auto]
load: [pointer, descriptor, block_pointer]
tile:
  - {m: 128, n: 128, k: 64, warps: 8, stages: 3}
  - {m: 64, n: 64, k: 64, warps: 4, stages: 3}
  - {m: 128, n: 256, k: 64, warps: 8, stages: 4}
targets: [sm80, sm89, sm90]
exclude:
  - {masking: none, load: [descriptor, block_pointer], because: "one unmasked kernel is enough"}
"""


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the family `mixed`, rendered."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.yaml").write_text(SPEC)
    assert generator.cli.main(["mixed.yaml"]) == 0
    return tmp_path


def planned(
    *shapes: Shape, device: analytic.Device = H200, triton: str = TRITON, most: int = 100, only: str | None = None
) -> Plan:
    return plan(Families([Path("mixed.yaml")], Path("generated")), shapes, device, triton, most, only)


def offered(found: Plan) -> dict[str, list[int]]:
    """The rows that are to be measured by kernel, less the words that all share."""
    rows: dict[str, list[int]] = {}
    for candidate in found.trials[0].candidates:
        name = candidate.contestant.kernel.partition("__tiled_")[2].removesuffix("_grouped")
        rows.setdefault(name, []).append(candidate.index)
    return {name: sorted(indices) for name, indices in rows.items()}


def test_every_row_that_is_legal_is_a_candidate(mixed: Path) -> None:
    assert offered(planned(Shape(256, 256, 256))) == {
        "pointer_none": [0, 1, 2],
        "pointer_auto": [0, 1, 2],
        "descriptor_auto": [0, 1, 2],
        "blockpointer_auto": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("shape", "target", "triton", "kernel", "rows", "reason"),
    [
        ((192, 256, 256), "sm90", TRITON, "pointer_none", [1], "not for these sizes"),
        ((256, 256, 250), "sm90", TRITON, "pointer_none", None, "refused by the kernel at these sizes"),
        ((256, 256, 250), "sm90", TRITON, "descriptor_auto", None, "refused by the kernel at these sizes"),
        ((256, 256, 256), "sm80", TRITON, "descriptor_auto", None, "not for sm80"),
        ((256, 256, 256), "sm89", TRITON, "pointer_auto", [0, 1], "too large for sm89"),
        ((256, 256, 256), "sm90", "3.9.0", "blockpointer_auto", None, "not for Triton 3.9.0"),
    ],
)
def test_what_cannot_run_is_left_out_with_its_reason(
    mixed: Path,
    shape: tuple[int, int, int],
    target: str,
    triton: str,
    kernel: str,
    rows: list[int] | None,
    reason: str,
) -> None:
    found = planned(Shape(*shape), device=replace(H200, target=target), triton=triton)
    assert offered(found).get(kernel) == rows
    assert found.left_out[reason] > 0


def test_the_best_by_the_model_come_first_and_the_hopeless_not_at_all(
    mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(kernel: Kernel, tile: object, sizes: object, device: object) -> float:
        return {"pointer": 1.0, "descriptor": 7.9, "block_pointer": 8.1}[kernel.variant.load]

    monkeypatch.setattr(analytic, "seconds", seconds)
    found = planned(Shape(256, 256, 256))
    assert list(offered(found)) == ["pointer_auto", "pointer_none", "descriptor_auto"]
    assert found.left_out["predicted to take over 8 times the best time"] == 3
    few = planned(Shape(256, 256, 256), most=4)
    assert offered(few) == {"pointer_auto": [0, 1, 2], "pointer_none": [0]}
    assert few.left_out["not among the best by the model"] == 5


def test_a_plan_of_nothing_is_refused(mixed: Path) -> None:
    with pytest.raises(CallError, match=r"no configuration of any kernel can run on NVIDIA H200 \(gfx942\)"):
        planned(Shape(256, 256, 256), device=replace(H200, target="gfx942"))
    with pytest.raises(CallError, match="no configuration of any kernel can run on NVIDIA H200"):
        planned()
    with pytest.raises(CallError, match="render the family 'mixed' first"):
        plan(Families([Path("mixed.yaml")], Path("elsewhere")), (Shape(1, 1, 1),), H200, TRITON, 12)


def test_files_of_an_older_spec_are_refused(mixed: Path) -> None:
    shorter = SPEC.replace("  - {m: 64, n: 64, k: 64, warps: 4, stages: 3}\n", "")
    (mixed / "mixed.yaml").write_text(shorter)
    with pytest.raises(CallError, match="is not what the spec renders now; render the family again"):
        planned(Shape(256, 256, 256))


def test_calls_that_compile_the_same_code_are_made_once_on_the_least_work(mixed: Path) -> None:
    shapes = [Shape(4096, 512, 512), Shape(256, 512, 512), Shape(2048, 512, 512), Shape(1, 512, 512)]
    found = planned(*shapes, only="*pointer_auto_grouped", triton="3.9.0")
    jobs = calls(found.trials)
    assert sorted({tuple(job["shape"]) for job in jobs}) == [(1, 512, 512), (256, 512, 512)]
    assert len(jobs) == 2 * 3
    ragged = planned(Shape(192, 512, 512), Shape(256, 512, 512), only="*tiled_pointer_auto*")
    assert len(calls(ragged.trials)) == 5, "a row of 64 divides both, one of 128 only the second"


def test_both_halves_of_a_gates_operand_count_for_its_offsets(mixed: Path) -> None:
    """Of the wider, K times N is under 2**31 and K times 2N is not."""
    lines = ["summary: x", "name: mixed", "layout: rcr", "dtype: fp16", "epilogue: swiglu"]
    (mixed / "mixed.yaml").write_text("\n".join([*lines, "tile: [{m: 64, n: 64, k: 64, warps: 4}]"]) + "\n")
    assert generator.cli.main(["mixed.yaml"]) == 0
    narrow, wide = Shape(256, 16384, 16384), Shape(256, 49152, 32768)
    jobs = calls(planned(narrow, wide).trials)
    assert [tuple(job["shape"]) for job in jobs] == [(256, 16384, 16384), (256, 49152, 32768)]


@pytest.mark.parametrize(
    ("load", "sizes"),
    [
        *itertools.product(
            ["pointer", "descriptor"], [(256, 4096, 4096), (8, 4096, 4096), (4096, 4096, 4096), (2048, 3072, 768)]
        ),
        # What is under way counts for a kernel by descriptors alone.
        ("descriptor", (128, 3584, 3584)),
    ],
)
def test_the_model_prefers_the_row_that_a_kernel_selects(
    load: str, sizes: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.yaml").write_text(f"summary: x\nlayout: rcr\ndtype: fp16\nload: {load}\n")
    assert generator.cli.main(["plain.yaml"]) == 0
    (kernel,) = Families([Path("plain.yaml")], Path("generated")).known["plain"].kernels
    module = load_kernel(tmp_path / "generated" / "plain" / f"{kernel.name}.py")
    properties = SimpleNamespace(
        multi_processor_count=H200.multiprocessors,
        shared_memory_per_multiprocessor=H200.shared_memory,
        major=9,
        minor=0,
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    chosen: Mapping[str, int] = module._select(*sizes, torch.device("cuda", 0))
    best = min(range(len(kernel.tiles)), key=lambda row: analytic.seconds(kernel, kernel.tiles[row], sizes, H200))
    assert module.CONFIGS[best] == chosen


def test_a_model_of_seconds_is_near_what_was_measured() -> None:
    """fp16 by descriptors, 4096 cubed, 128x128x64, 3 stages: 228 µs on an H200."""
    (kernel,) = Families([ROOT / "specs" / "fp16_rcr.yaml"], Path()).known["fp16_rcr"].kernels[:1]
    assert 1e-4 < analytic.seconds(kernel, kernel.tiles[0], (4096, 4096, 4096), H200) < 4e-4
    assert H200.slug == "nvidia_h200"


def test_one_program_a_multiprocessor_wants_many_loads_under_way() -> None:
    """fp16 by descriptors, 128x3584x3584, tiles of 64x64x128: 13.2 µs by 4 stages on an H200, 10.6 by 7."""
    family = Families([ROOT / "specs" / "gemm16.yaml"], Path()).known["gemm16"]
    name = "gemm_fp16_rcr_none__tiled_descriptor_auto_grouped_storepointer"
    (kernel,) = [kernel for kernel in family.kernels if kernel.name == name]
    by_stages = {tile.stages: tile for tile in kernel.tiles if (tile.m, tile.n, tile.k) == (64, 64, 128)}
    slow, fast = (analytic.seconds(kernel, by_stages[stages], (128, 3584, 3584), H200) for stages in (4, 7))
    assert 1.15 < slow / fast < 1.8


def test_a_wide_result_wants_tiles_that_load_less() -> None:
    """64x128 has products as few as 128x128 there, and half as many again of the loads, by which it was slower."""
    family = family_of("summary: S.\nlayout: rcr\ndtype: fp8e4m3\nload: descriptor\nschedule: tiled\n")
    (kernel,) = family.kernels
    times = {(t.m, t.n): analytic.seconds(kernel, t, (8192, 8192, 2048), H200) for t in kernel.tiles if t.k == 128}
    assert times[128, 128] < times[64, 128]
