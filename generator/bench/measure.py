"""Measure one comparison: check every side against float64, time all of them in the same rounds, check again."""

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
from generator.bench.device import Device, Reading, Replay, timed
from generator.bench.measurements import TIMED, Ratios, Record, Side, Timing, digest_of, ratios_of
from generator.bench.peers import set_precision
from generator.bench.problem import Problem
from generator.bench.random_operands import Operands
from generator.verify.execute import Fault, results_of

#: Changes whenever times taken before can no longer stand beside times taken after.
METHOD = 1

#: A sample takes at least about this many seconds, so that an event's half microsecond is nothing.
_SAMPLE = 2e-3
#: Rounds before the first that counts: the clocks rise, the allocator has its blocks.
_WARM_ROUNDS = 5
#: Where the rounds are bounded by time: the part of it that may pass before the first that counts, and the fewest that
#: count whatever they take.
_WARM_PART = 0.25
_FEWEST_ROUNDS = 5
_MOST_CALLS = 2000
#: Calls by the host stay under the depth of the launch queue, or the host would wait in it.
_MOST_QUEUED = 256
_SEED = 20


@dataclass(frozen=True)
class Options:
    """How to measure: rounds that count, `select` or `all` rows of each table, the words of the peers.

    Rounds end early once they have taken `seconds`.
    """

    rounds: int = 40
    configs: str = "select"
    peers: tuple[str, ...] = ("cublas",)
    seconds: float | None = None

    def of(self, comparison: Comparison) -> Options:
        """The same, with the peers that a comparison has of its own."""
        return self if comparison.peers is None else replace(self, peers=comparison.peers)

    @property
    def method(self) -> dict[str, str | int]:
        """What of the method a time depends on."""
        return {
            "version": METHOD,
            "rounds": self.rounds,
            "sample_us": round(_SAMPLE * 1e6),
            "configs": self.configs,
            "peer": ",".join(self.peers) or "none",
            **({} if self.seconds is None else {"seconds": str(self.seconds)}),
        }


class DeviceLost(Exception):
    """The device answers no more; nothing later in this process can be trusted."""


def key(comparison: Comparison, environment: str, options: Options) -> str:
    """The digest of all that the times of a comparison depend on."""
    problem = comparison.problem
    sides = [[c.label, c.family, c.kernel, c.digest] for c in comparison.contestants]
    work = [str(problem.shape), problem.dtype.word, problem.layout.word, problem.epilogue.word]
    return digest_of([comparison.case, work, sides, environment, options.method])


@dataclass
class Entry:
    """A side on its way through the rounds."""

    competitor: Competitor
    replay: Replay
    #: Calls in one replay, and calls by the host in one sample.
    replayed: int
    called: int
    gpu: list[float] = field(default_factory=list)
    call: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    #: What the last plain call returned.
    last: Any = None
    #: What the calls of a replay return for each set.
    returned: dict[int, Any] = field(default_factory=dict)


def measure(comparison: Comparison, device: Device, environment: str, options: Options) -> Record:
    """The record of `comparison`; raises `DeviceLost` where the device fails for good.

    A side that raises or is wrong is recorded with its failure and not timed; the others are.
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
        # What no single side is to blame for: no memory for the operands, say.
        survive(device, error)
        sides = [replace(competitor.side, failure=reason(error)) for competitor in found]
    return Record(
        key(comparison, environment, options),
        comparison.case,
        comparison.title,
        comparison.problem,
        environment,
        {**options.method, "sets": sets},
        tuple(sides),
        ratios,
    )


def _timed(session: Session, found: list[Competitor], options: Options) -> tuple[list[Side], Ratios]:
    """The sides of a comparison with their times, in the order of `found`, and the ratios of the times."""
    entries = [session.prepare(each) if each.side.failure is None else None for each in found]
    session.rounds([entry for entry in entries if entry is not None], options.rounds, options.seconds)
    sides = [each.side if entry is None else session.finish(entry) for each, entry in zip(found, entries)]
    samples = [
        {word: getattr(entry, word) for word in TIMED} if entry is not None and side.failure is None else {}
        for side, entry in zip(sides, entries)
    ]
    return sides, ratios_of(sides, samples)


def survive(device: Device, error: Exception) -> None:
    """Raise `DeviceLost` where the device does not answer after `error`."""
    try:
        device.synchronize()
    except Exception:
        raise DeviceLost(reason(error)) from error


class Session:
    """The operands of one problem, what is expected of them, and the device.

    A sample takes at least about `sample` seconds. With `checked` the results of that many sets alone are compared;
    without `host` calls by the host are neither timed nor checked.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
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

    def prepare(self, competitor: Competitor) -> Entry | None:
        """Compile, record and check a side; None, with the failure noted, for one that cannot be timed."""
        side = competitor.side
        try:
            with launches() as seen:
                competitor.launch(self.sets[0], self.sets[0].out)
            self.device.synchronize()
            used = row_of(seen, competitor.rows) if not side.forced else None
            if used is not None:
                side = competitor.side = replace(side, index=used[0], config=used[1])
            entry = self._record(competitor)
            competitor.side = self._checked(entry)
        except Exception as error:
            # A launcher raises ValueError for what it does not take; a row may be too large for the device.
            too_large = side.forced and type(error).__name__ == "OutOfResources"
            refused = isinstance(error, ValueError) or too_large
            competitor.side = replace(side, failure=reason(error), refused=refused)
            survive(self.device, error)
            return None
        return entry if competitor.side.failure is None else None

    def _record(self, competitor: Competitor) -> Entry:
        """Choose how many calls make a sample, and record them over the sets in turn."""
        launch, count = competitor.launch, len(self.sets)
        returned: dict[int, Any] = {}
        run = functools.partial(_run, competitor, self.sets, returned)
        calls, replay = 1, self.device.record(functools.partial(run, 1))
        # A lone short call is timed with the launch of its replay: once more, from what many calls take.
        for _ in range(2):
            wanted = calls_for(min(timed(replay, self.device) for _ in range(3)) / calls, count, self.sample)
            if wanted <= 1.2 * calls:
                break
            calls, replay = wanted, self.device.record(functools.partial(run, wanted))
        if not self.host:
            return Entry(competitor, replay, calls, 0, returned=returned)
        # The first calls find no memory in the allocator and are slow; the second few count.
        for _ in range(2):
            begin = self.device.clock()
            for each in range(5):
                launch(self.sets[each % count], None)
            self.device.synchronize()
            by_host = max((self.device.clock() - begin) / 5, 1e-9)
        called = min(_MOST_QUEUED, max(1, math.ceil(self.sample / by_host)))
        return Entry(competitor, replay, calls, called, returned=returned)

    def _checked(self, entry: Entry) -> Side:
        """The side with its error: every output poisoned, one replay, every output that it writes compared."""
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

    def _outputs(self, entry: Entry) -> list[tuple[torch.Tensor, check.Expected]]:
        """What one more replay writes, and what the last plain call returned, each with what is expected of it."""

        def left(each: int) -> list[torch.Tensor]:
            return self._results(entry.returned[each], None if entry.competitor.fresh else self.sets[each].out)

        for each in entry.returned:
            for result in left(each):
                random_operands.poison(result)
        entry.replay.run()
        self.device.synchronize()
        # A replay without a graph returns other tensors than those that were poisoned.
        pairs = [(left(each), expected) for each, expected in enumerate(self.expected[: entry.replayed])]
        if entry.last is not None:
            # Timed as it is called.
            pairs.append((self._results(entry.last), self.expected[(entry.called - 1) % len(self.sets)]))
        return [pair for results, expected in pairs for pair in zip(results, expected, strict=True)]

    def _results(self, returned: object, out: torch.Tensor | None = None) -> list[torch.Tensor]:
        """The results of a call, C first, which is `out` where that was given; raise `Fault` for what is no such."""
        result, beside = results_of(self.problem.epilogue, returned)
        found = [result if out is None else out, *beside]
        for each in found:
            if not isinstance(each, torch.Tensor):
                raise Fault(f"a call returned {type(each).__name__}, not a tensor")
        return found

    def rounds(self, entries: list[Entry], count: int, seconds: float | None = None, warm: int | None = None) -> None:
        """Sample every side in each of `count` rounds, after `warm` that do not count, for about `seconds`."""
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

    def _round(self, order: list[Entry], *, counts: bool) -> None:
        for entry, seconds in zip(order, sample_replays(order, self.device)):
            call, host = self._call(entry) if self.host else (0.0, 0.0)
            if counts:
                entry.gpu.append(seconds / entry.replayed)
            if counts and self.host:
                entry.call.append(call / entry.called)
                entry.host.append(host / entry.called)

    def _call(self, entry: Entry) -> tuple[float, float]:
        """Seconds of `called` plain calls, from an idle device to the end, and until the host is free."""
        launch, count, clock = entry.competitor.launch, len(self.sets), self.device.clock
        self.device.synchronize()
        begin = clock()
        for each in range(entry.called):
            entry.last = launch(self.sets[each % count], None)
        queued = clock()
        self.device.synchronize()
        return clock() - begin, queued - begin

    def finish(self, entry: Entry) -> Side:
        """The side with its times, its results checked once more on the buffers that were timed."""
        side = self._checked(entry)
        if side.failure is not None:
            return replace(side, failure=f"{side.failure} (right at first, wrong after the rounds)")
        return replace(
            side,
            gpu=_timing(entry.replay.method, entry.replayed, entry.gpu),
            call=_timing("calls", entry.called, entry.call) if self.host else None,
            host=_timing("calls", entry.called, entry.host) if self.host else None,
        )


def sample_replays(order: Sequence[Entry], device: Device) -> list[float]:
    """Seconds of one replay of each side, queued one behind the other without a pause.

    One more goes first and is not read: the device is busy with it while the host queues what is timed, so that no
    sample holds the launch of its own replay.
    """
    if order:
        order[-1].replay.run()
    readings: list[Reading] = [entry.replay.run() for entry in order]
    device.synchronize()
    return [reading() for reading in readings]


def calls_for(seconds: float, sets: int, sample: float = _SAMPLE) -> int:
    """How many calls of `seconds` make a sample: enough time, and whole turns over the sets where that stays short."""
    calls = min(_MOST_CALLS, max(1, math.ceil(sample / max(seconds, 1e-9))))
    turns = math.ceil(calls / sets) * sets
    return turns if turns <= _MOST_CALLS and turns * seconds <= 10 * sample else calls


def _run(competitor: Competitor, sets: list[Operands], returned: dict[int, Any], calls: int) -> None:
    """Call a side on the sets in turn; `returned` gets what it returns for each."""
    for call in range(calls):
        each = call % len(sets)
        returned[each] = competitor.launch(sets[each], sets[each].out)


def _timing(method: str, calls: int, seconds: list[float]) -> Timing:
    return Timing.of(method, calls, [sample * 1e6 for sample in seconds])


def _finite(error: float) -> float | None:
    """An error that JSON can hold: None for NaN and infinity, which the failure tells of."""
    return stats.rounded(error, 3) if math.isfinite(error) else None


def reason(error: BaseException) -> str:
    """An exception on one line, without addresses or paths: its first, and the next where that is a heading."""
    lines = str(error).strip().splitlines() or ["no message"]
    told = lines[0] if not lines[0].endswith(":") else " ".join(lines[:2])
    return f"{type(error).__name__}: {told}"[:300]
