"""The gradients of contracts, and of drawn chains, against torch's autograd in float64 with derived bounds."""

import itertools

import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.language.built_in import OPERATIONS
from tests.drawn import specs
from tests.helpers import support
from tests.helpers.emit.calls import SIZES, contracts, drawn, operands
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


VECTORS = support.spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; "
    "epilogue: [bias, bias_m+scale_m+relu, scale_n+gelu+add, bias+swiglu+bias, bias+bias_m]; load: pointer; "
    "backward: kernels"
)
OF_BATCH = {"B": 3, "M": 70, "N": 67, "K": 19}
OF_VECTORS = ("bias", "biasm_scalem_relu", "scalen_gelu_add", "bias_swiglu_bias", "bias_biasm")


@pytest.fixture(scope="module")
def family(render):
    return render("batch_vectors", VECTORS)


@pytest.mark.parametrize("chain", OF_VECTORS)
def test_each_matrix_has_its_own_or_all_share_one(family, chain):
    name = f"bmm_fp32_rcr_{chain}"
    given = operands(contracts(family)[name], OF_BATCH)
    vectors = [x for x, value in given.items() if value.dim() == 2]
    assert vectors
    product, one = getattr(family, name), getattr(family, name.replace("bmm", "gemm"))
    for shared in ([], vectors, vectors[:1]):
        call = {x: value[0] if x in shared else value for x, value in given.items()}
        expected = torch.stack([one(**{x: y if x in shared else y[at] for x, y in call.items()}) for at in range(3)])
        assert torch.equal(product(**call), expected)
        assert torch.equal(product(**{x: y.expand(3, -1) if x in shared else y for x, y in call.items()}), expected)


@pytest.mark.parametrize("chain", OF_VECTORS)
def test_gradients_of_vectors_of_each_matrix(family, chain):
    check(family, f"bmm_fp32_rcr_{chain}", OF_BATCH)


@pytest.mark.parametrize("chain", OF_VECTORS)
def test_the_gradient_of_a_shared_vector_is_the_sum_over_the_batch(family, chain):
    name = f"bmm_fp32_rcr_{chain}"
    given = operands(contracts(family)[name], OF_BATCH)
    of = drawn((3, 70, 67), torch.float32)
    found = []
    for shared in (True, False):
        leaves = {x: (y[0] if y.dim() == 2 else y).clone().requires_grad_() for x, y in given.items()}
        call = {x: y.expand(3, -1) if y.dim() == 1 and not shared else y for x, y in leaves.items()}
        for _ in range(2):
            for leaf in leaves.values():
                leaf.grad = None
            getattr(family, name)(**call).backward(of)
        found.append({x: y.grad for x, y in leaves.items()})
    for x, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][x], rtol=1e-4, atol=1e-4, msg=x)


def test_vmap_gives_each_matrix_its_own(family):
    given = operands(contracts(family)["bmm_fp32_rcr_bias"], OF_BATCH)
    found = torch.vmap(lambda a, bias: family.gemm_fp32_rcr_bias(a, given["b"][0], bias=bias))(
        given["a"], given["bias"]
    )
    expected = family.bmm_fp32_rcr_bias(given["a"], given["b"][:1].expand(3, -1, -1), bias=given["bias"])
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (torch.ones(2, 67), r"bias must have shape \(3, 67\), got \(2, 67\)"),
        (torch.ones(66), r"bias must have shape \(67,\), got \(66,\)"),
        (torch.ones(3, 1, 67), r"bias must have shape \(3, 67\), got \(3, 1, 67\)"),
        (torch.ones(67, 3).T, "bias must have stride 1 along dimension 1"),
        (torch.ones(134)[::2], "bias must have stride 1 along dimension 0"),
    ],
)
def test_another_vector_is_refused(family, bias, message):
    given = operands(contracts(family)["bmm_fp32_rcr_bias"], OF_BATCH)
    with pytest.raises(ValueError, match=message):
        family.bmm_fp32_rcr_bias(given["a"], given["b"], bias=bias)
