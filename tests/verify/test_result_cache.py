"""The result cache: what passed is cached; a change to what the verdict has read, or another version, runs it again."""

import os
import shutil
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.verify import job_inputs, result_cache, static_checks, worker_pool
from generator.verify.job_inputs import PACKAGES, InputReader, installed, run_with_inputs
from generator.verify.job_selection import plan
from generator.verify.jobs import LEVELS, Failure, Job, JobResult, JobState, subject
from generator.verify.result_cache import ResultCache

KERNEL = "gemm_fp16_rcr_none__tiled_pointer_mnk_linear"
OTHER = "gemm_fp16_rcr_none__naive_pointer_mnk_linear"


@pytest.fixture
def family(ladder):
    return read(ladder)


def store(tmp_path, family, device=None):
    return ResultCache(tmp_path / "cache", [family], device)


def known(tmp_path, family, job, device=None):
    """The result of a job in another run."""
    results, left = store(tmp_path, family, device).cached([job])
    assert len(results) + len(left) == 1
    return results[0] if results else None


def passed(family, job, **rest):
    """The result of a job that has passed on the files as they are."""
    return JobResult(job, cases=7, inputs=InputReader().of(job, family).digest, **rest)


def keep(tmp_path, family, result, device=None):
    cache = store(tmp_path, family, device)
    cache.store(result)
    cache.flush()


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def job_of(family, level="interpret", **rest):
    target = "sm90" if level == "compile" else None
    return Job(level, family.folder, KERNEL, target=target, **rest)


def test_what_passed_is_known_again(tmp_path, family):
    job = job_of(family)
    measured = (("aligned", (("shared", 1024), ("registers", 32))),)
    rest = {"place": (("triton", "3.7.1"),), "rows": (("64x64", 7),), "rows_left_out": ((1, "too large"),)}
    first = passed(family, job, worst_error=0.5, subject=subject(job), measured=measured, seconds=2.0, **rest)
    assert known(tmp_path, family, job) is None
    keep(tmp_path, family, first)
    again = known(tmp_path, family, job)
    assert again == replace(first, cached=True, inputs="") and again.subject is not None
    assert (tmp_path / "cache" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    "result",
    [
        {"failures": (Failure("one", "r", "m"),)},
        {"left_out": "no"},
        {"not_proved": (("huge-a", "no memory"),)},
        {"inputs": ""},
    ],
)
def test_what_did_not_pass_on_known_bytes_is_done_again(tmp_path, family, result):
    job = job_of(family)
    keep(tmp_path, family, replace(passed(family, job), **result))
    assert known(tmp_path, family, job) is None


def test_a_part_of_a_job_is_not_the_whole(tmp_path, family):
    for part in (job_of(family, case="primes"), job_of(family, "compile", chosen=("one",))):
        keep(tmp_path, family, passed(family, part))
        assert known(tmp_path, family, part)
        assert known(tmp_path, family, replace(part, case=None, chosen=())) is None


def test_another_manifest_package_version_or_device_is_unknown(tmp_path, family, monkeypatch):
    job = job_of(family, "gpu")
    keep(tmp_path, family, passed(family, job), "a GPU")
    assert known(tmp_path, family, job, "a GPU")
    assert known(tmp_path, family, job, "another GPU") is None
    manifest = family.folder / "manifest.json"
    change(manifest, '"warps": 4', '"warps": 8')
    assert known(tmp_path, read(family.folder), job, "a GPU") is None
    change(manifest, '"warps": 8', '"warps": 4')
    assert known(tmp_path, read(family.folder), job, "a GPU")
    package = tmp_path / "package"
    (package / "verify").mkdir(parents=True)
    (package / "verify" / "data.json").write_text("{}")
    keys = []
    for name, value in (("_version", lambda package: "9.9"), ("PACKAGE", package), ("PACKAGE", package)):
        monkeypatch.setattr(job_inputs, name, value)
        job_inputs._environment.cache_clear()
        assert known(tmp_path, family, job, "a GPU") is None
        keys.append(InputReader().of(job, family))
        if name == "PACKAGE":
            (package / "verify" / "data.json").write_text("{ }")
    assert len(set(keys)) == 3
    monkeypatch.undo()
    job_inputs._environment.cache_clear()
    assert known(tmp_path, family, job, "a GPU")


EMPTIED = lambda file: file.write_text("")  # noqa: E731


@pytest.mark.parametrize("name", [f"{KERNEL}.py", "_runtime/call.py", "_shared_memory.py", "__init__.py", "py.typed"])
@pytest.mark.parametrize("edit", [EMPTIED, Path.unlink, lambda file: file.write_bytes(file.read_bytes() + b"#")])
def test_each_file_that_is_read_counts_and_a_missing_one_is_not_an_empty_one(name, edit, tmp_path, family):
    jobs = [job_of(family, level) for level in LEVELS]
    for job in jobs:
        keep(tmp_path, family, passed(family, job))
    file = family.folder / name
    text = file.read_bytes()
    edit(file)
    same = file.exists() and file.read_bytes() == text
    assert same == (name == "py.typed" and edit is EMPTIED)
    assert [job for job in jobs if known(tmp_path, family, job)] == (jobs if same else [])
    file.write_bytes(text)
    assert all(known(tmp_path, family, job) for job in jobs)


def test_another_kernel_counts_only_for_what_runs_it(tmp_path, family):
    (contract,) = family.contracts
    jobs = [*(job_of(family, level) for level in LEVELS), Job("interpret", family.folder, contract, contract=True)]
    for job in jobs:
        keep(tmp_path, family, passed(family, job))
    change(family.file(OTHER), "tl.dot(a, b, acc)", "tl.dot(b, a, acc)")
    assert [job for job in jobs if not known(tmp_path, family, job)] == [jobs[-1]]


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_known_of_a_folder_with_a_module_that_is_not_listed(level, tmp_path, family):
    job, library = job_of(family, level), family.folder / "_runtime"
    keep(tmp_path, family, passed(family, job))
    # Python imports the folder `call`, and not the module beside it.
    (library / "call").mkdir()
    (library / "call" / "__init__.py").write_text("Call = print\n")
    keep(tmp_path, family, passed(family, job))
    assert known(tmp_path, family, job) is None
    shutil.rmtree(library / "call")
    assert known(tmp_path, family, job)


WRONG = ("offs_m < M", "offs_m <= M")


def test_a_verdict_is_stored_of_the_bytes_that_the_worker_has_read(tmp_path, family):
    """A kernel is wrong when the run begins, and right when a worker reads it."""
    job = Job("bounds", family.folder, OTHER)
    change(family.file(OTHER), *WRONG)
    cache = store(tmp_path, family)
    assert cache.cached([job]) == ([], [job])
    change(family.file(OTHER), *reversed(WRONG))
    (result,) = worker_pool.results("bounds", [job], 1)
    assert result.state is JobState.PASSED
    cache.store(result)
    cache.flush()
    assert known(tmp_path, family, job)
    change(family.file(OTHER), *WRONG)
    assert known(tmp_path, family, job) is None


@pytest.mark.parametrize("name", [f"{KERNEL}.py", "_runtime/call.py", "py.typed"])
@pytest.mark.parametrize("back", [False, True])
def test_a_job_has_failed_whose_files_change_while_it_runs(name, back, tmp_path, family):
    job, file = job_of(family), family.folder / name

    def run(job):
        text, times = file.read_bytes(), os.stat(file)
        file.write_bytes(b"# Another.\n")
        if back:
            file.write_bytes(text)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        return JobResult(job, cases=7)

    result = run_with_inputs(job, run)
    assert result.state is JobState.FAILED and result.lost and not result.inputs
    assert "changed while the job ran" in result.failures[0].message
    assert run_with_inputs(job, lambda job: JobResult(job, cases=7)).state is JobState.PASSED


def test_a_text_that_changes_while_it_is_checked_has_failed(family, monkeypatch):
    jobs = plan([family], ("static",))
    assert all(result.state is JobState.PASSED and result.inputs for result in static_checks.run(jobs))
    checked = static_checks._with_ruff
    monkeypatch.setattr(static_checks, "_with_ruff", lambda *own: (family.file(KERNEL).touch(), checked(*own))[1])
    failed = [result.job.name for result in static_checks.run(jobs) if result.failures]
    assert failed == [KERNEL]


def test_damaged_lines_are_a_warning_and_are_removed(tmp_path, family, capsys):
    jobs = [job_of(family, level) for level in LEVELS]
    for job in jobs:
        keep(tmp_path, family, passed(family, job))
    file = tmp_path / "cache" / result_cache.NAME
    lines = file.read_bytes().splitlines()
    # A bit of another result, half a line, and no text at all.
    damaged = [lines[0].replace(b'"cases": 7', b'"cases": 8'), *lines[1:4], lines[4][:99], b"\xff\0"]
    file.write_bytes(b"\n".join(damaged))
    cache = store(tmp_path, family)
    results, left = cache.cached(jobs)
    assert [result.job for result in results] == jobs[1:4] and left == [jobs[0], jobs[4]]
    assert capsys.readouterr().err.count("3 damaged lines are not used; the proofs run without these") == 1
    cache.store(passed(family, jobs[0]))
    cache.flush()
    assert store(tmp_path, family).cached(jobs)[1] == [jobs[4]] and not capsys.readouterr().err


def test_the_file_is_bounded_and_loses_its_oldest_results(tmp_path, family, monkeypatch):
    monkeypatch.setattr(result_cache, "_MOST", 4000)
    jobs = [job_of(family, case=f"case {number}") for number in range(40)]
    for job in jobs:
        keep(tmp_path, family, passed(family, job))
        assert (tmp_path / "cache" / result_cache.NAME).stat().st_size <= 4000
    here = [known(tmp_path, family, job) is not None for job in jobs]
    assert 4 < sum(here) < 40 and here == sorted(here)


def test_runs_that_store_at_once_keep_all(tmp_path, family):
    caches = [store(tmp_path, family) for _ in range(3)]
    jobs = [job_of(family, case=f"case {number}") for number in range(3)]
    for cache, job in zip(caches, jobs, strict=True):
        cache.store(passed(family, job))
    for cache in caches:
        cache.flush()
    assert store(tmp_path, family).cached(jobs)[1] == []


@pytest.mark.parametrize("package", sorted({name for names in PACKAGES.values() for name in names}))
def test_an_installed_package_has_the_version_of_its_metadata(package):
    assert installed(package) == version(package)


@pytest.mark.parametrize(
    ("name", "text"), [("__init__.py", '__version__ = "9.9.1"\n'), ("version.py", '__version__: str = "9.9.1"\n')]
)
def test_a_folder_without_metadata_states_its_own_version(tmp_path, monkeypatch, name, text):
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('this is not imported')\n")
    with (package / name).open("a") as file:
        file.write(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert version("triton") != "9.9.1" and installed("triton") == "9.9.1"
    (package / name).write_text("")
    with pytest.raises(PackageNotFoundError):
        installed("triton")
