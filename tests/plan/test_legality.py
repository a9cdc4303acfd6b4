"""The legality table: each rule refuses what it names, with its reason; what memory kernels need, and pairs of them."""

import pytest

from generator.language.built_in import chain_of
from generator.language.model import Dtype, Tile
from generator.plan import legality
from generator.plan.shared_memory import BARRIERS
from tests.helpers.support import variant

BIAS = chain_of(("bias",))


def _naive_copies(*chain):
    return {"schedule": "naive", "load": "descriptor", "epilogue": chain_of(chain)}


@pytest.mark.parametrize(
    ("axes", "target", "stages", "needed"),
    [
        # (64 x 32 + 32 x 128) fp16 elements are 12,288 bytes a stage.
        ({}, "sm90", 3, 36864),  # wgmma reads every stage from shared memory
        ({}, "sm100", 4, 49152 + BARRIERS),  # tcgen05 waits at barriers
        ({}, "sm80", 3, 24576),  # one stage is in registers
        ({}, "gfx942", 2, 12288),
        ({}, "sm80", 1, 16384),  # one stage, and then the result of 16,384 bytes
        ({"schedule": "naive"}, "sm80", 3, 16384),  # all of K at once, and then the result
        ({"schedule": "naive"}, "sm90", 3, 16384),
        # While the hardware copies the result out, vectors of 128 elements pass.
        (_naive_copies(), "sm90", 3, 16384 + 512 + BARRIERS),
        # A result of 32 bits may pass through it wherever it goes.
        ({"schedule": "naive", "dtype": Dtype.of("int8")}, "sm90", 3, 32768),
        ({**_naive_copies(), "store": "pointer", "dtype": Dtype.of("int8")}, "sm90", 3, 32768 + BARRIERS),
        # Both halves of B lie beside A; so does the matrix that the product begins with, of 32 bits at the most.
        (_naive_copies("swiglu"), "sm90", 3, 20480 + 512 + BARRIERS),
        (_naive_copies("add"), "sm90", 3, 45056 + 512 + BARRIERS),
        ({"schedule": "elementwise"}, "sm90", 3, 0),
        # A partial sum of 32,768 bytes is put in order there, where the loads leave less.
        ({"schedule": "split_k"}, "sm90", 2, 32768),
        ({"schedule": "split_k"}, "sm90", 3, 36864),
        ({"schedule": "split_k_atomic", "dtype": Dtype.of("tf32")}, "sm90", 3, 73728),
        # The result of 16,384 bytes is copied out while the next tile is loaded.
        ({"schedule": "stream_k", "load": "descriptor"}, "sm90", 3, 36864 + 16384 + BARRIERS),
        ({"schedule": "stream_k", "load": "descriptor", "store": "pointer"}, "sm90", 3, 36864 + BARRIERS),
        # The result of 16,384 bytes of one tile passes through it while the next tile is loaded, in whole at the most.
        ({"schedule": "persistent"}, "sm90", 3, 36864 + 16384),
        ({"schedule": "persistent", "load": "descriptor"}, "sm90", 3, 36864 + 16384 + 512 + BARRIERS),
        ({"schedule": "persistent", "load": "descriptor", "store": "pointer"}, "sm90", 3, 36864 + 16384 + BARRIERS),
        ({"schedule": "persistent"}, "sm80", 3, 24576 + 16384),
        ({"schedule": "persistent", "dtype": Dtype.of("int8")}, "sm90", 3, 18432 + 32768),
        ({"schedule": "persistent"}, "sm80", 1, 16384),  # nothing is in flight
        # Plain arithmetic has two stages in flight; beside them lies B, or a result on its way out that is larger.
        ({"load": "descriptor", "dtype": Dtype.of("fp32")}, "sm90", 3, 49152 + 32768 + BARRIERS),
        ({"load": "descriptor", "dtype": Dtype.of("fp32"), "store": "pointer"}, "sm90", 3, 49152 + 16384 + BARRIERS),
        # An exchange is of rows and columns, not of bytes.
        ({"product": "exchanged"}, "sm90", 3, 36864),
        # Other widths of the operands.
        ({"dtype": Dtype.of("int8")}, "sm90", 3, 32768),  # the result, of 32 bits
        ({"dtype": Dtype.of("tf32")}, "sm90", 3, 73728),
    ],
)
def test_shared_memory(axes, target, stages, needed):
    tile = Tile(64, 128, 32, warps=4, stages=stages)
    assert legality.shared_memory(variant(**axes), tile, target) == needed


def test_the_kernel_that_sums_parts_of_k_reads_no_matrix_of_the_epilogue():
    """The one that adds them does, and has no operand tiles; with one stage the largest of both is a partial sum."""
    tile, chain = Tile(64, 128, 32, warps=4, stages=1), chain_of(("add",))
    whole, split = (variant(schedule=word, epilogue=chain) for word in ("tiled", "split_k"))
    assert legality.shared_memory(split, tile, "sm90") == 32768
    assert legality.shared_memory(whole, tile, "sm90") == 32768 + 64 * 32 * 2 + 32 * 128 * 2


def test_the_kernel_that_adds_partial_sums_has_four_warps():
    """They reduce rows together, where the tile's own kernel may have fewer."""
    chain = chain_of(("row_sum",))
    one, four = (Tile(16, 512, 16, warps=warps, stages=1) for warps in (1, 4))
    sizes = [
        legality.shared_memory(variant(schedule="split_k", epilogue=chain), tile, "gfx942") for tile in (one, four)
    ]
    assert sizes[0] == sizes[1]
