"""`combine`: the second half of experts, which adds for each token the rows of a product that are its own.

The terms of a token are added in one order, and so are the gradients of a row that several tokens read: results repeat
bit for bit, which those of atomic additions do not. A call that torch must see is one of an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import combined, operators, private
from .combined import DOTS, ROUTE, SPREAD, SUM
from .launch import added, in_forward_mode, name_contract, registering, signature_of
from .launchable import written
from .launched import Launched
from .operators import NO_TRANSFORM, requiring
from .private import refuse_tangents

# Families without gradients lack the module.
autograd = added("autograd")

_FILLED = "a call that fills `out` records none: do not give it, or use torch.no_grad()"
_NONE = "this family records none: call it under torch.no_grad(), or render the family with `backward: kernels`"


summed, spread, dots = (Launched(table).only for table in (SUM, SPREAD, DOTS))
routed = Launched(ROUTE)


def combine(y: Tensor, index: Tensor, weights: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """`combined.combine`, with gradients where the family has them, for calls that torch sees too."""
    try:
        return _combine(y, index, weights, out)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "functorch transforms" in str(error):
            raise NotImplementedError(f"combine: {NO_TRANSFORM}") from None
        name_contract(error, "combine")
        raise


combine.__doc__, combine.__module__ = combined.combine.__doc__, operators.FAMILY


def _combine(y: Tensor, index: Tensor, weights: Tensor | None, out: Tensor | None) -> Tensor:
    given = {"y": y, "index": index, "weights": weights, "out": out}
    if not all(x is None or isinstance(x, Tensor) for x in given.values()) or y is None or index is None:
        # It says which one is no tensor.
        return summed(y, index, weights, out)  # type: ignore[no-any-return]
    refuse_tangents("combine", given.values())
    recorded = [x for x, value in given.items() if value is not None and value.requires_grad]
    if recorded and torch.is_grad_enabled() and (out is not None or autograd is None):
        raise RuntimeError(f"{requiring(recorded)}, and {_FILLED if autograd else _NONE}")
    if must_be_seen(*given.values()):
        register()
        if out is None:
            return operators.operator("combine")(y, index, weights)  # type: ignore[no-any-return]
        operators.operator("combine_out")(y, index, weights, out)
        return out
    if recorded and torch.is_grad_enabled():
        return RecordedSum.apply(y, index, weights)  # type: ignore[no-any-return, no-untyped-call]
    result: Tensor = summed(y, index, weights, out)
    if out is not None:
        written(out)
    return result


def must_be_seen(*operands: Any) -> bool:
    """Whether torch must see a call with these operands, because it traces, transforms or watches it."""
    return (
        torch.compiler.is_compiling()
        or private.is_tracing()
        or bool(private.count_modes())
        or in_forward_mode()
        or private.transforming()
        or signature_of(*operands) is None
    )


def inverse(index: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The terms of `index` by the row of y that they read, in their order for each row, and where those of each end."""
    places = torch.where((index >= 0) & (index < rows), index, rows).flatten()
    places, order = places.sort(stable=True)
    each = torch.arange(rows, dtype=places.dtype, device=index.device)
    return order.int(), torch.searchsorted(places, each, right=True, out_int32=True)


def _gradients(ctx: Any, grad: Tensor, of_rows: Callable[..., Tensor], of_terms: Callable[..., Tensor]) -> Any:
    """The gradients of a call's operands, those of `y` and `weights` by these functions where they are needed."""
    y, index, weights, *known = ctx.saved_tensors

    def gradients() -> tuple[Tensor | None, ...]:
        of_y = of_weights = None
        if ctx.needs_input_grad[0]:
            of_y = of_rows(grad, *(_ends(*known) if known else inverse(index, y.shape[0])), index, weights)
        if ctx.needs_input_grad[2]:
            of_weights = of_terms(grad, y, index, weights)
        return of_y, None, of_weights, *[None] * len(known)

    return autograd.once("Experts" if known else "combine", gradients, grad, y, weights)


def _ends(order: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """What `inverse` returns where each row up to the last offset is one term, in this order."""
    ends = torch.arange(1, len(order) + 1, dtype=torch.int32, device=order.device)
    return order, torch.minimum(ends, offsets[-1:])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


class RecordedSum(torch.autograd.Function):
    """`combine` with its gradients, for calls that torch need not see; experts pass `known`, `order` and `offsets`."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, index: Tensor, weights: Tensor | None, *known: Tensor) -> Tensor:
        _setup(ctx, (y, index, weights, *known), y)
        return summed(y, index, weights)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _gradients(ctx, grad, spread, dots)  # type: ignore[no-any-return]


def _backward(ctx: Any, grad: Tensor) -> Any:
    return _gradients(ctx, grad, operators.operator("combine_spread"), operators.operator("combine_dots"))


def _filled(y: Tensor, index: Tensor, weights: Tensor | None, out: Tensor) -> None:
    summed(y, index, weights, out)
    written(out)


_registered: list[str] = []


def register() -> bool:
    """Register the operators, once; torch.compile runs this as it traces."""
    with registering:
        if not _registered:
            terms = "Tensor y, Tensor index, Tensor? weights"
            spreads = "Tensor grad, Tensor order, Tensor ends, Tensor index, Tensor? weights"
            for schema, run in (
                (f"combine({terms}) -> Tensor", summed),
                (f"combine_out({terms}, Tensor(a!) out) -> ()", _filled),
                (f"combine_spread({spreads}) -> Tensor", spread),
                ("combine_dots(Tensor grad, Tensor y, Tensor index, Tensor weights) -> Tensor", dots),
            ):
                name = schema.partition("(")[0]
                # For fake tensors nothing is launched.
                operators.register(schema, run, run)
                if name != "combine_out":
                    operators.loop_over_batch(name)
                _registered.append(name)
            torch.library.register_autograd(
                f"{operators.NAMESPACE}::combine", _backward, setup_context=_setup, lib=operators.LIBRARY
            )
    return True


register = private.constant(register)
