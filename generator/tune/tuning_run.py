"""Send trials to workers, append each outcome to the journal at once, and write the winners at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from generator.bench.comparison_plan import Contestant, Families
from generator.bench.competitor import rows
from generator.bench.markdown_tables import tile
from generator.bench.measure import reason
from generator.bench.problem import Shape
from generator.bench.routing import EVEN
from generator.bench.sampled_sizes import is_unseen
from generator.emit import code_parts
from generator.files.reading import read_bytes
from generator.files.updating import update
from generator.language.errors import CallError
from generator.plan import devices
from generator.tune import pruning, trial_worker, winners
from generator.tune.journal import Entry, Journal
from generator.tune.outcome import Outcome, Winner, sound
from generator.tune.rate_fit import fit
from generator.tune.samples import Row, all_round, row_of, samples_of
from generator.tune.trial_selection import Trial
from generator.tune.winner_validation import DOUBTED, doubtful

DONE, FAULT = 0, 1


@dataclass
class Progress:
    """The trials of a call by their keys, and the outcomes so far."""

    keys: dict[str, Trial]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    #: Whether a worker has lost its device or has died: no more trials are sent.
    lost: bool = False

    @property
    def left(self) -> list[str]:
        """The keys of the trials that have no outcome, in the order of the plan."""
        return [key for key in self.keys if key not in self.outcomes]


def progress_of(trials: Sequence[Trial], facts: trial_worker.Facts, journal: Journal) -> Progress:
    """The trials on the device of `facts`, with the outcomes that are in the journal."""
    keys = {trial.key(trial_worker.method_of(trial), facts.environment): trial for trial in trials}
    recorded = journal.outcomes
    return Progress(keys, {key: recorded[key] for key in keys if key in recorded})


def hand_out(
    progress: Progress,
    executor: Executor,
    journal: Journal,
    place: winners.Place,
    workers: int,
    until: float,
    factory: str = trial_worker.CUDA,
) -> None:
    """Measure the remaining trials, `workers` at a time, until `time.monotonic()` reaches `until` or a worker is lost.

    It then waits for the trials that are running. If it is interrupted, it sends no more trials and does not wait.
    """
    waiting = progress.left
    count, total = 0, len(waiting)
    running: dict[Future[Outcome], str] = {}
    try:
        while True:
            while waiting and len(running) < workers and not progress.lost and time.monotonic() < until:
                key = waiting.pop(0)
                if _of_another_run(progress, journal, key):
                    continue
                try:
                    running[executor.submit(trial_worker.run, progress.keys[key], factory)] = key
                except RuntimeError as error:
                    # A pool with a dead process accepts no more trials.
                    print(f"tune: {error}", file=sys.stderr)
                    progress.lost = True
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                trial = progress.keys[key]
                outcome = replace(_outcome(future), whole=trial.whole)
                progress.outcomes[key] = outcome
                progress.lost |= outcome.lost is not None
                journal.append(key, f"{trial.family}/{_about(trial)}", outcome, place, trial.digests)
                count += 1
                print(f"[{count}/{total}] {_about(trial)}: {_told(outcome)}", file=sys.stderr, flush=True)
    finally:
        for future in running:
            future.cancel()


def _of_another_run(progress: Progress, journal: Journal, key: str) -> bool:
    """Take the outcome that another run has written to the journal meanwhile, if there is one."""
    journal.refresh()
    found = journal.outcome(key)
    if found is not None:
        progress.outcomes[key] = found
    return found is not None


def _outcome(future: Future[Outcome]) -> Outcome:
    """The outcome that a worker returned; if it raised or died, an outcome that is lost."""
    try:
        return sound(future.result())
    except Exception as error:
        return Outcome(lost=reason(error))


def _about(trial: Trial) -> str:
    return f"{trial.contract} {trial.problem.shape}"


def _told(outcome: Outcome) -> str:
    """An outcome in a few words."""
    words = [f"FAULT {found.kernel} {_row(found.config)}: {found.reason}" for found in outcome.faults]
    if outcome.lost is not None:
        words.append(f"LOST: {outcome.lost}")
    elif outcome.winner is None:
        words.append("no candidate has a right result")
    else:
        winner = outcome.winner
        against = "" if winner.library_seconds is None else f", ratio {winner.library_seconds / winner.seconds:.3f}"
        how = winner.kernel.partition("__")[2]
        words.insert(0, f"{how} {_row(winner.config)}, {winner.seconds * 1e6:.4g} µs{against}")
    if outcome.regret is not None:
        words.insert(1, f"regret {outcome.regret:.1%}")
    return "; ".join(words)


def _row(config: Mapping[str, int] | None) -> str:
    return "" if config is None else f"[{tile(config)}]"


def check(files: Mapping[str, Path], place: winners.Place, families: Families) -> dict[str, winners.Winners]:
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
    place: winners.Place,
    families: Families,
    device: devices.Device,
    *,
    smallest: bool = False,
    shapes: Sequence[Shape] = (),
) -> int:
    """Merge the winners of each family into its file, print what was dropped, and return the exit status.

    It is 1 if no winner of a family stands in the journal; why is printed. What other runs write to the file meanwhile
    is merged too.

    With `smallest`, only the smallest portfolio is written (`pruning`): of all configurations in the journal if the
    file chooses what the family has (`select: fastest`), also for `shapes`, where the model stands in for measurements.

    All measurements of a size in the journal count, whichever call made them, except those of sizes drawn to be unseen
    (`generator.bench.sampled_sizes`). Of several winners the one with the highest ratio to torch's product, which was
    timed beside each, is taken; without such a time, the fastest one. Of groups it is the winner for equal ones, or
    what all measured routings of the size call for (`samples.all_round`); rates are fitted to equal groups.

    Two kinds of winners are left out, so that the fitted cost model chooses there: those that `winner_validation`
    doubts, and those of sizes at which only some of a contract's kernels were measured, unless they are faster than the
    winner that the file has.

    Raises what `check` raises, `CallError` for kernels that are not rendered, and `FileError` for a file that cannot be
    written.
    """
    check(files, place, families)
    statuses = [
        _write(_Family(families, name, place, device), journal, files[name], smallest=smallest, shapes=shapes)
        for name in families.known
    ]
    return max(statuses, default=DONE)


@dataclass(frozen=True)
class _Family:
    """A family whose winners are chosen, with the place and the device of their measurements."""

    families: Families
    name: str
    place: winners.Place
    device: devices.Device

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
    told = f"has {counts.total()} outcomes: " if counts else "has no outcome"
    reasons = "; ".join(f"{count} {reason}" for reason, count in counts.most_common())
    print(
        f"tune: {path}: no winner of the family {family.name} stands in {journal.path}, which {told}{reasons}; "
        "tune without --again measures what is missing",
        file=sys.stderr,
    )
    return FAULT


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
    new: dict[tuple[str, tuple[int, ...]], Winner] = {}
    routed = list(samples_of(everything, variants))
    offered, samples = family.rows, [sample for sample in routed if sample.routing == EVEN]
    if smallest and families.known[name].spec.select == "fastest":
        offered |= {sample.row for sample in samples}
    won = [each.winner for each in standing if each.winner and _row_of(each.winner) in offered]
    complete = _complete(standing, families, name)
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
    fitted = fit(samples, device)
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


def _without_winner(family: _Family, journal: Journal) -> Counter[str]:
    """Why the outcomes of a journal have no winner that stands for a family, each with how many."""
    return Counter(_why_none(family, entry) for entry in journal.entries)


def _why_none(family: _Family, entry: Entry) -> str:
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


def _complete(standing: Iterable[Outcome], families: Families, name: str) -> set[tuple[str, tuple[int, ...]]]:
    """The contracts and sizes at which every kernel was a candidate: of one trial, or timed in several."""
    found, timed = set(), dict[tuple[str, tuple[int, ...]], set[str]]()
    for each in standing:
        if each.winner is not None:
            place = each.winner.place
            measured = timed.setdefault(place, set())
            measured |= {time.kernel for time in each.times}
            if each.whole or measured.issuperset(k.name for k in families.known[name].contracts[place[0]]):
                found.add(place)
    return found


def _is_of_unseen(outcome: Outcome) -> bool:
    return outcome.winner is not None and is_unseen(outcome.winner.shape)


def _doubt(found: tuple[Winner, float]) -> str:
    winner, predicted = found
    return f"{winner.contract} {winner.shape}: {winner.seconds * 1e6:.4g} µs, predicted {predicted * 1e6:.4g} µs"


def _cost(winner: Winner) -> float:
    """The time relative to torch's product, if that was timed: clock rates differ between runs, and affect both."""
    return winner.seconds / winner.library_seconds if winner.library_seconds else winner.seconds


def rows_of(families: Families, name: str) -> frozenset[Row]:
    """Every configuration of a family's rendered kernels; raises `CallError` if one is not rendered."""
    return frozenset(
        row_of(each.kernel.partition("__")[0], each.kernel, config)
        for each in _contestants(families, name)
        for config in rows(each)
    )


def _row_of(winner: Winner) -> Row:
    return row_of(winner.contract, winner.kernel, winner.config)


def digests_of(families: Families, name: str) -> dict[str, str]:
    """The digests of the code of a family's rendered kernels; raises `CallError` if one is not rendered."""
    return {each.kernel: code_parts.of_file(each.file).timed for each in _contestants(families, name)}


def _contestants(families: Families, name: str) -> Iterator[Contestant]:
    """The rendered kernels of a family."""
    return (families.contestant(kernel, name, kernel.name) for kernel in families.known[name].kernels)


def status(progress: Progress) -> int:
    """Print the failures and how many trials remain; return the exit status."""
    faults = 0
    for key, outcome in progress.outcomes.items():
        about = _about(progress.keys[key])
        for found in outcome.faults:
            faults += 1
            print(f"tune: {about}: {found.kernel} {_row(found.config)}: {found.reason}", file=sys.stderr)
        if outcome.lost is not None:
            faults += 1
            print(f"tune: {about}: lost, and not tried again: {outcome.lost}", file=sys.stderr)
    if progress.left:
        print(
            f"tune: {len(progress.left)} of {len(progress.keys)} problems are left; repeat the call to go on",
            file=sys.stderr,
        )
    return FAULT if faults else DONE
