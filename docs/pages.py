"""Make what README.md and the pages of docs/ take from code and data: `python docs/pages.py`.

Four things are made, and tests/test_docs.py compares each with what is committed:

    <!-- table: NAME -->      up to `<!-- end of table -->`: a Markdown table, made by an entry of TABLES;
                              those of BUILT are made when the site is built
    0<!-- figure: WORDS -->   the figure, or span of code, in front of it: made by `figures.py`
    ```console                each line `$ COMMAND` is run, and what it prints follows
    plots/NAME.svg            a plot of committed measurements, made by an entry of PLOTS

`python docs/pages.py --check` writes nothing; its exit status is 1 where something is out of date.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fnmatch
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(1, str(ROOT / "docs"))

import figures
import gpu_tables
import yaml
from figures import DEVICE, MEASURED, OTHER, RESULTS

from generator.bench import measurements, plot, results_report, summary
from generator.commands import COMMANDS, command_line
from generator.emit.report import Plot
from generator.epilogue import gated_units, operations
from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.epilogue.formula import FUNCTIONS
from generator.language import built_in, dtypes, vocabulary
from generator.language.elements import ELEMENTS
from generator.language.errors import SpecError
from generator.language.features import Feature
from generator.language.model import Dtype
from generator.language.targets import TARGETS
from generator.plan import claims
from generator.plan.families import families
from generator.problem.accumulation_bounds import tolerance
from generator.tune import torch_rule, tuning_report, winners

TUNED = ROOT / "specs" / "tuned"
SPECS = sorted((ROOT / "specs").glob("*.yaml"))

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLOT_FOLDER = ROOT / "docs" / "plots"

_TABLE = re.compile(r"(?<=<!-- table: )(\w+) -->\n(.*?)(?=<!-- end of table -->)", re.S)
_CONSOLE = re.compile(r"(?<=```console\n)(.*?)(?=```\n)", re.S)


def printed(*arguments: str | Path) -> str:
    """What `python -m generator ARGUMENTS` prints on standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = command_line.main(list(map(str, arguments)))
    if status != 0:
        raise ValueError(f"python -m generator {' '.join(map(str, arguments))}: exit status {status}")
    return out.getvalue()


def _bench(suite: str) -> Callable[[], str]:
    return lambda: printed("bench", "--json", RESULTS[suite], "--summary")


def _tuned(family: str) -> Callable[[], str]:
    paths = sorted(TUNED.glob(f"*/{family}.json"), reverse=True)
    # As `tune --report --tuned PATH` prints it; the command needs torch, and the site is built without.
    return lambda: "\n".join(tuning_report.of_winners(winners.read(path)).markdown() for path in paths)


def _proofs() -> str:
    return printed("verify", *SPECS, "--table", *sorted((MEASURED / "proofs").glob("*.json")))


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


def _code(words: object) -> str:
    return f"`{words}`"


#: A row of the summary: its words, what it is compared with, the suite, the cases, and the peer's word.
_SPEED = (
    ("fp16 and bf16, four layouts, aligned sizes", "cuBLAS (`torch.matmul`)", "speed", "*/*[!d]", "cublas"),
    ("fp16 and bf16, four layouts, ragged sizes", "cuBLAS (`torch.matmul`)", "speed", "*/ragged", "cublas"),
    ("fp16 and bf16, 1 to 64 rows", "cuBLAS (`torch.matmul`)", "decode", "*", "cublas"),
    ("int8", "cuBLAS (`torch._int_mm`)", "types", "int8/*", "cublas"),
    ("fp8, short accumulator (`fast`)", "cuBLASLt (`torch._scaled_mm`)", "types", "fp8_fast/*", "cublas"),
    ("fp8, promoted to fp32 (`full`)", "cuBLASLt (`torch._scaled_mm`)", "types", "fp8_full/*", "cublas"),
    ("tf32, four layouts", "cuBLAS (`torch.matmul`)", "types", "tf32_*", "cublas"),
    ("fp16 and bf16, batched", "cuBLAS (`torch.bmm`)", "batched", "*", "cublas"),
    ("fused epilogues", "the fastest of eager, cuBLASLt and `torch.compile`", "fused", "*", summary.BEST),
)


def _speed() -> str:
    """One row for each kind of product, over all its sizes."""
    rows = []
    for words, peer, suite, cases, word in _SPEED:
        records = [
            record for record in measurements.load(RESULTS[suite]).records if fnmatch.fnmatchcase(record.case, cases)
        ]
        groups = [group for group in summary.summarize(records) if group.case != "all" and group.peer == word]
        entries = [entry for group in groups for entry in group.ratios]
        shape, least = min(entries, key=lambda entry: entry[1])
        mean = geometric_mean([ratio for _, ratio in entries])
        slower = sum(ratio < 1 for _, ratio in entries)
        own = words, peer, str(len(entries)), str(slower), f"{mean:.2f}", f"{least:.2f} at {shape}"
        rows.append((*own, _with_torchs(records, len(entries))))
    head = "products", "compared with", "sizes", "slower", "mean ratio", "smallest ratio", "both with `aten`"
    return markdown(head, rows)


def _with_torchs(records: list[measurements.ComparisonRecord], sizes: int) -> str:
    """Mean and smallest ratio where a rule may take torch's product, which was fitted to other N and K."""
    compared = [x for x in torch_rule.comparisons(records).values() if len(x) >= torch_rule.FEWEST]
    # Where a rule loses, none is shipped.
    held = [max((halved.ours, halved.both), key=math.fsum) for halved in map(torch_rule.halves, compared)]
    ratios = [math.exp(ratio) for own in held for ratio in own]
    return f"{geometric_mean(ratios):.2f}, {min(ratios):.2f}" if len(ratios) == sizes else "—"


def _axis(name: str) -> Callable[[], str]:
    """The values of an axis or key, each with its meaning."""

    def table() -> str:
        words = vocabulary.ALL_WORDS[name]
        default = vocabulary.DEFAULTS.get(name)
        rows = [
            (_code(word) + (" (default)" if word == default else ""), entry.meaning) for word, entry in words.items()
        ]
        return markdown((_code(name), "meaning"), rows)

    return table


def _torch_candidate() -> str:
    """The ratios at sizes to which nothing was fitted, of our kernels alone and with torch's product beside them."""
    words = {
        "bf16_rcr": "bf16, weights as in `nn.Linear`",
        "fp16_rcr": "fp16, the same",
        "bf16_rrr": "bf16, B row-major",
        "bf16_crr": "bf16, A column-major and B row-major, as a weight's gradient",
        "bf16_bias": "bf16, with a bias",
        "fp8_full": "fp8, `full`",
        "fp8_fast": "fp8, `fast`",
        "fp8_blocks": "fp8, scales of blocks",
    }
    lines = []
    for folder, gpu in ((OTHER, "H100"), (DEVICE, "H200")):
        rows = list(csv.DictReader(io.StringIO((folder / "torch_candidate.csv").read_text(encoding="utf-8"))))
        for case, title in words.items():
            own = [row for row in rows if row["case"] == case and row["own_us"]]
            if not own:
                continue
            cells = [gpu, title, str(len(own)), str(sum(row["runs"] == "aten" for row in own))]
            for column in ("own_us", "with_aten_us"):
                ratios = sorted(float(row["torch_us"]) / float(row[column]) for row in own)
                cells.append(f"{geometric_mean(ratios):.3f}, {ratios[len(ratios) // 20]:.3f}, {ratios[0]:.3f}")
            lines.append(tuple(cells))
    head = ("GPU", "products", "sizes", "torch runs", "our kernels: mean, 5 % worst, least", "with `aten`")
    return markdown(head, lines)


def _options() -> str:
    """Every option of every command: a command's positional arguments first."""
    rows = []
    for name in ("render", *COMMANDS):
        parser = importlib.import_module(f"generator.commands.{name}").parser()
        for action in parser._actions:
            if action.help and action.dest != "help":
                value = f" {action.metavar}" if isinstance(action.metavar, str) and action.option_strings else ""
                choices = f" {{{','.join(map(str, action.choices))}}}" if action.choices and not value else ""
                word = ", ".join(action.option_strings) or str(action.metavar)
                help_text = " ".join(action.help.replace("%%", "%").replace("|", "\\|").split())
                rows.append((_code(name), _code(f"{word}{value}{choices}".replace("|", "\\|")), help_text))
    return markdown(("command", "option", "what it does"), rows)


def _operations() -> str:
    rows = []
    spelled = {shape: f"[{', '.join(map(str, parts))}]" for parts, shape in operations.SHAPES.items()}
    for name, operation in built_in.OPERATIONS.items():
        operands = ", ".join(f"`{operand}` {spelled[shape]}" for operand, shape in operation.operands.items())
        parameters = {**operation.scalars, **({gated_units.ORDER: gated_units.CONCATENATED} if operation.gated else {})}
        scalars = ", ".join(f"`{name}` {value}" for name, value in parameters.items())
        rows.append((_code(name), _code(operation.formula), operands, scalars))
    return markdown(("operation", "formula", "operands", "parameters"), rows)


def _functions() -> str:
    rows = [(_code(f"{name}({each.parameters})"), each.meaning) for name, each in FUNCTIONS.items()]
    return markdown(("function", "what it is"), rows)


def _outputs() -> str:
    rows = []
    for word, writer in AUXILIARY.items():
        dtype = "fp32" if writer.reduction else "C's"
        shape = "M, N" if writer.shape == operations.MATRIX else writer.shape
        rows.append((_code(word), _code(writer.output), f"[{shape}]", dtype, writer.meaning.format("the value")))
    return markdown(("element", "output", "shape", "dtype", "what it is"), rows)


def _dtypes() -> str:
    rows = [
        (_code(word), *map(_code, types), _code(precision) if precision else "—")
        for word, (*types, precision) in dtypes.DTYPE_SHORTHANDS.items()
    ]
    return markdown(("shorthand", "`a`", "`b`", "`acc`", "`out`", "`precision`"), rows)


def _narrow_floats(target: str) -> list[str]:
    """The floating types of 8 bits that a target multiplies."""
    return sorted(x for x, each in ELEMENTS.items() if each.floating and each.bits == 8 and target in each.multiplied)


def _targets() -> str:
    rows = [
        (
            _code(word),
            {"nvidia": "NVIDIA", "amd": "AMD"}[target.vendor],
            f"{target.shared_memory:,}",
            ", ".join(map(_code, _narrow_floats(word))) or "—",
            "yes" if target.descriptors else "no",
        )
        for word, target in TARGETS.items()
    ]
    head = ("target", "vendor", "shared memory of a program, bytes", "fp8 operands", "`load: descriptor`")
    return markdown(head, rows)


#: One spec for each rule of legality.py that a user may meet, as keys beside those of _BASE.
_ILLEGAL = (
    "{schedule: elementwise, load: descriptor}",
    "{schedule: elementwise, dtype: tf32}",
    "{load: descriptor, masking: none}",
    "{load: descriptor, layout: srr}",
    "{load: descriptor, layout: rrs}",
    "{load: descriptor, schedule: persistent, epilogue: add}",
    "{load: block_pointer, triton: '>=3.9'}",
    "{load: block_pointer, epilogue: swiglu}",
    "{dtype: int8, epilogue: silu}",
    "{schedule: elementwise, epilogue: row_sum}",
    "{schedule: split_k, batch: strided}",
    "{schedule: split_k_atomic, dtype: {a: fp16, out: fp32}, epilogue: bias}",
    "{schedule: split_k_atomic}",
    "{schedule: paired, load: descriptor}",
    "{schedule: paired, dtype: fp32}",
    "{schedule: paired, epilogue: row_sum}",
    "{schedule: paired, product: direct, dtype: {a: fp16, sparsity: {b: '2:4'}}}",
    "{rounding: torch, dtype: {a: fp16, out: int8}, epilogue: relu}",
    "{select: autotune, schedule: split_k}",
    "{schedule: decoded}",
    "{schedule: decoded, dtype: {a: bf16, b: int4, scales: {b: [128, 1]}}, product: exchanged}",
    "{schedule: decoded, dtype: {a: bf16, b: int4, scales: {b: [128, 1]}}, batch: strided}",
    "{schedule: decoded, dtype: {a: int8, b: int4, scales: {b: [128, 1]}}}",
    "{product: exchanged, dtype: {a: int8, b: int4, scales: {b: [128, 1]}}}",
    "{select: autotune, epilogue: accumulate}",
    "{select: autotune, epilogue: row_sum}",
    "{invariant: rows, schedule: stream_k}",
    "{invariant: rows, schedule: split_k_atomic, dtype: {a: fp16, out: fp32}}",
    "{invariant: rows, masking: none}",
    "{invariant: rows, layout: crr, load: descriptor}",
    "{invariant: rows, layout: rrc, load: descriptor}",
    "{invariant: rows, epilogue: row_sum}",
    "{invariant: rows, epilogue: col_sum}",
    "{invariant: rows, select: autotune}",
    "{load: descriptor, targets: [sm80]}",
    "{dtype: fp8e4m3, targets: [sm80]}",
    "{dtype: {a: fp16, out: fp8e4m3}, targets: [sm80]}",
    "{dtype: tf32, targets: [gfx90a]}",
    "{dtype: tf32x3, targets: [gfx942]}",
    "{product: exchanged, targets: [sm80]}",
    "{product: summed}",
    "{product: summed, dtype: fp32, schedule: persistent}",
    "{product: summed, dtype: fp32, load: descriptor}",
    "{product: scaled}",
    "{product: scaled, dtype: {a: mxfp4}, targets: [sm80]}",
    "{product: scaled, dtype: {a: mxfp8e4m3, b: mxfp4}, targets: [sm120]}",
)
_BASE = {"summary": "An illegal combination.", "layout": "rcr", "dtype": "fp16"}


def _features() -> str:
    """What words may claim, and which of them do not, of those that are asked for it."""
    rows = []
    for feature in Feature:
        axes = next((need.axes for need in claims.NEEDS if need.feature is feature), ("schedule",))
        lacking = [
            word for axis in axes for word, entry in vocabulary.WORDS[axis].items() if feature not in entry.handles
        ]
        rows.append((_code(feature.name), feature.value, ", ".join(map(_code, lacking)) or "none"))
    return markdown(("feature", "what it is", "words that do not handle it"), rows)


def _legality() -> str:
    """Combinations that cannot exist, each with the reason that the command line gives."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "illegal.yaml"
        for keys in _ILLEGAL:
            path.write_text(yaml.safe_dump({**_BASE, **yaml.safe_load(keys)}))
            try:
                families([path])
            except SpecError as error:
                refusal = re.search(r"left out: (.*?)(?:; to leave something.*)?$", str(error).splitlines()[0])
                if refusal is None:
                    raise ValueError(f"{keys}: no reason in {error}") from None
                rows.append((_code(keys[1:-1]), refusal[1]))
            else:
                raise ValueError(f"{keys} is legal")
    return markdown(("combination", "reason"), rows)


def _quantised() -> str:
    rows = [
        (_code(word), str(quantised.least), str(quantised.most), quantised.nan)
        for word, quantised in dtypes.QUANTISED.items()
    ]
    return markdown(("`out`", "from", "to", "NaN"), rows)


def _invariant() -> str:
    """What one configuration for all M costs, for each size of N and K."""
    by_layer: dict[tuple[int, int], list[float]] = {}
    for product in json.loads((DEVICE / "invariant.json").read_text())["products"]:
        ratios = [each["ratio"] for each in product["times"]]
        by_layer.setdefault((product["n"], product["k"]), []).extend(ratios)
    rows = [(f"{n}x{k}", f"{geometric_mean(each):.2f}", f"{max(each):.2f}") for (n, k), each in by_layer.items()]
    return markdown(("NxK", "mean", "largest"), rows)


def _fp32_errors() -> str:
    """The errors of products of fp32 operands, as `measured/scripts/fp32_errors.py` writes them."""
    errors_of: dict[str, dict[str, float]] = {}
    for each in json.loads((OTHER / "fp32_errors.json").read_text())["errors"]:
        errors_of.setdefault(each["product"], {})[f"{each['m']}x{each['n']}x{each['k']}"] = each["error"]
    rows = [(name, *(f"{error:.1e}" for error in errors.values())) for name, errors in errors_of.items()]
    return markdown(("product", *next(iter(errors_of.values()))), rows)


def _errors() -> str:
    """The largest relative errors of right products, by type and K."""
    extents = (256, 2048, 16384)
    words = [word for word in dtypes.DTYPE_SHORTHANDS if word != "int8"]
    rows = [(_code(word), *(f"{tolerance(Dtype.of(word), k):.1e}" for k in extents)) for word in words]
    return markdown(("dtype", *(f"K = {k}" for k in extents)), rows)


def _of_both(name: str) -> list[dict[str, Any]]:
    """A file of measurements of the H100, and that of the H200."""
    return [json.loads((folder / name).read_text(encoding="utf-8")) for folder in (OTHER, DEVICE)]


def _training() -> str:
    """Times of training by torch and by a family, as `measured/scripts/training.py` writes them."""
    measured = _of_both("training.json")
    times = [
        {
            **{(f"`{chain}`: {what}", "µs"): each for chain, of in one["host"].items() for what, each in of.items()},
            **{(f"layer {size}, against torch.compile", "ms"): each for size, each in one["layers"].items()},
            **{(f"step of the model, {how}", "ms"): each for how, each in one["steps"].items() if how != "loss"},
        }
        for one in measured
    ]
    two = json.loads((DEVICE / "training_two.json").read_text(encoding="utf-8"))["steps"]
    times[1] |= {(f"step on two GPUs, {how}", "ms"): each for how, each in two.items() if "ratio" in each}
    rows = [(name, unit, *(_taken(of.get((name, unit))) for of in times)) for name, unit in times[1]]
    return markdown(("torch and family, ratio", "unit", *(one["device"] for one in measured)), rows)


def _training_aten() -> str:
    """The wall time of a model whose family may leave products to torch."""
    measured = _of_both("training_aten.json")
    times = [
        {
            **{f"training step, {how}": each for how, each in one["steps"].items() if how != "loss"},
            **{f"forward pass, {how}": each for how, each in one["passes"].items()},
        }
        for one in measured
    ]
    rows = [(name, *(_taken(one.get(name)) for one in times)) for name in times[0]]
    return markdown(("torch and family in ms, ratio; sequences x tokens", *(one["device"] for one in measured)), rows)


def _experts() -> str:
    """The ratios of whole layers of experts."""
    counts, steps = (16, 512, 4096), {"forward, eager": "inference eager", "forward, CUDA graph": "inference graph"}
    rows = []
    for one in _of_both("experts.json"):
        for model in ("mixtral", "qwen3"):
            cells = [one["device"], model.capitalize()]
            for step in (*steps.values(), "training"):
                ratios = (one[model][f"{step} {count}"]["ratio of family"]["median"] for count in counts)
                cells.append(", ".join(f"{ratio:.2f}" for ratio in ratios))
            rows.append(tuple(cells))
    return markdown(("GPU", "sizes of", *steps, "training step, eager"), rows)


def _taken(each: dict[str, Any] | None) -> str:
    """Torch's time, the family's and their ratio."""
    return f"{each['torch']:.4g} and {each['family']:.4g}, {each['ratio']:.2f}" if each else ""


#: What the commands of first_hour.md printed, and how long they took: mode -> where, and its steps.
HOUR = json.loads((MEASURED / "first_hour.json").read_text(encoding="utf-8"))
_HOUR_STEPS = re.findall(r"^<!-- (gpu )?step: (\w+) -->$", (ROOT / "docs" / "first_hour.md").read_text("utf-8"), re.M)


def _hour() -> str:
    """The seconds of every step, and where they were measured."""
    parts = []
    for mode, recorded in HOUR.items():
        rows = [(step["step"], f"{step['seconds']:.1f}") for step in recorded["steps"]]
        where = "With a GPU" if mode == "gpu" else "Without a GPU"
        parts += [f"{where} ({recorded['place']}):", markdown(("step", "seconds"), rows)]
    return "\n\n".join(parts)


def _printed(mode: str, name: str) -> Callable[[], str]:
    """What a step printed."""

    def block() -> str:
        steps = {step["step"]: step["printed"] for step in HOUR.get(mode, {"steps": ()})["steps"]}
        return f"```text\n{steps[name].strip()}\n```" if name in steps else "Not measured yet."

    return block


#: Results of which pages have figures alone.
_NO_TABLE = ("types_other", "grouped_other")
#: Long tables: a page has their markers, and conf.py fills them when the site is built.
_TUNED = ("gemm16", "batched", "fused", "fp32", "tf32x3", "symmetric")
BUILT = frozenset(f"bench_{suite}" for suite in RESULTS if suite not in _NO_TABLE) | {f"tuned_{n}" for n in _TUNED}

TABLES: Mapping[str, Callable[[], str]] = {
    "operations": _operations,
    "functions": _functions,
    "outputs": _outputs,
    "options": _options,
    "dtypes": _dtypes,
    "quantised": _quantised,
    "targets": _targets,
    "gpus": lambda: markdown(gpu_tables.TARGET_COLUMNS, gpu_tables.targets()),
    "other_gpus": lambda: markdown(gpu_tables.OTHER_COLUMNS, gpu_tables.others()),
    "legality": _legality,
    "features": _features,
    **{f"axis_{name}": _axis(name) for name in vocabulary.ALL_WORDS},
    "torch_candidate": _torch_candidate,
    "proofs": _proofs,
    "speed": _speed,
    **{f"bench_{suite}": _bench(suite) for suite in RESULTS if suite not in _NO_TABLE},
    "invariant": _invariant,
    "hour": _hour,
    **{
        f"hour_{mode}_{name}": _printed(mode, name)
        for mode, name in (("gpu" if gpu else "cpu", name) for gpu, name in _HOUR_STEPS)
    },
    **{f"tuned_{n}": _tuned(n) for n in _TUNED},
    "fp32_errors": _fp32_errors,
    "errors": _errors,
    "training": _training,
    "training_aten": _training_aten,
    "experts": _experts,
}

#: Plot -> the suite, and the cases that it shows.
PLOTS: Mapping[str, tuple[str, str]] = {
    "speed_rcr": ("speed", "*16_rcr/*[!d]"),
    "speed_ragged": ("speed", "*/ragged"),
    "decode": ("decode", "*"),
    "eight_bits": ("types", "*8*/*"),
    "tf32": ("types", "tf32*"),
    "fused": ("fused", "*"),
    "formulas": ("formulas", "*"),
    "stored": ("stored", "*"),
}


def plotted(name: str) -> Sequence[Plot]:
    """What a plot shows."""
    suite, only = PLOTS[name]
    kept = measurements.load(RESULTS[suite])
    return results_report.plots(kept.of(record for record in kept.records if fnmatch.fnmatchcase(record.case, only)))


def draw(name: str, path: Path) -> None:
    """Draw a plot, as `python -m generator bench --json FILE --only CASES --summary --plot PATH` does."""
    plot.draw(plotted(name), path)


def tables(text: str) -> Iterator[str]:
    """The names of the tables of a page."""
    for match in _TABLE.finditer(text):
        yield match[1]


def consoles(text: str) -> Iterator[str]:
    """The console blocks of a page."""
    for match in _CONSOLE.finditer(text):
        yield match[1]


def table(name: str, text: str) -> str:
    """A table as a page holds it."""
    return next(match[2] for match in _TABLE.finditer(text) if match[1] == name).strip()


def console(block: str) -> str:
    """A console block with what its commands print now, in a folder that has what a checkout has and may be written."""
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, target in {"specs": ROOT / "specs", "docs": ROOT / "docs", "measured": MEASURED}.items():
            (Path(scratch) / name).symlink_to(target)
        (Path(scratch) / "generated").symlink_to(ROOT / "generated")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "100"}
        for command in re.findall(r"^\$ (.*)$", block, re.M):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=scratch,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            lines += [f"$ {command}", *map(str.rstrip, done.stdout.rstrip("\n").splitlines())]
    return "".join(f"{line}\n" for line in lines)


def made(text: str) -> str:
    """A page with its tables, console blocks and figures made anew."""
    text = _TABLE.sub(
        lambda found: f"{found[1]} -->\n" + (f"{TABLES[found[1]]().strip()}\n" if found[1] not in BUILT else ""), text
    )
    return figures.written(_CONSOLE.sub(lambda found: console(found[1]), text))


def built(text: str) -> str:
    """A page as the site has it: with its long tables."""
    return _TABLE.sub(
        lambda found: f"{found[1]} -->\n{TABLES[found[1]]().strip()}\n" if found[1] in BUILT else found[0], text
    )


def main() -> int:
    """Write every page and plot that has changed, or name them."""
    parser = argparse.ArgumentParser(prog="python docs/pages.py", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a file would change")
    parser.add_argument("pages", nargs="*", type=Path, help="only these pages, and no plot (default: everything)")
    arguments = parser.parse_args()
    changed = []
    for page in map(Path.resolve, arguments.pages or PAGES):
        text = page.read_text(encoding="utf-8")
        new = made(text)
        if new != text:
            changed.append(page)
            if not arguments.check:
                page.write_text(new, encoding="utf-8")
    for name in PLOTS if not arguments.pages else ():
        path = PLOT_FOLDER / f"{name}.svg"
        if not path.is_file() or plot.digest(plotted(name)) not in path.read_text(encoding="utf-8"):
            changed.append(path)
            if not arguments.check:
                draw(name, path)
    for path in changed:
        print(f"{'out of date' if arguments.check else 'written'}: {path.relative_to(ROOT)}")
    return 1 if changed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
