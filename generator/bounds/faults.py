"""The faults of an access: each is a condition on numbers that must be impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from generator.bounds.order_proof import outside_32_bits
from generator.bounds.rewriting import value
from generator.bounds.runtime_theorems import LaunchedTensor
from generator.bounds.sites import Site
from generator.bounds.symbolic_values import IntermediateResult, lanes
from generator.bounds.terms import Condition, Poly, Variable, at_most, below, either, equal, negation, poly

#: The names of a tensor's indices, by its number of dimensions.
_DIMENSIONS = {1: ("element",), 2: ("row", "column"), 3: ("matrix", "row", "column")}

Numbers = Mapping[str, int]


class NotLinear(Exception):
    """An address that is not a sum of indices times strides."""


@dataclass(frozen=True)
class FaultCondition:
    """A condition that must be impossible for an access."""

    condition: Condition
    #: The opposite claim in words, for messages without a counterexample.
    claim: str
    #: The message for a counterexample; None if numbers would disprove the claim without showing a wrong access.
    message: Callable[[Numbers], str] | None
    #: Conditions that hold where the fault could occur, besides those of the access.
    path: tuple[Condition, ...] = ()
    #: Whether only lanes that are not masked off count.
    masked: bool = True


def of_address(site: Site, operand: LaunchedTensor, strides: Iterable[str]) -> Iterator[FaultCondition]:
    """An index outside its dimension, or a distance that is not a multiple of the operand's strides."""
    if site.demand.variables:
        yield FaultCondition(
            negation(site.demand), f"{operand.name} is an address", lambda at: f"{operand.name} is a number"
        )
    counted = by_stride(site.offset, strides)
    for word, index, extent in zip(_DIMENSIONS[len(operand.shape)], indices(counted, operand), operand.shape):
        claim = f"{word} {index} is inside {operand.name}"
        yield FaultCondition(_outside(index, extent), claim, _index_message(word, operand.name, index, extent))
    for stride, times in counted.items():
        if stride not in operand.strides and not (stride == "" and operand.unit is not None):
            unit = stride or "1"
            claim = f"{times} times {unit} is a distance in {operand.name}"
            yield FaultCondition(negation(equal(times, 0)), claim, _stray_message(operand.name, times, unit))


def of_widths(site: Site, operand: LaunchedTensor, strides: Iterable[str], indexed: bool) -> Iterator[FaultCondition]:
    """An intermediate result of the address that does not fit the width in which it is computed.

    INDEX has 32 bits only if no operand that decides it (`indexed`) spans more than 2**31 elements: offsets of indices
    in range are then at most 2**31 - 1 elements.
    """
    for part in sorted(site.parts, key=lambda part: (part.line, str(part.value))):
        counted = by_stride(part.value, strides)
        claim = f"{part.value} of line {part.line} fits 32 bits"
        if set(counted) <= {""}:
            # Without strides: every lane must fit, since masks depend on such numbers, too.
            path = (*part.path, *lanes(part.shape))
            yield FaultCondition(outside_32_bits(part.value), claim, _wide_message(part), path, masked=False)
        elif part.index and indexed:
            for index, extent in zip(indices(counted, operand), operand.shape):
                yield FaultCondition(_outside(index, extent), claim, None, part.path)
            for stride in set(counted) - {"", *operand.strides}:
                yield FaultCondition(negation(equal(counted[stride], 0)), claim, None, part.path)
        else:
            for stride, times in counted.items():
                if stride:
                    yield FaultCondition(at_most(2, times), claim, _long_message(stride, times), part.path)
                    yield FaultCondition(negation(equal(times, 0)), claim, None, part.path)


def by_stride(sum: Poly, strides: Iterable[str]) -> dict[str, Poly]:
    """The coefficient of each stride in a sum, and under "" the terms without a stride; raises `NotLinear`."""
    names = frozenset(strides)
    parts: dict[str, Poly] = {}
    for atoms, coefficient in sum.terms:
        own = [atom for atom in atoms if isinstance(atom, Variable) and atom.name in names]
        rest = tuple(atom for atom in atoms if atom not in own)
        if len(own) > 1 or any(atom.variables & names for atom in rest):
            raise NotLinear(f"{sum} is not linear in the strides")
        name = own[0].name if own else ""
        parts[name] = parts.get(name, poly(0)) + Poly(((rest, coefficient),))
    return parts


def indices(counted: Mapping[str, Poly], operand: LaunchedTensor) -> list[Poly]:
    """The index along each dimension: its stride's coefficient, or for stride 1 the terms without a stride."""
    places = [counted.get(stride, poly(0)) for stride in operand.strides]
    if operand.unit is not None:
        places[operand.unit] = places[operand.unit] + counted.get("", poly(0))
    return places


def _outside(index: Poly, extent: Poly) -> Condition:
    return either([below(index, 0), at_most(extent, index)])


def _index_message(word: str, operand: str, index: Poly, extent: Poly) -> Callable[[Numbers], str]:
    def message(at: Numbers) -> str:
        size = value(extent, at)
        several = "matrices" if word == "matrix" else f"{word}s"
        return f"{word} {value(index, at)} of {operand}, which has {size} {word if size == 1 else several}"

    return message


def _stray_message(operand: str, times: Poly, unit: str) -> Callable[[Numbers], str]:
    return lambda at: f"an address of {operand} has {value(times, at)} times {unit}, which is not one of its strides"


def _wide_message(part: IntermediateResult) -> Callable[[Numbers], str]:
    return lambda at: f"{part.value} of line {part.line} is {value(part.value, at)}, which does not fit 32 bits"


def _long_message(stride: str, times: Poly) -> Callable[[Numbers], str]:
    def message(at: Numbers) -> str:
        count = value(times, at)
        length = -(-(2**31) // count)
        return f"with {stride} = {length}, {count} times it is {count * length}, which does not fit 32 bits"

    return message
