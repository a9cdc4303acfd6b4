"""The report of a run of `verify`: its page as text, JUnit XML, and the names that tell its folders apart."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.emit.report import Cell, Row, page
from generator.plan.kernels import LeftOut
from generator.verify.jobs import Failure, Job, JobResult, Subject, command
from generator.verify.page import report
from generator.verify.run_report import folder_names, write_junit
from tests.helpers import shipped
from tests.helpers.support import ROOT

PLACE = (("python", "3.11.7"), ("torch", "2.13.0"), ("triton", "3.7.1"))
#: What would run, were it markup.
HOSTILE = "</script><script>window.owned=1</script><img src=x onerror=\"window.owned=2\"> & 'so' \u2028 {{ 7 * 7 }}"
MESSAGE = "CompileError: PassManager::run failed\n" + "\n".join(
    f"kernel.py:{line}:24: error: 'ttg.convert_layout' op operand has no layout <#blocked{line}>" for line in range(6)
)


def family(name):
    """A shipped family, under the folder that a call in the checkout names."""
    return replace(read(shipped.folder(name)), folder=Path("generated", name))


def sample():
    """Two small families and a result of each kind that there is."""
    ladder, autotune = family("ladder"), family("autotune")
    run = (("device", "interpreter"), *PLACE)
    first, second, third, fourth = (kernel.name for kernel in ladder.kernels)
    failures = [Failure(f"row{row}-aligned", "whole tiles (row 0)", MESSAGE) for row in (0, 1)]
    lines = tuple((f"line {line}: load of a", "not understood: line 40: tl.where") for line in (61, 62, 70))
    primes = Failure("primes", "prime sizes smaller than a tile", "3 elements are wrong")
    #: What becomes of jobs that do not pass whole: by level, name and target.
    others = {
        ("compile", third, "sm90"): {"failures": tuple(failures)},
        ("static", second, None): {"failures": (Failure("lint", "no name is unused", "line 3: F841 `x`"),)},
        ("gpu", autotune.kernels[0].name, None): {"cases": 38, "not_proved": (("wide", "9 GiB of memory"),)},
        ("bounds", fourth, None): {"cases": 0, "not_proved": lines},
        ("interpret", first, None): {"failures": (primes,), "not_proved": (("huge-c", "8192 MiB of memory"),)},
    }
    figures = (("shared", 98304), ("registers", 128), ("spilled", 0), ("wgmma", 16))
    ragged = (("shared", 49152), ("registers", 255), ("spilled", 24), ("mma.sync", 64))
    usual = {
        "interpret": {"cases": 40, "worst_error": 0.25, "place": run},
        "compile": {
            "cases": 3,
            "measured": (("row0-aligned", figures), ("row0-ragged", ragged), ("row1-aligned", figures)),
            "place": PLACE,
        },
    }
    results = []
    for level in ("static", "bounds", "interpret", "compile", "gpu"):
        for one in (autotune, ladder):
            for place, kernel in enumerate(one.kernels):
                for target in kernel.targets if level == "compile" else (None,):
                    job = Job(level, one.folder, kernel.name, target=target)
                    known = {"cases": 1, "cached": level == "compile" and place % 2 == 1, **usual.get(level, {})}
                    known |= others.get((level, kernel.name, target), {})
                    code = Subject(kernel.name, "0123456789abcdef" * 2, "" if level == "compile" else "f" * 32)
                    results.append(JobResult(job, subject=None if level == "static" else code, **known))
    results.append(JobResult(Job("interpret", ladder.folder, *ladder.contracts, contract=True), 12, place=run))
    for name in autotune.contracts:
        job = Job("interpret", autotune.folder, name, contract=True)
        results.append(JobResult(job, left_out="Triton's autotuner needs a GPU"))
    gone = autotune.kernels[-1].name
    return [result for result in results if (result.job.level, result.job.name) != ("gpu", gone)], [autotune, ladder]


def row(found, name):
    """The row of a kernel or a contract's function."""
    rows = [each for each in found.table.rows if isinstance(each, Row)]
    return next(each for each in rows if each.cells[0] == name)


def cell(found, name, column):
    """What the table shows of it in a column."""
    shown = row(found, name).cells[list(found.table.columns).index(column)]
    return shown if isinstance(shown, Cell) else Cell(shown)


def told(found, name):
    """What its opened row tells."""
    return [block.text for block in row(found, name).details]


@pytest.fixture(scope="module")
def found():
    return report(*sample())


def test_a_row_is_a_kernel_or_a_function_and_a_column_a_level_or_a_target(found):
    ladder, autotune = family("ladder"), family("autotune")
    levels = ["static", "bounds", "interpret", "compile sm80", "compile sm90", "gpu"]
    columns = list(found.table.columns)
    assert columns[:2] == ["kernel", "family"] and columns[-6:] == levels
    names = [name for one in (ladder, autotune) for name in (*one.by_name, *one.contracts)]
    assert sorted(cells[0].text for cells in found.table.cells) == sorted(names)
    kernel = ladder.kernels[0]
    words = {axis: cell(found, kernel.name, axis).text for axis in columns[2:-6]}
    assert words == {axis: kernel.variant.words.get(axis, "") for axis in words} and len(words) > 2
    (same,) = [note for note in found.notes if note.startswith("The same for all: ")]
    assert all(f"{axis} {kernel.variant.words[axis]}" in same for axis in kernel.variant.words.keys() - words.keys())


def test_a_cell_has_its_state_and_its_number(found):
    ladder, autotune = family("ladder"), family("autotune")
    for name, column, text, state in (
        (ladder.kernels[1].name, "interpret", "✓ 40", "passed"),
        (ladder.kernels[1].name, "compile sm80", "✓ 3 ↺", "passed"),
        (ladder.kernels[2].name, "compile sm90", "✕ 2", "failed"),
        (ladder.kernels[0].name, "interpret", "✕ 1 ?1", "failed"),
        (autotune.kernels[0].name, "gpu", "? 1", "not proved"),
        (ladder.kernels[3].name, "bounds", "? 3", "not proved"),
        (autotune.kernels[-1].name, "gpu", "", ""),
    ):
        shown = cell(found, name, column)
        assert (shown.text, shown.state) == (text, state)
    left_out = cell(found, next(iter(autotune.contracts)), "interpret")
    assert left_out == Cell("- left out", "left out", "Triton's autotuner needs a GPU")


def test_what_a_family_leaves_out_is_told(found):
    families = [family("ladder"), family("autotune")]
    (descriptor, *_) = [entry for entry in families[1].left_out if entry.target == "sm80"]
    assert cell(found, descriptor.name, "compile sm80") == Cell("- left out", "left out", descriptor.reason)
    (table,) = found.beside
    listed = {(target, reason, name) for _, target, reason, names in table.rows for name in str(names).split(", ")}
    assert listed == {(e.target or "every target", e.reason, e.name) for one in families for e in one.left_out}


def test_an_opened_row_says_what_the_terminal_says(found):
    for result in sample()[0]:
        for failure in result.failures:
            said = told(found, result.job.name)
            assert {f"{failure.case}: {failure.reason}", failure.message, command(result.job, failure)} <= {*said}
        for case, reason in result.not_proved:
            assert f"not proved: {case}: {reason}" in told(found, result.job.name)
    kernel = family("ladder").kernels[0]
    lines = told(found, kernel.name)
    assert lines[0] == f"generated/ladder/{kernel.name}.py"
    assert "device code 0123456789abcdef, host code ffffffffffffffff" in lines
    # Launches of the same figures are told together.
    assert "shared 98,304, registers 128, spilled 0, wgmma 16: row0-aligned, row1-aligned" in lines
    # Of failures with one message it is shown once.
    assert told(found, family("ladder").kernels[2].name).count(MESSAGE) == 1


def test_the_summary_counts_each_column_and_links_to_what_is_wrong(found):
    (table,) = found.summaries
    place = "python 3.11.7, torch 2.13.0, triton 3.7.1"
    assert f"interpreter, {place}" in found.notes and place in found.notes
    lines = [" ".join(cell.text for cell in cells) for cells in table.cells]
    # Kernels, functions, cases; failed, not proved, left out; cached; seconds.
    assert [line.removesuffix(" 0.0") for line in lines] == [
        "static 10 0 10 1 0 0 0",
        "bounds 10 0 9 0 1 0 0",
        "interpret 10 1 412 1 0 2 0",
        "compile sm80 8 0 24 0 0 0 4",
        "compile sm90 10 0 30 1 0 0 5",
        "gpu 9 0 46 0 1 0 0",
    ]
    links = {cell.link for cells in table.cells for cell in cells} - {""}
    assert {"state=failed&in=static", "state=not+proved&in=gpu"} <= links
    assert found.verdict == Cell("3 of 58 failed, 2 not proved (4 cases)", "failed")


def hostile():
    """Every text that comes from a spec, a compiler or a machine is one that would run."""
    ladder = family("ladder")
    ladder = replace(ladder, left_out=(*ladder.left_out, LeftOut(HOSTILE, HOSTILE)))
    first, second, third, _ = ladder.kernels
    place = (("device", HOSTILE),)
    failure = Failure(HOSTILE, HOSTILE, HOSTILE)
    return [
        JobResult(Job("interpret", ladder.folder, first.name), 1, (failure,), ((HOSTILE, HOSTILE),), place=place),
        JobResult(Job("interpret", ladder.folder, second.name), left_out=HOSTILE),
        JobResult(Job("compile", ladder.folder, third.name, target="sm90"), 1, measured=((HOSTILE, ((HOSTILE, 1),)),)),
    ], [ladder]


def test_a_text_never_becomes_markup():
    html = page(report(*hostile()))
    assert html.count("<script") == html.count("</script>") == 1 + html.count('<script type="application/json"')
    assert "<img" not in html and "window.owned=1</" not in html


def test_the_page_needs_nothing_from_anywhere_and_is_the_same_each_time():
    html = page(report(*sample()))
    assert not re.search(r"https?:|//\w+\.|@import|url\(|<link|\ssrc=|<iframe", html)
    assert "default-src 'none'" in html and html.isascii() and page(report(*sample())) == html
    assert str(ROOT) not in html and not re.search(r"\b20\d\d-\d\d-\d\d", html)


def test_what_is_no_text_and_no_number_does_not_break_the_page():
    ladder = family("ladder")
    job = Job("gpu", ladder.folder, ladder.kernels[0].name)
    broken = (Failure("prime", "primes", "not text: \udcff \x00"),)
    found = report([JobResult(job, 1, broken, worst_error=float("inf"))], [ladder])
    facts = "1 case · largest error: inf of the allowed one"
    assert facts in told(found, job.name) and "not text: \udcff \x00" in told(found, job.name) and page(found)


def test_a_flood_of_failures_is_cut_and_counted():
    ladder = family("ladder")
    job = Job("gpu", ladder.folder, ladder.kernels[0].name)
    failures = tuple(Failure(f"case{number}", "one of many", "x" * 20_000) for number in range(1000))
    found = report([JobResult(job, 1000, failures)], [ladder])
    assert cell(found, job.name, "gpu").text == "✕ 1,000" and "and 975 failures more" in told(found, job.name)
    html = page(found)
    assert "[12000 more characters]" in html and len(html) < 100_000


def test_a_result_of_no_family_is_an_error_not_a_gap():
    with pytest.raises(ValueError, match="results of names that no family has: gemm_elsewhere"):
        report([JobResult(Job("static", Path("generated/ladder"), "gemm_elsewhere"), 1)], [family("ladder")])


def test_the_price_of_a_kernel_is_small():
    results, families = sample()
    copies = [replace(one, folder=one.folder / str(number)) for number in range(40) for one in families]
    many = [
        replace(result, job=replace(result.job, folder=result.job.folder / str(number)))
        for number in range(40)
        for result in results
    ]
    kernels, found = sum(len(one.kernels) for one in copies), report(many, copies)
    assert kernels == 400 and len(page(found)) < 1500 * kernels
    # Families of one name are told apart by the ends of their folders.
    assert {cells[1].text for cells in found.table.cells} == {f"{one.name}/{n}" for one in families for n in range(40)}


#: Characters that a folder's name or a message may have, and XML may not: of a path that is not UTF-8, too.
STRANGE = "\ufffe\uffff\ud800\udcff\x01\x1b"
ESCAPED = "\\ufffe\\uffff\\ud800\\udcff\\x01\\x1b"


def junit(path, *results):
    write_junit(path, results)
    return list(ET.parse(path).getroot().iter("testcase"))


def test_any_character_makes_xml(tmp_path):
    failure = Failure(f"case{STRANGE}", STRANGE, f"é{STRANGE}")
    result = JobResult(Job("static", Path(f"a/x{STRANGE}"), f"k{STRANGE}"), failures=(failure,))
    (case,) = junit(tmp_path / "j.xml", result)
    assert (case.get("classname"), case.get("name")) == (f"x{ESCAPED}.static", f"k{ESCAPED}")
    assert case[0].get("message") == f"case{ESCAPED}: é{ESCAPED}"
    assert f"wrong:  é{ESCAPED}" in str(case[0].text)


def named(*folders):
    return {str(folder): name for folder, name in folder_names(map(Path, folders)).items()}


def test_the_shortest_end_that_no_other_path_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named() == {}
    assert named("a/ladder", "b/split_k") == {"a/ladder": "ladder", "b/split_k": "split_k"}
    assert named("a/ladder", "b/ladder", "c/x") == {"a/ladder": "a/ladder", "b/ladder": "b/ladder", "c/x": "x"}
    assert named("x/a/l", "y/a/l", "b/l") == {"x/a/l": "x/a/l", "y/a/l": "y/a/l", "b/l": "b/l"}
    assert named("ladder", "a/ladder") == {"ladder": f"{tmp_path.name}/ladder", "a/ladder": "a/ladder"}
    assert named(".") == {".": tmp_path.name}
    other = str(tmp_path / "ladder")
    assert named("ladder", other) == {"ladder": "ladder", other: other}, "two spellings of one folder"
