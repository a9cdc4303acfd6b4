"""Expand a spec into its family: the product of the axes in order, minus exclusions and illegal combinations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from generator.language.errors import Mistake, SpecError, shown
from generator.language.model import Spec, Tile, Variant, word_of
from generator.language.versions import spelled
from generator.language.vocabulary import AXES, PAIRED, SCHEDULE, SPLIT_K, TILED
from generator.plan import configurations, default_configurations, gradients, legality, portfolio, replacements
from generator.plan.blame import to_blame
from generator.plan.exclusions import Exclusions
from generator.plan.gradients import ContractGradient
from generator.plan.kernels import Family, Kernel, LeftOut
from generator.plan.wanted_variants import as_asked, asks, of_contract, of_tiles, schedules_of, wanted_variants

#: A larger family is assumed to be a mistake in the spec: nobody reads, compiles or vendors so many kernels.
LARGEST_FAMILY = 100_000
#: The most configurations that are weighed, of all variants together, and the most entries of what is left out.
MOST_CONFIGURATIONS, MOST_LEFT_OUT = 2_000_000, 1_000_000
#: The most variants that are visited to find the one exclusion that leaves a family empty.
_MOST_BLAMED = 50_000


def expand(spec: Spec) -> Family:
    """The kernels of `spec`, and what was left out, each with its reason.

    Raises `SpecError` if the product of the axes is larger than `LARGEST_FAMILY`, if no kernel has a listed value, runs
    on a listed target or can use a listed tile, if an exclusion matches nothing, or if the family is empty.
    """
    size = math.prod(max(1, len(spec.axes[axis])) for axis in AXES)
    if size > LARGEST_FAMILY:
        message = f"the product of the axes has {size} variants; at most {LARGEST_FAMILY} are rendered"
        raise SpecError([Mistake(spec.path, 1, 1, message)])
    rows = len(spec.tiles or ())
    if size * rows > MOST_CONFIGURATIONS:
        many = f"{size} variants with {rows} configurations each"
        message = f"tile: the product of the axes has {many}; at most {MOST_CONFIGURATIONS} configurations are weighed"
        raise SpecError([spec.mistake(message, "tile")])
    _check_package(spec)
    expansion = _Expansion(spec)
    for variant, tiles in wanted_variants(spec):
        expansion.take(variant, tiles)
    expansion.fill()
    expansion.check()
    gradients = expansion.gradients() if spec.backward == "kernels" else ()
    measured = portfolio.measurements(spec)
    spec = replace(spec, warnings=(*spec.warnings, *expansion.unserved()))
    return Family(
        spec,
        tuple(expansion.kernels),
        tuple(map(expansion.replaced.with_replacements, expansion.left_out)),
        gradients,
        measured,
    )


def _check_package(spec: Spec) -> None:
    """Raise `SpecError` for what needs more host code than the family has."""
    mistakes = []
    if spec.package != "torch":
        if spec.backward != "none":
            reason = f"{shown(spec.backward)} needs 'package: torch': its functions are those that torch knows"
            mistakes.append(spec.mistake(f"backward: {reason}", "backward"))
        bringing = [("with", word) for word in spec.additions]
        bringing += [("backends", "aten")] if "aten" in spec.backends else []
        reason = f"needs 'package: torch', and the package is {shown(spec.package)}"
        mistakes += [spec.mistake(f"{key}: {shown(word)} {reason}", key, word) for key, word in bringing]
    if spec.package == "files" and spec.select not in ALONE:
        reason = f"is a choice among files; with 'package: files' it is one of {', '.join(ALONE)}"
        mistakes.append(spec.mistake(f"select: {shown(spec.select)} {reason}", "select"))
    if mistakes:
        raise SpecError(mistakes)


#: How a file that stands alone can choose its configuration.
ALONE = ("fixed", "heuristic", "autotune")


def _has_kernels(spec: Spec) -> bool:
    """Whether one of the first `LARGEST_FAMILY` variants of `spec` is a kernel."""
    expansion = _Expansion(spec)
    for variant, tiles in itertools.islice(wanted_variants(spec), LARGEST_FAMILY):
        expansion.take(variant, tiles)
        if expansion.kernels:
            return True
    expansion.fill()
    return bool(expansion.kernels)


@dataclass(frozen=True)
class _Support:
    """The configurations and targets of a variant: the same for variants that differ in masking and tile order only."""

    tiles: tuple[Tile, ...]
    targets: tuple[str, ...]
    #: Target -> the indices in `tiles` of the configurations that do not fit on it.
    not_offered: tuple[tuple[str, tuple[int, ...]], ...]
    #: The reason and the target of each configuration, and of each target, that is left out.
    left_out: tuple[tuple[str, str | None], ...]
    #: Why there is no kernel, where `tiles` is empty.
    refusal: str
    #: The Triton versions as a range.
    triton: str


class _Expansion:
    """The kernels of the variants visited so far, and what the checks at the end need to know."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.kernels: list[Kernel] = []
        self.left_out: list[LeftOut] = []
        #: The words that make a difference -> the first variant that has them.
        self.first: dict[tuple[str, ...], Variant] = {}
        #: (key, word) of everything in the spec that some kernel has.
        self.used: set[tuple[str, str]] = set()
        #: (key, word) -> why a variant with it was left out, the first reason found.
        self.reasons: dict[tuple[str, str], str] = {}
        #: The indices of exclusions that match a variant.
        self.matching: set[int] = set()
        #: The variants of each contract that the spec wants, until `fill` has seen what they lack.
        self.wanted: dict[str, list[Variant]] = {}
        self.replaced = replacements.Replaced()
        self.supports: dict[tuple[object, ...], _Support] = {}
        self.exclusions = Exclusions(spec.exclude)

    def take(self, variant: Variant, tiles: tuple[Tile, ...] | None = None) -> None:
        """Visit a variant, and on targets that cannot run it, those with other words for the product that is unset.

        `tiles` are its configurations by the portfolio. Raises `SpecError` as `visit` does.
        """
        if self.visit(variant, tiles):
            kernel = self.kernels[-1] if self.kernels else None
            # A kernel for all targets needs nothing in its place.
            if kernel is None or kernel.variant is not variant or kernel.targets != self.spec.targets:
                refusing = replacements.refusing(self.spec, variant)
                self.replace(variant, refusing, replacements.REPLACED[:1])
            self.wanted.setdefault(variant.contract, []).append(variant)

    def fill(self) -> None:
        """Serve targets on which a contract has no kernel by other words for any axis that the spec leaves unset."""
        served: dict[str, set[str]] = {contract: set() for contract in self.wanted}
        for kernel in self.kernels:
            served.setdefault(kernel.variant.contract, set()).update(kernel.targets)
        wanted, self.wanted = self.wanted, {}
        for contract, variants in wanted.items():
            missing = [target for target in self.spec.targets if target not in served[contract]]
            for variant in variants if missing else ():
                refusing = replacements.refusing(self.spec, variant)
                self.replace(variant, [target for target in missing if target in refusing], replacements.REPLACED)

    def replace(self, variant: Variant, targets: Sequence[str], axes: Sequence[str]) -> None:
        """Visit what takes the place of `variant` on targets that refuse it, as far as anything can."""
        waiting = set(targets)
        for other in replacements.replacements(self.spec, variant, axes) if waiting else ():
            if waiting <= set(replacements.refusing(self.spec, other)):
                continue
            start = len(self.left_out)
            self.visit(other)
            # Elsewhere the variant itself runs.
            self.left_out[start:] = [left for left in self.left_out[start:] if left.target in {None, *waiting}]
            kernel = next(iter(self.kernels[-1:]), None)
            if kernel is not None and kernel.variant == other:
                self.replaced.add(variant.name, other.name, waiting.intersection(kernel.targets))
                waiting.difference_update(kernel.targets)
            if not waiting:
                return

    def visit(self, variant: Variant, tiles: tuple[Tile, ...] | None = None) -> bool:
        """Add a variant to the kernels, or to what is left out; `tiles` are its configurations by the portfolio.

        Returns whether the spec wants it: it is not excluded, and there is no such kernel yet. Raises `SpecError` once
        there are too many of either.
        """
        if len(self.kernels) > LARGEST_FAMILY:
            raise self.too_large(f"more than {LARGEST_FAMILY} kernels; no more are rendered")
        if len(self.left_out) > MOST_LEFT_OUT:
            raise self.too_large(f"more than {MOST_LEFT_OUT} variants and configurations that are left out")
        keys = list(as_asked(self.spec, variant).words.items())
        reason = self.reason(variant)
        if reason is None:
            words = legality.effective_words(variant)
            if words in self.first:
                self.left_out.append(LeftOut(variant.name, f"the same kernel as {self.first[words].name}"))
                self.used.update(keys)
                return False
            kernel, reason = self.kernel(variant, tiles)
            if kernel is not None:
                self.first[words] = variant
                self.kernels.append(kernel)
                self.used.update(keys)
                self.used.update(("targets", target) for target in kernel.targets)
                return True
        assert reason is not None
        self.left_out.append(LeftOut(variant.name, reason))
        for key in keys:
            self.reasons.setdefault(key, reason)
        return not self.exclusions.matching(as_asked(self.spec, variant))

    def too_large(self, message: str) -> SpecError:
        return SpecError([Mistake(self.spec.path, 1, 1, f"the family has {message}")])

    def gradients(self) -> tuple[ContractGradient, ...]:
        """The gradients of all contracts so far; add the kernels of the contracts that they need.

        Raises `SpecError` if a contract has no gradients, or a contract that they need no kernel.
        """
        variants = [kernel.variant for kernel in self.kernels if not gradients.adds(kernel.variant)]
        own = {v.contract: v for v in variants}
        mistakes, by_contract = [], dict[str, ContractGradient]()
        for contract, variant in own.items():
            reason = gradients.why_none(variant)
            if reason is None:
                reason = next(filter(None, map(self.add, gradients.needed(variant))), None)
            if reason is None:
                by_contract |= {each.contract: each for each in gradients.gradients(variant)}
            else:
                message = f"backward: 'kernels' is not possible for {contract}: {reason}; exclude it"
                mistakes.append(self.spec.mistake(message, "backward"))
        if mistakes:
            raise SpecError(mistakes)
        return tuple(by_contract.values())

    def add(self, wanted: Variant) -> str | None:
        """Add the kernels of the contract of `wanted`; why there is none, or None."""
        if any(kernel.variant.contract == wanted.contract for kernel in self.kernels):
            return None
        before, reasons = len(self.kernels), len(self.left_out)
        for implementation in of_contract(self.spec, wanted):
            for variant, tiles in of_tiles(self.spec, *implementation):
                self.take(variant, tiles)
        self.fill()
        if len(self.kernels) > before:
            return None
        return f"{wanted.contract} has no kernel: {self.left_out[reasons].reason}"

    def reason(self, variant: Variant) -> str | None:
        """Why the variant is left out, or None: the spec's own exclusions come before the legality rules."""
        excluded = None
        hits = self.exclusions.matching(as_asked(self.spec, variant))
        if hits:
            self.matching.update(hits)
            excluded = f"excluded: {self.spec.exclude[hits[0]].because}"
        spec = self.spec
        illegal = legality.why_not(variant)
        return excluded or illegal or legality.why_not_selected(variant, spec.select, rows_alike=spec.rows_alike)

    def kernel(self, variant: Variant, tiles: tuple[Tile, ...] | None) -> tuple[Kernel | None, str | None]:
        """The kernel of `variant` and None, or None and the reason why it has no kernel."""
        # No rule about a configuration, a target or a version reads the masking or the order of tiles.
        key = tiles, tuple(word for axis, word in variant.words.items() if axis not in ("masking", "swizzle"))
        if key not in self.supports:
            self.supports[key] = self.support(variant, tiles)
        support = self.supports[key]
        self.left_out += [LeftOut(variant.name, reason, target) for reason, target in support.left_out]
        if not support.tiles:
            return None, support.refusal
        choice = support.not_offered, self.spec.rows_alike
        return Kernel(variant, support.tiles, support.targets, support.triton, self.spec.select, *choice), None

    def support(self, variant: Variant, chosen: tuple[Tile, ...] | None) -> _Support:
        """The configurations, targets and Triton versions of the spec that `variant` can have."""
        spec = self.spec
        allowed = spelled(spec.triton & legality.versions(variant))
        reason = legality.why_no_version(variant, spec.triton)
        if reason is not None:
            return _Support((), (), (), (), reason, allowed)
        own = spec.tiles if variant.traits.tiled else None
        wanted = own or chosen or default_configurations.defaults(variant)
        refused = {target: legality.why_not_on(variant, target) for target in spec.targets}
        running = [target for target in spec.targets if refused[target] is None]
        if not own and not chosen:
            wanted = portfolio.for_each(variant, wanted, running)
        tiles: dict[Tile, None] = {}
        lacking: dict[str, list[int]] = {target: [] for target in running}
        left_out: list[tuple[str, str | None]] = []
        for index, tile in enumerate(wanted):
            if not variant.traits.splits:
                # Tiles that differ only in `split` are the same configuration here.
                tile = replace(tile, split=Tile.split)
            if own and self.for_another(variant, index):
                continue
            if tile in tiles:
                self.used.add(("tile", str(index)))
                continue
            never = legality.why_no_row(variant, tile)
            reasons = {target: never or legality.why_no_row_on(variant, tile, target) for target in running}
            fits = any(reason is None for reason in reasons.values())
            label = configurations.label(variant, tile)
            for target, reason in reasons.items():
                if reason is not None:
                    left_out.append((f"{label}: {reason}", target))
                    self.reasons.setdefault(("tile", str(index)), reason)
                    if fits:
                        lacking[target].append(len(tiles))
            if fits:
                tiles[tile] = None
                if own:
                    self.used.add(("tile", str(index)))
        targets = tuple(target for target in running if len(lacking[target]) < len(tiles))
        for target in spec.targets:
            why = refused[target] or (None if target in targets else configurations.none_fits(left_out, target))
            if why is not None:
                self.reasons.setdefault(("targets", target), why)
                if targets:
                    left_out.append((why, target))
        refusals = [reason for reason in refused.values() if reason] or [configurations.none_fits(left_out)]
        return _Support(
            tuple(tiles) if targets else (),
            targets,
            tuple((target, tuple(lacking[target])) for target in targets if lacking[target]),
            tuple(left_out),
            "; ".join(dict.fromkeys(refusals)),
            allowed,
        )

    def for_another(self, variant: Variant, index: int) -> bool:
        """Whether an entry of `tile` is for another schedule of blocks, which its sizes and its key `split` ask for."""
        traits, tiles, listed = variant.traits, self.spec.tiles, self.spec.axes["schedule"]
        asking = asks(traits, self.spec)
        if tiles is None or not tiles[index].several_blocks:
            # Of powers of two only `paired` asks for blocks: for two equal ones.
            return traits.pairs and asking != PAIRED and asking in listed and variant.schedule not in listed
        tiled = variant.schedule == asking == TILED
        others = schedules_of(self.spec, index, traits) if traits.pairs or traits.joins or tiled else set()
        if others:
            return variant.schedule not in others and asking in listed
        return (traits.pairs or tiled) and any(
            schedules_of(self.spec, index, SCHEDULE[word]) for word in (PAIRED, SPLIT_K)
        )

    def check(self) -> None:
        """Raise `SpecError` with everything that the spec lists and that has no effect."""
        spec = self.spec
        mistakes = []

        def wrong(key: tuple[str, str], message: str) -> None:
            mistakes.append(spec.mistake(message, *key))

        for index, exclusion in enumerate(spec.exclude):
            # What fills an open axis may change with the measurements.
            opened = any(not spec.axes[axis] for axis, _ in exclusion.axes)
            if index not in self.matching and not opened:
                wrong(("exclude", str(index)), "exclude: matches no variant of the family; correct it or take it out")
        if self.kernels:
            for key in self.listed():
                if key not in self.used:
                    axis, word = key
                    wrong(key, f"{axis}: {word!r} survives in no variant: {self.reasons.get(key, 'nothing uses it')}")
        for index in range(len(spec.tiles or ())):
            key = ("tile", str(index))
            if key not in self.used and key in self.reasons:
                wrong(key, f"tile: no target can run this configuration: {self.reasons[key]}")
            elif key not in self.used and self.kernels:
                wrong(key, "tile: no schedule of the spec has tiles; remove the key")
        if not self.kernels and not mistakes:
            mistakes.append(self.empty())
        if mistakes:
            raise SpecError(mistakes)

    def empty(self) -> Mistake:
        """The mistake of an empty family, at the place of the one part that is to blame if there is one (`blame`)."""
        spec = self.spec
        reasons_left = dict.fromkeys(left.reason for left in self.left_out)
        reasons = f"left out: {'; '.join(itertools.islice(reasons_left, 3))}"
        variants = len({left.name for left in self.left_out})
        parts = to_blame(spec, _has_kernels, each=variants * len(spec.exclude) <= _MOST_BLAMED)
        if len(parts) == 1:
            message = f"the family is empty because of {parts[0].text} alone; {reasons}"
            return Mistake(spec.path, *parts[0].place(spec), message)
        places = [f"{part.text} ({line}:{column})" for part in parts for line, column in [part.place(spec)]]
        change = f"; to leave something, change one of: {', '.join(places)}" if places else ""
        return Mistake(spec.path, 1, 1, f"the family is empty; {reasons}{change}")

    def unserved(self) -> Iterator[Mistake]:
        """A warning for each target that the spec does not name and that no kernel is for, though it is a default."""
        spec = self.spec
        served = [target for target in spec.targets if ("targets", target) in self.used]
        for target in spec.targets if ("targets", "") not in spec.positions else ():
            if target not in served:
                why = self.reasons.get(("targets", target), "nothing uses it")
                yield Mistake(
                    spec.path,
                    1,
                    1,
                    f"targets: {target} is a default target, and no kernel runs there: {why}; "
                    f"write 'targets: [{', '.join(served)}]' if you do not need it",
                )

    def listed(self) -> Iterable[tuple[str, str]]:
        """(key, word) of every value of an axis, and of every target that the spec itself lists."""
        for axis in AXES:
            # A default may have been replaced everywhere.
            for value in self.spec.axes[axis] if (axis, "") in self.spec.positions else ():
                yield axis, word_of(value)
        for target in self.spec.targets:
            if ("targets", target) in self.spec.positions:
                yield "targets", target
