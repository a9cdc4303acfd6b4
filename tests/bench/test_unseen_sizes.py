"""Sizes that nothing is fitted to: what is near one, and that no winner which is shipped is of one."""

import pytest

from generator.bench.suite import SHAPES, is_unseen, read_shapes
from generator.tune import winners
from tests.helpers.support import ROOT

SIZES = {path.stem: read_shapes(path) for path in sorted(SHAPES.glob("*.yaml"))}
#: Files of winners.
TUNED = sorted(path for path in (ROOT / "specs" / "tuned").rglob("*.json") if path.stem != "torch")


def test_fitted_sizes_are_none_of_the_unseen_ones():
    """The samples of one kind are checked in steps, because each size is compared with all unseen ones."""
    unseen = [shape for name, sizes in SIZES.items() if name.startswith("unseen_") for shape in sizes]
    fit = [shape for name, sizes in SIZES.items() if name.startswith("fit_") for shape in sizes]
    assert len(unseen) > 900 and len(fit) > 1800
    assert all(is_unseen(shape) for shape in unseen[::20])
    assert not any(is_unseen(shape) for shape in fit[::5])


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.name)
def test_no_winner_is_of_an_unseen_size(path):
    found = winners.read(path).winners
    assert found and [winner.shape for winner in found if is_unseen(winner.shape)] == []
