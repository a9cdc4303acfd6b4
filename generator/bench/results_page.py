"""Results as one HTML page: a roofline, the ratios over the size, and a table, each of what the filters leave.

The page is made as that of `verify` is (`generator.emit.html_page`), from a results file alone, without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from generator.bench.markdown_tables import head, roofline, tile
from generator.bench.measurements import COPY, BenchmarkResults, ComparisonRecord, Side
from generator.bench.summary import BEST, best, summarize
from generator.emit.html_page import html_page


def results_page(results: BenchmarkResults, records: Sequence[ComparisonRecord]) -> str:
    """The page of `records`, of these `results`, in ASCII; the output is deterministic."""
    sides = [(record, side) for record in records for side in record.sides if side.role != "peer"]
    environments = list(dict.fromkeys(record.environment for record in records))
    peers = list(dict.fromkeys(word for record in records for word in record.peers))
    peers += [BEST] if len(peers) > 1 else []
    data = {
        "devices": [str(results.environments.get(each, {}).get("device", "unknown device")) for each in environments],
        "peers": peers,
        "rows": [_row(results, record, side, environments, peers) for record, side in sides],
        "ceilings": [_ceilings(results, environment) for environment in environments],
    }
    groups = [group for group in summarize(records) if group.found]
    return html_page(
        "results.html.j2",
        {"data": data},
        heads=[head(results, environment) for environment in environments],
        groups=[(group, *group.smallest) for group in groups],
        records=records,
    )


def _row(
    results: BenchmarkResults, record: ComparisonRecord, side: Side, environments: Sequence[str], peers: Sequence[str]
) -> dict[str, Any]:
    """The figures of one side of a comparison; those that were not measured are null."""
    problem = record.problem
    seconds = None if side.failure is not None or side.gpu is None else side.gpu.median / 1e6
    floor = roofline(record, results).floor(problem.flops, problem.bytes)
    found = {**record.peers, BEST: best(record)}
    ratios = [record.ratio(found.get(word), side, "gpu") for word in peers]
    host = record.ratio(record.peer, side, "host")
    return {
        "case": record.case,
        "title": record.title,
        "shape": str(problem.shape),
        "name": side.name,
        "device": environments.index(record.environment),
        "dtype": problem.dtype.word,
        "layout": problem.layout.word,
        "epilogue": problem.epilogue.word,
        "tile": tile(side.config) if side.config else "",
        "failure": side.failure or "",
        "flops": problem.flops,
        "bytes": problem.bytes,
        "micros": None if seconds is None else _rounded(seconds * 1e6),
        "roof": None if seconds is None or floor is None else _rounded(100 * floor / seconds),
        "ratios": [None if ratio is None else [ratio.median, ratio.low, ratio.high] for ratio in ratios],
        "host": None if host is None else host.median,
    }


def _ceilings(results: BenchmarkResults, environment: str) -> dict[str, Any]:
    """The measured rates of a device: operations a second by type, and bytes a second."""
    rates = {ceiling.name: ceiling.rate for ceiling in results.ceilings.get(environment, ())}
    return {"copy": rates.pop(COPY, None), "rates": rates}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
