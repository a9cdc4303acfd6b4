"""What a call is given and returns, as it follows from a contract."""

from __future__ import annotations

import pytest

from generator.plan.contract_call import Argument, Shape, call
from generator.plan.extents import B, K, N
from tests.helpers.support import family_of

BASE = "name: one\nsummary: One.\nlayout: {layout}\ndtype: {dtype}\nbatch: {batch}\nepilogue: {epilogue}\n"
SIZES = {"B": 2, "M": 3, "N": 5, "K": 7}


def listed(layout: str = "rcr", dtype: str = "bf16", batch: str = "none", epilogue: str = "none") -> list[str]:
    """Every argument of the contract's call: name, shape, type, and dimension of stride 1."""
    text = BASE.format(layout=layout, dtype=dtype, batch=batch, epilogue=epilogue)
    found = call(family_of(text).kernels[0].variant)
    everything = (found.a, found.b, *found.operands, *found.results)
    return [f"{x.name} {x.words} {x.torch_dtype} {x.unit}" for x in everything]


def test_a_product_has_two_operands_and_a_result() -> None:
    assert listed() == ["a M K torch.bfloat16 1", "b K N torch.bfloat16 0", "out M N torch.bfloat16 1"]


def test_a_batch_stands_in_front_of_matrices() -> None:
    assert listed(layout="crc", batch="strided", epilogue="[[bias, add, row_sum]]") == [
        "a B M K torch.bfloat16 1",
        "b B K N torch.bfloat16 2",
        "bias B N None 1",
        "add B M N None 1",
        "out B M N torch.bfloat16 1",
        "row_sum B M torch.float32 1",
    ]


def test_a_gate_doubles_the_columns_of_b_and_of_what_precedes_it() -> None:
    assert listed(epilogue="[[bias, swiglu, scale]]")[1:4] == [
        "b K 2*N torch.bfloat16 0",
        "bias 2*N None 0",
        "scale  None None",
    ]


@pytest.mark.parametrize(("extents", "sizes"), [((), ()), ((1,), (1,)), ((2 * N,), (10,)), ((B, K, 2 * N), (2, 7, 10))])
def test_extents_are_numbers_where_the_sizes_are(extents: Shape, sizes: tuple[int, ...]) -> None:
    assert Argument("x", extents).sizes(SIZES) == sizes
