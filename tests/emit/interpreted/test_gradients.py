"""The gradients of contracts, and of drawn chains, against torch's autograd in float64 with derived bounds."""

import itertools

import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.language.built_in import OPERATIONS
from tests.drawn import specs
from tests.helpers.emit.calls import SIZES, contracts
from tests.helpers.emit.gradients import check

OWN = """\
ops:
  own: {formula: "where(x > w, x * exp(-abs(x)), log(1 + x * x) * w)", operands: {w: [N]}}
  own2: {formula: "x / (1 + s * s) + sqrt(1 + x * x) * t", operands: {s: [M], t: [1]}}
  own3: {formula: "max(x, mm) * p + min(x, 0.5) ** 3", operands: {mm: [M, N]}, scalars: {p: null}}
"""
GATES = [name for name, operation in OPERATIONS.items() if operation.gated]
CHAINS = [
    *(name for name in OPERATIONS if name != "clamp"),
    "{clamp: {min: -1, max: 1.5}}",
    *(f"{{{gate}: {{order: interleaved}}}}" for gate in GATES),
    *("bias+bias_m+silu+mul+scale", "scale_m+tanh+add+scale_n+gelu+add"),
    *("bias+geglu+add", "scale_m+bias+swiglu+scale_n"),
    *("own+bias", "own2", "own3+own3"),
    *("save+gelu", "bias+save+gelu_tanh+row_sum+relu+col_sum", "row_amax+silu", "bias+swiglu+save+row_sum"),
    *("save+swiglu", "bias, save, {geglu: {order: interleaved}}, save"),
]


def spec(chains, **others):
    words = {"layout": "rcr", "dtype": "fp32", "load": "pointer", "backward": "kernels", **others}
    written = ", ".join(f"[{chain}]" if "{" in chain else chain for chain in chains)
    keys = "".join(f"{key}: {value}\n" for key, value in words.items())
    return f"summary: For gradients.\nepilogue: [{written}]\n{keys}{OWN if 'own2' in chains else ''}"


@pytest.fixture(scope="module")
def chains(render):
    return render("chained", spec(CHAINS))


@pytest.mark.parametrize("index", range(len(CHAINS)), ids=lambda index: CHAINS[index])
def test_gradients_of_every_operation_and_gate(chains, index):
    """Of every built-in operation, gates in both orders, formulas of a spec's own, and outputs along the chain."""
    # The contracts that the spec asks for come first, in its order.
    check(chains, [*contracts(chains)][index])


def test_every_operation_is_among_the_chains():
    text = " ".join(CHAINS)
    assert len(GATES) == 4 and all(name in text for name in (*OPERATIONS, *AUXILIARY))


#: Every layout, with both types; the other pairs on demand.
LAYOUTS = [*zip(("rcr", "rrr", "crr", "ccr", "rcc", "crc", "sss"), itertools.cycle(["fp32", "bf16"]))]
OTHERS = sorted({*itertools.product(["rcr", "rrr", "crr", "ccr"], ["fp32", "bf16"])} - {*LAYOUTS})


@pytest.mark.parametrize(
    ("layout", "dtype"), [*LAYOUTS, *(pytest.param(*pair, marks=pytest.mark.operators) for pair in OTHERS)]
)
def test_gradients_of_every_layout(render, layout, dtype):
    """Each lies as its operand does; of one product and of a batch, with sizes of several tiles of the chain."""
    text = spec(["none", "bias+bias_m+silu+mul", "swiglu"], layout=layout, dtype=dtype, batch="[none, strided]")
    family = render(f"lies{layout}{dtype}", text)
    given = {name: variant for name, variant in contracts(family).items() if "whole" not in name}
    for name, variant in given.items():
        if variant.layout.word == layout:
            check(family, name, {"B": 2, "M": 70, "N": 67, "K": 19})


def test_gradients_of_chains_that_round_as_torch_does(render):
    family = render("rounding", spec(["bias+gelu+mul", "scale_m+swiglu"], dtype="bf16", rounding="torch"))
    for name, variant in contracts(family).items():
        if variant.rounding == "torch" and variant.epilogue.operands:
            check(family, name)


def test_gradients_of_results_of_another_type(render):
    family = render("widened", spec(["none", "bias+gelu"], dtype="{a: bf16, out: fp32}"))
    for name, variant in contracts(family).items():
        if variant.dtype.out == "fp32" and "whole" not in name:
            check(family, name)


@pytest.mark.parametrize("empty", ["M", "N", "K"])
def test_gradients_of_empty_products(chains, empty):
    """Without an element of the result they are zero; without products, the chain of zeros has gradients."""
    for chain in ("bias", "bias_geglu_add", "bias_save_gelutanh_rowsum_relu_colsum"):
        check(chains, f"gemm_fp32_rcr_{chain}", {**SIZES, empty: 0})


@st.composite
def drawn_specs(draw):
    """A spec of one contract with gradients, legal or not."""
    words = {
        "layout": draw(specs.LAYOUTS),
        "epilogue": draw(specs.CHAINS.filter(lambda chain: chain != "none")),
        "dtype": draw(st.sampled_from(["fp32", "bf16"])),
    }
    words |= {"batch": draw(st.sampled_from(["none", "strided"])), "rounding": draw(st.sampled_from(["late", "torch"]))}
    fixed = {"summary": "Drawn.", "ops": specs.OWN, "load": "pointer", "backward": "kernels"}
    return yaml.safe_dump(fixed | words, sort_keys=False)


@pytest.mark.parametrize(
    ("count", "number"), [pytest.param(12, 5, id="few"), pytest.param(200, 6, id="many", marks=pytest.mark.operators)]
)
def test_drawn_chains(render, count, number):
    found = []

    @seed(number)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(drawn_specs())
    def examine(text):
        assume(specs.legal(text) is not None)
        found.append(text)
        family = render(f"drawn{number}_{len(found)}", text)
        # The contract that the spec asks for comes first.
        check(family, next(iter(contracts(family))), tight=False)

    examine()
    assert len({*found}) >= 0.75 * count
