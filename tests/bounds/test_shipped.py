"""Every kernel that is committed, and what the proof says of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support import GENERATED

from generator.bounds import prove

#: The others are proved by `verify --level bounds`, as tests/verify/test_generated.py does.
FAMILIES = [GENERATED / "ladder"]


def kernels(family: Path) -> list[Path]:
    return [path for path in sorted(family.glob("*.py")) if not path.name.startswith("_")]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_access_of_a_shipped_kernel_is_proved(family: Path) -> None:
    for path in kernels(family):
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
