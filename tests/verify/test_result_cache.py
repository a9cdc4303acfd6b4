"""The result cache: what passed is cached, and a change to anything that it depends on makes it run again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from generator.emit.manifest_reader import Rendered, read
from generator.files import signed_store
from generator.verify import dependencies, result_cache
from generator.verify.jobs import LEVELS, Failure, Job, JobResult, subject
from generator.verify.launches import launches
from generator.verify.result_cache import ResultCache
from tests.helpers.support import ROOT

KERNEL = "gemm_fp16_rcr_none__tiled_pointer_mnk_linear"
FIGURES = (("shared", 1024), ("registers", 32))


@pytest.fixture(autouse=True)
def _at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of its own, and results that are written at once, since these tests close no cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(signed_store, "_WAITING", 0)


@pytest.fixture
def family(tmp_path: Path) -> Rendered:
    shutil.copytree(ROOT / "generated" / "ladder", tmp_path / "ladder")
    return read(tmp_path / "ladder")


def store(tmp_path: Path, family: Rendered, device: str | None = None) -> ResultCache:
    return ResultCache(tmp_path / "cache", [family], device)


def known(found: ResultCache, job: Job) -> JobResult | None:
    results, left = found.cached([job])
    assert len(results) + len(left) == 1
    return results[0] if results else None


def test_what_passed_is_known_again(tmp_path: Path, family: Rendered) -> None:
    job = Job("interpret", family.folder, KERNEL)
    first = JobResult(job, cases=7, worst_error=0.5, subject=subject(job), place=(("triton", "3.7.1"),), seconds=2.0)
    assert known(store(tmp_path, family), job) is None
    store(tmp_path, family).store(first)
    again = known(store(tmp_path, family), job)
    assert again is not None and again.cached
    assert again == replace(first, cached=True) and subject(job) is not None


@pytest.mark.parametrize(
    "result",
    [
        {"failures": (Failure("one", "r", "m"),)},
        {"left_out": "no"},
        {"not_proved": (("huge-a", "no memory"),)},
    ],
)
def test_what_did_not_pass_is_done_again(tmp_path: Path, family: Rendered, result: dict[str, object]) -> None:
    job = Job("interpret", family.folder, KERNEL)
    store(tmp_path, family).store(JobResult(job, cases=7, **result))  # type: ignore[arg-type]
    assert known(store(tmp_path, family), job) is None


def test_a_single_case_is_not_the_whole(tmp_path: Path, family: Rendered) -> None:
    one = Job("interpret", family.folder, KERNEL, case="primes")
    store(tmp_path, family).store(JobResult(one, cases=1))
    assert known(store(tmp_path, family), one) is None
    assert known(store(tmp_path, family), Job("interpret", family.folder, KERNEL)) is None


def test_another_text_manifest_harness_version_or_device_is_unknown(
    tmp_path: Path, family: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("gpu", family.folder, KERNEL)
    store(tmp_path, family, "a GPU").store(JobResult(job, cases=7))
    assert known(store(tmp_path, family, "a GPU"), job)
    assert known(store(tmp_path, family, "another GPU"), job) is None
    with monkeypatch.context() as patched:
        patched.setattr(dependencies, "harness_digest", lambda level: f"another of {level}")
        assert known(store(tmp_path, family, "a GPU"), job) is None
    with monkeypatch.context() as patched:
        patched.setattr(result_cache, "_installed", lambda package: "9.9")
        assert known(store(tmp_path, family, "a GPU"), job) is None
    manifest = family.folder / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"warps": 4', '"warps": 8'))
    assert known(store(tmp_path, read(family.folder), "a GPU"), job) is None
    manifest.write_text(text)
    assert known(store(tmp_path, family, "a GPU"), job)
    change(family.file(KERNEL), "tl.dot(a, b, acc)", "tl.dot(b, a, acc)")
    assert known(store(tmp_path, family, "a GPU"), job) is None


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "unknown"),
    [
        (f"{KERNEL}.py", "# Which tile", "# What tile", {"static"}),
        (f"{KERNEL}.py", "No result may alias", "No result may overlap", {"static"}),
        (f"{KERNEL}.py", "acc = tl.dot(a, b, acc)", "acc = tl.dot(a, b)", set(LEVELS)),
        (f"{KERNEL}.py", "b=b, out=out)", "b=b, out=None)", set(LEVELS) - {"compile"}),
        # Of the family's library, what works out a launch, and a message, which the interpret level reads.
        ("_runtime/call.py", "arguments.update(row)", "arguments.update({})", set(LEVELS)),
        ("_runtime/call.py", "must have {wanted}, got shape", "must have {wanted}, and it has", set(LEVELS)),
        ("_runtime/extents.py", "lambda x, y: -(-x // y)", "lambda x, y: x // y", set(LEVELS)),
        ("_runtime/call.py", "What the call launches;", "What calls launch;", {"static"}),
        ("_runtime/call_tensors.py", "# The largest size", "# The most", {"static"}),
    ],
)
def test_a_level_depends_on_what_it_reads_of_a_kernel_and_of_the_library(
    file: str, old: str, new: str, unknown: set[str], tmp_path: Path, family: Rendered
) -> None:
    jobs = {level: Job(level, family.folder, KERNEL) for level in ("static", "bounds", "interpret", "gpu")}
    jobs["compile"] = Job("compile", family.folder, KERNEL, target="sm90")
    names = [launch.name for launch in launches(family.by_name[KERNEL], "sm90")]
    for job in jobs.values():
        measured = tuple((name, FIGURES) for name in names) if job.target else ()
        store(tmp_path, family).store(JobResult(job, len(names), measured=measured))
        assert known(store(tmp_path, family), job)
    change(family.folder / file, old, new)
    assert {level for level, job in jobs.items() if known(store(tmp_path, family), job) is None} == unknown


@pytest.mark.parametrize("level", ["bounds", "interpret", "gpu"])
def test_a_module_that_is_gone_or_added_in_the_library_makes_a_level_unknown(
    level: str, tmp_path: Path, family: Rendered
) -> None:
    job, library = Job(level, family.folder, KERNEL), family.folder / "_runtime"
    store(tmp_path, family).store(JobResult(job, cases=7))
    assert known(store(tmp_path, family), job)
    # Python imports the folder `call`, and not the module beside it.
    (library / "call").mkdir()
    (library / "call" / "__init__.py").write_text("Call = print\n")
    assert known(store(tmp_path, family), job) is None
    shutil.rmtree(library / "call")
    assert known(store(tmp_path, family), job)
    (library / "extents.py").unlink()
    assert known(store(tmp_path, family), job) is None


def test_a_text_is_parsed_once(tmp_path: Path, family: Rendered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine hundred files would take longer than all else that a run does where nothing has changed."""
    job = Job("interpret", family.folder, KERNEL)
    store(tmp_path, family).store(JobResult(job, cases=7))
    with monkeypatch.context() as patched:
        patched.delattr(result_cache.code_parts, "of_file")
        found = known(store(tmp_path, family), job)
    assert found is not None and found.subject == subject(job)
    change(family.file(KERNEL), "tl.dot(a, b, acc)", "tl.dot(b, a, acc)")
    with monkeypatch.context() as patched, pytest.raises(AttributeError):
        patched.delattr(result_cache.code_parts, "of_file")
        known(store(tmp_path, family), job)


def test_a_file_that_is_no_python_is_known_by_its_text(tmp_path: Path, family: Rendered) -> None:
    job = Job("interpret", family.folder, KERNEL)
    text = family.file(KERNEL).read_text()
    for ending in ("\ndef f(:\n", "\ndef g(:\n"):
        family.file(KERNEL).write_text(text + ending)
        assert known(store(tmp_path, family), job) is None
        store(tmp_path, family).store(JobResult(job, cases=1))
        assert known(store(tmp_path, family), job)


def test_a_contract_depends_on_all_its_kernels_and_on_the_familys_own_code(tmp_path: Path, family: Rendered) -> None:
    (name,) = family.contracts
    job = Job("interpret", family.folder, name, contract=True)
    store(tmp_path, family).store(JobResult(job, cases=2))
    for file, words, code, other in (
        (family.file(KERNEL), "# Which tile", "tl.dot(a, b, acc)", "tl.dot(b, a, acc)"),
        (family.folder / "_runtime" / "functions.py", "How the functions", "raise ValueError", "raise TypeError"),
        (family.folder / "__init__.py", "# Generated", "import importlib", "import importlib as importlib"),
    ):
        text = file.read_text()
        change(file, words, f"{words} of all")
        assert known(store(tmp_path, family), job)
        change(file, code, other)
        assert known(store(tmp_path, family), job) is None
        file.write_text(text)
    assert known(store(tmp_path, family), job)


def test_launches_are_kept_one_by_one(tmp_path: Path, family: Rendered) -> None:
    names = [launch.name for launch in launches(family.by_name[KERNEL], "sm90")]
    whole = Job("compile", family.folder, KERNEL, target="sm90")
    some = Job("compile", family.folder, KERNEL, target="sm90", chosen=tuple(names[:3]))
    measured = tuple((name, FIGURES) for name in names[:3])
    failure = (Failure(names[1], "r", "m"),)
    store(tmp_path, family).store(JobResult(some, 3, failure, measured=measured, subject=subject(some)))
    results, left = store(tmp_path, family).cached([whole])
    assert not results
    (rest,) = left
    assert set(rest.chosen) == set(names) - {names[0], names[2]}
    found = store(tmp_path, family)
    figures = tuple((name, FIGURES) for name in rest.chosen)
    done = JobResult(rest, len(rest.chosen), measured=figures, subject=subject(rest))
    joined = found.whole(done, whole)
    assert (joined.job, joined.subject, joined.cases) == (whole, subject(whole), len(names))
    assert {name for name, _ in joined.measured} == set(names)
    found.store(done)
    again = known(store(tmp_path, family), whole)
    assert again is not None and again.cached and again.cases == len(names)
    other = Job("compile", family.folder, KERNEL, target="sm80")
    assert known(store(tmp_path, family), other) is None


def test_launches_that_a_pattern_chooses_are_known_without_the_others(tmp_path: Path, family: Rendered) -> None:
    names = [launch.name for launch in launches(family.by_name[KERNEL], "sm90")]
    aligned = [name for name in names if name.endswith("-aligned")]
    assert 0 < len(aligned) < len(names)
    job = Job("compile", family.folder, KERNEL, target="sm90", case="*-aligned")
    store(tmp_path, family).store(JobResult(job, len(aligned), measured=tuple((name, FIGURES) for name in aligned)))
    again = known(store(tmp_path, family), job)
    assert again is not None and [name for name, _ in again.measured] == aligned
    # Other launches that are known besides are none of its business.
    others = Job("compile", family.folder, KERNEL, target="sm90")
    store(tmp_path, family).store(JobResult(others, len(names), measured=tuple((name, FIGURES) for name in names)))
    again = known(store(tmp_path, family), job)
    assert again is not None and again.cases == len(aligned)


def test_the_folder_keeps_itself_out_of_git(tmp_path: Path, family: Rendered) -> None:
    store(tmp_path, family).store(JobResult(Job("static", family.folder, KERNEL), cases=1))
    assert (tmp_path / "cache" / ".gitignore").read_text() == "*\n"
