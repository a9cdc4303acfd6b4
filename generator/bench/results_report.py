"""Results as a `RunReport`, from a results file alone: tables of all sides, summaries and plots; and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import generator
from generator.bench import summary
from generator.bench.measurements import COPY, BenchmarkResults, ComparisonRecord, Side
from generator.bench.rooflines import REASONS, ceilings, figures
from generator.bench.summary import BEST, best
from generator.emit.report import NONE, Cell, Cells, Mark, Plot, ReportTable, RunReport

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
#: The columns of text in a table of sides; those that a reader filters by.
_FILTERS = ("case", "type", "layout", "epilogue", "device")
_WORDS = frozenset((*_FILTERS, "MxNxK", "side", "tile"))


def markdown(results: BenchmarkResults, bound: float = 1.0, *, brief: bool = False, by_rows: bool = False) -> str:
    """Results as Markdown: for each device a heading, its ceilings, a table a case, a summary.

    The summary counts the ratios under `bound`, and with `by_rows` has means by M. With `brief` the tables of cases are
    left out.
    """
    parts = []
    for environment, here in results.by_environment.items():
        parts.append(head(results, environment))
        for case in dict.fromkeys(record.case for record in here.records) if not brief else ():
            table = _sides(here.of(record for record in here.records if record.case == case))
            parts.append(f"**{table.title}** (`{case}`)\n\n{table.markdown()}")
        parts += summary.markdown(here.records, bound, rows=by_rows)
    parts += [_BRIEF_LEGEND] if brief else [_LEGEND, *_above_the_roofline(results)]
    return "\n\n".join(parts) + "\n"


def report(results: BenchmarkResults, bound: float = 1.0, *, by_rows: bool = False, command: str = "") -> RunReport:
    """Results which a command line asked for."""
    parts = results.by_environment
    return RunReport(
        "measurements",
        _sides(results, whole=True),
        notes=[*(head(results, each) for each in parts), f"Page by gemm-generator {generator.__version__}"],
        command=command,
        summaries=[x for here in parts.values() for x in summary.tables(here.records, bound, rows=by_rows)],
        plots=plots(results),
        legend=[_LEGEND, *_above_the_roofline(results)],
    )


def _above_the_roofline(results: BenchmarkResults) -> list[str]:
    """Why figures are above 100 %, as far as some are."""
    rates = (figures(results, record, side) for record in results.records for side in record.sides)
    reasons = {each.above for each in rates if each is not None}
    return [f"Above 100 % of the roofline, {word}: {REASONS[word]}" for word in REASONS if word in reasons]


def head(results: BenchmarkResults, environment: str) -> str:
    """The device and the versions of an environment, and on a second line its measured ceilings."""
    versions = results.environments.get(environment, {})
    words = [results.device(environment)]
    words += [
        f"{name} {versions[name]}" for name in ("torch", "triton", "python", "cuda", "driver") if name in versions
    ]
    ceilings = [
        f"{name} {rate / 1e12:.4g} {'TB/s' if name == COPY else 'TFLOP/s'}"
        for name, rate in results.ceilings.get(environment, {}).items()
    ]
    lines = [", ".join(words) + "."]
    if ceilings:
        lines.append("Measured ceilings: " + ", ".join(ceilings) + ".")
    return "\n".join(lines)


def _sides(results: BenchmarkResults, *, whole: bool = False) -> ReportTable:
    """A row for each side of each comparison; with `whole`, the words by which a reader tells the comparisons apart."""
    records = results.records
    several = any(sum(side.role != "peer" for side in record.sides) > 1 for record in records)
    others = list(dict.fromkeys(word for record in records for word in record.peers))[1:]
    labels = [_described(results, record) for record in records]
    # What all comparisons have in common needs no column.
    columns = [name for name in _FILTERS if name == "case" or len({each[name] for each in labels}) > 1] if whole else []
    rows = [
        [*(words[name] for name in columns), *_cells(results, record, side, several, others, whole=whole)]
        for record, words in zip(records, labels)
        for side in record.sides
    ]
    columns += ["MxNxK", "side", "tile", "µs on the GPU (mean ± std)", "TFLOP/s", "GB/s", "of roofline", "ratio"]
    columns += ["to the first"] if several else []
    columns += [f"ratio to {word}" for word in others]
    columns += ["µs with the host", "ratio with the host", "µs of the host alone", "host ratio"]
    return ReportTable(records[0].title if records else "", columns, rows, _WORDS, frozenset(_FILTERS))


def _described(results: BenchmarkResults, record: ComparisonRecord) -> dict[str, str]:
    """The words of `_FILTERS` of a comparison."""
    problem = record.problem
    words = problem.dtype.word, problem.layout.word, problem.epilogue.word, results.device(record.environment)
    return dict(zip(_FILTERS, (record.case, *words), strict=True))


def _cells(
    results: BenchmarkResults,
    record: ComparisonRecord,
    side: Side,
    several: bool,
    others: Sequence[str],
    *,
    whole: bool,
) -> Cells:
    row = Cell(tile(side.config) if side.config else NONE, title=_configuration(side))
    name = Cell(side.name, title=side.label) if whole else side.label
    front: list[Cell | str] = [str(record.problem.shape), name, row]
    rates, gpu = figures(results, record, side), side.gpu
    if rates is None or gpu is None or side.call is None or side.host is None:
        reason = f"{'refused' if side.refused else 'FAILED'}: {side.failure or 'not measured'}"
        wrong = Cell(reason, "left out" if side.refused else "failed")
        return [*front, wrong, *[NONE] * (8 + several + len(others))]
    star = "" if gpu.method == "graph" else "*"
    ours = [other for other in record.sides if other.role != "peer"]
    rivals = [*ours[: int(several)], *(record.peers.get(word) for word in others)]
    cells: list[Cell | str] = [
        *front,
        f"{_number(gpu.median)}{star} ({_number(gpu.mean)} ± {_number(gpu.deviation, 2)})",
        _number(rates.tflops, 3),
        _number(rates.gbytes, 3),
        NONE if rates.share is None else Cell(f"{100 * rates.share:.0f} %", title=REASONS.get(rates.above or "", "")),
        ratio_text(record, record.peer, side, "gpu"),
    ]
    cells += [
        NONE if side.role == "peer" else ratio_text(record, rival, side, "gpu", quartiles=False) for rival in rivals
    ]
    for what, timing in (("call", side.call), ("host", side.host)):
        cells += [_number(timing.median), ratio_text(record, record.peer, side, what, quartiles=False)]
    return cells


def ratio_text(record: ComparisonRecord, peer: Side | None, side: Side, what: str, *, quartiles: bool = True) -> str:
    """A ratio for a table, `0.97 (0.96 to 0.98)`, or a dash where there is none."""
    ratio = record.ratio(peer, side, what)
    if ratio is None:
        return NONE
    return f"{ratio.median:.3f}" + (f" ({ratio.low:.3f} to {ratio.high:.3f})" if quartiles else "")


def _configuration(side: Side) -> str:
    """The kernel that a function ran, and the index of the configuration in `CONFIGS`, for `config=`."""
    if side.config is None and side.kernel is None:
        return "not recorded: the function chose it" if side.role == "contract" and side.failure is None else ""
    kernel = "" if side.kernel is None else side.kernel.removeprefix(f"{side.name}__")
    configuration = "" if side.index is None else f"CONFIGS[{side.index}]"
    return ", ".join(filter(None, (kernel, configuration, "" if side.config else "tuned at the first call")))


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
    return ", ".join(words) or NONE


def _number(value: float, digits: int = 4) -> str:
    """A number to `digits` significant digits, without an exponent."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if abs(short) >= 10 ** (digits - 1) else f"{short:.{digits}g}"


def plots(results: BenchmarkResults) -> tuple[Plot, Plot]:
    """The roofline with both sides, and the ratio to the fastest peer over the geometric mean of M, N and K."""
    records = results.records
    labelled = len({side.label for record in records for side in record.sides if side.role != "peer"}) > 1
    rates, ratios, row = [], [], -1
    for record in records:
        problem = record.problem
        # Cases of one suite are named KERNELS/SHAPES.
        name = record.case.split("/")[0]
        for side in record.sides:
            row += 1
            if side.forced:
                continue
            if side.gpu is not None:
                role = "peer" if side.role == "peer" else "ours"
                rates.append(Mark(role, problem.flops / problem.bytes, problem.flops / side.gpu.median / 1e6, row))
            ratio = record.ratio(best(record), side, "gpu")
            if ratio is not None and side.role != "peer":
                series, size = f"{name}: {side.label}" if labelled else name, (problem.flops / 2) ** (1 / 3)
                ratios.append(Mark(series, size, ratio.median, row, ratio.low, ratio.high))
    peers = {word for record in records for word in record.peers}
    rival = BEST if len(peers) > 1 else next(iter(peers), "peer")
    return (
        Plot(
            "Roofline with measured ceilings",
            "operations / least bytes",
            "TFLOP/s on the GPU",
            rates,
            _ceilings(results, [mark.x for mark in rates]),
        ),
        Plot(
            f"Ratio to {rival}: median and quartiles of the rounds",
            "(M N K)^(1/3)",
            "peer's time / ours (above 1: ours is faster)",
            ratios,
            [("", [(size, 1.0) for size in _steps([mark.x for mark in ratios], 1.0)])],
        ),
    )


def _ceilings(results: BenchmarkResults, intensities: Sequence[float]) -> list[tuple[str, list[tuple[float, float]]]]:
    """The measured ceilings of each type, as TFLOP/s over operations a byte; the lowest first."""
    measured = ((record.problem.dtype.word, ceilings(results, record)) for record in results.records)
    lines = {(word, *both) for word, both in measured if both is not None}
    return [
        (word, [(step, min(rate, step * bandwidth) / 1e12) for step in _steps(intensities)])
        for word, rate, bandwidth in sorted(lines, key=lambda entry: (entry[1], entry[0]))
    ]


def _steps(values: Sequence[float], beyond: float = 2.0) -> list[float]:
    """Places on a logarithmic axis, from the least value to the largest and `beyond` times as far."""
    low, high = min(values, default=1.0) / beyond, max(values, default=1.0) * beyond
    return [low * (high / low) ** (step / 200) for step in range(201)]
