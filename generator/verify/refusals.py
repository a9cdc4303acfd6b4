"""Calls that a launcher must refuse, each a valid call with a change, with the exception and words of its message."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
import triton

from generator.epilogue.operations import MATRIX
from generator.language.storage import Storage, element_of
from generator.plan import variant_rules
from generator.plan.contract_call import Argument, ContractCall, call
from generator.plan.kernels import Kernel
from generator.problem.poisoned_operands import place
from generator.verify.case_setup import Setup
from generator.verify.case_sizes import Case, Fit, leading_extents, read_step, sizes_of, written_step
from generator.verify.manifest_configurations import takes

#: The keywords of a call, operands included.
Call: TypeAlias = "Mapping[str, Any]"
#: The keywords that make a valid call invalid; those with None are left out of it.
_Spoil: TypeAlias = "Callable[[Call], Call]"
#: What makes an argument wrong (None: it is missing), and the exception that answers it.
_Change: TypeAlias = "Callable[[Any], Any] | None"
_Error: TypeAlias = "type[Exception]"


@dataclass(frozen=True)
class Refusal:
    """A call that must raise `error` with every one of `words` in the message."""

    name: str
    reason: str
    words: tuple[str, ...]
    spoil: _Spoil = lambda call: {}
    error: type[Exception] = ValueError
    #: Whether `refusal()` must report it too: the contract allows the operands, but this kernel does not support them.
    sibling: bool = False
    #: The context of the call, such as another version of Triton.
    under: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    #: Whether the operands have memory. If not, they are on the device "meta", and the launcher is made to take them.
    in_memory: bool = True

    def spoilt(self, valid: Call) -> dict[str, Any]:
        """The keywords of the call that is refused, made from those of a valid one."""
        return {name: value for name, value in {**valid, **self.spoil(valid)}.items() if value is not None}


def right_case(kernel: Kernel, row: int) -> Case:
    """The valid call that each refusal changes: one whole tile, or two where one row or column would have no layout."""
    fit = Fit(kernel.variant, kernel.tiles[row], row)
    m, n, k = (max(size, 2) for size in fit.unit)
    return fit.case("right", "the valid call that the refusals change", m, n, k)


def right_call(setup: Setup) -> dict[str, Any]:
    """The keywords of a valid call."""
    return {"a": setup.a.view, "b": setup.b.view, "config": setup.case.row} | setup.keywords


def refusals(kernel: Kernel, case: Case, configs: tuple[Any, ...], *, hardware: bool) -> Iterator[Refusal]:
    """Every invalid call that `kernel` must refuse, each made from the valid call `case`."""
    described, sizes = call(kernel.variant), sizes_of(kernel.variant, case)
    for x in (described.a, described.b, *described.keywords, *described.optional, *described.results):
        yield from _wrong(x, x.sizes(sizes), described)
    yield from _factors(kernel, case)
    if kernel.variant.products.divided == "M":
        yield from _groups(kernel)
    yield from _configs(configs)
    yield from _sizes(kernel, case, configs, hardware=hardware)
    if kernel.variant.loading.descriptors:
        yield from _addresses(kernel, case)
    if not hardware:
        yield from _too_large(kernel, case)
    if kernel.variant.loading.blocks:
        reason = "a version of Triton without block pointers"
        under = partial(patch.object, triton, "__version__", "3.9.0")
        yield Refusal("version", reason, ("3.9",), sibling=True, under=under)
    if hardware:
        yield Refusal("cpu", "operands on the CPU", ("cpu",), _on_device("cpu"))
    else:
        reason = "operands on the CPU, without the interpreter"
        yield Refusal("cpu", reason, ("cpu",), under=_no_interpreter)


def _wrong(x: Argument, shape: tuple[int, ...], described: ContractCall) -> Iterator[Refusal]:
    """How an operand or a result of this shape is wrong by itself."""
    factor, result = x in (described.a, described.b), x in described.results

    def wrong(kind: str, reason: str, words: Sequence[str], change: _Change, error: _Error = ValueError) -> Refusal:
        name = f"{kind}-{x.name}" if factor else f"{x.name}-{kind}"
        spoil = _naming(x.name, change) if x in described.optional else _changed(x.name, change)
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
        yield wrong("shape", "has one row more", (str((*front[:-1], front[-1] + 1, last)),), _longer)
        if x in described.stored:
            yield wrong("columns", "has one column more", (wider,), lambda t: _longer(t.mT).mT)
            yield wrong("empty", "has no rows", (str((*front[:-1], 0, last)),), lambda t: t[..., :0, :])
        elif front[1:] and not described.products.divided and not result:
            yield wrong("matrix", "is a single matrix", (str(shape[1:]),), lambda t: t[0])
    else:
        if not numbering or (x is not described.rows and described.products.divided == "M"):
            yield wrong("shape", "is too long", (wider,), lambda t: _longer(t, -1))
        if numbering:
            yield wrong("matrix", "is a matrix", (f"(1, {last})",), lambda t: t[None])
        if x.extents[-1] != "1":
            yield wrong("gaps", "is not contiguous", ("stride",), lambda t: t.repeat_interleave(2, -1)[..., ::2])
    if x.layout in ("row", "column") and x is not described.out_scale:
        yield wrong("layout", f"is not {x.layout}-major", ("stride",), _other_layout)


def _wrong_result(
    x: Argument, shape: tuple[int, ...], described: ContractCall, *, several: bool, wrong: Callable[..., Refusal]
) -> Iterator[Refusal]:
    """How a result shares addresses with itself, or is missing."""
    if x is described.out and described.reads_out:
        yield wrong("missing", "is missing, but the epilogue reads it", (), None)
    if x.layout:
        yield wrong("overlap", "has elements that share addresses", (), _overlapping)
    if several:
        yield wrong("repeated", "is one for all matrices", ("overlap",), lambda t: t[:1].expand_as(t))
    if x is described.out and min(shape[-2:]) > 1:
        yield wrong("crowded", "has lines that overlap the next one in one element", (), _crowded)
        if several:
            yield wrong("near", "has matrices that overlap the next one in one element", ("overlap",), _too_near)


def _factors(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Sizes that do not go together or split what is stored together, and a gradient that would be lost."""
    (m, n, k), v = case.sizes, kernel.variant
    a, b = v.dtype.stored
    words: tuple[str, ...] = (str((1, *call(v).a.sizes(sizes_of(v, case)))),)
    yield Refusal("dimensions", "a has one dimension more", words, _changed("a", lambda a: a[None]))
    if v.epilogue.order is not None:
        words = (f"{2 * n - 1} columns", "even")
        yield Refusal("odd-columns", "b has an odd number of columns", words, _changed("b", lambda b: b[..., :-1]))
    words = str(k), str(k // b.packed - 1)
    yield Refusal("inner", "a and b have different K", words, _changed("b", lambda b: b[..., :-1, :]))
    if v.symmetric:
        spoil = _changed("b", lambda b: _longer(b, -1))
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
        yield Refusal("odd-n", "the last column has half a byte", words, _resized(kernel, case, "n", n + 1))
    if v.batch == "strided":
        words = (str(case.batch), "1", "expand")
        yield Refusal("matrices", "a and b have different numbers of matrices", words, _changed("b", lambda b: b[:1]))
    if element_of(a.container).floating:
        lost = ("a requires a gradient", "backward", "no_grad")
        spoil = _changed("a", lambda a: a.detach().requires_grad_())
        yield Refusal("gradient", "a gradient would be lost", lost, spoil, RuntimeError)


def _groups(kernel: Kernel) -> Iterator[Refusal]:
    """Rows that descriptors cannot name, and results that must be given where their rows are named."""
    if kernel.variant.loading.descriptors:
        yield Refusal("rows", "rows are named", ("descriptors", "rows"), _naming("rows", lambda x: x), sibling=True)
    scale = call(kernel.variant).out_scale
    for kind, name in (("no-out", "out"), *([("no-scale", scale.name)] if scale is not None else [])):
        spoil = _naming("scatter", lambda x: x, without=name)
        yield Refusal(f"scatter-{kind}", f"{name} is missing", (f"{name} must be given", "scatter"), spoil)
    words = ("b must have three dimensions",)
    yield Refusal("matrix-b", "b is a single matrix", words, _changed("b", lambda b: b[0]))


@contextlib.contextmanager
def _no_interpreter() -> Iterator[None]:
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = False
        yield


def _configs(configs: tuple[Any, ...]) -> Iterator[Refusal]:
    count = len(configs)
    unknown = dict(configs[0]) | {"num_warps": 77}
    yield Refusal("config-index", "config is out of range", (str(count),), _changed("config", lambda _: count))
    yield Refusal("config-row", "config is not an entry of CONFIGS", ("77",), _changed("config", lambda _: unknown))


def _too_large(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Sizes that exceed memory: the operands are on the device "meta", which allocates nothing."""
    v = kernel.variant

    if v.symmetric:
        # A result of so many rows and columns would be too large without memory, too.
        spoil = _on_device("meta", _resized(kernel, case, "m", 2**31, only=("a", "b")))
        yield Refusal("large-m", "M exceeds 32 bits", (str(2**31),), spoil)
    for dimension in "" if v.symmetric else "mn":
        gated = v.epilogue.order is not None and dimension == "n"
        spoil = _on_device("meta", _resized(kernel, case, dimension, 2**30 if gated else 2**31))
        reason = f"{'2N' if gated else dimension.upper()} exceeds 32 bits"
        yield Refusal(f"large-{dimension}", reason, (str(2**31),), spoil)
    if v.batch == "strided":
        counted = "number of tiles" if v.traits.tiled else "one program an element"
        for size, reason, word, allowed in (
            (2**31, "B exceeds 32 bits", str(2**31), False),
            (2**31 - 2**16, "more tiles than program ids", counted, True),
        ):
            larger = replace(case, batch=size, sizes=(2 * case.sizes[0], *case.sizes[1:]))
            spoil = _on_device("meta", _resized(kernel, larger, "m", larger.sizes[0] + 16))
            name = f"large-batch-{size}"
            yield Refusal(name, reason, (word,), spoil, sibling=allowed, in_memory=not allowed)
    if not v.traits.tiled:
        wide = _resized(kernel, replace(case, sizes=(2**16, *case.sizes[1:])), "n", 2**16)
        high, spoil = 2**32 * prod(leading_extents(v, case)), _on_device("meta", wide)
        reason = "more elements than program ids"
        yield Refusal("programs", reason, (str(high),), spoil, sibling=True, in_memory=False)


def _sizes(kernel: Kernel, case: Case, configs: tuple[Any, ...], *, hardware: bool) -> Iterator[Refusal]:
    """Sizes that the masking does not allow, and a K larger than BLOCK_K in kernels without a loop."""
    v = kernel.variant
    if not v.traits.tiled:
        return
    # The interpreter has no tuner, which chooses where a call has no config.
    chooses = hardware or kernel.select != "autotune"
    for dimension, masked in variant_rules.ragged(v.masking).items():
        # Of a symmetric result BLOCK_N is a multiple of BLOCK_M.
        alike = v.symmetric and dimension == "m"
        if masked is not False or alike or v.loading.descriptors:
            continue
        block = dimension.upper()
        name = call(v).named(block)
        offered = sorted({config[f"BLOCK_{block}"] for config in configs})
        quantised = v.quantised
        whole = {"k": v.dtype.together, "n": quantised.packed if quantised is not None else 1}
        more = whole.get(dimension, 1)
        size = offered[0] + more if dimension != "k" or v.traits.looped else offered[0] - 1
        reason = f"{name} is not a multiple of any tile"
        words: tuple[str, ...] = (name, str(size), str(configs[case.row or 0][f"BLOCK_{block}"]))
        yield Refusal(f"multiple-{dimension}", reason, words, _resized(kernel, case, dimension, size))
        if chooses:
            words = (name, str(size), *map(str, offered))
            spoil = _resized(kernel, case, dimension, size, config=None)
            yield Refusal(f"multiple-{dimension}-any", f"{reason}, without config", words, spoil)
    if not v.loading.descriptors or not v.traits.looped:
        yield from _unsuited(kernel)
    if not v.traits.looped and chooses:
        most = max(config["BLOCK_K"] for config in configs)
        spoil = _resized(kernel, case, "k", 2 * most, config=None)
        yield Refusal("bounded-k", "K is larger than every BLOCK_K", ("K", str(2 * most), str(most)), spoil)


def _unsuited(kernel: Kernel) -> Iterator[Refusal]:
    """A configuration that does not support sizes that another one supports."""
    v = kernel.variant
    for tile in kernel.tiles:
        sizes = Fit(v, tile)(tile.m, tile.n, tile.k)
        for index, other in enumerate(kernel.tiles):
            if takes(v, tile, sizes) and not takes(v, other, sizes):
                case = Case("unsuited", "", sizes, index)
                spoil = _resized(kernel, case, "m", sizes[0], config=index)
                yield Refusal("unsuited", "config does not support the sizes", ("BLOCK_",), spoil)
                return


def _addresses(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Operands that descriptors cannot address: base, leading dimension and written extent that are not aligned."""
    v = kernel.variant
    layout, store = v.layout, v.store
    # The kernel that decodes b reads it through pointers.
    copied = [("a", layout.a), *([] if v.traits.decodes else [("b", layout.b)])]
    if store == "as_load":
        copied += [("out", layout.c)]
        copied += [(o.name, layout.c) for o in v.epilogue.operands if o.shape == MATRIX]
        copied += [(o.name, layout.c) for o in v.epilogue.outputs if o.shape == MATRIX]
    outputs = ("out", *(output.name for output in v.epilogue.outputs))
    for name, word in copied:
        half = 8 // _width(kernel, name)
        for end, by, state in (
            ("", 1, "one element past a multiple of 16 bytes"),
            ("-half", half, "8 bytes past a multiple of 16"),
        ):
            spoil = _changed(name, _moved(word, offset=by))
            yield Refusal(f"base{end}-{name}", f"{name} starts {state}", (name, "16"), spoil, sibling=True)
            reason, spoil = f"the leading dimension of {name} is {state}", _changed(name, _moved(word, stretch=by))
            yield Refusal(f"leading{end}-{name}", reason, (name, "leading"), spoil, sibling=True)
        if v.batch == "strided":
            words = (name, "between matrices", "multiple")
            reason = f"the batch stride of {name} is not a multiple of 16 bytes"
            yield Refusal(f"apart-{name}", reason, words, _changed(name, _moved(word, apart=1)), sibling=True)
            if name not in outputs:
                reason, spoil = (
                    f"{name} is one matrix for the whole batch",
                    _changed(name, lambda x: x[:1].expand_as(x)),
                )
                yield Refusal(f"repeated-{name}", reason, (*words, "0"), spoil, sibling=True)
    if written_step(v) > 1:
        dimension = "m" if layout.c == "column" else "n"
        step = written_step(v)
        for name, more in (("written-extent", 1), ("written-extent-half", step // 2)):
            size = case.sizes["mnk".index(dimension)] + more
            spoil = _aligned(_resized(kernel, case, dimension, size))
            shown_words = (dimension.upper(), str(size), str(step))
            reason = "the inner extent of C is not a multiple of 16 bytes"
            yield Refusal(name, reason, shown_words, spoil, sibling=True)
    read = read_step(v)
    if read > (written_step(v) if layout.c != "column" else 1):
        size = case.sizes[1] + read // 2
        spoil = _aligned(_resized(kernel, case, "n", size))
        reason = "b's second half does not start at a multiple of 16 bytes"
        yield Refusal("read-extent", reason, ("N", str(size), str(read)), spoil, sibling=True)


def _width(kernel: Kernel, name: str) -> int:
    """Bytes of an operand's element; matrices of the epilogue are fp32 in the valid call."""
    dtype = kernel.variant.dtype
    written = {output.name: dtype.out for output in kernel.variant.epilogue.outputs} | {"out": kernel.variant.out}
    read = {storage.letter: storage.container for storage in dtype.stored}
    return element_of({**read, **written}.get(name, "fp32")).bits // 8


def _changed(name: str, change: _Change) -> _Spoil:
    """An operand as `change` makes it, or left out."""
    return lambda call: {name: None if change is None else change(call[name])}


def _naming(name: str, wrong: _Change, *, without: str = "") -> _Spoil:
    """Names the rows of a, or of out, in their order, as `wrong` changes it; an operand `without` is not given."""
    assert wrong is not None

    def spoil(call: Call) -> Call:
        a = call["a"]
        return {name: wrong(torch.arange(len(a), dtype=torch.int32, device=a.device)), without: None}

    return spoil


def _longer(x: torch.Tensor, dim: int = -2) -> torch.Tensor:
    """A tensor with one more element along a dimension, as a matrix or batch with one more row."""
    # On a GPU torch joins no scales of MX.
    values = x.view(torch.uint8) if x.dtype == torch.float8_e8m0fnu else x
    return torch.cat([values, values.narrow(dim, 0, 1)], dim).view(x.dtype)


def _shorter(storage: Storage, fewer: int) -> _Spoil:
    """Take so many elements from the end of K: of A, and of B those words that hold no others."""
    return lambda call: {
        "a": call["a"][..., :-fewer],
        "b": call["b"][..., : call["b"].shape[-2] - fewer // storage.packed, :],
    }


def _other_layout(x: torch.Tensor) -> torch.Tensor:
    """The same matrix, contiguous along its other dimension."""
    return x.mT.contiguous().mT if x.stride(-1) == 1 else x.contiguous()


def _too_near(out: torch.Tensor) -> torch.Tensor:
    """`out` with a batch stride that is one element too small."""
    reach = sum((size - 1) * stride for size, stride in zip(out.shape[1:], out.stride()[1:]))
    return out.as_strided(out.shape, (reach, *out.stride()[1:]))


def _overlapping(out: torch.Tensor) -> torch.Tensor:
    """`out` with all lines at the address of the first."""
    return out[..., :1, :].expand_as(out) if out.stride(-1) == 1 else out[..., :1].expand_as(out)


def _crowded(out: torch.Tensor) -> torch.Tensor:
    """`out` with a leading dimension that is one element too small."""
    *front, m, n = out.shape
    lines = (n - 1, 1) if out.stride(-1) == 1 else (1, m - 1)
    return out.as_strided(out.shape, (*(m * n for _ in front), *lines))


def _resized(
    kernel: Kernel, case: Case, dimension: str, size: int, *, only: Sequence[str] = (), **changes: Any
) -> _Spoil:
    """Change the size of one dimension in every operand that has it; `changes` are further keywords.

    With `only` the others stay as they are.
    """
    described = call(kernel.variant)
    name = described.named(dimension.upper())
    sizes = {**sizes_of(kernel.variant, case), "T" if name == kernel.variant.products.divided else name: size}

    def resized(x: Argument, like: torch.Tensor) -> torch.Tensor:
        shape = x.sizes(sizes)
        if not x.layout:
            return like.new_ones(shape)
        *front, rows, columns = shape
        return like.new_empty((*front, columns, rows)).mT if x.layout == "column" else like.new_empty(shape)

    given = (described.a, described.b, *described.keywords, *described.results)
    changed = [x for x in given if x.extents not in ((), ("1",)) and (not only or x.name in only)]
    return lambda call: {x.name: resized(x, call[x.name]) for x in changed} | changes


def _moved(layout: str, *, offset: int = 0, stretch: int = 0, apart: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy at `offset` elements past an aligned address; the leading dimension is `stretch` past a multiple of 16.

    The batch stride is `apart` elements past a multiple of 16.
    """

    def move(x: torch.Tensor) -> torch.Tensor:
        *front, rows, columns = x.shape
        lines = (columns, rows) if layout == "column" else (rows, columns)
        leading = -(-lines[1] // 16) * 16 + stretch
        strides = (1, leading) if layout == "column" else (leading, 1)
        steps = (-(-lines[0] * leading // 16) * 16 + apart for _ in front)
        operand = place("copy", tuple(x.shape), (*steps, *strides), x.dtype, x.device, offset=offset)
        operand.view.copy_(x)
        return operand.view

    return move


def _on_device(device: str, spoil: _Spoil = lambda call: {}) -> _Spoil:
    """Move every tensor to a device, before `spoil`."""

    def both(call: Call) -> Call:
        moved = {name: value.to(device) for name, value in call.items() if isinstance(value, torch.Tensor)}
        return {**moved, **spoil({**call, **moved})}

    return both


def _aligned(spoil: _Spoil) -> _Spoil:
    """After `spoil`, restore leading dimensions of a multiple of 16 elements: only the extent remains invalid."""

    def both(call: Call) -> Call:
        spoilt = {**call, **spoil(call)}
        matrices = {x: y for x, y in spoilt.items() if isinstance(y, torch.Tensor) and y.dim() >= 2}
        return spoilt | {x: _moved("row" if y.stride(-1) == 1 else "column")(y) for x, y in matrices.items()}

    return both
