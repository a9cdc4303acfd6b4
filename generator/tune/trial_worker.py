"""Measure a trial in the process that it is sent to: a quick pass over all, a longer one over the best, a second run.

Every pass times its candidates in the same rounds with torch's product, on random operands that outgrow the L2, as
bench does; results are checked against float64 before and after. The second run has operands and graphs of its own;
what the contract's function chooses takes part in it, if the trial asks for that.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from generator.bench import measure
from generator.bench.comparison_plan import Contestant
from generator.bench.competitor import Competitor, forced, function, peer_of, unforced
from generator.bench.device import MeasuredDevice, versions
from generator.bench.measure import DeviceLost, Session, TimedSide
from generator.bench.measurements import Side
from generator.bench.peers import set_precision
from generator.bench.random_operands import Operands
from generator.bench.stats import rounded
from generator.bench.workers import loaded
from generator.plan import devices
from generator.problem.grouping import EVEN
from generator.problem.product import Problem
from generator.tune.outcome import Chosen, ConfirmedWinner, Timed, TrialFailure, TrialOutcome, sound
from generator.tune.trial_selection import Candidate, Trial

#: The device of a worker, as `loaded` finds it.
CUDA = "generator.bench.device:CudaDevice"

#: Seconds of a sample, and how many sets of operands are compared: enough where a kernel is checked by bench too.
_SAMPLE = 1e-3
_CHECKED = 4
#: Another seed than bench's, and one for the second run.
_SEEDS = (31, 32)


@dataclass(frozen=True)
class Pass:
    """How many go into a pass, the rounds that count, and those before them."""

    stage: str
    entrants: int | None
    rounds: int
    warm: int


QUICK = Pass("quick", None, 3, 1)
AGAIN = Pass("again", 3, 8, 1)
CONFIRM = Pass("confirm", 2, 15, 3)
#: The pass after the first if a trial has all configurations, of which many may be close.
WIDE = Pass("again", 8, 8, 1)

#: Candidates that are recorded at a time, and the bytes of their partial sums, which a graph keeps in memory.
_TOGETHER = 32
_TOGETHER_BYTES = 8 * 10**9

#: What of the method an outcome depends on.
METHOD: Mapping[str, Any] = {
    "version": 1,
    "sample_us": round(_SAMPLE * 1e6),
    "passes": [[each.stage, each.entrants, each.rounds] for each in (QUICK, AGAIN, CONFIRM)],
}


def method_of(trial: Trial) -> Mapping[str, Any]:
    """What of the method the outcome of this trial depends on."""
    return METHOD if trial.function is None else {**METHOD, "wide": [WIDE.entrants, WIDE.rounds]}


@dataclass(frozen=True)
class Facts:
    """What a worker's device is, for a process that may have none."""

    figures: devices.Device
    #: All that a time depends on besides the kernel.
    environment: Mapping[str, str | int]


def describe(factory: str = CUDA) -> Facts:
    """The device of this process; raises what making it raises."""
    device = _device(factory)
    return Facts(device.figures, {**versions(), **device.environment})


@functools.cache
def _device(factory: str) -> MeasuredDevice:
    device: MeasuredDevice = loaded(factory)()
    return device


def run(trial: Trial, factory: str = CUDA) -> TrialOutcome:
    """The outcome of a trial on the device of this process; raises what making that device raises."""
    device = _device(factory)
    notes = _Notes()
    winner = None
    try:
        try:
            set_precision(trial.problem)
            best = _heats(trial, device, notes)
            winner = _final(trial, device, best, notes) if best else None
        except DeviceLost:
            raise
        except Exception as error:
            # What no candidate is to blame for, such as no memory for the operands.
            measure.survive(device, error)
            notes.failures.append(TrialFailure(trial.contract, None, measure.reason(error)))
        device.free()
    except DeviceLost as lost:
        return notes.outcome(None, str(lost))
    return notes.outcome(winner)


def functions(problem: Problem, contestants: Sequence[Contestant], factory: str = CUDA) -> tuple[float | None, ...]:
    """Median seconds of calls of public functions, and of torch's product last, in the same rounds; None if it failed.

    Raises `DeviceLost` if the device, or the process that uses it, is lost.
    """
    device = _device(factory)
    set_precision(problem)
    session = Session(problem, device, seed=_SEEDS[1], sample=_SAMPLE, checked=_CHECKED, host=False)
    sides = [*map(unforced, contestants), peer_of(problem, "cublas")]
    entries = measure.run(session, sides, CONFIRM.rounds, warm=CONFIRM.warm)
    timed = [_Entrant(None, side, entry) for side, entry in zip(sides, entries)]
    found = tuple(each.median if each.side.failure is None else None for each in timed)
    device.free()
    return found


@dataclass
class _Entrant:
    """A candidate in one session; where `candidate` is None, the library or the contract's function."""

    candidate: Candidate | None
    competitor: Competitor
    entry: TimedSide | None

    @property
    def side(self) -> Side:
        return self.competitor.side

    @property
    def median(self) -> float:
        """The median seconds of a call in the last pass; infinite if a sample is no time, such as NaN."""
        assert self.entry is not None
        whole = all(0 < sample < math.inf for sample in self.entry.gpu)
        return statistics.median(self.entry.gpu) if whole else math.inf


@dataclass
class _Notes:
    """What the passes over a trial come to, as they go on."""

    #: The rows that were timed, by kernel and index, each with the seconds of the last pass that it was in.
    times: dict[tuple[str, int], Timed] = field(default_factory=dict)
    failures: list[TrialFailure] = field(default_factory=list)
    library: str | None = None
    chosen: Chosen | None = None

    def failed(self, entrant: _Entrant) -> None:
        side = entrant.side
        assert side.failure is not None
        config = None if entrant.candidate is None else entrant.candidate.config
        self.failures.append(TrialFailure(side.name, config, side.failure, side.refused))

    def outcome(self, winner: ConfirmedWinner | None, lost: str | None = None) -> TrialOutcome:
        times, failures = tuple(self.times.values()), tuple(self.failures)
        return sound(TrialOutcome(times, failures, winner, self.library, lost, chosen=self.chosen))


def _enter(session: Session, competitor: Competitor, candidate: Candidate | None = None) -> _Entrant:
    """A side, compiled, recorded and checked."""
    entry = session.prepare(competitor) if competitor.side.failure is None else None
    return _Entrant(candidate, competitor, entry)


def _enter_all(session: Session, candidates: Sequence[Candidate]) -> list[_Entrant]:
    return [_enter(session, forced(each.contestant, each.index), each) for each in candidates]


def _enter_library(session: Session, trial: Trial) -> _Entrant:
    return _enter(session, peer_of(trial.problem, "cublas"))


def _heats(trial: Trial, device: MeasuredDevice, notes: _Notes) -> list[Candidate]:
    """The first two passes: the best candidates, at most as many as the last pass takes."""
    session = Session(trial.problem, device, seed=_SEEDS[0], sample=_SAMPLE, checked=_CHECKED, host=False)
    library = _enter_library(session, trial)
    if library.entry is None:
        notes.failed(library)
    again = AGAIN if trial.function is None else WIDE
    left: list[_Entrant] = []
    for number, group in enumerate(groups_of(trial)):
        if number:
            device.free()
        left = _quick(session, left, group, library, notes)[: again.entrants]
    _rounds(session, again, left, library, notes)
    left.sort(key=lambda entrant: entrant.median)
    # A candidate whose result is wrong after the rounds cannot win.
    kept = []
    for entrant in left:
        assert entrant.candidate is not None and entrant.entry is not None
        entrant.competitor.side = session.finish(entrant.entry)
        if entrant.side.failure is None:
            kept.append(entrant.candidate)
        else:
            notes.failed(entrant)
    return kept[: CONFIRM.entrants]


def groups_of(trial: Trial) -> list[list[Candidate]]:
    """The candidates in their order, in groups that are recorded at a time."""
    groups: list[list[Candidate]] = []
    held = 0
    for each in trial.candidates:
        sums = 4 * each.config.get("SPLIT", 0) * trial.problem.shape.m * trial.problem.columns
        if not groups or len(groups[-1]) == _TOGETHER or held + sums > _TOGETHER_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(each)
        held += sums
    return groups


def _quick(
    session: Session, left: list[_Entrant], candidates: Sequence[Candidate], library: _Entrant, notes: _Notes
) -> list[_Entrant]:
    """The quick pass over the best so far and further candidates: all that can be timed, the fastest first."""
    entered = _enter_all(session, candidates)
    for each in entered:
        if each.entry is None:
            notes.failed(each)
    found = [*left, *(each for each in entered if each.entry is not None)]
    _rounds(session, QUICK, found, library, notes)
    return sorted(found, key=lambda entrant: entrant.median)


@dataclass(frozen=True)
class _Choice:
    """The kernel and configuration that a contract's function runs."""

    kernel: str
    config: Mapping[str, int]
    #: The candidate that this is; None if the function's own call is to be timed (`Chosen.called`).
    candidate: Candidate | None


def _choice(trial: Trial, operands: Operands) -> _Choice | None:
    """What the contract's function runs with these operands, if the trial asks for it; nothing is launched."""
    if trial.function is None:
        return None
    gemm: Any = function(trial.function)
    kernel, config = gemm.which(operands.a, operands.b, out=operands.out, **operands.keywords)
    copier, _, _ = gemm.step(operands.a, operands.b, operands.out, operands.keywords)
    same = (c for c in trial.candidates if (c.contestant.kernel, c.config) == (kernel, config))
    return _Choice(kernel, config, next(same, None) if copier is None else None)


def _final(trial: Trial, device: MeasuredDevice, best: list[Candidate], notes: _Notes) -> ConfirmedWinner | None:
    """The last pass, in a new session: the winner, or None if no candidate has a right result."""
    device.free()
    session = Session(trial.problem, device, seed=_SEEDS[1], sample=_SAMPLE, checked=_CHECKED, host=False)
    choice = _choice(trial, session.sets[0])
    if choice is not None and choice.candidate is not None and choice.candidate not in best:
        best = [*best, choice.candidate]
    ours, library = _enter_all(session, best), _enter_library(session, trial)
    called = []
    if choice is not None and choice.candidate is None and trial.function is not None:
        called = [_enter(session, unforced(trial.function))]
    timed = [*ours, *called]
    _rounds(session, CONFIRM, [each for each in timed if each.entry is not None], library, notes)
    for entrant in (*timed, library):
        if entrant.entry is not None:
            entrant.competitor.side = session.finish(entrant.entry)
        if entrant.side.failure is not None:
            notes.failed(entrant)
    right = sorted((each for each in ours if each.side.failure is None), key=lambda entrant: entrant.median)
    if choice is not None:
        for each in called or right:
            if each.candidate == choice.candidate and each.side.failure is None:
                notes.chosen = Chosen(choice.kernel, dict(choice.config), rounded(each.median), bool(called))
    if not right:
        return None
    first, *rest = [_timed(entrant) for entrant in right]
    shape = trial.problem.shape
    *products, m, n, k = shape.sizes
    return ConfirmedWinner(
        trial.contract,
        m,
        n,
        k,
        first.kernel,
        first.config,
        first.seconds,
        None if library.side.failure is not None else rounded(library.median),
        rest[0] if rest else None,
        products[0] if products else 0,
        bool(shape.groups),
        shape.routing or EVEN,
        shape.inner,
    )


def _rounds(session: Session, each: Pass, ours: list[_Entrant], library: _Entrant, notes: _Notes) -> None:
    """Time the entrants anew in the same rounds, and note what each candidate took."""
    timed = [entrant for entrant in (*ours, library) if entrant.entry is not None]
    entries = [entrant.entry for entrant in timed if entrant.entry is not None]
    for entry in entries:
        entry.gpu.clear()
    session.rounds(entries, each.rounds, warm=each.warm)
    if library.entry is not None:
        notes.library = library.side.name
    for entrant in timed:
        if entrant.candidate is not None:
            notes.times[entrant.side.name, entrant.candidate.index] = _timed(entrant)


def _timed(entrant: _Entrant) -> Timed:
    assert entrant.candidate is not None
    return Timed(entrant.side.name, dict(entrant.candidate.config), rounded(entrant.median))
