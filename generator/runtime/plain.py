"""Functions of contracts by public interfaces of torch and Triton alone: each chooses a kernel and its configuration.

The choice is cached for each signature of a call: the shapes, strides, types, devices and alignment of its operands.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from triton import knobs

from .call import Call, Config, Row
from .call_signatures import SIGNATURES, kind_of
from .contract_errors import by_keyword, name_contract

# The classes of tensors that have memory.
_OWN = (Tensor, torch.nn.Parameter)


def contract(
    name: str,
    kernels: Sequence[str],
    load: Callable[[str], Any],
    *,
    tuned: Any = None,
    analytic: Any = None,
    nominal: Callable[[Call, Tensor, Tensor, Tensor | None, dict[str, Any]], Any] | None = None,
) -> Any:
    """The function of the contract `name`: it takes what the `gemm` of each of its kernels takes.

    `kernels`: their names, in the order in which they are tried. `load` imports one.
    `tuned`: chooses by measurements. `analytic`: chooses by a cost model where there are none.
    `nominal`: returns operands that do not have the call's M, by which a kernel is chosen (`invariant`).
    """
    first = load(kernels[0])
    table = first.CALL
    needed = {x.name for x in table.operands[2:] if x.absent is None}
    known = {*(x.name for x in table.operands[2:]), *(x.name for x in table.results[1:])}
    grouped = "offsets" in known
    bf16 = torch.bfloat16 in [x.dtype for x in table.operands] and knobs.runtime.interpret
    cached: dict[tuple[object, ...], tuple[Any, Row | None]] = {}
    best = None
    if tuned is not None or analytic is not None:
        ranking = importlib.import_module(".ranking", __package__)
        best = ranking.best(name, table, kernels, tuned, analytic)

    def chosen(a: Tensor, b: Tensor, out: Tensor | None, operands: dict[str, Any]) -> tuple[Any, Row | None]:
        """The kernel and the configuration of a call; None for one that the kernel chooses itself."""
        like = (a, b, out, operands) if nominal is None else nominal(table, a, b, out, operands)
        state = table.state({"a": like[0], "b": like[1], "out": like[2], **like[3]})
        refusals = {x: load(x).CALL.reason(state) for x in kernels}
        taking = [load(x) for x, why in refusals.items() if why is None]
        if not taking:
            reasons = "\n".join(f"{x}: {why}" for x, why in refusals.items())
            raise ValueError(f"no kernel accepts the operands:\n{reasons}")
        found = best(taking, state) if best is not None and a.is_cuda else None
        # Where neither measurements nor a cost model compare kernels, the first one chooses its own configuration.
        return found or (taking[0], None)

    def planned(given: dict[str, Any]) -> tuple[Any, Row | None]:
        """As `chosen`, by what is cached for calls of the same signature."""
        a, b, out, *_ = given.values()
        operands = {x: value for x, value in given.items() if x not in ("a", "b", "out")}
        tensors = [x for x in given.values() if isinstance(x, Tensor)]
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or any(
            x.is_meta or type(x) not in _OWN for x in tensors
        ):
            # The kernel's call reports what is wrong, and makes fake results of fake operands.
            return first, None
        try:
            kind = torch.are_deterministic_algorithms_enabled(), *operands, *map(kind_of, given.values())
        except RuntimeError:
            # A tensor without memory.
            return first, None
        found = cached.get(kind)
        if found is None:
            found = chosen(a, b, out, operands)
            if len(cached) >= SIGNATURES:
                cached.clear()
            cached[kind] = found
        return found

    def named(a: Tensor, b: Tensor, offsets: tuple[Tensor, ...], out: Tensor | None, operands: Any) -> dict[str, Any]:
        """The operands by name; only those of groups have a third that needs none."""
        if len(offsets) > grouped:
            raise by_keyword(name, 2 + grouped, sorted(known - {"offsets"}))
        if offsets and "offsets" in operands:
            raise TypeError(f"{name}() got multiple values for argument 'offsets'")
        present = {*operands, *["offsets"] * len(offsets)}
        wrong = {"missing": needed - present, "unexpected": present - known}
        if any(wrong.values()):
            listed = [f"{what} {', '.join(sorted(names))}" for what, names in wrong.items() if names]
            raise TypeError(f"{name}() got wrong keyword arguments: {'; '.join(listed)}")
        return {"a": a, "b": b, "out": out, **dict(zip(("offsets",), offsets)), **operands}

    @functools.wraps(first.gemm)
    def gemm(a: Tensor, b: Tensor, *offsets: Tensor, out: Tensor | None = None, config: Config = None, **x: Any) -> Any:
        given = named(a, b, offsets, out, x)
        try:
            kernel, row = planned(given)
            if bf16:
                interpreted_bf16 = importlib.import_module(".interpreted_bf16", __package__)
                interpreted_bf16.check(a, b)
            return kernel.CALL(row if config is None else config, **given)
        except (TypeError, ValueError, RuntimeError) as error:
            name_contract(error, name, a, b)
            raise

    def which(a: Tensor, b: Tensor, *offsets: Tensor, out: Tensor | None = None, **x: Any) -> tuple[str, Row]:
        """The name of the kernel that such a call would run, and its configuration; nothing is launched.

        The configuration is empty if it is measured at the call (`select: autotune`), or if the result is empty.
        """
        given = named(a, b, offsets, out, x)
        try:
            kernel, row = planned(given)
            call, state = kernel.CALL, kernel.CALL.checked(given)
            empty = 0 in [size.of(state.numbers) for size in call.sizes[:-1]]
            if row is None and not call.tunes and not empty:
                row = call.row(None, state)
        except (TypeError, ValueError, RuntimeError) as error:
            name_contract(error, name)
            raise
        return kernel.__name__.rpartition(".")[2], {} if empty or row is None else dict(row)

    function: Any = gemm
    function.__name__ = function.__qualname__ = name
    # Where pickle looks for it.
    function.__module__ = __name__.rsplit(".", 2)[0]
    function.which = which
    return function
