"""Proof that every load and store of a rendered kernel stays inside its operand, for all sizes, strides and programs.

    source                the file as a syntax tree: kernels, CONFIGS, functions, every call that accesses memory
    call_reader           the value of CALL, which says what a call launches: its functions return symbols
    runtime_theorems      what `generator.runtime` ensures of every launch of such a table; `extent_terms` has the terms
    runtime_copy          that the family's `_runtime` is the runtime that these theorems are about
    launch_facts          the arguments of a launch with each configuration, its grid, and what holds
    patterns              comparison of syntax trees with Python patterns that have holes, to recognise statements
    evaluate              symbolic execution of the kernel, per configuration: address, mask and path of each access
    induction             the names of a loop, for any of its iterations
    expressions           the values of expressions; `triton_semantics` defines Triton's functions
    choices               values that depend on a condition; `sites` are accesses, `symbolic_values` values of names
    batches               the matrix of a batch that a program computes
    order_proof           the lemma on the order of tiles: each is in the grid, and exactly one program computes it
    folded                the triangle of a symmetric result, whose tiles programs compute
    die_order             programs renumbered for the dies of a GPU
    curve_lemma           proof by induction for a function from a number to a tile; `concrete_run` evaluates it
    sharing               stream-K's programs that share a tile: sums have disjoint places, one stores the result
    stored_once           stores that write every element, where a second kernel reads what the first has stored
    stored_mirrored       the same of a symmetric result, and of its mirror image
    faults                an index outside its dimension, another operand's stride, an integer overflow
    verdicts              asks the solver (`solve`) about each fault, as conditions on integers (`terms`, `rewriting`)

An address is decomposed into one index for each stride of its operand, and each index must be inside its dimension: an
index out of range that hits padding is a fault, too. A counterexample of the solver is evaluated in plain arithmetic
before it counts as a refutation. What is not understood is not proved, and the message says why.

What holds when a kernel is launched follows from the file's CALL and from the theorems on the runtime: shapes and unit
strides, the limit of sizes, that no program runs for an empty result, the sizes that each configuration supports, when
INDEX has 64 bits, the grid, the memory that is allocated, and the value of each parameter.

Assumed are: Triton's definition of its functions and of integer division; lanes that are masked off, or outside a
block's checked dimensions, access nothing; the hardware skips elements outside a descriptor's shape (such an access is
marked `hardware`); of two kernels the second starts when the first has ended; a program that reads a counter sees
everything stored before the counter was incremented; strides are not negative, and an operand's elements are where its
strides say; a result, with all matrices of a batch, has fewer than 2**31 tiles; a device runs at most 2**30 programs.
"""

from generator.bounds.file_proof import Access, FileProof, prove
from generator.bounds.order_proof import OrderVerdict
from generator.bounds.source import NotUnderstood
from generator.bounds.verdicts import NEVER_REACHED

__all__ = ["NEVER_REACHED", "Access", "FileProof", "NotUnderstood", "OrderVerdict", "prove"]
