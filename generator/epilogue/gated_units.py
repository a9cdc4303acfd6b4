"""Gated linear units: operations that combine two columns into one, and the orders of the two columns in b.

The formula of a gated linear unit reads `gate` and `x`. A product with one in its chain has b of shape (K, 2N) for a
result of shape (M, N); operations before it are computed on all 2N columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from generator.epilogue.formula import GATE, X

#: The parameter of every gated linear unit, and its values: two halves, or alternating columns.
ORDER, CONCATENATED, INTERLEAVED = "order", "concatenated", "interleaved"
ORDERS = (CONCATENATED, INTERLEAVED)

#: The column of b that holds each value, for a column `{}` of C.
PLACES: Mapping[str, Mapping[str, str]] = {
    CONCATENATED: {GATE: "{}", X: "N + {}"},
    INTERLEAVED: {GATE: "{} * 2", X: "{} * 2 + 1"},
}

#: The columns of each value, in the words of a docstring.
TOLD: Mapping[str, Mapping[str, str]] = {
    CONCATENATED: {GATE: "columns 0 to N - 1", X: "columns N to 2N - 1"},
    INTERLEAVED: {GATE: "the even columns", X: "the odd columns"},
}
