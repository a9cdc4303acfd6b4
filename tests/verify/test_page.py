"""The page as text: what it carries, that nothing in it can become markup, that it is the same each time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generator.emit.code_parts import Parts
from generator.emit.manifest_reader import Rendered, read
from generator.plan.kernels import LeftOut
from generator.verify.jobs import Failure, Job, JobResult, JobState, Subject, command
from generator.verify.page import page
from generator.verify.run_report import failure_text, verdict
from tests.helpers.support import GENERATED, ROOT

PLACE = (("python", "3.11.7"), ("torch", "2.13.0"), ("triton", "3.7.1"))
#: What would run, were it markup.
HOSTILE = "</script><script>window.owned=1</script><img src=x onerror=\"window.owned=2\"> & 'so' \u2028 {{ 7 * 7 }}"
MESSAGE = "CompileError: PassManager::run failed\n" + "\n".join(
    f"kernel.py:{line}:24: error: 'ttg.convert_layout' op operand has no layout <#blocked{line}>" for line in range(6)
)


def family(name: str) -> Rendered:
    """A committed family, under the folder that a call in the checkout names."""
    return replace(read(GENERATED / name), folder=Path("generated", name))


def sample() -> tuple[list[JobResult], list[Rendered]]:
    """Two small families and a result of each kind that there is."""
    ladder, autotune = family("ladder"), family("autotune")
    run = (("device", "interpreter"), *PLACE)
    results = []
    for level in ("static", "bounds", "interpret", "compile", "gpu"):
        for one in (autotune, ladder):
            for place, kernel in enumerate(one.kernels):
                targets: Sequence[str | None] = kernel.targets if level == "compile" else (None,)
                for target in targets:
                    job = Job(level, one.folder, kernel.name, target=target)
                    result = JobResult(job, 1, subject=Subject.of(job, Parts("0123456789abcdef" * 2, "f" * 32, "")))
                    if level == "interpret":
                        result = replace(result, cases=40, worst_error=0.25, place=run)
                    if level == "compile":
                        figures = (("shared", 98304), ("registers", 128), ("spilled", 0), ("wgmma", 16))
                        other = (("shared", 49152), ("registers", 255), ("spilled", 24), ("mma.sync", 64))
                        measured = (("row0-aligned", figures), ("row0-ragged", other), ("row1-aligned", figures))
                        result = replace(result, cases=3, measured=measured, place=PLACE, cached=place % 2 == 1)
                    results.append(result)
        if level == "interpret":
            results.append(
                JobResult(Job(level, ladder.folder, next(iter(ladder.contracts)), contract=True), 12, place=run)
            )
            autotuned = "Triton's autotuner needs a GPU"
            results += [
                JobResult(Job(level, autotune.folder, name, contract=True), left_out=autotuned)
                for name in autotune.contracts
            ]
    for index, result in enumerate(results):
        job = result.job
        if (job.level, job.name) == ("compile", ladder.kernels[2].name) and job.target == "sm90":
            failures = [Failure(f"row{row}-aligned", "whole tiles (row 0)", MESSAGE) for row in (0, 1)]
            results[index] = replace(result, failures=tuple(failures))
        if (job.level, job.name) == ("static", ladder.kernels[1].name):
            results[index] = replace(result, failures=(Failure("lint", "no name is unused", "line 3: F841 `x`"),))
        if (job.level, job.name) == ("gpu", autotune.kernels[0].name):
            results[index] = replace(result, cases=38, not_proved=(("wide", "9 GiB of memory"),), vendor_error=0.9)
        if (job.level, job.name) == ("bounds", ladder.kernels[3].name):
            lines = tuple((f"line {line}: load of a", "not understood: line 40: tl.where") for line in (61, 62, 70))
            results[index] = replace(result, cases=0, not_proved=lines)
        if (job.level, job.name) == ("interpret", ladder.kernels[0].name):
            failed = (Failure("primes", "prime sizes smaller than a tile", "3 elements are wrong"),)
            results[index] = replace(result, failures=failed, not_proved=(("huge-c", "8192 MiB of memory"),))
    gone = autotune.kernels[-1].name
    return [result for result in results if (result.job.level, result.job.name) != ("gpu", gone)], [autotune, ladder]


def carried(html: str, name: str) -> Any:
    """A value of JSON that the page carries."""
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def cell(html: str, name: str, column: str) -> Any:
    """What the table shows of a kernel or a contract's function."""
    data = carried(html, "data")
    (row,) = [row for row in data["rows"] if row[1] == name]
    return row[4][data["columns"].index(column)]


def detail(html: str, name: str, column: str) -> Any:
    """What the opened cell tells."""
    data = carried(html, "data")
    (index,) = [index for index, row in enumerate(data["rows"]) if row[1] == name]
    return carried(html, f"part-{index // data['part']}")[index % data["part"]][2][data["columns"].index(column)]


@pytest.fixture(scope="module")
def html() -> str:
    return page(*sample())


def test_a_row_is_a_kernel_or_a_function_and_a_column_a_level_or_a_target(html: str) -> None:
    data = carried(html, "data")
    families = [family("ladder"), family("autotune")]
    assert data["columns"] == ["static", "bounds", "interpret", "compile sm80", "compile sm90", "gpu"]
    names = {name for one in families for name in (*one.by_name, *one.contracts)}
    assert {row[1] for row in data["rows"]} == names and len(data["rows"]) == len(names)
    kernel = families[0].kernels[0]
    (row,) = [row for row in data["rows"] if row[1] == kernel.name]
    told = {axis: values[place] for (axis, values), place in zip(data["axes"], row[3], strict=True)}
    assert told == kernel.variant.words


def test_a_cell_has_its_state_and_its_number(html: str) -> None:
    ladder, autotune = family("ladder"), family("autotune")
    assert cell(html, ladder.kernels[1].name, "interpret") == [JobState.PASSED, 40, 0, 0]
    assert cell(html, ladder.kernels[1].name, "compile sm80") == [JobState.PASSED, 3, 0, 1]
    assert cell(html, ladder.kernels[2].name, "compile sm90") == [JobState.FAILED, 2, 0, 0]
    assert cell(html, ladder.kernels[0].name, "interpret") == [JobState.FAILED, 1, 1, 0]
    assert cell(html, autotune.kernels[0].name, "gpu") == [JobState.NOT_PROVED, 1, 1, 0]
    assert cell(html, ladder.kernels[3].name, "bounds") == [JobState.NOT_PROVED, 3, 3, 0]
    assert cell(html, autotune.kernels[-1].name, "gpu") == 0
    state, reason, _, _ = cell(html, next(iter(autotune.contracts)), "interpret")
    assert (state, carried(html, "data")["reasons"][reason]) == (
        JobState.LEFT_OUT,
        "Triton's autotuner needs a GPU",
    )


def test_a_target_that_the_family_leaves_out_says_so_where_nothing_was_asked_of_it(html: str) -> None:
    (descriptor, *_) = [entry for entry in family("autotune").left_out if entry.target == "sm80"]
    state, reason, _, _ = cell(html, descriptor.name, "compile sm80")
    assert (state, carried(html, "data")["reasons"][reason]) == (JobState.LEFT_OUT, descriptor.reason)


def test_what_a_family_leaves_out_is_listed_by_reason(html: str) -> None:
    families = [family("ladder"), family("autotune")]
    found = [
        LeftOut(name, reason, target or None)
        for _, target, reason, names in carried(html, "excluded")
        for name in names
    ]
    assert sorted(found, key=repr) == sorted((entry for one in families for entry in one.left_out), key=repr)
    assert carried(html, "data")["leftOut"] == len(found)


def test_an_opened_failure_says_what_the_terminal_says() -> None:
    results, families = sample()
    html = page(results, families)
    texts = carried(html, "texts")
    for result in results:
        if not result.failures:
            continue
        told = [
            [texts[place] for place in entry] for entry in detail(html, result.job.name, result.job.label)["failures"]
        ]
        for failure, (case, reason, message, repeat) in zip(result.failures, told, strict=True):
            assert (case, reason, message) == (failure.case, failure.reason, failure.message)
            said = failure_text(replace(result, failures=(failure,)))
            assert f"  case:   {case}: {reason}\n" in said and said.endswith(f"  repeat: {repeat}")


def test_a_whole_job_can_be_repeated(html: str) -> None:
    kernel = family("ladder").kernels[0]
    for place, label in enumerate(carried(html, "data")["columns"]):
        before, behind = carried(html, "commands")[1][place]
        level, _, target = label.partition(" ")
        job = Job(level, Path("generated/ladder"), kernel.name, target=target or None)
        assert before + kernel.name + behind == command(job)


def test_an_opened_row_tells_the_code_by_its_digests(html: str) -> None:
    data = carried(html, "data")
    told = {
        row[1]: carried(html, f"part-{at // data['part']}")[at % data["part"]][0] for at, row in enumerate(data["rows"])
    }
    ladder = family("ladder")
    assert {told[name] for name in ladder.by_name} == {"device code 0123456789abcdef, host code ffffffffffffffff"}
    # What was compiled says nothing of the host's code, and a function is of several kernels.
    compiled = [result for result in sample()[0] if result.job.level == "compile"]
    assert 'device code 0123456789abcdef"' in page(compiled, [family("autotune"), ladder])
    assert {told[name] for name in ladder.contracts} == {""}


def test_launches_of_the_same_figures_are_told_together(html: str) -> None:
    texts = carried(html, "texts")
    names, lines = detail(html, family("ladder").kernels[0].name, "compile sm90")["measured"]
    assert [texts[name] for name in names] == ["shared", "registers", "spilled", "wgmma", "mma.sync"]
    told = [([texts[launch] for launch in launches], values) for launches, values in lines]
    assert told == [
        (["row0-aligned", "row1-aligned"], [98304, 128, 0, 16, 0]),
        (["row0-ragged"], [49152, 255, 24, 0, 64]),
    ]


def test_the_summary_counts_each_column(html: str) -> None:
    lines = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', html, re.DOTALL)
    told = [f"{label}: {' '.join(re.sub(r'<[^>]*>', ' ', rest).split())}" for label, rest in lines]
    # Kernels, functions, cases; passed, failed, not proved, cases of that, left out; known from before; where.
    place = "python 3.11.7, torch 2.13.0, triton 3.7.1"
    assert told == [
        "static: 10 0 10 9 1 0 0 0 0",
        "bounds: 10 0 9 9 0 1 3 0 0",
        f"interpret: 10 3 412 10 1 0 1 2 0 interpreter, {place}",
        f"compile sm80: 10 0 24 8 0 0 0 2 4 {place}",
        f"compile sm90: 10 0 30 9 1 0 0 0 5 {place}",
        "gpu: 9 0 46 8 0 1 1 0 0",
    ]
    assert "<title>3 of 58 failed, 2 not proved (4 cases) - verification</title>" in html
    assert 'class="verdict failed">✕'.encode("ascii", "xmlcharrefreplace").decode() in html


def test_the_verdict_is_that_of_the_terminal_in_the_colour_of_what_is_worst() -> None:
    ladder = family("ladder")
    job = Job("bounds", ladder.folder, ladder.kernels[0].name)
    other = replace(job, name=ladder.kernels[1].name)
    open_, passed = JobResult(job, 2, not_proved=(("order", "not understood"),)), JobResult(other, 3)
    failed, left_out = (
        JobResult(other, 1, (Failure("order", "r", "m"),)),
        JobResult(other, left_out="for another level"),
    )
    for results, told, state in (
        ([open_, failed], "1 of 2 failed, 1 not proved (1 case)", "failed"),
        ([open_, passed], "1 of 2 passed, 1 not proved (1 case)", "not-proved"),
        ([open_, left_out], "0 of 1 passed, 1 not proved (1 case)", "not-proved"),
        ([replace(passed, job=job), passed], "all 2 passed", "passed"),
        ([left_out], "nothing ran: 1 left out", ""),
        ([], "nothing ran", ""),
    ):
        html = page(results, [ladder])
        assert verdict(results) == told and f"<title>{told} - verification</title>" in html
        assert f'<span class="verdict {state}">' in html


def test_what_is_not_proved_is_told_with_its_reason(html: str) -> None:
    texts = carried(html, "texts")
    last, first = family("ladder").kernels[3], family("autotune").kernels[0]
    for name, column, count in ((last.name, "bounds", 3), (first.name, "gpu", 1)):
        told = [[texts[place] for place in entry] for entry in detail(html, name, column)["notProved"]]
        wanted = next(r.not_proved for r in sample()[0] if (r.job.name, r.job.label) == (name, column))
        assert told == list(map(list, wanted)) and len(told) == count


def hostile() -> tuple[list[JobResult], list[Rendered]]:
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


def test_a_text_never_becomes_markup() -> None:
    html = page(*hostile())
    assert html.count("<script") == html.count("</script>") == 1 + html.count('<script type="application/json"')
    assert "<img" not in html and "window.owned=1</" not in html
    texts = [
        *carried(html, "texts"),
        *carried(html, "data")["reasons"],
        *(entry[2] for entry in carried(html, "excluded")),
    ]
    assert texts.count(HOSTILE) == 3


def test_the_page_needs_nothing_from_anywhere(html: str) -> None:
    assert not re.search(r"https?:|//\w+\.|@import|url\(|<link|\ssrc=|<iframe", html)
    assert "default-src 'none'" in html


def test_the_same_results_make_the_same_bytes_on_every_machine(html: str) -> None:
    assert page(*sample()) == html
    assert html.isascii()
    assert str(ROOT) not in html and not re.search(r"\b20\d\d-\d\d-\d\d", html)


def test_what_json_cannot_say_does_not_break_the_page() -> None:
    ladder = family("ladder")
    kernel = ladder.kernels[0].name
    worst = JobResult(Job("gpu", ladder.folder, kernel), 1, worst_error=float("inf"), vendor_error=float("nan"))
    broken = replace(worst, failures=(Failure("prime", "primes", "not text: \udcff \x00"),))
    html = page([broken], [ladder])
    told = detail(html, kernel, "gpu")
    assert (told["worst"], told["vendor"]) == ("inf", "nan")
    assert "not text: \udcff \x00" in carried(html, "texts")


def test_a_flood_of_failures_is_cut_and_counted() -> None:
    ladder = family("ladder")
    kernel = ladder.kernels[0].name
    failures = tuple(Failure(f"case{number}", "one of many", "x" * 20_000) for number in range(1000))
    html = page([JobResult(Job("gpu", ladder.folder, kernel), 1000, failures)], [ladder])
    assert cell(html, kernel, "gpu")[1] == 1000 and len(detail(html, kernel, "gpu")["failures"]) == 25
    assert "[12000 more characters]" in html and len(html) < 100_000


def test_a_result_of_no_family_is_an_error_not_a_gap() -> None:
    with pytest.raises(ValueError, match="results of names that no family has: gemm_elsewhere"):
        page([JobResult(Job("static", Path("generated/ladder"), "gemm_elsewhere"), 1)], [family("ladder")])


def test_a_family_named_twice_is_told_once_and_a_failure_stays() -> None:
    ladder = family("ladder")
    job = Job("static", ladder.folder, ladder.kernels[0].name)
    failed = JobResult(job, 1, (Failure("lint", "no name is unused", "F841"),))
    for results in ([failed, JobResult(job, 1)], [JobResult(job, 1), failed]):
        html = page(results, [ladder, ladder])
        assert len(carried(html, "data")["families"]) == 1
        assert cell(html, job.name, "static") == [JobState.FAILED, 1, 0, 0]


def test_nothing_at_all_is_a_page_too() -> None:
    assert "nothing ran" in page([], [])
    assert "nothing ran" in page([], [family("ladder")])


def test_the_price_of_a_kernel_is_small() -> None:
    results, families = sample()
    copies = [replace(one, folder=one.folder / str(number)) for number in range(40) for one in families]
    many = [
        replace(result, job=replace(result.job, folder=result.job.folder / str(number)))
        for number in range(40)
        for result in results
    ]
    html = page(many, copies)
    kernels = sum(len(one.kernels) for one in copies)
    assert kernels == 400 and len(html) < 1500 * kernels
