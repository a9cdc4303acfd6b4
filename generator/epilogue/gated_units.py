"""Gates: operations that make one column of two, and the orders in which b has the two.

A gate's formula reads `gate` beside `x`. With one in its chain a product has b (K, 2N) for a result (M, N); what stands
before the gate is computed of all 2N columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from generator.epilogue.formula import GATE, X

#: The parameter of every gate, and its words: the halves side by side, or the two of each column of the result.
ORDER, CONCATENATED, INTERLEAVED = "order", "concatenated", "interleaved"
ORDERS = (CONCATENATED, INTERLEAVED)

#: Where each value's column lies in b and in what has its columns, for a column of the result.
PLACES: Mapping[str, Mapping[str, str]] = {
    CONCATENATED: {GATE: "{}", X: "N + {}"},
    INTERLEAVED: {GATE: "{} * 2", X: "{} * 2 + 1"},
}

#: The columns of each value as a docstring tells of them.
TOLD: Mapping[str, Mapping[str, str]] = {
    CONCATENATED: {GATE: "columns 0 to N - 1", X: "columns N to 2N - 1"},
    INTERLEAVED: {GATE: "the even columns", X: "the odd columns"},
}
