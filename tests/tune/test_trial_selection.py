"""What is measured and what is not: legality, the model's order, and the calls that compile the same code."""

from dataclasses import replace
from pathlib import Path

import pytest

from generator.bench.comparison_plan import Families
from generator.commands import command_line
from generator.cost import analytic
from generator.language.errors import CallError
from generator.plan import devices
from generator.problem.product import Shape
from generator.tune.trial_selection import calls, plan

H200 = devices.DEVICES["nvidia_h200"]
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
exclude: [{masking: none, load: [descriptor, block_pointer], because: "one unmasked kernel is enough"}]
"""


@pytest.fixture
def mixed(tmp_path, monkeypatch):
    """A folder with the family `mixed`, rendered."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.yaml").write_text(SPEC)
    assert command_line.main(["mixed.yaml"]) == 0
    return tmp_path


def planned(*shapes, device=H200, triton=TRITON, most=100, only=None):
    return plan(Families([Path("mixed.yaml")], Path("generated")), shapes, device, triton, most, only)


def offered(found):
    """The rows that are to be measured by kernel, less the words that all share."""
    rows = {}
    for candidate in found.trials[0].candidates:
        name = candidate.contestant.kernel.partition("__tiled_")[2].removesuffix("_grouped")
        rows.setdefault(name, []).append(candidate.index)
    return {name: sorted(indices) for name, indices in rows.items()}


@pytest.mark.parametrize(
    ("shape", "target", "triton", "kernel", "rows", "reason"),
    [
        ((192, 256, 256), "sm90", TRITON, "pointer_auto", [0, 1, 2], "not for these sizes"),
        ((192, 256, 256), "sm90", TRITON, "pointer_none", [1], "not for these sizes"),
        ((256, 256, 250), "sm90", TRITON, "pointer_none", None, "refused by the kernel at these sizes"),
        ((256, 256, 250), "sm90", TRITON, "descriptor_auto", None, "refused by the kernel at these sizes"),
        ((256, 256, 256), "sm80", TRITON, "descriptor_auto", None, "not for sm80"),
        ((256, 256, 256), "sm89", TRITON, "pointer_auto", [0, 1], "too large for sm89"),
        ((256, 256, 256), "sm90", "3.9.0", "blockpointer_auto", None, "not for Triton 3.9.0"),
    ],
)
def test_what_cannot_run_is_left_out_with_its_reason(mixed, shape, target, triton, kernel, rows, reason):
    found = planned(Shape(*shape), device=replace(H200, target=target), triton=triton)
    assert offered(found).get(kernel) == rows
    assert found.left_out[reason] > 0


def test_the_best_by_the_model_come_first(mixed, monkeypatch):
    def seconds(v, config, sizes, device):
        return {"pointer": 1.0, "descriptor": 7.9, "block_pointer": 8.1}[v.load]

    monkeypatch.setattr(analytic, "seconds", seconds)
    few = planned(Shape(256, 256, 256), most=4)
    assert offered(few) == {"pointer_auto": [0, 1, 2], "pointer_none": [0]}
    assert few.left_out["not among the best by the model"] == 8


def test_a_plan_of_nothing_is_refused(mixed):
    with pytest.raises(CallError, match=r"no configuration of any kernel can run on NVIDIA H200 \(gfx942\)"):
        planned(Shape(256, 256, 256), device=replace(H200, target="gfx942"))
    with pytest.raises(CallError, match="no configuration of any kernel can run on NVIDIA H200"):
        planned()
    with pytest.raises(CallError, match="render the family 'mixed' first"):
        plan(Families([Path("mixed.yaml")], Path("elsewhere")), (Shape(1, 1, 1),), H200, TRITON, 12)


def test_files_of_an_older_spec_are_refused(mixed):
    shorter = SPEC.replace("  - {m: 64, n: 64, k: 64, warps: 4, stages: 3}\n", "")
    (mixed / "mixed.yaml").write_text(shorter)
    with pytest.raises(CallError, match="is not what the spec renders now; render the family again"):
        planned(Shape(256, 256, 256))


def test_calls_that_compile_the_same_code_are_made_once_on_the_least_work(mixed):
    shapes = [Shape(4096, 512, 512), Shape(256, 512, 512), Shape(2048, 512, 512), Shape(1, 512, 512)]
    found = planned(*shapes, only="*pointer_auto_grouped", triton="3.9.0")
    jobs = calls(found.trials)
    assert {problem.shape for problem, *_ in jobs} == {Shape(1, 512, 512), Shape(256, 512, 512)}
    assert len(jobs) == 2 * 3
    ragged = planned(Shape(192, 512, 512), Shape(256, 512, 512), only="*tiled_pointer_auto*")
    assert len(calls(ragged.trials)) == 5, "a row of 64 divides both, one of 128 only the second"


def test_both_halves_of_a_gates_operand_count_for_its_offsets(mixed):
    """Of the wider, K times N is under 2**31 and K times 2N is not."""
    lines = ["summary: x", "name: mixed", "layout: rcr", "dtype: fp16", "epilogue: swiglu"]
    (mixed / "mixed.yaml").write_text("\n".join([*lines, "tile: [{m: 64, n: 64, k: 64, warps: 4}]"]) + "\n")
    assert command_line.main(["mixed.yaml"]) == 0
    narrow, wide = Shape(256, 16384, 16384), Shape(256, 49152, 32768)
    jobs = calls(planned(narrow, wide).trials)
    assert [p.shape for p, *_ in jobs] == [Shape(256, 16384, 16384), Shape(256, 49152, 32768)]
