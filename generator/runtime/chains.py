"""The kernels that run the chain of a contract backwards, as torch's autograd and its operators call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from . import operators
from .launch import Operands, added
from .launched import Launched
from .operators import Operator, Signature

# Families without operands that select rows lack the module; torch cannot trace an import.
selected_rows = added("selected_rows")


class Chain:
    """Runs a contract's chain backwards, where torch must see it by an operator.

    Operands of a call are the gradients of results, `grad_out` and others, and what was saved, by name; the gradient of
    the sum is made as "sum". `needed` says for which of them a gradient is needed, and by "no out" that C has none.
    """

    def __init__(self, contract: Operator) -> None:
        gradient: Mapping[str, Any] = contract.gradient or {}
        name, signature, self.sharding = gradient["chain"], contract.signature, contract.sharding
        table = contract.load(name).CALL
        self.launched, self.numbers, tensors = Launched(table), signature.numbers, signature.tensors[2:]
        self.incoming = [f"grad_{x}" for x in signature.results if x not in gradient.get("constant", ())]
        self.signature = Signature([*["sum"] * ("sum" in gradient), *tensors], self.numbers, self.incoming)
        self.names = ["sum", *tensors, *self.numbers]
        self.read, self.of = [x.name for x in table.operands], [x.of for x in table.results]
        shapes = {x.name: x.words for x in table.operands}
        # The kernel has no strides of a vector, nor of one for each matrix of a batch.
        self.vectors = [x.name for x in table.operands if x.name in self.incoming and x.unit is not None]
        #: The operands of which each group has one, in whose gradient those of its rows are added up.
        self.of_groups = [x for x in self.of if shapes.get(x, ())[:1] == ["G"]]
        # Single tensors, no list: what loops over a batch of gradients, as for a Jacobian, takes no other results.
        returned = f"({', '.join(['Tensor'] * len(self.names))})" if len(self.names) > 1 else "Tensor"
        schema = f"{name}({self.signature.schema}, bool[] needed) -> {returned}"
        operators.register(schema, self._operate, self._operate)
        operators.loop_over_batch(name)
        self.operator = operators.operator(name)
        if self.sharding is not None:
            # What is added up over rows or columns is added up over devices.
            made_of = [shapes.get("sum", shapes["grad_out"]), *(shapes.get(x, ()) for x in self.names[1:])]
            arguments = [*self.signature.places, "needed"]
            self.sharding.later(self.sharding.Divisible(name, arguments, shapes, made_of, (), ("B", "M", "N")))

    def _operate(self, *arguments: Any) -> Tensor | tuple[Tensor, ...]:
        """What the operator runs."""
        given, (needed,) = self.signature.unpacked(arguments)
        made = self._made({**dict.fromkeys(self.read), **given}, dict(zip([*self.names, "no out"], needed)))
        empty = given["grad_out"].new_empty
        every = tuple([empty(0) if made.get(x) is None else made[x] for x in self.names])
        return every if len(every) > 1 else every[0]

    def run(self, given: Operands, needed: Mapping[str, bool], unseen: bool) -> Operands:
        """The gradients by the names of their operands; `unseen`: torch need not see the call."""
        if unseen:
            return self._made(given, needed)
        arguments = self.signature.packed(given)
        # DTensor takes the shapes of one call for those of others, whatever is needed.
        every = self.sharding is not None and self.sharding.sharded(arguments)
        flags = [needed[x] or (every and x not in self.numbers) for x in self.names]
        made = self.operator(*arguments, [*flags, needed["no out"]])
        return dict(zip(self.names, made if len(self.names) > 1 else (made,)))

    def _made(self, given: Operands, needed: Mapping[str, bool]) -> Operands:
        """The gradients that are needed, and None for others."""
        given, flags = self._read(given), [x for x, needs in needed.items() if needs]
        return self._finished(given, self.launched(*map(given.get, self.read), needed=flags))

    def repeated(self, given: Operands, needed: Mapping[str, bool]) -> Callable[[Operands, Operands], None] | None:
        """What makes the gradients of other operands by the launches that such a call has cached; None without any."""
        given, flags = self._read(given), [x for x, needs in needed.items() if needs]
        launches = self.launched.cached.get(self.launched.signature([*map(given.get, self.read)], flags))
        if launches is None:
            return None

        places = [(x, place) for x, place in zip(self.of, launches.results) if place >= 0]
        others = [None] * (len(self.launched.names) - len(self.read))

        def again(given: Operands, made: Operands) -> None:
            # Of groups and for numbers no pass is repeated: there is nothing to add up or to convert.
            tensors = launches.made_of([*map(self._read(given).get, self.read), *others])
            for x, place in places:
                made[x] = tensors[place]

        return again

    def _read(self, given: Operands) -> Operands:
        """The operands as a launch reads them: each vector is contiguous, and each row has the number of its group."""
        if self.vectors:
            given = {**given, **{x: given[x].contiguous() for x in self.vectors if given[x] is not None}}
        if self.of_groups:
            given = {**given, "group": selected_rows.groups(given["offsets"], given["grad_out"].shape[0])}
        return given

    def _finished(self, given: Operands, made: Sequence[Any]) -> Operands:
        """The gradients of operands by name, by what the kernel has made for each."""
        gradients = dict(zip(self.of, made))
        for x in self.of_groups:
            if gradients[x] is not None:
                gradients[x] = selected_rows.summed(gradients[x], given["group"], given[x].shape[0]).to(given[x].dtype)
        for x in self.numbers:
            if gradients[x] is not None:
                # The gradient of a number is in fp32, and on the device.
                gradients[x] = gradients[x].to(given[x]).reshape(given[x].shape)
        return gradients
