"""What a call of a shipped family would run on an H200 that need not be there, with and without copies."""

from __future__ import annotations

import pytest

from generator.emit.manifest_reader import Rendered, read
from generator.plan.devices import DEVICES
from generator.tune.predicted_choice import choices
from tests.helpers.support import GENERATED


@pytest.fixture(scope="module")
def family() -> Rendered:
    return read(GENERATED / "fp32")


@pytest.mark.parametrize(
    ("layout", "sizes", "runs"),
    [
        # Of many rows a B whose K is contiguous is copied, and of few rows A.
        ("rcr", (8192, 4096, 6144), "rrr copied"),
        ("rcr", (128, 1024, 4096), "rrr copied"),
        ("rcr", (128, 4096, 4096), "ccr copied"),
        ("rcr", (127, 4096, 4096), "ccr copied"),
        # Fewest rows are summed, without a copy.
        ("rcr", (3, 4096, 16384), "rcr summed"),
        ("rcr", (1, 4096, 4096), "rcr summed"),
        ("ccr", (2, 4096, 4096), "ccr summed"),
        ("rcr", (100, 100, 1003), "rcr"),
        # Rows of any length: without descriptors, what was measured of whole rows is the best that is known.
        ("rrr", (1000, 1000, 1003), "rrr"),
        ("crr", (301, 1001, 1003), "crr"),
        ("ccr", (63, 4096, 4096), "ccr"),
        ("ccr", (6, 45312, 8576), "ccr"),
    ],
)
def test_fp32_is_chosen_by_what_was_measured(
    family: Rendered, layout: str, sizes: tuple[int, int, int], runs: str
) -> None:
    name = f"gemm_fp32_{layout}_none"
    (found,) = choices(family.folder, [name], family.by_name, [sizes], DEVICES["nvidia_h200"])
    assert found.refused is None and found.contract == name
    other, _, how = runs.partition(" ")
    assert found.kernel.startswith(f"gemm_fp32_{other}_none__") and found.copied == (how == "copied")
    assert how != "summed" or found.kernel.endswith("_productsummed")
    assert found.fitted is not None
