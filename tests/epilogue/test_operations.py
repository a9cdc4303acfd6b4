"""Operations of a spec's own, gates among them: how they are read, what is wrong with them, what kernels need."""

import ast
import json
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.epilogue.chain import Epilogue
from generator.epilogue.formula import FUNCTIONS
from generator.epilogue.operations import EpilogueOperation
from generator.language import built_in
from generator.language.built_in import OPERATIONS, chain_of
from generator.language.errors import CallError
from generator.language.model import Dtype, Tile
from generator.lowering.docstrings import properties
from generator.lowering.kernel_lowering import view
from generator.plan import default_configurations
from generator.plan.resources import tensor_memory
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import (
    BASE,
    assert_formatted,
    contents,
    family_of,
    mistakes_of,
    ops,
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


HOSTILE = [
    *("__import__('os').system('touch pwned')", "open('pwned', 'w')", "x if open('pwned', 'w') else x"),
    *("x.__class__.__mro__", "[open(y) for y in x]", "().__class__.__bases__[0].__subclasses__()", '"""x"""'),
    *("(" * 500 + "x" + ")" * 500, "x + " * 3000 + "x", "x / 0", "f'{open(chr(112), chr(119))}'"),
    *("x\n__import__('os').system('touch pwned')", "x # \r__import__('os').system('touch pwned')"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_formula_is_refused_and_nothing_is_written(text, cli, tmp_path):
    (tmp_path / "family.yaml").write_text(f"{BASE}ops:\n  f: {{formula: {json.dumps(text)}}}\nepilogue: f\n")
    said = cli("family.yaml")
    assert said.status == 2 and said.err.startswith("family.yaml:5:") and "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1
    assert list(contents(tmp_path)) == ["family.yaml"]


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
    assert "| `rooted` | `sqrt(abs(x)) * offset + power` | `offset` [N] | `power` 3 |" in built_in.table()
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
    assert [line.split("`")[1].partition("(")[0] for line in built_in.functions().splitlines()[2:]] == list(FUNCTIONS)


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
