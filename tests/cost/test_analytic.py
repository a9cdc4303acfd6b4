"""The analytic cost model: one source, for the choice in a kernel's file and for the ranking of the tuner."""

import textwrap
from dataclasses import replace

import pytest

from generator.cost import analytic
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.language.spec import read
from generator.plan import devices
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.support import ROOT, variant

H200 = devices.DEVICES["nvidia_h200"]
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "SPLIT": 4, "num_warps": 4, "num_stages": 3}


def seconds(v, sizes, **config):
    """The prediction for a kernel with `TILE`, changed by `config`."""
    return analytic.seconds(v, TILE | config, sizes, H200)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gemm16", "gemm_fp16_rcr_none__tiled_descriptor_auto_grouped"),
        ("gemm16", "gemm_fp16_rcr_none__tiled_pointer_auto_grouped_productexchanged"),
        ("gemm16", "gemm_fp16_rcr_none__tiled2n_descriptor_auto_grouped_storepointer"),
        ("batched", "bmm_fp16_rcr_none__persistent_descriptor_auto_grouped"),
        ("fused", "gemm_bf16_rcr_swiglu__splitk_descriptor_auto_grouped_storepointer"),
        ("stream_k", "gemm_fp16_rcr_none__streamk_pointer_auto_grouped"),
    ],
)
def test_a_kernels_file_computes_the_cost_by_the_lines_of_the_model(family, name):
    kernels = expand(read(ROOT / "specs" / f"{family}.yaml")).kernels
    (v,) = [kernel.variant for kernel in kernels if kernel.name == name]
    body = textwrap.indent("\n".join(analytic.cost_body(v)), "    ")
    text = (shipped.folder(family) / f"{name}.py").read_text()
    written = text.partition("\ndef cost(row, ")[2].partition('"""\n')[2]
    assert written.startswith(f"{body}\n\n\nCALL = Call(") and "choose=cheapest(cost)" in written


#: Products of a tile for each index along K, with the latency that is not hidden: of two programs on a multiprocessor,
#: and of one program whose tile has two columns of B for each of C.
TWO = 128 * 128 + 400_000 / (2 * 64 * 3)
GATED = 128 * 256 + 400_000 / (64 * 3)
#: The same of one program: its 65,536 bytes in flight are too few, so that the loads of its tile take longer.
ONE = 256 * 47 * 154_000 / 65_536
#: One access to the partial sums of a tile.
SUMS = 128 * 128 * 512


@pytest.mark.parametrize(
    ("v", "sizes", "products"),
    [
        pytest.param(variant(), (4096, 4096, 4096), 8 * TWO * 4096, id="1024 tiles in 8 turns"),
        pytest.param(variant(schedule="persistent"), (4096, 4096, 4096), 8 * TWO * 4096, id="tiles are walked"),
        pytest.param(variant(batch="strided"), (4, 2048, 2048, 4096), 8 * TWO * 4096, id="1024 tiles of a batch"),
        pytest.param(variant(epilogue=chain_of(("swiglu",))), (4096, 4096, 4096), 8 * GATED * 4096, id="gated"),
        pytest.param(variant(), (4096, 4096, 16), 8 * TWO * 64, id="a K shorter than a step"),
        # All 132 multiprocessors read the partial sums of 64 programs, in a kernel whose launch takes 2e-6 seconds.
        pytest.param(
            variant(schedule="split_k"),
            (512, 512, 8192),
            ONE * 2048 + (1 + 64 / 132) * SUMS + 2e-6 * 2.6e12,
            id="16 tiles by 4 programs, twice",
        ),
        pytest.param(variant(schedule="split_k_atomic"), (512, 512, 8192), ONE * 2048 + SUMS, id="an atomic add"),
        # 144 tiles, of 64 steps each, are 70 steps for each of 132 programs.
        pytest.param(variant(schedule="stream_k"), (1536, 1536, 4096), TWO * 70 * 64 + 4 * SUMS, id="70 steps each"),
    ],
)
def test_the_predicted_seconds_are_products_at_the_rate_of_the_device(v, sizes, products):
    assert seconds(v, sizes) == pytest.approx(products / 2.6e12)


def test_the_rate_of_products_is_that_of_the_type():
    """fp8 is twice as fast as fp16 with as many bytes in a stage; fp32 without the matrix unit is slow.

    It is slower where B is column-major: it reads the columns of a tile from the same banks of shared memory.
    """
    sizes = 4096, 4096, 4096
    fp16, fp8, tf32, fp32 = (variant(dtype=Dtype.of(name)) for name in ("fp16", "fp8e4m3", "tf32", "fp32"))
    assert 1.9 < seconds(fp16, sizes) / seconds(fp8, sizes, BLOCK_K=128) < 2.1
    by_row = replace(fp32, layout=Layout.of("rrr"))
    assert seconds(by_row, sizes, BLOCK_K=32) / seconds(tf32, sizes, BLOCK_K=32) == pytest.approx(0.5 / 0.07, rel=0.2)
    assert 1.5 < seconds(fp32, sizes, BLOCK_K=32) / seconds(by_row, sizes, BLOCK_K=32) <= 1.6


def test_the_tuner_counts_the_loads_of_kernels_whose_files_do_not():
    """Else it would prefer them to kernels by descriptors, which have the same loads."""
    pointer, descriptor, persistent = kinds = (
        variant(),
        variant(load="descriptor"),
        variant(load="descriptor", schedule="persistent"),
    )
    assert ["return max(products, loads)" in analytic.cost_body(v) for v in kinds] == [False, True, False]
    assert seconds(pointer, (128, 128, 4096)) == seconds(descriptor, (128, 128, 4096)) == ONE * 4096 / 2.6e12
    assert seconds(persistent, (128, 128, 4096)) == seconds(descriptor, (128, 128, 4096))


def test_one_program_a_multiprocessor_needs_many_loads_in_flight():
    """fp16 by descriptors, 128x3584x3584, tiles of 64x64x128: 13.2 µs with 4 stages on an H200, 10.6 with 7."""
    v, tile = variant(load="descriptor", store="pointer"), {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}
    slow, fast = (seconds(v, (128, 3584, 3584), **tile, num_stages=stages) for stages in (4, 7))
    assert 1.15 < slow / fast < 1.8


def test_a_wide_result_needs_tiles_that_load_less():
    """64x128 multiplies about as fast as 128x128 there, and loads half as much again, which made it slower."""
    v, sizes = variant(dtype=Dtype.of("fp8e4m3"), load="descriptor"), (8192, 8192, 2048)
    large, small = (seconds(v, sizes, BLOCK_M=m, BLOCK_K=128, num_stages=stages) for m, stages in ((128, 6), (64, 9)))
    assert large < small


def test_few_tiles_with_a_long_k_are_faster_if_programs_share_k():
    """fp16 by descriptors, 4x2048x8192: 12.3 µs by split-K on an H200, 14.3 µs by exchanged products."""
    sizes = 4, 2048, 8192
    split = variant(load="descriptor", schedule="split_k", store="pointer")
    exchanged = variant(load="descriptor", product="exchanged", store="pointer")
    divided = seconds(split, sizes, BLOCK_M=16, BLOCK_N=64, BLOCK_K=128, num_stages=4)
    assert 1.05 < seconds(exchanged, sizes, BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, num_stages=5) / divided < 1.5
    assert seconds(split, (4096, 4096, 4096)) > seconds(variant(load="descriptor"), (4096, 4096, 4096))


def test_columns_of_an_exchanged_product_fill_the_matrix_unit():
    """Few rows of C leave most of the matrix unit's 64 rows empty, unless these are columns of C."""
    sizes, tile = (16, 2**20, 4096), {"BLOCK_M": 16, "BLOCK_N": 128, "num_stages": 6}
    assert seconds(variant(), sizes, **tile) > 1.1 * seconds(variant(product="exchanged"), sizes, **tile)
