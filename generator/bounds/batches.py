"""The matrix of a batch that a program computes: every matrix must have exactly one program per tile.

This holds if the matrix is `program // tiles` and the place among its tiles is `program % tiles`. Other expressions are
not proved; small numbers are tried to refute them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from generator.bounds.order_proof import OrderVerdict, fits
from generator.bounds.rewriting import holds, value
from generator.bounds.symbolic_values import LaneIntegers
from generator.bounds.terms import Condition, Poly, poly, variable
from generator.bounds.triton_semantics import PID

#: Numbers of matrices, and sizes, to try.
_MATRICES = (1, 2, 3)
_SIZES = (1, 17, 65, 257)
#: The number of programs to try.
_PROGRAMS = 512


def prove_split(
    matrix: LaneIntegers, slot: LaneIntegers, matrices: Poly, grid: Sequence[Poly], facts: Iterable[Condition]
) -> OrderVerdict:
    """Whether every matrix of a batch has one program per tile, for a program's `matrix` and its `slot` there.

    The number of tiles of a matrix is the product of `grid`; all matrices have fewer than 2**31 tiles.
    """
    program, tiles, known = variable(PID), prod(grid, start=poly(1)), list(facts)
    if matrix.value != program // tiles or slot.value != program % tiles:
        counterexample = _counterexample(matrix.value, slot.value, matrices, tiles, known)
        if counterexample is not None:
            return OrderVerdict("refuted", counterexample)
        return OrderVerdict("not proved", f"the matrix {matrix.value} and the place {slot.value} are not understood")
    for part in sorted({part.value for number in (matrix, slot) for part in number.parts} - {tiles}, key=str):
        if not fits(part, known):
            return OrderVerdict("not proved", f"{part} is not known to fit 32 bits")
    return OrderVerdict("proved", "")


def _counterexample(matrix: Poly, slot: Poly, matrices: Poly, tiles: Poly, facts: Sequence[Condition]) -> str | None:
    """A message with small sizes and programs that break the claim, or None."""
    names = sorted((matrix.variables | slot.variables | matrices.variables | tiles.variables) - {PID})
    choices = [_MATRICES if name in ("B", "G") else _SIZES for name in names]
    for numbers in product(*choices):
        at = dict(zip(names, numbers))
        if not all(holds(fact, at) for fact in facts if fact.variables <= set(at)):
            continue
        size = (value(matrices, at), value(tiles, at))
        sizes = ", ".join(f"{name} = {number}" for name, number in at.items())
        seen: dict[tuple[int, ...], int] = {}
        for program in range(min(prod(size), _PROGRAMS)):
            try:
                indices = tuple(value(index, {**at, PID: program}) for index in (matrix, slot))
            except ZeroDivisionError:
                return f"for {sizes}, program {program} divides by zero"
            if not all(0 <= index < extent for index, extent in zip(indices, size)):
                return f"for {sizes}, program {program} computes tile {indices[1]} of matrix {indices[0]}"
            if indices in seen:
                both = f"programs {seen[indices]} and {program} both compute tile {indices[1]} of matrix {indices[0]}"
                return f"for {sizes}, {both}"
            seen[indices] = program
    return None
