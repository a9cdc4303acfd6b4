"""Measure one comparison: check each side against float64, time all sides in the same rounds, then check again.

A side is a kernel, a function of a contract, or a peer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from generator.bench import check, random_operands, stats
from generator.bench.comparison_plan import Comparison
from generator.bench.competitor import Competitor, competitors
from generator.bench.device import CudaDevice, reason, timed
from generator.bench.measurements import TIMED, ComparisonRecord, Timing, compared, digest_of
from generator.bench.peers import Launch, set_precision
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
    """How to measure: the number of rounds, and `select` or `all` configurations of each kernel.

    Rounds end early once they have taken `seconds`.
    """

    rounds: int = 40
    configs: str = "select"
    seconds: float | None = None

    def method(self, peers: Sequence[str]) -> dict[str, str | int]:
        """The properties of the method that times depend on."""
        return {
            "version": METHOD,
            "rounds": self.rounds,
            "sample_us": round(_SAMPLE * 1e6),
            "configs": self.configs,
            "peer": ",".join(peers) or "none",
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
    return digest_of([comparison.case, work, sides, environment, options.method(comparison.peers)])


def measure(comparison: Comparison, device: CudaDevice, environment: str, options: Options) -> ComparisonRecord:
    """The record of `comparison`; raises `DeviceLost` if the device does not work any more.

    A side that raises an exception or has a wrong result is recorded with its failure and has no times.
    """
    set_precision(comparison.problem)
    entrants = competitors(comparison, options.configs)
    sets = 0
    try:
        session = Session(comparison.problem, device)
        sets = len(session.sets)
        run(session, entrants, options.rounds, options.seconds)
    except DeviceLost:
        raise
    except Exception as error:
        # An error that no single side causes, such as too little memory for the operands.
        survive(device, error)
        for each in entrants:
            each.fail(reason(error))
    sides = tuple(each.side for each in entrants)
    samples = [{word: getattr(each, word) for word in TIMED} if each.right else {} for each in entrants]
    return ComparisonRecord(
        key(comparison, environment, options),
        comparison.case,
        comparison.title,
        comparison.problem,
        environment,
        {**options.method(comparison.peers), "sets": sets},
        compared(sides, samples),
    )


def run(
    session: Session, compared: Sequence[Competitor], rounds: int, seconds: float | None = None, warm: int | None = None
) -> None:
    """Prepare sides, time those that can be in the same rounds, and check them again; each keeps its outcome."""
    for each in compared:
        session.prepare(each)
    session.rounds([each for each in compared if each.right], rounds, seconds, warm)
    for each in compared:
        session.finish(each)


def survive(device: CudaDevice, error: Exception) -> None:
    """Raise `DeviceLost` if the device does not work after `error`."""
    try:
        device.synchronize()
    except Exception:
        raise DeviceLost(reason(error)) from error


class Session:
    """The operand sets of one problem with their expected results, and the device.

    A sample takes at least about `sample` seconds. If `checked` is given, only the results of so many sets are checked.
    If `host` is False, calls by the host are neither timed nor checked. A sample may have `short_of` times fewer calls
    than that, if the first estimate was high.
    """

    def __init__(
        self,
        problem: Problem,
        device: CudaDevice,
        *,
        seed: int = _SEED,
        sample: float = _SAMPLE,
        checked: int | None = None,
        host: bool = True,
        short_of: float = 1.2,
    ) -> None:
        self.problem = problem
        self.device = device
        self.sample = sample
        self.short_of = short_of
        self.host = host
        count = random_operands.count_sets(problem, device.l2_bytes)
        self.sets = random_operands.make_sets(problem, device.name, count, seed)
        generator = torch.Generator().manual_seed(seed)
        self.expected = [check.expect(problem, each, generator) for each in self.sets[:checked]]

    def prepare(self, each: Competitor) -> None:
        """Compile, record and check a side; if it cannot be timed, its failure says why."""
        if not each.right:
            return
        try:
            each.launch(self.sets[0], self.sets[0].out)
            self.device.synchronize()
            each.side = replace(each.side, **each.ran(self.sets[0]))
            self._record(each)
            self._check(each)
        except Exception as error:
            # A launcher raises ValueError for what it refuses; a configuration may be too large for the device.
            too_large = each.side.forced and type(error).__name__ == "OutOfResources"
            each.fail(reason(error), refused=isinstance(error, ValueError) or too_large)
            survive(self.device, error)

    def _record(self, each: Competitor) -> None:
        """Choose the number of calls in a sample, and record them over the sets in turn."""
        launch, count = each.launch, len(self.sets)
        run = functools.partial(_run, launch, self.sets, each.returned)
        calls, replay = 1, self.device.record(functools.partial(run, 1))
        # The time of a single short call includes the launch of its replay: repeat with the time of many calls.
        for _ in range(2):
            times = [timed(self.device, replay)[0] for _ in range(3)]
            if not all(0 <= seconds < math.inf for seconds in times):
                raise RuntimeError(f"measured times of {times} seconds")
            wanted = calls_for(min(times) / calls, count, self.sample)
            if wanted <= self.short_of * calls:
                break
            calls, replay = wanted, self.device.record(functools.partial(run, wanted))
        each.replay, each.replayed = replay, calls
        if not self.host:
            return
        # The first five calls are slow, because the allocator has no memory yet; the second five are used.
        for _ in range(2):
            begin = self.device.clock()
            for number in range(5):
                launch(self.sets[number % count], None)
            self.device.synchronize()
            by_host = max((self.device.clock() - begin) / 5, 1e-9)
        each.called = min(_MOST_QUEUED, max(1, math.ceil(self.sample / by_host)))

    def _check(self, each: Competitor) -> None:
        """Note the error of a side: poison all outputs, run one replay, and check each output that it writes."""
        try:
            for result, expected in self._outputs(each):
                verdict = check.judge(self.problem, result, expected)
                error = max(each.side.error or 0.0, verdict.error)
                # JSON has no NaN and no infinity; the failure states them.
                shown = stats.rounded(error, 3) if math.isfinite(error) else None
                each.side = replace(each.side, error=shown, tolerance=stats.rounded(verdict.tolerance, 3))
                if verdict.fault is not None:
                    each.fail(verdict.fault)
                    return
        except Fault as fault:
            each.fail(f"wrong result: {fault}")

    def _outputs(self, each: Competitor) -> list[tuple[torch.Tensor, check.Expected]]:
        """The results of one more replay and of the last plain call, each with its expected value."""
        assert each.replay is not None

        def left(index: int) -> list[torch.Tensor]:
            return self._results(each.returned[index], None if each.fresh else self.sets[index].out)

        for place in each.returned:
            for result in left(place):
                poison(result)
        each.replay.run()
        self.device.synchronize()
        # A replay without a graph may return new tensors, not those that were poisoned.
        pairs = [(left(place), expected) for place, expected in enumerate(self.expected[: each.replayed])]
        if each.last is not None:
            # The plain calls are timed, too, so their results are checked.
            pairs.append((self._results(each.last), self.expected[(each.called - 1) % len(self.sets)]))
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
        tensors = [result if out is None else out, *beside]
        for each in tensors:
            if not isinstance(each, torch.Tensor):
                raise Fault(f"a call returned {type(each).__name__}, not a tensor")
        return tensors

    def rounds(
        self, sides: Sequence[Competitor], count: int, seconds: float | None = None, warm: int | None = None
    ) -> None:
        """Sample every side in each of `count` rounds, after `warm` uncounted rounds, for about `seconds` at most."""
        begin = 0.0 if seconds is None else self.device.clock()

        def over(part: float) -> bool:
            return seconds is not None and self.device.clock() - begin > part * seconds

        turn = -(_WARM_ROUNDS if warm is None else warm)
        while turn < count and sides:
            self._round([sides[index] for index in stats.rotation(len(sides), turn)], counts=turn >= 0)
            turn += 1
            if turn < 0 and over(_WARM_PART):
                turn = 0
            if turn >= _FEWEST_ROUNDS and over(1):
                return

    def _round(self, order: list[Competitor], *, counts: bool) -> None:
        replays = [each.replay for each in order if each.replay is not None]
        for each, seconds in zip(order, timed(self.device, *replays), strict=True):
            call, host = self._call(each) if self.host else (0.0, 0.0)
            if counts:
                each.gpu.append(seconds / each.replayed)
            if counts and self.host:
                each.call.append(call / each.called)
                each.host.append(host / each.called)

    def _call(self, each: Competitor) -> tuple[float, float]:
        """Seconds of `called` plain calls from an idle device: until they are done, until the host has queued them."""
        launch, count, clock = each.launch, len(self.sets), self.device.clock
        self.device.synchronize()
        begin = clock()
        for number in range(each.called):
            each.last = launch(self.sets[number % count], None)
        queued = clock()
        self.device.synchronize()
        return clock() - begin, queued - begin

    def finish(self, each: Competitor) -> None:
        """Give a side its times, after another check of the results in the buffers that were timed."""
        if not each.right:
            return
        self._check(each)
        if not each.right:
            each.fail(f"{each.side.failure} (right at first, wrong after the rounds)")
            return
        for word in TIMED:
            wrong = [sample for sample in getattr(each, word) if not 0 < sample < math.inf]
            if wrong:
                each.fail(f"a measured time is {wrong[0]!r} seconds ({word})")
                return
        assert each.replay is not None
        each.side = replace(
            each.side,
            gpu=_timing(each.replay.method, each.replayed, each.gpu),
            call=_timing("calls", each.called, each.call) if self.host else None,
            host=_timing("calls", each.called, each.host) if self.host else None,
        )


def calls_for(seconds: float, sets: int, sample: float = _SAMPLE) -> int:
    """The number of calls of `seconds` each in a sample of at least `sample` seconds.

    It is rounded up to a multiple of `sets`, unless that is over `_MOST_CALLS` calls or takes over ten times as long.
    """
    calls = min(_MOST_CALLS, max(1, math.ceil(sample / max(seconds, 1e-9))))
    multiple = math.ceil(calls / sets) * sets
    return multiple if multiple <= _MOST_CALLS and multiple * seconds <= 10 * sample else calls


def _run(launch: Launch, sets: list[Operands], returned: dict[int, Any], calls: int) -> None:
    """Call a side on the sets in turn, and put its results for each set into `returned`."""
    for call in range(calls):
        each = call % len(sets)
        returned[each] = launch(sets[each], sets[each].out)


def _timing(method: str, calls: int, seconds: list[float]) -> Timing:
    return Timing.of(method, calls, [sample * 1e6 for sample in seconds])
