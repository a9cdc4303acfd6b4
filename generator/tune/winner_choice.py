"""Choose the winners of families from a journal, and merge them into their files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from generator.bench.comparison_plan import Contestant, Families
from generator.bench.competitor import rows
from generator.bench.suite import is_unseen
from generator.emit import code_parts
from generator.files.updating import update
from generator.language.errors import CallError
from generator.language.model import Variant
from generator.plan import devices
from generator.problem.grouping import EVEN
from generator.problem.product import Shape
from generator.tune import pruning, winners
from generator.tune.journal import Journal, JournalEntry
from generator.tune.outcome import ConfirmedWinner, Place, Row, TrialOutcome, row_of
from generator.tune.rate_fit import fit
from generator.tune.samples import Sample, all_round, samples_of

DONE, NOTHING = 0, 1


def check(files: Mapping[str, Path], source: winners.MeasurementSource, families: Families) -> None:
    """Raise `CallError` for a file that winners cannot be merged into without a loss.

    It is no file of winners, was measured elsewhere, or has measurements of contracts which its family lacks.
    """
    for name, path in files.items():
        lacking = sorted(winners.load(path, source).contracts.difference(families.known[name].contracts))
        if lacking:
            few = ", ".join([*lacking[:3], *(["..."] if len(lacking) > 3 else [])])
            raise CallError(
                f"{path} also has measurements of contracts that the family {name} lacks ({few}); "
                "name another file with --tuned FILE"
            )


@dataclass(frozen=True)
class DeviceJournal:
    """A journal, where it was measured, and clock rate and memory bandwidth there relative to the winners' device."""

    journal: Journal
    place: winners.MeasurementSource
    scale: tuple[float, float] = (1.0, 1.0)


def write(
    source: DeviceJournal,
    files: Mapping[str, Path],
    families: Families,
    device: devices.Device,
    *,
    smallest: bool = False,
    shapes: Sequence[Shape] = (),
    also: Sequence[DeviceJournal] = (),
) -> int:
    """Merge the winners of each family into its file, print what was dropped, and return the exit status.

    It is 1 if no winner of a family stands in the journal; why is printed. What other runs write to the file meanwhile
    is merged too.

    With `smallest`, only the smallest portfolio is written (`pruning`): of all configurations in the journal if the
    file chooses what the family has (`select: fastest`), also for `shapes`, where the model stands in for measurements.

    All measurements of a size in the journal count, whichever call made them, except those of sizes drawn to be unseen
    (files unseen_*.yaml). Of several winners the one with the highest ratio to torch's product, which was
    timed beside each, is taken; without such a time, the fastest one. Of groups it is the winner for equal ones, or
    what all measured routings of the size call for (`samples.all_round`); rates are fitted to equal groups.

    Winners of outcomes with only some of a contract's kernels are left out: the fitted cost model chooses there.

    `also` are journals of other GPUs. Rates are fitted to their measurements too, at sizes that this one lacks, and the
    smallest portfolio has what their sizes call for.

    Raises what `check` raises, `CallError` for kernels that are not rendered, and `FileError` for a file that cannot be
    written.
    """
    check(files, source.place, families)
    chosen = [_Family(families, name, source, device, smallest, shapes, also) for name in families.known]
    return max((each.write(files[each.name]) for each in chosen), default=DONE)


@dataclass(frozen=True)
class _Family:
    """A family whose winners are chosen, and what they are chosen from, as `write` has it."""

    families: Families
    name: str
    source: DeviceJournal
    device: devices.Device
    smallest: bool
    shapes: Sequence[Shape]
    also: Sequence[DeviceJournal]

    @cached_property
    def contestants(self) -> list[Contestant]:
        """The rendered kernels; raises `CallError` if one is not rendered."""
        kernels = self.families.known[self.name].kernels
        return [self.families.contestant(kernel, self.name, kernel.name) for kernel in kernels]

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digests of the kernels' code."""
        return {each.kernel: code_parts.of_file(each.file).timed for each in self.contestants}

    @cached_property
    def rows(self) -> frozenset[Row]:
        """Every configuration of the kernels."""
        own = ((each.first.variant.contract, each, config) for each in self.contestants for config in rows(each))
        return frozenset(row_of(contract, each.kernel, config) for contract, each, config in own)

    @cached_property
    def variants(self) -> dict[str, Variant]:
        return {each.kernel: each.first.variant for each in self.contestants}

    def write(self, path: Path) -> int:
        """Merge the winners into the family's file, as the function `write` does.

        No other run changes the file from when it is read until it is written.
        """
        messages: list[str] = []
        recorded = 0

        def text() -> str | None:
            nonlocal messages, recorded
            messages, chosen, recorded = self._chosen(path)
            if chosen.winners or path.exists():
                return winners.text_of(chosen, path)
            messages = []
            return None

        update(path, text)
        if messages:
            print(*messages, sep="\n")
        if recorded:
            return DONE
        counts = Counter(map(self._why_none, self.source.journal.kept.values()))
        contents = f"has {counts.total()} outcomes: " if counts else "has no outcome"
        reasons = "; ".join(f"{count} {reason}" for reason, count in counts.most_common())
        print(
            f"tune: {path}: no winner of the family {self.name} stands in {self.source.journal.path}, which "
            f"{contents}{reasons}; tune without --again measures what is missing",
            file=sys.stderr,
        )
        return NOTHING

    def _chosen(self, path: Path) -> tuple[list[str], winners.Winners, int]:
        """Messages, what a file of winners becomes, and how many of its winners are of the journal."""
        messages: list[str] = []
        old = winners.load(path, self.source.place)
        everything = self._seen(self.source)
        standing = [outcome for outcome in everything if outcome.winner is None or outcome.winner.routing == EVEN]
        routed = list(samples_of(everything, self.variants))
        samples = [sample for sample in routed if sample.routing == EVEN]
        borrowed = [*self._borrowed(samples)]
        offered = self.rows
        if self.smallest and self.families.known[self.name].spec.select == "fastest":
            offered |= {sample.row for sample in (*samples, *borrowed)}
        routed, samples, borrowed = (
            [sample for sample in each if sample.row in offered] for each in (routed, samples, borrowed)
        )
        new = self._best(standing, offered)
        new = {at: all_round(winner, routed) if winner.shape.groups else winner for at, winner in new.items()}
        fitted = fit([*samples, *borrowed], self.device)
        merged, dropped = winners.merge(old, new.values(), fitted, self.digests)
        places = ({each.winner.place for each in outcomes if each.winner} for outcomes in (everything, standing))
        if skewed := set.difference(*places):
            messages.append(f"{path}: {len(skewed)} sizes have no winner, because equal groups were not measured there")
        gone = [winner for winner in merged.winners if winner.row not in offered]
        whole, merged = merged, pruning.pruned(merged, samples, offered)
        if gone:
            lost = len(whole.winners) - len(merged.winners)
            messages.append(
                f"{path}: the kernels lack the configurations of {len(gone)} winners now: {lost} have no successor"
            )
        if self.smallest:
            samples = [*samples, *borrowed]
            every = {sample.row for sample in samples}
            modelled = [*pruning.predicted(fitted, samples, self.shapes, self.variants, self.device)]
            kept = pruning.portfolio(samples, modelled)
            # Some calls have operands that no descriptor can address, or rows by number.
            variants, timed = self.variants, (samples, modelled)
            kept |= pruning.portfolio(*([x for x in each if variants[x.row[1]].load == "pointer"] for each in timed))
            messages.append(f"{path}: {len(kept)} of {len(every)} configurations in {self.source.journal.path} remain")
            # What this journal does not have stays.
            kept |= {winner.row for winner in new.values() if winner.shape.groups}
            merged = pruning.pruned(merged, samples, kept | (offered - every))
        if dropped:
            kernels = ", ".join(sorted({winner.kernel for winner in dropped}))
            messages.append(f"{path}: dropped {len(dropped)} winners whose kernels have changed since: {kernels}")
        recorded = sum(winner.place in new for winner in merged.winners)
        messages.append(f"{path}: {len(merged.winners)} winners, {recorded} of them in {self.source.journal.path}")
        return messages, merged, recorded

    def _seen(self, source: DeviceJournal) -> list[TrialOutcome]:
        """What stands for the family in a journal, without the sizes that nothing is fitted to."""
        standing = source.journal.standing(source.place, self.name, self.digests)
        return [each for each in standing if each.winner is None or not is_unseen(each.winner.shape)]

    def _borrowed(self, samples: Sequence[Sample]) -> Iterator[Sample]:
        """The samples of the other journals, at sizes that those of the family's own device do not have."""
        own = {(sample.row[0], sample.sizes) for sample in samples}
        for other in self.also:
            for sample in samples_of(self._seen(other), self.variants):
                if sample.routing == EVEN and (sample.row[0], sample.sizes) not in own:
                    yield replace(sample, scale=other.scale)

    def _best(self, standing: Iterable[TrialOutcome], offered: Collection[Row]) -> dict[Place, ConfirmedWinner]:
        """Of the winners that stand and were measured beside all kernels of their contract, the best for each place."""
        new: dict[Place, ConfirmedWinner] = {}
        for winner in (each.winner for each in standing if each.winner and each.whole and each.winner.row in offered):
            if winner.place not in new or _cost(winner) < _cost(new[winner.place]):
                new[winner.place] = winner
        return new

    def _why_none(self, entry: JournalEntry) -> str:
        """Why an outcome of the journal has no winner that stands."""
        winner, source = entry.outcome.winner, entry.place
        if source.device != self.source.place.device:
            return f"of {source.device}"
        if source != self.source.place:
            return f"of torch {source.torch} and triton {source.triton}"
        if entry.outcome.lost is not None:
            return "that lost the GPU or the worker"
        if winner is None:
            return "without a candidate that has a right result and a time"
        reasons = {
            "of kernels that the family lacks": winner.kernel not in self.digests,
            "of kernels that have changed since": entry.kernels.get(winner.kernel) != self.digests.get(winner.kernel),
            "of sizes that nothing is fitted to": is_unseen(winner.shape),
            "of groups that are not equal": winner.routing != EVEN,
            "of configurations that the kernels lack now": winner.row not in self.rows,
            "of another family": not entry.about.startswith(f"{self.name}/"),
            "of only some kernels of a contract": not entry.outcome.whole,
        }
        return next((why for why, holds in reasons.items() if holds), "that others replace")


def _cost(winner: ConfirmedWinner) -> float:
    """The time relative to torch's product, if that was timed: clock rates differ between runs, and affect both."""
    return winner.seconds / winner.library_seconds if winner.library_seconds else winner.seconds
