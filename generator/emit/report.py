"""A run as data, and one HTML page made from it: what `verify`, `bench` and `tune` found, in tables and plots.

A `RunReport` has a verdict, small tables that sum it up, one table that can be filtered and sorted, and plots of its
rows. The page (`report.html.j2`) needs no other file and no network; the same report makes the same bytes.
`ReportTable.markdown` prints a table of the same cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from generator.emit.render import environment
from generator.files.package_data import data
from generator.files.plain_text import representable

#: The states of a cell, which have colours, with their signs; worst first.
STATES = {"failed": "✕", "not proved": "?", "passed": "✓", "left out": "-"}
#: The cell of a table where there is no value.
NONE = "—"


@dataclass(frozen=True)
class Cell:
    """A cell: its text, a word of `STATES`, and what the pointer shows above it."""

    text: str
    state: str = ""
    title: str = ""
    #: The filters of the main table, as in the URL's hash, that show what a number counts.
    link: str = ""


Cells: TypeAlias = "Sequence[Cell | str]"


@dataclass(frozen=True)
class Detail:
    """A part of what an opened row shows: `head`, `text`, `code`, or `message`, whose lines are kept."""

    kind: str
    text: str
    state: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the main table, with what it shows when it is opened."""

    cells: Cells
    details: Sequence[Detail] = ()


@dataclass(frozen=True)
class ReportTable:
    """A table; `words` are the columns of text, and `filters` those of them with few values, which a reader selects."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row | Cells]
    words: frozenset[str] = frozenset()
    filters: frozenset[str] = frozenset()

    @property
    def cells(self) -> list[list[Cell]]:
        """The cells of each row."""
        rows = [row.cells if isinstance(row, Row) else row for row in self.rows]
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]

    def markdown(self) -> str:
        """The table in Markdown, without its title."""
        rows = [self.columns, ["---"] * len(self.columns), *([cell.text for cell in row] for row in self.cells)]
        return "\n".join(map(line, rows))


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@dataclass(frozen=True)
class Mark:
    """A point of a plot, with the quartiles of y if it has some, and the index of its row in the main table."""

    series: str
    x: float
    y: float
    row: int = 0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Plot:
    """Marks over two logarithmic axes, and lines through points (x, y), by their labels."""

    title: str
    x: str
    y: str
    marks: Sequence[Mark]
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()


@dataclass(frozen=True)
class RunReport:
    """What a run found."""

    title: str
    table: ReportTable
    verdict: Cell | None = None
    #: Lines below the title: where it ran, with which versions.
    notes: Sequence[str] = ()
    command: str = ""
    summaries: Sequence[ReportTable] = ()
    plots: Sequence[Plot] = ()
    #: Paragraphs that explain the figures.
    legend: Sequence[str] = ()
    #: Tables behind the main one.
    beside: Sequence[ReportTable] = ()

    def markdown(self) -> str:
        """What the run comes to, in Markdown: without the rows of the main table."""
        return "\n\n".join((*self.notes, *(table.markdown() for table in self.summaries), *self.legend)) + "\n"


class _Indices(dict[Any, int]):
    """The index of each value, in the order in which they were first asked for."""

    def __missing__(self, value: Any) -> int:
        return self.setdefault(value, len(self))


def page(report: RunReport) -> str:
    """The report as HTML, in ASCII."""
    cells, blocks = _Indices(), _Indices()
    table = report.table
    rows = [[cells[cell] for cell in row] for row in table.cells]
    details = [[blocks[block] for block in row.details] if isinstance(row, Row) else [] for row in table.rows]
    carried = {
        "columns": [[name, name in table.words, name in table.filters] for name in table.columns],
        "states": list(STATES),
        # Cells and parts of details recur in thousands of rows; the page has each once.
        "cells": [[cell.text, cell.state, cell.title] if cell.state or cell.title else cell.text for cell in cells],
        "rows": rows,
        "plots": [_plotted(plot) for plot in report.plots],
    }
    shown = {"blocks": [[block.kind, block.text, block.state] for block in blocks], "rows": details}
    templates = environment(data("emit"), escapes=True)
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    text = templates.get_template("report.html.j2").render(
        report=report, carried={"data": carried, "details": shown}, signs=STATES
    )
    # Text outside the JSON may have any character, but the file may be written in any encoding.
    return representable(text).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _plotted(plot: Plot) -> dict[str, Any]:
    series = _Indices()
    marks = [[series[mark.series], float(f"{mark.x:.5g}"), float(f"{mark.y:.5g}"), mark.row] for mark in plot.marks]
    lines = [points for _, points in plot.lines]
    return {"title": plot.title, "x": plot.x, "y": plot.y, "series": list(series), "marks": marks, "lines": lines}
