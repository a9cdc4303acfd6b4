"""Proof that every load and store of a rendered kernel stays inside its operand, for all sizes, strides and programs.

    source                the file as a syntax tree: kernel, CONFIGS, functions, every call that touches memory
    patterns              syntax trees compared with Python that has holes, which is how statements are recognised
    gemm_statements       what the launcher has checked before it launches, statement by statement (`helpers`)
    launcher_facts        what the launcher passes to the kernel with a configuration (`plain_arithmetic`)
    configuration_choice  which configurations may reach the kernel
    evaluate              the kernel run over symbols, once for each choice of tiles: each access's address, mask, path
    expressions           what an expression means; `triton_semantics` what a function of Triton means
    choices               one of two values by a condition; `sites` the accesses; `symbolic_values` what names hold
    batches               which matrix of a batch a program computes
    order_proof           the lemma on the order of tiles: each is in the grid, and exactly one program computes it
    die_order             programs renumbered for the dies of a GPU
    curve_lemma           a function that finds a tile by its number, by induction; `concrete_run` runs it on numbers
    sharing               programs that share a tile: each partial sum has its own place, one program stores the result
    faults                an index outside its dimension, another operand's stride, a number beyond its width
    verdicts              each fault put to the solver (`solve`) as conditions on whole numbers (`terms`, `rewriting`)

An address is decomposed into one index for each stride of its operand, and each index must lie in its dimension: no
padding excuses a wrong one. A counterexample of the solver is evaluated again in plain numbers before it counts as a
refutation; what is not understood is not proved, and the message says why.

Read from the launcher's source, and not proved where it reads otherwise: the operands' shapes and unit strides
(`_check`), the limit of M, N and K (`_sizes`), that no program runs for an empty result, which configurations take
which sizes (`_fits`), when INDEX has 64 bits, the grid, what each parameter is.

Assumed: Triton's meaning of its own functions and of integer division; that lanes that are masked off, or outside a
block's checked dimensions, touch nothing; that a descriptor's hardware leaves out what is outside its shape (such an
access is marked `hardware`); that a program which reads a count sees what was stored before the count was raised; that
strides are not negative, an operand's elements lie where its strides say, a result has fewer than 2**31 tiles, all
matrices of a batch together, and a device holds at most 2**30 programs.
"""

from generator.bounds.file_proof import Access, Proof, prove
from generator.bounds.order_proof import Order
from generator.bounds.source import NotUnderstood
from generator.bounds.verdicts import NEVER_REACHED

__all__ = ["NEVER_REACHED", "Access", "NotUnderstood", "Order", "Proof", "prove"]
