"""The kernels that run the chain of a contract backwards, as torch's autograd and its operators call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from . import registration
from .launch import Operands, Repeat, distinct, remember, signature_of, started
from .launchable import is_fake
from .operators import Operator
from .private import as_plain

#: Gradients of results by their names, and whether that of an operand is needed.
_Gradients: TypeAlias = Mapping[str, Tensor | None]
_Needed: TypeAlias = Mapping[str, bool]


class Chain(NamedTuple):
    """Runs a chain backwards.

    `run` takes the gradients of the results, the saved operands, whether each one's gradient is needed, that of the sum
    as "sum", and whether torch need not see the call. `repeated` returns, for the same but the last, the launch that a
    call has cached, or None, and the place of each gradient among its tensors. `read` are the names of what the launch
    reads.
    """

    run: Callable[[_Gradients, Operands, _Needed, bool], dict[str, Any]]
    repeated: Callable[[_Gradients, Operands, _Needed], tuple[Repeat | None, dict[str, int]]]
    read: list[str]


def chain(contract: Operator) -> Chain:
    """What runs the contract's chain backwards, where torch must see it by an operator."""
    gradient: Mapping[str, Any] = contract.gradient or {}
    name, signature, sharding = gradient["chain"], contract.signature, contract.sharding
    table: Any = contract.load(name).CALL
    incoming = {f"grad_{x}": x for x in signature.results if x not in gradient.get("constant", ())}
    tensors, of = [*["sum"] * ("sum" in gradient), *signature.tensors], [x.of for x in table.results]
    names = ["sum", *signature.tensors, *signature.numbers]
    cached: dict[tuple[object, ...], Repeat] = {}

    def run(*arguments: Any) -> Tensor | tuple[Tensor, ...]:
        *operands, needed = [as_plain(x) for x in arguments]
        given = dict(zip([*incoming, *tensors], operands))
        given |= signature.unpacked_numbers(operands[len(given) :])
        made = launched({**given, "needed": [x for x, needs in zip(names, needed) if needs]})
        empty = given["grad_out"].new_empty
        every = tuple([empty(0) if made.get(x) is None else made[x] for x in names])
        return every if len(every) > 1 else every[0]

    def kind(given: Operands) -> tuple[object, ...] | None:
        """The signature of a launch, or None."""
        found = signature_of(*[x for name, x in given.items() if name != "needed"])
        return found and (*given["needed"], *found)

    def launched(given: Operands) -> dict[str, Any]:
        """The gradients that are needed, and None for others.

        A launch is repeated for operands of the same shapes, strides, types and alignment.
        """
        # Of fake tensors the results alone are made.
        known = None if is_fake(given["grad_out"]) else kind(given)
        call = None if known is None else cached.get(known)
        if call is not None:
            found = call.made_of([*given.values()])
            made: dict[str, Any] = {x: None if place < 0 else found[place] for x, place in zip(of, call.results)}
        else:
            given = distinct(given)
            plan = table.plan(**given)
            call = started(table, plan, given, given["grad_out"])
            if known is not None and call is not None and table.repeats(given):
                remember(cached, known, call)
            made = dict(zip(of, plan.results.values()))
        for x in signature.numbers:
            if x in given["needed"]:
                # The gradient of a number is in fp32, and on the device.
                made[x] = made[x].to(given[x]).reshape(given[x].shape)
        return made

    # Single tensors, no list: what loops over a batch of gradients, as for a Jacobian, takes no other results.
    returned = f"({', '.join(['Tensor'] * len(names))})" if len(names) > 1 else "Tensor"
    parameters = [*(f"Tensor? {x}" for x in incoming), *(f"Tensor {x}" for x in tensors), *signature.number_parameters]
    registration.register(f"{name}({', '.join(parameters)}, bool[] needed) -> {returned}", run, run)
    registration.loop_over_batch(name)
    operator = registration.operator(name)
    if sharding is not None:
        shapes = {x.name: x.words for x in table.operands}
        numbers = [part for x in signature.numbers for part in (x, f"{x}_number")]
        # What is added up over rows or columns is added up over devices.
        made_of = [shapes.get("sum", shapes["grad_out"]), *(shapes.get(x, ()) for x in names[1:])]
        arguments = [*incoming, *tensors, *numbers, "needed"]
        sharding.later(sharding.Divisible(name, arguments, shapes, made_of, (), ("B", "M", "N")))

    def read_of(grads: _Gradients, given: Operands, needed: _Needed) -> Operands:
        """What a launch is given."""
        read = {name: grads[x] for name, x in incoming.items()}
        read |= {x: given[x] for x in (*tensors, *signature.numbers)}
        return {**read, "needed": [x for x in names if needed[x]]}

    def call(grads: _Gradients, given: Operands, needed: _Needed, unseen: bool) -> dict[str, Any]:
        if unseen:
            return launched(read_of(grads, given, needed))
        arguments = [grads[x] for x in incoming.values()] + [given[x] for x in tensors]
        arguments += signature.packed_numbers(given)
        # DTensor takes the shapes of one call for those of others, whatever is needed.
        every = sharding is not None and sharding.sharded(arguments)
        made = operator(*arguments, [needed[x] or (every and x not in signature.numbers) for x in names])
        return dict(zip(names, made if len(names) > 1 else (made,)))

    def repeated(grads: _Gradients, given: Operands, needed: _Needed) -> tuple[Repeat | None, dict[str, int]]:
        launch = cached.get(kind(read_of(grads, given, needed)) or ())
        return launch, {} if launch is None else dict(zip(of, launch.results))

    return Chain(call, repeated, [*incoming, *tensors, *signature.numbers])
