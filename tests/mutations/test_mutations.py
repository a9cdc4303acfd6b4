"""Every mutation of the catalogue is found by the harness, and what changes nothing is not.

A dozen run by default; all of them with `-m mutations`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from generator.emit.manifest_reader import read
from generator.language.model import Variant
from generator.language.vocabulary import WORDS
from generator.verify.jobs import LEVELS, Job, JobResult, JobState
from tests.helpers import shipped

from . import levels
from .catalogue import MUTATIONS, Mutation
from .levels import Fate, surprise
from .tool import mutated, plant

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}

#: Of each level and of the marks some; none takes long.
SAMPLE = (
    "a hand edit",
    "an import that is not used",
    "strides of A are exchanged",
    "the bound of K is weakened",
    "the last tile has no program",
    "the loop over K begins with the second step",
    "refusal() says nothing of what gemm refuses",
    "the first kernel is taken, whatever it refuses",
    "relu drops NaN",
    "fp32 is multiplied in tf32",
    "another comment",
    "the result is rounded before relu",
)

#: What a message must say, and a case that leads to it.
MESSAGES = (
    ("A and B are not masked along K", "one", "stray load"),
    ("B is not masked along N", "one", "stray load"),
    ("the store is not masked along N", "empty-k", "stray store"),
    ("offsets are 32 bits wide", "huge-a", "stray load"),
    ("the last tile has no program", "aligned", "never written"),
    ("the sum is rounded before the epilogue", "aligned", "elements are wrong"),
    ("A's masked load has no other", "one", "elements are wrong"),
)


Fates = Callable[[Mutation], Fate]


@pytest.fixture(scope="session")
def fates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fates:
    """What becomes of the mutations that are asked about, worked out together when the first of them is."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [found["mutation"] for found in parameters if isinstance(found.get("mutation"), Mutation)]
    known = functools.cache(lambda: dict(levels.fates([*dict.fromkeys(asked)], tmp_path_factory.mktemp("mutations"))))
    return lambda mutation: known()[mutation]


@pytest.mark.parametrize("mutation", [BY_NAME[name] for name in SAMPLE], ids=lambda mutation: mutation.name)
def test_sample(mutation: Mutation, fates: Fates) -> None:
    assert surprise(mutation, fates(mutation)) is None


@pytest.mark.mutations
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation(mutation: Mutation, fates: Fates) -> None:
    assert surprise(mutation, fates(mutation)) is None


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobResult]:
    """At the interpret level, whichever level is the first to find it: one case of each."""
    jobs = {}
    for name, case, _ in MESSAGES:
        mutation = BY_NAME[name]
        job = levels.job(mutation, plant(mutation, tmp_path_factory.mktemp("planted")), "interpret")
        assert job is not None
        jobs[replace(job, case=case)] = name
    return {jobs[result.job]: result for result in levels.results_at("interpret", [*jobs])}


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, _, words in MESSAGES])
def test_the_message_says_what_is_wrong(name: str, words: str, interpreted: dict[str, JobResult]) -> None:
    assert any(words in failure.message for failure in interpreted[name].failures)


def launches() -> list[Job]:
    """What the compile level compiles of the kernels, unchanged, where a change of them is for it to find."""
    mutations = [mutation for mutation in MUTATIONS if mutation.by == "compile"]
    jobs = [levels.job(mutation, shipped.folder(mutation.kernel[0]), "compile") for mutation in mutations]
    return [*dict.fromkeys(job for job in jobs if job is not None)]


@pytest.mark.mutations
def test_the_compile_level_passes_the_kernels_as_they_are() -> None:
    for result in levels.results_at("compile", launches()):
        assert result.state is JobState.PASSED, result
        assert result.cases == len(result.job.chosen)


def test_every_mutation_has_its_name_and_fits_its_file() -> None:
    assert len(BY_NAME) == len(MUTATIONS)
    assert all(mutation.by in LEVELS for mutation in MUTATIONS)
    for mutation in MUTATIONS:
        mutated(mutation)


def test_kernels_of_every_kind_are_changed() -> None:
    """Whatever value an axis has in a rendered kernel, one that has it is changed."""

    def values(variants: Iterable[Variant]) -> set[tuple[str, str]]:
        words = {(axis, variant.words[axis]) for variant in variants for axis in WORDS}
        parts = {(side, getattr(v.layout, side)) for v in variants for side in "abc"}
        return words | parts | {("a's type", v.dtype.a) for v in variants} | {("sums", v.dtype.acc) for v in variants}

    rendered = {folder.name: read(folder) for folder in shipped.folders()}
    every = [kernel.variant for family in rendered.values() for kernel in family.kernels]
    changed = [rendered[family].by_name[name].variant for family, name in {m.kernel for m in MUTATIONS}]
    assert values(every) - values(changed) == set()
