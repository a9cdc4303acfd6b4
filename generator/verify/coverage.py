"""Which of the existing combinations run: all of them, a covering array over their axes, or a hash-sampled share.

The library covertable makes the covering array. This module states its parameters and the constraint that its rows are
existing combinations, and counts the coverage of the result independently of the library.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

#: The strength of each coverage: how many axes its tuples of values span.
_STRENGTH = {"pairs": 2, "triples": 3, "kernels": 2}

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%")

#: Up to this product of the number of tuples to cover and the fewest rows possible, covertable's greedy criterion takes
#: seconds.
_QUICK = 5_000_000

#: Hashes spread the points evenly over this many positions; a share takes the lowest positions.
_POSITIONS = 1 << 64

_Row = tuple[str, ...]


@dataclass(frozen=True)
class Coverage:
    """The coverage: `all`, `pairs`, `triples`, a share of the combinations such as `10%`, or `kernels`.

    `kernels` covers all pairs of the axes of kernels alone, and the compile level runs one launch of each kernel. Any
    other word raises ValueError with the legal ones.
    """

    word: str

    def __post_init__(self) -> None:
        share = self.share
        if self.word not in ("all", *_STRENGTH) and (share is None or not 0 < share <= 1):
            legal = "all, pairs, triples, kernels, or a share above 0% and up to 100%, such as 10%"
            raise ValueError(f"expected {legal}, got {self.word!r}")

    @property
    def of_launches(self) -> bool:
        """Whether the compile level chooses among launches, with configuration and class as further axes."""
        return self.word != "kernels"

    @property
    def share(self) -> Fraction | None:
        """The share of the combinations as a fraction, or None if the word is not a share."""
        match = _SHARE.fullmatch(self.word)
        return Fraction(match[1]) / 100 if match else None


@dataclass(frozen=True)
class CoveringArray:
    """The chosen combinations, and the coverage counted in them."""

    coverage: Coverage
    #: Indices of the chosen points, ascending.
    indices: tuple[int, ...]
    total: int
    axes: int
    #: How many pairs, or triples, of axis values exist in some combination, and how many the chosen ones cover.
    existing: Mapping[str, int]
    covered: Mapping[str, int]

    def text(self) -> str:
        """One line: how many combinations of how many were chosen, and their coverage."""
        chosen = _of(len(self.indices), self.total)
        return f"coverage {self.coverage.word}: {chosen} combinations, {self.counts} of {self.axes} axes"

    @property
    def counts(self) -> str:
        """`all 4,812 pairs`, or `3,600 of 4,812 pairs`."""
        return ", ".join(f"{_of(self.covered[noun], many)} {noun}" for noun, many in self.existing.items())


def choose(
    points: Sequence[Mapping[str, str]], coverage: Coverage, costs: Sequence[float] | None = None
) -> CoveringArray:
    """Choose among `points`, each of which maps every axis to its value, as `coverage` says.

    The choice does not depend on the order of the points and axes. With pairs and kernels (triples), every two (three)
    values that occur together in some point occur together in a chosen one. `costs` has one number per point; cheap
    points are preferred where they cover as much. Raises ValueError if two points differ in their axes.
    """
    axes = sorted(points[0]) if points else []
    for index, point in enumerate(points):
        if point.keys() != points[0].keys():
            raise ValueError(f"point {index} has the axes {sorted(point)}, the first one has {axes}")
    rows = [tuple(point[axis] for axis in axes) for point in points]
    nouns = ("pairs", "triples") if coverage.word == "triples" else ("pairs",)
    existing = {noun: _sizes(rows, _STRENGTH[noun]) for noun in nouns}
    share = coverage.share
    if share is not None:
        limit = math.ceil(share * _POSITIONS)
        indices = [index for index, row in enumerate(rows) if _position(axes, row) < limit]
    elif coverage.word == "all":
        indices = list(range(len(rows)))
    else:
        sizes = existing[nouns[-1]]
        # Each tuple of values of the same axes needs a row of its own: the largest count is a lower bound on the rows.
        thorough = sum(sizes) * max(sizes, default=0) <= _QUICK
        indices = _array(rows, _STRENGTH[coverage.word], thorough, costs)
    chosen = [rows[index] for index in indices]
    every = {noun: sum(sizes) for noun, sizes in existing.items()}
    covered = {noun: sum(_sizes(chosen, _STRENGTH[noun])) for noun in nouns}
    array = CoveringArray(coverage, tuple(indices), len(rows), len(axes), every, covered)
    if coverage.word in _STRENGTH and covered != every:
        raise RuntimeError(f"covertable covers {array.counts}")
    return array


def _of(part: int, whole: int) -> str:
    return f"all {whole:,}" if part == whole else f"{part:,} of {whole:,}"


def _position(axes: Sequence[str], row: _Row) -> int:
    """The position of a point, below `_POSITIONS`: a hash of its content, so that other points do not change it."""
    content = json.dumps([axes, row])
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big")


def _sizes(rows: Sequence[_Row], strength: int) -> list[int]:
    """For each `strength` axes, the number of different tuples of their values."""
    columns = list(zip(*rows))
    return [len(set(zip(*together))) for together in combinations(columns, strength)]


def _array(rows: Sequence[_Row], strength: int, thorough: bool, costs: Sequence[float] | None) -> list[int]:
    """Indices of rows that cover every tuple of `strength` values that occurs in some row."""
    words = [sorted(set(column)) for column in zip(*rows)]
    # Any row covers an axis with one value. Axes with the most values come first, which gives the fewest rows.
    order = sorted((axis for axis, own in enumerate(words) if len(own) > 1), key=lambda axis: -len(words[axis]))
    if not order:
        return [0] if rows else []
    index_of: dict[_Row, int] = {}
    for index, row in enumerate(rows):
        index_of.setdefault(tuple(row[axis] for axis in order), index)
    strength = min(strength, len(order))
    own = _covering(list(index_of), [words[axis] for axis in order], strength, thorough)
    if costs is not None:
        cost = {row: costs[index] for row, index in index_of.items()}
        own = _cheaper(cost, own, strength)
    return sorted(index_of[row] for row in own)


def _cheaper(cost: Mapping[_Row, float], chosen: Sequence[_Row], strength: int) -> list[_Row]:
    """`chosen` with each row, most expensive first, replaced by the cheapest row that keeps the coverage complete."""
    ranked = sorted(cost, key=lambda row: (cost[row], row))
    holders = [_holders(column) for column in zip(*ranked)]
    covering = Counter(words for row in chosen for words in combinations(enumerate(row), strength))
    cheaper = []
    for row in sorted(chosen, key=lambda row: (-cost[row], row)):
        together = list(combinations(enumerate(row), strength))
        alone = {word for words in together if covering[words] == 1 for word in words}
        covering.subtract(together)
        if alone:
            able = -1
            for axis, word in alone:
                able &= holders[axis][word]
            # The lowest bit set is the cheapest row.
            taken = ranked[(able & -able).bit_length() - 1]
            covering.update(combinations(enumerate(taken), strength))
            cheaper.append(taken)
    return cheaper


def _covering(rows: Sequence[_Row], words: list[list[str]], strength: int, thorough: bool) -> list[_Row]:
    """A covering array made of some of `rows` by covertable."""
    # Imported here, since only pairs and triples need the library.
    from covertable import criteria, make

    holders = [_holders(column) for column in zip(*rows)]

    def exists(partial: Mapping[int, str]) -> bool | None:
        """False if no row has all these values; None ("undecided") makes the library call again with more values."""
        left = -1
        for axis, word in partial.items():
            left &= holders[axis][word]
            if not left:
                return False
        return None

    array: list[list[str]] = make(
        words,
        strength=strength,
        # Greedy finds up to 10 % fewer rows in three times the time.
        criterion=criteria.greedy if thorough else criteria.simple,
        # With no required axis, the constraint is evaluated from the first value of a row on, which avoids dead ends.
        constraints=[{"operator": "fn", "requires": [], "evaluate": exists}],
    )
    return [tuple(row) for row in array]


def _holders(column: Sequence[str]) -> dict[str, int]:
    """For each value, the rows that have it, as the bits of an integer: `&` finds the rows with several values."""
    size = math.ceil(len(column) / 8)
    bits = {word: bytearray(size) for word in dict.fromkeys(column)}
    for index, word in enumerate(column):
        bits[word][index >> 3] |= 1 << (index & 7)
    return {word: int.from_bytes(held, "little") for word, held in bits.items()}
