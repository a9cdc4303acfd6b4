"""Send trials to workers, and append each outcome to the journal at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path

from generator.bench.device import reason
from generator.bench.results_report import tile
from generator.files.updating import put
from generator.tune import trial_worker, winners
from generator.tune.journal import Journal, JournalEntry
from generator.tune.outcome import TrialOutcome
from generator.tune.trial_selection import Trial

DONE, FAULT = 0, 1


@dataclass
class Progress:
    """The trials of a call by their keys, and the journal that has the outcomes so far."""

    keys: dict[str, Trial]
    journal: Journal
    #: Whether a worker has lost its device or has died: no more trials are sent.
    lost: bool = False

    @property
    def done(self) -> dict[str, TrialOutcome]:
        """The outcomes so far, in the order of the plan."""
        return {key: self.journal.kept[key].outcome for key in self.keys if key in self.journal.kept}

    @property
    def left(self) -> list[str]:
        """The keys of the trials that have no outcome, in the order of the plan."""
        return [key for key in self.keys if key not in self.journal.kept]


def hand_out(
    progress: Progress,
    executor: Executor,
    source: winners.MeasurementSource,
    workers: int,
    until: float,
    factory: str,
) -> None:
    """Measure the remaining trials, `workers` at a time, until `time.monotonic()` reaches `until` or a worker is lost.

    It then waits for the trials that are running. If it is interrupted, it sends no more trials and does not wait.
    """
    journal, waiting = progress.journal, progress.left
    count, total = 0, len(waiting)
    running: dict[Future[TrialOutcome], str] = {}
    try:
        while True:
            while waiting and len(running) < workers and not progress.lost and time.monotonic() < until:
                key = waiting.pop(0)
                journal.refresh()
                if key in journal.kept:
                    # Another run has measured it meanwhile.
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
                progress.lost |= outcome.lost is not None
                journal.append(key, f"{trial.family}/{_about(trial)}", outcome, source, trial.digests)
                count += 1
                print(f"[{count}/{total}] {_about(trial)}: {_described(outcome)}", file=sys.stderr, flush=True)
    finally:
        for future in running:
            future.cancel()


def write_regret(progress: Progress, path: Path) -> list[JournalEntry]:
    """Write the lines of the journal that have the regret of a trial, sorted, to a file, and return what they say.

    Sizes without a time of the choice or of a candidate are left out; if all are, why is printed and nothing written.
    """
    done, trials = progress.done, progress.keys
    keys = [key for key, outcome in done.items() if outcome.regret is not None]
    if not keys:
        measured = f"{len(done)} of {len(trials)} problems were measured"
        print(f"tune: --regret: no size has times of the choice and of a candidate; {measured}", file=sys.stderr)
        return []
    keys.sort(key=lambda x: (trials[x].family, trials[x].contract, trials[x].problem.shape.sizes))
    entries = [progress.journal.kept[key] for key in keys]
    put(path, "".join(entry.line(key) for key, entry in zip(keys, entries)))
    return entries


def _outcome(future: Future[TrialOutcome]) -> TrialOutcome:
    """The outcome that a worker returned; if it raised or died, an outcome that is lost."""
    try:
        return future.result()
    except Exception as error:
        return TrialOutcome(lost=reason(error))


def _about(trial: Trial) -> str:
    return f"{trial.contract} {trial.problem.shape}"


def _described(outcome: TrialOutcome) -> str:
    """An outcome in a few words."""
    words = [f"FAULT {fault.kernel} {_row(fault.config)}: {fault.reason}" for fault in outcome.faults]
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


def status(progress: Progress) -> int:
    """Print the failures and how many trials remain; return the exit status."""
    faults = 0
    for key, outcome in progress.done.items():
        about = _about(progress.keys[key])
        for fault in outcome.faults:
            faults += 1
            print(f"tune: {about}: {fault.kernel} {_row(fault.config)}: {fault.reason}", file=sys.stderr)
        if outcome.lost is not None:
            faults += 1
            print(f"tune: {about}: lost, and not tried again: {outcome.lost}", file=sys.stderr)
    if left := progress.left:
        print(
            f"tune: {len(left)} of {len(progress.keys)} problems are left; repeat the call to go on",
            file=sys.stderr,
        )
    return FAULT if faults else DONE
