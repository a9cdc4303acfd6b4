"""Files with two kernels, which sum parts of K or decode B first: what each reads and stores is proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.bounds import kernels
from tests.helpers.bounds.kernels import planted, proof_of, wrong

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
def test_both_kernels_are_proved(
    kernel: str, ends: str, expected: tuple[set[tuple[str, str]], ...], tmp_path: Path
) -> None:
    text = planted(kernel)
    proof = proof_of(tmp_path, text)
    assert not wrong(proof)
    second = text[: text.index(f"def {kernel.rpartition('/')[2]}{ends}")].count("\n")
    found = tuple(
        {(x.operand, x.kind) for x in proof.accesses if (x.line > second) is later} for later in (False, True)
    )
    assert found == expected
