"""Expand a spec into its family: the product of the axes in order, less what is excluded or cannot exist."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from generator.language.errors import Mistake, SpecError
from generator.language.model import Spec, Tile, Variant, word_of
from generator.language.versions import spelled
from generator.language.vocabulary import AXES
from generator.plan import default_configurations, legality
from generator.plan.blame import to_blame
from generator.plan.kernels import Family, Kernel, LeftOut

#: More than this is a slip of the pen: nobody reads, compiles or vendors that many.
LARGEST_FAMILY = 100_000


def expand(spec: Spec) -> Family:
    """The kernels of `spec`, and what was left out with its reason.

    Raises `SpecError` where a listed value survives in no variant, a listed target can run none, a tile row fits none,
    an exclusion matches nothing, or nothing is left.
    """
    size = math.prod(len(spec.axes[axis]) for axis in AXES)
    if size > LARGEST_FAMILY:
        message = f"the product of the axes has {size} variants; at most {LARGEST_FAMILY} are rendered"
        raise SpecError([Mistake(spec.path, 1, 1, message)])
    expansion = _Expansion(spec)
    for values in itertools.product(*(spec.axes[axis] for axis in AXES)):
        expansion.visit(Variant(*values))  # type: ignore[arg-type]
    expansion.check()
    return Family(spec, tuple(expansion.kernels), tuple(expansion.left_out))


def _leaves_something(spec: Spec) -> bool:
    """Whether a variant of `spec`, among as many as a family may have, is a kernel."""
    expansion = _Expansion(spec)
    values = itertools.product(*(spec.axes[axis] for axis in AXES))
    for each in itertools.islice(values, LARGEST_FAMILY):
        expansion.visit(Variant(*each))  # type: ignore[arg-type]
        if expansion.kernels:
            return True
    return False


@dataclass(frozen=True)
class Offer:
    """The rows and targets of variants that differ in masking and order alone, what they lack, and why."""

    tiles: tuple[Tile, ...]
    targets: tuple[str, ...]
    not_offered: tuple[tuple[str, tuple[int, ...]], ...]
    left_out: tuple[tuple[str, str | None], ...]
    refusal: str
    triton: str


class _Expansion:
    """What has been seen of the product so far."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.kernels: list[Kernel] = []
        self.left_out: list[LeftOut] = []
        self.first: dict[tuple[str, ...], Variant] = {}
        self.survivors: set[tuple[str, str]] = set()
        self.reasons: dict[tuple[str, str], str] = {}
        self.used: set[int] = set()
        self.offers: dict[tuple[str, ...], Offer] = {}

    def visit(self, variant: Variant) -> None:
        keys = list(variant.words.items())
        reason = self.reason(variant)
        if reason is None:
            essence = legality.essence(variant)
            if essence in self.first:
                self.left_out.append(LeftOut(variant.name, f"the same kernel as {self.first[essence].name}"))
                self.survivors.update(keys)
                return
            kernel, reason = self.kernel(variant)
            if kernel is not None:
                self.first[essence] = variant
                self.kernels.append(kernel)
                self.survivors.update(keys)
                self.survivors.update(("targets", target) for target in kernel.targets)
                return
        assert reason is not None
        self.left_out.append(LeftOut(variant.name, reason))
        for key in keys:
            self.reasons.setdefault(key, reason)

    def reason(self, variant: Variant) -> str | None:
        """Why the variant does not exist: the spec's own exclusions first."""
        excluded = None
        for index, exclusion in enumerate(self.spec.exclude):
            if exclusion.matches(variant):
                self.used.add(index)
                excluded = excluded or f"excluded: {exclusion.because}"
        return excluded or legality.why_not(variant) or legality.why_not_selected(variant, self.spec.select)

    def kernel(self, variant: Variant) -> tuple[Kernel | None, str | None]:
        """The kernel on the targets and with the rows that it can have, or why it has none."""
        # No rule about a row, a target or a version reads the masking or the order of tiles.
        key = tuple(word for axis, word in variant.words.items() if axis not in ("masking", "swizzle"))
        if key not in self.offers:
            self.offers[key] = self.offer(variant)
        offer = self.offers[key]
        self.left_out += [LeftOut(variant.name, reason, target) for reason, target in offer.left_out]
        if not offer.tiles:
            return None, offer.refusal
        return Kernel(variant, offer.tiles, offer.targets, offer.triton, self.spec.select, offer.not_offered), None

    def offer(self, variant: Variant) -> Offer:
        """What `variant` can have of the spec's targets, rows and Triton versions."""
        spec = self.spec
        allowed = spelled(spec.triton & legality.versions(variant))
        reason = legality.why_no_version(variant, spec.triton)
        if reason is not None:
            return Offer((), (), (), (), reason, allowed)
        own = spec.tiles if variant.traits.tiled else None
        wanted = own or default_configurations.defaults(variant)
        refused = {target: legality.why_not_on(variant, target) for target in spec.targets}
        running = [target for target in spec.targets if refused[target] is None]
        rows: list[Tile] = []
        lacking: dict[str, list[int]] = {target: [] for target in running}
        left_out: list[tuple[str, str | None]] = []
        for index, row in enumerate(wanted):
            if not variant.traits.splits:
                # Rows that differ in the split alone are one here.
                row = replace(row, split=Tile.split)
                if row in rows:
                    self.survivors.add(("tile", str(index)))
                    continue
            never = legality.why_no_row(variant, row)
            reasons = {target: never or legality.why_no_row_on(variant, row, target) for target in running}
            fits = any(reason is None for reason in reasons.values())
            label = f"tile {row.m}x{row.n}x{row.k}, {row.warps} warps, {row.stages} stages"
            for target, reason in reasons.items():
                if reason is not None:
                    left_out.append((f"{label}: {reason}", target))
                    self.reasons.setdefault(("tile", str(index)), reason)
                    if fits:
                        lacking[target].append(len(rows))
            if fits:
                rows.append(row)
                if own:
                    self.survivors.add(("tile", str(index)))
        held = tuple(target for target in running if len(lacking[target]) < len(rows))
        for target in spec.targets:
            why = refused[target] or (None if target in held else "no row of the tile table fits")
            if why is not None:
                self.reasons.setdefault(("targets", target), why)
                if held:
                    left_out.append((why, target))
        found = [reason for reason in refused.values() if reason] or ["no row of the tile table fits"]
        not_offered = tuple((target, tuple(lacking[target])) for target in held if lacking[target])
        return Offer(
            tuple(rows) if held else (), held, not_offered, tuple(left_out), "; ".join(dict.fromkeys(found)), allowed
        )

    def check(self) -> None:
        """Raise for all that the spec lists and nothing came of."""
        spec = self.spec
        mistakes = []

        def wrong(key: tuple[str, str], message: str) -> None:
            line, column = spec.positions.get(key, (1, 1))
            mistakes.append(Mistake(spec.path, line, column, message))

        for index in range(len(spec.exclude)):
            if index not in self.used:
                wrong(("exclude", str(index)), "exclude: matches no variant of the family; correct it or take it out")
        if self.kernels:
            for key in self.listed():
                if key not in self.survivors:
                    axis, word = key
                    wrong(key, f"{axis}: {word!r} survives in no variant: {self.reasons.get(key, 'nothing uses it')}")
        for index in range(len(spec.tiles or ())):
            key = ("tile", str(index))
            if key not in self.survivors and key in self.reasons:
                wrong(key, f"tile: no target can hold this row: {self.reasons[key]}")
            elif key not in self.survivors and self.kernels:
                wrong(key, "tile: no schedule of the spec has tiles; leave the key out")
        if not self.kernels and not mistakes:
            mistakes.append(self.empty())
        if mistakes:
            raise SpecError(mistakes)

    def empty(self) -> Mistake:
        """The mistake that nothing is left, at the one part of the spec to blame if there is one (`plan.blame`)."""
        spec = self.spec
        found = dict.fromkeys(left.reason for left in self.left_out)
        reasons = f"left out: {'; '.join(itertools.islice(found, 3))}"
        parts = to_blame(spec, _leaves_something)
        if len(parts) == 1:
            message = f"the family is empty, by {parts[0].text} alone; {reasons}"
            return Mistake(spec.path, *parts[0].place(spec), message)
        told = [f"{part.text} ({line}:{column})" for part in parts for line, column in [part.place(spec)]]
        change = f"; to leave something, change one of: {', '.join(told)}" if told else ""
        return Mistake(spec.path, 1, 1, f"the family is empty; {reasons}{change}")

    def listed(self) -> Iterable[tuple[str, str]]:
        """Every value of an axis and every target that the spec lists, none that it has by default."""
        for axis in AXES:
            for value in self.spec.axes[axis]:
                yield axis, word_of(value)
        for target in self.spec.targets:
            if ("targets", target) in self.spec.positions:
                yield "targets", target
