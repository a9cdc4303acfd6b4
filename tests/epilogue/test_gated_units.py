"""Gates: how a spec says them, what is refused, what they are named, and what their kernels need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.epilogue.chain import Epilogue
from generator.epilogue.operations import EpilogueOperation
from generator.language.built_in import OPERATIONS, chain_of
from generator.language.errors import CallError
from generator.language.model import Dtype, Tile
from generator.lowering.docstrings import properties
from generator.lowering.kernel_lowering import view
from generator.plan import default_configurations
from generator.plan.resources import tensor_memory
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import BASE, Spoken, family_of, variant

INTERLEAVED = "[{swiglu: {order: interleaved}}]"


def gate(order: str = "concatenated") -> Epilogue:
    settings = () if order == "concatenated" else (("order", order),)
    return Epilogue.chain([("swiglu", OPERATIONS["swiglu"], settings)])


def test_a_chain_with_a_gate() -> None:
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


def test_a_manifest_tells_of_gates_and_is_held_to_what_they_are(cli: Callable[..., Spoken], tmp_path: Path) -> None:
    ops = "ops: {own: {formula: 'min(gate, cap) * x', scalars: {cap: 7}}}\n"
    text = f"{BASE}{ops}epilogue: [bias+own, [bias, {{own: {{order: interleaved, cap: 3}}}}]]\n"
    (tmp_path / "family.yaml").write_text(text)
    assert cli("family.yaml", "--out", tmp_path).status == 0
    assert read(tmp_path / "family").kernels == family_of(text).kernels
    path = tmp_path / "family" / "manifest.json"
    before = path.read_text()
    # A vector of N elements in front of a gate, an order that there is not, a matrix in front.
    for old, new in (('"2N"', '"N"'), ('"order": "interleaved"', '"order": "turned"'), ('"bias": "N"', '"bias": "MN"')):
        assert old in before
        path.write_text(before.replace(old, new))
        with pytest.raises(CallError, match="is invalid"):
            read(tmp_path / "family")


@pytest.mark.parametrize("order", ["concatenated", "interleaved"])
def test_two_halves_take_the_memory_of_twice_the_columns(order: str) -> None:
    axes = {"dtype": Dtype.of("bf16"), "masking": "auto"}
    gated, plain = variant(epilogue=gate(order), **axes), variant(epilogue=chain_of(["bias"]), **axes)
    tile, wide = Tile(128, 64, 64, warps=4, stages=3), Tile(128, 128, 64, warps=4, stages=3)
    for target in ("sm80", "sm90"):
        assert shared_memory(gated, tile, target) == shared_memory(plain, wide, target)
    assert tensor_memory(gated, tile, "sm100") == tensor_memory(plain, wide, "sm100")
    rows, others = default_configurations.defaults(gated), default_configurations.defaults(plain)
    assert max(row.n * row.k for row in rows) <= max(row.n * row.k for row in others) // 2


def test_a_gate_of_a_spec_s_own_is_one_entry() -> None:
    own = EpilogueOperation("max(gate, 0) ** 2 * x")
    assert own.gated and own.parameters == ("order",) and not EpilogueOperation("x * gated", {"gated": "N"}).gated
