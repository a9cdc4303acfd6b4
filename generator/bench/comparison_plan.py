"""From a suite and its specs to comparisons of rendered files on shapes, without importing or timing kernels."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from generator.bench.suite import DEFAULT_PEERS, KernelSelection, Suite
from generator.emit import kept_digests
from generator.emit.render import stated_and_actual_digest
from generator.files.program import program
from generator.language.errors import CallError, nearest
from generator.language.model import Variant
from generator.language.spec import read
from generator.language.vocabulary import AXES, CONTRACT_AXES
from generator.plan.expand import expand
from generator.plan.families import families
from generator.plan.kernels import Family, Kernel
from generator.problem.product import Problem, Shape, shared_layout

#: What kernels with a word of `batch` multiply, and how its shapes are written.
_SHAPES = {
    "none": "single products, and needs shapes MxNxK",
    "strided": "batches, and needs shapes BxMxNxK",
    "grouped": "groups of rows, and needs shapes GgMxNxK",
    "grouped_k": "with K in groups, and needs shapes GgMxNxK",
}


@dataclass(frozen=True)
class Contestant:
    """One rendered implementation: a kernel's file, or a family's public function of a contract."""

    label: str
    family: str
    #: The kernel's or the contract's name.
    kernel: str
    #: The kernel's file, or the family's folder.
    file: Path
    #: The digest of the kernel's file, or of all files that the contract's function can run.
    digest: str
    #: The kernel, or the first of a contract's.
    first: Kernel

    @property
    def is_contract(self) -> bool:
        return "__" not in self.kernel


@dataclass(frozen=True)
class Comparison:
    """Implementations of one problem that are timed in the same rounds, with the peers."""

    case: str
    title: str
    problem: Problem
    contestants: tuple[Contestant, ...]
    peers: tuple[str, ...] = DEFAULT_PEERS


class Families:
    """The families of specs, each read and expanded once, found by name."""

    def __init__(self, specs: Iterable[Path], out: Path) -> None:
        self.out = out
        self.known = {family.spec.name: family for family in families(specs)}

    def family(self, name: str) -> Family:
        """The family called `name`, from the specs given or from specs/; raises `CallError` if there is none."""
        if name not in self.known:
            path = Path("specs") / f"{name}.yaml"
            if not path.is_file():
                raise CallError(f"the suite uses the family {name!r}: no spec given makes it, and there is no {path}")
            self.known[name] = expand(read(path))
        return self.known[name]

    def contestant(self, kernel: Kernel, family: str, label: str) -> Contestant:
        """A kernel as a contestant; raises `CallError` if its file is missing."""
        file = kept_digests.folder(self.family(family), self.out) / f"{kernel.name}.py"
        return Contestant(label, family, kernel.name, file, _digest(file, family), kernel)

    def contract(self, kernels: Sequence[Kernel], family: str, label: str) -> Contestant:
        """The public function of a contract that `kernels` implement; raises `CallError` if a file is missing."""
        folder = kept_digests.folder(self.family(family), self.out)
        own = [*sorted(folder.glob("_*.py")), *sorted(folder.glob("_*/*.py"))]
        files = [*own, *(folder / f"{kernel.name}.py" for kernel in kernels)]
        digests = "\n".join(_digest(file, family) for file in files)
        whole = hashlib.sha256(digests.encode()).hexdigest()
        return Contestant(label, family, kernels[0].variant.contract, folder, whole, kernels[0])


def _digest(file: Path, family: str) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        raise CallError(f"{file} is not there: render the family {family!r} first ({program()} SPEC)") from None
    return stated_and_actual_digest(text)[1]


def of_suite(suite: Suite, families: Families, only: str | None = None) -> list[Comparison]:
    """The comparisons of a suite in its order; `only` keeps cases and kernels whose name matches.

    Raises `CallError` for a choice that no kernel matches, for kernels that do not compute the same, and if `only`
    matches nothing.
    """
    comparisons = []
    for case in suite.cases:
        whole = only is None or fnmatch.fnmatchcase(case.name, only)
        chosen = [each for choice in case.choices for each in _choose(choice, families, case.name)]
        selected = [each for each in chosen if whole or fnmatch.fnmatchcase(each.kernel, only or "*")]
        if selected:
            _refuse_equal_labels(selected, case.name)
            peers = suite.peers if case.peers is None else case.peers
            comparisons += _on_shapes(case.name, case.title, selected, case.shapes, peers)
    return _refuse_none(comparisons, only, [case.name for case in suite.cases])


def of_specs(families: Families, shapes: tuple[Shape, ...], only: str | None = None) -> list[Comparison]:
    """Every kernel of the given families on every shape; kernels that compute the same are in one comparison."""
    groups: dict[tuple[str, str], list[Contestant]] = {}
    for name, family in families.known.items():
        for kernel in family.kernels:
            if only is None or fnmatch.fnmatchcase(kernel.name, only):
                own = groups.setdefault((name, kernel.variant.contract), [])
                own.append(families.contestant(kernel, name, kernel.how))
    comparisons = []
    for (name, contract), contestants in groups.items():
        comparisons += _on_shapes(f"{name}/{contract}", contract, contestants, shapes)
    return _refuse_none(comparisons, only, [])


def _refuse_none(comparisons: list[Comparison], only: str | None, cases: list[str]) -> list[Comparison]:
    if comparisons:
        return comparisons
    if not only:
        raise CallError("there is nothing to time")
    hint = f"; {nearest(only, cases)}" if cases else ""
    raise CallError(f"--only: no kernel and no case matches {only!r}{hint}")


def _refuse_equal_labels(contestants: list[Contestant], case: str) -> None:
    labels = [each.label for each in contestants]
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise CallError(f"case {case!r}: two kernels are labelled {sorted(twice)[0]!r}; give each its own label")


def _choose(choice: KernelSelection, families: Families, case: str) -> list[Contestant]:
    """The contestants of one line of a case; if several kernels match, their labels get the words that differ."""
    kernels = families.family(choice.family).kernels
    if choice.contract is not None:
        matching = [kernel for kernel in kernels if kernel.variant.contract == choice.contract]
    else:
        matching = [k for k in kernels if all(k.variant.word(axis) == word for axis, word in choice.axes)]
    if not matching:
        wanted = choice.contract or ", ".join(f"{axis}: {word}" for axis, word in choice.axes) or "any"
        names = ", ".join(kernel.name for kernel in kernels[:8])
        raise CallError(f"case {case!r}: no kernel of the family {choice.family!r} has {wanted}; it has {names}")
    if choice.contract is not None:
        label = choice.label or choice.contract
        return [families.contract(matching, choice.family, label)]
    different = [axis for axis in AXES if len({kernel.variant.word(axis) for kernel in matching}) > 1]
    contestants = []
    for kernel in matching:
        own = choice.label or ("" if different else kernel.name)
        words = [own, *(kernel.variant.word(axis) for axis in different)]
        contestants.append(families.contestant(kernel, choice.family, " ".join(filter(None, words))))
    return contestants


def _on_shapes(
    case: str,
    title: str,
    contestants: list[Contestant],
    shapes: tuple[Shape, ...],
    peers: tuple[str, ...] = DEFAULT_PEERS,
) -> list[Comparison]:
    name, v = contestants[0].first.name, _shared(case, contestants)
    if v.epilogue.reads_out:
        reason = "reads what the previous call wrote, so repeated calls have different results and cannot be timed"
        raise CallError(f"case {case!r}: {name} {reason}; exclude it with --only")
    try:
        layout = shared_layout([each.first.variant.layout for each in contestants])
    except ValueError as error:
        raise CallError(f"case {case!r}: {error}") from None
    if v.batch == "grouped_k":
        shapes = tuple(replace(shape, inner=True) if shape.groups else shape for shape in shapes)
    fitting = [shape for shape in shapes if shape.products == v.batch]
    if not fitting:
        raise CallError(f"case {case!r}: {name} multiplies {_SHAPES[v.batch]}; found {shapes[0]}")
    fitting = [shape for shape in fitting if shape.m == shape.n or not v.symmetric]
    if not fitting:
        raise CallError(f"case {case!r}: {name} has a symmetric result, so M is N; found {shapes[0]}")
    problems = [Problem(shape, v.dtype, layout, v.epilogue, v.symmetric) for shape in fitting]
    return [Comparison(case, title, problem, tuple(contestants), peers) for problem in problems]


def _shared(case: str, contestants: list[Contestant]) -> Variant:
    """The first kernel's variant, whose contract all share; raises `CallError` if they do not compute the same.

    Layouts may differ (`shared_layout` checks them), and so may implementation axes such as `math`.
    """
    kernels = [each.first for each in contestants]
    first = kernels[0].variant
    for kernel in kernels[1:]:
        for axis in (axis for axis in CONTRACT_AXES if axis != "layout"):
            if kernel.variant.word(axis) != first.word(axis):
                raise CallError(
                    f"case {case!r}: {axis} is {first.word(axis)} in {kernels[0].name} and "
                    f"{kernel.variant.word(axis)} in {kernel.name}; all kernels of a case must compute the same"
                )
    return first
