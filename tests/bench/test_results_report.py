"""Results as a report: its tables, plots, and page; as CSV and JSON; and files that cannot be written."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

import generator
from generator.bench import benchmark_run, plain_rows
from generator.bench.benchmark_run import _Keeper
from generator.bench.measurements import BenchmarkResults, load
from generator.bench.results_report import markdown, plots, report
from generator.bench.rooflines import REASONS
from generator.bench.summary import BEST
from generator.commands.bench import main
from generator.files import output_files
from generator.files.reading import FileError
from tests.helpers.bench import records as samples
from tests.helpers.support import ROOT


def sample():
    fast = samples.side("tiled", "kernel", [200.0, 210.0, 220.0])
    slow = samples.side("tiled", "kernel", [380.0, 400.0, 420.0])
    peer = samples.side("torch.matmul", "peer", [190.0, 210.0, 230.0])
    return [
        samples.record(fast, peer),
        samples.record(slow, peer, shape=(512, 512, 512), case="small"),
        samples.record(samples.wrong(fast), peer, shape=(64, 64, 64), case="small, with a comma"),
    ]


def plain():
    """The rows of `--format`."""
    return list(plain_rows.comparisons(samples.results(*sample())))


def test_a_row_has_the_figures_of_the_table():
    first, peer, *_, wrong, _ = plain()
    assert [first[key] for key in ("case", "shape", "m", "n", "k")] == ["squares", "4096x4096x4096", *[4096] * 3]
    assert (first["gpu_us_median"], first["roofline_percent"], first["tflops"]) == (210.0, 93.496, 654.47)
    assert [first[f"ratio_cublas{end}"] for end in ("", "_low", "_high")] == [1.0, 0.975, 1.02273]
    assert (first["config"], first["BLOCK_M"], first["num_warps"]) == (0, 128, 8) and first["kernel"] == "tiled_name"
    assert peer["role"] == "peer" and peer["ratio_cublas"] is peer["BLOCK_M"] is peer["kernel"] is None
    assert wrong["gpu_us_median"] is wrong["tflops"] is wrong["ratio_cublas"] is None
    assert "relative error" in wrong["failure"]
    assert {row["device"] for row in plain()} == {"NVIDIA H200"} and first["triton"] == "3.6.0"


@pytest.mark.parametrize("mode", ["--table", "--summary"])
def test_the_command_prints_them(cli, mode):
    fused = ROOT / "measured" / "nvidia_h200" / "bench_fused.json"
    table, as_json = (cli("bench", "--json", fused, mode, "--only", "swiglu", "--format", x) for x in ("csv", "json"))
    assert table.status == as_json.status == 0 and table.err == as_json.err == ""
    found, listed = list(csv.DictReader(io.StringIO(table.out))), json.loads(as_json.out)
    assert found
    assert found == [{key: "" if value is None else str(value) for key, value in row.items()} for row in listed]
    if mode == "--summary":
        (best,) = [row for row in listed if row["peer"] == BEST]
        assert best["sizes"] == 5 and f"| {best['mean_ratio']:.3f} |" in cli("bench", "--json", fused, mode).out
        assert best["smallest_at"].count("x") == 2
    else:
        assert {row["role"] for row in listed} == {"contract", "peer"} and len(listed) == 5 * 4


def rows(found):
    """The rows of the main table by column."""
    return [dict(zip(found.table.columns, cells, strict=True)) for cells in found.table.cells]


def test_a_plot_has_a_mark_for_each_row_with_a_time():
    roofline, ratios = plots(samples.results(*sample()))
    assert [(mark.series, mark.row) for mark in roofline.marks] == [
        *(("ours", 0), ("peer", 1), ("ours", 2), ("peer", 3), ("peer", 5))
    ]
    assert [(mark.series, mark.row, mark.y) for mark in ratios.marks] == [("squares", 0, 1.0), ("small", 2, 0.525)]
    ((label, points),) = roofline.lines
    assert label == "fp16" and points[-1][1] == 700


def test_the_command_writes_it(tmp_path):
    file, page = tmp_path / "results.json", tmp_path / "out" / "results.html"
    samples.save(samples.results(*sample()), file)
    assert main(["--json", str(file), "--table", "--html", str(page), "--only", "squares"]) == 0
    html = page.read_text()
    assert "512x512x512" not in html and "4096x4096x4096" in html and f"gemm-generator {generator.__version__}" in html
    assert "NVIDIA H200, torch 2.11.0, triton 3.6.0." in html
    command = f"python -m generator bench --json {file} --table --html {page} --only squares"
    assert f"<code>{command}</code>" in html


def above(microseconds, shape):
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
def test_a_figure_above_the_roofline_is_explained(record, word):
    results = samples.results(record)
    found = report(results)
    assert rows(found)[0]["of roofline"].title == REASONS.get(word, "")
    for each in REASONS:
        line = f"Above 100 % of the roofline, {each}: {REASONS[each]}"
        assert (line in found.legend) == (line in markdown(results)) == (each == word)
    assert "Above" not in markdown(results, brief=True)


def test_a_configuration_says_what_ran():
    first = sample()[0]
    ours = replace(first.sides[0], role="contract", index=None, kernel=f"{first.sides[0].name}__tiled_pointer")
    chosen = replace(first, case="chosen", sides=(ours, *first.sides[1:]))
    unknown = replace(first, case="unknown", sides=(replace(ours, kernel=None, config=None), *first.sides[1:]))
    kept = [first, chosen, unknown]
    told = [row["tile"].title for row in rows(report(samples.results(*kept)))]
    assert told[::2] == ["CONFIGS[0]", "tiled_pointer", "not recorded: the function chose it"]


@pytest.fixture
def kept(cli):
    """A results file of one comparison, in the current folder."""
    samples.save(samples.results(sample()[0]), Path("kept.json"))
    return Path("kept.json")


def test_what_cannot_be_written_is_known_before_the_tables(kept, cli):
    pytest.importorskip("matplotlib")
    Path("folder.png").mkdir()
    for path, reason in (
        ("kept.json/x.png", "a part of its path is a file, where a folder must be"),
        ("folder.png", "it is a folder; name a file"),
    ):
        for option in ("--html", "--plot"):
            said = cli("bench", "--json", kept, "--table", option, path)
            assert (said.status, said.out, said.err) == (1, "", f"{path}: cannot be written: {reason}\n")
    for name in ("ratios", "ratios.frobnicate"):
        said = cli("bench", "--json", kept, "--table", "--plot", name)
        assert (said.status, said.out) == (2, "")
        assert f"--plot: {name} cannot be drawn: the name must end in" in said.err


def test_one_report_that_fails_at_the_end_leaves_the_others(kept, cli, monkeypatch):
    pytest.importorskip("matplotlib")
    put = output_files.put

    def failing(path, data):
        if path.suffix == ".html":
            raise FileError(path, "cannot be written: No space left on device")
        put(path, data)

    monkeypatch.setattr(output_files, "put", failing)
    said = cli("bench", "--json", kept, "--table", "--html", "page.html", "--plot", "ratios.svg")
    assert said.status == 1 and said.out and Path("ratios.svg").is_file()
    assert said.err == "page.html: cannot be written: No space left on device\n"


def test_a_results_file_that_cannot_be_written_does_not_end_the_measurements(tmp_path, capsys, monkeypatch):
    path = tmp_path / "kept.json"
    keeper, results = _Keeper(path), samples.results(sample()[0])

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(benchmark_run.measurements, "add", full)
    keeper.keep(results, *results.records, now=True)
    keeper.keep(results, now=True)
    assert keeper.failed
    assert capsys.readouterr().err == f"bench: {path}: cannot be written: No space left on device\n"
    monkeypatch.undo()
    keeper.keep(results, now=True)
    assert not keeper.failed and isinstance(load(path), BenchmarkResults) and load(path).records
