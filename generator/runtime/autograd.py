"""The gradients of this family's contracts, as torch's autograd calls them.

For C = f(A @ B), a kernel runs the chain f backwards: from the gradient of C and the sum S = A @ B it computes the
gradient dS of the sum, and the gradients of the chain's operands. Two products of this family follow: dA = dS @ B^T and
dB = A^T @ dS. The entry of a contract has

- `a` and `b`: the contracts of these products, each with whether its result is the transposed gradient;
- `chain`: the file of the kernel that runs the chain backwards; without one, the gradient of C is that of the sum, and
  of all that is added to it;
- `sum`: the output that is the sum, if that kernel reads it;
- `saving`: the contract that returns the sum as well, for a contract that does not, and which is called in its place;
- `called`: of such a contract, the one in whose place it is called;
- `symmetric`: whether what is below the diagonal of each result is a copy of what is above it.

Rows of A that `offsets` put into groups have a gradient of such rows, of which those in no group are zero, and dB is
divided along K. The result of the first product is then the gradient, and column-major where it would be transposed.
Where `rows` names the rows of A, the gradients of those of the product are added up for each row of A, and A^T has the
rows that are named. Where `scatter` names the rows of C, the gradients of the product's rows are those of the rows that
it names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor

from . import backward_launches, chains, registration
from .chains import GradientEntry, Gradients, kinds_in_memory
from .launch import SIGNATURES, Operands, registering
from .launchable import surely
from .operators import Operator
from .rows import rows_of

# Stands for the gradient of the sum among the names of operands, of which none is empty.
_SUMMED = ""


class Autograd(NamedTuple):
    """What torch calls for the gradients of a contract.

    `backward` returns a gradient, or None, for each of the arguments of the contract's operator, and `setup` is the
    `setup_context` of `torch.library.register_autograd`. `save` is the same for `a`, `b` and the other operands, of
    a layer if the last argument says so.
    """

    backward: Callable[..., tuple[Tensor | None, ...]]
    setup: Callable[[Any, tuple[Any, ...], Any], None]
    save: Callable[[Any, Tensor, Tensor, Operands, Any, bool], None]


#: Made once for each contract, because the operator of a chain is registered once.
_made: dict[str, Autograd] = {}


def autograd(contract: Operator) -> Autograd:
    """What torch calls for the gradients of a contract."""
    with registering:
        if contract.name not in _made:
            _made[contract.name] = _functions(contract)
        return _made[contract.name]


def _functions(contract: Operator) -> Autograd:
    """What `autograd` returns."""
    gradient, signature = cast("GradientEntry", contract.gradient), contract.signature
    chain = chains.chain(contract, gradient) if "chain" in gradient else None
    # Found here, because torch cannot trace the import of a kernel.
    products = {gradient[x][0]: contract.function(gradient[x][0]) for x in ("a", "b")}
    places, results = signature.places, signature.results
    grouped = "offsets" in signature.tensors
    # Registered here, because torch cannot trace that.
    added: Callable[..., Tensor] | None = _adder() if signature.optional else None
    of_sum = results.index(gradient["sum"]) if "sum" in gradient else None
    constant = [results.index(x) for x in gradient.get("constant", ())]
    sums = {} if chain or grouped else _sums(contract)
    # The signature of a backward pass -> its launches; None for one that is not repeated.
    repeats: dict[tuple[object, ...], backward_launches.Launches | None] = {}

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save(ctx, inputs[0], inputs[1], signature.unpacked(inputs)[0], output, False)

    def save(ctx: Any, a: Tensor, b: Tensor, operands: Operands, output: Any, of_layer: bool) -> None:
        every = output if isinstance(output, tuple) else (output,)
        needed_a, needed_b, *_ = ctx.needs_input_grad
        kept: dict[str, Tensor] = {}
        # A gradient reads the other operand.
        if needed_b:
            kept["a"] = a
        if needed_a:
            kept["b"] = b
        numbers = {}
        for x, value in operands.items():
            if isinstance(value, Tensor):
                if x not in sums:
                    kept[x] = value
            elif value is not None:
                numbers[x] = value
        if of_sum is not None:
            kept["sum"] = every[of_sum]
        ctx.save_for_backward(*kept.values())
        ctx.set_materialize_grads(False)
        if constant:
            ctx.mark_non_differentiable(*[every[place] for place in constant])
        ctx.names, ctx.numbers = (*kept, *numbers), tuple(numbers.values())
        # Of an operand that is only added, no more than the type is needed.
        ctx.types = tuple([operands[x].dtype for x in sums])
        ctx.shape, ctx.rows, ctx.dtype, ctx.of_layer = every[0].shape, a.shape[0], a.dtype, of_layer

    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(x is None for x in incoming):
            return (None,) * len(places)
        # Checkpoints let each backward pass read them once.
        saved = ctx.saved_tensors
        named = dict(zip(ctx.names, saved))
        if "scatter" in named:
            ctx.filled = named["scatter"], named["offsets"]
        return once(contract.shown, lambda: gradients(ctx, incoming, saved), *incoming, *saved)

    def gradients(ctx: Any, incoming: tuple[Tensor | None, ...], saved: tuple[Tensor, ...]) -> list[Tensor | None]:
        values = [*incoming, *saved, *ctx.numbers]
        needs = ctx.needs_input_grad
        kind: tuple[object, ...] | None = kinds_in_memory(values)
        if kind is not None:
            kind = *kind, needs, ctx.names, ctx.types, ctx.of_layer, torch.are_deterministic_algorithms_enabled()
            again = repeats.get(kind)
            if again is not None:
                return again(values)
        grads: Gradients = dict(zip(results, incoming))
        given: Operands = dict(zip(ctx.names, values[len(incoming) :]))
        needed: dict[str, bool] = dict(zip(places, needs))
        if ctx.of_layer:
            given |= {x: viewed(given[x]) for x, viewed in (("a", rows_of), ("b", Tensor.t)) if x in given}
        found = first(ctx, grads, given, needed, unseen=kind is not None)
        if kind is not None and kind not in repeats:
            if len(repeats) >= SIGNATURES:
                repeats.clear()
            repeats[kind] = launches(ctx, grads, given, needed, found["sum"])
        return [found.get(x) if needs else None for x, needs in needed.items()]

    def first(ctx: Any, grads: Gradients, given: Operands, needed: dict[str, bool], *, unseen: bool) -> dict[str, Any]:
        """The gradients of a backward pass, and that of the sum, by the functions of its products."""
        if gradient.get("symmetric"):
            grads = {x: None if value is None else _of_upper(value) for x, value in grads.items()}
        out = grads["out"]
        if out is None:
            known = next(x for x in grads.values() if x is not None)
            out = known.new_zeros(()).expand(ctx.shape)
            grads = {**grads, "out": out}
        if "scatter" in given:
            # The gradients of the product's rows, where it wrote them.
            out = named(out, given["scatter"], turned=False)
            grads = {**grads, "out": out}
        found = {"sum": out.to(ctx.dtype).contiguous()} if chain is None else chain.run(grads, given, needed, unseen)
        for (x, dims), dtype in zip(sums.items(), ctx.types):
            if needed[x]:
                found[x] = backward_launches.total(out, dims, dtype)
        rows = given.get("rows")
        offsets = {"offsets": given["offsets"]} if grouped else {}
        if needed["a"]:
            make = of_rows if grouped else product
            found["a"] = make(gradient["a"], found["sum"], given["b"].mT, offsets, unseen)
            if rows is not None and added is not None:
                found["a"] = added(found["a"], rows, ctx.rows)
        if needed["b"]:
            left = given["a"] if rows is None else named(given["a"], rows, turned=gradient["a"][1])
            found["b"] = product(gradient["b"], left.mT, found["sum"], offsets, unseen)
        return found

    def launches(
        ctx: Any, grads: Gradients, given: Operands, needed: dict[str, bool], summed: Any
    ) -> backward_launches.Launches | None:
        """The launches of such a backward pass; None where more is done than they do."""
        if grouped or gradient.get("symmetric") or grads["out"] is None or any(needed[x] for x in signature.numbers):
            return None
        if chain is not None:
            launch, made = chain.repeated(grads, given, needed)
            if launch is None:
                return None
        elif summed is grads["out"]:
            launch, made = None, {"sum": results.index("out")}
        else:
            return None
        names = [*(f"grad_{x}" for x in results), *given, _SUMMED]
        calls = {}
        for x in ("a", "b"):
            if needed[x]:
                name, turned = gradient[x]
                left, right = (summed, given["b"].mT) if x == "a" else (given["a"].mT, summed)
                read = (_SUMMED, "b") if x == "a" else ("a", _SUMMED)
                call = products[name].repeated(*_oriented(left, right, turned))
                calls[x] = call, *(read[::-1] if turned else read), turned
        place = results.index("out")
        totals = {x: (place, dims, dtype) for (x, dims), dtype in zip(sums.items(), ctx.types) if needed[x]}
        return backward_launches.launches(launch, made, names, chain.read if chain else (), calls, totals, needed)

    def product(entry: tuple[str, bool], left: Tensor, right: Tensor, offsets: Operands, unseen: bool) -> Tensor:
        name, turned = entry
        left, right = _oriented(left, right, turned)
        # These contracts have no auxiliary outputs: they return one tensor.
        found: Any = (
            products[name].direct(left, right, None, None, offsets)
            if unseen
            else products[name](left, right, **offsets)
        )
        return found.mT if turned else found  # type: ignore[no-any-return]

    def of_rows(entry: tuple[str, bool], left: Tensor, right: Tensor, offsets: Operands, unseen: bool) -> Tensor:
        name, turned = entry
        size = left.shape[0], right.shape[-1]
        zeros = left.new_zeros(size[::-1]).mT if turned else left.new_zeros(size)
        if unseen:
            products[name].direct(left, right, zeros, None, offsets)
        else:
            products[name](left, right, **offsets, out=zeros)
        return zeros

    return Autograd(backward, setup, save)


def _oriented(left: Tensor, right: Tensor, turned: bool) -> tuple[Tensor, Tensor]:
    """The operands of a product, or those of its transposed."""
    return (right.mT, left.mT) if turned else (left, right)


def _sums(contract: Operator) -> dict[str, tuple[int, ...]]:
    """The operands that are added to the sum, each with the dimensions of C along which it is repeated."""
    table = contract.table
    whole = table.results[0].words
    return {
        x.name: tuple([place for place, size in enumerate(whole) if size not in x.words])
        for x in table.operands[2:]
        if x.shape and x.absent is None
    }


def _of_upper(gradient: Tensor) -> Tensor:
    """The gradient of what is on and above the diagonal, of which what is below is a copy: zero below."""
    return gradient.triu() + gradient.tril(-1).mT


def named(a: Tensor, rows: Tensor, *, turned: bool) -> Tensor:
    """The rows of `a` that are named, with zeros for those that it does not have; column-major as `a` if `turned`.

    `a` is (R, K), `rows` has indices, and the result is (len(rows), K).
    """
    there = (rows >= 0) & (rows < a.shape[0])
    if surely(a.shape[0] == 0):
        return a.new_zeros((a.shape[1], rows.shape[0])).mT if turned else a.new_zeros((rows.shape[0], a.shape[1]))
    places = torch.where(there, rows, 0)
    found = a.mT.index_select(1, places).mT if turned else a.index_select(0, places)
    return torch.where(there[:, None], found, 0)


def places_of(scatter: Tensor, offsets: Tensor, rows: int) -> Tensor:
    """The row of C for each row of the product, int64; `rows`, behind the last one, where that is not written.

    Rows past the last end are not, and nor are those for which `scatter` names no row of C.
    """
    ends = torch.cat([offsets.new_zeros(1), offsets.clamp(0, scatter.shape[0])])
    there = (scatter >= 0) & (scatter < rows) & (torch.arange(scatter.shape[0], device=scatter.device) < ends.max())
    return torch.where(there, scatter, rows).long()


def unfilled(gradient: Tensor, scatter: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of a C whose rows a call fills as `scatter` says: that of what it was then, zero in those rows."""
    places = places_of(scatter, offsets, gradient.shape[0])
    filled = torch.zeros(gradient.shape[0] + 1, dtype=torch.bool, device=gradient.device).index_fill(0, places, True)
    return gradient.masked_fill(filled[:-1, None], 0)


def placed(out: Tensor, found: Tensor, scatter: Tensor, offsets: Tensor) -> Tensor:
    """`out` with the rows of a product written as `scatter` says, by operations of torch, which know its gradient."""
    more = torch.cat([out, out.new_zeros(1, out.shape[1])])
    return out.copy_(more.index_copy(0, places_of(scatter, offsets, out.shape[0]), found)[:-1])


def _added(gradient: Tensor, rows: Tensor, count: int) -> Tensor:
    """For each of `count` rows of A the sum of the gradients of the rows for which `rows` names it, in their order."""
    # What A does not have is counted in one more row.
    places = torch.where((rows >= 0) & (rows < count), rows, count).long()
    # It sorts the places, and adds what has the same one in a fixed order, without atomic operations.
    summed: Tensor = torch.ops.aten.embedding_dense_backward(gradient.contiguous(), places, count + 1, -1, False)
    return summed[:count]


def _added_shape(gradient: Tensor, rows: Tensor, count: int) -> Tensor:
    """What `_added` returns, for fake tensors."""
    return gradient.new_empty((count, gradient.shape[1]))


@functools.cache
def _adder() -> Any:
    """`_added` as an operator, because torch.compile would make atomic additions of it."""
    registration.register("added_rows(Tensor gradient, Tensor rows, SymInt count) -> Tensor", _added, _added_shape)
    registration.loop_over_batch("added_rows")
    return registration.operator("added_rows")


def once(
    name: str, gradients: Callable[[], Sequence[Tensor | None]], *read: Tensor | None
) -> tuple[Tensor | None, ...]:
    """What a backward pass computes of `read`: gradients of which no gradient is computed, and asking is an error."""
    if not torch.is_grad_enabled():
        return tuple(gradients())
    with torch.no_grad():
        found = gradients()
    tensors = [x.detach().requires_grad_() for x in found if x is not None]
    # Of these a gradient of a gradient would be, also where it is asked for of some of them alone.
    recorded = [x for x in read if x is not None and x.requires_grad]
    last = iter(_Last.apply(name, len(tensors), *tensors, *recorded))  # type: ignore[no-untyped-call]
    return tuple([None if x is None else next(last) for x in found])


class _Last(torch.autograd.Function):
    """Gradients of which no gradient is computed: asking for it is an error."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The first `count` tensors, the gradients; the others are what they were computed of."""
        ctx.name = name
        return tuple(x.view_as(x) for x in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> NoReturn:
        raise RuntimeError(f"{ctx.name}: a gradient of its gradient is asked for, and none is computed")
