"""Calls that a launcher must refuse, each with the exception and words of its message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
import triton

from generator.language.storage import Storage, element_of
from generator.plan.contract_call import Argument, ContractCall, call
from generator.plan.kernels import Kernel
from generator.verify.case_setup import Setup
from generator.verify.case_sizes import Case, Fit, sizes_of
from generator.verify.invalid_calls import (
    Call,
    Refusal,
    changed,
    crowded,
    longer,
    on_device,
    other_layout,
    overlapping,
    resized,
    too_near,
    unsupported,
)

#: What makes an argument wrong (None: it is missing), and the exception that answers it.
_Change: TypeAlias = "Callable[[Any], Any] | None"
_Error: TypeAlias = "type[Exception]"


def right_case(kernel: Kernel, row: int) -> Case:
    """The valid call that each refusal changes: one whole tile, or two where one row or column would have no layout."""
    fit = Fit(kernel.variant, kernel.tiles[row])
    sizes = fit(*(max(size, 2) for size in fit.unit))
    return Case("right", "the valid call that the refusals change", sizes, row)


def right_call(setup: Setup, case: Case) -> Call:
    """The keywords of a valid call."""
    given: Call = {"a": setup.a.view, "b": setup.b.view, "config": case.row}
    return given | setup.results | setup.operands


def refusals(kernel: Kernel, case: Case, configs: tuple[Any, ...], *, hardware: bool) -> Iterator[Refusal]:
    """Every invalid call that `kernel` must refuse, each made from the valid call `case`."""
    described, sizes = call(kernel.variant), sizes_of(kernel.variant, case)
    for x in (described.a, described.b, *described.keywords, *described.optional, *described.results):
        yield from _wrong(x, x.sizes(sizes), described)
    yield from _factors(kernel, case)
    if kernel.variant.products.divided == "M":
        yield from _groups(kernel)
    yield from unsupported(kernel, case, configs, hardware=hardware)
    if kernel.variant.loading.blocks:
        reason = "a version of Triton without block pointers"
        under = partial(patch.object, triton, "__version__", "3.9.0")
        yield Refusal("version", reason, ("3.9",), lambda call: None, sibling=True, under=under)
    if hardware:
        yield Refusal("cpu", "operands on the CPU", ("cpu",), on_device("cpu"))
    else:
        reason = "operands on the CPU, without the interpreter"
        yield Refusal("cpu", reason, ("cpu",), lambda call: None, under=_no_interpreter)


def _wrong(x: Argument, shape: tuple[int, ...], described: ContractCall) -> Iterator[Refusal]:
    """How an operand or a result of this shape is wrong by itself."""
    factor, result = x in (described.a, described.b), x in described.results

    def wrong(kind: str, reason: str, words: Sequence[str], change: _Change, error: _Error = ValueError) -> Refusal:
        name = f"{kind}-{x.name}" if factor else f"{x.name}-{kind}"
        spoil = _naming(x.name, change) if x in described.optional else changed(x.name, change)
        return Refusal(name, f"{x.name} {reason}", (x.name, *words), spoil, error)

    numbering = x.dtype == "int32" and x not in (*described.operands, *described.results) and not factor
    *front, last = shape or (1,)
    wider = str((*front, last + 1))
    if x in described.keywords:
        yield wrong("missing", "is missing", (), None, TypeError)
    if x.number:
        yield wrong("two", "has two elements", ("(2,)",), lambda _: torch.ones(2))
        return
    if numbering or x is described.a:
        yield wrong("list", "is a list", ("list",), torch.Tensor.tolist, TypeError)
    other = torch.int64 if numbering else torch.int32 if x.dtype is None else torch.float64
    word = str(other).removeprefix("torch.")
    yield wrong("dtype", f"is {word}", (word,), lambda t: t.float().to(other), TypeError)
    if x is not described.a and not result:
        yield wrong("device", "is not on the device of a", ("meta",), lambda t: t.to("meta"))
    several = described.products.several and not described.products.divided
    if result:
        yield from _wrong_result(x, shape, described, several=several, wrong=wrong)
    if factor:
        if several:
            yield wrong("matrix", "is a single matrix", ("three dimensions", str(shape[1:])), lambda t: t[0])
    elif x.layout:
        yield wrong("shape", "has one row more", (str((*front[:-1], front[-1] + 1, last)),), longer)
        if x in described.stored:
            yield wrong("columns", "has one column more", (wider,), lambda t: longer(t.mT).mT)
            yield wrong("empty", "has no rows", (str((*front[:-1], 0, last)),), lambda t: t[..., :0, :])
        elif front[1:] and not described.products.divided and not result:
            yield wrong("matrix", "is a single matrix", (str(shape[1:]),), lambda t: t[0])
    else:
        if not numbering or (x is not described.rows and described.products.divided == "M"):
            yield wrong("shape", "is too long", (wider,), lambda t: longer(t, -1))
        if numbering:
            yield wrong("matrix", "is a matrix", (f"(1, {last})",), lambda t: t[None])
        if x.extents[-1] != "1":
            yield wrong("gaps", "is not contiguous", ("stride",), lambda t: t.repeat_interleave(2, -1)[..., ::2])
    if x.layout in ("row", "column") and x is not described.out_scale:
        yield wrong("layout", f"is not {x.layout}-major", ("stride",), other_layout)


def _wrong_result(
    x: Argument, shape: tuple[int, ...], described: ContractCall, *, several: bool, wrong: Callable[..., Refusal]
) -> Iterator[Refusal]:
    """How a result shares addresses with itself, or is missing."""
    if x is described.out and described.reads_out:
        yield wrong("missing", "is missing, but the epilogue reads it", (), None)
    if x.layout:
        yield wrong("overlap", "has elements that share addresses", (), overlapping)
    if several:
        yield wrong("repeated", "is one for all matrices", ("overlap",), lambda t: t[:1].expand_as(t))
    if x is described.out and min(shape[-2:]) > 1:
        yield wrong("crowded", "has lines that overlap the next one in one element", (), crowded)
        if several:
            yield wrong("near", "has matrices that overlap the next one in one element", ("overlap",), too_near)


def _factors(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Sizes that do not go together or split what is stored together, and a gradient that would be lost."""
    (m, n, k), v = case.sizes, kernel.variant
    a, b = v.dtype.stored
    words: tuple[str, ...] = (str((1, *call(v).a.sizes(sizes_of(v, case)))),)
    yield Refusal("dimensions", "a has one dimension more", words, changed("a", lambda a: a[None]))
    if v.epilogue.order is not None:
        words = (f"{2 * n - 1} columns", "even")
        yield Refusal("odd-columns", "b has an odd number of columns", words, changed("b", lambda b: b[..., :-1]))
    words = str(k), str(k // b.packed - 1)
    yield Refusal("inner", "a and b have different K", words, changed("b", lambda b: b[..., :-1, :]))
    if v.symmetric:
        spoil = changed("b", lambda b: longer(b, -1))
        yield Refusal("square", "N is not M", ("M", str(m), str(n + 1)), spoil)
    if b.fragments:
        words = (str(k - b.packed), f"multiples of {b.together}")
        yield Refusal("part-of-k", "K ends inside a group of words", words, _shorter(b, b.packed))
    elif b.together > 1 and a.packed == 1:
        fewer = b.together // 2
        words = (str(k - fewer), f"multiple of {b.together}")
        yield Refusal("odd-k", "K ends inside a byte, whose elements are stored together", words, _shorter(b, fewer))
    if v.quantised is not None and v.quantised.packed > 1:
        words = ("N", str(n + 1), str(v.quantised.packed))
        yield Refusal("odd-n", "the last column has half a byte", words, resized(kernel, case, "n", n + 1))
    if v.batch == "strided":
        words = (str(case.batch), "1", "expand")
        yield Refusal("matrices", "a and b have different numbers of matrices", words, changed("b", lambda b: b[:1]))
    if element_of(a.container).floating:
        lost = ("a requires a gradient", "backward", "no_grad")
        spoil = changed("a", lambda a: a.detach().requires_grad_())
        yield Refusal("gradient", "a gradient would be lost", lost, spoil, RuntimeError)


def _shorter(storage: Storage, fewer: int) -> Callable[[Call], None]:
    """Take so many elements from the end of K: of A, and of B those words that hold no others."""

    def spoil(call: Call) -> None:
        a, b = call["a"], call["b"]
        call["a"], call["b"] = a[..., :-fewer], b[..., : b.shape[-2] - fewer // storage.packed, :]

    return spoil


def _groups(kernel: Kernel) -> Iterator[Refusal]:
    """Rows that descriptors cannot name, and results that must be given where their rows are named."""
    if kernel.variant.loading.descriptors:
        yield Refusal("rows", "rows are named", ("descriptors", "rows"), _naming("rows", lambda x: x), sibling=True)
    scale = call(kernel.variant).out_scale
    for kind, name in (("no-out", "out"), *([("no-scale", scale.name)] if scale is not None else [])):
        spoil = _naming("scatter", lambda x: x, without=name)
        yield Refusal(f"scatter-{kind}", f"{name} is missing", (f"{name} must be given", "scatter"), spoil)
    words = ("b must have three dimensions",)
    yield Refusal("matrix-b", "b is a single matrix", words, changed("b", lambda b: b[0]))


def _naming(name: str, wrong: _Change, *, without: str = "") -> Callable[[Call], None]:
    """Names the rows of a, or of out, in their order, as `wrong` changes it; an operand `without` is not given."""
    assert wrong is not None

    def spoil(given: Call) -> None:
        given[name] = wrong(torch.arange(len(given["a"]), dtype=torch.int32, device=given["a"].device))
        given.pop(without, None)

    return spoil


@contextmanager
def _no_interpreter() -> Iterator[None]:
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = False
        yield
