"""What is chosen among the combinations that exist: how few, that all pairs are there, that it never changes."""

from itertools import combinations, product

import covertable
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.verify.coverage import Coverage, choose


def together(points, strength):
    """Every pair, or triple, of words that stand together in some point."""
    return {found for point in points for found in combinations(sorted(point.items()), strength)}


def chosen(points, word):
    choice = choose(points, Coverage(word))
    return choice, [points[index] for index in choice.indices]


def numbered(**sizes):
    """The product of axes of so many words each."""
    words = [[f"{axis}{number}" for number in range(size)] for axis, size in sizes.items()]
    return [dict(zip(sizes, row)) for row in product(*words)]


#: As in kernels: bounded loads go with two of the maskings, one type with one target, rows belong to a schedule.
KERNELS = [
    point
    for point in numbered(layout=4, dtype=3, masking=5, load=3, schedule=3, row=6, target=3)
    if (point["load"] != "load2" or point["masking"] in ("masking3", "masking4"))
    and (point["dtype"] != "dtype2" or point["target"] == "target1")
    and int(point["row"][-1]) // 2 == int(point["schedule"][-1])
]


def test_all_pairs_of_a_large_product_take_the_fewest_rows():
    points = numbered(layout=8, dtype=6, epilogue=12, masking=5, swizzle=5, load=3)
    choice, found = chosen(points, "pairs")
    assert together(found, 2) == together(points, 2)
    # Every layout with every epilogue takes 96.
    assert 96 <= len(found) <= 100
    assert choice.total == 43_200


def test_kernels_are_chosen_as_pairs_are():
    found = chosen(KERNELS, "pairs")[0].indices
    # Every row with every masking takes 30.
    assert chosen(KERNELS, "kernels")[0].indices == found and 30 <= len(found) <= 36


def test_the_quick_criterion_covers_as_well(monkeypatch):
    monkeypatch.setattr("generator.verify.coverage._QUICK", 0)
    for word, strength in (("pairs", 2), ("triples", 3)):
        _, found = chosen(KERNELS, word)
        assert together(found, strength) == together(KERNELS, strength)


def test_a_library_that_leaves_something_out_is_found_out(monkeypatch):
    make = covertable.make
    monkeypatch.setattr(covertable, "make", lambda *args, **named: make(*args, **named)[:-1])
    with pytest.raises(RuntimeError, match=r"covertable covers [\d,]+ of [\d,]+ pairs"):
        chosen(numbered(a=4, b=3), "pairs")


def test_the_order_of_points_and_axes_changes_nothing():
    mixed = [dict(reversed(point.items())) for point in KERNELS[::-1][700:] + KERNELS[::-1][:700]]
    for word in ("pairs", "triples", "15%"):
        _, found = chosen(KERNELS, word)
        _, same = chosen(mixed, word)
        assert {frozenset(point.items()) for point in found} == {frozenset(point.items()) for point in same}, word


def test_the_choice_is_the_same_on_every_machine():
    points = numbered(a=3, b=3, c=2, d=2)[:30]
    assert choose(points, Coverage("20%")).indices == (3, 6, 7, 13, 18, 19, 21, 22, 23, 25, 28)
    # Another covertable may choose others; then these are written anew.
    assert choose(points, Coverage("pairs")).indices == (0, 7, 9, 10, 14, 17, 20, 25, 26, 28)


def test_a_share_is_even_and_grows_without_losing_any():
    points = numbered(a=30, b=20, c=10)
    found = {share: set(choose(points, Coverage(f"{share}%")).indices) for share in ("0.5", "10", "20", "100")}
    assert found["0.5"] < found["10"] < found["20"] < found["100"] == set(range(6000))
    assert 500 < len(found["10"]) < 700
    assert 1050 < len(found["20"]) < 1350
    every = choose(points, Coverage("100%"))
    assert every.text() == "coverage 100%: all 6,000 combinations, all 1,100 pairs of 3 axes"


@pytest.mark.parametrize(
    "text", ["", "pair", "Pairs", "0%", "0.0%", "101%", "-5%", "10", "%", "1e1%", "10 %", ".5%", "٣%"]
)
def test_other_words_are_answered_with_the_legal_ones(text):
    legal = r"^expected all, pairs, triples, kernels, or a share .* such as 10%, got "
    with pytest.raises(ValueError, match=legal) as caught:
        Coverage(text)
    assert str(caught.value).endswith(f"got {text!r}")


@pytest.mark.parametrize("word", ["all", "pairs", "triples", "10%"])
def test_nothing_can_be_chosen_of_nothing(word):
    assert choose([], Coverage(word)).indices == ()


WORDS = st.integers(0, 4).map(str)


@st.composite
def some_points(draw):
    """Any points at all: what exists need not follow any rule, and may exist twice."""
    axes = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    rows = draw(st.lists(st.tuples(*[WORDS] * len(axes)), min_size=1, max_size=60))
    return [dict(zip(axes, row)) for row in rows]


@settings(max_examples=150, deadline=None)
@given(some_points(), st.sampled_from([("pairs", 2), ("triples", 3)]))
def test_whatever_exists_is_covered(points, asked):
    word, strength = asked
    choice, found = chosen(points, word)
    for n in (1, 2, strength):
        assert together(found, n) == together(points, n)
    assert found
    assert choice.total == len(points)
    assert len({tuple(sorted(point.items())) for point in found}) == len(found)


@settings(max_examples=100, deadline=None)
@given(some_points(), st.sampled_from([("pairs", 2), ("triples", 3)]), st.randoms(use_true_random=False))
def test_cheap_points_are_chosen_where_they_cover_as_much(points, asked, random):
    word, strength = asked
    # Of a point that exists twice the first is taken, so both cost the same.
    cost = {repr(sorted(point.items())): random.choice([1.0, 2.0, 10.0]) for point in points}
    costs = [cost[repr(sorted(point.items()))] for point in points]
    plain, cheap = choose(points, Coverage(word)), choose(points, Coverage(word), costs)
    for n in (1, 2, strength):
        assert together([points[place] for place in cheap.indices], n) == together(points, n)
    assert sum(costs[place] for place in cheap.indices) <= sum(costs[place] for place in plain.indices)
    assert len(set(cheap.indices)) == len(cheap.indices) <= len(plain.indices)
