"""Specs drawn by hypothesis, as texts; those that the generator refuses are left to it and drawn again."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from generator.emit.job import RenderingJob, render
from generator.epilogue.auxiliary_outputs import ACCUMULATE, AUXILIARY
from generator.language.built_in import OPERATIONS
from generator.language.dtypes import ACCUMULATORS, PRECISIONS, RESULTS
from generator.language.errors import SpecError
from generator.language.spec import read
from generator.language.vocabulary import LAYOUT_LETTERS, WORDS
from generator.plan.expand import expand
from generator.plan.kernels import Family

#: Operations of a spec's own, with operands of every shape and settings of every kind.
OWN: dict[str, dict[str, Any]] = {
    "soft_cap": {"formula": "cap * tanh(x / cap)", "scalars": {"cap": 30.0}},
    "rope_scale": {"formula": "x * s", "operands": {"s": ["M"]}},
    "dequant": {"formula": "x * amax / 448", "operands": {"amax": [1]}},
    "soften": {"formula": "log(1 + exp(abs(x) / temperature))", "scalars": {"temperature": None}},
    "lerp": {"formula": "x + t * (skip - x)", "operands": {"skip": ["M", "N"], "t": ["N"]}},
    "capped": {"formula": "min(gate, limit) * sigmoid(gate) * (x + 1)", "scalars": {"limit": 7}},
}
#: Operations with parameters as a chain writes them.
WITH_SETTINGS: tuple[dict[str, Any], ...] = (
    {"clamp": {"min": 0, "max": 6}},
    {"leaky_relu": {"negative_slope": 0.2}},
    {"soft_cap": {"cap": 5}},
    {"grad": {"op": "clamp", "min": 0, "max": 6}},
    {"grad": {"op": "soft_cap", "cap": 5}},
    *({gate: {"order": "interleaved"}} for gate in ("swiglu", "geglu_tanh", "capped")),
)
_PLAIN = (
    *(name for name in OPERATIONS if name != "clamp"),
    *("grad(gelu)", "grad(hardswish)"),
    *OWN,
    *AUXILIARY,
    ACCUMULATE,
)

_OPERATIONS = st.sampled_from(_PLAIN) | st.sampled_from(WITH_SETTINGS)
#: Half of them with no epilogue or one operation: what a product needs by itself shows there.
CHAINS = st.just("none") | st.lists(_OPERATIONS, min_size=1, max_size=4).map(lambda chain: [chain])
LAYOUTS = st.tuples(*(st.sampled_from(sorted(LAYOUT_LETTERS)),) * 3).map("".join)


def _powers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([1 << bits for bits in range(least.bit_length() - 1, most.bit_length())])


@st.composite
def _dtypes(draw: st.DrawFn) -> dict[str, str]:
    a = draw(st.sampled_from(sorted(ACCUMULATORS)))
    found = {
        "a": a,
        "acc": draw(st.sampled_from(ACCUMULATORS[a])),
        "out": draw(st.sampled_from([word for word in sorted(RESULTS) if word != "int32" or a == "int8"])),
    }
    return found | ({"precision": draw(st.sampled_from(PRECISIONS[a]))} if a in PRECISIONS else {})


@st.composite
def _tiles(draw: st.DrawFn, schedule: str) -> dict[str, int]:
    tile = {"m": draw(_powers(16, 256)), "n": draw(_powers(16, 256)), "k": draw(_powers(16, 256))}
    if schedule == "paired":
        tile["n"] += draw(_powers(16, 128).filter(lambda right: right < tile["n"])) if tile["n"] > 16 else 0
    tile |= {"warps": draw(_powers(1, 16)), "stages": 1 if schedule == "naive" else draw(st.integers(1, 6))}
    tile["group"] = draw(st.sampled_from([1, 4, 8]))
    # A split that no schedule reads is an error.
    return tile | ({"split": draw(st.sampled_from([1, 2, 3, 4]))} if schedule.startswith("split_k") else {})


@st.composite
def specs(draw: st.DrawFn, target: str, name: str = "drawn") -> str:
    """A spec with one value an axis and one or two tiles, for `target`; legal or not."""
    words = {axis: draw(st.sampled_from(sorted(values))) for axis, values in WORDS.items()}
    dtype, chain = draw(_dtypes()), draw(CHAINS)
    # Drawn freely, few of these would be legal.
    if (schedule := words["schedule"]) == "paired":
        words |= {"load": "descriptor", "store": "pointer", "product": "direct", "batch": "none"}
    elif schedule == "split_k_atomic":
        dtype |= {"acc": "fp32", "out": "fp32"}
        words |= {"store": "pointer", "batch": "none"}
        chain = "none"
    if words["load"] == "descriptor":
        words["masking"] = draw(st.sampled_from(["mnk", "auto"]))
    spec: dict[str, Any] = {"summary": "Drawn.", "name": name, "layout": draw(LAYOUTS), "dtype": dtype}
    spec |= {"ops": OWN, "epilogue": chain} | words
    spec |= {"select": draw(st.sampled_from(["fixed", "heuristic"])), "targets": [target]}
    if schedule != "elementwise":
        spec["tile"] = draw(st.lists(_tiles(schedule), min_size=1, max_size=2, unique_by=lambda row: str(row)))
    return yaml.safe_dump(spec, sort_keys=False)


@st.composite
def contracts(draw: st.DrawFn) -> dict[str, Any]:
    """A spec that says what is computed and no more, for two targets; legal or not."""
    words = {axis: draw(st.sampled_from(sorted(WORDS[axis]))) for axis in ("batch", "rounding")}
    spec: dict[str, Any] = {"summary": "Drawn.", "layout": draw(LAYOUTS), "dtype": draw(_dtypes())}
    targets = draw(st.lists(st.sampled_from(["sm80", "sm90", "sm100", "gfx942"]), min_size=1, max_size=2, unique=True))
    return spec | {"ops": OWN, "epilogue": draw(CHAINS)} | words | {"targets": targets}


def legal(text: str) -> Family | None:
    """The family of a spec, None where the generator refuses it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.yaml"
        path.write_text(text)
        try:
            return expand(read(path))
        except SpecError:
            return None


def families(target: str, number: int) -> Iterator[tuple[str, Family]]:
    """Specs for a target and their families, without end.

    The same ones for the same `number` of the draw and version of hypothesis.
    """
    return itertools.chain.from_iterable(_batch(target, number * 10**6 + batch) for batch in itertools.count())


def rendered(folder: Path, target: str, number: int) -> Iterator[Path]:
    """These families in `folder`, each beside its spec."""
    for index, (text, family) in enumerate(families(target, number)):
        name = f"drawn{index:05}"
        (folder / f"{name}.yaml").write_text(text)
        with contextlib.redirect_stdout(io.StringIO()):
            render([RenderingJob(replace(family, spec=replace(family.spec, name=name)), folder)])
        yield folder / name


def _batch(target: str, number: int) -> list[tuple[str, Family]]:
    """The legal ones of some specs: hypothesis varies what it drew before, so that few at a time differ more."""
    found: list[tuple[str, Family]] = []

    @seed(number)
    @settings(
        max_examples=12, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(specs(target))
    def collect(text: str) -> None:
        family = legal(text)
        if family is not None:
            found.append((text, family))

    collect()
    return found
