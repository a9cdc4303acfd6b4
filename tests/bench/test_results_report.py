"""Results as a report: its tables, plots, and page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import generator
from generator.bench.measurements import ComparisonRecord
from generator.bench.results_report import markdown, plots, report
from generator.bench.rooflines import REASONS
from generator.commands.bench import main
from generator.emit.report import Cell, RunReport
from tests.helpers.bench import records as samples


def sample() -> list[ComparisonRecord]:
    fast = samples.side("tiled", "kernel", [200.0, 210.0, 220.0])
    slow = samples.side("tiled", "kernel", [380.0, 400.0, 420.0])
    peer = samples.side("torch.matmul", "peer", [190.0, 210.0, 230.0])
    return [
        samples.record(fast, peer),
        samples.record(slow, peer, shape=(512, 512, 512), case="small"),
        samples.record(samples.wrong(fast), peer, shape=(64, 64, 64), case="small"),
    ]


def rows(found: RunReport) -> list[dict[str, Cell]]:
    """The rows of the main table by column."""
    return [dict(zip(found.table.columns, cells, strict=True)) for cells in found.table.cells]


def test_a_plot_has_a_mark_for_each_row_with_a_time() -> None:
    roofline, ratios = plots(samples.results(*sample()), sample())
    assert [(mark.series, mark.row) for mark in roofline.marks] == [
        *(("ours", 0), ("peer", 1), ("ours", 2), ("peer", 3), ("peer", 5))
    ]
    assert [(mark.series, mark.row, mark.y) for mark in ratios.marks] == [("squares", 0, 1.0), ("small", 2, 0.525)]
    ((label, points),) = roofline.lines
    assert label == "fp16" and points[-1][1] == 700


def test_the_command_writes_it(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "out" / "results.html"
    samples.save(samples.results(*sample()), file)
    assert main(["--json", str(file), "--table", "--html", str(page), "--only", "squares"]) == 0
    html = page.read_text()
    assert "512x512x512" not in html and "4096x4096x4096" in html and f"gemm-generator {generator.__version__}" in html
    assert "NVIDIA H200, torch 2.11.0, triton 3.6.0." in html
    command = f"python -m generator bench --json {file} --table --html {page} --only squares"
    assert f"<code>{command}</code>" in html


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
    found = report(results, [record])
    assert rows(found)[0]["of roofline"].title == REASONS.get(word, "")
    for each in REASONS:
        line = f"Above 100 % of the roofline, {each}: {REASONS[each]}"
        assert (line in found.legend) == (line in markdown(results, [record])) == (each == word)
    assert "Above" not in markdown(results, [record], brief=True)


def test_a_configuration_says_what_ran() -> None:
    first = sample()[0]
    ours = replace(first.sides[0], role="contract", index=None, kernel=f"{first.sides[0].name}__tiled_pointer")
    chosen = replace(first, case="chosen", sides=(ours, *first.sides[1:]))
    unknown = replace(first, case="unknown", sides=(replace(ours, kernel=None, config=None), *first.sides[1:]))
    kept = [first, chosen, unknown]
    told = [row["tile"].title for row in rows(report(samples.results(*kept), kept))]
    assert told[::2] == ["CONFIGS[0]", "tiled_pointer", "not recorded: the function chose it"]
