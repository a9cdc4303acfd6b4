"""Measure a trial in the process that it is sent to: a quick pass over all, a longer one over the best, a second run.

Every pass times its candidates in the same rounds with torch's product, on random operands that outgrow the L2, as
bench does; results are checked against float64 before and after. The second run has operands and graphs of its own;
what the contract's function chooses takes part in it, if the trial asks for that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from generator.bench import measure
from generator.bench.comparison_plan import Contestant
from generator.bench.competitor import Competitor, competitor, function, peer_of
from generator.bench.device import CudaDevice, reason, versions
from generator.bench.measure import DeviceLost, Session
from generator.bench.peers import set_precision
from generator.bench.random_operands import Operands
from generator.bench.stats import rounded
from generator.bench.workers import loaded
from generator.plan import devices
from generator.problem.product import Problem
from generator.tune.outcome import Chosen, ConfirmedWinner, Timed, TrialFailure, TrialOutcome
from generator.tune.trial_selection import Candidate, Trial
from generator.tune.winners import MeasurementSource

#: The device of a worker, as `loaded` finds it.
CUDA = "generator.bench.device:CudaDevice"

#: Seconds of a sample, and how many sets of operands are compared: enough where a kernel is checked by bench too.
_SAMPLE = 1e-3
_CHECKED = 4
#: The same where every configuration is measured, and how many times as many calls a sample may be short of.
_SHORT, _SHORT_OF = 3e-4, 3.0
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
    method = dict(METHOD) if trial.function is None else {**METHOD, "wide": [WIDE.entrants, WIDE.rounds]}
    return {**method, "short_us": round(_SHORT * 1e6)} if trial.short else method


@dataclass(frozen=True)
class Facts:
    """What a worker's device is, for a process that may have none."""

    figures: devices.Device
    #: All that a time depends on besides the kernel.
    environment: Mapping[str, str | int]

    @property
    def place(self) -> MeasurementSource:
        torch, triton = (str(self.environment[name]) for name in ("torch", "triton"))
        return MeasurementSource(self.figures.name, self.figures.multiprocessors, torch, triton)


def describe(factory: str = CUDA) -> Facts:
    """The device of this process; raises what making it raises."""
    device = _device(factory)
    return Facts(device.figures, {**versions(), **device.environment})


@functools.cache
def _device(factory: str) -> CudaDevice:
    device: CudaDevice = loaded(factory)()
    return device


def run(trial: Trial, factory: str = CUDA) -> TrialOutcome:
    """The outcome of a trial on the device of this process; raises what making that device raises."""
    device = _device(factory)
    passes = _Passes(trial, device)
    winner = lost = None
    try:
        try:
            set_precision(trial.problem)
            best = passes.heats()
            winner = passes.final(best) if best else None
        except DeviceLost:
            raise
        except Exception as error:
            # What no candidate is to blame for, such as no memory for the operands.
            measure.survive(device, error)
            passes.failures.append(TrialFailure(trial.contract, None, reason(error)))
        device.free()
    except DeviceLost as error:
        winner, lost = None, str(error)
    times, failures = tuple(passes.times.values()), tuple(passes.failures)
    return TrialOutcome(times, failures, winner, passes.library, lost, chosen=passes.chosen)


def functions(problem: Problem, contestants: Sequence[Contestant], factory: str = CUDA) -> tuple[float | None, ...]:
    """Median seconds of calls of public functions, and of torch's product last, in the same rounds; None if it failed.

    Raises `DeviceLost` if the device, or the process that uses it, is lost.
    """
    device = _device(factory)
    set_precision(problem)
    sides = [*map(competitor, contestants), peer_of(problem, "cublas")]
    measure.run(_session(problem, device, _SEEDS[1]), sides, CONFIRM.rounds, warm=CONFIRM.warm)
    medians = tuple(each.median if each.right else None for each in sides)
    device.free()
    return medians


def _session(problem: Problem, device: CudaDevice, seed: int, *, short: bool = False) -> Session:
    how = {"sample": _SHORT, "short_of": _SHORT_OF} if short else {"sample": _SAMPLE}
    return Session(problem, device, seed=seed, checked=_CHECKED, host=False, **how)


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


class _Passes:
    """The passes over a trial, and what they have come to so far."""

    def __init__(self, trial: Trial, device: CudaDevice) -> None:
        self.trial = trial
        self.device = device
        #: The configurations that were timed, by kernel and index, with the seconds of the last pass of each.
        self.times: dict[tuple[str, int | None], Timed] = {}
        self.failures: list[TrialFailure] = []
        #: The name of torch's product, if it was timed.
        self.library: str | None = None
        self.chosen: Chosen | None = None

    def heats(self) -> list[Candidate]:
        """The first two passes: the best candidates, at most as many as the last pass takes."""
        session = _session(self.trial.problem, self.device, _SEEDS[0], short=self.trial.short)
        library = peer_of(self.trial.problem, "cublas")
        self._right(session.prepare, library)
        again = AGAIN if self.trial.function is None else WIDE
        left: list[Competitor] = []
        for number, group in enumerate(groups_of(self.trial)):
            if number:
                self.device.free()
            # The best so far meet each further group in the same rounds.
            left += [each for each in map(_forced, group) if self._right(session.prepare, each)]
            self._rounds(session, QUICK, [*left, library])
            left = sorted(left, key=_median)[: again.entrants]
        self._rounds(session, again, [*left, library])
        # A candidate whose result is wrong after the rounds cannot win.
        right = [each for each in sorted(left, key=_median) if self._right(session.finish, each)]
        known = {(each.contestant.kernel, each.index): each for each in self.trial.candidates}
        return [known[each.side.name, each.side.index or 0] for each in right[: CONFIRM.entrants]]

    def final(self, best: Sequence[Candidate]) -> ConfirmedWinner | None:
        """The last pass, in a new session: the winner, or None if no candidate has a right result."""
        self.device.free()
        trial = self.trial
        session = _session(trial.problem, self.device, _SEEDS[1])
        ours, called = [*map(_forced, best)], list[Competitor]()
        if trial.function is not None:
            kernel, config, candidate = self._choice(trial.function, session.sets[0])
            if candidate is None:
                called = [competitor(trial.function)]
            elif candidate not in best:
                best = [*best, candidate]
                ours.append(_forced(candidate))
        library = peer_of(trial.problem, "cublas")
        sides = [each for each in (*ours, *called, library) if self._right(session.prepare, each)]
        self._rounds(session, CONFIRM, sides)
        for each in sides:
            self._right(session.finish, each)
        if trial.function is not None:
            side = called[0] if candidate is None else ours[best.index(candidate)]
            if side.right:
                self.chosen = Chosen(kernel, dict(config), rounded(side.median), bool(called))
        right = sorted((each for each in ours if each.right), key=_median)
        if not right:
            return None
        first, *others = map(_timed, right)
        how = first.kernel, first.config, first.seconds, rounded(library.median) if library.right else None
        return ConfirmedWinner(trial.contract, trial.problem.shape, *how, next(iter(others), None))

    def _choice(self, chooser: Contestant, operands: Operands) -> tuple[str, Mapping[str, int], Candidate | None]:
        """The kernel and configuration that the contract's function runs with these operands; nothing is launched.

        None instead of the candidate that this is, if the function's own call is to be timed (`Chosen.called`).
        """
        gemm: Any = function(chooser)
        kernel, config = gemm.which(operands.a, operands.b, out=operands.out, **operands.keywords)
        copier, *_ = gemm.step({"a": operands.a, "b": operands.b, "out": operands.out, **operands.keywords})
        same = (c for c in self.trial.candidates if (c.contestant.kernel, c.config) == (kernel, config))
        return kernel, config, next(same, None) if copier is None else None

    def _right(self, step: Callable[[Competitor], None], each: Competitor) -> bool:
        """Take a step of a session with a side, and note what is wrong; whether nothing is."""
        step(each)
        side = each.side
        if side.failure is not None:
            config = side.config if side.forced else None
            self.failures.append(TrialFailure(side.name, config, side.failure, side.refused))
        return side.failure is None

    def _rounds(self, session: Session, stage: Pass, sides: Sequence[Competitor]) -> None:
        """Time the sides anew in the same rounds, and note what each candidate took."""
        timed = [each for each in sides if each.right]
        for each in timed:
            each.gpu.clear()
        session.rounds(timed, stage.rounds, warm=stage.warm)
        for each in timed:
            if each.side.role == "peer":
                self.library = each.side.name
            elif each.side.forced and math.isfinite(each.median):
                self.times[each.side.name, each.side.index] = _timed(each)


def _forced(candidate: Candidate) -> Competitor:
    return competitor(candidate.contestant, candidate.index)


def _median(each: Competitor) -> float:
    return each.median


def _timed(each: Competitor) -> Timed:
    return Timed(each.side.name, dict(each.side.config or {}), rounded(each.median))
