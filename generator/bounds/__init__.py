"""Proof that every load and store of a rendered kernel stays inside its operand, for all sizes, strides and programs.

    source      the file as a syntax tree: kernel, CONFIGS, functions, every call that touches memory
                (patterns: trees compared with Python that has holes, by which helpers and statements are known)
    gemm        what the launcher has made sure of before it launches, statement by statement (helpers, by its helpers)
    launcher    what it passes to the kernel with a row of CONFIGS (rows: which may reach it)
    evaluate    the kernel walked over symbols, once for each choice of tiles: each access's address, mask and path
                (expressions and language: what an expression and a function of Triton mean; choices: one of two
                values by a condition; sites: the accesses)
    batches     of a batch, which matrix a program is for: then its number is its place among the tiles of that matrix
    order       the lemma on the order of tiles: in the grid, and one program a tile; then a program's place is a symbol
                (where programs walk tiles, `range(program_id, tiles, num_programs)` gives each tile to one of them;
                dealing: programs renumbered for the dies of a GPU; curve: a function that finds a tile by its number,
                by induction over the parts that it cuts the grid into; plain: that function on plain numbers)
    sharing     programs that share a tile: that each hands in its sum at a place of its own, and one stores the result
    faults      of an access: an index outside its dimension, a stride of another operand, a number beyond its width
    judge       each fault put to the solver (solve) as conditions on whole numbers (terms, rewriting)

An address is taken apart into one index for each stride of its operand, and each index must lie in its dimension: no
padding excuses a wrong one. What the solver finds is worked out again in plain numbers before it counts as refuted;
what is not understood is not proved, and says why.

Taken from the launcher's source, and not proved where it reads otherwise: the operands' shapes and unit strides
(`_check`), the limit of M, N and K (`_sizes`), that no program runs for an empty result, which rows take which sizes
(`_fits`), when INDEX has 64 bits, the grid, what each parameter is.

Taken for granted: Triton's meaning of its own functions and of integer division; that lanes masked off, or outside a
block's checked dimensions, touch nothing; that a descriptor's hardware leaves out what is outside its shape (such an
access is told apart, as `hardware`); that who finds a count sees what was stored before it was raised; that strides are
not negative, an operand's elements lie where its strides say, a result has fewer than 2**31 tiles, all matrices of a
batch together, and a device holds at most 2**30 programs.
"""

from generator.bounds.judge import NEVER_REACHED
from generator.bounds.order import Order
from generator.bounds.proof import Access, Proof, prove
from generator.bounds.source import NotUnderstood

__all__ = ["NEVER_REACHED", "Access", "NotUnderstood", "Order", "Proof", "prove"]
