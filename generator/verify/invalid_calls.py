"""Invalid calls: what changes a valid one, and the calls that a kernel does not support, with right operands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from generator.epilogue.operations import MATRIX
from generator.language.storage import element_of
from generator.plan import variant_rules
from generator.plan.contract_call import call
from generator.plan.kernels import Kernel
from generator.problem.poisoned_operands import place
from generator.verify.case_sizes import Case, Fit, leading_extents, read_step, sizes_of, written_step
from generator.verify.manifest_configurations import takes

#: The keywords of a call, operands included.
Call = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """A call that must raise `error` with every one of `words` in the message."""

    name: str
    reason: str
    words: tuple[str, ...]
    #: Changes the keywords of a valid call, operands included, so that the call is invalid.
    spoil: Callable[[Call], None]
    error: type[Exception] = ValueError
    #: Whether `refusal()` must report it too: the contract allows the operands, but this kernel does not support them.
    sibling: bool = False
    #: The context of the call, such as another version of Triton.
    under: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    #: Whether the operands have memory. If not, they are on the device "meta", and the launcher is made to take them.
    in_memory: bool = True


def changed(name: str, change: Callable[[Any], Any] | None) -> Callable[[Call], None]:
    """Replace an operand of a call with `change` applied to it, or leave it out."""

    def spoil(call: Call) -> None:
        value = call.pop(name)
        if change is not None:
            call[name] = change(value)

    return spoil


def longer(x: torch.Tensor, dim: int = -2) -> torch.Tensor:
    """A tensor with one more element along a dimension, as a matrix or batch with one more row."""
    # On a GPU torch joins no scales of MX.
    values = x.view(torch.uint8) if x.dtype == torch.float8_e8m0fnu else x
    return torch.cat([values, values.narrow(dim, 0, 1)], dim).view(x.dtype)


def other_layout(x: torch.Tensor) -> torch.Tensor:
    """The same matrix, contiguous along its other dimension."""
    return x.mT.contiguous().mT if x.stride(-1) == 1 else x.contiguous()


def too_near(out: torch.Tensor) -> torch.Tensor:
    """`out` with a batch stride that is one element too small."""
    reach = sum((size - 1) * stride for size, stride in zip(out.shape[1:], out.stride()[1:]))
    return out.as_strided(out.shape, (reach, *out.stride()[1:]))


def overlapping(out: torch.Tensor) -> torch.Tensor:
    """`out` with all lines at the address of the first."""
    return out[..., :1, :].expand_as(out) if out.stride(-1) == 1 else out[..., :1].expand_as(out)


def crowded(out: torch.Tensor) -> torch.Tensor:
    """`out` with a leading dimension that is one element too small."""
    *front, m, n = out.shape
    lines = (n - 1, 1) if out.stride(-1) == 1 else (1, m - 1)
    return out.as_strided(out.shape, (*(m * n for _ in front), *lines))


def resized(
    kernel: Kernel, case: Case, dimension: str, size: int, *, only: Sequence[str] = (), **changes: Any
) -> Callable[[Call], None]:
    """Change the size of one dimension in every operand that has it; `changes` are further keywords.

    With `only` the others stay as they are.
    """
    divided = kernel.variant.products.divided
    described = call(kernel.variant)
    name = described.named(dimension.upper())
    sizes = {**sizes_of(kernel.variant, case), "T" if name == divided else name: size}

    def spoil(given: Call) -> None:
        for x in (described.a, described.b, *described.keywords, *described.results):
            if only and x.name not in only:
                continue
            if x.layout:
                given[x.name] = _empty(given[x.name], x.sizes(sizes), x.layout)
            elif x.extents not in ((), ("1",)):
                given[x.name] = given[x.name].new_ones(x.sizes(sizes))
        given.update(changes)

    return spoil


def _empty(like: torch.Tensor, shape: tuple[int, ...], layout: str) -> torch.Tensor:
    *front, rows, columns = shape
    return like.new_empty((*front, columns, rows)).mT if layout == "column" else like.new_empty(shape)


def moved(layout: str, *, offset: int = 0, stretch: int = 0, apart: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
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


def on_device(device: str, spoil: Callable[[Call], None] = lambda call: None) -> Callable[[Call], None]:
    """Move every tensor to a device, before `spoil`."""

    def both(call: Call) -> None:
        call.update({name: value.to(device) for name, value in call.items() if isinstance(value, torch.Tensor)})
        spoil(call)

    return both


def aligned(spoil: Callable[[Call], None]) -> Callable[[Call], None]:
    """After `spoil`, restore leading dimensions of a multiple of 16 elements: only the extent remains invalid."""

    def both(call: Call) -> None:
        spoil(call)
        for name, value in call.items():
            if isinstance(value, torch.Tensor) and value.dim() >= 2:
                call[name] = moved("row" if value.stride(-1) == 1 else "column")(value)

    return both


def unsupported(kernel: Kernel, case: Case, configs: tuple[Any, ...], *, hardware: bool) -> Iterator[Refusal]:
    """Every such call that `kernel` must refuse, each made from the valid call `case`."""
    yield from _configs(configs)
    yield from _sizes(kernel, case, configs, hardware=hardware)
    if kernel.variant.loading.descriptors:
        yield from _addresses(kernel, case)
    if not hardware:
        yield from _too_large(kernel, case)


def _configs(configs: tuple[Any, ...]) -> Iterator[Refusal]:
    count = len(configs)
    unknown = dict(configs[0]) | {"num_warps": 77}
    yield Refusal("config-index", "config is out of range", (str(count),), changed("config", lambda _: count))
    yield Refusal("config-row", "config is not an entry of CONFIGS", ("77",), changed("config", lambda _: unknown))


def _too_large(kernel: Kernel, case: Case) -> Iterator[Refusal]:
    """Sizes that exceed memory: the operands are on the device "meta", which allocates nothing."""
    v = kernel.variant

    if v.symmetric:
        # A result of so many rows and columns would be too large without memory, too.
        spoil = on_device("meta", resized(kernel, case, "m", 2**31, only=("a", "b")))
        yield Refusal("large-m", "M exceeds 32 bits", (str(2**31),), spoil)
    for dimension in "" if v.symmetric else "mn":
        gated = v.epilogue.order is not None and dimension == "n"
        spoil = on_device("meta", resized(kernel, case, dimension, 2**30 if gated else 2**31))
        reason = f"{'2N' if gated else dimension.upper()} exceeds 32 bits"
        yield Refusal(f"large-{dimension}", reason, (str(2**31),), spoil)
    if v.batch == "strided":
        counted = "number of tiles" if v.traits.tiled else "one program an element"
        for size, reason, word, allowed in (
            (2**31, "B exceeds 32 bits", str(2**31), False),
            (2**31 - 2**16, "more tiles than program ids", counted, True),
        ):
            larger = replace(case, batch=size, sizes=(2 * case.sizes[0], *case.sizes[1:]))
            spoil = on_device("meta", resized(kernel, larger, "m", larger.sizes[0] + 16))
            name = f"large-batch-{size}"
            yield Refusal(name, reason, (word,), spoil, sibling=allowed, in_memory=not allowed)
    if not v.traits.tiled:
        wide = resized(kernel, replace(case, sizes=(2**16, *case.sizes[1:])), "n", 2**16)
        high, spoil = 2**32 * prod(leading_extents(v, case)), on_device("meta", wide)
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
        yield Refusal(f"multiple-{dimension}", reason, words, resized(kernel, case, dimension, size))
        if chooses:
            words = (name, str(size), *map(str, offered))
            spoil = resized(kernel, case, dimension, size, config=None)
            yield Refusal(f"multiple-{dimension}-any", f"{reason}, without config", words, spoil)
    if not v.loading.descriptors or not v.traits.looped:
        yield from _unsuited(kernel)
    if not v.traits.looped and chooses:
        most = max(config["BLOCK_K"] for config in configs)
        spoil = resized(kernel, case, "k", 2 * most, config=None)
        yield Refusal("bounded-k", "K is larger than every BLOCK_K", ("K", str(2 * most), str(most)), spoil)


def _unsuited(kernel: Kernel) -> Iterator[Refusal]:
    """A configuration that does not support sizes that another one supports."""
    v = kernel.variant
    for tile in kernel.tiles:
        sizes = Fit(v, tile)(tile.m, tile.n, tile.k)
        for index, other in enumerate(kernel.tiles):
            if takes(v, tile, sizes) and not takes(v, other, sizes):
                case = Case("unsuited", "", sizes, index)
                spoil = resized(kernel, case, "m", sizes[0], config=index)
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
            spoil = changed(name, moved(word, offset=by))
            yield Refusal(f"base{end}-{name}", f"{name} starts {state}", (name, "16"), spoil, sibling=True)
            reason, spoil = f"the leading dimension of {name} is {state}", changed(name, moved(word, stretch=by))
            yield Refusal(f"leading{end}-{name}", reason, (name, "leading"), spoil, sibling=True)
        if v.batch == "strided":
            words = (name, "between matrices", "multiple")
            reason = f"the batch stride of {name} is not a multiple of 16 bytes"
            yield Refusal(f"apart-{name}", reason, words, changed(name, moved(word, apart=1)), sibling=True)
            if name not in outputs:
                reason, spoil = f"{name} is one matrix for the whole batch", changed(name, lambda x: x[:1].expand_as(x))
                yield Refusal(f"repeated-{name}", reason, (*words, "0"), spoil, sibling=True)
    if written_step(v) > 1:
        dimension = "m" if layout.c == "column" else "n"
        step = written_step(v)
        for name, more in (("written-extent", 1), ("written-extent-half", step // 2)):
            size = case.sizes["mnk".index(dimension)] + more
            spoil = aligned(resized(kernel, case, dimension, size))
            shown_words = (dimension.upper(), str(size), str(step))
            reason = "the inner extent of C is not a multiple of 16 bytes"
            yield Refusal(name, reason, shown_words, spoil, sibling=True)
    read = read_step(v)
    if read > (written_step(v) if layout.c != "column" else 1):
        size = case.sizes[1] + read // 2
        spoil = aligned(resized(kernel, case, "n", size))
        reason = "b's second half does not start at a multiple of 16 bytes"
        yield Refusal("read-extent", reason, ("N", str(size), str(read)), spoil, sibling=True)


def _width(kernel: Kernel, name: str) -> int:
    """Bytes of an operand's element; matrices of the epilogue are fp32 in the valid call."""
    dtype = kernel.variant.dtype
    written = {output.name: dtype.out for output in kernel.variant.epilogue.outputs} | {"out": kernel.variant.out}
    read = {storage.letter: storage.container for storage in dtype.stored}
    return element_of({**read, **written}.get(name, "fp32")).bits // 8
