"""Functions of quantised and of symmetric results: what comes out, batches, gradients, operators, refusals."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from generator.emit.loading import load_kernel
from generator.runtime import pack
from generator.runtime.pack import Stored
from tests.helpers.emit.calls import results
from tests.helpers.support import ROOT, render_spec, spec

UP = "gemm_fp8e4m3_a1x128_b128x128_rcr_swiglu_quantize_fp8e4m3"
DOWN = "gemm_fp8e4m3_a1x128_b128x128_rcr_none"
SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided, grouped]; epilogue: [[{quantize: {to: fp8e4m3, block: 32}}], "
    "[{quantize: {to: mxfp4}}], [save, relu, {quantize: {to: int8, block: 32}}]]; "
    "tile: [{m: 32, n: 64, k: 32, warps: 4}]; targets: [sm90]"
)


@pytest.fixture(scope="module")
def families(render):
    gated = (ROOT / "docs" / "examples" / "block_fp8.yaml").read_text(encoding="utf-8")
    return {"blocks": render("blocks", SPEC), "block_fp8": render("block_fp8", gated)}


def rule(x, word):
    """What the library makes of the rows of x."""
    given = pack.quantize_rows(x, Stored(word, "row", (1, 32)))
    return given["a"], given["a_scale"]


def same(found, wanted):
    return all(
        x.dtype == y.dtype and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(found, wanted, strict=True)
    )


def gated(families, weights, rows):
    """A family, keywords of the first product and of its input, and what the gate gives of them in fp32."""
    family = families["block_fp8"]
    library = __import__(f"{family.__name__}._pack", fromlist=["quantize"])
    first = library.quantize(weights, UP)
    given = pack.quantize_rows(torch.randn(rows, 256), Stored("fp8e4m3", "row", (1, 128)))
    x = given["a"].float() * given["a_scale"].repeat_interleave(128, -1)
    gate, other = (x @ library.dequantize(UP, **first)).chunk(2, -1)
    return family, library, first, given, functional.silu(gate) * other


def layer(families):
    """A gated layer in two launches, its input, and what it computes in fp32."""
    torch.manual_seed(0)
    family, library, first, given, hidden = gated(families, torch.randn(256, 512) / 16, 40)
    second = library.quantize(torch.randn(256, 128) / 16, DOWN)

    def call(a, a_scale):
        hidden, scale = getattr(family, UP)(a, a_scale=a_scale, **first)
        result = getattr(family, DOWN)(hidden, a_scale=scale, **second)
        return result

    return call, given["a"], given["a_scale"], hidden @ library.dequantize(DOWN, **second)


def test_a_gated_layer_is_two_launches_without_a_copy(families):
    call, a, a_scale, exact = layer(families)
    found = call(a, a_scale).float()
    # The error of fp8 between the two products.
    assert (found - exact).norm() < 2.0**-4 * exact.norm()


@pytest.mark.parametrize("hidden", [128, 200])
def test_every_kernel_of_a_gate_has_the_scales_of_both_halves(families, hidden):
    """Where the second half begins within a block of scales, too."""
    torch.manual_seed(2)
    # Scales that differ much from block to block.
    weights = torch.randn(256, 2 * hidden) * torch.tensor([0.05, 0.1, 0.2, 0.4]).repeat_interleave(128)[: 2 * hidden]
    family, _, first, given, wanted = gated(families, weights, 24)
    kernels = sorted(path.stem for path in Path(str(family.__file__)).parent.glob(f"{UP}__*.py"))
    assert {"tiled_descriptor", "tiled_pointer"} <= {name.partition("__")[2].partition("_auto")[0] for name in kernels}
    for name in kernels:
        module = __import__(f"{family.__name__}.{name}", fromlist=["gemm"])
        out, scale = module.gemm(given["a"], a_scale=given["a_scale"], config=0, **first)
        found = out.float() * scale.repeat_interleave(128, -1)[:, :hidden]
        # Half a step of fp8.
        assert (found - wanted).norm() < 2.0**-4 * wanted.norm(), name


def test_torch_compiles_a_gated_layer_in_one_graph(families):
    call, a, a_scale, _ = layer(families)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, a_scale), call(a, a_scale))


@pytest.mark.parametrize("word", ["fp8e4m3_32_block", "mxfp4"])
def test_a_result_is_bit_for_bit_that_of_the_library(families, word):
    torch.manual_seed(1)
    a, b = torch.randn(3, 40, 1), torch.randn(3, 90, 1).mT
    call = {kind: getattr(families["blocks"], f"{kind}_fp32_rcr_quantize_{word}") for kind in ("gemm", "bmm", "gmm")}
    wanted, element = a @ b, word.partition("_")[0]
    assert same(call["gemm"](a[0], b[0]), rule(wanted[0], element))
    for found, own in zip(zip(*call["bmm"](a, b)), wanted):
        assert same(found, rule(own, element))
    grouped = call["gmm"](a.flatten(0, 1), b, torch.tensor([40, 80, 120], dtype=torch.int32))
    assert same(grouped, rule(wanted.flatten(0, 1), element))


def test_saved_values_come_before_the_scales(families):
    a, b = torch.randn(5, 1), torch.randn(1, 70)
    function = families["blocks"].gemm_fp32_rcr_save_relu_quantize_int8_32_block
    out, preact, scale = found = function(a, b.T.contiguous().T)
    assert torch.equal(preact, a @ b)
    assert same((out, scale), rule((a @ b).relu(), "int8"))
    held = [torch.zeros_like(x) for x in found]
    filled = function(a, b.T.contiguous().T, out=held[0], preact=held[1], out_scale=held[2])
    assert all(x is y for x, y in zip(filled, held)) and same(filled, found)
    meta = function(a.to("meta"), b.to("meta").T.contiguous().T)
    assert [(x.shape, x.dtype) for x in meta] == [(x.shape, x.dtype) for x in found]


@pytest.mark.parametrize("word", ["fp8e4m3_32_block", "mxfp4"])
def test_elements_and_their_scales_are_scattered_alike(families, word):
    a, b = torch.randn(40, 1), torch.randn(2, 1, 66).mT.contiguous().mT
    call = getattr(families["blocks"], f"gmm_fp32_rcr_quantize_{word}")
    offsets, scatter = torch.tensor([13, 40], dtype=torch.int32), torch.randperm(50)[:40].int()
    scatter[3] = -1
    out, scale = call(a, b, offsets)
    held = torch.zeros(50, out.shape[1], dtype=out.dtype)
    with pytest.raises(ValueError, match="out_scale"):
        call(a, b, offsets, scatter=scatter, out=held)
    held_scale = torch.zeros((50, scale.shape[1]), dtype=torch.float32).to(scale.dtype)
    before = held_scale.clone()
    found, scales = call(a, b, offsets, scatter=scatter, out=held, out_scale=held_scale)
    assert found is held and scales is held_scale
    there = scatter >= 0
    for given, first, rows in ((held, torch.zeros_like(held), out), (held_scale, before, scale)):
        wanted = first.view(torch.uint8).clone()
        wanted[scatter[there].long()] = rows.view(torch.uint8)[there]
        assert torch.equal(given.view(torch.uint8), wanted)


@pytest.mark.parametrize(
    ("columns", "given", "error", "message"),
    [
        (63, {}, ValueError, "N is 63: out stores 2 of its elements together: it must be a multiple of 2"),
        (64, {"out_scale": torch.zeros(8, 3, dtype=torch.uint8).view(torch.float8_e8m0fnu)}, ValueError, "(8, 2)"),
        (64, {"out_scale": torch.zeros(8, 2)}, TypeError, "out_scale must be torch.float8_e8m0fnu"),
        (64, {"out": torch.zeros(8, 64, dtype=torch.uint8)}, ValueError, "out must have shape (8, 32)"),
    ],
)
def test_wrong_calls_name_the_contract(families, columns, given, error, message):
    name = "gemm_fp32_rcr_quantize_mxfp4"
    with pytest.raises(error) as caught:
        getattr(families["blocks"], name)(torch.zeros(8, 4), torch.zeros(columns, 4).T, **given)
    assert message in str(caught.value) and name in str(caught.value)


SYMMETRIC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; result: symmetric; "
    "epilogue: [none, add, scale+add+gelu, save]; tile: [{m: 32, n: 64, k: 32, warps: 4}]; backward: kernels"
)


@pytest.fixture(scope="module")
def symmetric(render):
    return render("symmetric_results", SYMMETRIC)


def upper(x):
    """The symmetric matrix of what is on and above the diagonal."""
    return x.triu() + x.triu(1).mT


OF_CHAIN = {
    "none": lambda c: (c,),
    "add": lambda c, add: (c + upper(add),),
    "scale_add_gelu": lambda c, scale, add: (functional.gelu(c * scale + upper(add)),),
    "save": lambda c: (c, c),
}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("chain", OF_CHAIN)
def test_gradients_are_those_of_what_is_computed(symmetric, chain, batch):
    torch.manual_seed(0)
    function = getattr(symmetric, f"{'bmm' if batch else 'gemm'}_fp32_rcr_{chain}_resultsymmetric")
    a, b = (torch.randn(*batch, 70, 33, requires_grad=True) for _ in range(2))
    every = {"scale": torch.tensor([0.3], requires_grad=True), "add": torch.randn(*batch, 70, 70, requires_grad=True)}
    given = {name: x for name, x in every.items() if name in chain}
    found, wanted = results(function(a, b.mT, **given)), OF_CHAIN[chain](upper(a @ b.mT), **given)
    for x, y in zip(found, wanted, strict=True):
        assert torch.equal(x, x.mT)
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
    incoming = [torch.randn(*batch, 70, 70) for _ in found]
    own, exact = (torch.autograd.grad(xs, [a, b, *given.values()], incoming) for xs in (found, wanted))
    torch.testing.assert_close(own, exact, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_a_gram_matrix_is_that_of_torch(symmetric):
    torch.manual_seed(1)
    x, incoming = torch.randn(40, 24, requires_grad=True), torch.randn(40, 40)
    function = symmetric.gemm_fp32_rcr_none_resultsymmetric
    (own,) = torch.autograd.grad(function(x, x.T), x, incoming)
    (exact,) = torch.autograd.grad(x @ x.T, x, incoming)
    torch.testing.assert_close(own, exact, rtol=1e-3, atol=1e-3)


def test_m_and_n_must_be_equal(symmetric, tmp_path):
    spec = "summary: Alone.\nlayout: rcr\ndtype: fp32\nresult: symmetric\npackage: files\nload: pointer\n"
    (path,) = render_spec(tmp_path, "alone", spec).glob("gemm_*.py")
    for call in (symmetric.gemm_fp32_rcr_none_resultsymmetric, load_kernel(path).gemm):
        for device, number in (("cpu", 39), ("cpu", 41), ("meta", 41)):
            x, y = torch.randn(40, 8, device=device), torch.randn(number, 8, device=device)
            assert call(x, x.T).shape == (40, 40)
            told = f"M is 40 in a and {number} in b: they must be equal; C is symmetric, so N is M"
            with pytest.raises(ValueError, match=told):
                call(x, y.T)
