"""The comparison passes what rounds once and nothing else."""

import pytest
import torch

from generator.problem.compare import compare
from generator.problem.element_types import half_ulp, has_infinity, overflow
from generator.problem.reference import Bounded

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def exact(value):
    return Bounded(value.double(), torch.zeros_like(value.double()))


def neighbour(x):
    """The next number away from zero, by the bits."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()]
    return (x.view(width) + 1).view(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("spread", [1e-6, 1.0, 50.0])
def test_rounding_once_passes_and_one_number_further_fails(dtype, spread):
    # Of fp32, for torch rounds fp64 to 16 bits by way of it.
    value = (torch.randn(64, 50, generator=torch.Generator().manual_seed(2)) * spread).double()
    rounded = value.to(dtype)
    verdict = compare(rounded, exact(value))
    assert verdict.fault is None
    assert verdict.ratio <= 1
    wrong = rounded.clone()
    wrong[3, 4] = neighbour(neighbour(rounded[3:4, 4:5]))[0, 0]
    fault = compare(wrong, exact(value)).fault
    assert fault is not None and "1 of 3200 elements" in fault and "[3, 4]" in fault


def test_rounding_twice_shows():
    value = torch.randn(200, 200, dtype=torch.float64)
    twice = (value.half().double() * 3).half()
    assert compare(twice, exact(value * 3)).fault is not None


def test_a_bound_widens_what_passes_by_itself():
    value = torch.full((1, 1), 1.0, dtype=torch.float64)
    got = torch.tensor([[1.0 + 2.0**-20]])
    assert compare(got, exact(value)).fault is not None
    assert compare(got, Bounded(value, torch.full_like(value, 2.0**-20))).fault is None
    assert compare(got, Bounded(value, torch.full_like(value, 2.0**-21))).fault is not None


def test_nan_and_infinity_must_be_where_they_belong():
    inf, nan = float("inf"), float("nan")
    value = torch.tensor([[inf, -inf, nan, 1.0]], dtype=torch.float64)
    assert compare(value.float(), exact(value)).fault is None
    for index, wrong in ((0, -inf), (0, 1e30), (1, nan), (2, 0.0), (2, inf), (3, nan), (3, inf)):
        got = value.float()
        got[0, index] = wrong
        assert compare(got, exact(value)).fault is not None, (index, wrong)


def test_infinity_instead_of_a_number_only_past_the_range():
    value = torch.tensor([[65519.0, 65521.0, 1e6, 60000.0]], dtype=torch.float64)
    assert compare(torch.tensor([[65504.0, float("inf"), float("inf"), 60000.0]]).half(), exact(value)).fault is None
    assert compare(torch.tensor([[float("inf"), float("inf"), float("inf"), 60000.0]]).half(), exact(value)).fault
    assert compare(torch.tensor([[65504.0, float("inf"), 65504.0, 60000.0]]).half(), exact(value)).fault
    near = Bounded(value, torch.full_like(value, 2.0))
    assert compare(torch.tensor([[float("inf"), 65504.0, float("inf"), 60000.0]]).half(), near).fault is None


def test_integers_are_equal_or_wrong():
    value = torch.tensor([[2**24 + 1, -5]])
    assert compare(value.int(), exact(value)).fault is None
    fault = compare(torch.tensor([[2**24, -5]], dtype=torch.int32), exact(value)).fault
    assert fault is not None and "expected exactly 16777217" in fault


def test_where_a_bound_is_nan_anything_is_right_and_only_there():
    value = torch.tensor([1.0, float("nan"), float("inf"), 2.0], dtype=torch.float64)
    undefined = torch.tensor([float("nan")] * 3 + [0.0], dtype=torch.float64)
    assert compare(torch.tensor([float("nan"), 3.0, -1.0, 2.0]), Bounded(value, undefined)).fault is None
    fault = compare(torch.tensor([1.0, 1.0, 1.0, float("nan")]), Bounded(value, undefined)).fault
    assert fault is not None and "1 of 4 elements are wrong; the worst is [3]" in fault
    # One that is infinite allows any number, and no NaN.
    unbounded = torch.full((1,), float("inf"), dtype=torch.float64)
    assert compare(torch.tensor([9e9]), Bounded(value[:1], unbounded)).fault is None
    assert compare(torch.tensor([float("nan")]), Bounded(value[:1], unbounded)).fault is not None


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_spacing(dtype):
    eps = torch.finfo(dtype).eps
    x = torch.tensor([1.0, 1.99, 2.0, 0.0, 0.5], dtype=torch.float64)
    floor = torch.finfo(dtype).smallest_normal * eps
    assert half_ulp(x, dtype).tolist() == [eps / 2, eps / 2, eps, floor / 2, eps / 4]


def test_what_the_types_hold():
    assert overflow(torch.float16) == 65520
    assert [has_infinity(dtype) for dtype in FLOATS] == [True, True, True, False, True]
    assert not has_infinity(torch.int8)
