"""Calls that a launcher must refuse, each with the exception and words of its message."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
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
    drop,
    longer,
    other_layout,
    overlapping,
    resized,
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
    yield from _layouts(kernel)
    yield from _outputs(kernel, case)
    yield from _auxiliary_outputs(kernel, case)
    yield from _epilogue(kernel, case)
    yield from unsupported(kernel, case, configs, hardware=hardware)
    if kernel.variant.loading.blocks:
        words = ("3.9",)
        reason = "a version of Triton without block pointers"
        yield Refusal("version", reason, ValueError, words, lambda call: None, sibling=True, under=_later_triton)
    if hardware:
        yield Refusal("cpu", "operands on the CPU", ValueError, ("cpu",), to_cpu)
    else:
        reason = "operands on the CPU, without the interpreter"
        yield Refusal("cpu", reason, ValueError, ("cpu",), lambda call: None, under=_no_interpreter)


def _shape(kernel: Kernel, case: Case, rows: int, columns: int) -> str:
    """The shape of an operand as it is written in a message."""
    return str((*leading_extents(kernel.variant, case), rows, columns))


def _operands(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    k = case.sizes[2]
    yield Refusal("not-a-tensor", "a is a list", TypeError, ("a ", "list"), changed("a", lambda a: a.tolist()))
    words = str((1, *call(kernel.variant).a.sizes(sizes_of(kernel.variant, case))))
    yield Refusal("dimensions", "a has one dimension more", ValueError, (words,), changed("a", lambda a: a[None]))
    if kernel.variant.epilogue.order is not None:
        spoil, words = changed("b", lambda b: b[..., :-1]), f"{2 * case.sizes[1] - 1} columns"
        yield Refusal("odd-columns", "b has an odd number of columns", ValueError, (words, "even"), spoil)
    spoil = changed("b", lambda b: b[..., :-1, :])
    a, b = kernel.variant.dtype.stored
    found = str(k), str(k // b.packed - 1)
    yield Refusal("inner", "a and b have different K", ValueError, found, spoil)
    if kernel.variant.symmetric:
        m, n, _ = case.sizes
        spoil = changed("b", lambda b: torch.cat([b, b[..., :1]], -1).to(b.dtype))
        yield Refusal("square", "N is not M", ValueError, ("M", str(m), str(n + 1)), spoil)
    yield from _stored(kernel, case)
    for name in ("a", "b"):
        spoil = changed(name, lambda x: x.double())
        yield Refusal(f"dtype-{name}", f"{name} is float64", TypeError, (name, "float64"), spoil)
    spoil = changed("b", lambda b: b.to("meta"))
    yield Refusal("device", "b is not on the device of a", ValueError, ("b", "meta"), spoil)
    if element_of(a.container).floating:
        lost = ("a requires a gradient", "backward", "no_grad")
        spoil = changed("a", lambda a: a.detach().requires_grad_())
        yield Refusal("gradient", "a gradient would be lost", RuntimeError, lost, spoil)


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
        spoil, words = _shorter(b, b.packed), (str(k - b.packed), f"multiples of {b.together}")
        yield Refusal("part-of-k", "K ends inside a group of words", ValueError, words, spoil)
    elif b.together > 1 and kernel.variant.dtype.stored_a.packed == 1:
        fewer = b.together // 2
        spoil, words = _shorter(b, fewer), (str(k - fewer), f"multiple of {b.together}")
        yield Refusal("odd-k", "K ends inside a byte, whose elements are stored together", ValueError, words, spoil)
    for x in call(kernel.variant).stored:
        name = x.name
        assert x.dtype is not None
        legal = element_of(x.dtype if isinstance(x.dtype, str) else x.dtype[0]).torch
        yield Refusal(f"{name}-missing", f"{name} is missing", TypeError, (name,), partial(drop, name=name))
        for dtype in (torch.int32, torch.float64):
            spoil = changed(name, partial(torch.Tensor.to, dtype=dtype))
            word = str(dtype).removeprefix("torch.")
            yield Refusal(f"{name}-{word}", f"{name} is {word}", TypeError, (name, word, legal), spoil)
        *front, rows, columns = x.sizes(sizes_of(kernel.variant, case))
        words = (name, str((*front, rows + 1, columns)))
        yield Refusal(f"{name}-rows", f"{name} has one row more", ValueError, words, changed(name, longer))
        words = (name, str((*front, rows, columns + 1)))
        spoil = changed(name, lambda x: longer(x.mT).mT)
        yield Refusal(f"{name}-columns", f"{name} has one column more", ValueError, words, spoil)
        spoil = changed(name, lambda x: x[..., :0, :])
        words = (name, str((*front, 0, columns)))
        yield Refusal(f"{name}-empty", f"{name} has no rows", ValueError, words, spoil)
        spoil = changed(name, lambda x: x.to("meta"))
        yield Refusal(f"{name}-device", f"{name} is not on the device of a", ValueError, (name, "meta"), spoil)


def _batches(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Operands without a batch dimension, or with different ones."""
    m, n, _ = case.sizes
    described = call(kernel.variant)
    for name, x in (("a", described.a), ("b", described.b)):
        words = (name, "three dimensions", str(x.sizes(sizes_of(kernel.variant, case))[1:]))
        yield Refusal(f"matrix-{name}", f"{name} is a single matrix", ValueError, words, changed(name, lambda x: x[0]))
    words = (str(case.batch), "1", "expand")
    spoil = changed("b", lambda b: b[:1])
    yield Refusal("matrices", "a and b have different numbers of matrices", ValueError, words, spoil)
    for operand in kernel.variant.epilogue.operands:
        if operand.shape == MATRIX:
            name, spoil = operand.name, changed(operand.name, lambda x: x[0])
            yield Refusal(f"matrix-{name}", f"{name} is a single matrix", ValueError, (name, str((m, n))), spoil)
    spoil = changed("out", lambda out: out[:1].expand_as(out))
    yield Refusal("out-repeated", "all matrices of out are the same one", ValueError, ("out", "overlap"), spoil)
    spoil = changed("out", too_near)
    reason = "each matrix of out overlaps the next one in one element"
    yield Refusal("out-near", reason, ValueError, ("out", "overlap"), spoil)


def _groups(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Ends of groups that are no int32 vector on the device of a, with one for each matrix."""
    count = sizes_of(kernel.variant, case)["G"]
    name = "offsets"
    yield Refusal("offsets-missing", "offsets are missing", TypeError, (name,), partial(drop, name=name))
    spoil = changed(name, lambda x: x.tolist())
    yield Refusal("offsets-list", "offsets are a list", TypeError, (name, "list"), spoil)
    spoil = changed(name, lambda x: x.long())
    yield Refusal("offsets-dtype", "offsets are int64", TypeError, (name, "int32", "int64"), spoil)
    spoil = changed(name, lambda x: x[None])
    yield Refusal("offsets-matrix", "offsets are a matrix", ValueError, (name, f"(1, {count})"), spoil)
    spoil = changed(name, lambda x: x.repeat_interleave(2)[::2])
    yield Refusal("offsets-gaps", "offsets are not contiguous", ValueError, (name, "stride"), spoil)
    spoil = changed(name, lambda x: x.to("meta"))
    yield Refusal("offsets-device", "offsets are not on the device of a", ValueError, (name, "meta"), spoil)
    if kernel.variant.products.divided == "K":
        # There are as many groups as offsets.
        return
    words = (name, f"({count},)", f"({count + 1},)")
    spoil = changed(name, _one_more)
    yield Refusal("offsets-shape", "there is one offset more", ValueError, words, spoil)
    total = sizes_of(kernel.variant, case)["T"]
    if kernel.variant.loading.descriptors:
        spoil = _naming(lambda x: x)
        yield Refusal("rows", "rows are named", ValueError, ("descriptors", "rows"), spoil, sibling=True)
    for name, error, told, spoil in (
        ("list", TypeError, ("rows", "list"), _naming(lambda x: x.tolist())),
        ("dtype", TypeError, ("rows", "int32", "int64"), _naming(lambda x: x.long())),
        ("matrix", ValueError, ("rows", f"(1, {total})"), _naming(lambda x: x[None])),
        ("device", ValueError, ("rows", "meta"), _naming(lambda x: x.to("meta"))),
        ("gaps", ValueError, ("rows", "stride"), _naming(lambda x: x.repeat_interleave(2)[::2])),
    ):
        yield Refusal(f"rows-{name}", f"rows are wrong: {name}", error, told, spoil)
    for name, error, told, spoil in (
        ("list", TypeError, ("scatter", "list"), _scattering(lambda x: x.tolist())),
        ("dtype", TypeError, ("scatter", "int32", "int64"), _scattering(lambda x: x.long())),
        ("length", ValueError, ("scatter", f"({total},)", f"({total + 1},)"), _scattering(_one_more)),
        ("device", ValueError, ("scatter", "meta"), _scattering(lambda x: x.to("meta"))),
        ("no-out", ValueError, ("out must be given", "scatter"), _scattering(lambda x: x, without="out")),
    ):
        yield Refusal(f"scatter-{name}", f"scatter is wrong: {name}", error, told, spoil)
    yield from _unscaled(kernel)
    spoil = changed("b", lambda b: b[0])
    yield Refusal("matrix-b", "b is a single matrix", ValueError, ("b must have three dimensions",), spoil)


def _naming(wrong: Callable[[torch.Tensor], object]) -> Callable[[Call], None]:
    """Names the rows of a in their order, as `wrong` changes it."""

    def spoil(given: Call) -> None:
        given["rows"] = wrong(torch.arange(len(given["a"]), dtype=torch.int32, device=given["a"].device))

    return spoil


def _one_more(x: torch.Tensor) -> torch.Tensor:
    """A vector with one element more."""
    return torch.cat([x, x[:1]])


def _unscaled(kernel: Kernel) -> Iterator[Refusal]:
    """A call that names the rows of a quantised out, and gives no scales."""
    scale = call(kernel.variant).out_scale
    if scale is not None:
        words = (f"{scale.name} must be given", "scatter")
        spoil = _scattering(lambda x: x, without=scale.name)
        yield Refusal("scatter-no-scale", "scatter is wrong: no-scale", ValueError, words, spoil)


def _scattering(wrong: Callable[[torch.Tensor], object], *, without: str = "") -> Callable[[Call], None]:
    """Names the rows of out in their order, as `wrong` changes it; what is named is not given."""

    def spoil(given: Call) -> None:
        given["scatter"] = wrong(torch.arange(len(given["a"]), dtype=torch.int32, device=given["a"].device))
        given.pop(without, None)

    return spoil


def _layouts(kernel: Kernel) -> Iterator[Refusal]:
    layout = kernel.variant.layout
    for name, word in (("a", layout.a), ("b", layout.b), ("out", layout.c)):
        if word != "strided":
            spoil = changed(name, other_layout)
            yield Refusal(f"layout-{name}", f"{name} is not {word}-major", ValueError, (name, "stride"), spoil)


def _outputs(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    m = case.sizes[0]
    columns = call(kernel.variant).out.sizes(sizes_of(kernel.variant, case))[-1]
    words = ("out", _shape(kernel, case, m, columns), _shape(kernel, case, m + 1, columns))
    spoil = changed("out", longer)
    yield Refusal("out-shape", "out has one row more", ValueError, words, spoil)
    yield Refusal(
        "out-dtype", "out is float64", TypeError, ("out", "float64"), changed("out", lambda out: out.double())
    )
    yield Refusal("out-overlap", "elements of out share addresses", ValueError, ("out",), changed("out", overlapping))
    if min(m, columns) > 1:
        spoil = changed("out", crowded)
        reason = "each line of out overlaps the next one in one element"
        yield Refusal("out-crowded", reason, ValueError, ("out",), spoil)


def _scales(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Invalid scales of a quantised result, and sizes whose last elements would not fill a byte."""
    v, described = kernel.variant, call(kernel.variant)
    if v.quantised is None or described.out_scale is None:
        return
    name, (m, n, _) = described.out_scale.name, case.sizes
    columns = described.out_scale.sizes(sizes_of(v, case))[-1]
    spoil = changed(name, lambda x: x.float().double())
    yield Refusal(f"{name}-dtype", f"{name} is float64", TypeError, (name, "float64"), spoil)
    words = (name, _shape(kernel, case, m, columns), _shape(kernel, case, m, 2 * columns))
    spoil = changed(name, lambda x: torch.cat([x.view(torch.uint8)] * 2, -1).view(x.dtype))
    yield Refusal(f"{name}-shape", f"{name} has twice the blocks", ValueError, words, spoil)
    if m > 1:
        spoil = changed(name, overlapping)
        yield Refusal(f"{name}-overlap", f"rows of {name} share addresses", ValueError, (name,), spoil)
    if v.quantised.packed > 1:
        spoil = resized(kernel, case, "n", n + 1)
        reason = "the last column has half a byte"
        yield Refusal("odd-n", reason, ValueError, ("N", str(n + 1), str(v.quantised.packed)), spoil)


def _auxiliary_outputs(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Invalid auxiliary outputs, and a missing C where the epilogue reads it."""
    m, n, _ = case.sizes
    v = kernel.variant
    if v.epilogue.reads_out:
        reason = "out is missing, but the epilogue reads it"
        yield Refusal("out-missing", reason, ValueError, ("out",), partial(drop, name="out"))
    yield from _scales(kernel, case)
    for output in v.epilogue.outputs:
        name = output.name
        spoil = changed(name, lambda x: x.double())
        yield Refusal(f"{name}-dtype", f"{name} is float64", TypeError, (name, "float64"), spoil)
        if output.reduced:
            size = str((*leading_extents(v, case), {ROWS: m, COLUMNS: n}.get(output.shape, 1) + 1))
            spoil = changed(name, lambda x: torch.cat([x, x[..., :1]], -1))
            yield Refusal(f"{name}-shape", f"{name} is too long", ValueError, (name, size), spoil)
            if output.shape != ELEMENT:
                spoil = changed(name, lambda x: x.repeat_interleave(2, -1)[..., ::2])
                yield Refusal(f"{name}-gaps", f"{name} is not contiguous", ValueError, (name, "stride"), spoil)
            if v.batch == "strided":
                spoil = changed(name, lambda x: x[:1].expand_as(x))
                reason = f"{name} is one vector for the whole batch"
                yield Refusal(f"{name}-repeated", reason, ValueError, (name, "overlap"), spoil)
            continue
        words = (name, _shape(kernel, case, m + 1, 2 * n if output.shape == BOTH else n))
        yield Refusal(f"{name}-shape", f"{name} has one row more", ValueError, words, changed(name, longer))
        spoil = changed(name, overlapping)
        yield Refusal(f"{name}-overlap", f"elements of {name} share addresses", ValueError, (name,), spoil)
        if v.layout.c != "strided":
            spoil = changed(name, other_layout)
            yield Refusal(f"{name}-layout", f"{name} is not in C's layout", ValueError, (name, "stride"), spoil)


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
        yield Refusal(f"{name}-missing", f"{name} is missing", TypeError, (name,), partial(drop, name=name))
        if operand.shape == SCALAR:
            spoil = changed(name, lambda _: torch.ones(2))
            yield Refusal(f"{name}-two", f"{name} has two elements", ValueError, (name, "(2,)"), spoil)
            continue
        spoil = changed(name, lambda x: x.to(torch.int32))
        yield Refusal(f"{name}-dtype", f"{name} is int32", TypeError, (name, "int32"), spoil)
        *rest, last = shapes[name]
        size = _shape(kernel, case, m + 1, n) if operand.shape == MATRIX else str((*rest, last + 1))
        spoil = changed(name, longer if operand.shape == MATRIX else lambda x: torch.cat([x, x[..., :1]], -1))
        yield Refusal(f"{name}-shape", f"{name} is too long", ValueError, (name, size), spoil)
        if operand.shape == ELEMENT:
            spoil = changed(name, lambda x: x.to("meta"))
            yield Refusal(f"{name}-device", f"{name} is not on the device of a", ValueError, (name, "meta"), spoil)
        elif operand.shape != MATRIX:
            spoil = changed(name, lambda x: x.repeat_interleave(2, -1)[..., ::2])
            yield Refusal(f"{name}-gaps", f"{name} is not contiguous", ValueError, (name, "stride"), spoil)
        elif kernel.variant.layout.c != "strided":
            spoil = changed(name, other_layout)
            yield Refusal(f"{name}-layout", f"{name} is not in C's layout", ValueError, (name, "stride"), spoil)
