"""Sizes that nothing is fitted to: what is near one, and that no winner which is shipped is of one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from generator.bench.comparison_plan import Families, of_suite
from generator.bench.suite import SHAPES, find, is_unseen, read_shapes, read_suite
from generator.tune import winners
from tests.helpers import shipped
from tests.helpers.support import ROOT

SIZES = {path.stem: read_shapes(path) for path in sorted(SHAPES.glob("*.yaml"))}
#: Files of winners.
TUNED = sorted(path for path in (ROOT / "specs" / "tuned").rglob("*.json") if path.stem != "torch")


def test_fitted_sizes_are_none_of_the_unseen_ones() -> None:
    """The samples of one kind are checked in steps, because each size is compared with all unseen ones."""
    unseen = [shape for name, sizes in SIZES.items() if name.startswith("unseen_") for shape in sizes]
    fit = [shape for name, sizes in SIZES.items() if name.startswith("fit_") for shape in sizes]
    assert len(unseen) > 900 and len(fit) > 1800
    assert all(is_unseen(shape) for shape in unseen[::20])
    assert not any(is_unseen(shape) for shape in fit[::5])


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.name)
def test_no_winner_is_of_an_unseen_size(path: Path) -> None:
    found = winners.read(path).winners
    assert found and [winner.shape for winner in found if is_unseen(winner.shape)] == []


@pytest.mark.parametrize(
    ("suite", "axis", "counts"),
    [
        ("unseen", "layout", dict.fromkeys(("rcr", "rrr", "crr", "ccr"), 100)),
        ("unseen_tokens", "layout", dict.fromkeys(("rcr", "rrr", "crr", "ccr"), 65)),
        ("unseen_fp8", "dtype", {"fp8e4m3": 70, "fp8e4m3_fp32_bf16_fast": 70}),
    ],
)
def test_suites_of_unseen_sizes(suite: str, axis: str, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = of_suite(read_suite(find(suite)), Families([], shipped.GENERATED))
    assert Counter(getattr(each.problem, axis).word for each in found) == counts
    assert all(is_unseen(each.problem.shape) for each in found[::25])
