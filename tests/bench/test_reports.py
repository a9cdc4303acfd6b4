"""The files that bench writes: checked before anything is measured, and each written whatever becomes of another."""

from pathlib import Path

import pytest

from generator.bench import benchmark_run
from generator.bench.benchmark_run import _Keeper
from generator.bench.measurements import BenchmarkResults, load
from generator.files import output_files
from generator.files.reading import FileError
from tests.helpers.bench import records as samples

SIDES = (
    samples.side("tiled", "kernel", [200.0, 210.0, 220.0]),
    samples.side("torch.matmul", "peer", [190.0, 210.0, 198.0]),
)


@pytest.fixture
def kept(cli):
    """A results file of one comparison, in the current folder."""
    samples.save(samples.results(samples.record(*SIDES)), Path("kept.json"))
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
    keeper, results = _Keeper(path), samples.results(samples.record(*SIDES))

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
