"""`bench --format`: results as CSV and JSON, with the figures of the tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from generator.bench import plain_rows
from generator.bench.measurements import ComparisonRecord
from generator.bench.summary import BEST
from tests.helpers.bench import records as samples
from tests.helpers.support import ROOT, Spoken

Cli = Callable[..., Spoken]
FUSED = ROOT / "measured" / "nvidia_h200" / "bench_fused.json"


def sample() -> list[ComparisonRecord]:
    fast = samples.side("tiled", "kernel", [200.0, 210.0, 220.0])
    peer = samples.side("torch.matmul", "peer", [190.0, 210.0, 230.0])
    return [
        samples.record(fast, peer),
        samples.record(samples.wrong(fast), peer, shape=(64, 64, 64), case="small, with a comma"),
    ]


def rows() -> list[dict[str, Any]]:
    return list(plain_rows.comparisons(samples.results(*sample()), sample()))


def test_a_row_has_the_figures_of_the_table() -> None:
    first, peer, wrong, _ = rows()
    assert [first[key] for key in ("case", "shape", "m", "n", "k")] == ["squares", "4096x4096x4096", *[4096] * 3]
    assert (first["gpu_us_median"], first["roofline_percent"], first["tflops"]) == (210.0, 93.496, 654.47)
    assert [first[f"ratio_cublas{end}"] for end in ("", "_low", "_high")] == [1.0, 0.975, 1.02273]
    assert (first["config"], first["BLOCK_M"], first["num_warps"]) == (0, 128, 8) and first["kernel"] == "tiled_name"
    assert peer["role"] == "peer" and peer["ratio_cublas"] is peer["BLOCK_M"] is peer["kernel"] is None
    assert wrong["gpu_us_median"] is wrong["tflops"] is wrong["ratio_cublas"] is None
    assert "relative error" in wrong["failure"]
    assert {row["device"] for row in rows()} == {"NVIDIA H200"} and first["triton"] == "3.6.0"


def test_csv_and_json_are_of_the_same_rows() -> None:
    found = list(csv.DictReader(io.StringIO(plain_rows.as_csv(rows()))))
    assert [list(row) for row in found] == [list(row) for row in rows()]
    assert found[2]["case"] == "small, with a comma" and found[2]["tflops"] == ""
    assert json.loads(plain_rows.as_json(rows())) == rows()
    assert "\r" not in plain_rows.as_csv(rows()) and plain_rows.as_json([]) == "[\n\n]\n"


@pytest.mark.parametrize("mode", ["--table", "--summary"])
def test_the_command_prints_them(cli: Cli, mode: str) -> None:
    table, as_json = (cli("bench", "--json", FUSED, mode, "--only", "swiglu", "--format", x) for x in ("csv", "json"))
    assert table.status == as_json.status == 0 and table.err == as_json.err == ""
    found, plain = list(csv.DictReader(io.StringIO(table.out))), json.loads(as_json.out)
    assert (
        found and [{key: "" if value is None else str(value) for key, value in row.items()} for row in plain] == found
    )
    if mode == "--summary":
        (best,) = [row for row in plain if row["peer"] == BEST]
        assert best["sizes"] == 5 and f"| {best['mean_ratio']:.3f} |" in cli("bench", "--json", FUSED, mode).out
        assert best["smallest_at"].count("x") == 2
    else:
        assert {row["role"] for row in plain} == {"contract", "peer"} and len(plain) == 5 * 4
