"""Every kernel that is committed, and what the proof says of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from generator.bounds import prove
from generator.emit.manifest_reader import read
from tests.helpers.support import GENERATED, render_spec


def kernels(family: Path) -> list[Path]:
    rendered = read(family)
    return [rendered.file(name) for name in sorted(rendered.by_name)]


def test_every_access_of_a_shipped_kernel_is_proved() -> None:
    """The others are proved by `verify --level bounds`; test_generated.py does a few of them by default."""
    for path in kernels(GENERATED / "ladder"):
        proof = prove(path)
        assert proof.order.state == "proved", (path.name, proof.order)
        # What the hardware bounds is what goes through a descriptor, and nothing else.
        text = path.read_text().splitlines()
        for access in proof.accesses:
            expected = "hardware" if "_desc." in text[access.line - 1] else "proved"
            assert access.state == expected, (path.name, access)
            # A proof of what no size reaches would say nothing.
            assert access.detail != "never reached", (path.name, access)


def test_every_access_is_listed_for_every_row() -> None:
    path = GENERATED / "fp16_rcr" / "gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped.py"
    accesses = prove(path).accesses
    listed = Counter((access.operand, access.kind) for access in accesses)
    rows = len({access.row for access in accesses})
    assert rows == path.read_text().count('{"BLOCK_M"')
    assert listed == {("a", "load"): rows, ("b", "load"): rows, ("bias", "load"): rows, ("out", "store"): rows}


SPEC = """\
summary: What no shipped family has, rows that a tuner tries of programs that walk, share and deal tiles.
layout: rcr
dtype: {a: fp16, b: fp16, acc: fp32, out: fp32}
schedule: [tiled, persistent, split_k_atomic, stream_k]
load: [pointer, descriptor]
select: autotune
"""


def test_rows_that_a_tuner_tries_are_proved(tmp_path: Path) -> None:
    paths = kernels(render_spec(tmp_path, "tuned", SPEC))
    schedules = {path.name.split("__")[1].split("_")[0] for path in paths}
    assert schedules == {"tiled", "persistent", "splitkatomic", "streamk"}
    for path in paths:
        proof = prove(path)
        assert proof.order.state == "proved", (path.name, proof.order)
        assert {access.state for access in proof.accesses} <= {"proved", "hardware"}, (path.name, proof.accesses)
