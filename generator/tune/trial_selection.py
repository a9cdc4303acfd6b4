"""What is to be measured: for each contract and size the kernels and rows that are legal and not hopeless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from generator.bench import precompilation
from generator.bench.comparison_plan import Comparison, Contestant, Families, of_specs
from generator.bench.competitor import module_of, rows
from generator.bench.measurements import digest_of
from generator.bench.problem import Problem, Shape
from generator.bench.random_operands import shadow
from generator.cost import analytic, fitted
from generator.emit import code_parts
from generator.emit.family_package import contracts
from generator.language.errors import CallError
from generator.language.vocabulary import ELEMENTS
from generator.plan.kernels import Kernel
from generator.tune.rate_fit import Row, row_of

#: A row that the model takes to be slower than the best by more than this factor is not tried: one such launch may take
#: longer than all others together.
_HOPELESS = 8.0


@dataclass(frozen=True)
class Candidate:
    """A row of a kernel's table, with the seconds that the model gives it."""

    contestant: Contestant
    index: int
    config: Mapping[str, int]
    predicted: float


@dataclass(frozen=True)
class Trial:
    """One problem of one contract, with what may win it, the best by the model first."""

    family: str
    contract: str
    problem: Problem
    candidates: tuple[Candidate, ...]
    #: Whether any kernel of the contract could be a candidate.
    whole: bool = True

    @cached_property
    def digests(self) -> dict[str, str]:
        """The kernels that are measured, each with the digest of its code."""
        files = {c.contestant.kernel: c.contestant.file for c in self.candidates}
        return {kernel: code_parts.of_file(file).timed for kernel, file in files.items()}

    def key(self, method: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
        """The digest of all that the outcome depends on."""
        problem = self.problem
        work = [str(problem.shape), problem.dtype.word, problem.layout.word, problem.epilogue.word]
        rows = sorted([c.contestant.kernel, sorted(c.config.items())] for c in self.candidates)
        return digest_of([self.contract, work, self.digests, rows, dict(environment), dict(method)])


@dataclass
class Plan:
    """The trials of a call, and how many rows were left out for which reason."""

    trials: list[Trial] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def plan(
    families: Families,
    shapes: tuple[Shape, ...],
    device: analytic.Device,
    triton: str,
    most: int,
    only: str | None = None,
    rates: Mapping[Row, tuple[float, ...]] = MappingProxyType({}),
) -> Plan:
    """The trials of every contract of the families on every shape.

    Each has the `most` best candidates by the model as it is, and as many by the rates that were fitted before.

    Raises `CallError` for a file that is not rendered, and where nothing can be measured.
    """
    found = Plan()
    ranks = {(n, each.name): each.kernels for n, family in families.known.items() for each in contracts(family)}
    for comparison in of_specs(families, shapes, only) if shapes else []:
        name, _, contract = comparison.case.partition("/")
        candidates = candidates_of(comparison, families, device, triton, found.left_out)
        if candidates:
            # Among equals the kernel that the package tries first.
            tried = ranks[name, contract]
            ordered = sorted(candidates, key=lambda c: (c.predicted, tried.index(c.contestant.kernel)))
            hopeful = [c for c in ordered if c.predicted <= _HOPELESS * ordered[0].predicted]
            promised = by_rates(contract, comparison.problem, ordered, rates, device)
            best = hopeful[:most] + [candidate for _, candidate in promised[:most]]
            chosen = tuple(candidate for candidate in ordered if candidate in best)
            found.left_out["hopeless by the model"] += len(ordered) - len(hopeful)
            found.left_out["not among the best by the model"] += max(0, len(hopeful) - len(chosen))
            whole = {contestant.kernel for contestant in comparison.contestants} == set(tried)
            found.trials.append(Trial(name, contract, comparison.problem, chosen, whole))
    if not found.trials:
        raise CallError(f"no row of any kernel can run on {device.name} ({device.target}) at these sizes")
    return found


def by_rates(
    contract: str,
    problem: Problem,
    candidates: Sequence[Candidate],
    rates: Mapping[Row, tuple[float, ...]],
    device: analytic.Device,
) -> list[tuple[float, Candidate]]:
    """The candidates whose rows have rates with the seconds that these promise, the fewest first."""
    shape, width = problem.shape, ELEMENTS[problem.dtype.a].bits // 8
    found = []
    for candidate in candidates:
        row = row_of(contract, candidate.contestant.kernel, candidate.config)
        if row in rates:
            config = dict(candidate.config)
            promised = fitted.seconds(config, rates[row], shape.sizes, device.multiprocessors, width)
            found.append((promised, candidate))
    return sorted(found, key=lambda pair: pair[0])


def candidates_of(
    comparison: Comparison,
    families: Families,
    device: analytic.Device,
    triton: str,
    left_out: Counter[str],
) -> list[Candidate]:
    """The rows of a comparison's kernels that can run; `left_out` counts the others by their reasons."""
    problem = comparison.problem
    shape = problem.shape
    kernels = {kernel.name: kernel for each in comparison.contestants for kernel in families.known[each.family].kernels}
    found = []
    for contestant in comparison.contestants:
        kernel = kernels[contestant.kernel]
        table = rows(contestant)
        if len(table) != len(kernel.tiles):
            raise CallError(f"{contestant.file} is not what the spec says now: render the family again")
        reason = why_not(kernel, contestant, problem, device.target, triton)
        if reason is not None:
            left_out[reason] += len(table)
            continue
        for index, (row, tile) in enumerate(zip(table, kernel.tiles)):
            reason = why_not_row(kernel, contestant, index, problem, device.target)
            if reason is None:
                predicted = analytic.seconds(kernel, tile, shape.sizes, device)
                found.append(Candidate(contestant, index, dict(row), predicted))
            else:
                left_out[reason] += 1
    return found


def why_not(kernel: Kernel, contestant: Contestant, problem: Problem, target: str, triton: str) -> str | None:
    """Why no row of a kernel can be measured on this problem, or None."""
    if target not in kernel.targets:
        return f"not for {target}"
    if Version(triton).base_version not in SpecifierSet(kernel.triton):
        return f"not for Triton {triton}"
    refusal = getattr(module_of(contestant), "refusal", None)
    if refusal is None:
        return None
    one = shadow(problem)
    # A kernel's own reason names the sizes at hand, which would make a reason of its own for each.
    return (
        None if refusal(one.a, one.b, **one.epilogue, out=one.out) is None else "refused by the kernel at these sizes"
    )


def why_not_row(kernel: Kernel, contestant: Contestant, index: int, problem: Problem, target: str) -> str | None:
    """Why a row of a kernel that takes the problem cannot be measured on it, or None."""
    if index in dict(kernel.not_offered).get(target, ()):
        return f"too large for {target}"
    fits = getattr(module_of(contestant), "_fits", None)
    shape = problem.shape
    if fits is not None and not fits(rows(contestant)[index], shape.m, shape.n, shape.k):
        return "a row that does not take these sizes"
    return None


def calls(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """What to compile ahead: of the calls that compile to the same code the one with the least work."""
    least: dict[tuple[object, ...], tuple[int, Problem, Candidate]] = {}
    for trial in trials:
        for candidate in trial.candidates:
            key = (candidate.contestant.file, candidate.index, _specialised(candidate.config, trial.problem))
            entry = (trial.problem.bytes, trial.problem, candidate)
            if key not in least or entry[0] < least[key][0]:
                least[key] = entry
    return [precompilation.job_of(problem, chosen.contestant, chosen.index) for _, problem, chosen in least.values()]


def _specialised(config: Mapping[str, int], problem: Problem) -> tuple[object, ...]:
    """What of the sizes the compiled code depends on, or a little more than that.

    Triton knows sizes of 1 and multiples of 16; a kernel masks where the tile does not divide, and counts in 64 bits
    where an operand is large.
    """
    shape = problem.shape
    found: list[object] = [max(shape.m * shape.k, shape.k * problem.columns, shape.m * shape.n) > 2**31]
    for name, size in (("M", shape.m), ("N", shape.n), ("K", shape.k)):
        found.append((size == 1, size % 16 == 0, size % config.get(f"BLOCK_{name}", 1) == 0))
    return tuple(found)
