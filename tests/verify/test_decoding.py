"""A kernel that decodes B: the bound of its rounding; test_planted.py runs kernels."""

import torch

from generator.language.model import Dtype
from generator.problem import stored_values
from generator.verify import execute
from generator.verify.case_setup import prepare
from generator.verify.refusals import right_case
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: Decoded first.
layout: rcr
dtype: {a: bf16, b: int8, scales: {b: [0, 1]}}
schedule: [tiled, decoded]
load: [pointer, descriptor]
tile: [{m: 32, n: 32, k: 64, group: 2, warps: 4, stages: 2}]
targets: [sm90]
"""
WHOLE = "gemm_bf16xint8_fp32_bf16_ballx1_rcr_none__decoded_descriptor_auto_grouped"


def test_the_bound_counts_the_rounding_of_each_value():
    """A product with a row of ones is the sum of what is rounded: half a unit in the last place of bf16 each."""
    dtype = Dtype("bf16", "int8", "fp32", "bf16", None).scaled_by({"b": (0, 1)})
    a, b = torch.ones(1, 64, dtype=torch.bfloat16), torch.full((64, 1), 127, dtype=torch.int8)
    read = {"b_scale": torch.full((1, 1), 0.0078)}
    exact, fused = stored_values.product(dtype, a, b, read, hardware=False)
    value, bound = stored_values.product_of_decoded(dtype, a, b, read, hardware=False)
    assert torch.allclose(exact, value) and float(fused) < 0.001
    # Values just below 1 are 2**-8 apart.
    assert 64 * 2**-9 <= float(bound) < 64 * 2**-8
    rounded = (b.float() * read["b_scale"]).bfloat16().double()
    assert float((a.double() @ rounded - value).abs()) <= float(bound)


def test_a_function_is_held_to_the_rounding_of_the_kernel_that_it_runs(tmp_path):
    """Where only some kernels of a contract decode B, and round it once more."""
    several = rendered(tmp_path, "several", SPEC)
    among = {name: kernel for name, kernel in several.by_name.items() if "rcr_none" in name}
    tiled = next(kernel for kernel in among.values() if not kernel.variant.traits.decodes)
    setup = prepare(tiled, right_case(tiled, 0), torch.device("cpu"))
    asked = []

    class Function:
        @staticmethod
        def which(a, b, **others):
            asked.append(sorted(others))
            return WHOLE, {}

    assert execute._chosen(Function, setup, among, tiled) is among[WHOLE] and asked == [["b_scale", "out"]]
    alike = {name: kernel for name, kernel in among.items() if not kernel.variant.traits.decodes}
    assert execute._chosen(Function, setup, alike, tiled) is tiled and len(asked) == 1
