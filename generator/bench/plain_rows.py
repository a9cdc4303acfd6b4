"""Results as rows of plain values, and these as CSV or JSON: for spreadsheets and programs, without a GPU.

A row has the same keys in both; what was not measured is empty in CSV and null in JSON.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import TypeAlias

from generator.bench import stats
from generator.bench.measurements import TIMED, BenchmarkResults, ComparisonRecord, Side
from generator.bench.rooflines import figures
from generator.bench.summary import summarize

Value: TypeAlias = "str | int | float | bool | None"
Row: TypeAlias = "dict[str, Value]"

#: How `--format` prints results. `markdown` is for people, and is made elsewhere.
FORMATS = ("markdown", "csv", "json")
_VERSIONS = ("torch", "triton", "python", "cuda", "driver")


def comparisons(results: BenchmarkResults) -> list[Row]:
    """A row for each side of each comparison, peers too, in the order of the tables; times are in microseconds.

    Of a peer with the word W, `ratio_W` is its GPU time divided by that of the row, `ratio_W_low` and `ratio_W_high`
    are the quartiles, and `host_ratio_W` is that of the host's times.
    """
    records = results.records
    peers = list(dict.fromkeys(word for record in records for word in record.peers))
    configs = list(dict.fromkeys(name for record in records for side in record.sides for name in side.config or ()))
    return [_row(results, record, side, peers, configs) for record in records for side in record.sides]


def _row(
    results: BenchmarkResults, record: ComparisonRecord, side: Side, peers: Sequence[str], configs: Sequence[str]
) -> Row:
    problem, shape = record.problem, record.problem.shape
    environment = results.environments.get(record.environment, {})
    rates = figures(results, record, side)
    row: Row = {
        "case": record.case,
        "shape": str(shape),
        **{name: getattr(shape, name) for name in ("m", "n", "k", "pad", "batch", "groups", "routing")},
        "dtype": problem.dtype.word,
        "layout": problem.layout.word,
        "epilogue": problem.epilogue.word,
        "role": side.role,
        "label": side.label,
        "name": side.name,
        "kernel": side.name if side.role == "kernel" else side.kernel,
        "config": side.index,
        **{name: (side.config or {}).get(name) for name in configs},
        "failure": side.failure,
        "refused": side.refused,
        "error": side.error,
        "tolerance": side.tolerance,
    }
    for word in TIMED:
        timing = getattr(side, word) if side.failure is None else None
        for figure in ("median", "mean", "deviation"):
            row[f"{word}_us_{figure}"] = None if timing is None else getattr(timing, figure)
    row["gpu_method"] = side.gpu.method if side.gpu is not None and rates is not None else None
    row["tflops"] = None if rates is None else stats.rounded(rates.tflops)
    row["gbytes_per_s"] = None if rates is None else stats.rounded(rates.gbytes)
    row["roofline_percent"] = None if rates is None or rates.share is None else stats.rounded(100 * rates.share)
    for word in peers:
        ratio, host = (record.ratio(record.peers.get(word), side, timed) for timed in ("gpu", "host"))
        for end, figure in (("", "median"), ("_low", "low"), ("_high", "high")):
            row[f"ratio_{word}{end}"] = None if ratio is None else getattr(ratio, figure)
        row[f"host_ratio_{word}"] = None if host is None else host.median
    return {**row, "device": environment.get("device"), **{name: environment.get(name) for name in _VERSIONS}}


def summaries(results: BenchmarkResults, bound: float) -> list[Row]:
    """A row for each case, label and peer of each device: the number of ratios, their mean, the smallest."""
    rows: list[Row] = []
    for environment, here in results.by_environment.items():
        device = results.environments.get(environment, {}).get("device")
        for group in summarize(here.records):
            shape, least = group.smallest if group.ratios else (None, None)
            rows.append(
                {
                    "device": device,
                    "case": group.case,
                    "label": group.label,
                    "peer": group.peer,
                    "sizes": len(group.ratios),
                    "without_ratio": group.missing,
                    "mean_ratio": stats.rounded(group.mean) if group.ratios else None,
                    "smallest_ratio": least,
                    "smallest_at": None if shape is None else str(shape),
                    "bound": bound,
                    "under_bound": group.under(bound),
                    "mean_host_ratio": stats.rounded(geometric_mean(group.host)) if group.host else None,
                }
            )
    return rows


def as_csv(rows: Sequence[Mapping[str, Value]]) -> str:
    """The rows with a line of names; lines end with LF."""
    text = io.StringIO()
    written = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    written.writeheader()
    written.writerows(rows)
    return text.getvalue()


def as_json(rows: Sequence[Mapping[str, Value]]) -> str:
    """The rows as a list, one a line."""
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return "[\n" + ",\n".join(f" {line}" for line in lines) + "\n]\n"
