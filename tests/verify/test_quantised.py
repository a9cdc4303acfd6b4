"""Results in int8 and fp8: what kernel, reference and torch make of each number, and what the comparison lets pass."""

import pytest
import torch

from generator.language.dtypes import QUANTISED
from generator.problem.compare import compare
from generator.problem.element_types import SATURATED, quantise, torch_type
from generator.problem.error_propagation import Bounded
from tests.helpers.verify.narrow_types import as_torch, every_number, numbers, planted

TYPES = {word: torch_type(word) for word in QUANTISED}
#: Those of NVIDIA; Triton's own interpreter does not have the others.
RENDERED = tuple(word for word, element in QUANTISED.items() if "sm90" in element.written)


PAIRS = ", ".join(f"{{a: {a}, out: {out}}}" for a in ("fp16", "fp32") for out in RENDERED)
SPEC = (
    f"summary: Every narrow type.\nlayout: rrr\nmasking: mnk\nselect: fixed\ndtype: [{PAIRS}]\n"
    "schedule: [elementwise, tiled]\n"
    "tile: [{m: 64, n: 64, k: 64, warps: 4}]\ntargets: [sm90]\n"
)


def names(family, a, out):
    return [k.name for k in family.kernels if (k.variant.dtype.a, k.variant.dtype.out) == (a, out)]


@pytest.mark.parametrize("out", RENDERED)
@pytest.mark.parametrize("a", ["fp16", "fp32"])
def test_every_number_is_quantised_as_torch_does(a, out, family, unguarded):
    for name in names(family, a, out):
        assert unguarded(every_number, family.folder, name) == []


@pytest.mark.parametrize(
    ("out", "old", "new"),
    [
        ("int8", "12582912.0) - 12582912.0", "0.5) - 0.0"),
        ("int8", "127.0", "126.0"),
        ("int8", "0.0).to(tl.int8)", "1.0).to(tl.int8)"),
        ("fp8e4m3", "1572864.0", "3145728.0"),
        ("fp8e4m3", "0x3C800000", "0x3C000000"),
        ("fp8e4m3", "448.0", "480.0"),
        ("fp8e4m3", "0x7FF00000", "0x7FC00000"),
        ("fp8e4m3", "| (bits & -0x80000000)", ""),
        ("fp8e5m2", "57344.0", "65536.0"),
        ("fp8e5m2", "0x38800000", "0x39000000"),
    ],
)
def test_a_planted_mistake_shows(out, old, new, family, unguarded):
    (name,) = (name for name in names(family, "fp32", out) if "tiled" in name)
    assert unguarded(planted, family.folder, name, old, new) != []


@pytest.mark.parametrize("out", TYPES)
def test_the_reference_is_torchs_rounding(out):
    x = numbers(torch.float32, TYPES[out])
    mine, theirs = quantise(x.double(), TYPES[out]), as_torch(x, TYPES[out]).float().double()
    assert torch.equal(mine.nan_to_num(-1.5), theirs.nan_to_num(-1.5))
    # Finer than fp32 a number beside a middle goes to its own side.
    middle = torch.tensor([2.5 + 2.0**-40, 2.5 - 2.0**-40, 2.5, 3.5], dtype=torch.float64)
    step = QUANTISED[out].smallest
    assert (quantise(middle * step, TYPES[out]) / step).tolist() == [3, 2, 2, 4]


@pytest.mark.parametrize("out", TYPES)
def test_either_neighbour_passes_near_a_boundary_alone(out):
    dtype = TYPES[out]
    got = torch.tensor([[2.0, 3.0, 3.0]]).to(dtype)
    value = torch.tensor([[2.5, 2.5, 3.0]], dtype=torch.float64)
    if dtype.is_floating_point:
        # The neighbours of 2 in e4m3 are a quarter apart, in e5m2 a half.
        step = 2.0 ** (1 - QUANTISED[out].mantissa)
        got = torch.tensor([[2.0, 2.0 + step, 2.0 + step]]).to(dtype)
        value = torch.tensor([[2 + step / 2, 2 + step / 2, 2 + step]], dtype=torch.float64)
    near = Bounded(value + 1e-6, torch.full_like(value, 1e-5))
    assert compare(got, near).fault is None
    fault = compare(got, Bounded(value + 1e-4, torch.full_like(value, 1e-5))).fault
    assert fault is not None and "1 of 3 elements" in fault and "[0, 0]" in fault


@pytest.mark.parametrize("out", TYPES)
def test_what_is_past_the_ends_is_at_them_and_nan_is_as_stated(out):
    dtype, (least, most) = TYPES[out], SATURATED[TYPES[out]]
    value = torch.tensor([[1e9, -1e9, torch.inf, -torch.inf, torch.nan]], dtype=torch.float64)
    exact = Bounded(value, torch.zeros_like(value))
    nan = torch.nan if dtype.is_floating_point else 0.0
    right = torch.tensor([[most, least, most, least, nan]])
    assert compare(right.to(dtype), exact).fault is None
    for index, wrong in ((0, least), (2, 0.0), (3, most), (4, 1.0)):
        got = right.clone()
        got[0, index] = wrong
        assert compare(got.to(dtype), exact).fault is not None
    # Where a bound is NaN anything is right, and where it is infinite any number.
    loose = torch.tensor([[torch.nan, torch.inf, torch.inf, torch.nan, torch.nan]], dtype=torch.float64)
    assert compare(torch.ones(1, 5).to(dtype), Bounded(value, loose)).fault is None
