"""Hand trials to workers, keep each outcome in the journal as it comes, and write the winners at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from generator.bench.comparison_plan import Families
from generator.bench.markdown_tables import tile
from generator.bench.measure import reason
from generator.cost import analytic
from generator.emit import code_parts
from generator.language.errors import CallError
from generator.language.vocabulary import ELEMENTS
from generator.tune import trial_worker, winners
from generator.tune.journal import Journal
from generator.tune.outcome import Outcome, Winner
from generator.tune.rate_fit import Sample, fit, row_of
from generator.tune.trial_selection import Trial
from generator.tune.winner_validation import DOUBTED, doubtful

DONE, FAULT = 0, 1


@dataclass
class Progress:
    """The trials of a call with their keys, and what has become of them."""

    keys: dict[str, Trial]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    #: Whether a worker lost its device or its life: no more is handed out.
    lost: bool = False

    @property
    def left(self) -> list[str]:
        """The keys of the trials that have no outcome, in the order of the plan."""
        return [key for key in self.keys if key not in self.outcomes]


def known(trials: Sequence[Trial], facts: trial_worker.Facts, journal: Journal) -> Progress:
    """The trials on the device of `facts`, with the outcomes that the journal holds."""
    keys = {trial.key(trial_worker.METHOD, facts.environment): trial for trial in trials}
    held = journal.outcomes
    return Progress(keys, {key: held[key] for key in keys if key in held})


def hand_out(
    progress: Progress,
    executor: Executor,
    journal: Journal,
    place: winners.Place,
    workers: int,
    until: float,
    factory: str = trial_worker.CUDA,
) -> None:
    """Measure what is left, `workers` trials at a time, until the monotonic clock says `until` or a worker is lost.

    What is under way then is waited for. Interrupted, it hands out no more and leaves.
    """
    waiting = progress.left
    count, total = 0, len(waiting)
    running: dict[Future[Outcome], str] = {}
    try:
        while True:
            while waiting and len(running) < workers and not progress.lost and time.monotonic() < until:
                key = waiting.pop(0)
                try:
                    running[executor.submit(trial_worker.run, progress.keys[key], factory)] = key
                except RuntimeError as error:
                    # A pool whose process has died takes no more.
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


def _outcome(future: Future[Outcome]) -> Outcome:
    """What a worker came back with; one that raised, or died, is lost."""
    try:
        return future.result()
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
        words.append("nothing to choose from")
    else:
        winner = outcome.winner
        against = "" if winner.library_seconds is None else f", ratio {winner.library_seconds / winner.seconds:.3f}"
        how = winner.kernel.partition("__")[2]
        words.insert(0, f"{how} {_row(winner.config)}, {winner.seconds * 1e6:.4g} µs{against}")
    return "; ".join(words)


def _row(config: Mapping[str, int] | None) -> str:
    return "" if config is None else f"[{tile(config)}]"


def write(
    journal: Journal,
    files: Mapping[str, Path],
    place: winners.Place,
    families: Families,
    device: analytic.Device,
    *,
    checked: bool = False,
) -> None:
    """Merge the winners of each family into its file, and say what was dropped; with `checked` write nothing.

    All that the journal holds of a size counts, whichever call measured it: of several winners the one that is
    furthest ahead of the library, which was timed beside each, or else the fastest. A winner that is in doubt is left
    out, and one of a size that only some of a contract's kernels were measured at, so that the rates choose there.

    Raises `CallError` for a file that is something else or was measured elsewhere.
    """
    for name, path in files.items():
        old = winners.load(path, place)
        if checked:
            continue
        digests = digests_of(families, name)
        standing = list(journal.standing(place, digests))
        new: dict[tuple[str, tuple[int, ...]], Winner] = {}
        won = [(outcome.winner, outcome.whole) for outcome in standing if outcome.winner is not None]
        open_to_all = {winner.place for winner, whole in won if whole}
        for winner, _ in won:
            rival = new.get(winner.place)
            if winner.place in open_to_all and (rival is None or _cost(winner) < _cost(rival)):
                new[winner.place] = winner
        widths = {
            kernel.variant.contract: ELEMENTS[kernel.variant.dtype.a].bits // 8
            for kernel in families.known[name].kernels
        }
        samples = list(samples_of(standing, widths))
        fitted = fit(samples, place.multiprocessors)
        found, dropped = winners.merge(old, new.values(), fitted, digests)
        doubts = list(doubtful(families, name, found.winners, samples, found.fit.rates, device, place.triton))
        if doubts:
            found = winners.without(found, [winner for winner, _ in doubts])
            print(
                f"{path}: left out {len(doubts)} winners; a row not measured there promises {DOUBTED} times the speed"
            )
            print("  (--refine measures it):", *map(_doubt, doubts), sep="\n  ")
        if dropped:
            kernels = ", ".join(sorted({winner.kernel for winner in dropped}))
            print(f"{path}: dropped {len(dropped)} winners whose kernels have changed since: {kernels}")
        if not found.winners and not path.exists():
            continue
        winners.save(found, path)
        kept = sum(winner.place in new for winner in found.winners)
        print(f"{path}: {len(found.winners)} winners, {kept} of them in {journal.path}")


def _doubt(found: tuple[Winner, float]) -> str:
    winner, promised = found
    return f"{winner.contract} {winner.shape}: {winner.seconds * 1e6:.4g} µs, promised {promised * 1e6:.4g}"


def _cost(winner: Winner) -> float:
    """What orders winners of one size: clocks differ from run to run, and the library's with them."""
    return winner.seconds / winner.library_seconds if winner.library_seconds else winner.seconds


def samples_of(outcomes: Iterable[Outcome], widths: Mapping[str, int]) -> Iterator[Sample]:
    """The seconds of each row at each size, those of its last pass; `widths` are bytes of an element of A."""
    for outcome in outcomes:
        if outcome.winner is None or outcome.winner.contract not in widths:
            continue
        contract, sizes = outcome.winner.place
        for found in outcome.times:
            yield Sample(row_of(contract, found.kernel, found.config), sizes, widths[contract], found.seconds)


def digests_of(families: Families, name: str) -> dict[str, str]:
    """The digests of the code of a family's kernels as it is rendered now; those not rendered are not there."""
    found = {}
    for kernel in families.known[name].kernels:
        try:
            found[kernel.name] = code_parts.of_file(families.contestant(kernel, name, kernel.name).file).timed
        except CallError:
            continue
    return found


def status(progress: Progress) -> int:
    """Say what is left and what went wrong; the exit status."""
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
        print(f"tune: {len(progress.left)} of {len(progress.keys)} are left; the same call goes on", file=sys.stderr)
    return FAULT if faults else DONE
