"""The kernels that run the chain of a contract backwards, as torch's autograd and its operators call them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict

import torch
from torch import Tensor

from . import private, registration
from .launch import Operands, Repeat, distinct, kind_of, remember, started
from .launchable import is_fake, is_plain
from .operators import Operator
from .private import as_plain

#: Gradients by the name of what they are of: None for an output without one, and for an operand that needs none.
Gradients: TypeAlias = dict[str, Tensor | None]


class GradientEntry(TypedDict, total=False):
    """The entry of a contract."""

    a: tuple[str, bool]
    b: tuple[str, bool]
    chain: str
    sum: str
    saving: str
    called: str
    constant: Collection[str]
    symmetric: bool


class Chain(NamedTuple):
    """Runs a chain backwards.

    `run` takes the gradients of the results, the saved operands, which gradients are needed, and whether torch need not
    see the call. `repeated` returns, for the same but the last, the launch that a call has cached, or None, and the
    place of each gradient among its tensors. `read` are the names of what the launch reads.
    """

    run: Callable[[Gradients, Operands, dict[str, bool], bool], dict[str, Any]]
    repeated: Callable[[Gradients, Operands, dict[str, bool]], tuple[Repeat | None, dict[str, int]]]
    read: list[str]


def chain(contract: Operator, gradient: GradientEntry) -> Chain:
    """A function that runs the contract's chain backwards by an operator."""
    name, signature = gradient["chain"], contract.signature
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
        made = chained({**given, "needed": [x for x, needs in zip(names, needed) if needs]})
        empty = given["grad_out"].new_empty
        every = tuple([empty(0) if made.get(x) is None else made[x] for x in names])
        return every if len(every) > 1 else every[0]

    def chained(given: Operands) -> dict[str, Any]:
        """The gradients that are needed, and None for others."""
        made = dict(zip(of, launched(given)))
        for x in signature.numbers:
            if x in given["needed"]:
                # The gradient of a number is in fp32, and on the device.
                made[x] = made[x].to(given[x]).reshape(given[x].shape)
        return made

    cached: dict[tuple[object, ...], Repeat] = {}

    def of_launch(given: Operands) -> tuple[object, ...]:
        """The signature of a launch."""
        return (*given["needed"], *map(kind_of, given.values()))

    def launched(given: Operands) -> Sequence[Tensor | None]:
        """The results, by a launch that is repeated for operands of the same shapes, strides, types and alignment."""
        if is_fake(given["grad_out"]):
            # Fake tensors: the results alone are made.
            return list(table.plan(**given).results.values())
        kind = of_launch(given)
        call = cached.get(kind)
        if call is not None:
            tensors = call.made_of([*given.values()])
            return [None if place < 0 else tensors[place] for place in call.results]
        given = distinct(given)
        plan = table.plan(**given)
        call = started(table, plan, given, given["grad_out"])
        if call is not None and table.repeats(given):
            remember(cached, kind, call)
        return list(plan.results.values())

    # Single tensors, no list: what loops over a batch of gradients, as for a Jacobian, takes no other results.
    returned = f"({', '.join(['Tensor'] * len(names))})" if len(names) > 1 else "Tensor"
    registration.register(f"{name}({', '.join(parameters)}, bool[] needed) -> {returned}", run, run)
    registration.loop_over_batch(name)
    operator = registration.operator(name)
    shapes = {x.name: x.words for x in table.operands}
    numbers = [part for x in signature.numbers for part in (x, f"{x}_number")]
    sharding = contract.sharding
    if sharding is not None:
        # What is added up over rows or columns is added up over devices.
        made_of = [shapes.get("sum", shapes["grad_out"]), *(shapes.get(x, ()) for x in names[1:])]
        given = [*incoming, *tensors, *numbers, "needed"]
        sharding.later(sharding.Divisible(name, given, shapes, made_of, (), ("B", "M", "N")))

    def wanted(needed: dict[str, bool]) -> list[bool]:
        return [needed["a"] or needed["b"], *[needed[x] for x in names[1:]]]

    def read_of(grads: Gradients, given: Operands, needs: list[bool]) -> Operands:
        """What a launch is given."""
        read = {name: grads[x] for name, x in incoming.items()}
        read |= {x: given[x] for x in (*tensors, *signature.numbers)}
        return {**read, "needed": [x for x, wanted in zip(names, needs) if wanted]}

    def call(grads: Gradients, given: Operands, needed: dict[str, bool], unseen: bool) -> dict[str, Any]:
        needs = wanted(needed)
        if unseen:
            return chained(read_of(grads, given, needs))
        arguments = [*(grads[x] for x in results), *(given[x] for x in tensors), *signature.packed_numbers(given)]
        if sharding is not None and sharding.sharded(arguments):
            # DTensor takes the shapes of one call for those of others, whatever is needed.
            needs = [True] * (1 + len(signature.tensors)) + needs[1 + len(signature.tensors) :]
        made = operator(*arguments, needs)
        return dict(zip(names, made if len(names) > 1 else (made,)))

    def repeated(grads: Gradients, given: Operands, needed: dict[str, bool]) -> tuple[Repeat | None, dict[str, int]]:
        launch = cached.get(of_launch(read_of(grads, given, wanted(needed))))
        return launch, {} if launch is None else dict(zip(of, launch.results))

    return Chain(call, repeated, [*incoming, *tensors, *signature.numbers])


def kinds_in_memory(values: Sequence[Any]) -> tuple[object, ...] | None:
    """The signature of tensors and numbers with which a kernel can be launched as they are.

    None where a mode, a trace or a transform of torch sees the call.
    """
    if torch.compiler.is_compiling() or private.count_modes():
        return None
    try:
        for x in values:
            if isinstance(x, Tensor) and (not is_plain(x) or x.is_neg()):
                return None
        return tuple([kind_of(x) for x in values])
    except RuntimeError:
        # It belongs to a batch of torch.vmap, and has no address.
        return None
