"""Kernels as they are rendered, with one kernel in a file or two, and what the proof says of them."""

from collections import Counter

import pytest

from generator.bounds import prove
from generator.emit.render import kernel_source
from tests.helpers.bounds import kernels
from tests.helpers.bounds.kernels import planted, proof_of, wrong
from tests.helpers.support import BASE, GENERATED, family_of
from tests.helpers.verify.rendered import rendered


def test_every_access_is_listed_for_every_row():
    path = GENERATED / "fp16_rcr" / "gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped.py"
    accesses = prove(path).accesses
    listed = Counter((access.operand, access.kind) for access in accesses)
    rows = len({access.row for access in accesses})
    assert rows == path.read_text().count('{"BLOCK_M"')
    assert listed == {("a", "load"): rows, ("b", "load"): rows, ("bias", "load"): rows, ("out", "store"): rows}
    # A proof of what no size reaches would say nothing.
    assert "never reached" not in {access.detail for access in accesses}


SPEC = """\
summary: What no shipped family has, rows that a tuner tries of programs that walk, share and deal tiles.
layout: rcr
dtype: {a: fp16, b: fp16, acc: fp32, out: fp32}
schedule: [tiled, persistent, split_k_atomic, stream_k]
load: [pointer, descriptor]
select: autotune
"""


def test_rows_that_a_tuner_tries_are_proved(tmp_path):
    tuned = rendered(tmp_path, "tuned", SPEC)
    assert len({kernel.variant.schedule for kernel in tuned.kernels}) == 4
    for name in tuned.by_name:
        proof = prove(tuned.file(name))
        assert proof.order.state == "proved", (name, proof.order)
        # What the hardware bounds is what goes through a descriptor, and nothing else.
        lines = tuned.file(name).read_text().splitlines()
        for access in proof.accesses:
            assert access.state == ("hardware" if "_desc." in lines[access.line - 1] else "proved"), (name, access)


SPLIT = ({("a", "load"), ("b", "load"), ("sums", "store")}, {("sums", "load"), ("bias", "load"), ("out", "store")})
DENSE = (
    {("b", "load"), ("b_scale", "load"), ("decoded", "store")},
    {("a", "load"), ("decoded", "load"), ("bias", "load"), ("out", "store")},
)


@pytest.mark.parametrize(
    ("kernel", "ends", "expected"),
    [
        (kernels.SUMS, "_sum(", SPLIT),
        (kernels.SUMS_DESCRIPTORS, "_sum(", SPLIT),
        (kernels.PARTS, "_sum(", SPLIT),
        (kernels.PARTS_DESCRIPTORS, "_sum(", SPLIT),
        (kernels.DECODED, "(", DENSE),
        (kernels.DECODED_DESCRIPTORS, "(", DENSE),
    ],
)
def test_both_kernels_are_proved(kernel, ends, expected, tmp_path):
    text = planted(kernel)
    proof = proof_of(tmp_path, text)
    assert not wrong(proof)
    second = text[: text.index(f"def {kernel.rpartition('/')[2]}{ends}")].count("\n")
    found = tuple(
        {(x.operand, x.kind) for x in proof.accesses if (x.line > second) is later} for later in (False, True)
    )
    assert found == expected


TILES = "tile:\n  - {m: 64, n: 64, k: 64, warps: 4}\n  - {m: 128, n: 128, k: 64, warps: 8}\n"


@pytest.mark.parametrize("keys", ["", "masking: mn\n", "schedule: split_k\n", "batch: strided\n", "select: fixed\n"])
def test_every_access_of_rows_alike_is_proved(keys, tmp_path):
    """Their choice of a configuration does not read M."""
    family = family_of(f"{BASE}{TILES}{keys}invariant: rows\n")
    (kernel,) = family.kernels
    proof = proof_of(tmp_path, kernel_source(family.spec, kernel))
    assert {access.state for access in proof.accesses} == {"proved"} and proof.order.state == "proved"
