"""Linear layers of torch.nn, computed by this family: `nn.Linear`, and `nn.replace_linear` for those of a model."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch
from torch.nn import functional

from .launch import added, deterministic, remember
from .launchable import is_fake, is_plain
from .rows import ReplacedModules, along, require_tensor, rows_of, shaped_as

_FAMILY = importlib.import_module(__name__.rsplit(".", 2)[0])

#: The contracts of layers, which `nn` fills: the type of the weight (N, K) and the input, whether a bias is added, and
#: what follows, which is "" for a layer that does no more than torch.nn.Linear.
CONTRACTS: dict[str, tuple[torch.dtype, bool, str]] = {}
#: Where the family can add gradients of weights to tensors, what does.
main_grad = added("main_grad")
_ACCUMULATING = "a contract of layout crr with [{accumulate: {beta: 1}}]"
#: Where torch's own product is a candidate, what has the rules.
_torchs = added("aten_product")
# Global, because a look at a module takes long beside what a layer's call does.
_traced, _recorded = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled


def _fitting(*wanted: Any) -> str | None:
    """The first contract that is what is wanted, or None."""
    # A list, which torch.compile traces.
    names = [name for name, key in CONTRACTS.items() if key == wanted]
    return names[0] if names else None


def _described(dtype: torch.dtype, bias: bool) -> str:
    return f"a weight of {dtype} {'with' if bias else 'without'} bias"


def _there_are(dtype: torch.dtype, bias: bool) -> str:
    """The contracts that fit such a layer, or what those of the family fit."""
    names = [name for name, key in CONTRACTS.items() if key[:2] == (dtype, bias)]
    if names:
        return f"contracts that fit: {', '.join(names)}"
    return f"this family has some for {', '.join(dict.fromkeys(_described(*key[:2]) for key in CONTRACTS.values()))}"


class Linear(torch.nn.Linear):
    """A linear layer computed by a contract of this family; parameters and `state_dict` are those of torch.nn.Linear.

    `contract` is a name in CONTRACTS; None takes the one that does no more than torch.nn.Linear. The input has the
    shape (..., in_features), the result (..., out_features), or (..., out_features // 2) by a gated contract. After
    `.to(dtype)` a call takes the contract of the same chain for that type. What is made of other tensors, as in
    quantised and sharded models, and nested tensors are multiplied by torch if the chain is that of torch.nn.Linear.
    With `accumulate_into`, the name of an attribute such as "main_grad", the gradient of a weight that has it is added
    to that tensor, by the kernel that computes it, and not to `weight.grad`; compiled layers leave it to `weight.grad`.
    Raises ValueError for a contract that does not fit. Without `backward: kernels` in the spec it is for inference: a
    call that would record a gradient raises RuntimeError.
    """

    # Where it is public, and where pickled layers look for it.
    __module__ = f"{_FAMILY.__name__}.nn"

    #: The attribute of the weight that its gradient is added to, if the weight has it; None for `weight.grad`.
    accumulate_into: str | None = None
    #: Where torch's own product is a candidate: by the shape of an input and what needs a gradient, the contract whose
    #: product torch's is faster than; None if ours is.
    _left: dict[Any, str | None] | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        contract: str | None = None,
        accumulate_into: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._take(contract, accumulate_into)

    def _take(self, contract: str | None, accumulate_into: str | None = None) -> None:
        wanted = self.weight.dtype, self.bias is not None
        name = contract or _fitting(*wanted, "")
        if name is None or CONTRACTS.get(name, ())[:2] != wanted:
            what = f"{name} does not fit" if name else "no contract does just what torch.nn.Linear does for"
            raise ValueError(f"{what} {_described(*wanted)}; {_there_are(*wanted)}")
        _require_accumulating(name, accumulate_into)
        self.contract, self.accumulate_into = name, accumulate_into
        self._left = {} if _torchs else None

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if self._left:
            # The weight may change its type or device.
            self._left.clear()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The contract of `input`, with the weight as its column-major B."""
        if _traced():
            return self._multiplied(require_tensor("input", input), self.weight)
        left, parameters, recorded = self._left, self._parameters, _recorded()
        if recorded and self.accumulate_into:
            x, weight = require_tensor("input", input), self.weight
            kept = getattr(weight, self.accumulate_into, None) if weight.requires_grad else None
            usual = is_plain(x) and is_plain(weight) and x.dim() and not x.is_nested and x.dtype == weight.dtype
            if kept is not None and usual:
                adding = main_grad.contract_for(weight, kept)
                return main_grad.added(self._multiplied(x, weight.detach()), x, weight, kept, adding)  # type: ignore[no-any-return]
        own = parameters.get("weight")
        if left is None or own is None or type(input) is not torch.Tensor:
            return self._multiplied(require_tensor("input", input), self.weight)
        # What torch's product takes is short, so that each look at a tensor or a module counts here.
        known: Any = (input.shape, input.requires_grad, own.requires_grad) if recorded else input.shape
        if left.get(known) == self.contract and not deterministic():
            try:
                return functional.linear(input, own, parameters["bias"])
            except (KeyError, RuntimeError):
                # A parametrized bias, or an input of another type: what follows takes or refuses it.
                pass
        return self._multiplied(input, own, known)

    def _multiplied(self, x: torch.Tensor, weight: torch.Tensor, known: Any = None) -> torch.Tensor:
        contract = self.contract
        *own, chain = CONTRACTS[contract]
        # Tensors made of others, of whose classes alone torch.compile knows it: quantised, sharded or nested ones.
        of_others = any(hasattr(type(each), "__tensor_flatten__") for each in (weight, x))
        dense = x.layout is torch.strided and weight.layout is torch.strided and not x.is_nested
        if not chain and (of_others or not dense or x.dim() == 0):
            return super().forward(x)
        wanted = weight.dtype, self.bias is not None
        if own != [*wanted]:
            alike = _fitting(*wanted, chain)
            if alike is None:
                like = f"no contract with the same epilogue as {contract}"
                raise ValueError(f"{like} accepts {_described(*wanted)}; {_there_are(*wanted)}")
            contract = alike
        if x.dtype != weight.dtype and not x.is_meta and not torch.is_autocast_enabled(x.device.type):
            near = all(each.is_floating_point() and each.dtype.itemsize > 1 for each in (x, weight))
            hint = f"; pass input.to({weight.dtype})" if near else ""
            raise TypeError(f"{contract}: input must be {weight.dtype} as weight is, got {x.dtype}{hint}")
        operands = {} if self.bias is None else {"bias": self.bias if of_others else self.bias.contiguous()}
        function = getattr(_FAMILY, contract)
        left = None if known is None or chain or of_others or deterministic() else self._left
        if left is not None and known not in left:
            faster = function.choice.aten.of_call(function, rows_of(x), weight.t(), operands, host=True)
            remember(left, known, self.contract if faster else None)
            if faster:
                return functional.linear(x, weight, self.bias)
        result: torch.Tensor | None = function.layer(x, weight, operands)
        if result is not None:
            return result
        # A kernel reads both along K, which neither a view of the input nor one of the weight need have contiguous.
        product: torch.Tensor = function(rows_of(x), along(weight).t(), **operands)
        return shaped_as(product, x)

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(f"torch.jit.script does not compile {self.__module__}.Linear; use torch.export")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, contract={self.contract}"


def _require_accumulating(contract: str | None, accumulate_into: str | None) -> None:
    """Raise ValueError for a word by which no layer of the contract, or of plain ones, can add its gradient."""
    if accumulate_into is not None and (main_grad is None or (contract and CONTRACTS[contract][2])):
        why = f"{contract} does more than torch.nn.Linear" if main_grad else f"the family lacks {_ACCUMULATING}"
        raise ValueError(f"accumulate_into: {why}")


def replace_linear(
    model: torch.nn.Module, contract: str | None = None, *, accumulate_into: str | None = None
) -> ReplacedModules:
    """Replace the linear layers of `model` that a contract fits, in place; return their names.

    `left` of the result says why each other module with a matrix as a parameter was left: only modules whose type is
    torch.nn.Linear are replaced, by a `Linear` with the same parameters, and under all of their names. `contract` and
    `accumulate_into` are as for `Linear`. A model that itself is a linear layer is not replaced. Warns if none is.
    """
    if contract is not None and contract not in CONTRACTS:
        raise ValueError(f"{contract} is no contract of a linear layer; those of this family: {', '.join(CONTRACTS)}")
    _require_accumulating(contract, accumulate_into)
    fitting = [key[:2] for name, key in CONTRACTS.items() if (name == contract if contract else not key[2])]
    replaced, others = ReplacedModules(), False
    for name, module in [*model.named_modules(remove_duplicate=False)]:
        if isinstance(module, Linear) or type(module).__module__ == Linear.__module__:
            others = True
            continue
        reason = _why_left(module, fitting)
        if reason == "" and name:
            replaced.replace(model, name, module, Linear)._take(contract, accumulate_into)
        elif reason is not None:
            replaced.left[name] = reason or "that is the model itself"
    if not replaced and not others:
        why = "; ".join(f"{name or 'the model'}: {reason}" for name, reason in [*replaced.left.items()][:3])
        warnings.warn(f"no linear layer is replaced: {why or 'the model has none'}", stacklevel=2)
    return replaced


def _why_left(module: torch.nn.Module, fitting: list[tuple[torch.dtype, bool]]) -> str | None:
    """Why a module is left: empty if it is not, None if it has no matrix."""
    if not isinstance(module, torch.nn.Linear):
        own = [x for x in module._parameters.values() if x is not None and not torch.nn.parameter.is_lazy(x)]
        return f"of {type(module).__name__}, no torch.nn.Linear" if any(x.dim() == 2 for x in own) else None
    if type(module) is not torch.nn.Linear:
        return f"of {type(module).__name__}, a class of its own"
    if "forward" in module.__dict__:
        return "with a `forward` of its own, as hooks set it"
    if not is_plain(module.weight) and not is_fake(module.weight):
        return "with a weight of a tensor subclass"
    wanted = module.weight.dtype, module.bias is not None
    if wanted not in fitting:
        return f"with {_described(*wanted)}; {_there_are(*wanted)}"
    return ""
