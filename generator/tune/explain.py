"""What is rendered and why, and what a call would run, in words."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from generator.cost import tuned
from generator.emit import manifest_reader
from generator.emit.job import RenderingJob, counted, render
from generator.language.errors import CallError, lacks, nearest
from generator.language.measured_winners import Measured, Winner
from generator.language.model import Spec, Variant
from generator.language.vocabulary import DEFAULTS, IMPLEMENTATION_AXES, OPEN_AXES, SELECT, WORDS
from generator.lowering.docstrings import beside, formula
from generator.plan import portfolio
from generator.plan.devices import Device
from generator.plan.families import families
from generator.plan.kernels import Family, Kernel, LeftOut, by_contract
from generator.tune.samples import sizes_compared

if TYPE_CHECKING:
    from generator.tune.predicted_choice import PredictedChoice

#: Of a reason, so many variants are named.
_NAMED = 2


@dataclass(frozen=True)
class ExplainedFamily:
    """What is explained: the kernels of a spec's family, or of a rendered folder."""

    name: str
    kernels: tuple[Kernel, ...]
    left_out: tuple[LeftOut, ...]
    measured: tuple[Measured, ...]
    #: Where the kernels come from; None for a folder, which does not have its spec.
    family: Family | None
    folder: Path | None
    #: All kernels of the family by name, explained or not.
    everything: Mapping[str, Kernel] = field(default_factory=dict)

    @property
    def spec(self) -> Spec | None:
        return None if self.family is None else self.family.spec


def explain(path: Path, only: str | None, sizes: Sequence[tuple[int, ...]], device: Device) -> None:
    """Print the explanation; raises `CallError` for a wrong call, `SpecError` for a wrong spec.

    With `sizes`, M, N and K of calls after the number of products in a batch, also what they would run on the device.
    """
    subject = _subject(path, only)
    print("\n".join(_sections(subject)))
    if sizes:
        print("\n".join(_calls(subject, sizes, device)))


def _subject(path: Path, only: str | None) -> ExplainedFamily:
    """The kernels of a spec, a folder or one file of a folder; raises `CallError` if there are none."""
    kernel = None
    if path.suffix == ".py":
        path, kernel = path.parent, path.stem
    if path.is_dir() or kernel is not None:
        known = manifest_reader.read(path)
        if kernel is not None and kernel not in known.by_name:
            raise CallError(f"explain: {kernel} is no kernel of {path}; {nearest(kernel, known.by_name)}")
        measured = tuple(each for _, each in portfolio.shipped())
        subject = ExplainedFamily(known.name, known.kernels, known.left_out, measured, None, path, known.by_name)
    else:
        (family,) = families([path])
        measured = (*family.measured, *(each for _, each in portfolio.shipped() if each not in family.measured))
        everything = {each.name: each for each in family.kernels}
        subject = ExplainedFamily(family.spec.name, family.kernels, family.left_out, measured, family, None, everything)
    return _selected(subject, kernel or only)


def _selected(subject: ExplainedFamily, glob: str | None) -> ExplainedFamily:
    if glob is None:
        return subject

    def matches(name: str) -> bool:
        return fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name.partition("__")[0], glob)

    kernels = tuple(kernel for kernel in subject.kernels if matches(kernel.name))
    if not kernels:
        raise CallError(f"explain: --only {glob!r} matches no kernel; the first is {subject.kernels[0].name}")
    left_out = tuple(left for left in subject.left_out if matches(left.name))
    return replace(subject, kernels=kernels, left_out=left_out)


def _sections(subject: ExplainedFamily) -> Iterator[str]:
    """The explanation: contracts, kernels, what is left out, and how a call chooses."""
    contracts = by_contract(subject.kernels)
    yield f"{subject.name}: {counted(len(subject.kernels), 'kernel')} of {counted(len(contracts), 'contract')}"
    if subject.spec is not None:
        yield f"  {subject.spec.summary}"
    yield from ("", "What is computed:")
    for name, kernels in contracts.items():
        variant = kernels[0].variant
        parts = formula(variant), *beside(variant), counted(len(kernels), "kernel")
        yield f"  {name}: {'; '.join(parts)}"
    yield from ("", "How it is computed:")
    hows: dict[str, list[Kernel]] = {}
    for kernel in subject.kernels:
        hows.setdefault(kernel.how, []).append(kernel)
    yield from _words(subject)
    won = _won(subject)
    for how, those in hows.items():
        yield from _implementation(how, those, len(contracts), won.get(how, {}))
    yield from _left_out(subject.left_out)
    select = subject.kernels[0].select
    yield from ("", f"How a call chooses: {SELECT[select].meaning} (select: {select}).")


def _words(subject: ExplainedFamily) -> Iterator[str]:
    """The words of the implementations, each once: what it means, and where it comes from."""
    yield "  in these words:"
    always = ("masking", "swizzle", "schedule", "load")
    for axis in IMPLEMENTATION_AXES:
        words = dict.fromkeys(kernel.variant.word(axis) for kernel in subject.kernels)
        for word in words if axis in always else (word for word in words if word != DEFAULTS[axis]):
            yield f"    {axis} {word}{_origin(subject.spec, axis)}: {WORDS[axis][word].meaning}"


def _implementation(
    how: str, kernels: Sequence[Kernel], contracts: int, won: Mapping[str, tuple[int, int]]
) -> Iterator[str]:
    """One way to compute contracts: what it is, and why it is there."""
    first = kernels[0]
    targets = ", ".join(dict.fromkeys(target for kernel in kernels for target in kernel.targets))
    rows = sorted({len(kernel.tiles) for kernel in kernels})
    configurations = str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
    number = "each contract" if len(kernels) == contracts else counted(len(kernels), "contract")
    yield f"  {how}: of {number}, for {targets}, with {configurations} configurations, Triton {first.triton}"
    for device, (fastest, sizes) in won.items():
        yield f"    measured on {device}: the fastest at {fastest} of {sizes} sizes"


def _origin(spec: Spec | None, axis: str) -> str:
    """Why the kernels have their word of an axis."""
    if spec is None:
        return ""
    if (axis, "") in spec.positions:
        return f" (line {spec.positions[axis, ''][0]} of the spec)"
    return " (by measurements)" if spec.select == "fastest" and axis in OPEN_AXES else " (default)"


def _won(subject: ExplainedFamily) -> dict[str, dict[str, tuple[int, int]]]:
    """Implementation -> device -> at how many of the measured sizes it is the fastest, and how many these are."""
    contracts = {kernel.variant.contract for kernel in subject.kernels}
    total, counts = Counter[str](), Counter[tuple[str, str]]()
    for device, contract, winners in tuned.bake(subject.family).won if subject.family else ():
        if contract in contracts:
            total[device] += len(winners)
            counts.update((how, device) for _, how, _ in winners)
    won: dict[str, dict[str, tuple[int, int]]] = {}
    for (how, device), count in counts.items():
        won.setdefault(how, {})[device] = (count, total[device])
    return won


def _left_out(entries: Sequence[LeftOut]) -> Iterator[str]:
    """What is not rendered, by reason."""
    if not entries:
        yield from ("", "Nothing is left out.")
        return
    reasons: dict[str, list[LeftOut]] = {}
    for left in entries:
        reasons.setdefault(left.reason, []).append(left)
    yield from ("", "What is left out:")
    for reason, those in reasons.items():
        names = [f"{left.name}{f' on {left.target}' if left.target else ''}" for left in those]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield from (f"  {reason}", f"    {', '.join(names[:_NAMED])}{more}")


def _calls(subject: ExplainedFamily, calls: Sequence[tuple[int, ...]], device: Device) -> Iterator[str]:
    """What a call of each contract would run: of one call everything that is known, of several what they run."""
    try:
        from generator.tune import predicted_choice
    except ModuleNotFoundError as error:
        raise lacks("explain --sizes", error.name, "gpu") from None
    contracts = by_contract(subject.kernels)
    with contextlib.ExitStack() as stack:
        folder = subject.folder
        if folder is None:
            assert subject.family is not None
            out = Path(stack.enter_context(TemporaryDirectory()))
            render([RenderingJob(subject.family, out)])
            folder = out / subject.name
        predicted = predicted_choice.choices(folder, contracts, subject.everything, calls, device)
        if len(calls) > 1:
            yield from ("", f"{len(calls)} calls with contiguous operands on {device.name}:")
            yield from _several(predicted, contracts)
            return
        yield from ("", f"A call of {_product(calls[0])} with contiguous operands on {device.name}:")
        for each in predicted:
            yield from _call(subject, each, contracts[each.contract][0].variant, device)


def _call(subject: ExplainedFamily, predicted: PredictedChoice, variant: Variant, device: Device) -> Iterator[str]:
    """What one call runs, why, and how long models and measurements say it takes."""
    if predicted.refused is not None:
        yield from (f"  {predicted.contract}: cannot run", *(f"    {line}" for line in predicted.refused.splitlines()))
        return
    yield f"  {predicted.contract} runs {predicted.kernel}"
    if predicted.kernel == "aten":
        yield "    torch's own product, which is measured or predicted to be the faster one"
    elif predicted.config is None:
        yield f"    the tuner measures {counted(predicted.candidates, 'configuration')} at the first call"
    else:
        yield f"    configuration: {_config(predicted.config)}"
        yield f"    chosen: {_why(subject, predicted.won, predicted.fitted is not None, variant)}"
    if predicted.copied:
        yield "    an operand is copied first, which is not in the estimates, to a layout that is read faster"
    if predicted.fitted is not None:
        yield f"    estimate: {_time(predicted.fitted)} by the model fitted to measurements"
    if predicted.analytic is not None:
        yield f"    estimate: {_time(predicted.analytic)} by the analytic model, which ranks and does not predict"
    yield f"    {_measured(subject.measured, variant, sizes_compared(variant, predicted.sizes), device)}"


def _several(choices: Iterable[PredictedChoice], contracts: Iterable[str]) -> Iterator[str]:
    """What calls run: calls one after another that run the same are one line."""
    by_contract: dict[str, list[PredictedChoice]] = {name: [] for name in contracts}
    for each in choices:
        by_contract[each.contract].append(each)
    for name, own in by_contract.items():
        yield f"  {name}"
        for how, group in itertools.groupby(own, key=_briefly):
            those = list(group)
            times = [x for each in those if (x := each.analytic if each.fitted is None else each.fitted) is not None]
            estimate = f"; estimate: {_span(list(map(_time, (min(times), max(times)))))}" if times else ""
            yield f"    {_span([_product(those[0].sizes), _product(those[-1].sizes)])}: {how}{estimate}"


def _briefly(choice: PredictedChoice) -> str:
    """What a call runs, on one line."""
    if choice.refused is not None:
        return f"cannot run: {choice.refused.splitlines()[0]}"
    config = "tuned at the first call" if choice.config is None else _config(choice.config)
    kernel = choice.kernel.removeprefix(f"{choice.contract}__")
    return f"{kernel}, {config}".removesuffix(", ") + ", an operand copied first" * choice.copied


def _product(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def _span(ends: Sequence[str]) -> str:
    """`FIRST to LAST`, or one of them if they are the same."""
    return " to ".join(dict.fromkeys(ends))


def _why(subject: ExplainedFamily, won: bool, rated: bool, v: Variant) -> str:
    select = subject.kernels[0].select
    if won:
        return "it is the fastest of those measured at this size"
    if rated:
        return "the model fitted to measurements gives it the least time"
    if select in ("table", "fastest"):
        return "nothing like it was measured on this device, so the analytic model decides"
    return SELECT[select].meaning


def _measured(measured: Sequence[Measured], v: Variant, sizes: tuple[int, ...], device: Device) -> str:
    """What was measured at these sizes: of the contract, or of the most similar one."""
    *others, n, k = sizes
    own, *plain = portfolio.similar(v)
    for contract in (own, *portfolio.similar_chains(v), *plain):
        best = _winner(measured, contract, (*others, 2 * n, k) if portfolio.halves(v, contract) else sizes, device)
        if best is not None and best.seconds is not None:
            library = "" if best.library_seconds is None else f", the vendor's library {_time(best.library_seconds)}"
            of = "" if contract == v.contract else f" of {contract}"
            return f"measured{of}: {_time(best.seconds)} with {best.how}, {_config(best.row)}{library}"
    return "measured: nothing at this size"


def _winner(measured: Sequence[Measured], contract: str, sizes: tuple[int, ...], device: Device) -> Winner | None:
    those = (winner for each in measured if each.device == device.name for winner in each.winners)
    return next((winner for winner in those if (winner.contract, winner.sizes) == (contract, sizes)), None)


def _config(row: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items())


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"
