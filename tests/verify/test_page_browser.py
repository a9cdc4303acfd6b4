"""The page in headless Chromium: what a reader does with it.

`pytest -m browser tests/verify/test_page_browser.py` runs these. A missing browser fails them: nothing is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generator.emit.manifest_reader import read
from generator.verify.jobs import Job, JobResult, JobState, command
from generator.verify.page import page
from tests.helpers.support import GENERATED
from tests.helpers.verify.browser import Open, cell

from .test_page import HOSTILE, MESSAGE, hostile, sample

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def html() -> str:
    return page(*sample())


@pytest.fixture(scope="module")
def kernels() -> list[str]:
    """The names of the kernels of the sample, in its order."""
    return [name for family in sample()[1] for name in family.by_name]


def shown(driver: Any) -> list[str]:
    """The names in the table, those of contracts' functions too."""
    return list(driver.execute_script("return [...document.querySelectorAll('th.name button')].map(b => b.ariaLabel)"))


def type_in(driver: Any, words: str) -> None:
    box = driver.find_element("name", "q")
    box.clear()
    box.send_keys(words)


def choose(driver: Any, name: str, value: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(driver.find_element("name", name)).select_by_value(value)


def until(driver: Any, holds: Callable[[], bool]) -> None:
    """Waits for what a link to a new hash brings, of which the browser tells the page in a later task; an error where
    it does not come."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(driver, 10).until(lambda _: holds())


def test_it_loads_without_a_complaint(browse: Open, html: str, kernels: list[str]) -> None:
    driver = browse(html)
    assert driver.title == "3 of 58 failed, 2 not proved (4 cases) - verification"
    assert [name for name in shown(driver) if "__" in name] == kernels
    # autotune's two functions and ladder's one stand before their kernels.
    assert len(shown(driver)) == len(kernels) + 3
    assert "Shown: 10 kernels, 3 contract functions of 10 kernels" in driver.find_element("id", "shown").text


def test_typing_a_part_of_a_name_leaves_the_rows_that_have_it(browse: Open, html: str, kernels: list[str]) -> None:
    driver = browse(html)
    type_in(driver, "BIAS descriptor")
    assert shown(driver) == [name for name in kernels if "bias" in name and "descriptor" in name] != []
    type_in(driver, "no such name")
    assert shown(driver) == [] and "Nothing matches these filters" in driver.find_element("id", "kernels").text


def test_a_value_of_an_axis_leaves_the_kernels_that_have_it(browse: Open, html: str) -> None:
    driver = browse(html)
    choose(driver, "schedule", "naive")
    wanted = [k.name for family in sample()[1] for k in family.kernels if k.variant.schedule == "naive"]
    assert shown(driver) == wanted != []
    driver.find_element("css selector", "form button").click()
    assert driver.execute_script("return new Promise(done => setTimeout(() => done(location.hash)))") in ("", "#")
    assert len(shown(driver)) == 13


def test_all_filters_work_together(browse: Open, html: str) -> None:
    driver = browse(html)
    for name, value in (("family", "generated/autotune"), ("load", "descriptor"), ("state", "left-out")):
        choose(driver, name, value)
    wanted = [k.name for k in sample()[1][0].kernels if k.variant.load == "descriptor"]
    assert shown(driver) == wanted != []
    choose(driver, "at", "interpret")
    assert shown(driver) == []


def test_only_failures_are_the_rows_that_failed(browse: Open, html: str, kernels: list[str]) -> None:
    driver = browse(html)
    choose(driver, "state", "failed")
    failed = {result.job.name for result in sample()[0] if result.failures}
    assert shown(driver) == [name for name in kernels if name in failed] and len(failed) == 3
    choose(driver, "at", "static")
    assert len(shown(driver)) == 1


def test_what_is_not_proved_is_told_apart_and_found(browse: Open, html: str, kernels: list[str]) -> None:
    driver = browse(html)
    open_ = {r.job.name: r for r in sample()[0] if r.state is JobState.NOT_PROVED}
    choose(driver, "state", "not-proved")
    assert shown(driver) == [name for name in kernels if name in open_] and len(open_) == 2
    for name, result in open_.items():
        button = cell(driver, name, result.job.label)
        assert button.text == f"? {len(result.not_proved)}"
        told = f"{result.job.label}: not proved: {len(result.not_proved)} case"
        assert button.get_attribute("title").startswith(told)
        button.click()
        opened = driver.find_element("id", button.get_attribute("aria-controls"))
        for case, reason in result.not_proved:
            assert f"{case}: {reason}" in opened.text
        assert command(result.job) in opened.text
        button.click()
    # Neither are they among what passed, and one that failed besides says so.
    choose(driver, "at", "bounds")
    (last,) = shown(driver)
    choose(driver, "state", "passed")
    assert set(shown(driver)) == {*kernels} - {last}
    driver = browse(html, "#state=cases-not-proved")
    both = next(r for r in sample()[0] if r.failures and r.not_proved)
    assert set(shown(driver)) == {*open_, both.job.name}
    assert cell(driver, both.job.name, "interpret").text == "✕ 1?1"
    # The summary's number leads to them.
    driver = browse(html)
    driver.find_element("css selector", ".totals a[href='#state=not-proved&at=gpu']").click()
    until(driver, lambda: len(shown(driver)) == 1)


def test_a_failed_cell_opens_to_its_message_and_the_command_that_repeats_it(browse: Open, html: str) -> None:
    driver = browse(html)
    result = next(result for result in sample()[0] if result.failures and result.job.level == "compile")
    button = cell(driver, result.job.name, result.job.label)
    assert button.text == "✕ 2" and button.get_attribute("aria-expanded") == "false"
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    opened = driver.find_element("id", button.get_attribute("aria-controls"))
    (message,) = opened.find_elements("css selector", "pre")
    assert message.text == MESSAGE
    commands = [found.text for found in opened.find_elements("css selector", "code.command")]
    assert commands == [*(command(result.job, failure) for failure in result.failures), command(result.job)]
    assert "row0-aligned: whole tiles (row 0)" in opened.text and "the same message as 1" in opened.text
    button.click()
    assert driver.find_elements("css selector", "tr.opened") == []


def test_a_compiled_cell_opens_to_the_figures_of_its_launches(browse: Open, html: str, kernels: list[str]) -> None:
    driver = browse(html)
    cell(driver, kernels[0], "compile sm90").click()
    lines = driver.find_elements("css selector", ".figures tr")
    assert [line.text for line in lines] == [
        "shared registers spilled wgmma mma.sync launches with these figures",
        "98,304 128 0 16 0 row0-aligned, row1-aligned",
        "49,152 255 24 0 64 row0-ragged",
    ]


def test_a_cell_left_out_tells_its_reason_on_hover_and_opened(browse: Open, html: str) -> None:
    driver = browse(html)
    left_out = next(entry for entry in sample()[1][0].left_out if entry.target == "sm80")
    button = cell(driver, left_out.name, "compile sm80")
    assert button.get_attribute("title") == f"compile sm80: left out: {left_out.reason}"
    button.click()
    assert left_out.reason in driver.find_element("css selector", "tr.opened").text


def test_a_row_opens_to_all_of_its_cells(browse: Open, html: str, kernels: list[str]) -> None:
    driver = browse(html)
    cell(driver, kernels[-2], "").click()
    heads = [found.text.partition(":")[0] for found in driver.find_elements("css selector", "tr.opened h3")]
    assert [head[1:].strip() for head in heads] == [
        "static",
        "bounds",
        "interpret",
        "compile sm80",
        "compile sm90",
        "gpu",
    ]


def test_what_the_families_leave_out_is_a_list_of_its_own(browse: Open, html: str) -> None:
    driver = browse(html)
    driver.find_element("id", "to-left-out").click()
    listed = driver.find_element("id", "left-out")
    until(driver, listed.is_displayed)
    for family in sample()[1]:
        for entry in family.left_out:
            assert entry.reason in listed.text
    assert not driver.find_element("id", "kernels").is_displayed()
    type_in(driver, "elementwise")
    assert len(driver.find_elements("css selector", "#left-out tbody tr")) == 1
    driver.find_element("id", "to-kernels").click()
    until(driver, driver.find_element("id", "kernels").is_displayed)
    assert [name for name in shown(driver) if "elementwise" not in name] == []


def test_the_hash_holds_the_filters_and_brings_them_back(browse: Open, html: str) -> None:
    driver = browse(html)
    type_in(driver, "gemm")
    choose(driver, "state", "failed")
    choose(driver, "at", "compile sm90")
    choose(driver, "family", "generated/ladder")
    before = shown(driver)
    hash = driver.execute_script("return location.hash")
    assert len(before) == 1
    driver = browse(html, hash)
    assert shown(driver) == before
    values = {name: driver.find_element("name", name).get_attribute("value") for name in ("q", "state", "at", "family")}
    assert values == {"q": "gemm", "state": "failed", "at": "compile sm90", "family": "generated/ladder"}
    # A number of the summary is a link to what it counts; a hash that says nothing filters nothing.
    driver = browse(html)
    driver.find_element("css selector", ".totals a[href='#state=failed&at=static']").click()
    until(driver, lambda: len(shown(driver)) == 1)
    assert len(shown(browse(html, "#state=no-such&load=%3Cb%3E&tab=7"))) == 13


def test_the_keyboard_reaches_every_cell(browse: Open, html: str, kernels: list[str]) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = browse(html)
    focused = lambda: driver.switch_to.active_element  # noqa: E731
    driver.execute_script("document.getElementById('to-left-out').focus()")
    focused().send_keys(Keys.TAB)
    assert focused().get_attribute("aria-label") == shown(driver)[0]
    for key in (Keys.DOWN, Keys.RIGHT, Keys.RIGHT, Keys.ENTER):
        focused().send_keys(key)
    assert focused().get_attribute("aria-label") == "bounds: passed: 1 case"
    assert kernels[0] in driver.find_element("css selector", "tr.opened").text
    focused().send_keys(Keys.ESCAPE)
    assert driver.find_elements("css selector", "tr.opened") == []


def test_a_text_that_would_run_is_shown_as_text(browse: Open) -> None:
    results, families = hostile()
    driver = browse(page(results, families))
    for result in results:
        cell(driver, result.job.name, "").click()
    opened = driver.execute_script("return [...document.querySelectorAll('tr.opened')].map(row => row.textContent)")
    # Case, reason, message, case not run, its reason, place; the reason; the figure and its launch.
    assert [text.count(HOSTILE) for text in opened] == [6, 1, 2]
    assert command(results[0].job, *results[0].failures) in opened[0]
    assert HOSTILE in driver.execute_script("return document.querySelector('.totals').textContent")
    driver.find_element("id", "to-left-out").click()
    until(driver, driver.find_element("id", "left-out").is_displayed)
    assert driver.execute_script("return document.getElementById('left-out').textContent").count(HOSTILE) == 2
    assert driver.execute_script("return [window.owned === undefined, document.images.length]") == [True, 0]


def test_ten_thousand_kernels_are_no_burden(browse: Open) -> None:
    known = [replace(read(folder), folder=Path("generated", folder.name)) for folder in sorted(GENERATED.iterdir())]
    copies = -(-10_000 // sum(len(family.kernels) for family in known))
    families = [replace(one, folder=one.folder / str(copy)) for copy in range(copies) for one in known]
    figures = tuple((f"row{row}-aligned", (("shared", row * 1024), ("registers", 64 + row))) for row in range(7))
    results = []
    for family in families:
        for kernel in family.kernels:
            results += [
                JobResult(Job(level, family.folder, kernel.name), 1) for level in ("static", "bounds", "interpret")
            ]
            jobs = [Job("compile", family.folder, kernel.name, target=target) for target in kernel.targets]
            results += [JobResult(job, 7, measured=figures) for job in jobs]
    text = page(results, families)
    assert len(text) < 20_000_000
    started = time.monotonic()
    driver = browse(text)
    # Some seconds on two cores, minutes on a busy machine: it is the order that counts.
    assert time.monotonic() - started < 300
    assert 100 < len(shown(driver)) < 1000
    started = time.monotonic()
    name = families[-1].kernels[-1].name
    found = {kernel.name for family in known for kernel in family.kernels if name in kernel.name}
    type_in(driver, name)
    assert set(shown(driver)) == found and time.monotonic() - started < 300
    cell(driver, name, "compile sm90").click()
    assert "6,144" in driver.find_element("css selector", ".figures").text
