"""Tables and pictures from kept results."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from generator.bench import plot, results_report, summary
from generator.language.errors import CallError
from tests.helpers.bench import records as samples

OURS = samples.side("tiled", "kernel", [200.0, 210.0, 220.0])
PEER_AS_KERNEL = samples.side("same", "kernel", [190.0, 210.0, 198.0])
PEER = samples.side("torch.matmul", "peer", [190.0, 210.0, 198.0])


def cells(text, label):
    (line,) = [line for line in text.splitlines() if f"| {label} |" in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_tells_time_rate_roofline_and_ratio():
    record = samples.record(OURS, PEER)
    text = results_report.markdown(samples.results(record))
    # 2 * 4096**3 operations in 210 us; 3 * 4096**2 * 2 bytes; the roofline is 2 * 4096**3 / 700e12 = 196.3 us.
    row = "4096x4096x4096|tiled|128x256x64, group 8, 8 warps, 3 stages|210 (210 ± 10)|654|479|93 %"
    assert "|".join(cells(text, "tiled")) == f"{row}|0.950 (0.925 to 0.975)|210|0.950|210|0.950"
    assert cells(text, "torch.matmul")[7] == "—"
    assert "NVIDIA H200, torch 2.11.0, triton 3.6.0." in text
    assert "copy 4 TB/s, fp16 700 TFLOP/s" in text
    kept = samples.results(record)
    kept.ceilings.clear()
    assert cells(results_report.markdown(kept), "tiled")[6] == "—"
    slow = samples.record(OURS, samples.side("linear", "kernel", [400.0, 420.0, 440.0]), PEER)
    assert cells(results_report.markdown(samples.results(slow)), "linear")[8] == "0.500", "to the first kernel"


def test_each_peer_has_its_ratio():
    second = samples.side("torch.compile(torch.matmul)", "peer", [100.0, 105.0, 110.0])
    record = replace(samples.record(OURS, PEER, second), method={"configs": "select", "peer": "cublas,inductor"})
    text = results_report.markdown(samples.results(record))
    assert "| ratio to inductor |" in text
    assert cells(text, "tiled")[7:9] == ["0.950 (0.925 to 0.975)", "0.500"]
    assert cells(text, "torch.compile(torch.matmul)")[7:9] == ["1.900 (1.850 to 1.950)", "—"], "and what it is itself"
    refused = replace(samples.wrong(second), refused=True)
    record = replace(samples.record(OURS, PEER, refused), method=record.method)
    text = results_report.markdown(samples.results(record))
    assert cells(text, "tiled")[8] == "—"
    assert "refused: wrong result" in text


def test_the_summary_has_mean_smallest_and_count_for_each_case():
    slow = samples.side("tiled", "kernel", [400.0, 420.0, 440.0])
    shape = (8, 4096, 4096)
    records = [
        samples.record(OURS, PEER),
        samples.record(slow, PEER, shape=shape),
        samples.record(samples.wrong(OURS), PEER, shape=(1, 1, 1)),
        samples.record(PEER_AS_KERNEL, PEER, case="others"),
    ]
    text = results_report.markdown(samples.results(*records), bound=0.9)
    lines = [line for line in text.split("**Summary**")[1].splitlines() if line.startswith("| ")]
    mean, overall = math.sqrt(0.95 * 0.475), (0.95 * 0.475) ** (1 / 3)
    assert lines[2:] == [
        f"| squares: tiled | cublas | 2 (and 1 without a ratio) | {mean:.3f} | 0.475 at 8x4096x4096 | 1 | {mean:.3f} |",
        "| others: same | cublas | 1 | 1.000 | 1.000 at 4096x4096x4096 | 0 | 1.000 |",
        f"| all | cublas | 3 (and 1 without a ratio) | {overall:.3f} | 0.475 at 8x4096x4096 | 1 | {overall:.3f} |",
    ]
    assert "under 0.9" in text
    two = samples.record(OURS, slow, PEER, case="two")
    text = results_report.markdown(samples.results(*records, two))
    assert "| all |" not in text, "a mean over rivals says nothing"


def test_the_summary_has_the_best_of_several_peers_at_each_size():
    fast = samples.side("torch.compile(torch.matmul)", "peer", [100.0, 105.0, 110.0])
    refused = replace(samples.wrong(fast), refused=True)
    method = {"configs": "select", "peer": "eager,inductor"}
    records = [
        replace(samples.record(OURS, PEER, fast), method=method),
        replace(samples.record(OURS, PEER, refused, shape=(8, 4096, 4096)), method=method),
        replace(samples.record(OURS, refused, refused, shape=(9, 4096, 4096)), method=method),
        replace(samples.record(OURS, fast, PEER, case="others"), method=method),
    ]
    groups = {(group.case, group.peer): group for group in summary.summarize(records)}
    own = groups["squares", summary.BEST]
    assert [ratio for _, ratio in own.ratios] == [0.5, 0.95] and own.missing == 1
    assert [ratio for _, ratio in groups["squares", "eager"].ratios] == [0.95, 0.95]
    assert [ratio for _, ratio in groups["all", summary.BEST].ratios] == [0.5, 0.95, 0.5]
    text = results_report.markdown(samples.results(*records), bound=0.95)
    assert "| squares | fastest peer | 2 (and 1 without a ratio) | 0.689 | 0.500 at 4096x4096x4096 | 1 |" in text
    assert not any(group.peer == summary.BEST for group in summary.summarize([samples.record(OURS, PEER)]))


def test_the_summary_by_rows_has_means_by_m_and_of_aligned_rows():
    """A is row-major, B column-major: rows are aligned if K and N are multiples of 8."""

    def timed(ours, *shape, case="squares"):
        sides = samples.side("tiled", "kernel", [ours] * 3), samples.side("torch.matmul", "peer", [100.0] * 3)
        return samples.record(*sides, shape=(shape[0], shape[1], shape[2]), case=case)

    sizes = {(1, 256): 50.0, (64, 256): 200.0, (65, 256): 80.0, (1024, 260): 125.0, (1025, 256): 40.0}
    records = [*(timed(ours, *each, 256) for each, ours in sizes.items()), timed(400.0, 3, 252, 256, case="odd")]
    text = results_report.markdown(samples.results(*records), bound=0.93, by_rows=True)
    assert text.count("| case |") == 2
    lines = [line for line in text.split("Mean ratios by M")[1].splitlines() if line.startswith("| ")]
    assert lines[0].startswith("| case | M up to 64 | M 65 to 1024 | larger M | aligned rows |")
    assert lines[0].endswith("| smallest of these | under 0.93 of these |")
    aligned = (2 * 0.5 * 1.25 * 2.5) ** 0.25
    assert lines[2:] == [
        f"| squares | 1.000 (2) | 1.000 (2) | 2.500 (1) | {aligned:.3f} (4) | 0.500 at 64x256x256 | 1 |",
        "| odd | 0.250 (1) | — | — | — | — | — |",
        f"| all | {0.25 ** (1 / 3):.3f} (3) | 1.000 (2) | 2.500 (1) | {aligned:.3f} (4) | 0.500 at 64x256x256 | 1 |",
    ]
    assert "aligned rows" not in results_report.markdown(samples.results(*records))


def test_a_suite_says_how_its_results_are_reported(cli):
    records = (samples.record(OURS, PEER), samples.record(OURS, PEER, case="others"))
    samples.save(samples.results(*records), Path("kept.json"))
    for arguments, bound, by_rows in (
        ([], "under 1", False),
        (["--by-rows"], "under 1 of these", True),
        (["--suite", "unseen"], "under 0.93 of these", True),
        (["--suite", "unseen", "--bound", "0.9"], "under 0.9 of these", True),
    ):
        said = cli("bench", "--summary", "--json", "kept.json", *arguments)
        assert said.status == 0 and f"| {bound} |" in said.out and ("| aligned rows |" in said.out) is by_rows
    for arguments, others in (([], True), (["--only", "squares"], False)):
        said = cli("bench", "--table", "--json", "kept.json", *arguments)
        assert said.status == 0 and ("(`others`)" in said.out) is others
    assert cli("bench", "--table", "--json", "kept.json", "--only", "nothing").status == 2
    assert cli("bench", "--table", "--json", "none.json").status == 2


def test_a_picture_without_matplotlib_is_refused(tmp_path, monkeypatch):
    real = plot.importlib.import_module

    def missing(name):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(plot.importlib, "import_module", missing)
    with pytest.raises(CallError, match="pip install matplotlib"):
        plot.draw(results_report.plots(samples.results(samples.record(OURS, PEER))), tmp_path / "x.png")
