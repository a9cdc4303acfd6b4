"""Results as one HTML page: its data, and in headless Chromium what the filters and the pointer do with them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import generator
from generator.bench.markdown_tables import render as markdown
from generator.bench.measurements import ComparisonRecord, save
from generator.bench.results_page import results_page
from generator.bench.rooflines import REASONS
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


def above(microseconds: float, shape: tuple[int, int, int]) -> ComparisonRecord:
    ours = samples.side("tiled", "kernel", [microseconds])
    return samples.record(ours, samples.side("torch.matmul", "peer", [microseconds]), shape=shape)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        # 137 GFLOP take 196 us at 700 TFLOP/s, and 33.6 MB take 8.4 us at 4 TB/s.
        (above(180.0, (4096, 4096, 4096)), "operations"),
        (above(8.0, (1, 4096, 4096)), "bytes"),
        (above(210.0, (4096, 4096, 4096)), ""),
    ],
)
def test_a_figure_above_the_roofline_is_explained(record: ComparisonRecord, word: str) -> None:
    results = samples.results(record)
    html = results_page(results, [record])
    row = carried(html)["rows"][0]
    assert row["above"] == word and (row["roof"] > 100) == bool(word)
    assert ("Why figures are above 100 % of the roofline" in html) == bool(word)
    told = {
        each: f"Above 100 % of the roofline, {each}: {REASONS[each]}" in markdown(results, [record]) for each in REASONS
    }
    assert told == {each: each == word for each in REASONS}
    assert "Above" not in markdown(results, [record], brief=True)


def test_the_page_names_configurations_versions_and_command(tmp_path: Path) -> None:
    first = sample()[0]
    ours = replace(first.sides[0], role="contract", index=None, kernel=f"{first.sides[0].name}__tiled_pointer")
    chosen = replace(first, case="chosen", sides=(ours, *first.sides[1:]))
    unknown = replace(first, case="unknown", sides=(replace(ours, kernel=None, config=None), *first.sides[1:]))
    file, page = tmp_path / "results.json", tmp_path / "results.html"
    save(samples.results(first, chosen, unknown), file)
    assert main(["--json", str(file), "--table", "--html", str(page)]) == 0
    html = page.read_text()
    row = "128x256x64, group 8, 8 warps, 3 stages"
    told = [f"CONFIGS[0]: {row}", f"tiled_pointer: {row}", "not recorded: the function chose it"]
    assert [each["tile"] for each in carried(html)["rows"]] == told
    assert "NVIDIA H200, torch 2.11.0, triton 3.6.0." in html and f"gemm-generator {generator.__version__}" in html
    assert f"<code>python -m generator bench --json {file} --table --html {page}</code>" in html


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
