"""The orders of tiles by their meaning, and their kernels held to it, also where programs walk the tiles."""

import ast
from itertools import pairwise

import pytest

from generator.bounds import concrete_run, prove
from generator.language import vocabulary
from generator.language.model import Tile
from generator.language.tile_orders import hilbert
from generator.verify.job_selection import plan
from generator.verify.jobs import JobState
from generator.verify.tile_order import tiles
from tests.helpers import support
from tests.helpers.verify.rendered import rendered

ORDERS = list(vocabulary.SWIZZLE)
SPEC = """\
summary: A product in orders that are not straight.
layout: rcr
dtype: bf16
masking: [auto, none]
swizzle: [hilbert, chiplet]
schedule: [tiled, persistent]
tile:
  - {m: 32, n: 32, k: 32, group: 2, chiplets: 3, warps: 4}
  - {m: 64, n: 32, k: 32, group: 3, chiplets: 1, warps: 4}
"""


def variant(swizzle):
    return support.variant(swizzle=swizzle)


@pytest.mark.parametrize("swizzle", ORDERS)
@pytest.mark.parametrize("group", [1, 3, 8])
def test_every_tile_has_one_number(swizzle, group):
    tile = Tile(16, 16, 16, warps=4, group=group, chiplets=3)
    for rows in range(10):
        for columns in range(10):
            found = list(tiles(variant(swizzle), tile, rows, columns))
            assert sorted(found) == [(m, n) for m in range(rows) for n in range(columns)]


@pytest.mark.parametrize("swizzle", ORDERS)
@pytest.mark.parametrize("tall", [1, 2, 4])
def test_every_tile_of_the_triangle_of_a_symmetric_result_has_one_number(swizzle, tall):
    v = support.variant(result="symmetric", swizzle=swizzle, masking="auto")
    tile = Tile(16, 16 * tall, 16, warps=4, group=3, chiplets=3)
    for blocks in range(10):
        triangle = [(m, n) for m in range(blocks * tall) for n in range(m // tall, blocks)]
        assert sorted(tiles(v, tile, blocks * tall, blocks)) == triangle


def test_the_curve_over_four_by_four_is_the_one_of_hilbert():
    first = [(0, 0), (0, 1), (1, 1), (1, 0)]
    second = [(2, 0), (3, 0), (3, 1), (2, 1)]
    third = [(2, 2), (3, 2), (3, 3), (2, 3)]
    last = [(1, 3), (1, 2), (0, 2), (0, 3)]
    found = list(hilbert(4, 4))
    # It may begin along either side.
    assert found in ([*first, *second, *third, *last], [(n, m) for m, n in [*first, *second, *third, *last]])


def test_the_curve_goes_from_each_tile_to_one_beside_it():
    corners = 0
    for rows in range(1, 25):
        for columns in range(1, 25):
            found = list(hilbert(rows, columns))
            steps = [(abs(a - c), abs(b - d)) for (a, b), (c, d) in pairwise(found)]
            assert set(steps) <= {(0, 1), (1, 0), (1, 1)}
            corners += steps.count((1, 1))
            # An even side that is not the shorter one leaves no tile over.
            assert max(rows, columns) % 2 or (1, 1) not in steps
    assert 0 < corners < 24 * 24


def test_each_die_has_a_run_of_tiles():
    tile = Tile(16, 16, 16, warps=4, group=2, chiplets=3)
    straight = list(tiles(variant("grouped"), tile, 4, 5))
    dealt = list(tiles(variant("chiplet"), tile, 4, 5))
    assert [dealt[die::3] for die in range(3)] == [straight[:7], straight[7:14], straight[14:]]


def test_the_function_beside_the_kernel_finds_the_tiles_of_the_curve(family):
    text = family.file("gemm_bf16_rcr_none__tiled_pointer_auto_hilbert").read_text()
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    for rows in range(1, 11):
        for columns in range(1, 11):
            found = [concrete_run.returned(functions["_hilbert"], (at, rows, columns)) for at in range(rows * columns)]
            assert found == list(hilbert(rows, columns))


def test_every_order_goes_with_steps_that_are_shared_out(tmp_path, pools):
    # A macro of an order shares its names with a template that goes on to use its own.
    text = SPEC.replace("[hilbert, chiplet]", f"[{', '.join(ORDERS)}]").replace("[tiled, persistent]", "stream_k")
    shared = rendered(tmp_path, "shared", text.replace("[auto, none]", "mnk"))
    assert len(shared.kernels) == len(ORDERS)
    for kernel in shared.kernels:
        proof = prove(shared.file(kernel.name))
        assert proof.order.state == "proved", (kernel.name, proof.order)
    results = [pools("interpret").submit(job) for job in plan([shared], ("interpret",)) if "chiplet" in job.name]
    assert [future.result().state for future in results] == [JobState.PASSED]
