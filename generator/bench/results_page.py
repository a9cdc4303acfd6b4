"""Results as one HTML page: a roofline, the ratios over the size, and a table, each of what the filters leave.

The page is made as that of `verify` is (`generator.emit.html_page`), from a results file alone, without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import generator
from generator.bench.markdown_tables import head, tile
from generator.bench.measurements import COPY, BenchmarkResults, ComparisonRecord, Side
from generator.bench.rooflines import REASONS, bounded_by, roofline
from generator.bench.summary import BEST, best, summarize
from generator.emit.html_page import html_page


def results_page(results: BenchmarkResults, records: Sequence[ComparisonRecord], command: str = "") -> str:
    """The page of `records`, of these `results`, in ASCII, made by a command line; the output is deterministic."""
    sides = [(record, side) for record in records for side in record.sides if side.role != "peer"]
    environments = list(dict.fromkeys(record.environment for record in records))
    peers = list(dict.fromkeys(word for record in records for word in record.peers))
    peers += [BEST] if len(peers) > 1 else []
    data: dict[str, Any] = {
        "devices": [str(results.environments.get(each, {}).get("device", "unknown device")) for each in environments],
        "peers": peers,
        "reasons": REASONS,
        "rows": [_row(results, record, side, environments, peers) for record, side in sides],
        "ceilings": [_ceilings(results, environment) for environment in environments],
    }
    groups = [group for group in summarize(records) if group.found]
    return html_page(
        "results.html.j2",
        {"data": data},
        heads=[head(results, environment) for environment in environments],
        groups=[(group, *group.smallest) for group in groups],
        above=[word for word in REASONS if any(row["above"] == word for row in data["rows"])],
        reasons=REASONS,
        command=command,
        version=generator.__version__,
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
        "tile": _configuration(side),
        "failure": side.failure or "",
        "flops": problem.flops,
        "bytes": problem.bytes,
        "micros": None if seconds is None else _rounded(seconds * 1e6),
        "roof": None if seconds is None or floor is None else _rounded(100 * floor / seconds),
        "above": bounded_by(record, results, side) or "",
        "ratios": [None if ratio is None else [ratio.median, ratio.low, ratio.high] for ratio in ratios],
        "host": None if host is None else host.median,
    }


def _configuration(side: Side) -> str:
    """The kernel that a function ran, the configuration, and its index in `CONFIGS`, for `config=`."""
    if side.config is None and side.kernel is None:
        return "not recorded: the function chose it" if side.role == "contract" and side.failure is None else ""
    place = "" if side.index is None else f"CONFIGS[{side.index}]: "
    kernel = "" if side.kernel is None else f"{side.kernel.removeprefix(f'{side.name}__')}: "
    return kernel + place + (tile(side.config) if side.config else "tuned at the first call")


def _ceilings(results: BenchmarkResults, environment: str) -> dict[str, Any]:
    """The measured rates of a device: operations a second by type, and bytes a second."""
    rates = {ceiling.name: ceiling.rate for ceiling in results.ceilings.get(environment, ())}
    return {"copy": rates.pop(COPY, None), "rates": rates}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
