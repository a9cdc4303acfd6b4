"""Sums and conditions: one text for equal sums, and the same values however they are put together."""

from hypothesis import given
from hypothesis import strategies as st

from generator.bounds.rewriting import holds, replaced, value
from generator.bounds.solve import smallest, together
from generator.bounds.terms import (
    Variable,
    at_most,
    below,
    choice,
    either,
    equal,
    every,
    least,
    negation,
    poly,
    variable,
)

X, Y = variable("x"), variable("y")
numbers = st.integers(-9, 9)
sums = st.recursive(
    st.sampled_from([X, Y]) | numbers.map(poly),
    lambda inner: (
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1])
        | st.tuples(inner, inner).map(lambda pair: least(*pair))
        | st.tuples(inner, st.integers(1, 5)).map(lambda pair: pair[0] // pair[1])
        | st.tuples(inner, inner, inner).map(lambda triple: choice(at_most(triple[0], 0), triple[1], triple[2]))
    ),
    max_leaves=6,
)


def test_a_sum_has_one_form():
    assert (X + Y) * (X - Y) == X * X - Y * Y
    assert X // Y * Y + X % Y == X
    assert str(X * 2 - Y + 3) == "3 + 2 * x - y"
    assert least(X, X + 1) == X


@given(sums, sums, numbers, numbers)
def test_sums_mean_what_they_say(a, b, x, y):
    at = {"x": x, "y": y}
    assert value(a + b, at) == value(a, at) + value(b, at)
    assert value(a * b, at) == value(a, at) * value(b, at)
    assert value(replaced(a, {Variable("x"): poly(x), Variable("y"): poly(y)}), {}) == value(a, at)


@given(sums, sums, numbers, numbers)
def test_conditions_mean_what_they_say(a, b, x, y):
    at = {"x": x, "y": y}
    assert holds(below(a, b), at) == (value(a, at) < value(b, at))
    assert holds(negation(equal(a, b)), at) == (value(a, at) != value(b, at))
    assert holds(every([at_most(a, b), at_most(b, a)]), at) == (value(a, at) == value(b, at))
    assert holds(either([below(a, b), below(b, a)]), at) == (value(a, at) != value(b, at))


def test_the_solver_answers_alike_and_finds_the_smallest():
    asked = [at_most(7, X * Y), at_most(0, Y), at_most(Y, 3), at_most(0, X)]
    found = smallest(asked, ["x", "y"])
    assert found.model == {"x": 3, "y": 3} and found == smallest(asked, ["x", "y"])
    assert together([*asked, at_most(X, 2)]).verdict == "impossible"


def test_a_quotient_is_known_only_where_the_machine_defines_it():
    half = X // Y
    assert together([at_most(0, X), at_most(1, Y), below(X, half * Y)]).verdict == "impossible"
    # Of a negative number, or by none, it may be anything.
    assert together([equal(X, -1), equal(Y, 2), equal(half, 5)]).verdict == "possible"
    assert together([equal(X, 1), equal(Y, 0), equal(half, 5)]).verdict == "possible"


def test_a_quotient_within_another_has_a_remainder_of_its_own():
    steps = (X + 31) // 32
    # 33 has two steps of 32, of which 3 take one each: the remainders are 0 and 1.
    assert together([equal(X, 33), equal((steps + 2) // 3, 1)]).verdict == "possible"
    for number in (0, 1, 32, 33, 96, 97, 200):
        assert together([equal(X, number), equal((steps + 2) // 3, -(-number // 96))]).verdict == "possible", number
        assert together([equal(X, number), equal((steps + 2) // 3, -(-number // 96) + 1)]).verdict == "impossible"
