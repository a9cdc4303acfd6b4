"""What a call is given and returns, as it follows from a contract."""

import pytest

from generator.plan.contract_call import Argument, call
from generator.plan.extents import B, K, N
from tests.helpers.support import family_of

BASE = "name: one\nsummary: One.\nlayout: {layout}\ndtype: {dtype}\nbatch: {batch}\nepilogue: {epilogue}\n"
SIZES = {"B": 2, "M": 3, "N": 5, "K": 7}


def listed(layout="rcr", dtype="bf16", batch="none", epilogue="none"):
    """Every argument of the contract's call: name, shape, type, and dimension of stride 1."""
    text = BASE.format(layout=layout, dtype=dtype, batch=batch, epilogue=epilogue)
    found = call(family_of(text).kernels[0].variant)
    everything = (found.a, found.b, *found.operands, *found.results)
    return [f"{x.name} {x.words} {x.torch_dtype} {x.unit}" for x in everything]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, "a M K torch.bfloat16 1, b K N torch.bfloat16 0, out M N torch.bfloat16 1"),
        # A batch stands in front of matrices.
        (
            {"layout": "crc", "batch": "strided", "epilogue": "[[bias, add, row_sum]]"},
            "a B M K torch.bfloat16 1, b B K N torch.bfloat16 2, bias B N None 1, add B M N None 1, "
            "out B M N torch.bfloat16 1, row_sum B M torch.float32 1",
        ),
        # A gate doubles the columns of B and of what precedes it.
        (
            {"epilogue": "[[bias, swiglu, scale]]"},
            "a M K torch.bfloat16 1, b K 2*N torch.bfloat16 0, bias 2*N None 0, scale  None None, "
            "out M N torch.bfloat16 1",
        ),
    ],
)
def test_what_a_call_is_given_and_returns(words, expected):
    assert ", ".join(listed(**words)) == expected


@pytest.mark.parametrize(("extents", "sizes"), [((), ()), ((1,), (1,)), ((2 * N,), (10,)), ((B, K, 2 * N), (2, 7, 10))])
def test_extents_are_numbers_where_the_sizes_are(extents, sizes):
    assert Argument("x", extents).sizes(SIZES) == sizes
