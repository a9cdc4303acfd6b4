"""What the plan knows of a kernel that decodes B for the one behind it."""

import pytest

from generator.cost import analytic
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout, Tile
from generator.plan import legality
from generator.plan.default_configurations import defaults
from generator.plan.devices import DEVICES
from tests.helpers.support import variant

TILE = Tile(128, 256, 64, warps=8, stages=3)
FP32 = Dtype.of("fp32")


def stored(word="int4", block=(128, 1), **axes):
    dtype = Dtype("bf16", word, "fp32", "bf16", None).scaled_by({"b": block})
    return variant(schedule="decoded", **({"dtype": dtype} | axes))


def test_what_is_multiplied_is_dense():
    for letters, dense in (("rcr", "rcr"), ("rrr", "rrr"), ("rsr", "rcr")):
        v = stored(layout=Layout.of(letters)).multiplied
        assert v == variant(dtype=Dtype.of("bf16"), layout=Layout.of(dense), schedule="persistent") and v.dtype.plain
    for letters in ("rcr", "csr"):
        # The scalar units read rows of B.
        v = stored(dtype=FP32, layout=Layout.of(letters)).multiplied
        assert v == variant(dtype=FP32, layout=Layout.of(f"{letters[0]}rr"), schedule="persistent")
    whole = variant(schedule="split_k")
    assert whole.multiplied is whole


def test_configurations_are_those_of_large_dense_tiles():
    assert TILE in defaults(stored()) and defaults(stored(block=(32, 1))) == defaults(stored())
    assert all(legality.why_no_row_on(stored(), tile, "sm90") is None for tile in defaults(stored()))
    assert legality.shared_memory(stored(), TILE, "sm90") == legality.shared_memory(stored().multiplied, TILE, "sm90")
    # The kernel that decodes needs memory, too.
    assert legality.shared_memory(stored(), Tile(16, 16, 16, warps=1, stages=1), "sm90") == 32768


def seconds(v, m, tile=TILE):
    row = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "num_stages": tile.stages}
    return analytic.seconds(v, row, (m, 8192, 8192), DEVICES["nvidia_h200"])


def test_its_cost_is_that_of_the_dense_product_and_of_the_bytes_of_both_bs():
    v = stored()
    more = seconds(v, 4096) - seconds(v.multiplied, 4096)
    assert more == pytest.approx(8192 * 8192 * 2.5 / 3.4e12 + 2e-6, rel=0.01)
    assert "K * 2 * N * " in analytic.comparable_body(stored(epilogue=chain_of(("swiglu",))))[-1]
    assert analytic.cost_body(v) == analytic.cost_body(v.multiplied)


def test_it_pays_for_many_rows():
    """On an H200 decoding was faster from about 1024 rows on, and a row-major copy of an fp32 B from about 100."""
    fused, tile = variant(dtype=stored().dtype, product="exchanged"), Tile(128, 64, 128, warps=4)
    assert seconds(stored(), 4096) < seconds(fused, 4096, tile)
    assert seconds(stored(), 64) > seconds(fused, 64, tile)
    tile, as_it_lies = Tile(64, 64, 16, warps=2), variant(dtype=FP32)
    assert seconds(stored(dtype=FP32), 1024, tile) < seconds(as_it_lies, 1024, tile)
    assert seconds(stored(dtype=FP32), 16, tile) > seconds(as_it_lies, 16, tile)
