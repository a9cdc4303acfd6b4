"""The command: what it runs, what it says, its exit status and the files it writes."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from generator.verify.cli import main
from generator.verify.jobs import Failure, Job, Result, command
from generator.verify.plan import families, plan, shard
from generator.verify.report import summary, write_junit, write_results

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "fp16_rcr.yaml"
KERNEL = "gemm_fp16_rcr_bias_silu__tiled_pointer_auto_grouped"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(ROOT)

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:
            status = int(error.code or 0)
        spoken = capsys.readouterr()
        return status, spoken.out, spoken.err

    return run


def test_a_kernel_passes_and_the_closing_line_counts(call: Call, tmp_path: Path) -> None:
    results, junit = tmp_path / "results.json", tmp_path / "junit.xml"
    status, out, _ = call(
        SPEC, "--only", KERNEL, "--level", "static", "--level", "interpret", "--results", results, "--junit", junit
    )
    assert status == 0
    assert re.search(r"^interpret: 1 kernels, \d\d cases$", out, re.M)
    assert re.search(r"^all 2 passed in [\d.]+ s$", out, re.M)
    (entry,) = json.loads(results.read_text()).values()
    assert entry["interpret"]["kernel"] == KERNEL and 0 < entry["interpret"]["worst_error"] <= 1
    assert entry["interpret"].keys() == {"kernel", "cases", "worst_error", "device", "python", "torch", "triton"}
    assert str(ROOT) not in results.read_text() and not re.search(r"\d\d\d\d-\d\d-\d\d", results.read_text())
    assert [suite.get("name") for suite in ET.parse(junit).getroot()] == ["static", "interpret"]


def test_a_failure_names_file_case_and_the_command_that_repeats_it(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "fp16_rcr"
    shutil.copytree(ROOT / "generated" / "fp16_rcr", folder)
    file = folder / f"{KERNEL}.py"
    file.write_text(file.read_text().replace("acc + bias[None, :]", "acc - bias[None, :]"))
    status, out, _ = call(SPEC, "--only", KERNEL, "--level", "interpret", "--out", tmp_path, "--case", "primes")
    assert status == 1
    assert f"FAILED {file}" in out
    assert "primes below a tile" in out and "elements are wrong" in out
    repeat = re.search(r"repeat: python -m generator verify (.*)", out)
    assert repeat is not None
    status, again, _ = call(*repeat[1].split())
    assert status == 1 and "1 of 1 failed" in again


def test_a_file_that_raises_is_a_failure(call: Call, tmp_path: Path) -> None:
    (tmp_path / "fp16_rcr").mkdir()
    (tmp_path / "fp16_rcr" / f"{KERNEL}.py").write_text("raise RuntimeError('no luck')\n")
    status, out, _ = call(SPEC, "--only", KERNEL, "--level", "interpret", "--out", tmp_path)
    assert status == 1 and "RuntimeError: no luck" in out


def test_a_file_that_ends_its_process_is_a_failure_and_the_others_are_run(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "fp16_rcr"
    shutil.copytree(ROOT / "generated" / "fp16_rcr", folder)
    (folder / f"{KERNEL}.py").write_text("import os\n\nos._exit(3)\n")
    only = KERNEL.replace("silu", "*")
    status, out, _ = call(SPEC, "--only", only, "--level", "interpret", "--out", tmp_path, "--case", "one", "--jobs", 2)
    assert status == 1
    assert "the worker process died" in out and re.search(r"^1 of \d failed", out, re.M)


def test_missing_files_are_answered_with_the_command_that_makes_them(call: Call, tmp_path: Path) -> None:
    status, _, err = call(SPEC, "--level", "static", "--out", tmp_path)
    assert status == 2
    assert f"render it first: python -m generator {SPEC} --out {tmp_path}" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nothing*"], "matches no kernel"),
        (["--shard", "3/2"], "expected I/N"),
        (["--level", "speed"], "invalid choice"),
        (["--jobs", "0"], "at least 1"),
        (["--level", "interpret", "--only", KERNEL, "--case", "nothing"], "matches no case"),
    ],
)
def test_a_wrong_call_is_status_2(call: Call, arguments: list[str], words: str) -> None:
    status, _, err = call(SPEC, "--level", "static", *arguments)
    assert status == 2
    assert words in err


def test_a_wrong_spec_is_status_2_with_its_place(call: Call, tmp_path: Path) -> None:
    spec = tmp_path / "wrong.yaml"
    spec.write_text("summary: s\nlayout: rcr\ndtype: fp17\n")
    status, _, err = call(spec)
    assert status == 2 and err.startswith(f"{spec}:3:8: ")


def test_shards_are_disjoint_and_together_everything() -> None:
    jobs = plan(families([SPEC]), ("static", "interpret"), Path("generated"))
    parts = [shard(jobs, index, 3) for index in (1, 2, 3)]
    assert sorted((job.level, job.name) for part in parts for job in part) == sorted((j.level, j.name) for j in jobs)
    assert sum(map(len, parts)) == len(jobs)


def test_every_contract_is_a_job_where_something_runs() -> None:
    family = families([SPEC])
    for level, contracts in (("static", 0), ("interpret", len({k.variant.contract for k in family[SPEC].kernels}))):
        jobs = plan(family, (level,), Path("generated"))
        assert sum(job.contract for job in jobs) == contracts
        assert len(jobs) == len(family[SPEC].kernels) + contracts


JOB = Job("gpu", Path("specs/x.yaml"), Path("elsewhere"), "gemm__x")


def test_the_command_repeats_exactly_the_job() -> None:
    assert (
        command(JOB, "huge-a")
        == "python -m generator verify specs/x.yaml --only gemm__x --level gpu --out elsewhere --case huge-a"
    )


def test_what_was_left_out_is_said_with_its_reason_and_is_no_success() -> None:
    results = [
        Result(JOB, Path("f.py"), left_out="it is for sm100, and the device is sm90"),
        Result(JOB, Path("g.py"), cases=3, not_run=(("huge-a", "8192 MiB of virtual memory"),)),
    ]
    lines = summary(results, 1.5)
    assert "gpu: left out: it is for sm100, and the device is sm90 (1 kernel)" in lines
    assert "gpu: case huge-a not run: 8192 MiB of virtual memory (1 kernel)" in lines
    assert lines[-1] == "all 1 passed in 1.5 s"


def test_results_hold_only_what_passed(tmp_path: Path) -> None:
    failed = Result(JOB, Path("f.py"), digest="d1", failures=(Failure("one", "r", "m\x00"),))
    passed = Result(JOB, Path("f.py"), cases=9, digest="d2", vendor_error=1.25, place=(("device", "a GPU"),))
    write_results(tmp_path / "r.json", [failed, passed])
    expected = {"kernel": "gemm__x", "cases": 9, "worst_error": 0.0, "vendor_error": 1.25, "device": "a GPU"}
    assert json.loads((tmp_path / "r.json").read_text()) == {"d2": {"gpu": expected}}
    write_junit(tmp_path / "j.xml", [failed, passed])
    (suite,) = ET.parse(tmp_path / "j.xml").getroot()
    assert suite.get("failures") == "1"
