"""Errors that name the contract that was called."""

from __future__ import annotations

from typing import Any


def name_contract(error: Exception, name: str) -> None:
    """Make the text of a TypeError, ValueError or RuntimeError begin with the name of the contract that was called.

    The error gets an attribute `unnamed`, its text without a name. Errors of their subclasses stay as they are.
    """
    if type(error) in (TypeError, ValueError, RuntimeError):
        # The error may come from another contract that this one called, and name it.
        marked: Any = error
        marked.unnamed = getattr(error, "unnamed", str(error))
        error.args = (f"{name}: {marked.unnamed}",)


#: Why a transform of torch.func has no derivative.
NO_TRANSFORM = "torch.func.grad, vjp and jacrev do not reach operators of torch; use torch.autograd"

#: Why torch.func.functionalize refuses a call.
NOT_FUNCTIONAL = "torch.func.functionalize takes no operator that fills a tensor it is given: call it without `out`"


def of_transform(error: Exception) -> bool:
    """Whether it is torch's error that transforms of torch.func do not reach an operator's gradients."""
    return isinstance(error, RuntimeError) and "functorch transforms" in str(error)
