"""The gradients of this family's contracts, as torch's autograd calls them.

For C = f(A @ B), a kernel runs the chain f backwards: from the gradient of C and the sum S = A @ B it computes the
gradient dS of the sum, and the gradients of the chain's operands. Two products of this family follow: dA = dS @ B^T and
dB = A^T @ dS. The entry of a contract has

- `a` and `b`: the contracts of these products, each with whether its result is the transposed gradient;
- `chain`: the file of the kernel that runs the chain backwards, if there is a chain;
- `sum`: the output that is the sum, if that kernel reads it;
- `saving`: the contract that returns the sum as well, for a contract that does not, and which is called in its place;
- `called`: of such a contract, the one in whose place it is called.

Rows of A that `offsets` put into groups have a gradient of such rows, of which those in no group are zero, and dB is
divided along K. The result of the first product is then the gradient, and column-major where it would be transposed.
Where `rows` names the rows of A, the gradients of those of the product are added up for each row of A, and A^T has the
rows that are named.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypedDict, cast

import torch
from torch import Tensor

from . import cached_launch, private, registration, sharding
from .call_signatures import SIGNATURES, kind_of
from .contracts import Operands, registering
from .launchable import as_plain, is_fake, is_plain
from .signatures import Contract, Signature

#: Gradients by the name of what they are of: None for an output without one, and for an operand that needs none.
Gradients: TypeAlias = dict[str, Tensor | None]
#: Runs a chain backwards: it takes the gradients of the results, the saved operands, which gradients are needed, and
#: whether torch need not see the call.
Chain: TypeAlias = Callable[[Gradients, Operands, dict[str, bool], bool], dict[str, Any]]


class GradientEntry(TypedDict, total=False):
    """The entry of a contract."""

    a: tuple[str, bool]
    b: tuple[str, bool]
    chain: str
    sum: str
    saving: str
    called: str
    constant: Collection[str]


class Autograd(NamedTuple):
    """What torch calls for the gradients of a contract.

    `backward` returns a gradient, or None, for each of the arguments of the contract's operator, and `setup` is the
    `setup_context` of `torch.library.register_autograd`. `save` is the same for `a`, `b` and the other operands.
    """

    backward: Callable[..., tuple[Tensor | None, ...]]
    setup: Callable[[Any, tuple[Any, ...], Any], None]
    save: Callable[[Any, Tensor, Tensor, Operands, Any], None]


#: Made once for each contract, because the operator of a chain is registered once.
_made: dict[str, Autograd] = {}


def autograd(contract: Contract, signature: Signature, entry: Mapping[str, Any]) -> Autograd:
    """What torch calls for the gradients of a contract, whose entry is `entry`."""
    with registering:
        if contract.name not in _made:
            _made[contract.name] = _functions(contract, signature, cast("GradientEntry", entry))
        return _made[contract.name]


def _functions(contract: Contract, signature: Signature, gradient: GradientEntry) -> Autograd:
    """What `autograd` returns."""
    chain = _chain(contract, signature, gradient) if "chain" in gradient else None
    # Found here, because torch cannot trace the import of a kernel.
    products = {gradient[x][0]: contract.function(gradient[x][0]) for x in ("a", "b")}
    places, results = signature.places, signature.results
    grouped = "offsets" in signature.tensors
    # Registered here, because torch cannot trace that.
    added: Callable[..., Tensor] | None = _adder() if signature.optional else None
    of_sum = results.index(gradient["sum"]) if "sum" in gradient else None
    constant = [results.index(x) for x in gradient.get("constant", ())]

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save(ctx, inputs[0], inputs[1], signature.unpacked(inputs)[0], output)

    def save(ctx: Any, a: Tensor, b: Tensor, operands: Operands, output: Any) -> None:
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
                kept[x] = value
            elif value is not None:
                numbers[x] = value
        if of_sum is not None:
            kept["sum"] = every[of_sum]
        ctx.save_for_backward(*kept.values())
        ctx.set_materialize_grads(False)
        if constant:
            ctx.mark_non_differentiable(*[every[place] for place in constant])
        ctx.names, ctx.numbers = tuple(kept), numbers
        ctx.shape, ctx.rows, ctx.dtype = every[0].shape, a.shape[0], a.dtype

    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        if all([x is None for x in incoming]):
            return (None,) * len(places)
        if not torch.is_grad_enabled():
            return tuple(gradients(ctx, incoming))
        with torch.no_grad():
            found = gradients(ctx, incoming)
        tensors = [x.detach().requires_grad_() for x in found if x is not None]
        # Of these a gradient of a gradient would be, also where it is asked for of some of them alone.
        read = [x for x in (*incoming, *ctx.saved_tensors) if x is not None and x.requires_grad]
        last = iter(_Last.apply(contract.shown, len(tensors), *tensors, *read))  # type: ignore[no-untyped-call]
        return tuple([None if x is None else next(last) for x in found])

    def gradients(ctx: Any, incoming: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        given: Operands = {**dict(zip(ctx.names, ctx.saved_tensors)), **ctx.numbers}
        needed: dict[str, bool] = dict(zip(places, ctx.needs_input_grad))
        grads: Gradients = dict(zip(results, incoming))
        out = grads["out"]
        if out is None:
            known = next(x for x in incoming if x is not None)
            out = grads["out"] = known.new_zeros(()).expand(ctx.shape)
        # Torch need not see a call that it neither traces nor transforms.
        unseen = _in_memory([*incoming, *given.values()])
        found = {"sum": out.to(ctx.dtype).contiguous()} if chain is None else chain(grads, given, needed, unseen)
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
        return [found.get(x) if needs else None for x, needs in needed.items()]

    def product(entry: tuple[str, bool], left: Tensor, right: Tensor, offsets: Operands, unseen: bool) -> Tensor:
        name, turned = entry
        if turned:
            left, right = right.mT, left.mT
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


def named(a: Tensor, rows: Tensor, *, turned: bool) -> Tensor:
    """The rows of `a` that are named, with zeros for those that it does not have; column-major as `a` if `turned`.

    `a` is (R, K), `rows` has indices, and the result is (len(rows), K).
    """
    there = (rows >= 0) & (rows < a.shape[0])
    if a.shape[0] == 0:
        return a.new_zeros((a.shape[1], len(rows))).mT if turned else a.new_zeros((len(rows), a.shape[1]))
    places = torch.where(there, rows, 0)
    found = a.mT.index_select(1, places).mT if turned else a.index_select(0, places)
    return torch.where(there[:, None], found, 0)


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


def _chain(contract: Contract, signature: Signature, gradient: GradientEntry) -> Chain:
    """A function that runs the contract's chain backwards by an operator."""
    name = gradient["chain"]
    table: Any = contract.load(name).CALL
    read = ["sum"] * ("sum" in gradient)
    results = [x for x in signature.results if x not in gradient.get("constant", ())]
    parameters = [f"Tensor? grad_{x}" for x in results] + [f"Tensor {x}" for x in (*read, *signature.tensors)]
    parameters += signature.number_parameters
    names = ["sum", *signature.tensors, *signature.numbers]
    incoming = {f"grad_{x}": x for x in results}
    tensors, of = [*read, *signature.tensors], [x.of for x in table.results]

    def run(*arguments: Any) -> Tensor | tuple[Tensor, ...]:
        *operands, needed = [as_plain(x) for x in arguments]
        given = dict(zip([*incoming, *tensors], operands))
        given |= signature.unpacked_numbers(operands[len(given) :])
        made = chained(given, [x for x, needs in zip(names, needed) if needs])
        empty = given["grad_out"].new_empty
        every = tuple([empty(0) if made.get(x) is None else made[x] for x in names])
        return every if len(every) > 1 else every[0]

    def chained(given: Operands, wanted: list[str]) -> dict[str, Any]:
        """The gradients that are wanted, and None for others."""
        made = dict(zip(of, launched({**given, "needed": wanted})))
        for x in signature.numbers:
            if x in wanted:
                # The gradient of a number is in fp32, and on the device.
                made[x] = made[x].to(given[x]).reshape(given[x].shape)
        return made

    cached: dict[tuple[object, ...], cached_launch.Repeat] = {}

    def launched(given: Operands) -> Sequence[Tensor | None]:
        """The results, by a launch that is repeated for operands of the same shapes, strides, types and alignment."""
        if is_fake(given["grad_out"]):
            # Fake tensors: the results alone are made.
            return list(table.plan(**given).results.values())
        kind = (*given["needed"], *map(kind_of, given.values()))
        call = cached.get(kind)
        if call is not None:
            tensors = call.made_of([*given.values()])
            return [None if place < 0 else tensors[place] for place in call.results]
        plan = table.plan(**given)
        call = cached_launch.started(table, plan, given, given["grad_out"])
        if call is not None and table.repeats(given):
            if len(cached) >= SIGNATURES:
                cached.clear()
            cached[kind] = call
        return list(plan.results.values())

    # Single tensors, no list: what loops over a batch of gradients, as for a Jacobian, takes no other results.
    returned = f"({', '.join(['Tensor'] * len(names))})" if len(names) > 1 else "Tensor"
    registration.register(f"{name}({', '.join(parameters)}, bool[] needed) -> {returned}", run, run)
    registration.loop_over_batch(name)
    operator = registration.operator(name)
    shapes = {x.name: x.shape for x in table.operands}
    numbers = [part for x in signature.numbers for part in (x, f"{x}_number")]
    # What is added up over rows or columns is added up over devices.
    made_of = [shapes.get("sum", shapes["grad_out"]), *(shapes.get(x, ()) for x in names[1:])]
    sharding.later(
        sharding.Divisible(name, [*incoming, *tensors, *numbers, "needed"], shapes, made_of, (), ("B", "M", "N"))
    )

    def call(grads: Gradients, given: Operands, needed: dict[str, bool], unseen: bool) -> dict[str, Any]:
        needs = [needed["a"] or needed["b"], *(needed[x] for x in names[1:])]
        if unseen:
            read = {name: grads[x] for name, x in incoming.items()}
            read |= {x: given[x] for x in (*tensors, *signature.numbers)}
            return chained(read, [x for x, wanted in zip(names, needs) if wanted])
        arguments = [*(grads[x] for x in results), *(given[x] for x in tensors), *signature.packed_numbers(given)]
        if sharding.sharded(arguments):
            # DTensor takes the shapes of one call for those of others, whatever is needed.
            needs = [True] * (1 + len(signature.tensors)) + needs[1 + len(signature.tensors) :]
        made = operator(*arguments, needs)
        return dict(zip(names, made if len(names) > 1 else (made,)))

    return call


def _in_memory(arguments: Sequence[Any]) -> bool:
    """Whether a kernel can be launched with these tensors as they are: no mode, trace or transform of torch sees it."""
    if torch.compiler.is_compiling() or private.count_modes():
        return False
    try:
        for x in arguments:
            if isinstance(x, Tensor):
                if not is_plain(x) or x.is_neg():
                    return False
                x.data_ptr()
        return True
    except RuntimeError:
        # It belongs to a batch of torch.vmap.
        return False


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
