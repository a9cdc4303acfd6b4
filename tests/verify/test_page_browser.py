"""The page in headless Chromium: what a reader does with it, and what it looks like.

`pytest -m browser tests/verify/test_page_browser.py` runs these. A missing browser fails them: nothing is skipped.
"""

import pytest

from generator.bench import results_report
from generator.bench.measurements import load
from generator.emit.report import page
from generator.verify.jobs import command
from generator.verify.page import report
from tests.helpers.support import ROOT

from .test_page import HOSTILE, MESSAGE, hostile, sample

pytestmark = pytest.mark.browser

MEASURED = ROOT / "measured" / "nvidia_h200" / "bench_fused.json"


@pytest.fixture(scope="module")
def html():
    return page(report(*sample()))


@pytest.fixture(scope="module")
def measurements():
    return page(results_report.report(load(MEASURED)))


def texts(driver, selector):
    """The texts of elements."""
    return list(
        driver.execute_script("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)
    )


def shown(driver):
    """The first cells of the table's rows."""
    return list(
        driver.execute_script("return [...document.querySelectorAll('#rows tbody th')].map(e => e.textContent)")
    )


def choose(driver, name, value):
    from selenium.webdriver.support.select import Select

    Select(driver.find_element("name", name)).select_by_value(value)


def opened(driver, name):
    """What a row shows once its button is pressed by the keyboard."""
    (button,) = [each for each in driver.find_elements("css selector", "#rows tbody button") if each.text == name]
    button.send_keys("\ue007")
    return driver.find_element("css selector", "tr.opened")


def until(driver, holds):
    """Wait for what a link to a new hash brings, of which the browser tells the page in a later task."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(driver, 10).until(lambda _: holds())


def test_filters_leave_the_rows_that_they_say_and_are_in_the_link(browse, html):
    driver = browse(html)
    names = [name for family in sample()[1] for name in family.by_name]
    assert driver.title == "3 of 58 failed, 2 not proved (4 cases) - verification"
    assert [name for name in shown(driver) if "__" in name] == names and len(shown(driver)) == len(names) + 3
    driver.find_element("name", "q").send_keys("BIAS descriptor")
    assert shown(driver) == [name for name in names if "bias" in name and "descriptor" in name] != []
    driver.find_element("css selector", "form button").click()
    until(driver, lambda: len(shown(driver)) == 13)
    choose(driver, "schedule", "naive")
    assert shown(driver) == [k.name for f in sample()[1] for k in f.kernels if k.variant.schedule == "naive"] != []
    # A link has the filters; one that says nothing filters nothing; a number of the summary is one.
    driver = browse(html, "#q=gemm&state=failed&in=compile+sm90&family=ladder")
    (failed,) = [r.job.name for r in sample()[0] if r.failures and r.job.level == "compile"]
    assert shown(driver) == [failed]
    assert len(shown(browse(html, "#state=no-such&load=%3Cb%3E"))) == 13
    driver.find_element("css selector", "a[href='#state=not+proved&in=gpu']").click()
    until(driver, lambda: len(shown(driver)) == 1)


def test_a_row_opens_to_the_message_and_the_command_that_repeats_it(browse, html):
    driver = browse(html)
    result = next(result for result in sample()[0] if result.failures and result.job.level == "compile")
    told = opened(driver, result.job.name)
    assert MESSAGE in told.text
    commands = [each.text for each in told.find_elements("css selector", "code")]
    assert commands == [*(command(result.job, failure) for failure in result.failures), command(result.job)]
    driver.switch_to.active_element.send_keys("\ue007")
    assert driver.find_elements("css selector", "tr.opened") == []


def test_a_text_that_would_run_is_shown_as_text(browse):
    results, families = hostile()
    driver = browse(page(report(results, families)))
    assert opened(driver, results[0].job.name).text.count("window.owned=1") == 7
    assert driver.execute_script("return [window.owned === undefined, document.images.length]") == [True, 0]
    assert HOSTILE in driver.execute_script("return document.body.textContent")


def test_measurements_are_sorted_filtered_and_plotted(browse, measurements):
    driver = browse(measurements, "#case=swiglu&order=-ratio")
    cells = "return [...document.querySelectorAll('#rows tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    place = texts(driver, "#rows thead th").index("ratio \u2193")
    ratios = [row[place].split()[0] for row in driver.execute_script(cells)]
    timed = [float(ratio) for ratio in ratios if ratio != "\u2014"]
    assert timed == sorted(timed, reverse=True) and len(timed) > 4 and {*shown(driver)} == {"swiglu"}
    circles = driver.find_elements("css selector", "figure:nth-child(2) circle")
    assert len(circles) == 5 and driver.find_elements("css selector", "figure:first-child path")
    assert "case: swiglu" in circles[0].get_attribute("textContent")
    driver.find_element("css selector", "[name=q]").send_keys("8192x8192")
    assert 0 < len(driver.find_elements("css selector", "figure:nth-child(2) circle")) < 5
    assert "q=8192x8192" in driver.current_url
