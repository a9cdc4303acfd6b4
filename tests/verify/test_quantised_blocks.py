"""Results quantised under scales of blocks: bit for bit what the library makes of each number, and what is let pass."""

import pytest
import torch
import triton
from triton.compiler import ASTSource

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import read
from generator.epilogue.quantisation import quantisation
from generator.language.elements import FORMATS
from generator.language.quantised_results import RESULT_TYPES, quantised_result
from generator.problem.error_propagation import Bounded
from generator.problem.quantised_values import compare_elements, compare_scales
from generator.runtime import pack
from generator.runtime.pack import Stored
from generator.verify.launches import launches
from generator.verify.specialise import gpu_target, specialise
from tests.helpers import shipped
from tests.helpers.verify.quantised_blocks import by_library, differing, differing_of, differing_where_fused, hard

#: Each type with a block, and each way to find a scale where there are two.
KINDS = [
    *((word, 32, "fp32") for word in RESULT_TYPES if word not in FORMATS),
    *((word, 64, "pow2") for word in RESULT_TYPES if word not in FORMATS),
    *((word, 128, "fp32") for word in FORMATS),
]


def element(word, block, scale):
    """The last element of a chain."""
    settings = [f"to: {word}", *([f"block: {block}"] if block != 128 else [])]
    return f"{{quantize: {{{', '.join([*settings, *(['scale: pow2'] if scale == 'pow2' else [])])}}}}}"


CHAINS = ", ".join(f"[add, {element(*kind)}]" for kind in KINDS)
SPEC = (
    f"summary: Every type of a quantised result.\nlayout: rrr\ndtype: bf16\nselect: fixed\nepilogue: [{CHAINS}]\n"
    "tile: [{m: 128, n: 128, k: 16, warps: 4}]\ntargets: [sm90]\n"
)


@pytest.mark.parametrize("of", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind)))
def test_every_number_of_16_bits_is_quantised_as_the_library_does(kind, of, family, unguarded):
    found = quantised_result(quantisation(*kind))
    (name,) = (k.name for k in family.kernels if k.variant.quantised == found)
    # 250 columns end within a block of any size.
    for columns in (256, 250):
        assert unguarded(differing, family.folder, name, found, columns, of) == []


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[1:] == (32, "fp32")], ids=lambda kind: kind[0])
def test_quotients_that_are_hard_to_round_are_those_of_the_library(kind, fused, family, unguarded, interpreted):
    """In the interpreter as it is, which may round a product before it adds to it, and corrected, as a GPU does it."""
    found = quantised_result(quantisation(*kind))
    (name,) = (k.name for k in family.kernels if k.variant.quantised == found)
    x, scale = (torch.from_numpy(numbers) for numbers in hard(kind[0]))
    most = (scale * found.most).view(torch.int32)[:, None] + torch.arange(-2, 3, dtype=torch.int32)
    # A block's first element makes its scale, and the second one is hard to divide by it.
    makes = (most.view(torch.float32) / found.most == scale[:, None]) & (most.view(torch.float32) >= x[:, None])
    blocks = torch.zeros(len(x), found.block)
    blocks[:, 0] = most.view(torch.float32).gather(1, makes.int().argmax(1, keepdim=True))[:, 0]
    blocks[:, 1], blocks[:, 2] = x, -x
    blocks = blocks[makes.any(1)]
    assert len(blocks) > len(x) // 2
    if fused:
        assert interpreted(differing_where_fused, family.folder, name, found, blocks) == []
    else:
        assert unguarded(differing_of, family.folder, name, found, blocks) == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[2] != "pow2"], ids=lambda kind: kind[0])
def test_the_rule_is_that_of_weights(kind):
    found = quantised_result(quantisation(*kind))
    torch.manual_seed(0)
    word, x = found.format or found.kind, torch.randn(8, 256)
    x[1], x[2, :200] = 0.0, x[2, :200] * 1e-38
    pack.CONTRACTS["weights"] = Stored(word, "row", (found.block, 1))
    try:
        given = pack.quantize(x.T.contiguous(), "weights")
    finally:
        del pack.CONTRACTS["weights"]
    elements, scales = by_library(x, found)
    b = given["b"].view(torch.uint8)
    if found.packed > 1:
        # b has two elements along K in a byte, which are rows.
        assert torch.equal(elements, b.T.contiguous())
    else:
        assert torch.equal(elements.view(torch.uint8), b.T)
    assert torch.equal(scales.view(torch.uint8), given["b_scale"].T.contiguous().view(torch.uint8))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind)))
def test_the_comparison_takes_what_the_rule_finds_and_nothing_else(kind):
    found = quantised_result(quantisation(*kind))
    torch.manual_seed(1)
    x = torch.randn(4, 256) * torch.tensor([[1.0], [1e-3], [100.0], [0.0]])
    elements, scales = by_library(x, found)
    value = Bounded(x.double(), x.double().abs() * 1e-7)
    assert compare_scales(scales, value, found).fault is None
    assert compare_elements(elements, scales, value, found).fault is None
    # Scales of the neighbours, and elements that are one step away.
    shifted = scales.view(torch.uint8) + 1 if scales.element_size() == 1 else scales.view(torch.int32) + 64
    assert compare_scales(shifted.view(scales.dtype), value, found).fault is not None
    changed = elements.view(torch.uint8) ^ 2
    assert compare_elements(changed.view(elements.dtype), scales, value, found).fault is not None


def test_a_block_with_nan_has_a_scale_of_nan_and_one_of_zeros_a_scale_above_zero():
    for kind in KINDS:
        found = quantised_result(quantisation(*kind))
        x = torch.zeros(2, 256)
        x[0, 3] = torch.nan
        _, scales = by_library(x, found)
        value = Bounded(x.double(), torch.zeros(2, 256, dtype=torch.float64))
        assert scales[0, 0].float().isnan() and (scales[1].float() > 0).all()
        assert compare_scales(scales, value, found).fault is None
        assert compare_scales(scales.flip(0), value, found).fault is not None


def test_a_compiled_kernel_divides_for_scales_and_not_for_elements():
    name = "gemm_bf16_rcr_quantize_fp8e4m3__persistent_descriptor_auto_grouped"
    kernel = read(shipped.folder("quantised_blocks")).by_name[name]
    launch = next(each for each in launches(kernel, "sm90") if "aligned" in each.name)
    wanted = specialise(load_kernel(shipped.folder("quantised_blocks") / f"{name}.py"), kernel, launch, "sm90")[0]
    source = ASTSource(wanted.function, wanted.signature, wanted.constants, wanted.known)
    text = triton.compile(source, target=gpu_target("sm90"), options=wanted.options).asm["ptx"]
    elements_of_a_thread = launch.tile.m * launch.tile.n // (32 * launch.tile.warps)
    assert text.count("div.rn.f32") + text.count("div.full.f32") < elements_of_a_thread / 2
    assert text.count("fma.rn.f32") >= 2 * elements_of_a_thread
