"""The kernels that run the chain of a contract backwards, as torch's autograd and its operators call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor

from . import operators
from .launch import Operands, Repeat, distinct, remember, signature_of, started
from .launchable import is_fake
from .operators import Operator
from .private import as_plain

#: Gradients of results by their names, and whether that of an operand is needed, that of the sum as "sum".
_Gradients: TypeAlias = Mapping[str, Tensor | None]
_Needed: TypeAlias = Mapping[str, bool]


class Chain:
    """Runs a contract's chain backwards, where torch must see it by an operator; `read` names what a launch reads."""

    def __init__(self, contract: Operator) -> None:
        gradient: Mapping[str, Any] = contract.gradient or {}
        name, signature, self.sharding = gradient["chain"], contract.signature, contract.sharding
        self.signature, self.table = signature, contract.load(name).CALL
        self.incoming = {f"grad_{x}": x for x in signature.results if x not in gradient.get("constant", ())}
        self.tensors = [*["sum"] * ("sum" in gradient), *signature.tensors]
        self.of = [x.of for x in self.table.results]
        self.names = ["sum", *signature.tensors, *signature.numbers]
        # The flags of a launch: the gradients that are needed, and whether C has none.
        self.flags = [*self.names, "no out"]
        self.read = [*self.incoming, *self.tensors, *signature.numbers]
        self.cached: dict[tuple[object, ...], Repeat] = {}
        # Single tensors, no list: what loops over a batch of gradients, as for a Jacobian, takes no other results.
        returned = f"({', '.join(['Tensor'] * len(self.names))})" if len(self.names) > 1 else "Tensor"
        parameters = [f"Tensor? {x}" for x in self.incoming] + [f"Tensor {x}" for x in self.tensors]
        schema = ", ".join([*parameters, *signature.number_parameters, "bool[] needed"])
        operators.register(f"{name}({schema}) -> {returned}", self._operate, self._operate)
        operators.loop_over_batch(name)
        self.operator = operators.operator(name)
        if self.sharding is not None:
            shapes = {x.name: x.words for x in self.table.operands}
            numbers = [part for x in signature.numbers for part in (x, f"{x}_number")]
            # What is added up over rows or columns is added up over devices.
            made_of = [shapes.get("sum", shapes["grad_out"]), *(shapes.get(x, ()) for x in self.names[1:])]
            arguments = [*self.incoming, *self.tensors, *numbers, "needed"]
            self.sharding.later(self.sharding.Divisible(name, arguments, shapes, made_of, (), ("B", "M", "N")))

    def _operate(self, *arguments: Any) -> Tensor | tuple[Tensor, ...]:
        """What the operator runs."""
        *operands, needed = [as_plain(x) for x in arguments]
        given = dict(zip([*self.incoming, *self.tensors], operands))
        given |= self.signature.unpacked_numbers(operands[len(given) :])
        gradients = self._launched({**given, "needed": [x for x, needs in zip(self.flags, needed) if needs]})
        empty = given["grad_out"].new_empty
        every = tuple([empty(0) if gradients.get(x) is None else gradients[x] for x in self.names])
        return every if len(every) > 1 else every[0]

    def _launched(self, given: Operands) -> dict[str, Any]:
        """The gradients that are needed, and None for others.

        A launch is repeated for operands of the same shapes, strides, types and alignment.
        """
        # Of fake tensors the results alone are made.
        known = None if is_fake(given["grad_out"]) else _signature_of(given)
        call = None if known is None else self.cached.get(known)
        if call is not None:
            tensors = call.made_of([*given.values()])
            grads: dict[str, Any] = {
                x: None if index < 0 else tensors[index] for x, index in zip(self.of, call.results)
            }
        else:
            given = distinct(given)
            plan = self.table.plan(**given)
            call = started(self.table, plan, given, given["grad_out"])
            if known is not None and call is not None and self.table.repeats(given):
                remember(self.cached, known, call)
            grads = dict(zip(self.of, plan.results.values()))
        for x in self.signature.numbers:
            if x in given["needed"]:
                # The gradient of a number is in fp32, and on the device.
                grads[x] = grads[x].to(given[x]).reshape(given[x].shape)
        return grads

    def _given(self, grads: _Gradients, given: Operands, needed: _Needed) -> Operands:
        """What a launch is given."""
        read = {name: grads[x] for name, x in self.incoming.items()}
        read |= {x: given[x] for x in (*self.tensors, *self.signature.numbers)}
        return {**read, "needed": [x for x in self.flags if needed.get(x)]}

    def run(self, grads: _Gradients, given: Operands, needed: _Needed, unseen: bool) -> dict[str, Any]:
        """The gradients by those of the results and the saved operands; `unseen`: torch need not see the call."""
        if unseen:
            return self._launched(self._given(grads, given, needed))
        arguments = [grads[x] for x in self.incoming.values()] + [given[x] for x in self.tensors]
        arguments += self.signature.packed_numbers(given)
        # DTensor takes the shapes of one call for those of others, whatever is needed.
        every = self.sharding is not None and self.sharding.sharded(arguments)
        flags = [needed[x] or (every and x not in self.signature.numbers) for x in self.names]
        gradients = self.operator(*arguments, [*flags, needed["no out"]])
        return dict(zip(self.names, gradients if len(self.names) > 1 else (gradients,)))

    def repeated(self, grads: _Gradients, given: Operands, needed: _Needed) -> tuple[Repeat | None, dict[str, int]]:
        """The launch that a call has cached, or None, and the place of each gradient among its tensors."""
        launch = self.cached.get(_signature_of(self._given(grads, given, needed)) or ())
        return launch, {} if launch is None else dict(zip(self.of, launch.results))


def _signature_of(given: Operands) -> tuple[object, ...] | None:
    """The signature of a launch, or None."""
    signature = signature_of(*[x for name, x in given.items() if name != "needed"])
    return signature and (*given["needed"], *signature)
