"""Which of the combinations that exist are run: all of them, a covering array over their axes, or an even share.

The covering array is the library covertable's. Here stand what it is asked for, the rule that its rows are combinations
that exist, and the count of what was chosen, which takes nothing from the library.
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

#: How many axes go together in what each word covers.
_STRENGTH = {"pairs": 2, "triples": 3, "kernels": 2}

_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")

#: What there is to cover times the fewest rows that can, up to which the library's thorough criterion takes seconds.
_QUICK = 5_000_000

#: How many positions there are, over which the points are spread evenly; a share takes the foremost.
_POSITIONS = 1 << 64

_Row = tuple[str, ...]


@dataclass(frozen=True)
class Coverage:
    """What is to be covered: `all`, `pairs`, `triples`, a share of the combinations such as `10%`, or `kernels`.

    `kernels` is all pairs of the axes of kernels alone, with one launch of each where they are compiled.
    """

    word: str

    def __post_init__(self) -> None:
        share = self.share
        if self.word not in ("all", *_STRENGTH) and (share is None or not 0 < share <= 1):
            legal = "all, pairs, triples, kernels, or a share above 0% and up to 100%, such as 10%"
            raise ValueError(f"expected {legal}, got {self.word!r}")

    @classmethod
    def parse(cls, text: str) -> Coverage:
        """The coverage that `text` names; raises ValueError with what is legal."""
        return cls(text)

    @property
    def of_launches(self) -> bool:
        """Whether it is launches that are chosen where kernels are compiled, by row and class too."""
        return self.word != "kernels"

    @property
    def share(self) -> Fraction | None:
        """The share of the combinations, where the word is one."""
        match = _SHARE.fullmatch(self.word)
        return Fraction(match[1]) / 100 if match else None


@dataclass(frozen=True)
class Count:
    """How many of the pairs, or triples, of axis values that occur in some combination occur in a chosen one."""

    noun: str
    covered: int
    existing: int

    def text(self) -> str:
        """`all 4,812 pairs`, or `3,600 of 4,812 pairs`."""
        return f"{_of(self.covered, self.existing)} {self.noun}"


@dataclass(frozen=True)
class Choice:
    """The combinations that were chosen, and what was counted in them afterwards."""

    coverage: Coverage
    #: Into the points there were, ascending.
    indices: tuple[int, ...]
    total: int
    axes: int
    covered: tuple[Count, ...]

    def text(self) -> str:
        """One line: how many were chosen of how many, and what they cover."""
        counts = ", ".join(count.text() for count in self.covered)
        chosen = _of(len(self.indices), self.total)
        return f"coverage {self.coverage.word}: {chosen} combinations, {counts} of {self.axes} axes"


def choose(points: Sequence[Mapping[str, str]], coverage: Coverage, costs: Sequence[float] | None = None) -> Choice:
    """The points that `coverage` asks for, each of which says its word on every axis.

    The same points give the same choice anywhere, in whatever order they and their axes come. With pairs and kernels
    (triples) every two (three) words that stand together in some point stand together in a chosen one; `costs`, a
    figure a point, has cheap points chosen where they cover as much.
    Raises ValueError where two points differ in their axes.
    """
    axes = sorted(points[0]) if points else []
    for place, point in enumerate(points):
        if point.keys() != points[0].keys():
            raise ValueError(f"point {place} has the axes {sorted(point)}, the first one has {axes}")
    rows = [tuple(point[axis] for axis in axes) for point in points]
    nouns = ("pairs", "triples") if coverage.word == "triples" else ("pairs",)
    existing = {noun: _sizes(rows, _STRENGTH[noun]) for noun in nouns}
    share = coverage.share
    if share is not None:
        limit = math.ceil(share * _POSITIONS)
        indices = [place for place, row in enumerate(rows) if _position(axes, row) < limit]
    elif coverage.word == "all":
        indices = list(range(len(rows)))
    else:
        sizes = existing[nouns[-1]]
        # What some axes have together takes a row each, so the most of these is the fewest rows there can be.
        thorough = sum(sizes) * max(sizes, default=0) <= _QUICK
        indices = _array(rows, _STRENGTH[coverage.word], thorough, costs)
    chosen = [rows[place] for place in indices]
    counts = [Count(noun, sum(_sizes(chosen, _STRENGTH[noun])), sum(existing[noun])) for noun in nouns]
    if coverage.word in _STRENGTH and any(count.covered != count.existing for count in counts):
        raise RuntimeError(f"covertable covers {', '.join(count.text() for count in counts)}")
    return Choice(coverage, tuple(indices), len(rows), len(axes), tuple(counts))


def _of(part: int, whole: int) -> str:
    return f"all {whole:,}" if part == whole else f"{part:,} of {whole:,}"


def _position(axes: Sequence[str], row: _Row) -> int:
    """Where a point stands, below `_POSITIONS`: by what it says alone, so that others come and go without moving it."""
    content = json.dumps([axes, row])
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big")


def _sizes(rows: Sequence[_Row], strength: int) -> list[int]:
    """How many different words each `strength` axes have together."""
    columns = list(zip(*rows))
    return [len(set(zip(*together))) for together in combinations(columns, strength)]


def _array(rows: Sequence[_Row], strength: int, thorough: bool, costs: Sequence[float] | None) -> list[int]:
    """The places of rows in which all words stand together that do so, `strength` at a time, in some row."""
    words = [sorted(set(column)) for column in zip(*rows)]
    # An axis of one word is covered by any row. Those of most words come first: that gives the fewest rows.
    order = sorted((axis for axis, found in enumerate(words) if len(found) > 1), key=lambda axis: -len(words[axis]))
    if not order:
        return [0] if rows else []
    place: dict[_Row, int] = {}
    for index, row in enumerate(rows):
        place.setdefault(tuple(row[axis] for axis in order), index)
    strength = min(strength, len(order))
    found = _covering(list(place), [words[axis] for axis in order], strength, thorough)
    if costs is not None:
        cost = {row: costs[index] for row, index in place.items()}
        found = _cheaper(cost, found, strength)
    return sorted(place[row] for row in found)


def _cheaper(cost: Mapping[_Row, float], chosen: Sequence[_Row], strength: int) -> list[_Row]:
    """`chosen` with each row, dearest first, exchanged for the cheapest that covers what no other chosen row does."""
    ranked = sorted(cost, key=lambda row: (cost[row], row))
    holders = [_holders(column) for column in zip(*ranked)]
    covering = Counter(words for row in chosen for words in combinations(enumerate(row), strength))
    found = []
    for row in sorted(chosen, key=lambda row: (-cost[row], row)):
        together = list(combinations(enumerate(row), strength))
        alone = {word for words in together if covering[words] == 1 for word in words}
        covering.subtract(together)
        if alone:
            able = -1
            for axis, word in alone:
                able &= holders[axis][word]
            # The lowest bit is the cheapest row.
            taken = ranked[(able & -able).bit_length() - 1]
            covering.update(combinations(enumerate(taken), strength))
            found.append(taken)
    return found


def _covering(rows: Sequence[_Row], words: list[list[str]], strength: int, thorough: bool) -> list[_Row]:
    """Some of `rows`, which covertable makes a covering array of."""
    # Only pairs and triples need the library.
    from covertable import criteria, make

    holders = [_holders(column) for column in zip(*rows)]

    def exists(partial: Mapping[int, str]) -> bool | None:
        """False where no row has all these words; None, for "not decided yet", has the library ask again with more."""
        left = -1
        for axis, word in partial.items():
            left &= holders[axis][word]
            if not left:
                return False
        return None

    array: list[list[str]] = make(
        words,
        strength=strength,
        # Greedy finds up to a tenth fewer rows, in three times the time.
        criterion=criteria.greedy if thorough else criteria.simple,
        # Requiring no axis, it is asked from a row's first word on, so that no row begun comes to a dead end.
        constraints=[{"operator": "fn", "requires": [], "evaluate": exists}],
    )
    return [tuple(row) for row in array]


def _holders(column: Sequence[str]) -> dict[str, int]:
    """Of each word, the rows that have it, as the bits of a number: `&` finds the rows that have several words."""
    size = math.ceil(len(column) / 8)
    bits = {word: bytearray(size) for word in dict.fromkeys(column)}
    for place, word in enumerate(column):
        bits[word][place >> 3] |= 1 << (place & 7)
    return {word: int.from_bytes(held, "little") for word, held in bits.items()}
