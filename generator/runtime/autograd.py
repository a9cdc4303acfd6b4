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
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import torch

from . import registration
from .contracts import Gradient, Operands
from .signatures import Contract, Signature

#: Gradients by the name of what they are of: None for an output without one, and for an operand that needs none.
Gradients: TypeAlias = dict[str, torch.Tensor | None]
#: Runs a chain backwards: it takes the gradients of the results, the saved operands, which gradients are needed, and
#: the dtype of the sum's gradient.
Chain: TypeAlias = Callable[[Gradients, Operands, dict[str, bool], torch.dtype], dict[str, torch.Tensor]]


def autograd(
    contract: Contract, signature: Signature, gradient: Gradient
) -> tuple[Callable[..., tuple[torch.Tensor | None, ...]], Callable[[Any, tuple[Any, ...], Any], None]]:
    """`backward` and `setup_context` of a contract's operator, for `torch.library.register_autograd`.

    `gradient` is the contract's entry. `backward` returns a gradient, or None, for each of the operator's arguments.
    """
    chain = _chain(contract, signature, gradient) if "chain" in gradient else None
    places = signature.places
    # Registered here, because torch cannot trace that.
    added: Callable[..., torch.Tensor] | None = _adder() if signature.optional else None

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = dict(zip(signature.results, output if isinstance(output, tuple) else (output,)))
        given = {"a": inputs[0], "b": inputs[1], **signature.unpacked(inputs)[0]}
        kept = {x: value for x, value in given.items() if isinstance(value, torch.Tensor)}
        needed = dict(zip(places, ctx.needs_input_grad))
        # A gradient reads the other operand.
        for x, other in (("a", "b"), ("b", "a")):
            if not needed[x] and not (chain and x == "a"):
                del kept[other]
        if "sum" in gradient:
            kept["sum"] = results[gradient["sum"]]
        ctx.save_for_backward(*kept.values())
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(results[x] for x in gradient.get("constant", ())))
        ctx.shape = results["out"].shape
        ctx.rows = inputs[0].shape[0]
        ctx.names = tuple(kept)
        ctx.numbers = {x: value for x, value in given.items() if not isinstance(value, torch.Tensor)}
        ctx.dtype = inputs[0].dtype

    def backward(ctx: Any, *incoming: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        with torch.no_grad():
            found = gradients(ctx, incoming)
        if torch.is_grad_enabled():
            tensors = [x.detach().requires_grad_() for x in found if x is not None]
            last = iter(_Last.apply(contract.shown, *tensors))  # type: ignore[no-untyped-call]
            found = [None if x is None else next(last) for x in found]
        return tuple(found)

    def gradients(ctx: Any, incoming: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor | None]:
        given: Operands = {**dict(zip(ctx.names, ctx.saved_tensors)), **ctx.numbers}
        needed: dict[str, bool] = dict(zip(places, ctx.needs_input_grad))
        grads: Gradients = dict(zip(signature.results, incoming))
        out = grads["out"]
        if out is None:
            known = next(x for x in grads.values() if x is not None)
            out = grads["out"] = known.new_zeros(()).expand(ctx.shape)
        found = {"sum": out.to(ctx.dtype).contiguous()} if chain is None else chain(grads, given, needed, ctx.dtype)
        rows, offsets = given.get("rows"), {x: value for x, value in divided(given).items() if x == "offsets"}
        if needed["a"]:
            make = of_rows if offsets else product
            found["a"] = make(gradient["a"], found["sum"], given["b"].mT, **offsets)
            if rows is not None and added is not None:
                found["a"] = added(found["a"], rows, ctx.rows)
        if needed["b"]:
            left = given["a"] if rows is None else named(given["a"], rows, turned=gradient["a"][1])
            found["b"] = product(gradient["b"], left.mT, found["sum"], **offsets)
        return [found.get(x) if needs else None for x, needs in needed.items()]

    def product(
        entry: tuple[str, bool], left: torch.Tensor, right: torch.Tensor, **offsets: torch.Tensor
    ) -> torch.Tensor:
        name, turned = entry
        # These contracts have no auxiliary outputs: they return one tensor.
        multiply: Callable[..., Any] = contract.function(name)
        found: torch.Tensor = multiply(right.mT, left.mT).mT if turned else multiply(left, right, **offsets)
        return found

    def of_rows(
        entry: tuple[str, bool], left: torch.Tensor, right: torch.Tensor, offsets: torch.Tensor
    ) -> torch.Tensor:
        name, turned = entry
        size = left.shape[0], right.shape[-1]
        zeros = left.new_zeros(size[::-1]).mT if turned else left.new_zeros(size)
        multiply: Callable[..., Any] = contract.function(name)
        found: torch.Tensor = multiply(left, right, offsets, out=zeros)
        return found

    def divided(given: Operands) -> dict[str, torch.Tensor]:
        return {x: given[x] for x in ("offsets", "rows") if x in given}

    return backward, setup


def named(a: torch.Tensor, rows: torch.Tensor, *, turned: bool) -> torch.Tensor:
    """The rows of `a` that are named, with zeros for those that it does not have; column-major as `a` if `turned`.

    `a` is (R, K), `rows` has indices, and the result is (len(rows), K).
    """
    there = (rows >= 0) & (rows < a.shape[0])
    if a.shape[0] == 0:
        return a.new_zeros((a.shape[1], len(rows))).mT if turned else a.new_zeros((len(rows), a.shape[1]))
    places = torch.where(there, rows, 0)
    found = a.mT.index_select(1, places).mT if turned else a.index_select(0, places)
    return torch.where(there[:, None], found, 0)


def _added(gradient: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    """For each of `count` rows of A the sum of the gradients of the rows for which `rows` names it, in their order."""
    # What A does not have is counted in one more row.
    places = torch.where((rows >= 0) & (rows < count), rows, count).long()
    # It sorts the places, and adds what has the same one in a fixed order, without atomic operations.
    summed: torch.Tensor = torch.ops.aten.embedding_dense_backward(gradient.contiguous(), places, count + 1, -1, False)
    return summed[:count]


def _added_shape(gradient: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    """What `_added` returns, for fake tensors."""
    return gradient.new_empty((count, gradient.shape[1]))


@functools.cache
def _adder() -> Any:
    """`_added` as an operator, because torch.compile would make atomic additions of it."""
    registration.register("added_rows(Tensor gradient, Tensor rows, SymInt count) -> Tensor", _added, _added_shape)
    return registration.operator("added_rows")


def _chain(contract: Contract, signature: Signature, gradient: Gradient) -> Chain:
    """A function that runs the contract's chain backwards by an operator."""
    name = gradient["chain"]
    # The module of such a kernel has `gradient` in place of `gemm`.
    kernel: Any = contract.load(name)
    read = ["sum"] * ("sum" in gradient)
    results = [x for x in signature.results if x not in gradient.get("constant", ())]
    parameters = [f"Tensor? grad_{x}" for x in results] + [f"Tensor {x}" for x in (*read, *signature.tensors)]
    parameters += signature.number_parameters
    names = ["sum", *signature.tensors, *signature.numbers]

    def run(*arguments: Any) -> list[torch.Tensor]:
        *operands, needed, dtype = arguments
        incoming = [f"grad_{x}" for x in results] + read + signature.tensors
        given = dict(zip(incoming, operands)) | signature.unpacked_numbers(operands[len(incoming) :])
        wanted = [x for x, needs in zip(names, needed) if needs]
        found = kernel.gradient(**given, needed=wanted, dtype=dtype)
        return [found[x] if x in found else given["grad_out"].new_empty(0) for x in names]

    registration.register(f"{name}({', '.join(parameters)}, bool[] needed, ScalarType dtype) -> Tensor[]", run, run)
    operator = registration.operator(name)

    def call(grads: Gradients, given: Operands, needed: dict[str, bool], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        arguments = [*(grads[x] for x in results), *(given[x] for x in (*read, *signature.tensors))]
        arguments += signature.packed_numbers(given)
        wanted = [needed["a"] or needed["b"], *(needed[x] for x in (*signature.tensors, *signature.numbers))]
        return dict(zip(names, operator(*arguments, wanted, dtype)))

    return call


class _Last(torch.autograd.Function):
    """Gradients of which no gradient is computed: asking for it is an error."""

    @staticmethod
    def forward(ctx: Any, name: str, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.name = name
        return tuple(x.view_as(x) for x in gradients)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor | None) -> NoReturn:
        raise RuntimeError(f"{ctx.name}: a gradient of its gradient is asked for, and none is computed")
