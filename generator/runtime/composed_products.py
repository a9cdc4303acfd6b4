"""Torch's `matmul`, `linear` and `einsum`, made of `mm`, `addmm` and `bmm` in one way for any number of rows.

Torch makes them of other operators for one sequence than for several: it views or copies an operand, folds a batch into
rows or does not, and adds a bias within the product or behind it. A copy has another layout, so that another contract
computes it. Here the number of rows and the size of a batch have no part in what is called: dimensions are put together
by their strides alone, also where one has a single element, and a copy keeps the layout of its matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import overriding
from .alignment import repeats
from .launchable import is_plain
from .overriding import Asked, ChosenContract, Decided, Override
from .torch_products import letters

#: The operators that are composed, with those that fill a tensor of the caller.
OPERATORS = ("matmul", "matmul.out", "linear", "linear.out", "einsum")
_composing = overriding.shared("_products_composed")


class AlikeOverride(Override):
    """The same of a family whose rows do not depend on each other: the number of rows has no part in what is called."""

    alike = True

    def install(self) -> None:
        with _composing.lock:
            if not self.installed:
                super().install()
                overriding.handle(_composing, self._compose, OPERATORS, ("", "Autograd"))

    def remove(self) -> None:
        with _composing.lock:
            if self.installed:
                super().remove()
                overriding.end(_composing, self._compose)

    def _compose(self, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The result of an operator that is made of products; NotImplemented if torch shall make it."""
        given = operands(name, arguments, options)
        first = given[0] if given else None
        types = [(x.a, x.b) for x in self.products.values()]
        if not isinstance(first, Tensor) or (first.dtype, first.dtype) not in types or not overriding.runs(first):
            return NotImplemented
        if not all(is_plain(x) and x.dtype == first.dtype and x.device == first.device for x in given):
            return NotImplemented
        return composed(name, arguments, options)

    def decide(self, asked: Asked) -> Decided:
        reason, run = super().decide(asked)
        alone = asked.added is None and asked.out is None and asked.offsets is None
        one = asked.a.shape[-1] == 1 and asked.a.dtype == asked.dtype and asked.dtype.is_floating_point
        if run is None and alone and one:
            # Such as angles of rotary embeddings, often of a type of their own.
            return "K is 1: elementwise", lambda asked: asked.a * asked.b
        # A batch of one repeats nothing, and shall run the same kernel.
        if isinstance(run, ChosenContract) and run.step(_apart(asked))[:3] != run.step(asked)[:3]:
            return reason, lambda asked: run(_apart(asked))
        return reason, run


def _apart(asked: Asked) -> Asked:
    """The call with copies, of the same layout, of what repeats one matrix over a batch."""

    def copied(x: Tensor) -> Tensor:
        if not repeats(x):
            return x
        return x.mT.contiguous().mT if letters(x)[0] == "c" else x.contiguous()

    return asked._replace(a=copied(asked.a), b=copied(asked.b))


def composed(name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The result of a call of one of `OPERATORS`; NotImplemented for operands that torch refuses, or treats otherwise.

    The operands are plain tensors of one type on one device.
    """
    word, options = name.partition(".")[0], dict(options)
    out: Tensor | None = options.pop("out", None)
    tensors = [] if out is None else [out, *operands(name, arguments, options)]
    result = None
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        result = _COMPOSE[word](*arguments, **options)
    # Torch refuses it, or gives `out` the shape.
    if result is None or (out is not None and out.shape != result.shape):
        return NotImplemented
    return result if out is None else out.copy_(result)


def operands(name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
    """The tensors of a call, without those that are left out."""
    given = [*arguments, *options.values()]
    if name == "einsum":
        given = [x for each in given if isinstance(each, (list, tuple)) for x in each if isinstance(x, Tensor)]
    return [x for x in given if x is not None]


def _matmul(a: Tensor, b: Tensor) -> Tensor | None:
    if 0 in (a.dim(), b.dim()) or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        return None
    try:
        _broadcast(a, b)
    except RuntimeError:
        return None
    return _product(a, b)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b`, of operands whose shapes fit."""
    if b.dim() == 1:
        return _product(a, b.unsqueeze(1)).squeeze(-1)
    if a.dim() == 1:
        return _product(a.unsqueeze(0), b).squeeze(-2)
    if b.dim() == 2:
        return torch.mm(_merged(a, (a.dim() - 1, 1)), b).view(*a.shape[:-1], b.shape[1])
    if a.dim() == 2:
        # As torch has it: the matrix is a weight, and the columns of the batch are rows of one product.
        return _product(b.mT, a.T).mT.contiguous()
    batch = _broadcast(a, b)
    x, y = (_merged(x.expand(*batch, *x.shape[-2:]), (len(batch), 1, 1)) for x in (a, b))
    return torch.bmm(x, y).view(*batch, a.shape[-2], b.shape[-1])


def _broadcast(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The dimensions in front of the matrices of a product; RuntimeError if they do not fit."""
    return tuple(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))  # type: ignore[no-untyped-call]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    rows = x.unsqueeze(0) if x.dim() == 1 else _merged(x, (x.dim() - 1, 1))
    result = torch.mm(rows, weight.T) if bias is None else torch.addmm(bias, rows, weight.T)
    return result.view(*x.shape[:-1], weight.shape[0])


def _einsum(equation: str, tensors: Sequence[Tensor], *, path: Sequence[int] | None = None) -> Tensor | None:
    """A product of two operands, each of whose dimensions is in the other one or in the result."""
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    words = inputs.split(",")
    if len(tensors) != 2 or len(words) != 2 or not "".join((*words, result)).isalpha():
        return None
    if not arrow:
        result = "".join(sorted(letter for letter in {*inputs} - {","} if inputs.count(letter) == 1))
    sizes = [dict(zip(word, x.shape)) for word, x in zip(words, tensors)]
    distinct = all(len({*word}) == len(word) == x.dim() for word, x in zip(words, tensors))
    agree = all(sizes[1].get(letter, count) == count for letter, count in sizes[0].items())
    if not (distinct and agree) or len({*result}) != len(result):
        return None
    size = sizes[0] | sizes[1]
    both = {*words[0]} & {*words[1]}
    batch, summed = [x for x in result if x in both], [x for x in words[0] if x in both and x not in result]
    if not summed or {*size} - {*summed} != {*result}:
        return None
    # The rows are what comes first in the result.
    others = [x for x in result if x not in both]
    if others and others[0] in words[1]:
        words, tensors = words[::-1], tensors[::-1]
    rows, columns = ([x for x in result if x in word and x not in both] for word in words)
    front = (len(batch),) if batch else ()
    a, b = (
        _merged(x.permute([word.index(letter) for letter in order]), (*front, *groups))
        for x, word, order, groups in (
            (tensors[0], words[0], [*batch, *rows, *summed], (len(rows), len(summed))),
            (tensors[1], words[1], [*batch, *summed, *columns], (len(summed), len(columns))),
        )
    )
    made = [*batch, *rows, *columns]
    multiplied = (torch.bmm if batch else torch.mm)(a, b).view([size[letter] for letter in made])
    return multiplied.permute([made.index(letter) for letter in result])


def _merged(x: Tensor, groups: tuple[int, ...]) -> Tensor:
    """`x` with each group of so many dimensions as one: a view if strides follow each other, else a copy.

    A group of none has one element.
    """
    ends = list(itertools.accumulate(groups))
    sizes = [math.prod(x.shape[end - count : end]) for count, end in zip(groups, ends)]
    if max(groups) <= 1 and min(groups) == 1:
        return x
    if not all(_follow(x, end - count, end) for count, end in zip(groups, ends)):
        last = groups[-2:] == (1, 1) and letters(x)[0] == "c"
        x = x.mT.contiguous().mT if last else x.contiguous()
    return x.reshape(sizes)


def _follow(x: Tensor, start: int, end: int) -> bool:
    """Whether dimensions are one by their strides, as those of every other size with these strides would be."""
    strides, sizes = x.stride()[start:end], x.shape[start:end]
    if len(sizes) > 1 and 0 in strides:
        return False
    return all(outer == inner * size for outer, inner, size in zip(strides, strides[1:], sizes[1:]))


_COMPOSE: Mapping[str, Callable[..., Tensor | None]] = {"matmul": _matmul, "linear": _linear, "einsum": _einsum}
