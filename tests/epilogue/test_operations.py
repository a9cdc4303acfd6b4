"""Operations of a spec's own, gates and outputs beside C: how they are read, and what kernels need."""

import ast
import json
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.epilogue.chain import Epilogue
from generator.epilogue.formula import FUNCTIONS
from generator.epilogue.operations import EpilogueOperation
from generator.language.built_in import OPERATIONS, chain_of
from generator.language.errors import CallError
from generator.language.model import Dtype, Tile
from generator.lowering.docstrings import properties
from generator.lowering.kernel_lowering import view
from generator.plan import default_configurations
from generator.plan.contract_call import call
from generator.plan.resources import tensor_memory
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import (
    BASE,
    assert_formatted,
    family_of,
    mistakes_of,
    ops,
    pages,
    render_spec,
    variant,
)


def test_operations_of_a_spec():
    text = (
        "f: {formula: x * s / 2 + p + q, operands: {s: []}, scalars: {p: 2.0, q: null}}, "
        "g: {formula: x * s, operands: {s: [1]}}"
    )
    family = family_of(ops(text, "[f+g, [{f: {p: 3}}], [{f: {q: 1, p: 2}}]]"))
    first, second, third = (kernel.variant.epilogue for kernel in family.kernels)
    assert [(o.name, o.shape) for o in first.operands] == [("s", ""), ("q", ""), ("s2", "1")]
    assert [(o.name, o.shape) for o in third.operands] == [("s", "")]
    assert [e.word for e in (first, second, third)] == ["f+g", "f(p=3)", "f(q=1)"]
    assert [e.written for e in (first, second, third)] == ["f_g", "f_3_p", "f_1_q"]
    assert ast.unparse(second.steps[0].tree) == "x * s / 2 + 3 + q"
    assert view(family.kernels[2]).steps[0].lines == ("x = acc * s / 2.0 + 2.0 + 1.0",)
    assert second.text == "A @ B * s / 2 + 3 + q"


def test_the_manifest_alone_tells_what_a_family_computes(tmp_path):
    text = ops(
        "f: {formula: 'min(x * s, p) + q', operands: {s: [1]}, scalars: {p: .inf, q: null}}",
        "[[{f: {p: 2}}], [{clamp: {min: 0}}, leaky_relu]]",
    )
    folder = render_spec(tmp_path, "family", text)
    assert read(folder).kernels == family_of(text).kernels
    manifest = json.loads((folder / "manifest.json").read_text(), parse_constant=pytest.fail)
    scalars = {"p": "inf", "q": None}
    expected = {"formula": "min(x * s, p) + q", "operands": {"s": "1"}, "scalars": scalars}
    assert manifest["operations"]["f"] == expected


LONG = "where(abs(x) > threshold_of_it, x, min(max(x * weights_of_rows + x ** 3, lowest), exp(x) * softplus(x)))"


def test_long_formulas_and_names_are_written_as_a_formatter_would(tmp_path):
    first = f"{LONG} + " + LONG.replace("x", "(x - 1e-5)").replace("e(x - 1e-5)p", "exp").replace(
        "ma(x - 1e-5)(", "max("
    )
    text = (
        f"{BASE}ops:\n  f:\n    formula: {json.dumps(first)}\n    operands: {{weights_of_rows: [M]}}\n"
        "    scalars: {threshold_of_it: null, lowest: 1.0e+30}\n"
        "epilogue: [f, f+f, f+f+f, f+bias]\nschedule: [elementwise, tiled, stream_k]\n"
        "dtype: [fp16, {a: int8, out: fp16}]\n"
    ).replace("dtype: fp16\n", "", 1)
    folder = render_spec(tmp_path, "family", text)
    assert_formatted(folder)
    for path in folder.glob("*.py"):
        # A formatter breaks neither a name nor the parameters of a lambda.
        lines = [x for x in path.read_text().splitlines() if "gemm_" not in x and "=lambda " not in x]
        assert all(len(line) <= 120 for line in lines)


def test_one_entry_is_all_that_an_operation_takes(cli, tmp_path, monkeypatch):
    """One more in the table, and the listing, the documentation, the launcher and the verification have it."""
    added = EpilogueOperation("sqrt(abs(x)) * offset + power", {"offset": "N"}, {"power": 3})
    monkeypatch.setitem(OPERATIONS, "rooted", added)
    (found,) = mistakes_of(f"{BASE}epilogue: rootd\n")
    assert "did you mean 'rooted'? legal: none, bias" in found and ", rooted, accumulate" in found
    assert "| `rooted` | `sqrt(abs(x)) * offset + power` | `offset` [N] | `power` 3 |" in pages().TABLES["operations"]()
    spec = "summary: x\nlayout: rrr\ndtype: bf16\nepilogue: [[{rooted: {power: 4}}]]\nschedule: elementwise\n"
    (tmp_path / "family.yaml").write_text(spec)
    assert cli("family.yaml", "--out", ".").status == 0
    (path,) = Path("family").glob("gemm_*.py")
    assert path.name == "gemm_bf16_rrr_rooted_4_power__elementwise_pointer_auto_grouped.py"
    assert "a: Tensor, b: Tensor, *, offset: Tensor, out: Tensor | None = None" in path.read_text()
    assert "    x = tl.sqrt(tl.abs(acc)) * offset + 4.0\n" in path.read_text()
    # The table of another process has no such operation: the manifest is enough.
    said = cli("verify", "family", "--level", "static", "--level", "bounds", "--level", "interpret", "--jobs", "1")
    assert said.status == 0, said.out + said.err


def test_every_function_stands_in_the_documentation():
    rows = pages().TABLES["functions"]().splitlines()[2:]
    assert [row.split("`")[1].partition("(")[0] for row in rows] == list(FUNCTIONS)


def test_a_manifest_from_before_there_were_scalars_is_read(tmp_path):
    path = render_spec(tmp_path, "family", f"{BASE}epilogue: bias+relu\n") / "manifest.json"
    manifest = json.loads(path.read_text())
    steps = [step for kernel in manifest["kernels"].values() for step in kernel["axes"]["epilogue"]]
    for entry, key in [*((x, "scalars") for x in manifest["operations"].values()), *((x, "settings") for x in steps)]:
        del entry[key]
    path.write_text(json.dumps(manifest))
    assert read(tmp_path / "family").kernels == family_of(f"{BASE}epilogue: bias+relu\n").kernels


INTERLEAVED = "[{swiglu: {order: interleaved}}]"


def gate(order="concatenated"):
    settings = () if order == "concatenated" else (("order", order),)
    return Epilogue.chain([("swiglu", OPERATIONS["swiglu"], settings)])


def test_a_chain_with_a_gate():
    family = family_of(f"{BASE}epilogue: [scale_m+bias+swiglu+bias+add, {INTERLEAVED}]\n")
    first, second = (kernel.variant.epilogue for kernel in family.kernels)
    assert {o.name: o.shape for o in first.operands} == {"scale_m": "M", "bias": "2N", "bias2": "N", "add": "MN"}
    assert first.text == "swiglu(A @ B * scale_m + bias) + bias2 + add"
    assert (first.order, second.order) == ("concatenated", "interleaved")
    assert second.text == "swiglu(A @ B, order='interleaved')"
    assert (first.written, second.written) == ("scalem_bias_swiglu_bias_add", "swiglu_interleaved")
    k = view(family.kernels[0])
    lines = [line for step in k.steps for line in step.lines]
    assert lines[:5] == [
        "gate = acc_gate * scale_m[:, None]",
        "x = acc_up * scale_m[:, None]",
        "gate = gate + bias[None, :]",
        "x = x + bias[None, :]",
        "x = gate * _fast_sigmoid(gate, APPROX) * x",
    ]
    assert [operand.name for operand in k.operands] == ["scale_m", "bias", "bias2", "add"]
    # What both halves share is loaded once, and of the bias each has its own.
    loads = [(o.name, o.at("n")) for step in k.steps[:4] for o in step.operands]
    assert loads == [("scale_m", "scale_m_ptr + n"), ("bias", "bias_ptr + n"), ("bias", "bias_ptr + N + n")]
    told = "Gate: swiglu computes gate * sigmoid(gate) * x from the 2N columns before it: gate is columns"
    assert told in properties(k)


def test_a_manifest_tells_of_gates_and_is_held_to_what_they_are(tmp_path):
    ops = "ops: {own: {formula: 'min(gate, cap) * x', scalars: {cap: 7}}}\n"
    text = f"{BASE}{ops}epilogue: [bias+own, [bias, {{own: {{order: interleaved, cap: 3}}}}]]\n"
    folder = render_spec(tmp_path, "family", text)
    assert read(folder).kernels == family_of(text).kernels
    path = folder / "manifest.json"
    before = path.read_text()
    # A vector of N elements in front of a gate, an order that there is not, a matrix in front.
    for old, new in (('"2N"', '"N"'), ('"order": "interleaved"', '"order": "turned"'), ('"bias": "N"', '"bias": "MN"')):
        assert old in before
        path.write_text(before.replace(old, new))
        with pytest.raises(CallError, match="is invalid"):
            read(folder)


@pytest.mark.parametrize("order", ["concatenated", "interleaved"])
def test_two_halves_take_the_memory_of_twice_the_columns(order):
    axes = {"dtype": Dtype.of("bf16"), "masking": "auto"}
    gated, plain = variant(epilogue=gate(order), **axes), variant(epilogue=chain_of(["bias"]), **axes)
    tile, wide = Tile(128, 64, 64, warps=4, stages=3), Tile(128, 128, 64, warps=4, stages=3)
    for target in ("sm80", "sm90"):
        assert shared_memory(gated, tile, target) == shared_memory(plain, wide, target)
    assert tensor_memory(gated, tile, "sm100") == tensor_memory(plain, wide, "sm100")
    rows, others = default_configurations.defaults(gated), default_configurations.defaults(plain)
    assert max(row.n * row.k for row in rows) <= max(row.n * row.k for row in others) // 2


def test_a_gate_of_a_spec_s_own_is_one_entry():
    own = EpilogueOperation("max(gate, 0) ** 2 * x")
    assert own.gated and own.parameters == ("order",) and not EpilogueOperation("x * gated", {"gated": "N"}).gated


CHAIN = "[[bias, {save: hidden}, gelu, save, row_sum, row_sum, {accumulate: {beta: 2}}]]"


def test_outputs_are_in_the_order_of_the_chain_a_second_use_numbered():
    (kernel,) = family_of(f"{BASE}epilogue: {CHAIN}\n").kernels
    epilogue = kernel.variant.epilogue
    assert [output.name for output in epilogue.outputs] == ["hidden", "preact", "row_sum", "row_sum2"]
    assert [operand.name for operand in epilogue.operands] == ["bias"] and epilogue.reads_out
    assert epilogue.word == "bias+save(hidden)+gelu+save+row_sum+row_sum+accumulate(beta=2)"
    assert epilogue.text == "gelu(A @ B + bias) + 2 * C"
    assert epilogue.described_outputs[:2] == ("hidden is A @ B + bias", "preact is gelu(A @ B + bias)")
    assert chain_of(epilogue.data) == epilogue and not chain_of(["bias"]).outputs


@pytest.mark.parametrize(
    ("chain", "schedule", "most"),
    [
        ("bias+silu+row_sum+col_sum", "persistent", 64),
        ("scale_m+row_amax+silu+col_sum", "persistent", 64),
        ("silu+row_sum+col_sum", "persistent", 128),
        ("bias+silu+row_sum+row_amax", "persistent", 128),
        ("bias+silu+row_sum+col_sum", "tiled", 128),
    ],
)
def test_sums_along_both_sides_leave_registers_for_smaller_tiles(chain, schedule, most):
    (kernel,) = family_of(f"{BASE}epilogue: {chain}\nschedule: {schedule}\n").kernels
    assert max(tile.m * tile.n // (32 * tile.warps) for tile in kernel.tiles) == most


@pytest.mark.parametrize(
    ("dtype", "chain", "saved", "word", "added"),
    [
        ("int8", "relu+save+row_sum", "x", "torch.int32", "x.to(tl.float32)"),
        ("{a: fp16, out: fp8e4m3}", "save+row_sum", "_to_fp8e4m3(acc)", "torch.float8_e4m3fn", "acc"),
    ],
)
def test_what_is_saved_and_added_up_of_other_types(dtype, chain, saved, word, added):
    (kernel,) = family_of(f"{BASE.replace('fp16', dtype)}epilogue: {chain}\n").kernels
    assert [output.value for output in view(kernel).outputs] == [saved, added]
    assert call(kernel.variant).outputs[0].torch_dtype == word


def test_a_result_of_8_bits_is_saved_as_it_is_stored():
    whole, mixed = family_of(f"{BASE.replace('fp16', '{a: int8, out: int8}')}epilogue: [save, save+scale]\n").kernels
    assert [view(whole).outputs[0].value, view(whole).result] == ["_to_int8(acc)"] * 2
    assert view(whole).helpers[-1] == "saturate_int8" and view(mixed).helpers[-1] == "to_int8"
    # One function of the kernel takes both: an fp32.
    assert [view(mixed).outputs[0].value, view(mixed).result] == ["_to_int8(acc.to(tl.float32))", "_to_int8(x)"]


def test_the_manifest_lists_the_outputs_and_is_read_back(tmp_path):
    text = f"{BASE}epilogue: {CHAIN[:-1]}, bias, [bias, {{amax: {{}}}}], swiglu+row_sum+accumulate]\n"
    path = render_spec(tmp_path, "several", text) / "manifest.json"
    manifest = json.loads(path.read_text())
    listed = [
        [f"{o['name']} {o['shape']} {o['dtype']}" for o in k.get("outputs", ())] for k in manifest["kernels"].values()
    ]
    assert listed[:2] == [["hidden MN fp16", "preact MN fp16", "row_sum M fp32", "row_sum2 M fp32"], []]
    assert [k.variant for k in read(tmp_path / "several").kernels] == [k.variant for k in family_of(text).kernels]
    # Neither a sum nor C stands in front of a gate.
    (entry,) = (k for name, k in manifest["kernels"].items() if "swiglu" in name)
    gate, *behind = entry["axes"]["epilogue"]
    for step in behind:
        entry["axes"]["epilogue"] = [step, gate]
        path.write_text(json.dumps(manifest))
        with pytest.raises(CallError, match="before the gate"):
            read(tmp_path / "several")


@pytest.mark.parametrize("layout", ["rcr", "rcc", "rrs"])
@pytest.mark.parametrize("batch", ["none", "strided"])
def test_long_names_keep_to_lines_of_a_file(tmp_path, layout, batch):
    # A name of the longest length, in every loop that indents it.
    long = "abcdefghijklm"
    chain = f"[[{{save: {long}1}}, {{row_sum: {long}2}}, {{col_sum: {long}3}}, {{row_amax: {long}4}}, accumulate]]"
    text = f"{BASE.replace('rcr', layout)}batch: {batch}\nepilogue: {chain}\nstore: [as_load, pointer]\n"
    text += "schedule: [tiled, persistent" + (", stream_k]\n" if batch == "none" else "]\n")
    text += "load: [pointer, block_pointer, descriptor]\nmasking: [auto, none]\ntargets: [sm90]\n"
    assert_formatted(render_spec(tmp_path, "long", text))
