"""Calls that a launcher must refuse, each with the exception and words of its message."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

import torch
import triton

from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, MATRIX, ROWS, SCALAR
from generator.language.storage import Storage, element_of
from generator.plan.contract_call import call
from generator.plan.kernels import Kernel
from generator.verify.case_setup import Setup
from generator.verify.case_sizes import Case, Fit, leading_extents, sizes_of
from generator.verify.invalid_calls import (
    Call,
    Refusal,
    changed,
    crowded,
    double,
    elsewhere,
    listed,
    long,
    longer,
    of,
    one_more,
    other_layout,
    overlapping,
    resized,
    single,
    spaced,
    to_cpu,
    too_near,
)
from generator.verify.unsupported_calls import unsupported


def right_case(kernel: Kernel, row: int) -> Case:
    """The valid call that each refusal changes: one whole tile, or two where one row or column would have no layout."""
    fit = Fit(kernel.variant, kernel.tiles[row])
    sizes = fit(*(max(size, 2) for size in fit.unit))
    return Case("right", "the valid call that the refusals change", sizes, row)


def right_call(setup: Setup, case: Case) -> Call:
    """The keywords of a valid call."""
    assert setup.out is not None
    given: Call = {"a": setup.a.view, "b": setup.b.view, "config": case.row}
    return given | setup.results | setup.operands


def refusals(kernel: Kernel, case: Case, configs: tuple[Any, ...], *, hardware: bool) -> Iterator[Refusal]:
    """Every invalid call that `kernel` must refuse, each made from the valid call `case`."""
    yield from _operands(kernel, case)
    if kernel.variant.batch == "strided":
        yield from _batches(kernel, case)
    if kernel.variant.products.divided:
        yield from _groups(kernel, case)
    layout = kernel.variant.layout
    for name, word in (("a", layout.a), ("b", layout.b), ("out", layout.c)):
        if word != "strided":
            yield of(name, "layout-{}", f"{{}} is not {word}-major", ("stride",), other_layout)
    yield from _outputs(kernel, case)
    yield from _auxiliary_outputs(kernel, case)
    yield from _epilogue(kernel, case)
    yield from unsupported(kernel, case, configs, hardware=hardware)
    if kernel.variant.loading.blocks:
        reason = "a version of Triton without block pointers"
        yield Refusal("version", reason, ("3.9",), lambda call: None, sibling=True, under=_later_triton)
    if hardware:
        yield Refusal("cpu", "operands on the CPU", ("cpu",), to_cpu)
    else:
        reason = "operands on the CPU, without the interpreter"
        yield Refusal("cpu", reason, ("cpu",), lambda call: None, under=_no_interpreter)


def _shape(kernel: Kernel, case: Case, rows: int, columns: int) -> str:
    """The shape of an operand as it is written in a message."""
    return str((*leading_extents(kernel.variant, case), rows, columns))


def _operands(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    m, n, k = case.sizes
    yield Refusal("not-a-tensor", "a is a list", ("a ", "list"), changed("a", listed), TypeError)
    words: tuple[str, ...] = (str((1, *call(kernel.variant).a.sizes(sizes_of(kernel.variant, case)))),)
    yield Refusal("dimensions", "a has one dimension more", words, changed("a", lambda a: a[None]))
    if kernel.variant.epilogue.order is not None:
        words = (f"{2 * n - 1} columns", "even")
        yield Refusal("odd-columns", "b has an odd number of columns", words, changed("b", lambda b: b[..., :-1]))
    a, b = kernel.variant.dtype.stored
    words = str(k), str(k // b.packed - 1)
    yield Refusal("inner", "a and b have different K", words, changed("b", lambda b: b[..., :-1, :]))
    if kernel.variant.symmetric:
        spoil = changed("b", lambda b: torch.cat([b, b[..., :1]], -1).to(b.dtype))
        yield Refusal("square", "N is not M", ("M", str(m), str(n + 1)), spoil)
    yield from _stored(kernel, case)
    for name in ("a", "b"):
        yield of(name, "dtype-{}", "{} is float64", ("float64",), double, TypeError)
    yield of("b", "device", "b is not on the device of a", ("meta",), elsewhere)
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


def _stored(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """A K that splits a container, and scales or positions of a wrong shape or type."""
    k, b = case.sizes[2], kernel.variant.dtype.stored_b
    if b.fragments:
        words: tuple[str, ...] = (str(k - b.packed), f"multiples of {b.together}")
        yield Refusal("part-of-k", "K ends inside a group of words", words, _shorter(b, b.packed))
    elif b.together > 1 and kernel.variant.dtype.stored_a.packed == 1:
        fewer = b.together // 2
        words = (str(k - fewer), f"multiple of {b.together}")
        yield Refusal("odd-k", "K ends inside a byte, whose elements are stored together", words, _shorter(b, fewer))
    for x in call(kernel.variant).stored:
        name = x.name
        assert x.dtype is not None
        legal = element_of(x.dtype if isinstance(x.dtype, str) else x.dtype[0]).torch
        yield of(name, "{}-missing", "{} is missing", (), None, TypeError)
        for dtype in (torch.int32, torch.float64):
            word = str(dtype).removeprefix("torch.")
            yield of(
                name, f"{{}}-{word}", f"{{}} is {word}", (word, legal), partial(torch.Tensor.to, dtype=dtype), TypeError
            )
        *front, rows, columns = x.sizes(sizes_of(kernel.variant, case))
        yield of(name, "{}-rows", "{} has one row more", (str((*front, rows + 1, columns)),), longer)
        words = (str((*front, rows, columns + 1)),)
        yield of(name, "{}-columns", "{} has one column more", words, lambda x: longer(x.mT).mT)
        yield of(name, "{}-empty", "{} has no rows", (str((*front, 0, columns)),), lambda x: x[..., :0, :])
        yield of(name, "{}-device", "{} is not on the device of a", ("meta",), elsewhere)


def _batches(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Operands without a batch dimension, or with different ones."""
    m, n, _ = case.sizes
    described = call(kernel.variant)
    for name, x in (("a", described.a), ("b", described.b)):
        words: tuple[str, ...] = ("three dimensions", str(x.sizes(sizes_of(kernel.variant, case))[1:]))
        yield of(name, "matrix-{}", "{} is a single matrix", words, single)
    words = (str(case.batch), "1", "expand")
    yield Refusal("matrices", "a and b have different numbers of matrices", words, changed("b", lambda b: b[:1]))
    for operand in kernel.variant.epilogue.operands:
        if operand.shape == MATRIX:
            yield of(operand.name, "matrix-{}", "{} is a single matrix", (str((m, n)),), single)
    reason = "all matrices of out are the same one"
    yield of("out", "out-repeated", reason, ("overlap",), lambda out: out[:1].expand_as(out))
    yield of("out", "out-near", "each matrix of out overlaps the next one in one element", ("overlap",), too_near)


def _groups(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Ends of groups that are no int32 vector on the device of a, with one for each matrix."""
    count = sizes_of(kernel.variant, case)["G"]
    yield of("offsets", "offsets-missing", "offsets are missing", (), None, TypeError)
    yield of("offsets", "offsets-list", "offsets are a list", ("list",), listed, TypeError)
    yield of("offsets", "offsets-dtype", "offsets are int64", ("int32", "int64"), long, TypeError)
    yield of("offsets", "offsets-matrix", "offsets are a matrix", (f"(1, {count})",), lambda x: x[None])
    yield of("offsets", "offsets-gaps", "offsets are not contiguous", ("stride",), spaced)
    yield of("offsets", "offsets-device", "offsets are not on the device of a", ("meta",), elsewhere)
    if kernel.variant.products.divided == "K":
        # There are as many groups as offsets.
        return
    words: tuple[str, ...] = (f"({count},)", f"({count + 1},)")
    yield of("offsets", "offsets-shape", "there is one offset more", words, one_more)
    total = sizes_of(kernel.variant, case)["T"]
    if kernel.variant.loading.descriptors:
        yield Refusal("rows", "rows are named", ("descriptors", "rows"), _naming("rows", lambda x: x), sibling=True)
    wrongs: tuple[tuple[str, type[Exception], tuple[str, ...], Callable[[Any], Any]], ...] = (
        ("list", TypeError, ("list",), listed),
        ("dtype", TypeError, ("int32", "int64"), long),
        ("matrix", ValueError, (f"(1, {total})",), lambda x: x[None]),
        ("device", ValueError, ("meta",), elsewhere),
        ("gaps", ValueError, ("stride",), spaced),
    )
    for name, error, words, wrong in wrongs:
        yield Refusal(f"rows-{name}", f"rows are wrong: {name}", ("rows", *words), _naming("rows", wrong), error)
    without: list[tuple[str, type[Exception], tuple[str, ...], Callable[[torch.Tensor], object], str]] = [
        ("list", TypeError, ("scatter", "list"), listed, ""),
        ("dtype", TypeError, ("scatter", "int32", "int64"), long, ""),
        ("length", ValueError, ("scatter", f"({total},)", f"({total + 1},)"), one_more, ""),
        ("device", ValueError, ("scatter", "meta"), elsewhere, ""),
        ("no-out", ValueError, ("out must be given", "scatter"), lambda x: x, "out"),
    ]
    scale = call(kernel.variant).out_scale
    if scale is not None:
        without.append(("no-scale", ValueError, (f"{scale.name} must be given", "scatter"), lambda x: x, scale.name))
    for name, error, words, wrong, missing in without:
        spoil = _naming("scatter", wrong, without=missing)
        yield Refusal(f"scatter-{name}", f"scatter is wrong: {name}", words, spoil, error)
    yield Refusal("matrix-b", "b is a single matrix", ("b must have three dimensions",), changed("b", single))


def _naming(name: str, wrong: Callable[[torch.Tensor], object], *, without: str = "") -> Callable[[Call], None]:
    """Names the rows of a, or of out, in their order, as `wrong` changes it; an operand `without` is not given."""

    def spoil(given: Call) -> None:
        given[name] = wrong(torch.arange(len(given["a"]), dtype=torch.int32, device=given["a"].device))
        given.pop(without, None)

    return spoil


def _outputs(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    m = case.sizes[0]
    columns = call(kernel.variant).out.sizes(sizes_of(kernel.variant, case))[-1]
    words: tuple[str, ...] = (_shape(kernel, case, m, columns), _shape(kernel, case, m + 1, columns))
    yield of("out", "out-shape", "out has one row more", words, longer)
    yield of("out", "out-dtype", "out is float64", ("float64",), double, TypeError)
    yield of("out", "out-overlap", "elements of out share addresses", (), overlapping)
    if min(m, columns) > 1:
        yield of("out", "out-crowded", "each line of out overlaps the next one in one element", (), crowded)


def _scales(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Invalid scales of a quantised result, and sizes whose last elements would not fill a byte."""
    v, described = kernel.variant, call(kernel.variant)
    if v.quantised is None or described.out_scale is None:
        return
    name, (m, n, _) = described.out_scale.name, case.sizes
    columns = described.out_scale.sizes(sizes_of(v, case))[-1]
    yield of(name, "{}-dtype", "{} is float64", ("float64",), lambda x: x.float().double(), TypeError)
    words: tuple[str, ...] = (_shape(kernel, case, m, columns), _shape(kernel, case, m, 2 * columns))
    yield of(name, "{}-shape", "{} has twice the blocks", words, _twice)
    if m > 1:
        yield of(name, "{}-overlap", "rows of {} share addresses", (), overlapping)
    if v.quantised.packed > 1:
        words = ("N", str(n + 1), str(v.quantised.packed))
        yield Refusal("odd-n", "the last column has half a byte", words, resized(kernel, case, "n", n + 1))


def _twice(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.view(torch.uint8)] * 2, -1).view(x.dtype)


def _auxiliary_outputs(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Invalid auxiliary outputs, and a missing C where the epilogue reads it."""
    m, n, _ = case.sizes
    v = kernel.variant
    if v.epilogue.reads_out:
        yield of("out", "out-missing", "out is missing, but the epilogue reads it", (), None)
    yield from _scales(kernel, case)
    for output in v.epilogue.outputs:
        name = output.name
        yield of(name, "{}-dtype", "{} is float64", ("float64",), double, TypeError)
        if output.reduced:
            size = str((*leading_extents(v, case), {ROWS: m, COLUMNS: n}.get(output.shape, 1) + 1))
            yield of(name, "{}-shape", "{} is too long", (size,), one_more)
            if output.shape != ELEMENT:
                yield of(name, "{}-gaps", "{} is not contiguous", ("stride",), spaced)
            if v.batch == "strided":
                reason = "{} is one vector for the whole batch"
                yield of(name, "{}-repeated", reason, ("overlap",), lambda x: x[:1].expand_as(x))
            continue
        size = _shape(kernel, case, m + 1, 2 * n if output.shape == BOTH else n)
        yield of(name, "{}-shape", "{} has one row more", (size,), longer)
        yield of(name, "{}-overlap", "elements of {} share addresses", (), overlapping)
        if v.layout.c != "strided":
            yield of(name, "{}-layout", "{} is not in C's layout", ("stride",), other_layout)


@contextlib.contextmanager
def _later_triton() -> Iterator[None]:
    before, triton.__version__ = triton.__version__, "3.9.0"
    try:
        yield
    finally:
        triton.__version__ = before


@contextlib.contextmanager
def _no_interpreter() -> Iterator[None]:
    triton.knobs.runtime.interpret = False
    try:
        yield
    finally:
        triton.knobs.runtime.interpret = True


def _epilogue(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    m, n, _ = case.sizes
    sizes = sizes_of(kernel.variant, case)
    shapes = {x.name: x.sizes(sizes) for x in call(kernel.variant).operands}
    for operand in kernel.variant.epilogue.operands:
        name = operand.name
        yield of(name, "{}-missing", "{} is missing", (), None, TypeError)
        if operand.shape == SCALAR:
            yield of(name, "{}-two", "{} has two elements", ("(2,)",), lambda _: torch.ones(2))
            continue
        wrong = torch.float32 if kernel.variant.exact else torch.int32
        word = str(wrong).removeprefix("torch.")
        yield of(name, "{}-dtype", f"{{}} is {word}", (word,), methodcaller("to", wrong), TypeError)
        *rest, last = shapes[name]
        size = _shape(kernel, case, m + 1, n) if operand.shape == MATRIX else str((*rest, last + 1))
        yield of(name, "{}-shape", "{} is too long", (size,), longer if operand.shape == MATRIX else one_more)
        if operand.shape == ELEMENT:
            yield of(name, "{}-device", "{} is not on the device of a", ("meta",), elsewhere)
        elif operand.shape != MATRIX:
            yield of(name, "{}-gaps", "{} is not contiguous", ("stride",), spaced)
        elif kernel.variant.layout.c != "strided":
            yield of(name, "{}-layout", "{} is not in C's layout", ("stride",), other_layout)
