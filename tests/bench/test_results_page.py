"""Results as one HTML page: its data, and in headless Chromium what the filters and the pointer do with them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generator.bench.measurements import ComparisonRecord, save
from generator.bench.results_page import results_page
from generator.commands.bench import main
from tests.helpers.bench import records as samples
from tests.helpers.support import ROOT
from tests.helpers.verify.browser import Open

MEASURED = ROOT / "measured" / "nvidia_h200" / "bench_fused.json"
HOSTILE = "</script><img src=x onerror='window.owned=1'>&"


def sample() -> list[ComparisonRecord]:
    fast = samples.side("tiled", "kernel", [200.0, 210.0, 220.0])
    slow = samples.side("tiled", "kernel", [380.0, 400.0, 420.0])
    peer = samples.side("torch.matmul", "peer", [190.0, 210.0, 230.0])
    return [
        samples.record(fast, peer),
        samples.record(slow, peer, shape=(512, 512, 512), case="small"),
        samples.record(samples.wrong(fast), peer, shape=(64, 64, 64), case="small"),
    ]


@pytest.fixture(scope="module")
def html() -> str:
    return results_page(samples.results(*sample()), sample())


def carried(html: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert found is not None
    return json.loads(found[1])


def test_a_row_has_the_figures(html: str) -> None:
    first, second, third = carried(html)["rows"]
    assert (first["micros"], first["roof"], first["ratios"]) == (210.0, 93.496, [[1.0, 0.975, 1.02273]])
    assert (second["case"], second["shape"], second["ratios"][0][0]) == ("small", "512x512x512", 0.525)
    assert third["micros"] is None and "relative error" in third["failure"]
    assert carried(html)["ceilings"] == [{"copy": 4e12, "rates": {"fp16": 7e14}}]


def test_the_page_needs_nothing_from_anywhere_and_is_the_same_each_time(html: str) -> None:
    assert not re.search(r"https?:|@import|url\(|<link|\ssrc=|<iframe", html) and "default-src 'none'" in html
    assert results_page(samples.results(*sample()), sample()) == html and html.isascii()


def test_a_text_never_becomes_markup() -> None:
    hostile = [replace(record, case=HOSTILE, title=HOSTILE) for record in sample()]
    html = results_page(samples.results(*hostile), hostile)
    assert "<img" not in html and html.count("<script") == html.count("</script>") == 2
    assert carried(html)["rows"][0]["case"] == HOSTILE


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "results.json", tmp_path / "out" / "results.html"
    save(samples.results(*sample()), file)
    assert main(["--json", str(file), "--table", "--html", str(page), "--only", "squares"]) == 0
    assert [row["case"] for row in carried(page.read_text())["rows"]] == ["squares"]


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_filters_and_the_pointer(browse: Open, tmp_path: Path, dark: bool) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    page = tmp_path / "fused.html"
    assert main(["--json", str(MEASURED), "--summary", "--html", str(page)]) == 0
    driver = browse(page.read_text(), "#case=swiglu&order=ratio", dark)
    background = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    rows = driver.find_elements("css selector", "#rows tbody tr")
    assert rows and all(row.text.startswith("swiglu") for row in rows)
    points = driver.find_elements("css selector", "#ratios circle")
    assert len(points) == len(rows) and driver.find_elements("css selector", "#roofline path")
    ActionChains(driver).move_to_element(points[0]).perform()
    tip = driver.find_element("id", "tip")
    assert tip.is_displayed() and "TFLOP/s" in tip.text and "ratio to eager" in tip.text
    driver.find_element("css selector", "[name=q]").send_keys("8192x8192")
    assert len(driver.find_elements("css selector", "#rows tbody tr")) < len(rows) and not tip.is_displayed()
    assert "q=8192x8192" in driver.current_url
