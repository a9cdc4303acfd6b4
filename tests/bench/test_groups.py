"""Rows in groups: how shapes say them, how rows are spread, what torch multiplies them by, and what is checked."""

import json
from dataclasses import replace

import pytest
import torch

from generator.bench import check, random_operands, workers
from generator.bench.comparison_plan import Families, of_specs
from generator.bench.measurements import load
from generator.bench.peers import PEERS, NoPeer
from generator.bench.suite import read_shapes
from generator.commands import command_line
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.plan.families import families
from generator.problem.grouping import ROUTING
from generator.problem.product import Problem, Shape
from tests.helpers.support import ROOT

from .test_cli import interpreted

SPEC = (
    "summary: Small tiles.\nname: tiny\nlayout: rcr\ndtype: fp16\nbatch: BATCH\nepilogue: [none, swiglu]\n"
    "load: pointer\nstore: pointer\n"
    "tile: [{m: 16, n: 16, k: 16, warps: 1, stages: 2}, {m: 32, n: 16, k: 16, warps: 1, stages: 2}]\n"
)
GROUPS = Shape(40, 24, 32, groups=5, routing="zipf")


def problem(*words, shape=GROUPS, dtype="fp16"):
    return Problem(shape, Dtype.of(dtype), Layout.of("rcr"), chain_of(words))


def test_a_shape_says_its_groups_and_how_rows_are_spread(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("[5g40x24x32, '5g40x24x32:zipf', 5g40x24x32+8:one, 5x40x24x32]")
    found = read_shapes(path)
    even = replace(GROUPS, routing="uniform")
    assert found == (even, GROUPS, replace(even, pad=8, routing="one"), Shape(40, 24, 32, batch=5))
    assert [str(shape) for shape in found] == ["5g40x24x32", "5g40x24x32:zipf", "5g40x24x32+8:one", "5x40x24x32"]
    assert all(Shape(*json.loads(json.dumps(shape.numbers))) == shape for shape in found)
    assert found[0].sizes == found[1].sizes == (5, 8, 24, 32)
    assert Shape(3, 24, 32, groups=5, routing="zipf").sizes == (3, 1, 24, 32), "more groups than rows can reach"


def test_what_no_row_reaches_is_not_counted_as_moved():
    shape = Shape(4, 24, 32, groups=64, routing="one")
    assert shape.reached == 1 and problem(shape=shape).bytes == 2 * (4 * 32 + 24 * 32 + 4 * 24) + 4
    assert problem(shape=shape).held == 2 * (4 * 32 + 64 * 24 * 32 + 4 * 24) + 4 * 64
    even = replace(shape, routing="uniform")
    assert even.reached == len(set(even.ends) - {0}) > 1
    assert problem("swiglu", shape=shape).flops == 2 * 4 * 48 * 32


def launched(of):
    """The library's peer, operands, what it makes of them, and what is right."""
    (operands,) = random_operands.make_sets(of, "cpu", 1, seed=3)
    (expected,) = check.expect(of, operands, torch.Generator())
    peer = PEERS["cublas"](of)
    return peer, operands, peer.launch(operands, None), expected


@pytest.mark.parametrize("routing", list(ROUTING))
@pytest.mark.parametrize(
    ("words", "name"), [((), "F.grouped_mm"), (("swiglu",), "F.grouped_mm + swiglu"), (("scale_m",), None)]
)
def test_torch_multiplies_the_groups(words, name, routing):
    of = problem(*words, shape=replace(GROUPS, routing=routing))
    peer, _, result, expected = launched(of)
    assert name is None or peer.name == name
    assert check.judge(of, result, expected).fault is None
    # A row of the last group that has any.
    result[-1, -1] += 40
    assert "wrong result" in str(check.judge(of, result, expected).fault)


def test_what_each_group_has_is_checked_by_group():
    of = problem("bias", "col_sum", "row_sum")
    (operands,) = random_operands.make_sets(of, "cpu", 1, seed=3)
    expected = check.expect(of, operands, torch.Generator())
    assert [each.shape for each in expected] == [(40, 24), (5, 24), (40,)]
    found = [torch.zeros(each.shape, dtype=torch.float64) for each in expected]
    first = 0
    for number, last in enumerate(of.shape.ends):
        bias = operands.epilogue["bias"]
        result = operands.a[first:last].double() @ operands.b[number].double() + bias[number].double()
        for into, at, value in zip(found, (slice(first, last), number, slice(first, last)), (result, 0, 1)):
            into[at] = value if isinstance(value, torch.Tensor) else result.sum(value)
        first = last
    assert [check.judge(of, x, each).fault for x, each in zip(found, expected, strict=True)] == [None] * 3
    found[1][2] = found[1][3]
    assert check.judge(of, found[1], expected[1]).fault is not None


def test_what_torch_lacks_is_told():
    odd = problem(shape=replace(GROUPS, k=33))
    for of, word in ((problem("bias"), "bias"), (problem(dtype="fp8e4m3"), "scales"), (odd, "16 bytes")):
        with pytest.raises(NoPeer, match=word):
            PEERS["cublas"](of)


@pytest.mark.parametrize("routing", list(ROUTING))
@pytest.mark.parametrize("layout", ["crc", "crr", "rrr"])
def test_torch_multiplies_groups_along_k(layout, routing):
    shape = Shape(24, 48, 40, groups=5, routing=routing, inner=True)
    assert shape.sizes == (5, 24, 48, 8) and shape.ends[-1] == 40 and shape.reached == 5
    of = Problem(shape, Dtype.of("fp16"), Layout.of(layout), chain_of(()))
    assert of.flops == 2 * 24 * 48 * 40 and of.bytes == 2 * (24 * 40 + 40 * 48 + 5 * 24 * 48) + 4 * 5
    peer, operands, result, expected = launched(of)
    assert peer.name == "F.grouped_mm" and result.shape == expected.shape
    assert check.judge(of, result, expected).fault is None
    # The last element along K counts in the group before its own.
    filled = [number for number, part in enumerate(expected.parts) if part is not None][-1]
    group = expected.parts[filled].at[0]
    result[group] -= (operands.a[:, -1:].double() @ operands.b[-1:].double()).to(result.dtype)
    assert "wrong result" in str(check.judge(of, result, expected).fault)


def rendered(folder, monkeypatch, batch="grouped"):
    monkeypatch.chdir(folder)
    (folder / "tiny.yaml").write_text(SPEC.replace("BATCH", batch))
    assert command_line.main(["tiny.yaml"]) == 0
    return folder / "tiny.yaml"


def test_kernels_of_groups_are_timed_beside_torch(tmp_path, monkeypatch):
    rendered(tmp_path, monkeypatch, "[grouped, grouped_k]")
    (tmp_path / "shapes.yaml").write_text("['5g24x16x32:zipf', 3g17x16x16, 16x16x16]")
    arguments = ["tiny.yaml", "--shapes", "shapes.yaml", "--rounds", "2", "--workers", "0", "--json", "kept.json"]
    done = interpreted(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    records = load(tmp_path / "kept.json").records
    found = [(each.case, str(each.problem.shape), each.problem.shape.inner, each.sides[-1].label) for each in records]
    assert found == [
        (f"tiny/{prefix}_fp16_rcr_{epilogue}", shape, prefix == "gmmk", label)
        for prefix in ("gmm", "gmmk")
        for epilogue, label in (("none", "F.grouped_mm"), ("swiglu", "F.grouped_mm + swiglu"))
        for shape in ("5g24x16x32:zipf", "3g17x16x16")
    ]
    assert all(side.failure is None and side.gpu is not None for record in records for side in record.sides)


def test_operands_that_workers_cannot_all_hold_are_not_made_ahead(tmp_path, monkeypatch):
    found = Families([rendered(tmp_path, monkeypatch)], tmp_path / "generated")
    large = replace(GROUPS, groups=256, n=4096, k=7168)
    comparisons = of_specs(found, (GROUPS, large))
    assert len(comparisons) == 4 and comparisons[1].problem.held > 15e9
    assert [problem.shape.numbers for problem, _, _ in workers.calls(comparisons, "select")] == [GROUPS.numbers] * 2


STORED = {
    "gmm_bf16xint4_fp32_bf16_b128x1_rcr_none": "F.grouped_mm in bf16",
    "gmm_bf16xint4_fp32_bf16_b128x1_rcr_swiglu": "F.grouped_mm in bf16 + swiglu",
    "gmm_fp8e4m3_a1xall_ballx1_rcr_none": "torch._scaled_grouped_mm",
    "gmm_fp8e4m3_a1xall_ballx1_rcr_swiglu": "torch._scaled_grouped_mm + swiglu",
}


@pytest.mark.parametrize("contract", STORED)
def test_stored_operands_of_groups(contract):
    (family,) = families([ROOT / "specs" / "grouped_stored.yaml"])
    variant = family.contracts[contract][0].variant
    of = replace(problem(shape=replace(GROUPS, n=48, k=256)), dtype=variant.dtype, epilogue=variant.epilogue)
    (operands,) = random_operands.make_sets(of, "cpu", 1, seed=3)
    assert operands.stored["b_scale"].shape == (5, 2 if "int4" in contract else 1, of.columns)
    assert PEERS["cublas"](of).name == STORED[contract]
    if "int4" in contract:
        _, operands, result, expected = launched(of)
        assert check.judge(of, result, expected).fault is None
        # The scales of another group make other weights.
        swapped = {"b_scale": operands.stored["b_scale"].flip(0)}
        (other,) = check.expect(of, replace(operands, stored=swapped), torch.Generator())
        assert check.judge(of, result, other).fault is not None
