"""What the words of a spec's keys `with` and `backends` bring to a family, and why a word brings nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from generator.cost import torch_operators
from generator.emit import family_package
from generator.epilogue.operations import COLUMNS
from generator.language.elements import ELEMENTS
from generator.language.errors import Mistake, SpecError, shown
from generator.language.model import Variant
from generator.language.vocabulary import DEFAULTS
from generator.lowering.lines import INDENT, bracketed
from generator.plan.kernels import Family

#: Layouts of a matrix that may be row-major.
_ROWS = ("row", "strided")
#: A format whose scales are too coarse without one more of the whole, which an input does not have.
_COARSE = "nvfp4"


def torchao_layers(family: Family) -> tuple[str, ...]:
    """The contracts of linear layers by how they store the weight, as entries."""
    layers: dict[tuple[str, str], dict[str, str]] = {}
    variants: dict[tuple[str, str], Variant] = {}
    for name, kernels in family.contracts.items():
        v = kernels[0].variant
        if _is_layer(v):
            key = v.dtype.word, v.layout.word
            layers.setdefault(key, {})[v.epilogue.word] = name
            variants.setdefault(key, v)
    return tuple(_entry(names, variants[key]) for key, names in layers.items())


def _is_layer(v: Variant) -> bool:
    """Whether a contract is that of a linear layer, at most with a bias, whose weight is rounded to what B stores."""
    read = [(operand.name, operand.shape) for operand in v.epilogue.operands]
    chain = v.epilogue.word in ("none", "bias") and read in ([], [("bias", COLUMNS)]) and not v.epilogue.outputs
    usual = v.rounding == DEFAULTS["rounding"] and not v.products.several
    rows = v.layout.a in _ROWS and v.layout.c in _ROWS
    b = v.dtype.stored_b
    # Any weight can be rounded to what is stored; integers need scales for that.
    rounded = not b.plain and (b.block is not None or b.sparse or b.element.floating)
    return chain and usual and rows and rounded and _layer_type(v) is not None


def _layer_type(v: Variant) -> str | None:
    """The type of the layer: that of its input, or of the result if the input is rounded first; None if neither is."""
    a, out = v.dtype.stored_a, ELEMENTS[v.dtype.out]
    if not out.floating or out.bits < 16:
        return None
    if a.plain:
        return v.dtype.a if a.element.floating and a.bits >= 16 else None
    return v.dtype.out if a.block is not None and a.word != _COARSE else None


def _entry(names: Mapping[str, str], v: Variant) -> str:
    a, layer = v.dtype.stored_a, _layer_type(v)
    assert layer is not None
    parts = [f"torch.{ELEMENTS[layer].torch}"]
    parts += [f'"{names[word]}"' if word in names else "None" for word in ("none", "bias")]
    parts += [] if a.block is None else [f'Stored("{a.word}", "row", ({a.block.across}, {a.block.along}))']
    return bracketed("LayerContracts(", parts, "),", 2 * INDENT)


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
            message = f"{key}: {shown(word)} brings nothing: {why}"
            mistakes.append(Mistake(spec.path, *spec.positions.get((key, word), (1, 1)), message))
    if mistakes:
        raise SpecError(mistakes)
