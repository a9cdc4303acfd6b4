"""A plot of results: the roofline with both sides, and the ratio over size. It needs matplotlib and no GPU.

An SVG file names the digest of what it shows and the version of matplotlib, so that a test can tell whether it is up to
date. The same results and the same matplotlib give the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator.bench import stats
from generator.bench.measurements import BenchmarkResults, ComparisonRecord
from generator.bench.rooflines import roofline
from generator.bench.summary import best
from generator.files import output_files
from generator.language.errors import CallError

_OURS, _PEER = "tab:blue", "tab:orange"


@dataclass(frozen=True)
class Rate:
    """A mark on the roofline: operations a byte, and operations a second of ours or of a peer."""

    intensity: float
    rate: float
    peer: bool


@dataclass(frozen=True)
class Compared:
    """A mark among the ratios: the geometric mean of M, N and K, and the peer's time over ours."""

    series: str
    size: float
    ratio: stats.Ratio


@dataclass(frozen=True)
class Shown:
    """What a plot shows."""

    #: Of each type the operations and the bytes a second that the device reaches at best.
    ceilings: tuple[tuple[str, float, float], ...]
    rates: tuple[Rate, ...]
    ratios: tuple[Compared, ...]
    #: What ours is compared with, and what the marks are.
    title: str


def shown(results: BenchmarkResults, records: Sequence[ComparisonRecord]) -> Shown:
    """What the plot of `records`, of these `results`, shows."""
    roofs = {(record.environment, record.problem.dtype.word): roofline(record, results) for record in records}
    ceilings = sorted({(word, f.rate, f.bandwidth) for (_, word), f in roofs.items() if f.rate and f.bandwidth})
    labelled = len({side.label for record in records for side in record.sides if side.role != "peer"}) > 1
    rates, ratios = [], []
    for record in records:
        problem = record.problem
        # Cases of one suite are named KERNELS/SHAPES.
        name = record.case.split("/")[0]
        for side in record.sides:
            if side.forced:
                continue
            if side.gpu is not None:
                rate = problem.flops / side.gpu.median * 1e6
                rates.append(Rate(problem.flops / problem.bytes, rate, side.role == "peer"))
            ratio = record.ratio(best(record), side, "gpu")
            if ratio is not None and side.role != "peer":
                series = f"{name}: {side.label}" if labelled else name
                ratios.append(Compared(series, (problem.flops / 2) ** (1 / 3), ratio))
    peers = {word for record in records for word in record.peers}
    title = f"Ratio to {'fastest peer' if len(peers) > 1 else next(iter(peers), 'peer')}"
    return Shown(tuple(ceilings), tuple(rates), tuple(ratios), f"{title}: median and quartiles of the rounds")


def check(path: Path) -> tuple[Any, Any]:
    """matplotlib and pyplot, which can draw `path`; raise `CallError` without them, or for a suffix of no format."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise CallError("--plot needs matplotlib: pip install matplotlib") from None
    formats = sorted(importlib.import_module("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in formats:
        raise CallError(f"--plot: {path} cannot be drawn: the name must end in one of .{', .'.join(formats)}")
    return matplotlib, pyplot


def draw(what: Shown, path: Path) -> None:
    """Write a plot to `path`, in the format of its suffix; raise what `check` raises, or `FileError`."""
    matplotlib, pyplot = check(path)
    data = io.BytesIO()
    # Identifiers in an SVG file are random without a salt, and its metadata hold a date.
    with matplotlib.rc_context({"svg.hashsalt": "generator.bench.plot"}):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), constrained_layout=True)
        _roofline(left, what)
        _ratios(right, what)
        try:
            form = path.suffix.removeprefix(".").lower()
            figure.savefig(data, format=form, dpi=120, metadata=_metadata(what, path.suffix.lower()))
        except ValueError as error:
            raise CallError(f"--plot: {path} cannot be drawn: {error}") from None
        finally:
            pyplot.close(figure)
    output_files.put(path, data.getvalue())


def digest(what: Shown) -> str:
    """A digest of everything that a plot shows."""
    return hashlib.sha256(json.dumps(dataclasses.astuple(what)).encode()).hexdigest()


def _metadata(what: Shown, suffix: str) -> dict[str, str | None] | None:
    if suffix == ".svg":
        return {"Date": None, "Description": f"sha256 of the measurements shown: {digest(what)}"}
    return {"Software": None} if suffix == ".png" else None


def _roofline(axes: Any, what: Shown) -> None:
    """Operations per second over operations per byte, with the measured ceilings."""
    intensities = [mark.intensity for mark in what.rates]
    span = [min(intensities, default=1) / 2, max(intensities, default=1) * 2]
    steps = [span[0] * (span[1] / span[0]) ** (step / 200) for step in range(201)]
    labels: list[tuple[float, list[str]]] = []
    for word, rate, bandwidth in sorted(what.ceilings, key=lambda entry: entry[1]):
        heights = [min(rate, step * bandwidth) / 1e12 for step in steps]
        axes.plot(steps, heights, linewidth=1, color="0.5")
        # Ceilings that lie close together share one label, above the highest.
        near = labels.pop()[1] if labels and labels[-1][0] > 0.8 * heights[-1] else []
        labels.append((heights[-1], [*near, word]))
    for height, words in labels:
        text = ", ".join(dict.fromkeys(words))
        axes.annotate(text, (steps[-1], height * 1.03), ha="right", va="bottom", fontsize=7, color="0.4")
    for role, color, marker in (("ours", _OURS, "o"), ("peer", _PEER, "x")):
        marks = [(mark.intensity, mark.rate / 1e12) for mark in what.rates if mark.peer == (role == "peer")]
        if marks:
            axes.scatter(*zip(*marks), color=color, marker=marker, s=22, label=role, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="operations / least bytes", ylabel="TFLOP/s on the GPU")
    axes.margins(y=0.1)
    _ticks(axes.xaxis, 4)
    _ticks(axes.yaxis, 2)
    axes.set_title("Roofline with measured ceilings")
    axes.grid(True, which="both", linewidth=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


def _ratios(axes: Any, what: Shown) -> None:
    """The time of the fastest peer over ours, with quartiles, over the geometric mean of M, N and K."""
    series: dict[str, list[Compared]] = {}
    for mark in what.ratios:
        series.setdefault(mark.series, []).append(mark)
    for number, (label, marks) in enumerate(sorted(series.items())):
        ratios = [mark.ratio for mark in marks]
        spread = [[each.median - each.low for each in ratios], [each.high - each.median for each in ratios]]
        style = {"linestyle": "none", "marker": "osv^D"[number % 5], "markersize": 4, "elinewidth": 0.8}
        axes.errorbar(
            [mark.size for mark in marks], [each.median for each in ratios], yerr=spread, label=label, **style
        )
    axes.axhline(1.0, color="0.4", linewidth=1)
    axes.set(xscale="log", xlabel="(M N K)^(1/3)", ylabel="peer's time / ours (above 1: ours is faster)")
    _ticks(axes.xaxis, 2)
    axes.set_title(what.title)
    axes.grid(True, which="both", linewidth=0.3)
    if 0 < len(series) <= 30:
        # Beside the marks where it would hide them.
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if len(series) > 8 else {}
        axes.legend(fontsize=7, ncols=1 + len(series) // 24, **beside)


def _ticks(axis: Any, base: int) -> None:
    """Label the powers of `base` on a logarithmic axis, as plain numbers."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(base))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())
