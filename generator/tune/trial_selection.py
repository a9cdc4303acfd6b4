"""Choose what to measure: for each contract and size the legal kernels and configurations that may be the fastest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from generator.bench.comparison_plan import Comparison, Contestant, Families, of_specs
from generator.bench.competitor import module_of, rows
from generator.bench.measurements import digest_of
from generator.bench.random_operands import shadow
from generator.bench.workers import Call
from generator.cost import analytic
from generator.emit import code_parts
from generator.emit.family_package import contracts
from generator.language.errors import CallError
from generator.plan import devices
from generator.plan.kernels import Kernel
from generator.problem.product import Problem, Shape
from generator.runtime import fitted, spreading
from generator.tune.outcome import Row, row_of


@dataclass(frozen=True)
class Candidate:
    """A configuration of a kernel, with its seconds as the analytic cost model predicts them.

    Of groups they are more where it is slow for other than equal groups (`generator.cost.spreading`).
    """

    contestant: Contestant
    #: The index of `config` in the kernel's `CONFIGS`.
    index: int
    config: Mapping[str, int]
    predicted: float


@dataclass(frozen=True)
class Trial:
    """One problem of one contract with its candidates, in the order of their predicted seconds."""

    family: str
    contract: str
    problem: Problem
    candidates: tuple[Candidate, ...]
    #: Whether every kernel of the contract could be a candidate.
    whole: bool = True
    #: Whether the passes over all candidates have short samples.
    short: bool = False
    #: The contract's function, if its choice is timed beside the best candidates.
    function: Contestant | None = None

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest of the code of each kernel that is measured."""
        files = {c.contestant.kernel: c.contestant.file for c in self.candidates}
        return {kernel: code_parts.of_file(file).timed for kernel, file in files.items()}

    def key(self, method: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
        """The digest of everything that the outcome depends on."""
        problem = self.problem
        work = [str(problem.shape), problem.dtype.word, problem.layout.word, problem.epilogue.word]
        candidates = sorted([c.contestant.kernel, sorted(c.config.items())] for c in self.candidates)
        chooser = [] if self.function is None else [self.function.digest]
        return digest_of([self.contract, work, self.digests, candidates, dict(environment), dict(method), *chooser])


@dataclass
class TrialPlan:
    """The trials of a call, and how many configurations were left out for each reason."""

    trials: list[Trial] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def plan(
    families: Families,
    shapes: tuple[Shape, ...],
    device: devices.Device,
    triton: str,
    most: int | None,
    only: str | None = None,
    rates: Mapping[Row, tuple[float, ...]] = MappingProxyType({}),
    also: Callable[[Shape, Mapping[str, int]], bool] | None = None,
) -> TrialPlan:
    """The trials of every contract of the families on every shape.

    Each trial has the `most` best candidates by the analytic cost model, the `most` best by the fitted `rates`, and
    those that `also` takes for its sizes; with None it has all that can run.

    Raises `CallError` for a file that is not rendered, and if nothing can be measured.
    """
    trial_plan = TrialPlan()
    ranks = {(n, each.name): each.kernels for n, family in families.known.items() for each in contracts(family)}
    for comparison in of_specs(families, shapes, only) if shapes else []:
        name, _, contract = comparison.case.partition("/")
        candidates = candidates_of(comparison, device, triton, trial_plan.left_out)
        if candidates:
            # Of candidates with equal times, the kernel that the package tries first comes first.
            tried = ranks[name, contract]
            ordered = sorted(candidates, key=lambda c: (c.predicted, tried.index(c.contestant.kernel)))
            fitted_best = by_rates(contract, comparison.problem, ordered, rates, device)
            best = ordered[:most] + [candidate for _, candidate in fitted_best[:most]]
            best += [c for c in ordered if also and also(comparison.problem.shape, c.config)]
            chosen = tuple(candidate for candidate in ordered if candidate in best)
            trial_plan.left_out["not among the best by the model"] += len(ordered) - len(chosen)
            whole = {contestant.kernel for contestant in comparison.contestants} == set(tried)
            trial_plan.trials.append(Trial(name, contract, comparison.problem, chosen, whole))
    if not trial_plan.trials:
        raise CallError(f"no configuration of any kernel can run on {device.name} ({device.target}) at these sizes")
    return trial_plan


def by_rates(
    contract: str,
    problem: Problem,
    candidates: Sequence[Candidate],
    rates: Mapping[Row, tuple[float, ...]],
    device: devices.Device,
) -> list[tuple[float, Candidate]]:
    """The candidates with fitted rates, each after the seconds that the fitted cost model predicts; fastest first."""
    width = problem.dtype.stored_a.width
    rows = [(row_of(contract, c.contestant.kernel, c.config), c) for c in candidates]
    known = [(fitted.rated(dict(c.config), rates[row]), c) for row, c in rows if row in rates]
    predicted = fitted.seconds([row for row, _ in known], problem.shape.sizes, device.multiprocessors, width)
    pairs = zip(predicted, (candidate for _, candidate in known))
    return sorted(pairs, key=lambda pair: pair[0])


def candidates_of(
    comparison: Comparison, device: devices.Device, triton: str, left_out: Counter[str]
) -> list[Candidate]:
    """The configurations of a comparison's kernels that can run; adds the others to `left_out` by their reasons."""
    problem = comparison.problem
    candidates, predicted = [], []
    for contestant in comparison.contestants:
        kernel, table = contestant.first, rows(contestant)
        if len(table) != len(kernel.tiles):
            raise CallError(f"{contestant.file} is not what the spec renders now; render the family again")
        call = getattr(module_of(contestant), "CALL", None)
        whole = _why_not(kernel, call, problem, device.target, triton)
        for index, config in enumerate(table):
            reason = whole or _why_not_entry(kernel, call, index, config, problem, device.target)
            if reason is None:
                candidates.append(Candidate(contestant, index, dict(config), 0.0))
                predicted.append(
                    [analytic.seconds(kernel.variant, config, each, device) for each in problem.shape.ways]
                )
            else:
                left_out[reason] += 1
    scores = spreading.scores(list(zip(*predicted))) if candidates else []
    return [replace(each, predicted=score) for each, score in zip(candidates, scores)]


def _why_not(kernel: Kernel, call: Any, problem: Problem, target: str, triton: str) -> str | None:
    """Why no configuration of a kernel, whose launches are `call`, can be measured on this problem, or None."""
    if target not in kernel.targets:
        return f"not for {target}"
    if Version(triton).base_version not in SpecifierSet(kernel.triton):
        return f"not for Triton {triton}"
    if call is None:
        return None
    try:
        one = shadow(problem)
    except RuntimeError:
        # torch counts the bytes of a tensor in 64 bits.
        return "too large for torch"
    # The kernel's own reason states the sizes, so that each size would be counted as a different reason.
    reason = call.refusal(a=one.a, b=one.b, **one.keywords, out=one.out)
    return None if reason is None else "refused by the kernel at these sizes"


def _why_not_entry(
    kernel: Kernel, call: Any, index: int, config: Mapping[str, int], problem: Problem, target: str
) -> str | None:
    """Why an entry of the table of a kernel that accepts the problem cannot be measured on it, or None."""
    if index in dict(kernel.not_offered).get(target, ()):
        return f"too large for {target}"
    if call is None:
        return None
    # In place of a size that groups divide there is that of all together.
    sizes = dict(zip(call.sizes[-3:], (problem.shape.m, problem.shape.n, problem.shape.k)))
    return None if call.fitting([config], sizes) else "not for these sizes"


def calls(trials: Sequence[Trial]) -> list[Call]:
    """The calls to compile before the measurements: of calls that compile to the same code, the smallest problem."""
    least: dict[tuple[object, ...], tuple[int, Problem, Candidate]] = {}
    for trial in trials:
        for candidate in trial.candidates:
            key = (candidate.contestant.file, candidate.index, _specialised(candidate.config, trial.problem))
            entry = (trial.problem.bytes, trial.problem, candidate)
            if key not in least or entry[0] < least[key][0]:
                least[key] = entry
    return [(problem, chosen.contestant, chosen.index) for _, problem, chosen in least.values()]


def _specialised(config: Mapping[str, int], problem: Problem) -> tuple[object, ...]:
    """The properties of the sizes that the compiled code may depend on.

    Triton specialises on sizes of 1 and on multiples of 16. A kernel masks sizes that the tile does not divide, and
    computes offsets in 64 bits if an operand is large.
    """
    shape = problem.shape
    specialised: list[object] = [max(shape.m * shape.k, shape.k * problem.columns, shape.m * shape.n) > 2**31]
    for name, size in (("M", shape.m), ("N", shape.n), ("K", shape.k)):
        specialised.append((size == 1, size % 16 == 0, size % config.get(f"BLOCK_{name}", 1) == 0))
    return tuple(specialised)
