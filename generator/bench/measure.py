"""Measure one comparison: check each side against float64, time all sides in the same rounds, then check again.

A side is a kernel, a function of a contract, or a peer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from generator.bench import check, random_operands, stats
from generator.bench.comparison_plan import Comparison
from generator.bench.competitor import Competitor, competitors, launches, row_of
from generator.bench.device import MeasuredDevice, Reading, Replay, timed
from generator.bench.measurements import TIMED, ComparisonRecord, Ratios, Side, Timing, digest_of, ratios_of
from generator.bench.peers import set_precision
from generator.bench.random_operands import Operands
from generator.problem.compare import Fault, results_of
from generator.problem.poisoned_operands import poison
from generator.problem.product import Problem

#: The version of the method: it changes whenever times before and after the change cannot be compared.
METHOD = 1

#: The least seconds of a sample, about: an event's resolution of half a microsecond is negligible against them.
_SAMPLE = 2e-3
#: Rounds that are not counted: the clock rates rise, and the allocator gets its memory.
_WARM_ROUNDS = 5
#: If the rounds have a time limit: the share of it for rounds that are not counted, and the least number of rounds that
#: are counted, whatever they take.
_WARM_PART = 0.25
_FEWEST_ROUNDS = 5
_MOST_CALLS = 2000
#: Fewer calls by the host than the launch queue holds: the host would wait while it is full.
_MOST_QUEUED = 256
_SEED = 20


@dataclass(frozen=True)
class Options:
    """How to measure: the number of rounds, `select` or `all` configurations of each kernel, the peers.

    Rounds end early once they have taken `seconds`.
    """

    rounds: int = 40
    configs: str = "select"
    peers: tuple[str, ...] = ("cublas",)
    seconds: float | None = None

    def of(self, comparison: Comparison) -> Options:
        """These options with the peers of the comparison, if it has its own."""
        return self if comparison.peers is None else replace(self, peers=comparison.peers)

    @property
    def method(self) -> dict[str, str | int]:
        """The properties of the method that times depend on."""
        return {
            "version": METHOD,
            "rounds": self.rounds,
            "sample_us": round(_SAMPLE * 1e6),
            "configs": self.configs,
            "peer": ",".join(self.peers) or "none",
            **({} if self.seconds is None else {"seconds": str(self.seconds)}),
        }


class DeviceLost(Exception):
    """The device does not work any more; no later result in this process can be trusted."""


def key(comparison: Comparison, environment: str, options: Options) -> str:
    """The digest of everything that the times of a comparison depend on."""
    problem = comparison.problem
    sides = [[c.label, c.family, c.kernel, c.digest] for c in comparison.contestants]
    work = [str(problem.shape), problem.dtype.word, problem.layout.word, problem.epilogue.word]
    work += ["symmetric"] * problem.symmetric
    return digest_of([comparison.case, work, sides, environment, options.method])


@dataclass
class TimedSide:
    """A side with its recorded replay, and its samples in seconds."""

    competitor: Competitor
    replay: Replay
    #: The number of calls in one replay, and of calls by the host in one sample.
    replayed: int
    called: int
    #: Replays; calls from an idle device until it is idle again; the same calls until the host has queued them.
    gpu: list[float] = field(default_factory=list)
    call: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    #: What the last plain call returned.
    last: Any = None
    #: What the calls of a replay return for each set.
    returned: dict[int, Any] = field(default_factory=dict)


def measure(comparison: Comparison, device: MeasuredDevice, environment: str, options: Options) -> ComparisonRecord:
    """The record of `comparison`; raises `DeviceLost` if the device does not work any more.

    A side that raises an exception or has a wrong result is recorded with its failure and has no times.
    """
    set_precision(comparison.problem)
    found = competitors(comparison, options.configs, options.peers)
    sets = 0
    ratios: Ratios = {}
    try:
        session = Session(comparison.problem, device)
        sets = len(session.sets)
        sides, ratios = _timed(session, found, options)
    except DeviceLost:
        raise
    except Exception as error:
        # An error that no single side causes, such as too little memory for the operands.
        survive(device, error)
        sides = [replace(competitor.side, failure=reason(error)) for competitor in found]
    return ComparisonRecord(
        key(comparison, environment, options),
        comparison.case,
        comparison.title,
        comparison.problem,
        environment,
        {**options.method, "sets": sets},
        tuple(sides),
        ratios,
    )


def run(
    session: Session, found: Sequence[Competitor], rounds: int, seconds: float | None = None, warm: int | None = None
) -> list[TimedSide | None]:
    """Prepare sides, time those that can be in the same rounds, and check them again; each has its outcome as `side`.

    In the order of `found`, with None for a side that could not be timed.
    """
    entries = [session.prepare(each) if each.side.failure is None else None for each in found]
    session.rounds([entry for entry in entries if entry is not None], rounds, seconds, warm)
    for each, entry in zip(found, entries):
        if entry is not None:
            each.side = session.finish(entry)
    return entries


def _timed(session: Session, found: list[Competitor], options: Options) -> tuple[list[Side], Ratios]:
    """The sides of a comparison with their times, in the order of `found`, and the ratios of the times."""
    entries = run(session, found, options.rounds, options.seconds)
    sides = [each.side for each in found]
    samples = [
        {word: getattr(entry, word) for word in TIMED} if entry is not None and side.failure is None else {}
        for side, entry in zip(sides, entries)
    ]
    return sides, ratios_of(sides, samples)


def survive(device: MeasuredDevice, error: Exception) -> None:
    """Raise `DeviceLost` if the device does not work after `error`."""
    try:
        device.synchronize()
    except Exception:
        raise DeviceLost(reason(error)) from error


class Session:
    """The operand sets of one problem with their expected results, and the device.

    A sample takes at least about `sample` seconds. If `checked` is given, only the results of so many sets are checked.
    If `host` is False, calls by the host are neither timed nor checked.
    """

    def __init__(
        self,
        problem: Problem,
        device: MeasuredDevice,
        *,
        seed: int = _SEED,
        sample: float = _SAMPLE,
        checked: int | None = None,
        host: bool = True,
    ) -> None:
        self.problem = problem
        self.device = device
        self.sample = sample
        self.host = host
        count = random_operands.count_sets(problem, device.l2_bytes)
        self.sets = random_operands.make_sets(problem, device.name, count, seed)
        generator = torch.Generator().manual_seed(seed)
        self.expected = [check.expect(problem, each, generator) for each in self.sets[:checked]]

    def prepare(self, competitor: Competitor) -> TimedSide | None:
        """Compile, record and check a side; None if it cannot be timed, which its failure explains."""
        side = competitor.side
        try:
            with launches() as seen:
                competitor.launch(self.sets[0], self.sets[0].out)
            self.device.synchronize()
            used = row_of(seen, competitor.rows) if not side.forced else None
            if used is not None:
                side = competitor.side = replace(side, index=used[0], config=used[1])
            if competitor.which is not None:
                kernel, config = competitor.which(self.sets[0])
                side = competitor.side = replace(side, kernel=kernel, config=dict(config) or None)
            entry = self._record(competitor)
            competitor.side = self._checked(entry)
        except Exception as error:
            # A launcher raises ValueError for what it refuses; a configuration may be too large for the device.
            too_large = side.forced and type(error).__name__ == "OutOfResources"
            refused = isinstance(error, ValueError) or too_large
            competitor.side = replace(side, failure=reason(error), refused=refused)
            survive(self.device, error)
            return None
        return entry if competitor.side.failure is None else None

    def _record(self, competitor: Competitor) -> TimedSide:
        """Choose the number of calls in a sample, and record them over the sets in turn."""
        launch, count = competitor.launch, len(self.sets)
        returned: dict[int, Any] = {}
        run = functools.partial(_run, competitor, self.sets, returned)
        calls, replay = 1, self.device.record(functools.partial(run, 1))
        # The time of a single short call includes the launch of its replay: repeat with the time of many calls.
        for _ in range(2):
            times = [timed(replay, self.device) for _ in range(3)]
            if not all(0 <= each < math.inf for each in times):
                raise RuntimeError(f"measured times of {times} seconds")
            wanted = calls_for(min(times) / calls, count, self.sample)
            if wanted <= 1.2 * calls:
                break
            calls, replay = wanted, self.device.record(functools.partial(run, wanted))
        if not self.host:
            return TimedSide(competitor, replay, calls, 0, returned=returned)
        # The first five calls are slow, because the allocator has no memory yet; the second five are used.
        for _ in range(2):
            begin = self.device.clock()
            for each in range(5):
                launch(self.sets[each % count], None)
            self.device.synchronize()
            by_host = max((self.device.clock() - begin) / 5, 1e-9)
        called = min(_MOST_QUEUED, max(1, math.ceil(self.sample / by_host)))
        return TimedSide(competitor, replay, calls, called, returned=returned)

    def _checked(self, entry: TimedSide) -> Side:
        """The side with its error: poison all outputs, run one replay, and check each output that it writes."""
        side = entry.competitor.side
        try:
            for result, expected in self._outputs(entry):
                verdict = check.judge(self.problem, result, expected)
                error = max(side.error or 0.0, verdict.error)
                side = replace(side, error=_finite(error), tolerance=stats.rounded(verdict.tolerance, 3))
                if verdict.fault is not None:
                    return replace(side, failure=verdict.fault)
        except Fault as fault:
            return replace(side, failure=f"wrong result: {fault}")
        return side

    def _outputs(self, entry: TimedSide) -> list[tuple[torch.Tensor, check.Expected]]:
        """The results of one more replay and of the last plain call, each with its expected value."""

        def left(each: int) -> list[torch.Tensor]:
            return self._results(entry.returned[each], None if entry.competitor.fresh else self.sets[each].out)

        for each in entry.returned:
            for result in left(each):
                poison(result)
        entry.replay.run()
        self.device.synchronize()
        # A replay without a graph may return new tensors, not those that were poisoned.
        pairs = [(left(each), expected) for each, expected in enumerate(self.expected[: entry.replayed])]
        if entry.last is not None:
            # The plain calls are timed, too, so their results are checked.
            pairs.append((self._results(entry.last), self.expected[(entry.called - 1) % len(self.sets)]))
        return [
            pair
            for results, expected in pairs
            for pair in zip(check.values_of(self.problem, results), expected, strict=True)
        ]

    def _results(self, returned: object, out: torch.Tensor | None = None) -> list[torch.Tensor]:
        """The results of a call: C, which is `out` if that was given, then the auxiliary outputs.

        Raises `Fault` for a value that is not a tensor.
        """
        result, beside = results_of(self.problem.epilogue, returned)
        found = [result if out is None else out, *beside]
        for each in found:
            if not isinstance(each, torch.Tensor):
                raise Fault(f"a call returned {type(each).__name__}, not a tensor")
        return found

    def rounds(
        self, entries: list[TimedSide], count: int, seconds: float | None = None, warm: int | None = None
    ) -> None:
        """Sample every side in each of `count` rounds, after `warm` uncounted rounds, for about `seconds` at most."""
        begin = 0.0 if seconds is None else self.device.clock()

        def over(part: float) -> bool:
            return seconds is not None and self.device.clock() - begin > part * seconds

        turn = -(_WARM_ROUNDS if warm is None else warm)
        while turn < count and entries:
            self._round([entries[index] for index in stats.rotation(len(entries), turn)], counts=turn >= 0)
            turn += 1
            if turn < 0 and over(_WARM_PART):
                turn = 0
            if turn >= _FEWEST_ROUNDS and over(1):
                return

    def _round(self, order: list[TimedSide], *, counts: bool) -> None:
        for entry, seconds in zip(order, sample_replays(order, self.device)):
            call, host = self._call(entry) if self.host else (0.0, 0.0)
            if counts:
                entry.gpu.append(seconds / entry.replayed)
            if counts and self.host:
                entry.call.append(call / entry.called)
                entry.host.append(host / entry.called)

    def _call(self, entry: TimedSide) -> tuple[float, float]:
        """Seconds of `called` plain calls from an idle device: until they are done, until the host has queued them."""
        launch, count, clock = entry.competitor.launch, len(self.sets), self.device.clock
        self.device.synchronize()
        begin = clock()
        for each in range(entry.called):
            entry.last = launch(self.sets[each % count], None)
        queued = clock()
        self.device.synchronize()
        return clock() - begin, queued - begin

    def finish(self, entry: TimedSide) -> Side:
        """The side with its times, after another check of the results in the buffers that were timed."""
        side = self._checked(entry)
        if side.failure is not None:
            return replace(side, failure=f"{side.failure} (right at first, wrong after the rounds)")
        for word in TIMED:
            wrong = [sample for sample in getattr(entry, word) if not 0 < sample < math.inf]
            if wrong:
                return replace(side, failure=f"a measured time is {wrong[0]!r} seconds ({word})")
        return replace(
            side,
            gpu=_timing(entry.replay.method, entry.replayed, entry.gpu),
            call=_timing("calls", entry.called, entry.call) if self.host else None,
            host=_timing("calls", entry.called, entry.host) if self.host else None,
        )


def sample_replays(order: Sequence[TimedSide], device: MeasuredDevice) -> list[float]:
    """Seconds of one replay of each side, queued one after the other without a pause.

    Another replay runs first and is not timed: the device is busy with it while the host queues the timed replays, so
    that no sample includes the launch of its own replay.
    """
    if order:
        order[-1].replay.run()
    readings: list[Reading] = [entry.replay.run() for entry in order]
    device.synchronize()
    return [reading() for reading in readings]


def calls_for(seconds: float, sets: int, sample: float = _SAMPLE) -> int:
    """The number of calls of `seconds` each in a sample of at least `sample` seconds.

    It is rounded up to a multiple of `sets`, unless that is over `_MOST_CALLS` calls or takes over ten times as long.
    """
    calls = min(_MOST_CALLS, max(1, math.ceil(sample / max(seconds, 1e-9))))
    multiple = math.ceil(calls / sets) * sets
    return multiple if multiple <= _MOST_CALLS and multiple * seconds <= 10 * sample else calls


def _run(competitor: Competitor, sets: list[Operands], returned: dict[int, Any], calls: int) -> None:
    """Call a side on the sets in turn, and put its results for each set into `returned`."""
    for call in range(calls):
        each = call % len(sets)
        returned[each] = competitor.launch(sets[each], sets[each].out)


def _timing(method: str, calls: int, seconds: list[float]) -> Timing:
    return Timing.of(method, calls, [sample * 1e6 for sample in seconds])


def _finite(error: float) -> float | None:
    """The error as JSON can represent it: None for NaN and infinity, which the failure states."""
    return stats.rounded(error, 3) if math.isfinite(error) else None


def reason(error: BaseException) -> str:
    """An exception on one line: the first line of its message, and the second if the first ends with a colon."""
    lines = str(error).strip().splitlines() or ["no message"]
    message = lines[0] if not lines[0].endswith(":") else " ".join(lines[:2])
    return f"{type(error).__name__}: {message}"[:300]
