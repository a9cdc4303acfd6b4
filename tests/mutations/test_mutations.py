"""Every mutation of the catalogue is found by the harness, and what changes nothing is not.

A dozen run by default; all of them, and the page, with `-m mutations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.language.model import Variant
from generator.language.vocabulary import WORDS
from generator.verify.jobs import LEVELS, Job, JobResult, JobState
from tests.helpers import shipped

from . import levels
from .catalogue import MUTATIONS
from .levels import Fate, surprise
from .mutation import Mutation
from .page import PAGE, names, page
from .tool import Rotten, mutated, plant

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


class Fates:
    """What becomes of the mutations that are asked about, worked out together when the first of them is."""

    def __init__(self, wanted: Iterable[Mutation], folder: Callable[[], Path]) -> None:
        self.wanted = dict.fromkeys(wanted)
        self.folder = folder
        self.known: dict[Mutation, Fate] = {}

    def __call__(self, mutation: Mutation) -> Fate:
        if mutation not in self.known:
            self.known |= levels.fates([*self.wanted], self.folder())
        return self.known[mutation]


@pytest.fixture(scope="session")
def fates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fates:
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [found["mutation"] for found in parameters if isinstance(found.get("mutation"), Mutation)]
    everything = any(item.name == test_the_page_tells_what_is_found.__name__ for item in request.session.items)
    return Fates(MUTATIONS if everything else asked, lambda: tmp_path_factory.mktemp("mutations"))


@pytest.mark.parametrize("mutation", [BY_NAME[name] for name in SAMPLE], ids=lambda mutation: mutation.name)
def test_sample(mutation: Mutation, fates: Fates) -> None:
    assert surprise(mutation, fates(mutation)) is None


@pytest.mark.mutations
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation(mutation: Mutation, fates: Fates) -> None:
    assert surprise(mutation, fates(mutation)) is None


@pytest.mark.mutations
def test_the_page_tells_what_is_found(fates: Fates) -> None:
    found = page({mutation: fates(mutation) for mutation in MUTATIONS})
    # Not word by word: messages of torch and triton change with their versions.
    assert names(found) == names(PAGE.read_text()), "write it again: python -m tests.mutations"


def test_the_page_has_the_catalogue() -> None:
    told = [name for name, *_ in names(PAGE.read_text())]
    assert sorted(told) == sorted(BY_NAME), "write it again: python -m tests.mutations"


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobResult]:
    """At the interpret level, whichever level is the first to find it: one case of each."""
    jobs = {}
    for name, case, _ in MESSAGES:
        mutation = BY_NAME[name]
        job = levels.job(mutation, plant(mutation, tmp_path_factory.mktemp("planted")), "interpret")
        assert job is not None
        jobs[replace(job, case=case)] = name
    return {jobs[result.job]: result for result in levels.results("interpret", [*jobs])}


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, _, words in MESSAGES])
def test_the_message_says_what_is_wrong(name: str, words: str, interpreted: dict[str, JobResult]) -> None:
    assert any(words in failure.message for failure in interpreted[name].failures)


def launches() -> list[Job]:
    """What the compile level compiles of the kernels, unchanged, where a change of them is for it to find."""
    mutations = [mutation for mutation in MUTATIONS if mutation.by == "compile"]
    jobs = [levels.job(mutation, shipped.folder(mutation.family), "compile") for mutation in mutations]
    return [*dict.fromkeys(job for job in jobs if job is not None)]


@pytest.mark.mutations
def test_the_compile_level_passes_the_kernels_as_they_are() -> None:
    for result in levels.results("compile", launches()):
        assert result.state is JobState.PASSED, result
        assert result.cases == len(result.job.chosen)


def test_every_mutation_has_its_name_and_fits_its_file() -> None:
    assert len(BY_NAME) == len(MUTATIONS)
    assert all(mutation.by in LEVELS for mutation in MUTATIONS)
    for mutation in MUTATIONS:
        mutated(mutation)


def test_a_text_that_is_not_there_is_told() -> None:
    with pytest.raises(Rotten, match=r"'rotten' replaces a text that is 0 times in .*:\nno such text"):
        mutated(replace(MUTATIONS[0], name="rotten", changes=(("no such text", ""),)))
    with pytest.raises(Rotten, match=r"'loose' replaces a text that is \d+ times"):
        mutated(replace(MUTATIONS[0], name="loose", changes=(("BLOCK_M", "BLOCK_N"),)))


def test_without_a_change_the_copy_is_the_original(tmp_path: Path) -> None:
    mutation = replace(MUTATIONS[0], changes=())
    planted, original = plant(mutation, tmp_path), shipped.folder(mutation.family)
    assert (planted / mutation.file).read_bytes() == (original / mutation.file).read_bytes()
    kernel = mutation.kernel[1]
    assert read(planted).by_name == {kernel: read(original).by_name[kernel]}
    assert read(planted).digests == {kernel: read(original).digests[kernel]}


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
