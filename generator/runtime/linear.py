"""Linear layers of torch.nn, computed by this family.

`Linear` is a torch.nn.Linear whose forward pass is one of the contracts of `nn`. `replace_linear` puts it in the place
of a model's linear layers.
"""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from .call_tensors import how_converted
from .launchable import ReplacedModules, is_fake, is_plain, require_tensor
from .rows import along, rows_of, shaped_as

_FAMILY = importlib.import_module(__name__.rsplit(".", 2)[0])

#: Contracts of a weight (N, K): the type of the weight and the input, and whether a bias is added. `nn` fills it.
CONTRACTS: dict[str, tuple[torch.dtype, bool]] = {}
#: Of these, the ones that do no more than torch.nn.Linear does.
PLAIN: list[str] = []
#: For each of these, the contracts of the same chain by the type of the weight.
ALIKE: dict[str, dict[torch.dtype, str]] = {}


def _first(wanted: tuple[torch.dtype, bool], among: Iterable[str]) -> str | None:
    """The first of some contracts that is what is wanted, or None."""
    # A list, which torch.compile traces.
    fitting = [name for name in among if CONTRACTS[name] == wanted]
    return fitting[0] if fitting else None


class Linear(torch.nn.Linear):
    """A linear layer computed by a contract of this family; parameters and `state_dict` are those of torch.nn.Linear.

    `contract` is a name in CONTRACTS; None takes the one of PLAIN for the dtype and the bias. The input has the shape
    (..., in_features), the result (..., out_features), or (..., out_features // 2) by a gated contract. A call takes
    the contract of the same chain for the type that the weight has then. Tensors made of others, as those of quantised
    and sharded models are, and nested ones are multiplied by torch if the chain is that of torch.nn.Linear. Raises
    ValueError for a contract that does not fit.
    """

    # Where it is public, and where pickled layers look for it.
    __module__ = f"{_FAMILY.__name__}.nn"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        contract: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._take(contract)

    def _take(self, contract: str | None) -> None:
        wanted = self.weight.dtype, self.bias is not None
        found = _first(wanted, PLAIN) if contract is None else contract
        if found is None:
            raise ValueError(f"no contract of PLAIN fits {_told(*wanted)}; {_fitting(*wanted)}")
        if CONTRACTS.get(found) != wanted:
            raise ValueError(f"{found} does not fit {_told(*wanted)}; {_fitting(*wanted)}")
        self.contract = found

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The contract of `input`, with the weight as its column-major B."""
        x, weight, contract = require_tensor("input", input), self.weight, self.contract
        # Tensors made of others, of whose classes alone torch.compile knows it: quantised, sharded or nested ones.
        made = any(hasattr(type(each), "__tensor_flatten__") for each in (weight, x))
        dense = x.layout is torch.strided and weight.layout is torch.strided and not x.is_nested
        if contract in PLAIN and (made or not dense or x.dim() == 0):
            return super().forward(x)
        wanted = weight.dtype, self.bias is not None
        if CONTRACTS[contract] != wanted:
            alike = _first(wanted, PLAIN if contract in PLAIN else ALIKE[contract].values())
            if alike is None:
                raise ValueError(f"{self.contract} has no like for {_told(*wanted)}; {_fitting(*wanted)}")
            contract = alike
        operands = {} if self.bias is None else {"bias": self.bias if made else self.bias.contiguous()}
        function = getattr(_FAMILY, contract)
        if x.dtype != weight.dtype and not x.is_meta and not torch.is_autocast_enabled(x.device.type):
            hint = how_converted("input", x, weight.dtype)
            raise TypeError(f"{contract}: input must be {weight.dtype} as weight is, got {x.dtype}{hint}")
        if torch.is_grad_enabled() and not function.records:
            named = {"input": x, "weight": weight, "bias": self.bias}
            if recorded := [name for name, each in named.items() if each is not None and each.requires_grad]:
                told = (
                    f"{', '.join(recorded)} require{'s' * (len(recorded) == 1)} a gradient, and {contract} records none"
                )
                raise RuntimeError(f"{told}: call the layer under torch.no_grad(), or render with `backward: kernels`")
        result: torch.Tensor | None = function.layer(x, weight, operands)
        if result is not None:
            return result
        # A kernel reads both along K, which neither a view of the input nor one of the weight need have contiguous.
        found: torch.Tensor = function(rows_of(x), along(weight).t(), **operands)
        return shaped_as(found, x)

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(f"torch.jit.script does not compile {self.__module__}.Linear; use torch.export")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, contract={self.contract}"


def _told(dtype: torch.dtype, bias: bool) -> str:
    return f"a weight of {dtype} {'with' if bias else 'without'} bias"


def _fitting(dtype: torch.dtype, bias: bool) -> str:
    """The contracts that fit such a layer, or those that there are."""
    fitting = [name for name, of in CONTRACTS.items() if of == (dtype, bias)]
    if fitting:
        return f"contracts that fit: {', '.join(fitting)}"
    fitted = ", ".join(dict.fromkeys(_told(*of) for of in CONTRACTS.values()))
    return f"contracts that fit: none; this family has some for {fitted}"


def replace_linear(model: torch.nn.Module, contract: str | None = None) -> ReplacedModules:
    """Replace the linear layers of `model` that a contract fits, in place; return their names.

    `left` of the result says why each other module with a matrix as a parameter was left.

    Only modules whose type is torch.nn.Linear are replaced, by a `Linear` with the same parameters, and under all of
    their names. One whose `forward` was replaced, as by a hook of accelerate, is left, and so is one with a weight of a
    tensor subclass. `contract` is as for `Linear`. A model that itself is a linear layer is not replaced. Warns of
    layers that are left for such a reason, and says why if none is replaced.
    """
    if contract is not None and contract not in CONTRACTS:
        raise ValueError(f"{contract} is no contract of a linear layer; those of this family: {', '.join(CONTRACTS)}")
    fitting = [CONTRACTS[name] for name in ([contract] if contract else PLAIN)]
    replaced, left, others = ReplacedModules(), Counter[str](), False
    made: dict[int, Linear] = {}
    for name, module in [*model.named_modules(remove_duplicate=False)]:
        if isinstance(module, Linear) or type(module).__module__ == Linear.__module__:
            others = True
            continue
        if not isinstance(module, torch.nn.Linear):
            if any(map(_is_matrix, module._parameters.values())):
                replaced.left[name] = f"of {type(module).__name__}, no torch.nn.Linear"
            continue
        reason = _why_left(module, fitting) if name else "that is the model itself, for which `nn.Linear` is"
        if reason:
            left[reason] += 1
            replaced.left[name] = reason
            continue
        if id(module) not in made:
            layer = made[id(module)] = Linear.__new__(Linear)
            layer.__dict__.update(module.__dict__)
            layer._take(contract)
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, made[id(module)])
        replaced.append(name)
    told = left if not replaced else {each: left[each] for each in _SILENT if each in left}
    if told:
        which = "some linear layers are not" if replaced else "no linear layer is"
        reasons = ", ".join(f"{count} {reason}" for reason, count in told.items())
        warnings.warn(f"{which} replaced: {reasons}; {_fit_for(fitting)}", stacklevel=2)
    elif not replaced and not others:
        warnings.warn("no linear layer is replaced: the model has none", stacklevel=2)
    return replaced


def _is_matrix(x: torch.Tensor | None) -> bool:
    """Whether a parameter is a matrix; one without a shape yet is none."""
    return x is not None and not torch.nn.parameter.is_lazy(x) and x.dim() == 2


def _fit_for(fitting: list[tuple[torch.dtype, bool]]) -> str:
    """What layers could have been replaced."""
    if not fitting:
        return f"no contract does just what torch.nn.Linear does; name one: {', '.join(CONTRACTS)}"
    fitted = ", ".join(dict.fromkeys(_told(*of) for of in fitting))
    return f"what fits has {fitted}; another type or bias needs its `dtype` or `epilogue` in the spec"


# What one does not see of a layer, for which it is left.
_SILENT = ("with a `forward` of its own, as hooks set it", "with a weight of a tensor subclass")


def _why_left(layer: torch.nn.Linear, fitting: list[tuple[torch.dtype, bool]]) -> str:
    """Why a layer is not replaced; empty if it is."""
    if type(layer) is not torch.nn.Linear:
        return f"of {type(layer).__name__}, a class of its own"
    if "forward" in layer.__dict__:
        return _SILENT[0]
    weight = layer.weight
    if not is_plain(weight) and not is_fake(weight):
        return _SILENT[1]
    wanted = weight.dtype, layer.bias is not None
    return "" if wanted in fitting else f"with {_told(*wanted)}"
