"""The gradients of this family's contracts, as torch's autograd calls them.

For C = f(A @ B), a kernel runs the chain f backwards: from the gradient of C and the sum S = A @ B it computes the
gradient dS of the sum, and the gradients of the chain's operands. Two products of this family follow: dA = dS @ B^T and
dB = A^T @ dS. The entry of a contract has

- `a` and `b`: the contracts of these products, each with whether its result is the transposed gradient;
- `chain`: the file of the kernel that runs the chain backwards; without one, the gradient of C is that of the sum, and
  of all that is added to it;
- `sum`: the output that is the sum, if that kernel reads it;
- `constant`: the outputs that have no gradient;
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

import copy
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from . import private
from .launch import Config, Operands, Repeat, Result, added, remember, signature_of
from .operators import Operator, without_sum
from .rows import rows_of

# Families without operands that select rows lack the module; torch cannot trace an import.
selected_rows = added("selected_rows")
placed = selected_rows and selected_rows.placed


#: What `autograd` returns.
_Functions: TypeAlias = tuple[Callable[..., tuple[Tensor | None, ...]], Callable[..., None], Callable[..., None]]
#: Made once for each contract, of which threads may have made two objects: the operator of a chain is registered once.
_made: dict[str, _Functions] = {}


def autograd(contract: Operator) -> _Functions:
    """What torch calls for the gradients of a contract, for a thread that holds `registering`: three functions.

    The first one, `backward`, returns a gradient, or None, for each of the arguments of the contract's operator. The
    second one is the `setup_context` of `torch.library.register_autograd`. The third one is the same for `a`, `b` and
    the other operands, of a layer if the last argument says so.
    """
    if contract.name not in _made:
        _made[contract.name] = _functions(contract)
    return _made[contract.name]


def _functions(contract: Operator) -> _Functions:
    gradient: Mapping[str, Any] = contract.gradient or {}
    signature = contract.signature
    chain = importlib.import_module(".chains", __package__).Chain(contract) if "chain" in gradient else None
    # Found here, because torch cannot trace the import of a kernel.
    products = {x: contract.function(gradient[x][0]) for x in ("a", "b")}
    places, results, symmetric = signature.places, signature.results, gradient.get("symmetric")
    grouped = "offsets" in signature.tensors
    # Whether the product is the transposed gradient.
    turned = {"a": gradient["a"][1] and not grouped, "b": gradient["b"][1]}
    of_sum = results.index(gradient["sum"]) if "sum" in gradient else None
    constant = [results.index(x) for x in gradient.get("constant", ())]
    sums = {} if chain or grouped else _sums(contract)
    # The signature of a backward pass -> what repeats its launches; None for one that is not repeated.
    repeats: dict[tuple[object, ...], Callable[[list[Any]], list[Tensor | None]] | None] = {}

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
            ctx.mark_non_differentiable(*[every[index] for index in constant])
        ctx.names, ctx.numbers = (*kept, *numbers), tuple(numbers.values())
        # Of an operand that is only added, no more than the type is needed, and along which dimensions it is repeated.
        ctx.types = tuple([(sums[x][operands[x].dim()], operands[x].dtype) for x in sums])
        ctx.shape, ctx.rows, ctx.dtype, ctx.of_layer = every[0].shape, a.shape[0], a.dtype, of_layer

    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(x is None for x in incoming):
            return (None,) * len(places)
        # Checkpoints let each backward pass read them once.
        saved = ctx.saved_tensors
        if "scatter" in ctx.names:
            ctx.filled = [saved[ctx.names.index(x)] for x in ("scatter", "offsets")]
        return once(contract.shown, lambda: gradients(ctx, incoming, saved), *incoming, *saved)

    def gradients(ctx: Any, incoming: tuple[Tensor | None, ...], saved: tuple[Tensor, ...]) -> list[Tensor | None]:
        values = [*incoming, *saved, *ctx.numbers]
        needs = ctx.needs_input_grad
        call_signature = None if torch.compiler.is_compiling() or private.count_modes() else signature_of(*values)
        if call_signature is not None:
            call_signature = *call_signature, needs, ctx.names, ctx.types, ctx.of_layer
            again = repeats.get(call_signature)
            if again is not None:
                return again(values)
        grads = dict(zip(results, incoming))
        given: Operands = dict(zip(ctx.names, values[len(incoming) :]))
        needed = {**dict(zip(places, needs)), "sum": needs[0] or needs[1]}
        if ctx.of_layer:
            given |= {x: viewed(given[x]) for x, viewed in (("a", rows_of), ("b", Tensor.t)) if x in given}
        of_operands = first(ctx, grads, given, needed, unseen=call_signature is not None)
        if call_signature is not None and call_signature not in repeats:
            remember(repeats, call_signature, repeated(ctx, grads, given, needed, of_operands["sum"]))
        return [of_operands.get(x) if needed[x] else None for x in places]

    def first(
        ctx: Any, grads: Mapping[str, Tensor | None], given: Operands, needed: Mapping[str, bool], *, unseen: bool
    ) -> dict[str, Any]:
        """The gradients of a backward pass, and that of the sum, by the functions of its products.

        `grads` are those of the results, `needed` says for which operands, and `unseen` that torch need not see it.
        """
        if symmetric:
            # What is below the diagonal is a copy of what is above it, and has no gradient of its own.
            grads = {x: None if y is None else y.triu() + y.tril(-1).mT for x, y in grads.items()}
        out = grads["out"]
        if out is None:
            out = next(x for x in grads.values() if x is not None).new_zeros(()).expand(ctx.shape)
        if "scatter" in given:
            # The gradients of the product's rows, where it wrote them.
            out = selected_rows.named(out, given["scatter"], turned=False)
        grads, needed = {**grads, "out": out}, {**needed, "no out": grads["out"] is None}
        grads_of = {"sum": out.to(ctx.dtype).contiguous()} if chain is None else chain.run(grads, given, needed, unseen)
        for x, (dims, dtype) in zip(sums, ctx.types):
            if needed[x]:
                grads_of[x] = _total(out, dims, dtype)
        rows = given.get("rows")
        offsets = {"offsets": given["offsets"]} if grouped else {}
        if needed["a"]:
            grads_of["a"] = product("a", grads_of["sum"], given["b"], offsets, unseen)
            if rows is not None:
                grads_of["a"] = selected_rows.added(grads_of["a"], rows, ctx.rows)
        if needed["b"]:
            a = given["a"]
            if rows is not None:
                a = selected_rows.named(a, rows, turned=gradient["a"][1])
            grads_of["b"] = product("b", grads_of["sum"], a, offsets, unseen)
        return grads_of

    def product(x: str, summed: Tensor, other: Tensor, offsets: Operands, unseen: bool) -> Tensor:
        """The gradient of `a` or `b`, by that of the sum and the other operand."""
        left, right = factors(x, summed, other)
        out = None
        if grouped and x == "a":
            # Rows in no group stay zero.
            size = left.shape[0], right.shape[-1]
            out = left.new_zeros(size[::-1]).mT if gradient["a"][1] else left.new_zeros(size)
        call = products[x].direct if unseen else products[x].seen
        gradient_of: Any = call(left, right, out, None, offsets)
        return gradient_of.mT if turned[x] else gradient_of  # type: ignore[no-any-return]

    def factors(x: str, summed: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """The operands of a product."""
        left, right = (summed, other.mT) if x == "a" else (other.mT, summed)
        return (right.mT, left.mT) if turned[x] else (left, right)

    def apart(x: str, call: Callable[..., Any], of_layer: bool, summed: Tensor, other: Tensor) -> Tensor:
        """The gradient of `a` or `b` by torch's product, with the other operand as it was kept."""
        if of_layer:
            other = rows_of(other) if x == "b" else other.t()
        gradient_of: Tensor = call(*factors(x, summed, other), None, {})
        return gradient_of.mT if turned[x] else gradient_of

    def repeated(
        ctx: Any, grads: Mapping[str, Tensor | None], given: Operands, needed: Mapping[str, bool], summed: Tensor
    ) -> Callable[[list[Any]], list[Tensor | None]] | None:
        """What repeats the launches of such a pass; None where more is done than products and sums.

        It is called with the list of `gradients`, and makes no views and finds no signature for each product.
        """
        if grouped or symmetric or grads["out"] is None or any(needed[x] for x in signature.numbers):
            return None
        launch, launched = chain.repeated(grads, given, needed) if chain else (None, {"sum": 0})
        if launch is None and (chain or summed is not grads["out"]):
            return None
        at = {x: place for place, x in enumerate([*(f"grad_{x}" for x in results), *given])}
        read = [at[x] for x in chain.read] if chain else ()
        launches: list[tuple[Callable[[Tensor, Tensor], Tensor], int, int]] = []
        for x, other in (("a", "b"), ("b", "a")):
            if needed[x]:
                call = products[x].repeated(*factors(x, summed, given[other]))
                pair = len(at), at[other]
                if not isinstance(call, Repeat):
                    if call is None:
                        return None
                    launches.append((functools.partial(apart, x, call, ctx.of_layer), *pair))
                    continue
                # `a`, `b` and `out` are in front of what the call makes, of which its result is the first.
                if call.result != 3:
                    return None
                left, right = pair if (x == "a") != turned[x] else pair[::-1]
                launches.append((_result_of(_transposed(call) if turned[x] else call), left, right))
        totals = [each for x, each in zip(sums, ctx.types) if needed[x]]
        # Where the gradients are in the list of the chain's launch, or without one that of the call.
        behind = [x for x in ("a", "b", *sums) if needed[x]]
        launched = {**launched, **{x: place - len(behind) for place, x in enumerate(behind)}}
        at_sum, places_of = launched["sum"], [launched[x] if needed[x] else None for x in places]

        def again(values: list[Any]) -> list[Tensor | None]:
            tensors = values
            if launch is not None:
                # The last operand of a chain's kernel says which gradients are needed, which its launch has fixed.
                tensors = launch.made_of([*[values[index] for index in read], None])
            values.append(tensors[at_sum])
            for product_of, left, right in launches:
                tensors.append(product_of(values[left], values[right]))
            for dims, dtype in totals:
                tensors.append(_total(values[0], dims, dtype))
            return [None if index is None else tensors[index] for index in places_of]

        return again

    return backward, setup, save


def recorder(contract: Operator) -> Callable[..., Result]:
    """A function that calls a contract with gradients, and records the call for its backward pass.

    That is by a function of torch's own for each contract: an operator takes several times as long. It is for calls
    that are not traced, transformed or seen by a mode. It raises what the contract's kernels raise.
    """
    entry = contract.gradient or {}
    if "saving" in entry:
        saving = contract.function(entry["saving"])
        return lambda a, b, out, config, operands, of_layer: without_sum(
            saving.recorded(a, b, config, operands, of_layer=of_layer, out=out)
        )
    signature, direct = contract.signature, contract.direct
    backward, _, save = autograd(contract)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor, *arguments: Any) -> Result:
            # The tensors among the operands are arguments of their own, for torch.
            *_, config, out, operands, of_layer = arguments
            product = (rows_of(a), b.t()) if of_layer else (a, b)
            result_of = direct(*product, out, config, operands)
            if out is not None:
                ctx.mark_dirty(out)
            save(ctx, a, b, operands, result_of, of_layer)
            ctx.leading = leading = a.shape[:-1] if of_layer and a.dim() > 2 else None
            if leading is not None:
                result, *others = result_of if isinstance(result_of, tuple) else (result_of,)
                # No view, so that it can be changed in place.
                result = torch.ops.aten._unsafe_view(result, (*leading, result.shape[-1]))
                result_of = (result, *others) if others else result
            return result_of

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
            out, *others = gradients
            rows = rows_of(out) if ctx.of_layer and out is not None else out
            of_a, of_b, *of_others = backward(ctx, rows, *others)
            of_out = None
            if ctx.of_layer:
                of_b = None if of_b is None else of_b.mT
                if of_a is not None and ctx.leading is not None:
                    of_a = of_a.reshape(*ctx.leading, of_a.shape[1])
            elif out is not None and ctx.needs_input_grad[-3]:
                # Of what an `out` held, whose rows the call has filled that `scatter` names.
                of_out = selected_rows.unfilled(out, *ctx.filled)
            return of_a, of_b, *of_others, of_out, None, None

    # Outside transforms of torch.func, for which the documented one looks at every argument.
    apply: Any = getattr(super(torch.autograd.Function, Recorded), "apply", Recorded.apply)

    def call(a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands, of_layer: bool) -> Result:
        result: Result = apply(*signature.packed(a, b, operands), config, out, operands, of_layer)
        return result

    return call


def _transposed(call: Repeat) -> Repeat:
    """The same launches, whose only result is seen with its last two dimensions exchanged."""
    transposed = copy.copy(call)
    (*batch, m, n), (*strides, of_m, of_n), dtype = call.allocated[0]
    transposed.allocated = [(torch.Size((*batch, n, m)), (*strides, of_n, of_m), dtype), *call.allocated[1:]]
    return transposed


def _result_of(call: Repeat) -> Callable[[Tensor, Tensor], Tensor]:
    """The launches as a function of both operands that returns the only result."""
    return lambda left, right: call.made_of([left, right, None])[3]


def _sums(contract: Operator) -> dict[str, dict[int, tuple[int, ...]]]:
    """The operands that are added to the sum, each with the dimensions of C along which one of so many is repeated."""
    table = contract.table
    whole = table.results[0].words
    return {
        x.name: {
            count: tuple([dimension for dimension, size in enumerate(whole) if size not in x.words[-count:]])
            for count in range(1, len(x.words) + 1)
        }
        for x in table.operands[2:]
        if x.shape and x.absent is None
    }


def _total(x: Tensor, dims: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in another type, added up in fp32 along some dimensions."""
    if not dims:
        return x.to(dtype)
    # In its own type torch adds up in fp32 too, and rounds once.
    return x.sum(dims) if x.dtype == dtype else x.sum(dims, dtype=torch.float32).to(dtype)


def once(
    name: str, gradients: Callable[[], Sequence[Tensor | None]], *read: Tensor | None
) -> tuple[Tensor | None, ...]:
    """What a backward pass computes of `read`: gradients of which no gradient is computed, and asking is an error."""
    if not torch.is_grad_enabled():
        return tuple(gradients())
    with torch.no_grad():
        grads_made = gradients()
    tensors = [x.detach().requires_grad_() for x in grads_made if x is not None]
    # Of these a gradient of a gradient would be, also where it is asked for of some of them alone.
    recorded = [x for x in read if x is not None and x.requires_grad]
    last = iter(_Last.apply(name, len(tensors), *tensors, *recorded))  # type: ignore[no-untyped-call]
    return tuple([None if x is None else next(last) for x in grads_made])


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
