"""The formulas of resources.py against what Triton 3.6.0 compiled: measured/resources.csv, a row a compilation.

Rows of the shipped tables on every target, and others drawn at random; those of `paired_m`, `tripled`, the same with a
divided K, and weights in fragment order by Triton 3.7.1. The compile level holds the shipped ones to it on every
version of Triton.
"""

import csv

import pytest

from generator.emit.manifest_reader import read as read_family
from generator.language.built_in import chain_of
from generator.language.dtypes import DTYPE_SHORTHANDS
from generator.language.model import Dtype, Layout, Tile, Variant
from generator.language.targets import TARGETS
from generator.language.vocabulary import PRODUCT
from generator.plan.legality import too_many_registers
from generator.plan.resources import TENSOR_MEMORY, matrix_instruction, tensor_memory, through_registers
from generator.plan.shared_memory import BARRIERS, shared_memory
from tests.helpers import shipped
from tests.helpers.support import ROOT

with (ROOT / "measured" / "resources.csv").open() as file:
    ROWS = list(csv.DictReader(file))


#: The types of shipped kernels, by their words.
SHIPPED = {
    kernel.variant.dtype.word: kernel.variant.dtype
    for folder in shipped.folders()
    for kernel in read_family(folder).kernels
}


def dtype_of(word):
    """The type that a word of a name stands for."""
    if word in DTYPE_SHORTHANDS or word in SHIPPED:
        return SHIPPED[word] if word in SHIPPED else Dtype.of(word)
    a, acc, out, *precision = word.split("_")
    implied = {"fp32": "ieee", "fp8e4m3": "full"}.get(a)
    return Dtype(a, a, acc, out, precision[0] if precision else implied)


def read(row):
    operations = tuple(row["epilogue"].split("+")) if row["epilogue"] != "none" else ()
    layout, dtype = Layout.of(row["layout"]), dtype_of(row["dtype"])
    how = ("auto", "grouped", row["schedule"], row["load"], row["store"], row["product"])
    sizes = {key: int(row[key]) for key in ("m", "n", "k", "warps", "stages")}
    return Variant(layout, dtype, "none", chain_of(operations), *how), Tile(**sizes)


@pytest.mark.parametrize("target", sorted({row["target"] for row in ROWS}))
def test_a_row_is_refused_where_it_does_not_fit_and_only_there(target):
    limit = TARGETS[target].shared_memory
    rows = [row for row in ROWS if row["target"] == target]
    assert len(rows) > 10
    for row in rows:
        variant, tile = read(row)
        if too_many_registers(variant, tile, target) is None:
            assert (shared_memory(variant, tile, target) <= limit) == (int(row["shared"]) <= limit), row


def test_shared_memory_is_a_bound_and_what_is_surely_needed_is_never_less():
    near = 0
    for row in ROWS:
        variant, tile = read(row)
        over = shared_memory(variant, tile, row["target"]) - int(row["shared"])
        assert over >= 0, row
        near += over <= BARRIERS
        assert shared_memory(variant, tile, row["target"], surely=True) <= int(row["shared"]) + BARRIERS, row
    # Of ragged launches more passes through shared memory, of walking ones perhaps the whole result.
    assert near > 0.65 * len(ROWS)


def test_the_instruction_and_tensor_memory_are_exact_but_for_three_products():
    counted = 0
    for row in ROWS:
        variant, tile = read(row)
        assert (matrix_instruction(variant, tile, row["target"]) or "") == row["instruction"], row
        if row["dtype"] != "tf32x3":
            assert tensor_memory(variant, tile, row["target"]) == int(row["tensor_memory"]) <= TENSOR_MEMORY, row
            counted += int(row["tensor_memory"]) > 0
    assert counted > 20


@pytest.mark.parametrize(
    ("words", "held"),
    [
        *(("tf32 ccr direct pointer", "a"), ("tf32 rrr exchanged pointer", "b"), ("tf32 rrr direct pointer", None)),
        *(
            ("tf32 crr direct pointer", None),
            ("tf32 crr exchanged pointer", None),
            ("tf32 rcr exchanged pointer", None),
        ),
        *(("tf32 ccr direct descriptor", None), ("fp16 ccr direct pointer", None)),
    ],
)
def test_the_operand_that_goes_through_registers(words, held):
    row = dict(zip(("dtype", "layout", "product", "load"), words.split()), schedule="tiled")
    assert through_registers(read(ROWS[0] | row)[0]) == held


def test_the_record_covers_every_dtype_load_and_schedule_shipped():
    seen = {(row["dtype"], row["schedule"], row["load"]) for row in ROWS}
    assert {row["product"] for row in ROWS} == set(PRODUCT)
    for folder in shipped.folders():
        for kernel in read_family(folder).kernels:
            v = kernel.variant
            assert v.schedule == "elementwise" or (v.dtype.word, v.schedule, v.load) in seen, kernel.name
