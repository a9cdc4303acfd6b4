"""The fast forms of functions, on every value of fp16 and bf16: how far they are off, and that kernels say so."""

import re

import pytest
import torch

from generator.language import schema
from generator.language.built_in import OPERATIONS
from generator.language.vocabulary import MATH
from generator.lowering import approximate_math
from generator.problem.compare import compare
from generator.problem.error_propagation import Bounded, functions
from tests.helpers.verify.operation_values import every_value, fast_errors
from tests.helpers.verify.rendered import rendered

DTYPES = {"fp16": "{a: fp16, out: fp32}", "bf16": "{a: bf16, out: fp32}"}
#: Results that one rounding may be off by.
HALF = 0.5


SPEC = (
    f"summary: Fast forms.\nlayout: rrr\ndtype: [{', '.join(DTYPES.values())}, bf16, fp16]\nmath: fast\n"
    f"masking: mnk\nselect: fixed\nepilogue: [{', '.join(approximate_math.ERRORS)}, bias+tanh+silu]\n"
    "tile: [{m: 64, n: 64, k: 64, warps: 4}]\n"
)


def test_the_schema_says_of_auto_what_it_computes_in_fast_forms():
    told = MATH["auto"].meaning
    listed = re.search(r"the built-in (.*?), if every output has (\d+) bits or fewer", told)
    assert listed is not None and int(listed[2]) == approximate_math._WIDEST
    words = re.findall(r"[a-z_]+", listed[1].replace(" and ", " "))
    assert words == [*approximate_math.ERRORS, *approximate_math._GATES]
    narrow = [max(errors[word]) for errors in approximate_math.ERRORS.values() for word in ("fp16", "bf16")]
    assert f"at most {max(narrow)} units in the last place" in told
    assert told.endswith("exact elsewhere") and told in schema.text()


@pytest.mark.parametrize(("gate", "of"), [("swiglu", "silu"), ("geglu_tanh", "gelu_tanh")])
def test_a_gate_is_as_exact_as_the_function_that_it_is_a_product_of(gate, of):
    assert OPERATIONS[gate].formula == re.sub(r"\bx\b", "gate", OPERATIONS[of].formula) + " * x"


SOFT_CAP = 'ops: {soft_cap: {formula: "30 * tanh(x / 30)"}}\n'


@pytest.mark.parametrize(
    ("dtype", "epilogue", "more", "cheaper"),
    [
        ("bf16", "silu", "", True),
        ("fp16", "swiglu", "", True),
        ("fp16", "reglu", "", False),
        ("fp8e4m3", "gelu_tanh", "", True),
        ("{a: int8, out: int8}", "scale+sigmoid", "", True),
        ("{a: bf16, out: fp32}", "silu", "", False),
        # Sums and maxima are fp32, what is saved is of C's type.
        ("bf16", "silu+save", "", True),
        ("bf16", "silu+row_sum", "", False),
        ("bf16", "row_amax+silu", "", False),
        ("bf16", "silu", "rounding: torch\n", False),
        ("bf16", "silu", "math: exact\n", False),
        ("bf16", "soft_cap", SOFT_CAP, False),
        ("bf16", "soft_cap", f"math: fast\n{SOFT_CAP}", True),
        # Each operation of a chain by itself.
        ("bf16", "soft_cap+silu", SOFT_CAP, True),
    ],
)
def test_what_auto_computes_in_fast_forms(dtype, epilogue, more, cheaper, tmp_path):
    family = rendered(tmp_path, "s", f"summary: S.\nlayout: rrr\ndtype: {dtype}\nepilogue: {epilogue}\n{more}")
    text = family.file(family.kernels[0].name).read_text()
    assert ("APPROX: tl.constexpr" in text, "fast form" in text) == (cheaper, cheaper)
    if epilogue == "soft_cap+silu":
        assert "_tanh(acc / 30" in text and "_fast_tanh" not in text and "_coarse_tanh" not in text


@pytest.mark.parametrize("operation", approximate_math.ERRORS)
def test_the_table_is_what_every_value_comes_to(operation, family, interpreted):
    kernels = [k for k in family.kernels if k.variant.epilogue.word == operation and k.variant.dtype.out == "fp32"]
    found = [interpreted(fast_errors, family.folder, kernel.name) for kernel in kernels]
    assert len(found) == len(DTYPES)
    for word, stated in approximate_math.ERRORS[operation].items():
        for which, limit in enumerate(stated):
            most = max(errors[word][which] for errors in found)
            assert most <= limit <= 1.1 * most, (word, which)
    for word in ("fp16", "bf16"):
        assert max(approximate_math.ERRORS[operation][word]) <= HALF


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", approximate_math.ERRORS)
def test_every_value(operation, dtype, family, interpreted):
    """Within the bounds that the reference has for the form, NaN and infinities among the values."""
    kernels = (k for k in family.kernels if k.variant.epilogue.word == operation and k.variant.dtype.a == dtype)
    for kernel in kernels:
        assert interpreted(every_value, family.folder, kernel.name) == []


def test_a_tanh_of_the_hardware_is_for_types_that_hold_less_than_it():
    types = ("fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8")
    assert [out for out in types if approximate_math.coarse(out)] == [*types[2:]]
    # A number has at most 2**8 units of bf16's last place.
    assert approximate_math.TANH_APPROX * 2**8 < HALF < approximate_math.TANH_APPROX * 2**11


def fast_sigmoid(x):
    return 1 / (1 + torch.exp2(x * -1.4426950408889634))


def fast_tanh(x):
    return torch.where(x.abs() < 2.0**-7, x, 1 - 2 * (1 / (torch.exp2(x * 2.8853900817779268) + 1)))


def coarse_tanh(x):
    """As far off as the hardware's own may be, to either side by turns."""
    sides = torch.arange(len(x)) % 2 * 2 - 1
    return (torch.tanh(x.double()) * (1 + sides * approximate_math.TANH_APPROX)).float()


@pytest.mark.parametrize("spread", [2.0**-7, 1.0, 30.0])
@pytest.mark.parametrize(
    ("function", "out", "hardware", "form"),
    [
        ("sigmoid", "bf16", True, fast_sigmoid),
        ("tanh", "fp16", True, fast_tanh),
        ("tanh", "bf16", False, fast_tanh),
        ("tanh", "bf16", True, coarse_tanh),
    ],
)
def test_the_bound_holds_for_a_form_of_an_inexact_accumulator(function, out, hardware, form, spread):
    random = torch.Generator().manual_seed(1)
    exact = torch.randn(20000, generator=random, dtype=torch.float64) * spread
    computed = (exact * (1 + 1e-6 * (2 * torch.rand(20000, generator=random, dtype=torch.float64) - 1))).float()
    given = Bounded(exact, (computed.double() - exact).abs() * 1.01)
    expected = functions(True, out, hardware=hardware)[function](given)
    assert compare(form(computed), expected).fault is None
    # No looser than it need be: a tanh that is twice as far off is seen.
    if form is coarse_tanh:
        twice = 2 * coarse_tanh(computed) - torch.tanh(computed)
        assert compare(twice, expected).fault is not None
