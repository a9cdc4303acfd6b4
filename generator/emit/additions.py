"""What the words of a spec's keys `with` and `backends` bring to a family, and why a word brings nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from generator.cost import torch_operators
from generator.emit import family_package
from generator.emit.torchao_layers import torchao_layers
from generator.language.errors import Mistake, SpecError, shown
from generator.plan.kernels import Family

_PRODUCTS = "no contract computes a product of torch: operands as they are multiplied, and built-in operations alone"
#: Of words that do not suit every family: what the family must have, and what it lacks otherwise.
_NEEDS: Mapping[str, tuple[Callable[[Family], object], str]] = {
    "inductor": (family_package.products, _PRODUCTS),
    "aten": (family_package.products, _PRODUCTS),
    "experts": (
        lambda family: any(family_package.experts(family.contracts)),
        "it needs `batch: grouped` in the layout `rcr`, with a chain that is `none` and one of "
        f"{', '.join(family_package.GATES)}",
    ),
    "torchao": (torchao_layers, "no contract is that of a linear layer, with a bias or none, whose weight is stored"),
}


def has(family: Family, word: str) -> bool:
    """Whether a family has what a word of the key `with` brings."""
    return word in family.spec.additions and suits(family, word)


def suits(family: Family, word: str) -> bool:
    """Whether a word would bring something to a family of `package: torch`."""
    return word not in _NEEDS or bool(_NEEDS[word][0](family))


def require_additions(families: Iterable[Family]) -> None:
    """Raise `SpecError` for words that bring nothing."""
    mistakes = []
    for family in families:
        spec = family.spec
        lacking = [("with", word, _NEEDS[word][1]) for word in spec.additions if not suits(family, word)]
        if "aten" in spec.backends and not torch_operators.operators(family):
            lacking.append(("backends", "aten", "no contract is what one operator of torch computes"))
        for key, word, why in lacking:
            told = f"{key}: {shown(word)} brings nothing: {why}"
            mistakes.append(Mistake(spec.path, *spec.positions.get((key, word), (1, 1)), told))
    if mistakes:
        raise SpecError(mistakes)
