"""Which matrix of a batch a program is for: every matrix is there, and has as many programs as it has tiles.

`program // tiles` and `program % tiles` are a matrix and a place among its tiles, and no two programs have both alike.
What is written otherwise is tried with small numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from generator.bounds.order_proof import Order, fits
from generator.bounds.rewriting import holds, value
from generator.bounds.symbolic_values import Number
from generator.bounds.terms import Condition, Poly, poly, variable
from generator.bounds.triton_semantics import PID

#: Numbers of matrices, and sizes, that are tried.
_MATRICES = (1, 2, 3)
_SIZES = (1, 17, 65, 257)
#: Programs that are tried.
_PROGRAMS = 512


def prove_split(
    matrix: Number, place: Number, matrices: Poly, grid: Sequence[Poly], facts: Iterable[Condition]
) -> Order:
    """What becomes of the claim for a program's `matrix` and `place`.

    A matrix has the product of `grid` tiles, of which there are fewer than 2**31 in all.
    """
    program, tiles, known = variable(PID), prod(grid, start=poly(1)), list(facts)
    if matrix.value != program // tiles or place.value != program % tiles:
        told = _searched(matrix.value, place.value, matrices, tiles, known)
        if told is not None:
            return Order("refuted", told)
        return Order("not proved", f"the matrix {matrix.value} and the place {place.value} are not understood")
    for part in sorted({part.value for number in (matrix, place) for part in number.parts} - {tiles}, key=str):
        if not fits(part, known):
            return Order("not proved", f"{part} is not known to fit 32 bits")
    return Order("proved", "")


def _searched(matrix: Poly, place: Poly, matrices: Poly, tiles: Poly, facts: Sequence[Condition]) -> str | None:
    """Sizes and programs that break the claim, if some small ones do."""
    names = sorted((matrix.variables | place.variables | matrices.variables | tiles.variables) - {PID})
    choices = [_MATRICES if name == "B" else _SIZES for name in names]
    for numbers in product(*choices):
        at = dict(zip(names, numbers))
        if not all(holds(fact, at) for fact in facts if fact.variables <= set(at)):
            continue
        size = (value(matrices, at), value(tiles, at))
        told = ", ".join(f"{name} = {number}" for name, number in at.items())
        seen: dict[tuple[int, ...], int] = {}
        for program in range(min(prod(size), _PROGRAMS)):
            try:
                found = tuple(value(index, {**at, PID: program}) for index in (matrix, place))
            except ZeroDivisionError:
                return f"of {told}, program {program} divides by zero"
            if not all(0 <= index < extent for index, extent in zip(found, size)):
                return f"of {told}, program {program} computes tile {found[1]} of matrix {found[0]}"
            if found in seen:
                return (
                    f"of {told}, programs {seen[found]} and {program} both compute tile {found[1]} of matrix {found[0]}"
                )
            seen[found] = program
    return None
