"""Results as Markdown: one table a case, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from generator.bench import summary
from generator.bench.measurements import COPY, BenchmarkResults, ComparisonRecord, Side
from generator.bench.rooflines import REASONS, bounded_by, roofline

_NONE = "—"

_BRIEF_LEGEND = (
    "A ratio is the peer's GPU time divided by ours, so above 1 is faster: the median over rounds in which both sides "
    "run interleaved. The host ratio compares the time until a call returns."
)
_LEGEND = (
    "A ratio is the peer's time divided by ours, so above 1 is faster. Both sides run interleaved, the ratio is taken "
    "in each round, and the table gives the median, with the quartiles in brackets. GPU times are replays of a CUDA "
    "graph over operands larger than the L2 cache; a * marks calls that were launched one by one. Times with the host "
    "run from an idle device to the end of the call; times of the host alone run until the call returns. The roofline "
    "time is the longer of operations over the measured matrix rate and least bytes over the measured copy rate."
)


def render(
    results: BenchmarkResults,
    records: Sequence[ComparisonRecord],
    bound: float = 1.0,
    *,
    brief: bool = False,
    by_rows: bool = False,
) -> str:
    """`records`, of these `results`, as Markdown: for each device a heading, its ceilings, a table a case, a summary.

    The summary counts the ratios under `bound`, and with `by_rows` has means by M. With `brief` the tables of cases are
    left out.
    """
    parts = []
    for environment in dict.fromkeys(record.environment for record in records):
        parts.append(head(results, environment))
        here = [record for record in records if record.environment == environment]
        for case in dict.fromkeys(record.case for record in here) if not brief else ():
            parts.append(_case(results, [record for record in here if record.case == case]))
        parts += summary.render(here, bound, rows=by_rows)
    parts.append(_BRIEF_LEGEND if brief else _LEGEND)
    if not brief:
        found = {bounded_by(record, results, side) for record in records for side in record.sides}
        parts += [f"Above 100 % of the roofline, {word}: {REASONS[word]}" for word in REASONS if word in found]
    return "\n\n".join(parts) + "\n"


def head(results: BenchmarkResults, environment: str) -> str:
    """The device and the versions of an environment, and on a second line its measured ceilings."""
    found = results.environments.get(environment, {})
    words = [str(found.get("device", "unknown device"))]
    for name in ("torch", "triton", "python", "cuda", "driver"):
        if name in found:
            words.append(f"{name} {found[name]}")
    ceilings = []
    for ceiling in results.ceilings.get(environment, ()):
        unit, factor = ("TB/s", 1e12) if ceiling.name == COPY else ("TFLOP/s", 1e12)
        ceilings.append(f"{ceiling.name} {ceiling.rate / factor:.4g} {unit}")
    lines = [", ".join(words) + "."]
    if ceilings:
        lines.append("Measured ceilings: " + ", ".join(ceilings) + ".")
    return "\n".join(lines)


def _case(results: BenchmarkResults, records: Sequence[ComparisonRecord]) -> str:
    several = any(sum(side.role != "peer" for side in record.sides) > 1 for record in records)
    columns = ["MxNxK", "", "tile", "µs on the GPU (mean ± std)", "TFLOP/s", "GB/s", "of roofline", "ratio"]
    others = list(dict.fromkeys(word for record in records for word in record.peers))[1:]
    columns += ["to the first"] if several else []
    columns += [f"ratio to {word}" for word in others]
    columns += ["µs with the host", "ratio", "µs of the host alone", "ratio"]
    lines = [
        f"**{records[0].title}** (`{records[0].case}`)",
        "",
        summary.row(columns),
        summary.row(["---"] * len(columns)),
    ]
    for record in records:
        lines += [summary.row(_cells(results, record, side, several, others)) for side in record.sides]
    return "\n".join(lines)


def _cells(
    results: BenchmarkResults, record: ComparisonRecord, side: Side, several: bool, others: Sequence[str]
) -> list[str]:
    head = [str(record.problem.shape), side.label, tile(side.config) if side.config else _NONE]
    if side.failure is not None or side.gpu is None or side.call is None or side.host is None:
        reason = f"{'refused' if side.refused else 'FAILED'}: {side.failure or 'not measured'}"
        return [*head, reason, *[_NONE] * (8 + several + len(others))]
    gpu = side.gpu
    seconds = gpu.median / 1e6
    floor = roofline(record, results).floor(record.problem.flops, record.problem.bytes)
    star = "" if side.gpu.method == "graph" else "*"
    cells = [
        *head,
        f"{_number(gpu.median)}{star} ({_number(gpu.mean)} ± {_number(gpu.deviation, 2)})",
        _number(record.problem.flops / seconds / 1e12, 3),
        _number(record.problem.bytes / seconds / 1e9, 3),
        f"{100 * floor / seconds:.0f} %" if floor else _NONE,
        ratio_text(record, record.peer, side, "gpu"),
    ]
    if several:
        ours = [other for other in record.sides if other.role != "peer"]
        cells.append(_NONE if side.role == "peer" else ratio_text(record, ours[0], side, "gpu", quartiles=False))
    for word in others:
        peer = record.peers.get(word)
        cells.append(_NONE if side.role == "peer" else ratio_text(record, peer, side, "gpu", quartiles=False))
    for what, timing in (("call", side.call), ("host", side.host)):
        cells += [_number(timing.median), ratio_text(record, record.peer, side, what, quartiles=False)]
    return cells


def ratio_text(record: ComparisonRecord, peer: Side | None, side: Side, what: str, *, quartiles: bool = True) -> str:
    """A ratio for a table, `0.97 (0.96 to 0.98)`, or a dash where there is none."""
    found = record.ratio(peer, side, what)
    if found is None:
        return _NONE
    return f"{found.median:.3f}" + (f" ({found.low:.3f} to {found.high:.3f})" if quartiles else "")


def tile(config: Mapping[str, int]) -> str:
    """A row of CONFIGS in words: `128x256x64, group 8, 8 warps, 3 stages`."""
    size = "x".join(str(config[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K") if name in config)
    rest = {name: value for name, value in config.items() if not name.startswith("BLOCK_")}
    words = [size] if size else []
    blocks = (("LEFT_N", "left"), ("MIDDLE_N", "middle"), ("TOP_M", "top"), ("MIDDLE_M", "middle"))
    named = (*blocks, ("GROUP_M", "group"), ("SPLIT", "split"), ("NUM_CHIPLETS", "chiplets"))
    words += [f"{word} {rest.pop(name)}" for name, word in named if name in rest]
    for name, word in (("num_warps", "warp"), ("num_stages", "stage")):
        if name in rest:
            count = rest.pop(name)
            words.append(f"{count} {word}{'' if count == 1 else 's'}")
    words += [f"{name} {value}" for name, value in rest.items()]
    return ", ".join(words) or _NONE


def _number(value: float, digits: int = 4) -> str:
    """A number to `digits` significant digits, without an exponent."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if abs(short) >= 10 ** (digits - 1) else f"{short:.{digits}g}"
