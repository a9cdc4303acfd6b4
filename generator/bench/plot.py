"""A plot of results: the roofline with both sides, and the ratio over size. It needs matplotlib and no GPU.

An SVG file names the digest of what it shows and the version of matplotlib, so that a test can tell whether it is up to
date. The same results and the same matplotlib give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generator.bench import stats
from generator.bench.markdown_tables import roofline
from generator.bench.measurements import Record, Results, Side
from generator.bench.summary import best
from generator.language.errors import CallError

_OURS, _PEER = "tab:blue", "tab:orange"


def draw(results: Results, records: Sequence[Record], path: Path) -> None:
    """Write the plot of `records` to `path`, in the format of its suffix; raise `CallError` without matplotlib."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise CallError("--plot needs matplotlib: pip install matplotlib") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    # Identifiers in an SVG file are random without a salt, and its metadata hold a date.
    with matplotlib.rc_context({"svg.hashsalt": "generator.bench.plot"}):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), constrained_layout=True)
        _roofline(left, results, records)
        _ratios(right, records)
        try:
            figure.savefig(path, dpi=120, metadata=_metadata(results, records, path.suffix))
        except ValueError as error:
            raise CallError(f"--plot: {path} cannot be drawn: {error}") from None
        finally:
            pyplot.close(figure)


def digest(results: Results, records: Sequence[Record]) -> str:
    """A digest of everything that the plot of `records` shows."""
    shown = [
        [
            record.case,
            str(record.problem.shape),
            record.problem.dtype.word,
            [roofline(record, results).rate, roofline(record, results).bandwidth],
            [
                [side.label, side.role, side.gpu and side.gpu.median, side.failure, _quartiles(record, side)]
                for side in record.sides
            ],
        ]
        for record in records
    ]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def _quartiles(record: Record, side: Side) -> tuple[float, float, float] | None:
    found = record.ratio(best(record), side, "gpu")
    return (found.low, found.median, found.high) if found is not None else None


def _metadata(results: Results, records: Sequence[Record], suffix: str) -> dict[str, str | None] | None:
    if suffix == ".svg":
        return {"Date": None, "Description": f"sha256 of the measurements shown: {digest(results, records)}"}
    return {"Software": None} if suffix == ".png" else None


def _roofline(axes: Any, results: Results, records: Sequence[Record]) -> None:
    """Operations per second over operations per byte, with the measured ceilings."""
    intensities = [record.problem.flops / record.problem.bytes for record in records]
    span = [min(intensities) / 2, max(intensities) * 2]
    steps = [span[0] * (span[1] / span[0]) ** (step / 200) for step in range(201)]
    ceilings = {(record.environment, record.problem.dtype.word): roofline(record, results) for record in records}
    names: dict[float, list[str]] = {}
    for (_, word), roof in sorted(ceilings.items(), key=lambda entry: entry[1].rate or 0):
        if roof.rate and roof.bandwidth:
            heights = [min(roof.rate, step * roof.bandwidth) / 1e12 for step in steps]
            axes.plot(steps, heights, linewidth=1, color="0.5")
            # Ceilings that lie close together share one label.
            near = next((height for height in names if height > 0.8 * heights[-1]), heights[-1])
            names.setdefault(near, []).append(word)
    for height, words in names.items():
        text = ", ".join(dict.fromkeys(words))
        axes.annotate(text, (steps[-1], height * 1.03), ha="right", va="bottom", fontsize=7, color="0.4")
    for role, color, marker in (("ours", _OURS, "o"), ("peer", _PEER, "x")):
        points = [
            (record.problem.flops / record.problem.bytes, record.problem.flops / side.gpu.median / 1e6)
            for record in records
            for side in record.sides
            if (side.role == "peer") == (role == "peer") and side.gpu is not None and not side.forced
        ]
        if points:
            axes.scatter(*zip(*points), color=color, marker=marker, s=22, label=role, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="operations / least bytes", ylabel="TFLOP/s on the GPU")
    axes.margins(y=0.1)
    _ticks(axes.xaxis, 4)
    _ticks(axes.yaxis, 2)
    axes.set_title("Roofline with measured ceilings")
    axes.grid(True, which="both", linewidth=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


def _ratios(axes: Any, records: Sequence[Record]) -> None:
    """The time of the fastest peer over ours, with quartiles, over the geometric mean of M, N and K."""
    series: dict[str, list[tuple[float, stats.Ratio]]] = {}
    labelled = len({side.label for record in records for side in record.sides if side.role != "peer"}) > 1
    for record in records:
        for side in record.sides:
            found = record.ratio(best(record), side, "gpu")
            if found is not None and side.role != "peer" and not side.forced:
                size = (record.problem.flops / 2) ** (1 / 3)
                # Cases of one suite are named KERNELS/SHAPES.
                name = record.case.split("/")[0]
                series.setdefault(f"{name}: {side.label}" if labelled else name, []).append((size, found))
    for number, (label, points) in enumerate(sorted(series.items())):
        middles = [point.median for _, point in points]
        spread = [[p.median - p.low for _, p in points], [p.high - p.median for _, p in points]]
        marker = "osv^D"[number % 5]
        sizes = [size for size, _ in points]
        style = {"linestyle": "none", "marker": marker, "markersize": 4, "elinewidth": 0.8}
        axes.errorbar(sizes, middles, yerr=spread, label=label, **style)
    axes.axhline(1.0, color="0.4", linewidth=1)
    peers = {word for record in records for word in record.peers}
    title = "fastest peer" if len(peers) > 1 else next(iter(peers), "peer")
    axes.set(xscale="log", xlabel="(M N K)^(1/3)", ylabel="peer's time / ours (above 1: ours is faster)")
    _ticks(axes.xaxis, 2)
    axes.set_title(f"Ratio to {title}: median and quartiles of the rounds")
    axes.grid(True, which="both", linewidth=0.3)
    if 0 < len(series) <= 30:
        axes.legend(fontsize=7, ncols=1 + len(series) // 16)


def _ticks(axis: Any, base: int) -> None:
    """Label the powers of `base` on a logarithmic axis, as plain numbers."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(base))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())


def _median(samples: Sequence[float]) -> float:
    return stats.summarize(samples).median
