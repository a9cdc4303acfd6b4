"""The plots of a report as a picture. It needs matplotlib and no GPU.

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
from pathlib import Path
from typing import Any

from generator.emit.report import Mark, Plot
from generator.files import output_files
from generator.language.errors import CallError


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


def draw(plots: Sequence[Plot], path: Path) -> None:
    """Write plots to `path`, in the format of its suffix; raise what `check` raises, or `FileError`."""
    matplotlib, pyplot = check(path)
    data = io.BytesIO()
    # Identifiers in an SVG file are random without a salt, and its metadata hold a date.
    with matplotlib.rc_context({"svg.hashsalt": "generator.bench.plot"}):
        figure, all_axes = pyplot.subplots(1, len(plots), figsize=(11, 4.6), constrained_layout=True)
        for axes, plot in zip(all_axes, plots, strict=True):
            _draw(axes, plot)
        try:
            form = path.suffix.removeprefix(".").lower()
            figure.savefig(data, format=form, dpi=120, metadata=_metadata(plots, path.suffix.lower()))
        except ValueError as error:
            raise CallError(f"--plot: {path} cannot be drawn: {error}") from None
        finally:
            pyplot.close(figure)
    output_files.put(path, data.getvalue())


def digest(plots: Sequence[Plot]) -> str:
    """A digest of everything that plots show."""
    return hashlib.sha256(json.dumps([dataclasses.astuple(plot) for plot in plots]).encode()).hexdigest()


def _metadata(plots: Sequence[Plot], suffix: str) -> dict[str, str | None] | None:
    if suffix == ".svg":
        return {"Date": None, "Description": f"sha256 of the measurements shown: {digest(plots)}"}
    return {"Software": None} if suffix == ".png" else None


def _draw(axes: Any, plot: Plot) -> None:
    ticker: Any = importlib.import_module("matplotlib.ticker")
    series: dict[str, list[Mark]] = {}
    for mark in plot.marks:
        series.setdefault(mark.series, []).append(mark)
    for number, (label, marks) in enumerate(sorted(series.items())):
        x, y = [mark.x for mark in marks], [mark.y for mark in marks]
        style = {"linestyle": "none", "marker": "osv^D"[number % 5], "markersize": 4, "label": label, "zorder": 3}
        if all(mark.low is None for mark in marks):
            axes.plot(x, y, **style)
        else:
            spread = [[m.y - (m.low or m.y) for m in marks], [(m.high or m.y) - m.y for m in marks]]
            axes.errorbar(x, y, spread, elinewidth=0.8, **style)
    near: list[tuple[float, list[str]]] = []
    for label, points in plot.lines:
        axes.plot(*zip(*points), linewidth=1, color="0.5")
        # Lines that end close together share one label, above the highest.
        labels = near.pop()[1] if near and near[-1][0] > 0.8 * points[-1][1] else []
        near.append((points[-1][1], list(dict.fromkeys([*labels, label]))))
    for height, labels in near:
        corner = plot.lines[0][1][-1][0], height * 1.03
        axes.annotate(", ".join(labels), corner, ha="right", va="bottom", fontsize=7, color="0.4")
    axes.set(xscale="log", yscale="log", xlabel=plot.x, ylabel=plot.y)
    axes.margins(y=0.1)
    axes.set_title(plot.title)
    axes.grid(True, which="both", linewidth=0.3)
    for axis, values in ((axes.xaxis, [mark.x for mark in plot.marks]), (axes.yaxis, [mark.y for mark in plot.marks])):
        times = max(values, default=1) / min(values, default=1)
        narrow = times < 8 and axis is axes.yaxis
        axis.set_major_locator(ticker.MaxNLocator(6) if narrow else ticker.LogLocator(4 if times > 500 else 2))
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_locator(ticker.NullLocator())
    if 0 < len(series) <= 30:
        # Beside the marks where it would hide them.
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if len(series) > 8 else {}
        axes.legend(fontsize=7, ncols=1 + len(series) // 24, **beside)
