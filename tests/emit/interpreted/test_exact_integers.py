"""Chains over an int32 sum whose operands and result are int32: exact, where fp32 would round from 2**24 on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from tests.helpers.emit.calls import contracts, operands
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrc]; dtype: int8; batch: [none, strided]; epilogue: [bias, [add, relu, bias_m], [bias, "
    "{clamp: {min: -16777217, max: 33554433}}], [{accumulate: {beta: 1}}], less]; "
    'ops: {less: {formula: "min(x - shift, shift)", operands: {shift: [M, N]}}}; load: pointer; '
    "tile: [{m: 16, n: 16, k: 32, warps: 1}]"
)


@pytest.fixture(scope="module", params=["tiled", "persistent", "split_k"])
def family(request: pytest.FixtureRequest, render: Callable[[str, str], ModuleType]) -> ModuleType:
    text = SPEC.replace("[none, strided]", "none") if request.param == "split_k" else SPEC
    return render(f"whole_{request.param}", f"{text}schedule: {request.param}\n")


def test_every_integer_is_kept(family: ModuleType) -> None:
    for name, variant in contracts(family).items():
        given = operands(variant)
        for x, value in given.items():
            if value.dtype == torch.int32:
                # Odd numbers beyond those that fp32 has.
                given[x] = value * 20_000_001 + 1
        a, b, *more = (x.long() for x in given.values())
        wanted = a @ b
        for x, value in zip([*given][2:], more):
            if x == "shift":
                wanted = torch.minimum(wanted - value, value)
            else:
                wanted += value[..., None] if x == "bias_m" else value[..., None, :] if x == "bias" else value
            wanted = wanted.relu() if x == "add" else wanted
        wanted = wanted.clamp(-16777217, 33554433) if "clamp" in name else wanted
        assert torch.equal(getattr(family, name)(**given).long(), wanted), name


def test_operands_are_of_the_sums_type(family: ModuleType) -> None:
    name = next(name for name in contracts(family) if name.startswith("gemm") and name.endswith("_bias"))
    a, b = torch.ones(4, 8, dtype=torch.int8), torch.ones(8, 6, dtype=torch.int8)
    b = b if "rrc" in name else b.t().contiguous().t()
    with pytest.raises(TypeError, match=r"bias must be torch.int32, got torch.float32"):
        getattr(family, name)(a, b, bias=torch.ones(6))
