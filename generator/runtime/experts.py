"""Experts of a mixture, computed by this family: stacked gated linear units, of which each token is given to a few.

`Experts` has the parameters and the arguments of the experts of `transformers`, in whose place `replace_experts` puts
it.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from typing import Any

import torch
from torch import Tensor

from . import combine
from .combined import INTEGERS
from .launchable import is_fake, is_plain
from .rows import ReplacedModules, along, require_tensor

_FAMILY = importlib.import_module(__name__.rsplit(".", 2)[0])

#: The contract of the first product for each type and gate, and that of the second one for each type. `nn` fills them.
GATED: dict[tuple[torch.dtype, str], str] = {}
DOWN: dict[torch.dtype, str] = {}
#: The gate of each activation: functions, classes of torch.nn, and names of classes of `transformers.activations`.
_GATES: dict[Any, str] = {
    torch.nn.functional.silu: "swiglu",
    torch.nn.functional.gelu: "geglu",
    torch.nn.functional.relu: "reglu",
    torch.relu: "reglu",
    torch.nn.SiLU: "swiglu",
    torch.nn.ReLU: "reglu",
    "SiLUActivation": "swiglu",
    "GELUActivation": "geglu",
    "GELUTanh": "geglu_tanh",
}
_TANH = {"none": "geglu", "tanh": "geglu_tanh"}
#: From so many pairs for each expert on, the rows of the input are copied in the order of experts: kernels that load by
#: descriptors read neighbouring rows alone, and are faster by more than the copy takes.
COPIED = 64
#: Up to so many pairs a kernel routes, in a launch for a dozen calls of torch, each of whose programs reads all pairs.
ROUTED = 8192


def routed(top_k_index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The pairs of `top_k_index` (tokens, k) in the order of `count` experts, and of tokens for each, as `ROUTE` does.

    Returns the end of each expert's pairs, the token of each pair, which pair it is, and (tokens, k) where each is: -1
    where there is no such expert, whose pairs are behind the last end. Nothing waits for the device.
    """
    tokens, k = top_k_index.shape
    # Narrow types may not hold the number of experts, and torch computes little with some unsigned ones.
    experts = top_k_index if top_k_index.dtype in (torch.int32, torch.int64) else top_k_index.long()
    order, offsets = combine.inverse(experts, count)
    numbers = torch.arange(tokens * k, device=experts.device, dtype=torch.int32)
    places = torch.empty(tokens * k, dtype=torch.int32, device=experts.device).scatter(0, order.long(), numbers)
    there = (experts >= 0) & (experts < count)
    return offsets, order // max(k, 1), order, torch.where(there, places.view(tokens, k), -1)


class _Gathered(torch.autograd.Function):
    """The tokens' rows in the order of experts; the gradients of a token's rows add in the order of its experts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (places,) = ctx.saved_tensors
        return combine.autograd.once("Experts", lambda: (combine.summed(grad, places), None, None), grad)  # type: ignore[no-any-return]


class Experts(torch.nn.Module):
    """Gated experts: for each token the weighted sum of `down(act(gate(x)) * up(x))` of those that it is given to.

    `gate_up_proj` is (experts, 2 * intermediate_size, hidden_size), the rows of the gate first, and `down_proj`
    (experts, hidden_size, intermediate_size). `gate` is "swiglu", "geglu", "geglu_tanh" or "reglu". A call takes the
    contracts of that gate for the type that the weights have then. Results and gradients repeat bit for bit. Raises
    ValueError where the family has no contracts for the gate and the type.
    """

    # Where it is public, and where pickled layers look for it.
    __module__ = f"{_FAMILY.__name__}.nn"

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        intermediate_size: int,
        *,
        gate: str = "swiglu",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shapes = (num_experts, 2 * intermediate_size, hidden_size), (num_experts, hidden_size, intermediate_size)
        up, down = (torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) for shape in shapes)
        self.gate_up_proj, self.down_proj = up, down
        self._take(gate)
        self.reset_parameters()

    def _take(self, gate: str) -> None:
        self.gate = gate
        self._contracts()

    def reset_parameters(self) -> None:
        """Draw the weights of each expert as torch.nn.Linear draws its own."""
        for x in (self.gate_up_proj, self.down_proj):
            bound = 1 / math.sqrt(x.shape[-1]) if x.shape[-1] else 0
            torch.nn.init.uniform_(x, -bound, bound)

    def _contracts(self) -> tuple[Any, Any]:
        """The functions of both products."""
        dtype = self.gate_up_proj.dtype
        up, down = GATED.get((dtype, self.gate)), DOWN.get(dtype)
        if up is None or down is None:
            raise ValueError(f"no contracts fit experts of {dtype} with {self.gate}; {_fitting()}")
        return getattr(_FAMILY, up), getattr(_FAMILY, down)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """The experts of `hidden_states` (tokens, hidden_size): (tokens, hidden_size), of its type.

        `top_k_index` (tokens, k) names experts, in any integer type, and `top_k_weights` (tokens, k) weights their
        results. An expert that there is not, as parallel ones are, adds nothing. Raises TypeError for hidden states of
        another type than the weights outside autocast, and ValueError for shapes that do not fit.
        """
        x, index = require_tensor("hidden_states", hidden_states), require_tensor("top_k_index", top_k_index)
        weights = require_tensor("top_k_weights", top_k_weights)
        if x.dim() != 2 or index.dim() != 2 or index.shape[0] != x.shape[0] or weights.shape != index.shape:
            shapes = f"{tuple(x.shape)}, {tuple(index.shape)} and {tuple(weights.shape)}"
            raise ValueError(f"expected shapes (tokens, hidden_size), (tokens, k) and (tokens, k), got {shapes}")
        if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
            raise TypeError(f"top_k_index must be of an integer type, got {index.dtype}")
        if x.shape[1] != self.gate_up_proj.shape[2]:
            raise ValueError(
                f"hidden_states have {x.shape[1]} columns, and hidden_size is {self.gate_up_proj.shape[2]}"
            )
        up, down = self._contracts()
        # Kernels read the weights along K, which need not be contiguous in a view.
        first, second = along(self.gate_up_proj), along(self.down_proj)
        if not x.dtype == first.dtype == second.dtype and not torch.is_autocast_enabled(x.device.type):
            types = f"{x.dtype}, and the weights are {first.dtype} and {second.dtype}"
            raise TypeError(f"hidden_states are {types}: give both the same type")
        known = not combine.must_be_seen(x, index, weights, first, second)
        if known and 0 < index.numel() <= ROUTED and first.shape[0] and index.dtype in INTEGERS:
            offsets, tokens, order, places = combine.routed(index, first.detach())
        else:
            offsets, tokens, order, places = routed(index, first.shape[0])
        rows = {"rows": tokens}
        x = x.contiguous()
        recording = torch.is_grad_enabled() and any(each.requires_grad for each in (x, weights, first, second))
        if known and (recording or index.numel() >= COPIED * first.shape[0]):
            x, rows = _Gathered.apply(x, tokens, places), {}  # type: ignore[no-untyped-call]
        h = up(x, first.mT, offsets, **rows)
        y = down(h, second.mT, offsets)
        if known and recording and first.shape[0]:
            weighted = combine.RecordedSum.apply(y, places, weights, order, offsets)  # type: ignore[no-untyped-call]
        else:
            weighted = _FAMILY.combine(y, places, weights)
        return weighted.to(hidden_states.dtype)  # type: ignore[no-any-return]

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(f"torch.jit.script does not compile {self.__module__}.Experts; use torch.export")

    def extra_repr(self) -> str:
        count, columns, size = self.gate_up_proj.shape
        return f"{count}, hidden_size={size}, intermediate_size={columns // 2}, gate={self.gate}"


def _fitting() -> str:
    """The experts that contracts of the family fit."""
    fitted = ", ".join(f"{dtype} with {gate}" for dtype, gate in GATED if dtype in DOWN)
    return f"those that contracts fit: {fitted or 'none'}"


def replace_experts(model: torch.nn.Module) -> ReplacedModules:
    """Replace the experts of `model` that contracts fit, in place, and return their names.

    These are modules of `transformers` whose implementation can be chosen (`experts_implementation`): with stacked
    weights `gate_up_proj` and `down_proj`, called with hidden states, indices and weights. Each becomes `Experts` with
    the same parameters, under all of its names. Other experts are left, and `left` of the result says why.
    """
    replaced = ReplacedModules()
    for name, module in [*model.named_modules(remove_duplicate=False)]:
        if not _are_experts(name, module) or isinstance(module, Experts):
            continue
        gate = _gate_of(getattr(module, "act_fn", None))
        reason = _why_left(module, gate) if name else "it is the model itself, for which `nn.Experts` is"
        if reason:
            replaced.left[name] = reason
            continue
        replaced.replace(model, name, module, Experts)._take(str(gate))
    return replaced


# What experts of `transformers` say of themselves, with what is computed here, and why those that differ are left.
_FORM = {
    "has_gate": (True, "they have no gate"),
    "is_transposed": (False, "their weights are transposed"),
    "is_concatenated": (True, "the rows of gate and up alternate"),
    "has_bias": (False, "they add a bias"),
    "has_post_expert_norm": (False, "they normalise the result of each expert"),
}


def _are_experts(name: str, module: torch.nn.Module) -> bool:
    """Whether a module is one of stacked experts, or a list of them."""
    last = name.rpartition(".")[2]
    return (
        all(hasattr(module, x) for x in ("gate_up_proj", "down_proj", "act_fn", "num_experts"))
        or hasattr(module, "is_concatenated")
        or (last == "experts" and isinstance(module, torch.nn.ModuleList))
    )


def _why_left(module: torch.nn.Module, gate: str | None) -> str:
    """Why experts are not replaced; empty if they are."""
    if isinstance(module, torch.nn.ModuleList):
        return "each expert is a module of its own"
    if not all(hasattr(module, x) for x in ("has_gate", "is_transposed", "is_concatenated", "has_bias")):
        return f"{type(module).__name__} does not say how its weights are stored"
    for word, (wanted, reason) in _FORM.items():
        if bool(getattr(module, word, wanted)) != wanted:
            return reason
    if not {"forward", "_apply_gate"}.isdisjoint(vars(module)):
        return "they have a `forward` of their own, as hooks set it"
    apply_gate = getattr(type(module), "_apply_gate", None)
    if getattr(apply_gate, "__name__", "") != "_default_apply_gate":
        return f"{type(module).__name__} has a gate of its own"
    if not type(module).__module__.startswith("transformers.models.") or "forward" not in vars(type(module)):
        return f"of {type(module).__name__}, a class of its own"
    if gate is None:
        activation = getattr(module, "act_fn", None)
        return f"no gate is made with {getattr(activation, '__name__', type(activation).__name__)}"
    parameters = dict(module.named_parameters())
    if set(parameters) != {"gate_up_proj", "down_proj"} or [*module.buffers()]:
        return "they have other parameters than gate_up_proj and down_proj"
    up, down = parameters["gate_up_proj"], parameters["down_proj"]
    if not all(is_plain(x) or is_fake(x) for x in (up, down)):
        return "a weight is of a tensor subclass"
    count, columns, size = up.shape if up.dim() == 3 else (0, 0, 0)
    if (count, 2 * down.shape[-1], down.shape[1]) != (count, columns, size) or down.shape[0] != count:
        return f"their weights have shapes {tuple(up.shape)} and {tuple(down.shape)}"
    if (up.dtype, gate) not in GATED or down.dtype not in DOWN or up.dtype != down.dtype:
        return f"no contracts fit experts of {up.dtype} with {gate}; {_fitting()}"
    return ""


def _gate_of(activation: Any) -> str | None:
    """The word of the gate with an activation that computes what its class or function says; None for any other."""
    cls = type(activation)
    if cls is functools.partial:
        plain = activation.func is torch.nn.functional.gelu and not activation.args
        return (
            _TANH.get(str(activation.keywords.get("approximate"))) if plain and len(activation.keywords) == 1 else None
        )
    if not isinstance(activation, torch.nn.Module):
        return _GATES.get(activation) if callable(activation) else None
    if "forward" in vars(activation) or activation._forward_hooks or activation._forward_pre_hooks:
        return None
    if cls is torch.nn.GELU:
        return _TANH.get(str(activation.approximate))
    own = getattr(sys.modules.get("transformers.activations"), cls.__name__, None) is cls
    inner = vars(activation).get("act")
    if own and inner is not None and getattr(inner, "__func__", None) not in vars(cls).values():
        # What it calls in place of a method of its own.
        return _gate_of(inner)
    return _GATES.get(cls.__name__ if own else cls)
