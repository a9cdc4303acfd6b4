"""Fit the rules by which a family's choice takes torch's own product (`backends: [triton, aten]`): `tune --torch`.

A rule is a tree of a few comparisons. It is fitted to results of `bench`, in which a contract's function and torch's
product were timed in the same rounds: so it knows our kernels as they are chosen, not the best of them. Nothing is
random: equal results give equal rules.
"""

from __future__ import annotations

import itertools
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from generator.bench import measurements
from generator.bench.measurements import ComparisonRecord
from generator.bench.stats import rounded
from generator.cost.torch_operators import operator_of, rule_of
from generator.files.updating import put
from generator.language import measured_values as values
from generator.language.errors import CallError
from generator.language.measured_winners import Rule
from generator.language.model import Variant
from generator.language.tuned_file import FEATURES, FORMAT, SCHEMA, contents
from generator.language.vocabulary import DEFAULTS, IMPLEMENTATION_AXES
from generator.runtime.aten_product import faster, features
from generator.tune.samples import pitches
from generator.tune.winners import by_lines

#: A class of contracts that was compared at fewer sizes has no rule.
FEWEST = 20
#: The most ends of a tree, and the fewest sizes at one.
_ENDS, _AT_END = 8, 8
#: Ratios count up to this one, as logarithms: beyond it they say no more about where the limit is.
_MOST = 0.1
#: How much more a loss counts than a gain: a model is not to become slower anywhere.
_LOSS = 1.5
#: The microseconds of the copies that make columns of scales of blocks contiguous, which `bench` does not time.
_TRANSPOSED = 2.0
#: The names of torch's products that a contract can run, as `bench` has them.
_PRODUCTS = ("torch.matmul", "torch.bmm", "torch._int_mm", "torch._scaled_mm")


class ComparedSize(NamedTuple):
    """A size at which both were timed: what rules read of it, and torch's time relative to ours, as a logarithm."""

    pair: tuple[int, int]
    features: Mapping[str, float]
    ratio: float


@dataclass(frozen=True)
class Held:
    """The ratios at sizes that a rule was not fitted to: our own, and with torch's product where the rule says so."""

    ours: tuple[float, ...]
    both: tuple[float, ...]


def write(paths: Sequence[Path], out: Path) -> int:
    """Fit the rules of one device to results of `bench`, print how they do at other sizes, and write the file `out`.

    Raises `CallError` for results of several devices, and for those without a class that was compared often enough.
    """
    results = [measurements.load(path) for path in paths]
    devices = sorted({str(each["device"]) for one in results for each in one.environments.values()})
    if len(devices) != 1:
        raise CallError(f"--torch: results of one device are needed, found {', '.join(devices) or 'none'}")
    by_rule = comparisons(record for each in results for record in each.records)
    rules: dict[str, Rule] = {}
    print("| contracts | sizes | our kernels: mean, 5 % worst, least | with torch's |")
    print("| --- | --- | --- | --- |")
    for name, own in sorted(by_rule.items()):
        if len(own) < FEWEST:
            continue
        held = halves(own)
        worth = math.fsum(held.both) > math.fsum(held.ours)
        cells = [", ".join(_summary(each)) for each in (held.ours, held.both)]
        print(f"| `{name}`{'' if worth else ' (no rule)'} | {len(own)} | {' | '.join(cells)} |")
        if worth:
            rules[name] = fit(own)
    if not rules:
        print(f"tune: --torch: no contracts were compared at {FEWEST} sizes and gain by a rule", file=sys.stderr)
        return 1
    head = {"format": FORMAT, "device": devices[0], "error": 0.0, "regret": 0.0}
    text = by_lines(head, {"winners": [], "rates": [], "aten": rules})
    put(out, values.checked(text, SCHEMA, contents, out))
    return 0


def comparisons(records: Iterable[ComparisonRecord]) -> dict[str, list[ComparedSize]]:
    """The comparisons of contracts that torch computes, by the contracts that share a rule."""
    by_rule: dict[str, list[ComparedSize]] = defaultdict(list)
    for record in records:
        problem, peer = record.problem, record.peer
        words = {axis: DEFAULTS[axis] for axis in IMPLEMENTATION_AXES}
        v = Variant(problem.layout, problem.dtype, problem.shape.products, problem.epilogue, **words)
        own = next((x for x in record.sides if x.role == "contract"), None)
        if own is None or own.gpu is None or peer is None or peer.gpu is None:
            continue
        if peer.name.partition(" by ")[0] not in _PRODUCTS:
            continue
        if operator_of(v) is None or problem.epilogue.steps or problem.symmetric or problem.shape.pad:
            continue
        sizes = problem.shape.sizes
        lies = {"a_column": v.layout.a == "column", "b_row": v.layout.b == "row"}
        aligned = math.gcd(*pitches(v.layout, sizes, v.dtype.stored_a.width))
        compared = features(sizes, aligned, **lies)
        torchs = peer.gpu.median + _TRANSPOSED * peer.name.endswith(" by blocks")
        by_rule[rule_of(v)].append(ComparedSize((sizes[-2], sizes[-1]), compared, math.log(torchs / own.gpu.median)))
    return dict(by_rule)


def halves(given: Sequence[ComparedSize]) -> Held:
    """What rules do that are fitted to one half of the pairs of N and K, at the sizes of the other half; of both."""
    pairs = sorted({x.pair for x in given}, key=lambda pair: (zlib.crc32(repr(pair).encode()), pair))
    ours: list[float] = []
    both: list[float] = []
    for half in (set(pairs[::2]), set(pairs[1::2])):
        rule = fit([x for x in given if x.pair not in half])
        for x in given:
            if x.pair in half:
                ours.append(x.ratio)
                both.append(0.0 if faster(rule, x.features) == "aten" else x.ratio)
    return Held(tuple(ours), tuple(both))


def _summary(logarithms: Sequence[float]) -> list[str]:
    """The geometric mean of ratios, that of which 5 % are below, and the least."""
    ordered = sorted(logarithms)
    return [f"{math.exp(x):.3f}" for x in (math.fsum(ordered) / len(ordered), ordered[len(ordered) // 20], ordered[0])]


def fit(given: Sequence[ComparedSize]) -> Rule:
    """The rule of the least squared errors of the ratios' logarithms; at each end it says what loses less.

    The end whose split explains most is split next.
    """
    tree = _Node(tuple(given))
    ends = [tree]
    while len(ends) < _ENDS:
        best = max(ends, key=lambda end: end.gain)
        if best.gain <= 0:
            break
        ends.remove(best)
        ends += best.split()
    comparisons_made: list[list[object]] = []
    tree.put(comparisons_made)
    return tuple(map(tuple, comparisons_made)) or (("M", 1, *[tree.word] * 2),)  # type: ignore[arg-type,return-value]


class _Node:
    """A part of the comparisons: an end of the tree, or split in two."""

    def __init__(self, given: tuple[ComparedSize, ...]) -> None:
        self.given = given
        self.parts: tuple[_Node, _Node] | None = None
        self.gain, self.name, self.limit = max(map(self._best, FEATURES))

    def _best(self, name: str) -> tuple[float, str, float]:
        """By how much the best limit of a feature lowers the squared errors, and that limit."""
        ordered = sorted(self.given, key=lambda x: x.features[name])
        whole, count, sum_below = math.fsum(map(_limited, ordered)), len(ordered), 0.0
        best = 0.0, name, 0.0
        for below, (one, other) in enumerate(itertools.pairwise(ordered), 1):
            sum_below += _limited(one)
            low, high = one.features[name], other.features[name]
            if low < high and _AT_END <= below <= count - _AT_END:
                gain = sum_below**2 / below + (whole - sum_below) ** 2 / (count - below) - whole**2 / count
                if gain > best[0] + 1e-9:
                    # Sizes and their products span many powers of two.
                    limit = math.sqrt(low * high) if low > 0 else (low + high) / 2
                    best = gain, name, next(x for x in (rounded(limit, 3), rounded(limit, 6), high) if low < x <= high)
        return best

    def split(self) -> tuple[_Node, _Node]:
        """Both parts."""
        below = tuple(x for x in self.given if x.features[self.name] < self.limit)
        self.parts = _Node(below), _Node(tuple(x for x in self.given if x.features[self.name] >= self.limit))
        return self.parts

    @property
    def word(self) -> str:
        """What an end says is faster; of a split part, what both say, or the empty text."""
        if self.parts is not None:
            below, above = (part.word for part in self.parts)
            return below if below == above else ""
        lost = math.fsum(x if x > 0 else _LOSS * x for x in map(_limited, self.given))
        return "triton" if lost >= 0 else "aten"

    def put(self, comparisons_made: list[list[object]]) -> object:
        """Add its comparisons, and return what goes on to it: the number of the first, or the word of an end."""
        if self.word or self.parts is None:
            return self.word
        own: list[object] = [self.name, self.limit]
        at = len(comparisons_made)
        comparisons_made.append(own)
        own += [part.put(comparisons_made) for part in self.parts]
        return at


def _limited(x: ComparedSize) -> float:
    return max(-_MOST, min(_MOST, x.ratio))
