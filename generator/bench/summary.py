"""What many comparisons come to: for each case the mean ratio, the smallest, and how many lie under a bound.

On request also the means by M, and what the comparisons with aligned rows alone come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from generator.bench.measurements import ComparisonRecord, Side
from generator.emit.report import NONE, ReportTable
from generator.problem.product import ROW_CLASSES, Shape

#: Fewer comparisons than this need no summary: their table says it all.
_FEWEST = 2
_ALL = "all"
#: The word for whichever peer was the fastest at each size.
BEST = "fastest peer"


def best(record: ComparisonRecord) -> Side | None:
    """The peer that took the least time on the device; None where none has a right result."""
    timed = [(p.gpu.median, p) for p in record.peers.values() if not p.failure and p.gpu]
    return min(timed, key=lambda entry: entry[0])[1] if timed else None


@dataclass(frozen=True)
class Ratios:
    """One side of one case against one peer, over its shapes."""

    case: str
    label: str
    peer: str
    #: The median ratio on the device of each shape where both sides were right, in their order.
    ratios: tuple[tuple[Shape, float], ...]
    #: The same of the host alone.
    host: tuple[float, ...]
    #: Shapes without a ratio: a side refused or failed.
    missing: int
    #: Those of `ratios` with leading dimensions that are multiples of 16 bytes.
    aligned: tuple[tuple[Shape, float], ...] = ()

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return geometric_mean([value for _, value in self.ratios])

    @property
    def smallest(self) -> tuple[Shape, float]:
        return min(self.ratios, key=lambda entry: entry[1])

    def under(self, bound: float) -> int:
        """How many ratios lie under `bound`."""
        return sum(value < bound for _, value in self.ratios)


def by_rows(values: Iterable[tuple[int, float]]) -> dict[str, list[float]]:
    """Numbers by the class of M (`ROW_CLASSES`), each of which comes with its M."""
    entries = list(values)
    return {name: [value for m, value in entries if least <= m <= most] for name, (least, most) in ROW_CLASSES.items()}


def summarize(records: Sequence[ComparisonRecord]) -> list[Ratios]:
    """Every side of every case against every peer, and the best of several, rows forced by `--configs all` left out.

    At the end all cases together, where no comparison has several sides: their mean would say nothing of any.
    """
    keys: dict[tuple[str, str, str], list[tuple[ComparisonRecord, Side, Side | None]]] = {}
    ours = [[side for side in record.sides if side.role != "peer" and not side.forced] for record in records]
    for record, sides in zip(records, ours):
        for side in sides:
            for word, peer in record.peers.items():
                keys.setdefault((record.case, side.label, word), []).append((record, side, peer))
            if len(record.peers) > 1:
                keys.setdefault((record.case, side.label, BEST), []).append((record, side, best(record)))
    groups = [_ratios(*key, entries) for key, entries in keys.items()]
    if len({record.case for record in records}) > 1 and all(len(sides) == 1 for sides in ours):
        for word in dict.fromkeys(group.peer for group in groups):
            together = [entry for key, entries in keys.items() if key[2] == word for entry in entries]
            groups.append(_ratios(_ALL, "", word, together))
    return groups


def _ratios(case: str, label: str, word: str, entries: list[tuple[ComparisonRecord, Side, Side | None]]) -> Ratios:
    ratios, aligned, host = [], [], []
    for record, side, peer in entries:
        value = record.ratio(peer, side, "gpu")
        alone = record.ratio(peer, side, "host")
        if value is not None:
            ratios.append((record.problem.shape, value.median))
            if record.problem.aligned_rows:
                aligned.append(ratios[-1])
        if alone is not None:
            host.append(alone.median)
    return Ratios(case, label, word, tuple(ratios), tuple(host), len(entries) - len(ratios), tuple(aligned))


def tables(records: Sequence[ComparisonRecord], bound: float, *, rows: bool = False) -> list[ReportTable]:
    """The summary of records of one device, none where there is nothing to sum up; with `rows` also the means by M."""
    groups = [group for group in summarize(records) if group.ratios]
    if len(records) < _FEWEST or not groups:
        return []
    # A label says something only where there are several.
    labelled = len({group.label for group in groups if group.label}) > 1
    columns = ["case", "peer", "cases", "mean ratio", "smallest ratio", f"under {bound:g}", "mean host ratio"]
    names = [f"{group.case}: {group.label}" if labelled and group.label else group.case for group in groups]
    lines = []
    for case, group in zip(names, groups):
        shape, smallest = group.smallest
        cases = str(len(group.ratios)) + (f" (and {group.missing} without a ratio)" if group.missing else "")
        host = f"{geometric_mean(group.host):.3f}" if group.host else NONE
        least = f"{smallest:.3f} at {shape}"
        lines.append([case, group.peer, cases, f"{group.mean:.3f}", least, str(group.under(bound)), host])
    table = ReportTable("Summary", columns, lines, frozenset(("case", "peer")))
    return [table, _by_rows(names, groups, bound)] if rows else [table]


def markdown(records: Sequence[ComparisonRecord], bound: float, *, rows: bool = False) -> list[str]:
    """The same as Markdown paragraphs."""
    parts = tables(records, bound, rows=rows)
    return [part for table in parts for part in (f"**{table.title}** (means are geometric)", table.markdown())]


def why_none(records: Sequence[ComparisonRecord]) -> str | None:
    """Why `tables` has no summary for the records of any environment, or None if it has one."""
    groups = [[each for each in records if each.environment == name] for name in {each.environment for each in records}]
    if any(tables(group, 1.0) for group in groups):
        return None
    timed = sum(any(group.ratios for group in summarize([record])) for record in records)
    return (
        f"there is no summary: it needs {_FEWEST} comparisons on one device, of which one at least has a ratio; there "
        f"{'is 1' if len(records) == 1 else f'are {len(records)}'}, and {timed} with a ratio"
    )


def _by_rows(names: Sequence[str], groups: Sequence[Ratios], bound: float) -> ReportTable:
    """The geometric means by M, and what aligned rows alone come to."""
    columns = ["case", *ROW_CLASSES, "aligned rows", "smallest of these", f"under {bound:g} of these"]
    rows = []
    several = len({group.peer for group in groups}) > 1
    for name, group in zip(names, groups):
        classes = by_rows((shape.m, value) for shape, value in group.ratios).values()
        aligned = [value for _, value in group.aligned]
        cells = [f"{geometric_mean(ratios):.3f} ({len(ratios)})" if ratios else NONE for ratios in (*classes, aligned)]
        if group.aligned:
            shape, smallest = min(group.aligned, key=lambda entry: entry[1])
            cells += [f"{smallest:.3f} at {shape}", str(sum(value < bound for value in aligned))]
        else:
            cells += [NONE, NONE]
        rows.append([f"{name}, {group.peer}" if several else name, *cells])
    title = "Mean ratios by M, and of rows that are multiples of 16 bytes in A, B and C, with the number of sizes"
    return ReportTable(title, columns, rows, frozenset(("case",)))
