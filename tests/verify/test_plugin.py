"""The pytest plugin: a vendored family is proved by its manifest alone."""

import os
import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.config.argparsing import Parser

from generator import pytest_plugin
from generator.commands.command_line import main
from generator.verify import static_checks, worker_pool
from generator.verify.jobs import Job, JobResult
from tests.helpers.support import LONGEST, ROOT
from tests.helpers.verify.rendered import rendered

NAIVE = "gemm_fp16_rcr_none__naive_pointer_mnk_linear"


def run(folder, *arguments):
    """`pytest` in `folder`, with the plugin of the checkout and no other, by itself wherever this test runs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    variables = {**inherited, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    call = [sys.executable, "-m", "pytest", "-p", "generator.pytest_plugin", "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(call, cwd=folder, env=variables, capture_output=True, text=True, timeout=LONGEST)


@pytest.fixture
def vendored(tmp_path):
    shutil.copytree(ROOT / "generated" / "ladder", tmp_path / "kernels" / "ladder")
    return tmp_path


def test_every_kernel_is_a_test_at_every_level(vendored):
    done = run(vendored, "--gemm-family", "kernels/ladder", "--collect-only")
    assert done.returncode == 0, done.stdout + done.stderr
    for label in ("static", "bounds", "interpret", "compile sm90"):
        assert f"ladder::{label}::{NAIVE}" in done.stdout
    assert "ladder::interpret::gemm_fp16_rcr_none\n" in done.stdout


def test_no_two_families_share_an_id_and_any_name_of_a_folder_is_reported(vendored):
    for name in ("other", "strange\x01\ufffe\udcff"):
        shutil.copytree(vendored / "kernels" / "ladder", vendored / name / "ladder")
    folders = ("kernels/ladder", "other/ladder", "strange\x01\ufffe\udcff/ladder")
    call = [word for folder in folders for word in ("--gemm-family", folder)]
    done = run(vendored, *call, "--gemm-level", "static", "-k", "naive", "--junitxml", "j.xml", "-vv")
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
    for name in ("kernels", "other", r"strange\x01\ufffe\udcff"):
        assert f"{name}/ladder::static::{NAIVE}" in done.stdout
    cases = [case.attrib for case in ET.parse(vendored / "j.xml").getroot().iter("testcase")]
    assert len({(case["classname"], case["name"]) for case in cases}) == 3


def test_what_is_wrong_with_a_helper_fails_whatever_k_chooses(vendored):
    (vendored / "kernels" / "ladder" / "nn.py").unlink()
    for chosen in ("naive", "tiled"):
        done = run(vendored, "--gemm-family", "kernels/ladder", "--gemm-level", "static", "-k", chosen)
        assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout + done.stderr
        assert "nn.py does not exist, but the family's manifest lists it" in done.stdout


def test_what_is_wrong_fails_with_the_command_that_repeats_it(vendored):
    file = vendored / "kernels" / "ladder" / f"{NAIVE}.py"
    text = file.read_text()
    assert text.count("offs_m < M") == 1
    file.write_text(text.replace("offs_m < M", "offs_m <= M"))
    done = run(vendored, "--gemm-family", "kernels/ladder", "--gemm-level", "interpret", "-k", "naive")
    assert done.returncode == 1
    assert "stray load" in done.stdout
    assert f"repeat: python -m generator verify kernels/ladder --only {NAIVE} --level interpret --case" in done.stdout
    assert "Traceback" not in done.stdout


def test_what_is_not_proved_fails_unless_that_is_allowed(vendored):
    file = vendored / "kernels" / "ladder" / f"{NAIVE}.py"
    text = file.read_text()
    assert text.count("pid_m = pid // num_n") == 1
    file.write_text(text.replace("pid_m = pid // num_n", "pid_m = (row := pid // num_n)"))
    call = ("--gemm-family", "kernels/ladder", "--gemm-level", "bounds")
    done = run(vendored, *call)
    assert done.returncode == 1 and "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert f"NOT PROVED kernels/ladder/{NAIVE}.py (bounds)" in done.stdout and "Traceback" not in done.stdout
    done = run(vendored, *call, "--gemm-allow-undecided", "-rx")
    assert done.returncode == 0 and "3 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
    assert "not proved: line " in done.stdout


_CACHED = re.compile(r"^gemm-generator: (\d+) of (\d+) proofs are cached; --gemm-fresh runs them again$", re.M)


def cached(done):
    """How many proofs are cached, of how many, as the summary says it."""
    found = _CACHED.search(done.stdout)
    return None if found is None else found.groups()


def test_a_second_session_proves_what_has_changed(vendored):
    levels = [word for level in ("static", "bounds") for word in ("--gemm-level", level)]
    call = ("--gemm-family", "kernels/ladder", *levels, "-k", "naive")
    assert cached(run(vendored, *call)) is None
    again = run(vendored, *call)
    assert again.returncode == 0 and "2 passed" in again.stdout and cached(again) == ("2", "2")
    assert cached(run(vendored, *call, "--gemm-fresh")) is None
    other = ("--gemm-cache", str(vendored / "own"))
    assert cached(run(vendored, *call, *other)) is None and cached(run(vendored, *call, *other)) == ("2", "2")
    file = vendored / "kernels" / "ladder" / f"{NAIVE}.py"
    file.write_text(file.read_text().replace("offs_m < M", "offs_m <= M"))
    # A failure is never cached.
    for _ in range(2):
        wrong = run(vendored, *call)
        assert wrong.returncode == 1 and cached(wrong) is None and "2 failed" in wrong.stdout


def test_it_is_the_cache_of_verify(vendored, monkeypatch):
    monkeypatch.chdir(vendored)
    assert main(["verify", "kernels/ladder", "--level", "bounds"]) == 0
    done = run(vendored, "--gemm-family", "kernels/ladder", "--gemm-level", "bounds")
    assert cached(done) == ("4", "4"), done.stdout + done.stderr


def test_launches_that_are_cached_are_not_compiled_again(vendored):
    call = ("--gemm-family", "kernels/ladder", "--gemm-level", "compile", "--gemm-target", "sm80")
    assert cached(run(vendored, *call, "--gemm-coverage", "3%")) is None
    done = run(vendored, *call, "--gemm-coverage", "3%")
    found = cached(done)
    assert done.returncode == 0 and found is not None and found[0] == found[1], done.stdout + done.stderr


def test_processes_of_xdist_share_it(vendored):
    call = ("-p", "xdist", "-n", "2", "--gemm-family", "kernels/ladder", "--gemm-level", "static")
    first, second = run(vendored, *call), run(vendored, *call)
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert cached(first) is None and cached(second) == ("4", "4"), second.stdout + second.stderr


def test_a_cache_that_cannot_be_used_is_a_warning(vendored):
    (vendored / "file").touch()
    call = ("--gemm-family", "kernels/ladder", "--gemm-level", "static", "-k", "naive", "-s")
    done = run(vendored, *call, "--gemm-cache", "file/cache")
    assert done.returncode == 0 and "choose another folder with --gemm-cache" in done.stderr
    done = run(vendored, *call, "--gemm-cache", "")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "expected the path of a folder" in done.stderr


def test_a_level_that_leaves_everything_out_fails(tmp_path):
    rendered(tmp_path, "family", "summary: x\nlayout: rcr\ndtype: fp16\nload: descriptor\ntargets: [sm90]\n")
    call = ("--gemm-family", "family", "--gemm-level", "static", "--gemm-level", "compile", "--gemm-target", "sm80")
    done = run(tmp_path, *call)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "the compile level can prove none of the requested jobs here" in done.stdout
    done = run(tmp_path, *call, "--gemm-target", "sm90", "-k", "static or sm80", "-rs")
    assert done.returncode == 0 and "1 passed, 1 skipped, 1 deselected" in done.stdout, done.stdout + done.stderr
    assert "sm80 has no bulk tensor copies" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gemm-family", "nowhere"], "nowhere is not the folder of a rendered family"),
        (["--gemm-family", "kernels"], "holds no rendered family"),
        (["--gemm-family", "kernels/ladder", "--gemm-target", "sm91"], "'sm91' is unknown"),
        (["--gemm-family", "kernels/ladder", "--gemm-shard", "3/2"], "expected I/N"),
        (["--gemm-family", "kernels/ladder", "--gemm-coverage", "some"], "all, pairs, triples"),
        (["--gemm-family", "kernels/ladder", "--gemm-coverage", "0.001%"], "chooses no job at the compile level"),
        (["--gemm-family", "kernels/ladder", "--gemm-level", "static", "--gemm-target", "sm90"], "goes with"),
    ],
)
def test_a_wrong_call_is_a_usage_error(vendored, arguments, words, monkeypatch):
    """In this process, which has imported what a session imports; the test below has a session of its own."""
    monkeypatch.chdir(vendored)
    parser = Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    options = vars(parser.parse(arguments))
    config = SimpleNamespace(getoption=lambda name: options[name.lstrip("-").replace("-", "_")], stash=pytest.Stash())
    with pytest.raises(pytest.UsageError, match=re.escape(words)):
        pytest_plugin.pytest_collection_modifyitems(Any, config, [])


def test_a_wrong_call_ends_a_session_with_its_status(vendored):
    done = run(vendored, "--gemm-family", "nowhere")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "nowhere is not the folder of a rendered family" in done.stderr and "Traceback" not in done.stderr


def test_a_session_without_the_option_is_left_alone(tmp_path):
    (tmp_path / "test_one.py").write_text(
        "import sys\n\n\ndef test_one():\n    assert not {'torch', 'triton', 'generator.verify'} & sys.modules.keys()\n"
    )
    done = run(tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(".") and "1 passed" in done.stdout


def test_processes_are_started_where_tests_change_the_environment(monkeypatch):
    """A process that another thread starts reads the environment while a test changes it, and fails at times."""
    threads = []

    def results(level, jobs, workers=None):
        for job in jobs:
            threads.append(threading.current_thread())
            yield JobResult(job, cases=1)

    monkeypatch.setattr(static_checks, "run", lambda jobs: results("static", jobs))
    monkeypatch.setattr(worker_pool, "results", results)
    levels = ("static", "bounds", "interpret")
    jobs = [Job(level, Path("family"), name) for level in levels for name in ("first", "second")]
    outcomes = pytest_plugin.Outcomes(jobs, together=True)
    outcomes.begin(levels[:2])
    for job in reversed(jobs):
        assert outcomes(job).job == job
    outcomes.close()
    assert threads == [threading.current_thread()] * len(jobs)
