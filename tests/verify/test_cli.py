"""The command: what it runs, what it says, its exit status and the files it writes."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from generator.commands.verify import main
from generator.emit.code_parts import of_file
from generator.files import output_files
from generator.files.reading import FileError
from generator.verify import result_cache, worker_pool
from generator.verify.coverage import Coverage
from generator.verify.job_selection import cost, covered, plan, rendered, shard
from generator.verify.jobs import LEVELS, Failure, Job, command
from generator.verify.launches import launches
from tests.helpers.support import ROOT, called, contents, unread

SPEC = ROOT / "specs" / "fp16_rcr.yaml"
KERNEL = "gemm_fp16_rcr_bias_silu__tiled_pointer_auto_grouped"
NAIVE = "gemm_fp16_rcr_none__naive_pointer_mnk_linear"


@pytest.fixture
def call(call_alone, shared_workers):
    """`verify` in this process, with the workers that tests share."""
    return call_alone


@pytest.fixture
def call_alone(capsys, monkeypatch, tmp_path):
    """`verify` in this process, with workers of its own."""
    monkeypatch.chdir(ROOT)

    def run(*arguments):
        said = called(capsys, "verify", *arguments, "--fresh", "--cache", tmp_path / "cache")
        return said.status, said.out, said.err

    return run


def test_a_kernel_passes_and_the_closing_line_counts(call, tmp_path):
    results, junit = tmp_path / "results.json", tmp_path / "junit.xml"
    status, out, _ = call(
        SPEC, "--only", KERNEL, "--level", "static", "--level", "interpret", "--results", results, "--junit", junit
    )
    assert status == 0
    heads, *rows = [re.split(r"  +", line) for line in out.splitlines()[:-1]]
    assert heads == ["level", "kernels", "functions", "cases", "failed", "not proved", "left out", "cached", "seconds"]
    assert [row[:3] for row in rows] == [["static", "1", "0"], ["interpret", "1", "0"]]
    assert int(rows[1][3]) > 20 and rows[1][4:8] == ["0", "0", "0", "0"]
    assert re.search(r"^all 2 passed in [\d.]+ s$", out, re.M)
    found = json.loads(results.read_text())
    (entry,) = found["kernels"]
    parts = of_file(ROOT / "generated" / "fp16_rcr" / f"{KERNEL}.py")
    assert entry.keys() == {"kernel", "device", "code", "hosts"} and entry["hosts"].keys() == {parts.host}
    assert (entry["kernel"], entry["device"], entry["code"]) == (KERNEL, parts.device, parts.timed)
    ((level, figures),) = entry["hosts"][parts.host].items()
    assert level == "interpret" and figures.keys() == {"cases", "worst_error", "rows", "full"}
    assert 0 < figures["worst_error"] <= 1 and sum(figures["rows"].values()) == figures["cases"]
    assert found["place"].keys() == {"device", "python", "torch", "triton"}
    assert str(ROOT) not in results.read_text() and not re.search(r"\d\d\d\d-\d\d-\d\d", results.read_text())
    assert [suite.get("name") for suite in ET.parse(junit).getroot()] == ["static", "interpret"]


def test_a_failure_names_file_case_and_the_command_that_repeats_it(call, tmp_path):
    folder = tmp_path / "fp16_rcr"
    shutil.copytree(ROOT / "generated" / "fp16_rcr", folder)
    file = folder / f"{KERNEL}.py"
    file.write_text(file.read_text().replace("acc + bias[None, :]", "acc - bias[None, :]"))
    status, out, _ = call(SPEC, "--only", KERNEL, "--level", "interpret", "--out", tmp_path, "--case", "primes")
    assert status == 1
    assert f"FAILED {file}" in out
    assert "prime sizes smaller than a tile" in out and "elements are wrong" in out
    repeat = re.search(r"repeat: python -m generator verify (.*)", out)
    status, again, _ = call(*repeat[1].split())
    assert status == 1 and "1 of 1 failed" in again


def test_a_run_that_is_stopped_keeps_what_passed(call_alone, capsys, monkeypatch, tmp_path):
    """A signal ends the workers within their jobs; the files have what passed, and the same call runs the rest."""
    every, handler, others = worker_pool.results, signal.getsignal(signal.SIGTERM), multiprocessing.active_children()

    def stopped(level, jobs, workers):
        for number, result in enumerate(every(level, jobs, workers)):
            if number == 1:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
            yield result

    monkeypatch.setattr(worker_pool, "results", stopped)
    results = tmp_path / "results.json"
    arguments = (SPEC, "--only", "*_none__*_pointer_*", "--level", "interpret", "--jobs", 1, "--results", results)
    status, out, error = call_alone(*arguments)
    (told,) = re.findall(r"^stopped: (\d+) of (\d+) jobs did not run; the same call runs them$", error, re.M)
    left, total = map(int, told)
    assert status == 130 and 0 < left < total and re.search(rf"^all {total - left} passed in", out, re.M)
    assert len(json.loads(results.read_text())["kernels"]) == total - left
    assert multiprocessing.active_children() == others and signal.getsignal(signal.SIGTERM) is handler
    monkeypatch.undo()
    monkeypatch.chdir(ROOT)
    assert main([*map(str, arguments), "--cache", str(tmp_path / "cache")]) == 0
    (cached,) = re.findall(r"^interpret .* (\d+)  +[\d.]+$", capsys.readouterr().out, re.M)
    assert total - left <= int(cached) < total


REPORTS = ("junit", "html", "results")


def options(folder):
    """The options of all reports, each into a file of its name."""
    return [word for option in REPORTS for word in (f"--{option}", folder / option)]


def test_a_run_goes_on_and_writes_its_reports_whoever_reads(ladder, tmp_path):
    file = ladder / f"{NAIVE}.py"
    # Workers print into the same pipe.
    prints = "\n\nimport sys\n\nprint(1, flush=True)\nprint(1, file=sys.stderr, flush=True)\n"
    file.write_text(file.read_text() + prints)
    call = ("verify", ladder, "--only", NAIVE, "--level", "interpret", "--case", "primes")
    assert unread(*call, *options(tmp_path / "right"), cwd=tmp_path, both=True) == 0
    file.write_text(file.read_text().replace("offs_m < M", "offs_m <= M"))
    call += ("--level", "static")
    assert unread(*call, *options(tmp_path / "wrong"), cwd=tmp_path, both=True) == 1
    for name, levels, failures in (("right", ["interpret"], 0), ("wrong", ["static", "interpret"], 2)):
        assert {path.name for path in (tmp_path / name).iterdir()} == set(REPORTS)
        root = ET.parse(tmp_path / name / "junit").getroot()
        assert sum(int(suite.attrib["failures"]) for suite in root) == failures
        assert [suite.get("name") for suite in root] == levels


@pytest.mark.parametrize("option", REPORTS)
def test_a_report_that_cannot_be_written_is_known_before_any_proof(call, monkeypatch, tmp_path, option):
    monkeypatch.setattr("generator.verify.verification_run._run", lambda *_, **__: pytest.fail("something is proved"))
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "report", tmp_path / ("x" * 300), tmp_path / "folder"):
        status, out, err = call(SPEC, "--level", "static", f"--{option}", path)
        assert (status, out) == (1, "") and str(path) in err and err.count("\n") == 1


def test_a_report_is_not_written_over_or_into_what_is_proved(call, ladder):
    before = contents(ladder)
    for name in ("manifest.json", f"{NAIVE}.py", "__init__.py", "report.py", "nn/__init__.py", "../ladder/x.xml"):
        status, _, err = call(ladder, "--level", "static", "--html", ladder / name)
        assert status == 2 and re.search("would overwrite what the command reads|belongs to a family that is", err), (
            name
        )
    assert contents(ladder) == before


def test_of_several_reports_one_cannot_be_written_at_the_end(call, monkeypatch, tmp_path):
    put = output_files.put

    def failing(path, data):
        if path.name in ("junit", "html"):
            raise FileError(path, "cannot be written: No space left on device")
        put(path, data)

    monkeypatch.setattr(output_files, "put", failing)
    status, out, err = call(SPEC, "--only", KERNEL, "--level", "static", *options(tmp_path))
    assert status == 1 and "all 1 passed in" in out
    assert err.splitlines() == [
        f"{tmp_path / name}: cannot be written: No space left on device" for name in ("junit", "html")
    ]
    assert (tmp_path / "results").is_file()


def test_a_family_rendered_from_another_spec_is_status_2(call, tmp_path):
    spec = tmp_path / "fp16_rcr.yaml"
    measured = "select: table\nwith: prepare\ntuned: tuned/nvidia_h200/gemm16.json\n"
    spec.write_text(SPEC.read_text().replace(measured, "select: fixed\n"))
    assert spec.read_text() != SPEC.read_text()
    status, _, err = call(spec, "--level", "static", "--out", ROOT / "generated")
    assert status == 2 and "is out of date with" in err and f"python -m generator {spec}" in err


def family():
    return rendered([SPEC], ROOT / "generated")


def test_shards_are_disjoint_and_together_everything():
    jobs = plan(family(), ("static", "interpret", "compile"))
    parts = [shard(jobs, index, 3, cost) for index in (1, 2, 3)]
    assert {job for part in parts for job in part} == set(jobs)
    assert sum(map(len, parts)) == len(jobs)


def test_shards_cost_alike():
    costs = [30.0, 1.0, 1.0, 1.0, 27.0, 2.0, 2.0, 1.0, 25.0, 5.0]
    jobs = [Job("interpret", Path("x"), f"kernel{number}") for number in range(len(costs))]
    of = dict(zip(jobs, costs, strict=True)).__getitem__
    loads = [sum(of(job) for job in shard(jobs, index, 3, of)) for index in (1, 2, 3)]
    assert max(loads) - min(loads) <= 2


def test_pairs_keep_every_value_of_every_axis():
    found = family()
    jobs = plan(found, ("compile", "interpret"))
    chosen, choices = covered(jobs, found, Coverage("pairs"))
    assert len(choices) == 2
    assert sum(len(job.chosen) for job in chosen) < 0.5 * sum(
        len(launches(k, target)) for k in found[0].kernels for target in k.targets
    )
    kernels = found[0].by_name
    for level in ("compile", "interpret"):
        members = [kernels[job.name].variant for job in chosen if job.level == level and not job.contract]
        for axis in ("epilogue", "masking", "swizzle", "load"):
            assert {v.word(axis) for v in members} == {k.variant.word(axis) for k in found[0].kernels}


def test_the_kernels_chosen_are_the_same_at_every_level_and_one_launch_of_each_is_compiled():
    found = family()
    jobs = plan(found, ("interpret", "compile"), targets=("sm90",))
    chosen, choices = covered(jobs, found, Coverage("kernels"))
    members = {level: [job for job in chosen if job.level == level and not job.contract] for level in LEVELS}
    compiled = {job.name: job.chosen for job in members["compile"]}
    assert [job.name for job in members["interpret"]] == list(compiled)
    assert all(len(names) == 1 and names[0].endswith("-aligned") for names in compiled.values())
    kernels = found[0].by_name
    assert 1 < len(compiled) < len(kernels)
    assert all(choice.covered == choice.existing for choice in choices)
    assert {job.name for job in chosen if job.contract} == {kernels[name].variant.contract for name in compiled}


def test_the_kernels_chosen_for_several_targets_are_compiled_for_each():
    found = family()
    chosen, _ = covered(plan(found, ("compile",), targets=("sm90", "gfx942")), found, Coverage("kernels"))
    for target in ("sm90", "gfx942"):
        axes = {kernel.variant.word("epilogue") for kernel in found[0].kernels if launches(kernel, target)}
        mine = [found[0].by_name[job.name].variant for job in chosen if job.target == target]
        assert {variant.word("epilogue") for variant in mine} == axes


def test_the_command_repeats_exactly_the_job():
    repeat = command(Job("gpu", Path("elsewhere/x"), "gemm__x"), Failure("huge-a", "r", "m"))
    assert repeat == "python -m generator verify elsewhere/x --only gemm__x --level gpu --case huge-a"
    compiled = Job("compile", Path("x y"), "gemm__x", target="sm90")
    assert command(compiled) == "python -m generator verify 'x y' --only gemm__x --level compile --target sm90"


def test_a_spec_and_its_folder_under_several_paths_are_one_family(call, tmp_path):
    spec, folder = ROOT / "specs" / "ladder.yaml", ROOT / "generated" / "ladder"
    (tmp_path / "other").symlink_to(folder)
    once = call(spec, "--level", "static")
    paths = (spec, folder, Path("generated/ladder"), "generated/../generated/ladder/", tmp_path / "other")
    status, out, error = call(*paths, "specs/ladder.yaml", "--level", "static")
    assert status == once[0] == 0 and not error
    words = re.compile(r"^all \d+ passed", re.M)
    assert words.findall(out) == words.findall(once[1]) != []


def static(capsys, *arguments):
    status = main([*map(str, arguments), "--level", "static"])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize(
    "options",
    [(), ("--only", "*__tiled_*"), ("--shard", "2/2"), ("--coverage", "50%"), ("--coverage", "kernels"), ("--fresh",)],
)
def test_no_choice_of_jobs_hides_what_is_wrong_with_a_helper(ladder, capsys, tmp_path, options):
    assert static(capsys, ladder)[0] == 0
    (ladder / "nn.py").unlink()
    for _ in range(2):
        status, out, _ = static(capsys, ladder, *options, "--junit", tmp_path / "junit.xml")
        assert status == 1 and re.search(r"^1 of \d failed", out, re.M)
        assert f"case:   nn.py manifest: every file that the manifest lists is there\n  wrong:  {ladder}/nn.py" in out
        (failure,) = ET.parse(tmp_path / "junit.xml").getroot().iter("failure")
        assert "nn.py does not exist" in str(failure.get("message"))
    shutil.copy(ROOT / "generated" / "ladder" / "nn.py", ladder)
    assert static(capsys, ladder, *options)[0] == 0


@pytest.mark.parametrize(
    ("text", "levels", "told"),
    [
        (None, "static bounds interpret", "does not exist, but the family's manifest lists it"),
        ("raise RuntimeError('no luck')\n", "interpret", "RuntimeError: no luck"),
        # What no parser reads.
        *((x, "static bounds", "") for x in (f"{'(' * 5000}1{')' * 5000}", f"{'-' * 50_000}1", "\xff\0")),
    ],
)
def test_a_kernel_whose_file_is_gone_or_is_none_has_failed_at_every_level(ladder, call, text, levels, told):
    file, count = ladder / f"{NAIVE}.py", len(levels.split())
    file.unlink() if text is None else file.write_bytes(text.encode("latin-1"))
    status, out, error = call(ladder, "--only", NAIVE, *(word for x in levels.split() for word in ("--level", x)))
    assert status == 1 and not error and re.search(rf"^{count} of {count} failed", out, re.M)
    assert not told or out.count(told) == count


def test_a_second_run_proves_nothing_unless_it_is_fresh(ladder, capsys, tmp_path):
    call = (ladder, "--cache", tmp_path / "cache")
    cached = re.compile(r"^static +4 +0 +4 +0 +0 +0 +(\d) ", re.M)
    for options, count in ((), "0"), ((), "4"), (("--fresh",), "0"), ((), "4"):
        assert cached.findall(static(capsys, *call, *options)[1]) == [count]
    # An empty file is as it was rendered, and one that is gone is not.
    (ladder / "py.typed").unlink()
    for options in (), ("--fresh",):
        status, out, _ = static(capsys, *call, *options)
        assert status == 1 and re.search(r"^1 of 4 failed", out, re.M)


@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_a_cache_that_cannot_be_used_stops_no_proof(ladder, capsys, tmp_path, monkeypatch, fresh):
    static(capsys, ladder, "--cache", tmp_path / "cache")
    file = tmp_path / "cache" / result_cache.NAME
    file.unlink()
    file.mkdir()
    for options in (("--cache", tmp_path / "cache"), ("--cache", ROOT / "README.md"), ("--cache", "/proc/none")):
        status, out, error = static(capsys, ladder, *options, *fresh)
        assert status == 0 and "all 4 passed" in out and error.count("warning: ") == 1
    # As if the home could not be written.
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    status, out, error = static(capsys, ladder, *fresh)
    assert status == 0 and "all 4 passed" in out and error.count("warning: ") == 1
    (ladder / "nn.py").unlink()
    assert static(capsys, ladder, *fresh)[0] == 1
