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
from .operators import Operator
from .rows import rows_of

# Families without operands that select rows lack the module; torch cannot trace an import.
selected_rows = added("selected_rows")


#: What `autograd` returns.
_Functions: TypeAlias = tuple[Callable[..., tuple[Tensor | None, ...]], Callable[..., None], Callable[..., None]]
#: A step of a backward pass: it makes gradients of what is given, by name.
_Step: TypeAlias = Callable[[Operands, Operands], None]
#: The operands of a product, each with the one that its gradient reads.
_OTHER = {"a": "b", "b": "a"}
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
    places, results, symmetric = [*signature.places, "config"], signature.results, gradient.get("symmetric")
    grouped = "offsets" in signature.tensors
    # Whether the product is the transposed gradient.
    turned = {"a": gradient["a"][1] and not grouped, "b": gradient["b"][1]}
    of_sum = results.index(gradient["sum"]) if "sum" in gradient else None
    constant = [results.index(x) for x in gradient.get("constant", ())]
    sums = {} if chain or grouped else _sums(contract)
    incoming_names = [f"grad_{x}" for x in results]
    # The signature of a backward pass -> the steps that repeat its launches; none for one that is not repeated.
    repeats: dict[tuple[object, ...], list[_Step]] = {}

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        operands, _ = signature.unpacked(inputs)
        save(ctx, operands.pop("a"), operands.pop("b"), operands, output, False)

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
        given: Operands = dict(zip((*incoming_names, *ctx.names), (*incoming, *saved, *ctx.numbers)))
        made: Operands = {}
        needs = ctx.needs_input_grad
        known = None if torch.compiler.is_compiling() or private.count_modes() else signature_of(*given.values())
        if known is not None:
            known = *known, needs, ctx.names, ctx.types, ctx.of_layer
            steps = repeats.get(known)
            if steps:
                for step in steps:
                    step(given, made)
                return [made.get(x) for x in places]
        needed = {**dict(zip(places, needs)), "sum": needs[0] or needs[1], "no out": given["grad_out"] is None}
        first(ctx, {**given}, made, needed, unseen=known is not None)
        if known is not None and known not in repeats:
            remember(repeats, known, repeated(ctx, given, made, needed))
        return [made.get(x) if needed[x] else None for x in places]

    def first(ctx: Any, given: Operands, made: Operands, needed: Mapping[str, bool], *, unseen: bool) -> None:
        """Make the gradients that are `needed`, and that of the sum, by the functions of the products.

        `given` are the gradients of the results and what was saved; `unseen`: torch need not see the calls.
        """
        if symmetric:
            # What is below the diagonal is a copy of what is above it, and has no gradient of its own.
            given |= {x: given[x].triu() + given[x].tril(-1).mT for x in incoming_names if given[x] is not None}
        out = given["grad_out"]
        if out is None:
            out = next(given[x] for x in incoming_names if given[x] is not None).new_zeros(()).expand(ctx.shape)
        if "scatter" in given:
            # The gradients of the product's rows, where it wrote them.
            out = selected_rows.named(out, given["scatter"], turned=False)
        given["grad_out"] = out
        made |= {"sum": out.to(ctx.dtype).contiguous()} if chain is None else chain.run(given, needed, unseen)
        for x, (dims, dtype) in zip(sums, ctx.types):
            if needed[x]:
                _add_up(x, dims, dtype, given, made)
        rows = given.get("rows")
        offsets = {"offsets": given["offsets"]} if grouped else {}
        for x, other in _OTHER.items():
            if not needed[x]:
                continue
            factor = given[other]
            if rows is not None and x == "b":
                factor = selected_rows.named(factor, rows, turned=gradient["a"][1])
            left, right = factors(x, made["sum"], factor, ctx.of_layer)
            filled = None
            if grouped and x == "a":
                # Rows in no group stay zero.
                size = left.shape[0], right.shape[-1]
                filled = left.new_zeros(size[::-1]).mT if gradient["a"][1] else left.new_zeros(size)
            call = products[x].direct if unseen else products[x].seen
            gradient_of: Any = call(left, right, filled, None, offsets)
            made[x] = gradient_of.mT if turned[x] else gradient_of
            if rows is not None and x == "a":
                made[x] = selected_rows.added(made[x], rows, ctx.rows)

    def factors(x: str, summed: Tensor, other: Tensor, of_layer: bool) -> tuple[Tensor, Tensor]:
        """The operands of a product, by the gradient of the sum and the other operand as it was saved."""
        if of_layer:
            other = rows_of(other) if x == "b" else other.t()
        left, right = (summed, other.mT) if x == "a" else (other.mT, summed)
        return (right.mT, left.mT) if turned[x] else (left, right)

    def repeated(ctx: Any, given: Operands, made: Operands, needed: Mapping[str, bool]) -> list[_Step]:
        """What repeats the launches of such a pass; nothing where more is done than products and sums.

        The steps make no views and find no signature for each product.
        """
        if grouped or symmetric or needed["no out"] or any(needed[x] for x in signature.numbers):
            return []
        same = _same_sum if made["sum"] is given["grad_out"] else None
        steps = [chain.repeated(given, needed) if chain else same]
        steps += [functools.partial(_add_up, x, *of) for x, of in zip(sums, ctx.types) if needed[x]]
        steps += [product(x, other, ctx.of_layer, given, made) for x, other in _OTHER.items() if needed[x]]
        known = [step for step in steps if step is not None]
        return known if len(known) == len(steps) else []

    def product(x: str, other: str, of_layer: bool, given: Operands, made: Operands) -> _Step | None:
        """What repeats the product that is the gradient of `a` or `b`, with the other operand as it was saved."""
        call = products[x].repeated(*factors(x, made["sum"], given[other], of_layer))
        if call is not None and not isinstance(call, Repeat):

            def apart(given: Operands, made: Operands) -> None:
                gradient_of: Any = call(*factors(x, made["sum"], given[other], of_layer), None, {})
                made[x] = gradient_of.mT if turned[x] else gradient_of

            return apart
        # `a`, `b` and `out` are in front of what the call makes, of which its result is the first.
        if call is None or call.result != 3:
            return None
        launches = _transposed(call) if turned[x] else call
        exchanged = (x == "a") == turned[x]

        def again(given: Operands, made: Operands) -> None:
            left, right = (given[other], made["sum"]) if exchanged else (made["sum"], given[other])
            made[x] = launches.made_of([left, right, None])[3]

        return again

    return backward, setup, save


def recorder(contract: Operator) -> Callable[..., Result]:
    """A function that calls a contract with gradients, and records the call for its backward pass.

    That is by a function of torch's own for each contract: an operator takes several times as long. It is for calls
    that are not traced, transformed or seen by a mode. It raises what the contract's kernels raise.
    """
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
        result: Result = apply(*signature.packed({"a": a, "b": b, **operands}), config, out, operands, of_layer)
        return result

    return call


def _transposed(call: Repeat) -> Repeat:
    """The same launches, whose only result is seen with its last two dimensions exchanged."""
    transposed = copy.copy(call)
    (*batch, m, n), (*strides, of_m, of_n), dtype = call.allocated[0]
    transposed.allocated = [(torch.Size((*batch, n, m)), (*strides, of_n, of_m), dtype), *call.allocated[1:]]
    return transposed


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


def _add_up(x: str, dims: tuple[int, ...], dtype: torch.dtype, given: Operands, made: Operands) -> None:
    """Make the gradient of an operand that is added: that of the result, added up in fp32 along some dimensions."""
    out: Tensor = given["grad_out"]
    # In its own type torch adds up in fp32 too, and rounds once.
    if dims and out.dtype == dtype:
        made[x] = out.sum(dims)
    else:
        made[x] = (out.sum(dims, dtype=torch.float32) if dims else out).to(dtype)


def _same_sum(given: Operands, made: Operands) -> None:
    """Take the gradient of the result as that of the sum."""
    made["sum"] = given["grad_out"]


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
