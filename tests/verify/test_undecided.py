"""What is not proved has not passed: cases that a level could not decide, and runs, filters and records of nothing."""

import contextlib
import json
import mmap
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from generator.emit.manifest_reader import read
from generator.language.errors import CallError
from generator.language.model import Tile
from generator.verify import level_scope, verification_run, worker, worker_pool
from generator.verify.job_selection import plan
from generator.verify.jobs import LEVELS, WHOLE, Failure, Job, JobResult, JobState, Subject, subject
from generator.verify.launches import launches, left_out
from generator.verify.proof_records import read as read_results
from generator.verify.proof_records import table, write
from tests.helpers import shipped
from tests.helpers.support import GENERATED, called
from tests.helpers.verify.rendered import rendered

KERNEL = "gemm_fp16_rcr_none__tiled_pointer_mnk_linear"
FUNCTION = "gemm_fp16_rcr_none"
OPEN = (("huge-a", "8192 MiB of virtual memory"), ("huge-c", "8192 MiB of virtual memory"))


@pytest.fixture
def verify(capsys, monkeypatch, ladder):
    """`verify` of a copy of the family ladder: its exit status, its lines, what it writes to stderr."""
    monkeypatch.chdir(ladder.parent)

    def run(*arguments, folder="ladder"):
        said = called(capsys, "verify", folder, *arguments)
        return said.status, said.out.splitlines(), said.err

    return run


@pytest.fixture
def workers(monkeypatch):
    """Has jobs answered by a function, on a machine that has a GPU."""

    def stand_in(answer):
        class Pool:
            def __init__(self, level, workers):
                pass

            def submit(self, job):
                future = worker_pool.Future()
                future.set_result(answer(job))
                return future

            def close(self):
                pass

        monkeypatch.setattr(worker_pool, "Pool", Pool)
        monkeypatch.setattr(verification_run, "here", lambda: ("a GPU", "sm90", {}))

    return stand_in


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "static"])
def test_an_undecided_case_ends_with_status_1_at_each_level(level, verify, workers, tmp_path):
    """Static reads the text alone and decides every time."""
    workers(lambda job: JobResult(job, 7, not_proved=OPEN if job.name == KERNEL else (), subject=subject(job)))
    files = ("--junit", "j.xml", "--html", "p.html", "--results", "r.json")
    target = ("--target", "sm90") if level == "compile" else ()
    found, lines, _ = verify("--level", level, "--fresh", *target, *files)
    count = len(plan([read(GENERATED / "ladder")], (level,), targets=("sm90",)))
    assert found == 1
    assert re.fullmatch(rf"{count - 1} of {count} passed, 1 not proved \(2 cases\) in [\d.]+ s", lines[-1])
    at = lines.index(f"NOT PROVED ladder/{KERNEL}.py ({level}{' sm90' * bool(target)})")
    assert lines[at + 1] == "  case:   huge-a, and 1 more" and lines[at + 2] == f"  why:    {OPEN[0][1]}"
    assert lines[at + 3].startswith(f"  repeat: python -m generator verify ladder --only {KERNEL} --level {level}")
    heads, row = (re.split("  +", line) for line in lines[-3:-1])
    counted = {word: row[heads.index(word)] for word in ("failed", "not proved", "left out")}
    assert counted == {"failed": "0", "not proved": "1", "left out": "0"}
    (suite,) = ET.parse("j.xml").getroot()
    assert [suite.get(word) for word in ("tests", "failures", "errors", "skipped")] == [str(count), "0", "1", "0"]
    (case,) = [case for case in suite if case.find("error") is not None]
    error = case.find("error")
    assert case.get("name") == KERNEL and error is not None
    assert error.get("message") == "not proved: huge-a: 8192 MiB of virtual memory"
    assert "huge-a, and 1 more" in (error.text or "")
    assert f"<title>{lines[-1].rpartition(' in ')[0]} - verification</title>" in Path("p.html").read_text()
    recorded = read_results(Path("r.json")).proved
    (levels,) = [levels for one, levels in recorded.items() if one.kernel == KERNEL]
    assert "not_proved" in levels[level + " sm90" * bool(target)] and len(recorded) == 4


def test_it_may_be_allowed_and_is_told_all_the_same(verify, workers):
    workers(lambda job: JobResult(job, 7, not_proved=OPEN))
    found, lines, _ = verify("--level", "gpu", "--only", KERNEL, "--fresh", "--allow-undecided", "--junit", "j.xml")
    assert found == 0 and lines[-1].startswith("0 of 1 passed, 1 not proved (2 cases) in ")
    (suite,) = ET.parse("j.xml").getroot()
    assert [suite.get(word) for word in ("failures", "errors", "skipped")] == ["0", "0", "1"]
    skipped = suite[0].find("skipped")
    assert skipped is not None and (skipped.get("message") or "").startswith("not proved: huge-a: ")
    # A failure is none the less one.
    workers(lambda job: JobResult(job, 7, (Failure("one", "r", "m"),), OPEN))
    found, lines, _ = verify("--level", "gpu", "--only", KERNEL, "--fresh", "--allow-undecided", "--junit", "j.xml")
    assert found == 1 and lines[-1].startswith("1 of 1 failed in ")
    assert [ET.parse("j.xml").getroot()[0].get(word) for word in ("failures", "errors")] == ["1", "0"]


def test_a_kernel_without_accesses_is_not_proved(verify):
    from generator.bounds import FileProof, OrderVerdict
    from generator.verify import bounds_job

    with patch.object(bounds_job, "prove", lambda path: FileProof((), OrderVerdict("proved", ""))):
        result = bounds_job.run(Job("bounds", Path("ladder"), KERNEL))
    assert result.state is JobState.NOT_PROVED and result.not_proved[0][0] == "accesses"


def busy_gpu(folder, name, contract, case):
    """A job whose operands find the memory of its GPU in use by others."""
    import torch

    from generator.verify import case_setup

    def none(*arguments, **rest):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 1 GiB")

    with patch.object(case_setup, "place", none):
        return worker.run(Job("interpret", folder, name, contract, case=case), contextlib.nullcontext())


@pytest.mark.parametrize(
    ("name", "contract", "case", "told"),
    [
        (KERNEL, False, "primes", "primes"),
        (KERNEL, False, "refuse-cpu", "refuse-cpu"),
        (FUNCTION, True, "refuse-config", "refuse-config"),
    ],
)
def test_a_case_on_a_gpu_that_others_use_up_is_not_proved(interpreted, name, contract, case, told):
    result = interpreted(busy_gpu, GENERATED / "ladder", name, contract, case)
    assert not result.failures
    assert result.not_proved == ((told, "CUDA out of memory. Tried to allocate 2.00 MiB."),)


def short_of_memory(folder, name, contract, small):
    """A job of the interpreter where no large operand, and if `small` none at all, can be had."""
    from generator.problem.poisoned_operands import NoMemory
    from generator.verify import case_setup

    def none(*arguments, **rest):
        raise NoMemory("16 bytes")

    job = Job("interpret", folder, name, contract, case="*" if contract else "[hp]*")
    no_map = patch.object(mmap, "mmap", side_effect=OSError(12, "Cannot allocate memory"))
    with no_map, patch.object(case_setup, "place", none) if small else contextlib.nullcontext():
        return worker.run(job, contextlib.nullcontext())


def test_a_case_without_memory_is_not_proved(interpreted):
    result = interpreted(short_of_memory, GENERATED / "ladder", KERNEL, False, False)
    assert not result.failures and result.cases > 1
    assert [case for case, _ in result.not_proved] == ["huge-a", "huge-b", "huge-c"]
    assert all("MiB of virtual memory: [Errno 12] Cannot allocate memory" in why for _, why in result.not_proved)
    assert result.state is JobState.NOT_PROVED and result.short


def test_a_function_without_memory_is_not_proved(interpreted):
    result = interpreted(short_of_memory, GENERATED / "ladder", FUNCTION, True, True)
    assert not result.failures and not result.cases
    assert [case for case, _ in result.not_proved] == ["aligned", "fallback", "refuse-config"]


def test_a_device_lost_behind_the_last_case_is_a_failure(monkeypatch):
    class Lost(worker.Machine):
        hardware = False

        def lost(self):
            return True

    monkeypatch.setattr(worker, "_place", lambda machine: ())
    job = Job("gpu", GENERATED / "ladder", KERNEL)
    found = worker._Work(job, read(job.folder), Lost(), contextlib.nullcontext())
    monkeypatch.setattr(found, "kernel", lambda: None)
    (failure,) = found.result().failures
    assert failure.message == "the device answers no more"


def test_a_job_that_ran_nothing_has_failed(verify, workers):
    for level in (level for level in LEVELS if level != "static"):
        workers(lambda job: JobResult(job))
        found, lines, _ = verify("--level", level, "--only", KERNEL, "--fresh", "--allow-undecided")
        assert found == 1 and "  wrong:  it ran no case" in lines, level


def test_a_job_without_a_result_has_failed(verify, monkeypatch):
    monkeypatch.setattr(worker_pool, "results", lambda level, jobs, workers: iter(()))
    found, lines, _ = verify("--level", "bounds", "--fresh")
    assert found == 1 and lines[-1].startswith("4 of 4 failed in ")
    assert lines.count("  wrong:  no worker returned a result") == 4


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory):
    """A family that sm90 alone can run, in part."""
    spec = "summary: x\nlayout: rcr\ndtype: fp16\nload: descriptor\nepilogue: [none, relu]\ntargets: [sm90]\n"
    return rendered(tmp_path_factory.mktemp("descriptors"), "family", spec).folder


def test_a_level_that_leaves_everything_out_is_not_proved(descriptors, verify, workers):
    workers(lambda job: JobResult(job, 3))
    call = ("--level", "static", "--level", "compile", "--target", "sm80", "--fresh", "--junit", "j.xml")
    found, lines, _ = verify(*call, folder=str(descriptors))
    assert found == 1 and lines[-1].startswith("2 of 4 passed, 2 not proved (2 cases) in ")
    told = "descriptors need sm90 or later; the compile level can prove none of the requested jobs here"
    assert any(line.endswith(told) for line in lines)
    assert [suite.get("errors") for suite in ET.parse("j.xml").getroot()] == ["0", "2"]
    assert verify(*call, "--allow-undecided", folder=str(descriptors))[0] == 0
    # What another target proves is left out here, with its reason, and that is nobody's fault.
    found, lines, _ = verify(*call, "--target", "sm90", folder=str(descriptors))
    assert found == 0 and lines[-1].startswith("all 4 passed in ")
    assert any(line.startswith("compile sm80: left out: sm80 has no bulk tensor copies") for line in lines)


def test_shards_agree_on_what_a_level_leaves_out(descriptors):
    family = read(descriptors)
    jobs = plan([family], ("compile",), targets=("sm80", "sm90"))
    aside = level_scope.out_of_reach(jobs, [family], None)
    # A shard that happens to hold what is left out alone is not one where nothing is proved.
    assert {job.target: result.state for job, result in aside.items()} == {"sm80": JobState.LEFT_OUT}
    alone = [job for job in jobs if job.target == "sm80"]
    assert {result.state for result in level_scope.out_of_reach(alone, [family], None).values()} == {
        JobState.NOT_PROVED
    }


def test_what_each_level_leaves_out(descriptors, monkeypatch):
    family, autotune = read(descriptors), read(shipped.folder("autotune"))
    kernel, contract = family.kernels[0].name, next(iter(family.contracts))

    def why(level, name, device, of=family):
        return level_scope.why_not(Job(level, of.folder, name, contract=name in of.contracts), of, device)

    assert why("static", kernel, "sm80") is None and why("bounds", kernel, "sm80") is None
    for name in (kernel, contract):
        assert why("gpu", name, "sm80") == "its targets are sm90, and the device is sm80"
        assert why("gpu", name, "gfx942") == "its targets are sm90, and the device is gfx942"
        assert {why("gpu", name, device) for device in ("sm90", "sm100", None)} == {None}
        assert why("interpret", name, None) is None
    packed, direct = read(shipped.folder("mx")), "gemm_nvfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped"
    assert why("gpu", direct, "sm80", packed) is None
    told = why("gpu", direct, "sm90", packed)
    assert told is not None and told.startswith("an a of 4 bits that is read from registers is multiplied wrongly from")
    function = next(iter(autotune.contracts))
    assert why("interpret", function, None, autotune) == "Triton's autotuner needs a GPU"
    assert why("gpu", function, "sm90", autotune) is None
    # Another Triton: every level that runs or compiles.
    older = replace(family, kernels=tuple(replace(k, triton="<3.0") for k in family.kernels))
    for level, name in (("interpret", kernel), ("gpu", kernel), ("gpu", contract)):
        told = why(level, name, "sm90", older)
        assert told is not None and told.startswith("it needs Triton <3.0, and ")


def test_a_table_that_a_target_cannot_launch_is_left_out_there():
    """32 warps of 64 threads are more than a program has there: nothing is compiled, not even to see that it fails."""
    kernel = replace(read(GENERATED / "ladder").by_name[KERNEL], tiles=(Tile(64, 64, 64, warps=32),))
    assert launches(kernel, "sm90") and left_out(kernel, "sm90") is None
    told = "no row of its table is for gfx90a: 32 warps, and gfx90a runs at most 16 in a program"
    assert launches(kernel, "gfx90a") == () and left_out(kernel, "gfx90a") == told


def test_a_shard_without_jobs_says_so(verify):
    found, lines, _ = verify("--level", "static", "--only", KERNEL, "--shard", "2/2")
    assert found == 0 and lines[-1].startswith("nothing ran in ")
    assert lines[0] == "--shard 2/2 has no job; all shards together have 1"


def test_a_manifest_without_kernels_is_refused(verify):
    manifest = Path("ladder", "manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"kernels": {}}))
    found, _, said = verify("--level", "static")
    assert found == 2 and "kernels must contain at least 1 properties" in said


def test_a_torch_that_cannot_be_asked_for_a_gpu_is_told(monkeypatch):
    """It is not a machine without one."""
    broken = type("Done", (), {"returncode": 1, "stdout": "", "stderr": "Traceback\nImportError: libcudart"})
    verification_run.here.cache_clear()
    monkeypatch.setattr(verification_run.subprocess, "run", lambda *arguments, **rest: broken)
    with pytest.raises(CallError, match="torch cannot query the GPU: ImportError: libcudart"):
        verification_run.gpu()
    verification_run.here.cache_clear()


def test_only_that_matches_nothing_of_one_family_says_so(descriptors, verify, workers):
    found, lines, _ = verify(descriptors, "--only", KERNEL, "--level", "static")
    assert found == 0 and lines[0] == f"--only '{KERNEL}' matches nothing of family"


def test_case_that_matches_at_one_level_and_not_at_another(verify, workers):
    workers(lambda job: JobResult(job, 1 if job.level in (*WHOLE, "interpret") else 0))
    call = ("--only", KERNEL, "--case", "primes", "--fresh", "--level", "static", "--level", "interpret")
    assert verify(*call)[0] == 0
    for level in ("compile", "gpu"):
        found, _, said = verify(*call, "--level", level)
        assert found == 2 and f"--case 'primes' matches no case at the level {level}" in said


def test_case_that_matches_of_one_kernel_and_not_of_another(verify, workers):
    workers(lambda job: JobResult(job, int(job.name == KERNEL)))
    found, lines, _ = verify("--case", "bands", "--level", "interpret", "--fresh")
    assert found == 0 and lines[-1].startswith("all 1 passed in ")
    assert "interpret: left out: --case 'bands' matches none of its cases (4 kernels)" in lines


def test_a_kernel_that_is_proved_in_part_is_recorded_and_not_counted(tmp_path):
    path = tmp_path / "r.json"
    job = Job("interpret", Path("f"), "one")
    one, two = (Subject(name, "d", "h") for name in ("one", "two"))
    part, whole = JobResult(job, 40, not_proved=OPEN, subject=one), JobResult(replace(job, name="two"), 40, subject=two)
    assert write(path, [part, whole]) == []
    assert read_results(path).proved[one]["interpret"]["not_proved"] == dict(OPEN)
    (row,) = table([path], {one, two})[0].splitlines()[2:]
    assert row.endswith("| 1 | 40 |")
