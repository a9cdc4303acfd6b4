"""`rounding: torch` against eager torch on the CPU, bit for bit."""

import dataclasses

import pytest
import torch

from generator.language.built_in import chain_of
from generator.language.model import Dtype, Tile
from generator.lowering import docstrings
from generator.lowering.kernel_lowering import view
from generator.plan.kernels import Kernel
from generator.problem.error_propagation import Bounded
from generator.problem.reference import finish
from tests.helpers import support
from tests.helpers.verify.operation_values import unlike_eager

#: Whose operations round once what fp32 has: equal for every value.
EXACT = ("bias+relu", "add+mul", "scale+bias_m+relu+add")
#: Of functions that torch computes in fp32 too: equal where neither is near a tie.
FUNCTIONS = ("bias+gelu", "silu", "tanh+mul", "scale+bias+sigmoid+add")


SPEC = (
    "summary: As torch rounds.\nlayout: rrr\ndtype: [fp16, bf16]\nrounding: [torch, late]\nmasking: mnk\n"
    f"select: fixed\nepilogue: [{', '.join((*EXACT, *FUNCTIONS))}]\ntile: [{{m: 64, n: 64, k: 64, warps: 4}}]\n"
)


def named(family, word, dtype, rounding="torch"):
    wanted = (word, dtype, rounding)
    (found,) = (
        kernel.name
        for kernel in family.kernels
        if (kernel.variant.epilogue.word, kernel.variant.dtype.word, kernel.variant.rounding) == wanted
    )
    return found


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("word", [*EXACT, *FUNCTIONS])
def test_it_is_what_eager_torch_computes(word, dtype, family, interpreted):
    name = named(family, word, dtype)
    assert interpreted(unlike_eager, family.folder, name, word in FUNCTIONS) == []


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rounding_late_is_not(dtype, family, interpreted):
    assert len(interpreted(unlike_eager, family.folder, named(family, "add+mul", dtype, "late"), False)) > 1000


def variant(dtype, *operations):
    return support.variant(dtype=dtype, epilogue=chain_of(operations), rounding="torch")


@pytest.mark.parametrize(
    ("dtype", "chain"),
    [
        (Dtype.of("bf16"), "bf16+bias+bf16+relu"),
        (Dtype.of("fp16"), "fp16+bias+fp16+relu"),
        # What has the type already is not rounded to it.
        (Dtype("fp16", "fp16", "fp16", "fp16", None), "bias+fp16+relu"),
        (Dtype("int8", "int8", "int32", "bf16", None), "bf16+bias+bf16+relu"),
        (Dtype("int8", "int8", "int32", "fp32", None), "fp32+bias+relu"),
        (Dtype.of("fp32"), "bias+relu"),
    ],
)
def test_what_is_rounded_where(dtype, chain):
    v = variant(dtype, "bias", "relu")
    assert (v.chain.word, v.epilogue.word) == (chain, "bias+relu")
    assert dataclasses.replace(v, rounding="late").chain == v.epilogue


def test_the_reference_rounds_where_the_kernel_does():
    # A tie of bf16, a number between two of it, and one past fp16.
    x = torch.tensor([[1.00390625, 301.5, 7e4]], dtype=torch.float64)
    v = variant(Dtype.of("bf16"), "scale")
    exactly = finish(v, Bounded(x, torch.zeros_like(x)), {"scale": 2.0})
    assert exactly.value.tolist() == [[2.0, 604.0, 140288.0]]
    # Near a tie the sum may be rounded to either side, and what is past fp16 is infinite for sure.
    near = finish(v, Bounded(x, torch.full_like(x, 1e-6)), {"scale": 2.0})
    assert float(near.error[0, 0]) >= 2 * 2.0**-7 and float(near.error[0, 1]) < 1e-3
    past = finish(variant(Dtype.of("fp16"), "scale"), Bounded(x, torch.full_like(x, 1e-6)), {"scale": 2.0})
    assert past.value[0, 2].isinf() and float(past.error[0, 2]) == 0


def test_outputs_are_of_the_rounded_value_which_is_rounded_once():
    v = variant(Dtype.of("bf16"), "save", "row_sum", "scale", "row_sum", "save")
    assert v.chain.word == "bf16+save+row_sum+scale+bf16+row_sum+save"
    x, outputs = torch.tensor([[1.00390625, 301.5]], dtype=torch.float64), []
    result = finish(v, Bounded(x, torch.zeros_like(x)), {"scale": 1.5}, outputs)
    first, second = [[1.0, 302.0]], [[1.5, 452.0]]
    assert [found.value.tolist() for found in outputs] == [first, [303.0], [453.5], second]
    assert result.value.tolist() == second
    text = docstrings.rounding(view(Kernel(v, (Tile(16, 16, 16, 4),), (), "", "fixed")))
    assert text.endswith("Saved outputs are already rounded to bf16. Sums and maxima are fp32, of the rounded values.")
