"""Bounds on the accumulator against simulations of the arithmetic they are for."""

import pytest
import torch

from generator.language.model import Dtype
from generator.problem.accumulation_bounds import accumulation_error
from generator.problem.element_types import half_ulp

M, N, K = 24, 20, 300


def factors(dtype):
    random = torch.Generator().manual_seed(3)
    a, b = torch.randn(M, K, generator=random), torch.randn(K, N, generator=random)
    return a.to(dtype).float(), b.to(dtype).float()


def truncated(x, bits):
    """fp32 with the last `bits` bits cleared."""
    return (x.contiguous().view(torch.int32) & -(1 << bits)).view(torch.float32)


def difference(computed, a, b):
    return (computed.double() - a.double() @ b.double()).abs()


@pytest.mark.parametrize("word", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_one_product_after_another_in_fp32(word, order):
    a, b = factors({"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[word])
    total = torch.zeros(M, N)
    for k in range(K) if order == "forwards" else reversed(range(K)):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    bound = accumulation_error(a.double(), b.double(), Dtype.of(word), hardware=False)
    assert bool((difference(total, a, b) <= bound).all())


def test_the_bound_leaves_a_rounding_of_fp16_visible_at_the_sizes_of_the_cases():
    a, b = (x.double() for x in factors(torch.float16))
    a, b = a[:, :127], b[:127]
    bound = accumulation_error(a, b, Dtype.of("fp16"), hardware=False)
    assert float(bound.median()) < float(half_ulp(a @ b, torch.float16).median()) / 2


def test_truncating_sums():
    a, b = factors(torch.float16)
    total = torch.zeros(M, N)
    for k in range(K):
        exact = total.double() + a[:, k : k + 1].double() * b[k : k + 1].double()
        rounded = exact.float()
        beyond = rounded.double().abs() > exact.abs()
        total = torch.where(beyond, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)
    bound = accumulation_error(a.double(), b.double(), Dtype.of("fp16"), hardware=True)
    assert bool((difference(total, a, b) <= bound).all())


def test_an_accumulator_of_fp16():
    a, b = factors(torch.float16)
    total = torch.zeros(M, N, dtype=torch.float16)
    for k in range(K):
        total = (total.float() + a[:, k : k + 1] * b[k : k + 1]).half()
    dtype = Dtype("fp16", "fp16", "fp16", "fp16", None)
    bound = accumulation_error(a.double(), b.double(), dtype, hardware=False)
    assert bool((difference(total, a, b) <= bound).all())


def test_tf32_drops_thirteen_bits_of_each_operand():
    a, b = factors(torch.float32)
    computed = truncated(a, 13).double() @ truncated(b, 13).double()
    bound = accumulation_error(a.double(), b.double(), Dtype.of("tf32"), hardware=True)
    error = difference(computed, a, b)
    assert bool((error <= bound).all())
    interpreted = accumulation_error(a.double(), b.double(), Dtype.of("tf32"), hardware=False)
    assert not bool((error <= interpreted).all())


def test_tf32x3_leaves_out_the_product_of_the_small_parts():
    a, b = factors(torch.float32)
    big_a, big_b = truncated(a, 13), truncated(b, 13)
    small_a, small_b = truncated(a - big_a, 13), truncated(b - big_b, 13)
    computed = big_a.double() @ big_b.double() + big_a.double() @ small_b.double() + small_a.double() @ big_b.double()
    bound = accumulation_error(a.double(), b.double(), Dtype.of("tf32x3"), hardware=True)
    assert bool((difference(computed, a, b) <= bound).all())
    assert bool((bound < accumulation_error(a.double(), b.double(), Dtype.of("tf32"), hardware=True) / 10).all())


@pytest.mark.parametrize(("precision", "promotion"), [("full", 128), ("fast", K)])
def test_the_short_accumulator_of_fp8(precision, promotion):
    a, b = factors(torch.float8_e4m3fn)
    total, partial = torch.zeros(M, N, dtype=torch.float64), torch.zeros(M, N, dtype=torch.float64)
    for start in range(0, K, 32):
        if start % promotion == 0:
            total, partial = total + partial, torch.zeros_like(partial)
        terms = a[:, start : start + 32, None].double() * b[None, start : start + 32].double()
        terms = torch.cat([partial[:, None], terms], dim=1)
        _, exponent = torch.frexp(terms.abs().amax(1, keepdim=True))
        grid = torch.ldexp(torch.ones_like(terms[:, :1]), exponent - 14)
        partial = (torch.trunc(terms / grid) * grid).sum(1)
    dtype = Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", precision)
    bound = accumulation_error(a.double(), b.double(), dtype, hardware=True)
    error = difference(total + partial, a, b)
    assert bool((error <= bound).all())
    assert float(bound.median()) < 60 * float(error.median())


def test_integers_are_exact():
    a = torch.randint(-128, 128, (M, K)).double()
    assert not bool(accumulation_error(a, a.t(), Dtype.of("int8"), hardware=True).any())
