"""The calls of a table that no function of a contract has: they are launched as the calls of one are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .call import Call
from .launch import Repeat, distinct, remember, signature_of, started


class Launched:
    """The results of calls of a table, whose launches are repeated for others of the same signature.

    A call has the table's operands in their order, and then the tensors to fill, if there are any. With `needed`, the
    names of what gradients are needed of, the other results are None.
    """

    def __init__(self, table: Call) -> None:
        self.table, self.names = table, (*table.names, "needed")
        self.cached: dict[tuple[object, ...] | None, Repeat] = {}

    def signature(self, operands: Sequence[Any], needed: Sequence[str] = ()) -> tuple[object, ...] | None:
        """The signature of a call, or None."""
        signature = signature_of(*operands)
        return signature and (*needed, *signature)

    def __call__(self, *operands: Any, needed: Sequence[str] = ()) -> list[Any]:
        call_signature = self.signature(operands, needed)
        again = self.cached.get(call_signature)
        if again is not None:
            return self.again(again, operands)
        given = distinct({**dict.fromkeys(self.names), **dict(zip(self.names, operands)), "needed": needed})
        plan = self.table.plan(None, **given)
        call = started(self.table, plan, given, operands[0])
        if call is not None and call_signature is not None:
            remember(self.cached, call_signature, call)
        return [*plan.results.values()]

    def again(self, launches: Repeat, operands: Sequence[Any]) -> list[Any]:
        """The results of a call with these operands whose launches are cached; they fix what is needed."""
        tensors = launches.made_of([*operands, *[None] * (len(self.names) - len(operands))])
        return [None if index < 0 else tensors[index] for index in launches.results]

    def only(self, *operands: Any) -> Any:
        """The only result of a call."""
        (result,) = self(*operands)
        return result
