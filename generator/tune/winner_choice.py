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
from generator.files.reading import read_bytes
from generator.files.updating import update
from generator.language.errors import CallError
from generator.language.model import Variant
from generator.plan import devices
from generator.problem.grouping import EVEN
from generator.problem.product import Shape
from generator.tune import pruning, winners
from generator.tune.journal import Journal, JournalEntry
from generator.tune.outcome import ConfirmedWinner, TrialOutcome
from generator.tune.rate_fit import fit
from generator.tune.samples import Row, Sample, all_round, row_of, samples_of
from generator.tune.winner_validation import DOUBTED, doubtful

DONE, NOTHING = 0, 1


def check(
    files: Mapping[str, Path], place: winners.MeasurementSource, families: Families
) -> dict[str, winners.Winners]:
    """The winners that the file of each family has.

    Raises `CallError` for a file that is not a file of winners, that was measured elsewhere or that has measurements of
    contracts which the family lacks: they would be lost.
    """
    found = {name: winners.load(path, place) for name, path in files.items()}
    for name, own in found.items():
        lacking = sorted(own.contracts.difference(families.known[name].contracts))
        if lacking:
            few = ", ".join([*lacking[:3], *(["..."] if len(lacking) > 3 else [])])
            raise CallError(
                f"{files[name]} also has measurements of contracts that the family {name} lacks ({few}); "
                "name another file with --tuned FILE"
            )
    return found


def write(
    journal: Journal,
    files: Mapping[str, Path],
    place: winners.MeasurementSource,
    families: Families,
    device: devices.Device,
    *,
    smallest: bool = False,
    shapes: Sequence[Shape] = (),
    also: Sequence[OtherJournal] = (),
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

    Two kinds of winners are left out, so that the fitted cost model chooses there: those that `winner_validation`
    doubts, and those of sizes at which only some of a contract's kernels were measured, unless they are faster than the
    winner that the file has.

    `also` are journals of other GPUs. Rates are fitted to their measurements too, at sizes that this one lacks, and the
    smallest portfolio has what their sizes call for.

    Raises what `check` raises, `CallError` for kernels that are not rendered, and `FileError` for a file that cannot be
    written.
    """
    check(files, place, families)
    statuses = [
        _write(_Family(families, name, place, device, also), journal, files[name], smallest=smallest, shapes=shapes)
        for name in families.known
    ]
    return max(statuses, default=DONE)


@dataclass(frozen=True)
class OtherJournal:
    """A journal of another GPU, and its clock rate and memory bandwidth relative to those of the winners' device."""

    journal: Journal
    place: winners.MeasurementSource
    scale: tuple[float, float]


@dataclass(frozen=True)
class _Family:
    """A family whose winners are chosen, with the place and the device of their measurements, and other journals."""

    families: Families
    name: str
    place: winners.MeasurementSource
    device: devices.Device
    also: Sequence[OtherJournal] = ()

    @cached_property
    def digests(self) -> dict[str, str]:
        return digests_of(self.families, self.name)

    @cached_property
    def rows(self) -> frozenset[Row]:
        return rows_of(self.families, self.name)


def _write(family: _Family, journal: Journal, path: Path, *, smallest: bool, shapes: Sequence[Shape]) -> int:
    """Merge the winners of one family into its file, as `write` does."""
    while True:
        before = _bytes(path)
        messages, found, recorded = _chosen(family, journal, path, smallest=smallest, shapes=shapes)
        if (not found.winners and before is None) or _replaced(path, before, found):
            break
    if found.winners or before is not None:
        print(*messages, sep="\n")
    if recorded:
        return DONE
    counts = _without_winner(family, journal)
    contents = f"has {counts.total()} outcomes: " if counts else "has no outcome"
    reasons = "; ".join(f"{count} {reason}" for reason, count in counts.most_common())
    print(
        f"tune: {path}: no winner of the family {family.name} stands in {journal.path}, which {contents}{reasons}; "
        "tune without --again measures what is missing",
        file=sys.stderr,
    )
    return NOTHING


def _bytes(path: Path) -> bytes | None:
    """The bytes of a file, or None if there is none."""
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None


def _replaced(path: Path, before: bytes | None, found: winners.Winners) -> bool:
    """Write a file of winners, unless another run has changed the file since it had the bytes `before`."""
    unchanged = False

    def text() -> str | None:
        nonlocal unchanged
        unchanged = _bytes(path) == before
        return winners.text_of(found, path) if unchanged else None

    update(path, text)
    return unchanged


def _chosen(
    family: _Family, journal: Journal, path: Path, *, smallest: bool, shapes: Sequence[Shape]
) -> tuple[list[str], winners.Winners, int]:
    """Messages, what a file of winners becomes, and how many of its winners are of the journal."""
    families, name, place, device, digests = family.families, family.name, family.place, family.device, family.digests
    messages: list[str] = []
    old = winners.load(path, place)
    variants = {kernel.name: kernel.variant for kernel in families.known[name].kernels}
    everything = [outcome for outcome in journal.standing(place, name, digests) if not _is_of_unseen(outcome)]
    standing = [outcome for outcome in everything if outcome.winner is None or outcome.winner.routing == EVEN]
    new: dict[tuple[str, tuple[int, ...]], ConfirmedWinner] = {}
    routed = list(samples_of(everything, variants))
    offered, samples = family.rows, [sample for sample in routed if sample.routing == EVEN]
    borrowed = [*_borrowed(family, samples, variants)]
    if smallest and families.known[name].spec.select == "fastest":
        offered |= {sample.row for sample in (*samples, *borrowed)}
    won = [each.winner for each in standing if each.winner and _row_of(each.winner) in offered]
    # What another GPU measured of a kernel has rates, by which `doubtful` judges it.
    complete = _complete(standing, families, name, {sample.row[1] for sample in borrowed})
    held = {winner.place: winner for winner in winners.current(old, digests)}
    for winner in won:
        rival = new.get(winner.place)
        if winner.place not in complete:
            # It was not measured beside all kernels, but the winner that it has to beat was.
            rival = rival or held.get(winner.place, winner)
        if rival is None or _cost(winner) < _cost(rival):
            new[winner.place] = winner
    routed = [sample for sample in routed if sample.row in offered]
    new = {at: all_round(winner, routed) if winner.divided else winner for at, winner in new.items()}
    samples = [sample for sample in samples if sample.row in offered]
    borrowed = [sample for sample in borrowed if sample.row in offered]
    fitted = fit([*samples, *borrowed], device)
    found, dropped = winners.merge(old, new.values(), fitted, digests)
    places = ({each.winner.place for each in outcomes if each.winner} for outcomes in (everything, standing))
    if skewed := set.difference(*places):
        messages.append(f"{path}: {len(skewed)} sizes have no winner, because equal groups were not measured there")
    gone = [winner for winner in found.winners if _row_of(winner) not in offered]
    whole, found = found, pruning.pruned(found, samples, offered)
    if gone:
        lost = len(whole.winners) - len(found.winners)
        messages.append(
            f"{path}: the kernels lack the configurations of {len(gone)} winners now: {lost} have no successor"
        )
    doubts = list(doubtful(families, name, found.winners, samples, found.fit.rates, device, place.triton))
    if doubts:
        found = winners.without(found, [winner for winner, _ in doubts])
        messages.append(
            f"{path}: left out {len(doubts)} winners; the fitted cost model predicts that a configuration that was "
            f"not measured there is {DOUBTED} times as fast"
        )
        messages += ["  (--refine measures it):", *(f"  {_doubt(each)}" for each in doubts)]
    if smallest:
        samples = [*samples, *borrowed]
        every = {sample.row for sample in samples}
        kept = pruning.portfolio(samples, pruning.predicted(fitted, samples, shapes, variants, device))
        messages.append(f"{path}: {len(kept)} of {len(every)} configurations in {journal.path} remain")
        # What this journal does not have stays.
        kept |= {_row_of(winner) for winner in new.values() if winner.divided}
        found = pruning.pruned(found, samples, kept | (offered - every))
    if dropped:
        kernels = ", ".join(sorted({winner.kernel for winner in dropped}))
        messages.append(f"{path}: dropped {len(dropped)} winners whose kernels have changed since: {kernels}")
    recorded = sum(winner.place in new for winner in found.winners)
    messages.append(f"{path}: {len(found.winners)} winners, {recorded} of them in {journal.path}")
    return messages, found, recorded


def _borrowed(family: _Family, samples: Sequence[Sample], variants: Mapping[str, Variant]) -> Iterator[Sample]:
    """The samples of the other journals, at sizes that those of the family's own device do not have."""
    own = {(sample.row[0], sample.sizes) for sample in samples}
    for other in family.also:
        standing = other.journal.standing(other.place, family.name, family.digests)
        outcomes = [outcome for outcome in standing if not _is_of_unseen(outcome)]
        for sample in samples_of(outcomes, variants):
            if sample.routing == EVEN and (sample.row[0], sample.sizes) not in own:
                yield replace(sample, scale=other.scale)


def _without_winner(family: _Family, journal: Journal) -> Counter[str]:
    """Why the outcomes of a journal have no winner that stands for a family, each with how many."""
    return Counter(_why_none(family, entry) for entry in journal.entries)


def _why_none(family: _Family, entry: JournalEntry) -> str:
    winner, digests = entry.outcome.winner, family.digests
    if entry.place.device != family.place.device:
        return f"of {entry.place.device}"
    if entry.place != family.place:
        return f"of torch {entry.place.torch} and triton {entry.place.triton}"
    if entry.outcome.lost is not None:
        return "that lost the GPU or the worker"
    if winner is None:
        return "without a candidate that has a right result and a time"
    if winner.kernel not in digests:
        return "of kernels that the family lacks"
    if entry.kernels.get(winner.kernel) != digests[winner.kernel]:
        return "of kernels that have changed since"
    if is_unseen(winner.shape):
        return "of sizes that nothing is fitted to"
    if winner.routing != EVEN:
        return "of groups that are not equal"
    if _row_of(winner) not in family.rows:
        return "of configurations that the kernels lack now"
    if not entry.outcome.whole:
        return "of only some kernels of a contract"
    return "that the fitted cost model doubts, or that others replace"


def _complete(
    standing: Iterable[TrialOutcome], families: Families, name: str, lent: Collection[str]
) -> set[tuple[str, tuple[int, ...]]]:
    """The contracts and sizes at which every kernel, but those that are `lent`, was a candidate or timed in several."""
    found, timed = set(), dict[tuple[str, tuple[int, ...]], set[str]]()
    for each in standing:
        if each.winner is not None:
            place = each.winner.place
            measured = timed.setdefault(place, set())
            measured |= {time.kernel for time in each.times}
            kernels = {kernel.name for kernel in families.known[name].contracts[place[0]]}
            if each.whole or measured.issuperset(kernels.difference(lent)):
                found.add(place)
    return found


def _is_of_unseen(outcome: TrialOutcome) -> bool:
    return outcome.winner is not None and is_unseen(outcome.winner.shape)


def _doubt(found: tuple[ConfirmedWinner, float]) -> str:
    winner, predicted = found
    return f"{winner.contract} {winner.shape}: {winner.seconds * 1e6:.4g} µs, predicted {predicted * 1e6:.4g} µs"


def _cost(winner: ConfirmedWinner) -> float:
    """The time relative to torch's product, if that was timed: clock rates differ between runs, and affect both."""
    return winner.seconds / winner.library_seconds if winner.library_seconds else winner.seconds


def rows_of(families: Families, name: str) -> frozenset[Row]:
    """Every configuration of a family's rendered kernels; raises `CallError` if one is not rendered."""
    return frozenset(
        row_of(each.kernel.partition("__")[0], each.kernel, config)
        for each in _contestants(families, name)
        for config in rows(each)
    )


def _row_of(winner: ConfirmedWinner) -> Row:
    return row_of(winner.contract, winner.kernel, winner.config)


def digests_of(families: Families, name: str) -> dict[str, str]:
    """The digests of the code of a family's rendered kernels; raises `CallError` if one is not rendered."""
    return {each.kernel: code_parts.of_file(each.file).timed for each in _contestants(families, name)}


def _contestants(families: Families, name: str) -> Iterator[Contestant]:
    """The rendered kernels of a family."""
    return (families.contestant(kernel, name, kernel.name) for kernel in families.known[name].kernels)
