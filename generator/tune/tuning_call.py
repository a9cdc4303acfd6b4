"""A call of `tune`: its options, what it runs, and its exit status."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from generator.bench import workers
from generator.bench.comparison_plan import Families
from generator.bench.device import versions
from generator.bench.results_report import tile
from generator.bench.suite import DEFAULT_SHAPES, given_shapes, is_unseen
from generator.emit.report import page
from generator.files import output_files
from generator.files.updating import require_regular
from generator.language.errors import CallError
from generator.language.tuned_file import FORMAT
from generator.plan import devices
from generator.plan.kernels import Family
from generator.problem.product import Shape
from generator.tune import (
    imported_tiles,
    public_calls,
    torch_rule,
    trial_worker,
    tuning_report,
    tuning_run,
    winner_choice,
    winners,
)
from generator.tune.journal import Journal
from generator.tune.outcome import Row
from generator.tune.trial_selection import TrialPlan, calls, plan
from generator.tune.winners import MeasurementSource

DONE, NOTHING = 0, 1

#: Candidates to measure by default, except for regret.
CANDIDATES = 12

#: The folder beside a spec for the winners of its family, by device.
TUNED = "tuned"
JOURNALS = Path(".tune_cache")

#: Seconds that parallel compilation before the measurements may take at most.
_LONGEST_AHEAD = 600.0


@dataclass
class TuningOptions:
    """The options of one call."""

    specs: list[Path] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    out: Path = Path("generated")
    only: str | None = None
    candidates: int | None = None
    complete: bool = False
    budget: float = float("inf")
    gpus: int = 1
    executor: str = workers.PROCESSES
    tuned: Path | None = None
    journal: Path | None = None
    dry_run: bool = False
    report: bool = False
    html: Path | None = None
    again: bool = False
    smallest: bool = False
    also: list[Path] = field(default_factory=list)
    refine: bool = False
    imported: tuple[str, str] | None = None
    trust: bool = False
    device: str | None = None
    workers: int = 0
    regret: Path | None = None
    torch: list[Path] = field(default_factory=list)
    #: The callable that makes the device of a worker, as `workers.loaded` finds it.
    factory: str = trial_worker.CUDA

    @property
    def chooses(self) -> bool:
        """Whether measurements are followed by a choice of winners."""
        return self.regret is None and not self.complete

    @property
    def most(self) -> int | None:
        """How many candidates to measure; None for all."""
        every = self.complete or self.regret is not None
        return CANDIDATES if self.candidates is None and not every else self.candidates

    @cached_property
    def tiles(self) -> imported_tiles.ImportedTiles | None:
        """What `--import` names; raises `CallError` for another file."""
        return None if self.imported is None else imported_tiles.read(*self.imported)


def answer(call: TuningOptions) -> int:
    """Measure, plan or report, as the call says, and return the exit status; raises `CallError` and `SpecError`."""
    named = {"--tuned": call.tuned, "--journal": call.journal, "--regret": call.regret, "--html": call.html}
    outputs = {option: path for option, path in named.items() if path is not None}
    wrong = output_files.clash(outputs, [path for path in call.specs if path.is_file()])
    if wrong is not None:
        raise CallError(wrong)
    if call.torch and call.tuned is not None:
        return torch_rule.write(call.torch, call.tuned)
    if call.report:
        return show(call)
    if call.again:
        return again(call)
    if call.trust:
        return trust(call)
    return dry_run(call) if call.dry_run else tune(call)


def shapes_of(call: TuningOptions) -> tuple[Shape, ...]:
    """The shapes of a call, each once; prints which are left out. Raises `SpecError` and `CallError`.

    Sizes of the sample `unseen` are refused, except for regret.
    """
    texts = call.shapes or ([DEFAULT_SHAPES] if call.tiles is None else call.tiles.shapes)
    shapes = dict.fromkeys(shape for text in texts for shape in given_shapes(text))
    padded = [str(shape) for shape in shapes if shape.pad]
    if padded:
        print(f"tune: left out, because winners are recorded without padding: {', '.join(padded)}", file=sys.stderr)
    unseen = [str(shape) for shape in shapes if is_unseen(shape)]
    if unseen and call.regret is None:
        few = ", ".join([*unseen[:3], *(["..."] if len(unseen) > 3 else [])])
        raise CallError(
            f"--shapes: nothing is fitted to the sizes of the files unseen_*.yaml, and {len(unseen)} are among "
            f"these or within 1 % of these: {few}; leave them out, or change them by more than 1 %"
        )
    return tuple(shape for shape in shapes if not shape.pad)


def show(call: TuningOptions) -> int:
    """Print a summary of a file of winners or of regret, and write the page; raise `CallError` if there is no file."""
    if call.regret is not None:
        if not call.regret.exists():
            raise CallError(f"--regret: there is no file {call.regret}")
        kept = Journal(call.regret, "--regret").kept.values()
        entries = [each for each in kept if each.outcome.regret is not None]
        report = tuning_report.of_regret(entries) if entries else None
        lacking = f"{call.regret} has no size with a regret"
    else:
        assert call.tuned is not None
        try:
            measured = winners.read(call.tuned)
        except FileNotFoundError:
            raise CallError(f"--tuned: there is no file {call.tuned}") from None
        rates = f", but the rates of {len(measured.fit.rates)} configurations" if measured.fit.rates else ""
        report = tuning_report.of_winners(measured) if measured.winners else None
        lacking = f"{call.tuned} has no winner{rates}"
    if report is None:
        print(f"tune: {lacking}", file=sys.stderr)
        return NOTHING
    print(report.markdown(), end="")
    if call.html is not None:
        output_files.put(call.html, page(report))
    return DONE


def dry_run(call: TuningOptions) -> int:
    """Print what would be measured, on the device that `--device` names or else on the GPU of this machine."""
    families, shapes = Families(call.specs, call.out), shapes_of(call)
    if call.device is None:
        workers.require_gpu("--device nvidia_h200, or another, plans")
        from generator.bench.device import CudaDevice

        device = CudaDevice().figures
    else:
        device = devices.named(call.device)
    rates = _rates(call, _files(call, families, device.slug))
    trials = _plan(call, families, shapes, device, versions()["triton"], rates)
    for trial in trials.trials:
        print(f"{trial.contract} {trial.problem.shape}")
        for candidate in trial.candidates:
            how = candidate.contestant.label
            print(f"  {candidate.predicted * 1e6:10.1f} µs  {how} [{candidate.index}] {tile(candidate.config)}")
    _print_counts(trials, device)
    return DONE


def _plan(
    call: TuningOptions,
    families: Families,
    shapes: tuple[Shape, ...],
    device: devices.Device,
    triton: str,
    rates: Mapping[Row, tuple[float, ...]],
) -> TrialPlan:
    """The trials of a call; prints what of the imported tiles is no configuration."""
    tiles = call.tiles
    trials = plan(families, shapes, device, triton, call.most, call.only, rates, tiles.takes if tiles else None)
    print(*(tiles.unmapped(trials.trials) if tiles else ()), sep="\n", end="\n" if tiles else "", file=sys.stderr)
    if call.complete:
        trials.trials = [replace(each, short=True) for each in trials.trials]
    return trials


def trust(call: TuningOptions) -> int:
    """Write imported tiles as winners that nobody measured, and return the exit status.

    Raises `CallError` where a file of winners is there already.
    """
    assert call.device is not None and call.tiles is not None
    families, shapes, device = Families(call.specs, call.out), shapes_of(call), devices.named(call.device)
    trials = _plan(call, families, shapes, device, versions()["triton"], {}).trials
    status = NOTHING
    for family, path in _files(call, families, device.slug).items():
        if path.exists():
            raise CallError(f"--trust: {path} is there, and may be measured; name another file with --tuned FILE")
        chosen = call.tiles.winners(trial for trial in trials if trial.family == family)
        head = {"format": FORMAT, "device": device.name, "error": 0.0, "regret": 0.0}
        if chosen:
            path.parent.mkdir(parents=True, exist_ok=True)
            output_files.put(path, winners.by_lines(head, {"winners": chosen, "rates": []}))
            print(f"{path}: {len(chosen)} winners, none of them measured")
            status = DONE
    return status


def again(call: TuningOptions) -> int:
    """Write the winners and rates that follow from the journal's measurements of a device, and return the exit status.

    Raises `CallError` if there are no measurements.
    """
    assert call.device is not None
    families, journal = Families(call.specs, call.out), Journal(_journal(call, call.device))
    source, device = winner_choice.DeviceJournal(journal, _place(journal, call.device)), devices.named(call.device)
    shapes = shapes_of(call) if call.shapes else ()
    also = [_other(path, device) for path in call.also]
    files = _files(call, families, call.device)
    return winner_choice.write(source, files, families, device, smallest=call.smallest, shapes=shapes, also=also)


def _place(journal: Journal, slug: str) -> MeasurementSource:
    """Where the last measurements of a device in a journal were made; raises `CallError` for none."""
    places = [source for source in journal.places if devices.slug(source.device) == slug]
    if not places:
        state = "has no measurement of" if journal.path.exists() else "does not exist, so there are no measurements of"
        raise CallError(f"--again: {journal.path} {state} {slug}")
    return places[-1]


def _other(path: Path, device: devices.Device) -> winner_choice.DeviceJournal:
    """A journal of another GPU, with its figures relative to `device`; raises `CallError` for an unlike GPU."""
    journal = Journal(path)
    slugs = sorted({devices.slug(source.device) for source in journal.places})
    if len(slugs) != 1 or slugs == [device.slug]:
        devices_text = " and ".join(slugs) or "no GPU"
        raise CallError(f"--also: {path} has measurements of {devices_text}; name a journal of one other GPU")
    other = devices.named(slugs[0])
    if (other.target, other.multiprocessors) != (device.target, device.multiprocessors):
        raise CallError(
            f"--also: {path} is of {other.name} ({other.target}, {other.multiprocessors} multiprocessors), and "
            f"{device.name} has {device.target} and {device.multiprocessors}"
        )
    scale = other.clock / device.clock, other.memory / device.memory
    return winner_choice.DeviceJournal(journal, _place(journal, other.slug), scale)


def _files(call: TuningOptions, families: Families, slug: str) -> dict[str, Path]:
    """The file of winners of each family: that of the call, or of its spec if it names one for this device.

    Of several files that a spec names, it is the family's own, or else one that does not exist yet. If it names none,
    it is a file in the folder `tuned` beside the spec.
    """
    if call.tuned is not None:
        return dict.fromkeys(families.known, call.tuned)
    files = {}
    for name, family in families.known.items():
        own = family.spec.path.parent / TUNED / slug / f"{name}.json"
        new = [file for file in family.spec.tuned_files if not file.exists() or _of_family(file, slug, family)]
        preferred = [file for file in new if file.resolve() == own.resolve()] or sorted(new, key=Path.exists)
        files[name] = preferred[0] if preferred else own
    return files


def _of_family(file: Path, slug: str, family: Family) -> bool:
    """Whether a file of winners is of a device, and of contracts that the family has, and no others."""
    measured = winners.read(file)
    return devices.slug(measured.place.device) == slug and measured.contracts <= family.contracts.keys()


def _journal(call: TuningOptions, slug: str) -> Path:
    return call.journal or JOURNALS / f"{slug}.jsonl"


def _rates(call: TuningOptions, files: Mapping[str, Path]) -> dict[Row, tuple[float, ...]]:
    """The rates in the files of winners for a call with `--refine`, else none."""
    existing = [path for path in files.values() if path.exists()] if call.refine else []
    return {row: rates for path in existing for row, rates in winners.read(path).fit.rates.items()}


def _print_counts(trials: TrialPlan, device: devices.Device) -> None:
    count = sum(len(trial.candidates) for trial in trials.trials)
    print(
        f"{len(trials.trials)} problems, {count} configurations to measure on {device.name}, "
        f"{len(calls(trials.trials))} to compile"
    )
    for reason, number in trials.left_out.most_common():
        if number:
            print(f"  left out: {number} configurations, {reason}")


def tune(call: TuningOptions) -> int:
    """Measure what is not in the journal, write the winners or the regret, and return the exit status.

    Raises `CallError` for a wrong call and `SpecError` for wrong specs or shapes, before anything is measured.
    """
    until = time.monotonic() + call.budget
    if call.regret is not None:
        require_regular(call.regret)
    for named in filter(None, (call.tuned, call.journal, call.regret)):
        output_files.check(named)
    families, shapes = Families(call.specs, call.out), shapes_of(call)
    if call.executor == workers.PROCESSES and call.factory == trial_worker.CUDA:
        workers.require_gpu("--dry-run --device nvidia_h200 lists what would be measured", call.gpus)
    with contextlib.ExitStack() as stack:
        executor = workers.executor(call.executor, call.gpus)
        # If the call was stopped, do not wait for trials that are running.
        stack.callback(lambda: executor.shutdown(wait=sys.exc_info()[0] is None))
        before = None
        public_calls.rendered(families.known.values(), call.out)
        if call.chooses:
            # Beside the journal, where workers of other machines find it too.
            journals = call.journal.parent if call.journal else JOURNALS
            journals.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=journals))
            before = public_calls.keep(families, Path(folder))
        return _tune(call, families, shapes, executor, until, before)


def _tune(
    call: TuningOptions,
    families: Families,
    shapes: tuple[Shape, ...],
    executor: Executor,
    until: float,
    before: public_calls.Functions | None,
) -> int:
    """Measure; with `before`, the functions as they are, compare them with what they become by the winners."""
    facts = _facts(executor, call.factory)
    source, slug = facts.place, facts.figures.slug
    files = _files(call, families, slug)
    trials = _plan(call, families, shapes, facts.figures, source.triton, _rates(call, files)).trials
    if call.regret is not None:
        trials = public_calls.with_functions(trials, families)
    for path in (*(files.values() if call.regret is None else [call.regret]), _journal(call, slug)):
        output_files.check(path)
    journal = Journal(_journal(call, slug))
    keys = {trial.key(trial_worker.method_of(trial), facts.environment): trial for trial in trials}
    progress = tuning_run.Progress(keys, journal)
    if call.chooses:
        # A file that the winners cannot be merged into raises an error here, before hours of measuring.
        winner_choice.check(files, source, families)
    left = progress.left
    if done := len(keys) - len(left):
        print(f"{done} of {len(keys)} problems are already in {journal.path}", file=sys.stderr)
    if left and call.executor == workers.PROCESSES:
        longest = min(_LONGEST_AHEAD, max(0.0, until - time.monotonic()))
        workers.compile_ahead(calls([keys[key] for key in left]), call.workers, longest)
    with journal:
        tuning_run.hand_out(progress, executor, source, call.gpus, until, call.factory)
    if call.regret is not None:
        if entries_written := tuning_run.write_regret(progress, call.regret):
            print(tuning_report.of_regret(entries_written).markdown(), end="")
        return max(tuning_run.status(progress), DONE if entries_written else NOTHING)
    if call.complete:
        return tuning_run.status(progress)
    assert before is not None
    written = winner_choice.write(winner_choice.DeviceJournal(journal, source), files, families, facts.figures)
    after = public_calls.functions(public_calls.again(families, call.specs, files))
    lost = public_calls.compare([] if progress.lost else trials, before, after, executor, until, call.factory)
    # Only some kernels of a contract have times and no winner, which is what the call asks for.
    written = written if call.only is None else DONE
    return max(tuning_run.status(progress), tuning_run.FAULT if lost else written)


def _facts(executor: Executor, factory: str) -> trial_worker.Facts:
    """The description of a worker's device; raise `CallError` if a worker has none."""
    try:
        return executor.submit(trial_worker.describe, factory).result()
    except Exception as error:
        raise CallError(f"a worker has no device to measure on ({type(error).__name__}: {error})") from None
