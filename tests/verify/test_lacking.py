"""What a record lacks is proved alone: kernels, and configurations of a kernel whose code is the same."""

import itertools
import json
from dataclasses import replace

import pytest

from generator.emit.manifest_reader import read
from generator.verify import proof_records, verification_run, worker_pool
from generator.verify.job_inputs import InputReader
from generator.verify.job_selection import plan
from generator.verify.jobs import JobResult, Recorded, subject
from generator.verify.launches import launches
from generator.verify.proof_records import lacking
from generator.verify.result_cache import ResultCache
from tests.helpers.support import render_spec

SPEC = (
    "name: some\nsummary: Some.\nlayout: rcr\ndtype: fp16\nload: pointer\nselect: heuristic\ntargets: [sm90]\ntile:\n"
)
SMALL, WIDE, DEEP = "m: 16, n: 16, k: 16", "m: 16, n: 32, k: 16", "m: 16, n: 16, k: 16, stages: 4"
#: The word of the first.
LABEL = "16,16,16,8,3,4"
PLACE = (("device", "interpreter"), ("python", "3.11.1"), ("torch", "2.13.0"), ("triton", "3.7.1"))


@pytest.fixture
def rendered(tmp_path):
    """Renders a kernel with these configurations, each time in another folder, as workers remember a manifest."""
    numbers = itertools.count()

    def of(*tiles):
        rows = "".join(f"  - {{{tile}{'' if 'stages' in tile else ', stages: 3'}, warps: 4}}\n" for tile in tiles)
        out = tmp_path / str(next(numbers))
        out.mkdir()
        return read(render_spec(out, "some", SPEC + rows))

    return of


def job_of(family, level="interpret"):
    (job,) = [job for job in plan([family], [level], targets=("sm90",)) if not job.contract]
    return job


def left_of(family, path, level="interpret"):
    return lacking([job_of(family, level)], [family], proof_records.read(path))


def figures_of(family, path, level="interpret"):
    found = subject(job_of(family, level))
    return proof_records.read(path).proved[found][level]


def run(job):
    return worker_pool._run(job)


def test_of_a_new_table_only_new_configurations_run(rendered, interpreted, tmp_path):
    """The record is then that of a whole run. Of configurations that differ in stages the interpreter runs one."""
    path, other = tmp_path / "record.json", tmp_path / "other.json"
    whole = interpreted(run, job_of(rendered(SMALL)))
    proof_records.write(path, [whole])
    family = rendered(SMALL, WIDE, DEEP)
    (job,) = left_of(family, path)
    assert job.recorded is not None and job.recorded.rows == ((LABEL, whole.cases),)
    part = interpreted(run, job)
    assert not part.failures and 0 < part.cases < whole.cases
    proof_records.write(path, [part])
    found = figures_of(family, path)
    assert found["rows"].keys() == {LABEL, "16,16,32,8,3,4", "16,16,16,8,4,4"} and found["full"] == LABEL
    proof_records.write(other, [interpreted(run, job_of(family))])
    assert found == figures_of(family, other)
    assert left_of(family, path) == []


def passed(job, worst=0.5, **rows):
    """A run that passed, of configurations by their labels; the first has the full list."""
    found = tuple(rows.items())
    return JobResult(
        *(job, sum(rows.values())), subject=subject(job), place=PLACE, worst_error=worst, rows=found, full=found[0][0]
    )


def test_what_is_recorded_of_several_tables_counts_for_one(rendered, tmp_path):
    path = tmp_path / "record.json"
    proof_records.write(path, [passed(job_of(rendered(SMALL, WIDE)), 0.25, **{LABEL: 40, "16,16,32,8,3,4": 2})])
    proof_records.write(path, [passed(job_of(rendered(SMALL, DEEP)), 0.75, **{LABEL: 40, "16,16,16,8,4,4": 0})])
    family = rendered(SMALL, DEEP, WIDE, "m: 32, n: 32, k: 32")
    (job,) = left_of(family, path)
    rows = ((LABEL, 40), ("16,16,16,8,4,4", 0), ("16,16,32,8,3,4", 2))
    assert job.recorded == Recorded(rows, 0.75)
    # What one of these tables has not now is no part of another's record.
    proof_records.write(path, [passed(job, 0.5, **{LABEL: 7, "32,32,32,8,3,4": 2})])
    assert figures_of(family, path) == {
        "cases": 44,
        "worst_error": 0.75,
        "full": LABEL,
        "rows": {**dict(rows), "32,32,32,8,3,4": 2},
    }
    (fewer,) = left_of(rendered(SMALL), path)
    assert fewer.recorded == Recorded(((LABEL, 40),), 0.75)


#: What is other in the code of which there is a record.
CODE = {
    "the kernel": ("acc = tl.dot(", "acc = acc * 1.0 + tl.dot("),
    "the host's code": ("Call(\n    CONFIGS", "Call(\n    [*CONFIGS]"),
}


@pytest.mark.parametrize("other", [*CODE, "the full list", "no counts by configurations", "a case is not proved"])
def test_a_whole_run_where_the_record_is_of_something_else_or_says_too_little(rendered, tmp_path, other):
    path, full = tmp_path / "record.json", other == "the full list"
    job = job_of(rendered(WIDE if full else SMALL))
    if other in CODE:
        old, new = CODE[other]
        text = job.file.read_text()
        assert old in text
        job.file.write_text(text.replace(old, new))
    result = passed(job, **{"16,16,32,8,3,4" if full else LABEL: 40})
    open_cases = (("huge-a", "no memory"),) if other == "a case is not proved" else ()
    proof_records.write(path, [replace(result, not_proved=open_cases)])
    if other == "no counts by configurations":
        record = json.loads(path.read_text())
        del record["kernels"][0]["code"]
        path.write_text(json.dumps(record))
    family = rendered(SMALL, WIDE)
    assert left_of(family, path) == [job_of(family)]


def test_part_of_the_launches_is_no_record_of_all(rendered, tmp_path):
    path = tmp_path / "record.json"
    family = rendered(SMALL)
    job = job_of(family, "compile")
    names = [launch.name for launch in launches(family.kernels[0], "sm90")]
    figures = (("shared", 1), ("tensor_memory", 0), ("registers", 9), ("spilled", 0))
    for chosen, left in ((names[:1], [job]), (names, [])):
        measured = tuple((name, figures) for name in chosen)
        own = replace(job, chosen=tuple(chosen))
        result = JobResult(own, len(chosen), measured=measured, subject=subject(job), place=PLACE[1:])
        proof_records.write(path, [result])
        assert left_of(family, path, "compile") == left
        assert lacking([own], [family], proof_records.read(path)) == []


def test_a_part_of_a_run_is_no_cached_result(rendered, tmp_path):
    family = rendered(SMALL)
    job = replace(job_of(family), recorded=Recorded(((LABEL, 40),)))
    for stored in (job, job_of(family)):
        kept = ResultCache(tmp_path / "cache", [family], None)
        kept.store(replace(passed(stored, **{LABEL: 3}), inputs=InputReader().of(stored, family).digest))
        kept.flush()
        results, left = ResultCache(tmp_path / "cache", [family], None).cached([job_of(family)])
        assert left == ([job_of(family)] if stored is job else [])
        assert [(each.rows, each.full) for each in results] == ([] if stored is job else [(((LABEL, 3),), LABEL)])


def test_the_command_line_says_what_is_recorded(rendered, tmp_path, cli, monkeypatch):
    path = tmp_path / "record.json"
    job = job_of(rendered(SMALL), "bounds")
    call = ("verify", job.folder, "--level", "bounds", "--only", "*__*", "--lacking", "--results", path)
    said = cli(*call)
    assert said.status == 0 and "recorded" not in said.out and path.exists()
    said = cli(*call)
    assert said.status == 0 and said.out.startswith(f"1 of 1 jobs are recorded in {path}\n")
    monkeypatch.setattr(verification_run, "here", lambda: (None, None, {"triton": "9.9"}))
    proof_records.write(tmp_path / "other.json", [passed(job_of(rendered(SMALL)), **{LABEL: 40})])
    said = cli(*call[:-1], tmp_path / "other.json")
    assert said.status == 2 and "but these are of {'triton': '9.9'}; use another file" in said.err
