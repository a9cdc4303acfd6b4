"""Results as a picture: the roofline with both sides, and the ratio over size. Needs matplotlib, and no GPU."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generator.bench import stats
from generator.bench.markdown_tables import roofline
from generator.bench.measurements import Record, Results
from generator.language.errors import CallError

_OURS, _PEER = "tab:blue", "tab:orange"


def draw(results: Results, records: Sequence[Record], path: Path) -> None:
    """Write the picture of `records` to `path`, its kind by the suffix; raise `CallError` without matplotlib."""
    try:
        importlib.import_module("matplotlib").use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise CallError("--plot needs matplotlib: pip install matplotlib") from None
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.2), constrained_layout=True)
    _roofline(left, results, records)
    _ratios(right, records)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Without the metadata the same results give the same bytes.
        figure.savefig(path, dpi=120, metadata={"Software": None} if path.suffix == ".png" else None)
    except ValueError as error:
        raise CallError(f"--plot: {path} cannot be drawn: {error}") from None
    finally:
        pyplot.close(figure)


def _roofline(axes: Any, results: Results, records: Sequence[Record]) -> None:
    """Operations a second over operations a byte, under the measured ceilings."""
    intensities = [record.problem.flops / record.problem.bytes for record in records]
    span = [min(intensities) / 2, max(intensities) * 2]
    steps = [span[0] * (span[1] / span[0]) ** (step / 200) for step in range(201)]
    ceilings = {(record.environment, record.problem.dtype.word): roofline(record, results) for record in records}
    for (_, word), roof in ceilings.items():
        if roof.rate and roof.bandwidth:
            heights = [min(roof.rate, step * roof.bandwidth) / 1e12 for step in steps]
            (line,) = axes.plot(steps, heights, linewidth=1, color="0.5")
            axes.annotate(word, (steps[-1], heights[-1]), ha="right", va="bottom", color=line.get_color())
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
    axes.set_title("Roofline, ceilings as measured")
    axes.grid(True, which="both", linewidth=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


def _ratios(axes: Any, records: Sequence[Record]) -> None:
    """Peer's time over ours, with quartiles, over the geometric mean of M, N and K."""
    series: dict[str, list[tuple[float, stats.Ratio]]] = {}
    for record in records:
        for side in record.sides:
            found = record.ratio(record.peer, side, "gpu")
            if found is not None and side.role != "peer" and not side.forced:
                size = (record.problem.flops / 2) ** (1 / 3)
                series.setdefault(f"{record.case}: {side.label}", []).append((size, found))
    for number, (label, points) in enumerate(sorted(series.items())):
        points.sort(key=lambda point: point[0])
        middles = [point.median for _, point in points]
        spread = [[p.median - p.low for _, p in points], [p.high - p.median for _, p in points]]
        marker = "osv^D"[number // 10 % 5]
        sizes = [size for size, _ in points]
        axes.errorbar(sizes, middles, yerr=spread, marker=marker, markersize=4, linewidth=1, capsize=2, label=label)
    axes.axhline(1.0, color="0.4", linewidth=1)
    axes.set(xscale="log", xlabel="(M N K)^(1/3)", ylabel="peer's time / ours (above 1 is faster)")
    axes.set_title("Ratio over size, median and quartiles of the rounds")
    axes.grid(True, which="both", linewidth=0.3)
    if 0 < len(series) <= 30:
        axes.legend(fontsize=7)
