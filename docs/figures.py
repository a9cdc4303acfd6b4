"""The figures within the sentences of README.md and docs/: what each is, and how it is made from data.

In a page a comment behind a figure says what it is, and `python docs/pages.py` writes the figure anew:

    the mean of 696<!-- figure: sizes speed */*[!d] --> sizes is 1.04<!-- figure: mean speed */*[!d] -->
    prints `generated/fp16_rcr: 41 kernels; 77 same`<!-- figure: rendered fp16_rcr -->

The first word is an entry of FIGURES; the others are its arguments. Tests refuse a figure of kernels, launches, cases
or sizes without a comment.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import geometric_mean

from packaging.specifiers import SpecifierSet

from generator.bench import measurements, suite, summary
from generator.emit import manifest_reader, package_files, render
from generator.language.versions import minor_versions
from generator.plan.families import families
from generator.problem.product import Shape
from generator.verify import proof_records
from tests.helpers import shipped

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "measured"
DEVICE = MEASURED / "nvidia_h200"
#: Another GPU, on which fp32 in full precision and tf32x3 were tuned; some others were measured on both.
OTHER = MEASURED / "nvidia_h100_80gb_hbm3"

#: The results that pages summarize, by suite; `_other` are those of the other GPU where both have some.
RESULTS: Mapping[str, Path] = {
    suite: folder / f"bench_{suite}.json"
    for folder, suites in (
        (DEVICE, "speed grouped spine inductor decode types batched fused formulas unseen unseen_fp8 stored"),
        (OTHER, "unseen_fp32 unseen_tokens unseen_batches"),
    )
    for suite in suites.split()
} | {
    f"{suite}_other": OTHER / f"bench_{suite}.json" for suite in ("unseen", "unseen_fp8", "stored", "types", "grouped")
}

#: A figure: a number or a span of code, and the comment behind it.
PATTERN = re.compile(r"(`[^`\n]+`|\d[\d.,]*)<!-- figure: ([^>]*?) -->")


@functools.cache
def ratios(results: str, cases: str = "*", peer: str = "cublas") -> tuple[tuple[Shape, float], ...]:
    """The sizes of the cases that match, of the results of a suite, each with its ratio to a peer."""
    records = measurements.load(RESULTS[results]).records
    kept = [record for record in records if fnmatch.fnmatchcase(record.case, cases)]
    groups = [each for each in summary.summarize(kept) if each.case != "all" and each.peer == _PEERS.get(peer, peer)]
    entries = tuple(entry for group in groups for entry in group.ratios)
    if not entries:
        raise ValueError(f"{results} has no ratio of {cases} to {peer}")
    return entries


_PEERS = {"fastest": summary.BEST}


def _between(results: str, cases: str, rows: str, peer: str) -> list[float]:
    """The ratios at sizes with so many rows, `65-1024`; of all with `-`."""
    least, _, most = rows.partition("-")
    between = [
        ratio for shape, ratio in ratios(results, cases, peer) if int(least or 0) <= shape.m <= int(most or 2**31)
    ]
    if not between:
        raise ValueError(f"{results} has no size of {cases} with {rows} rows")
    return between


def mean(results: str, cases: str = "*", rows: str = "-", peer: str = "cublas") -> str:
    """The geometric mean of ratios."""
    return f"{geometric_mean(_between(results, cases, rows, peer)):.2f}"


def least(results: str, cases: str = "*", rows: str = "-", peer: str = "cublas") -> str:
    """The smallest ratio."""
    return f"{min(_between(results, cases, rows, peer)):.2f}"


def sizes(results: str, cases: str = "*", rows: str = "-", peer: str = "cublas") -> str:
    """How many sizes there are."""
    return f"{len(_between(results, cases, rows, peer)):,}"


def under(bound: str, results: str, cases: str = "*", rows: str = "-", peer: str = "cublas") -> str:
    """At how many sizes the ratio is under a bound."""
    return f"{sum(ratio < float(bound) for ratio in _between(results, cases, rows, peer)):,}"


@functools.cache
def _aligned(results: str, cases: str, rows: str) -> tuple[float, ...]:
    """The ratios to cuBLAS at sizes whose rows are multiples of 16 bytes, with so many rows."""
    records = measurements.load(RESULTS[results]).records
    kept = [record for record in records if fnmatch.fnmatchcase(record.case, cases)]
    groups = [each for each in summary.summarize(kept) if each.case != "all" and each.peer == "cublas"]
    first, _, last = rows.partition("-")
    entries = (entry for group in groups for entry in group.aligned)
    return tuple(ratio for shape, ratio in entries if int(first or 0) <= shape.m <= int(last or 2**31))


def aligned_sizes(results: str, cases: str = "*", rows: str = "-") -> str:
    """How many sizes have rows that are multiples of 16 bytes."""
    return f"{len(_aligned(results, cases, rows)):,}"


def aligned_mean(results: str, cases: str = "*", rows: str = "-") -> str:
    """The geometric mean of ratios at these: with three digits of all rows."""
    return f"{geometric_mean(_aligned(results, cases, rows)):.{3 if rows == '-' else 2}f}"


def suite_sizes(name: str, cases: str = "*") -> str:
    """The sizes of a suite."""
    selected = [each for each in suite.read_suite(suite.find(name)).cases if fnmatch.fnmatchcase(each.name, cases)]
    return f"{sum(len(each.shapes) for each in selected):,}"


def shapes(name: str) -> str:
    """The sizes of a file of shapes, of the generator's own or of `measured/specs`."""
    path = suite.SHAPES / f"{name}.yaml"
    return f"{len(suite.read_shapes(path if path.is_file() else MEASURED / 'specs' / path.name)):,}"


@functools.cache
def _rendered() -> tuple[manifest_reader.Rendered, ...]:
    return tuple(manifest_reader.read(folder) for folder in shipped.folders())


@functools.cache
def _current() -> frozenset[proof_records.Subject]:
    return frozenset(proof_records.current(_rendered()))


def kernels(triton: str = "") -> str:
    """The kernels of `specs/`, one that two families share once; those that a version of Triton compiles."""
    of = {kernel.name: kernel.triton for family in _rendered() for kernel in family.kernels}
    subjects = {subject.kernel for subject in _distinct()}
    taken = [name for name in subjects if not triton or triton in minor_versions(SpecifierSet(of[name]))]
    return f"{sum(1 for subject in _distinct() if subject.kernel in set(taken)):,}"


def _distinct() -> frozenset[proof_records.Subject]:
    """Device and host code of each kernel, once."""
    return frozenset(subject for subject in _current() if subject.host)


@functools.cache
def _proved(level: str, triton: str) -> tuple[int, int]:
    """Kernels and cases that are proved at a level, `compile sm90`, with a version of Triton."""
    proved: dict[proof_records.Subject, int] = {}
    for path in sorted((MEASURED / "proofs").glob("*.json")):
        record = proof_records.read(path)
        if triton in ("any", record.place["triton"]):
            for subject, levels in record.proved.items():
                own = levels.get(level.replace("_", " "))
                if own is not None and subject in _current() and proof_records.complete(own):
                    proved[subject] = own["cases"]
    return len(proved), sum(proved.values())


def proved(level: str, triton: str) -> str:
    """The kernels that are proved at a level, `compile_sm90`, with a version of Triton, or with `any`."""
    return f"{_proved(level, triton)[0]:,}"


def recorded(name: str, key: str) -> str:
    """A number of a file of `measured`."""
    value = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))[key]
    return f"{value:,}"


def rendered(name: str) -> str:
    """What rendering a committed family prints."""
    (family,) = (each for each in _rendered() if each.name == name)
    # The manifest itself is a file that stays the same, too.
    return f"`generated/{name}: {len(family.kernels)} kernels; {len(family.files) + 1} same`"


@functools.cache
def lines(package: str) -> str:
    """Lines of Python of two kernels beside their files, in hundreds; of `files`, how many more a kernel's file has."""
    (family,) = families([ROOT / "docs" / "examples" / "linear.yaml"], package)
    if package == "files":
        (other,) = families([ROOT / "docs" / "examples" / "linear.yaml"], "torch")
        alone, with_library = (render.kernel_source(each.spec, each.kernels[0]).count("\n") for each in (family, other))
        return f"{round(alone - with_library, -2):,}"
    names = [name for name in package_files.package_names(family) if name.endswith(".py")]
    return f"{round(sum(package_files.package_source(family, name).count(chr(10)) for name in names), -2):,}"


def unchosen(name: str) -> str:
    """The kernels of a family of specs/ that no function chooses."""
    from generator.emit.never_chosen import never_chosen

    (family,) = families([ROOT / "specs" / f"{name}.yaml"])
    return str(len(never_chosen(family)))


def of_family(name: str) -> str:
    """The kernels of a family."""
    return str(next(len(each.kernels) for each in _rendered() if each.name == name))


FIGURES: Mapping[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        *(mean, least, sizes, under, aligned_sizes, aligned_mean, suite_sizes),
        *(shapes, kernels, proved, recorded, rendered, lines, unchosen, of_family),
    )
}


def figure(words: str) -> str:
    """The figure that a comment asks for."""
    name, *arguments = words.split()
    if name not in FIGURES:
        raise ValueError(f"no figure is named {name!r}; there are {', '.join(FIGURES)}")
    return FIGURES[name](*arguments)


def written(text: str) -> str:
    """A page with its figures made anew."""
    return PATTERN.sub(lambda found: f"{figure(found[2])}<!-- figure: {found[2]} -->", text)
