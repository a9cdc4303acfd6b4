"""The functions of a family with a backward pass: what of their calls records gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from . import autograd
from .launch import (
    Config,
    Operands,
    Result,
    name_contract,
    recording,
    registering,
    remember,
    signature_of,
)
from .operators import Operator, requiring, without_sum
from .private import constant

_FILLED = "a call that fills tensors it is given records none: do not give `out` or outputs, or use torch.no_grad()"


class Differentiable(Operator):
    """A function of a family with a backward pass; `gradient` is what computes its gradients (`autograd`), or None."""

    backward = True

    def __init__(
        self,
        name: str,
        kernels: Sequence[str],
        load: Callable[[str], Any],
        function: Callable[[str], Any],
        *,
        gradient: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, kernels, load, function, **options)
        self.gradient = gradient
        #: By signature the product of torch that records its own gradient, or None.
        self.torchs: dict[object, Callable[..., Result] | None] = {}
        entry = gradient or {}
        # The contract that returns the sum too, and is called in the place of this one where a gradient is recorded.
        self.shown, self.saving = entry.get("called", name), entry.get("saving")

    @functools.cached_property
    def recorder(self) -> Callable[..., Result]:
        """What calls the contract and records its gradient."""
        return autograd.recorder(self)

    @constant
    def register(self) -> bool:
        """Register the operators of the contract and of those that its gradients are made by."""
        with registering:
            if self.returning is None and super().register() and self.gradient is not None:
                # A compiled backward pass that torch finds in its cache calls these operators, and is not traced.
                for x in [self.saving] if self.saving else [self.gradient[x][0] for x in ("a", "b")]:
                    self.others[x] = self.function(x)
                    self.others[x].register()
        return True

    def record(
        self, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands, known: tuple[object, ...]
    ) -> Result:
        """A call, with its signature, of which a gradient is recorded."""
        filled = out is not None and operands.get("scatter") is None
        if self.gradient is None or filled or any(x in operands for x in self.outputs):
            return self.seen(a, b, out, config, operands)
        torchs = getattr(self.choice, "aten", None)
        if torchs is not None and config is None and out is None:
            run = self.recorded_by_torch(torchs, a, b, operands, known)
            if run is not None:
                return run(a, b, None, operands)
        return self.recorded(a, b, config, operands, out=out)

    def recorded_by_torch(
        self, torchs: Any, a: Tensor, b: Tensor, operands: Operands, known: tuple[object, ...]
    ) -> Callable[..., Result] | None:
        """Torch's product, which records its own gradient, where that and its gradients' are the faster ones."""
        call_signature = *known, *operands, a.requires_grad, b.requires_grad
        if call_signature in self.torchs:
            return self.torchs[call_signature]
        self.check(operands)
        given = {"a": a, "b": b, "out": None, **operands}
        run: Callable[..., Result] | None = torchs.chosen(self, given) if torchs.of_call(self, a, b, operands) else None
        remember(self.torchs, call_signature, run)
        return run

    def recorded(
        self,
        a: Tensor,
        b: Tensor,
        config: Config,
        operands: Operands,
        *,
        of_layer: bool = False,
        out: Tensor | None = None,
    ) -> Result:
        """A call that a function of torch's records, without an operator (`autograd.recorder`)."""
        self.check(operands)
        try:
            if self.saving:
                saving = self.function(self.saving)
                return without_sum(saving.recorded(a, b, config, operands, of_layer=of_layer, out=out))
            return self.recorder(a, b, out, config, operands, of_layer)
        except (TypeError, ValueError) as error:
            name_contract(error, self.name)
            raise

    def layer(self, x: Tensor, weight: Tensor, operands: Operands) -> Result | None:
        """The call of a layer with its input (..., K) and weight (N, K); the result is (..., N).

        None unless a gradient is recorded, nothing is copied, and torch need not see more.
        """
        values = x, weight, *operands.values()
        if self.gradient is None or self.watched() or not recording(*values) or signature_of(*values) is None:
            return None
        if not (x.dim() > 1 and x.is_contiguous() and weight.is_contiguous()):
            return None
        return self.recorded(x, weight, None, operands, of_layer=True)

    def repeated(self, a: Tensor, b: Tensor) -> Callable[..., Result] | None:
        """What a call with `a` and `b` alone has cached, or None."""
        return self.cached.get(signature_of(a, b, None))

    def recording(
        self, recorded: list[str], a: Tensor, b: Tensor, results: Operands, config: int | None, operands: Operands
    ) -> Result | None:
        if self.gradient is None:
            return super().recording(recorded, a, b, results, config, operands)
        if [*results] == ["out"] and operands.get("scatter") is not None:
            return self.scattered(a, b, results["out"], config, operands)
        if results:
            raise RuntimeError(f"{self.name}: {requiring(recorded)}, and {_FILLED}")
        if self.saving:
            return without_sum(self.returned(self.others[self.saving], a, b, config, operands))
        return None

    def scattered(self, a: Tensor, b: Tensor, out: Tensor, config: int | None, operands: Operands) -> Result:
        """A call that fills rows of `out`, for which a gradient is recorded: the product, whose rows torch writes."""
        # The shapes are checked, and the result is not used.
        self.table.checked({"a": a, "b": b, "out": out, **operands})
        results = self.seen(a, b, None, config, {**operands, "scatter": None})
        result, *outputs = results if isinstance(results, tuple) else (results,)
        filled: Tensor = autograd.selected_rows.placed(out, result, operands["scatter"], operands["offsets"])
        return (filled, *outputs) if outputs else filled
