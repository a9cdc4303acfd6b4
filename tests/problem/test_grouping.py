"""Groups: how rows are spread, where each group begins and ends, and what it has of an operand."""

from itertools import pairwise

import pytest
import torch

from generator.epilogue.chain import Epilogue
from generator.language.model import Dtype, Layout, Variant
from generator.language.vocabulary import DEFAULTS, IMPLEMENTATION_AXES
from generator.plan.contract_call import call
from generator.problem.grouping import ROUTING, ends, extents, parts, spans


def test_every_row_is_in_a_group_as_the_word_says():
    counts = {}
    for word in ROUTING:
        found = (0, *ends(6000, 8, word))
        counts[word] = sorted((last - first for first, last in pairwise(found)), reverse=True)
        assert found[-1] == 6000 and len(found) == 9
    assert counts["one"] == [6000] + [0] * 7
    assert max(counts["uniform"]) < 1.2 * min(counts["uniform"])
    assert counts["zipf"][0] == pytest.approx(2 * counts["zipf"][1], rel=0.2) and min(counts["zipf"]) > 0
    assert ends(6000, 8, "zipf") == ends.__wrapped__(6000, 8, "zipf"), "the same every time"


def test_a_group_begins_where_the_one_before_it_ends():
    assert spans((2, 2, 5), 5) == [(0, 2), (2, 2), (2, 5)]
    assert spans((3, 1, 9), 5) == [(0, 3), (3, 3), (3, 5)], "ends that fall, and one past the end"
    assert spans((), 5) == []


@pytest.mark.parametrize(("batch", "divided"), [("grouped", "M"), ("grouped_k", "K")])
def test_each_group_has_its_part_of_every_operand(batch, divided):
    words = {axis: DEFAULTS[axis] for axis in IMPLEMENTATION_AXES}
    described = call(Variant(Layout.of("rrr"), Dtype.of("fp32"), batch, Epilogue(), **words))
    sizes = extents(4, 3, 5, batch=1, groups=2, divided=divided, more=2, places=1)
    total = sizes[divided]
    assert sizes == {"B": 1, "M": 4, "N": 3, "K": 5, "G": 2, "T": total, "R": total + 2, "S": total + 1}
    assert extents(4, 3, 5, batch=7) == {"B": 7, "M": 4, "N": 3, "K": 5}
    a = torch.arange(20.0).reshape(4, 5)
    b = torch.arange(30.0).reshape(2, 5, 3) if divided == "M" else torch.arange(15.0).reshape(5, 3)
    (_, _, one), (number, span, other) = parts((described.a, described.b), {"a": a, "b": b}, (1, 3), sizes[divided])
    assert (number, span) == (1, (1, 3))
    assert torch.equal(one["a"], a[:1] if divided == "M" else a[:, :1])
    assert torch.equal(other["a"], a[1:3] if divided == "M" else a[:, 1:3])
    assert torch.equal(other["b"], b[1] if divided == "M" else b[1:3])
