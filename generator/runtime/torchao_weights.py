"""Weights of linear layers for torchao: packed as this family's contracts store them, and multiplied by these.

`quantize_(model, Config())` of torchao gives each linear layer that fits a `PackedWeight` in the place of its weight.
Only `ao` imports this module, and nothing else of the family needs torchao.
"""

# torchao has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
import hashlib
import importlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchao.core.config import ALLOWED_AO_MODULES, AOBaseConfig
from torchao.prototype.safetensors import safetensors_utils
from torchao.quantization.transform_module import register_quantize_module_handler
from torchao.utils import TorchAOBaseTensor

from .launchable import is_plain
from .pack import (
    FLOATS,
    Stored,
    check_rows,
    dequantize,
    quantize,
    quantize_rows,
    stored_by,
)
from .private import make_wrapper
from .rows import require_tensor, rows_of, shaped_as

_FAMILY = importlib.import_module(__name__.rsplit(".", 2)[0])


class LayerContracts(NamedTuple):
    """The contracts of a linear layer whose weight is stored in one way: `plain`, and `biased`, which adds a bias.

    `dtype` is that of the layer: of its input, or of its result where the input is rounded to `rows` first.
    """

    dtype: torch.dtype
    plain: str | None
    biased: str | None
    rows: Stored | None = None

    @property
    def name(self) -> str:
        """One of the two, by which the way to store the weight is named."""
        return self.plain or self.biased or ""


#: The family's contracts of linear layers; `ao` fills it.
LAYERS: list[LayerContracts] = []


@dataclass
class Config(AOBaseConfig):  # type: ignore[misc]
    """How `torchao.quantize_` packs the weights of linear layers: as the contract `contract` stores B.

    None takes the only way that the family has for the dtype of a layer. Scales that may have several types are
    `scale_dtype`. Layers that do not fit are left, with a warning that says why. Raises ValueError for a name that is
    no contract of a linear layer with a stored weight, and where several ways fit a layer and none is named.
    """

    contract: str | None = None
    scale_dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.contract is not None and not _named(self.contract):
            known = ", ".join([name for layer in LAYERS for name in (layer.plain, layer.biased) if name])
            raise ValueError(
                f"{self.contract} is no contract of a linear layer with a stored weight; those of this family: {known}"
            )
        if self.scale_dtype not in FLOATS:
            raise TypeError(f"scale_dtype must be {' or '.join(map(str, FLOATS))}, got {self.scale_dtype}")


class PackedWeight(TorchAOBaseTensor):  # type: ignore[misc]
    """A weight (N, K) as the contract `contract` stores B; `torch.nn.functional.linear` calls that contract.

    `qdata` has its elements, and `scale`, `zero_point` and `positions` what the contract's `b_scale`, `b_zero` and
    `b_index` are, where it has these. A column-major matrix is transposed here, so that all are contiguous. `dtype` is
    that of the layer. `to` moves it, and changes its dtype if the family has the contract of the same way to store it
    for that one; otherwise, like torchao's own tensors, it keeps its dtype.
    """

    tensor_data_names = ["qdata"]  # noqa: RUF012
    tensor_attribute_names = ["contract", "shape", "dtype"]  # noqa: RUF012
    optional_tensor_data_names = ["scale", "zero_point", "positions"]  # noqa: RUF012

    def __new__(cls, qdata: Tensor, contract: str, shape: Any, dtype: torch.dtype, *_: Any, **__: Any) -> PackedWeight:  # noqa: PYI034
        new: PackedWeight = make_wrapper(cls, torch.Size(shape), dtype=dtype, device=qdata.device, requires_grad=False)
        return new

    def __init__(
        self,
        qdata: Tensor,
        contract: str,
        shape: Any,
        dtype: torch.dtype,
        scale: Tensor | None = None,
        zero_point: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.qdata, self.contract = qdata, contract
        self.scale, self.zero_point, self.positions = scale, zero_point, positions

    @classmethod
    def of(cls, weight: Tensor, contract: str, scale_dtype: torch.dtype = torch.float32) -> PackedWeight:
        """A dense weight (N, K), rounded as `quantize` of `_pack` says; it raises what that does."""
        stored = stored_by(contract)
        given = quantize(weight.detach().mT, contract, scale_dtype=scale_dtype)
        parts = {
            part: _turned(keyword, given[keyword], stored).contiguous()
            for keyword, part in _PARTS.items()
            if keyword in given
        }
        return cls(parts.pop("qdata"), contract, weight.shape, weight.dtype, **parts)

    @property
    def keywords(self) -> dict[str, Tensor]:
        """The keywords of a call of the contract."""
        stored = stored_by(self.contract)
        parts = {keyword: getattr(self, part) for keyword, part in _PARTS.items()}
        return {keyword: _turned(keyword, x, stored) for keyword, x in parts.items() if x is not None}

    def dequantize(self) -> Tensor:
        """The dense weight (N, K) that it stands for."""
        return dequantize(self.contract, **self.keywords).mT.to(self.dtype, memory_format=torch.contiguous_format)

    def _quantization_type(self) -> str:
        return f"shape={tuple(self.shape)}, dtype={self.dtype}, contract={self.contract}, device={self.device}"

    def _stable_hash_for_caching(self) -> str:
        """By what torch caches a compiled graph: it knows of the product only that it is one of this class."""
        parts = [(part, getattr(self, part)) for part in _PARTS.values()]
        of_parts = [(part, tuple(x.shape), x.dtype) for part, x in parts if x is not None]
        return f"{self!r} {of_parts} {LAYERS} {_library_digest()}"

    def __repr__(self, **_: Any) -> str:
        return f"{type(self).__name__}({self._quantization_type()})"


@functools.cache
def _library_digest() -> str:
    """A digest of the code that torch.compile traces for a product: the modules of this folder."""
    texts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()


#: What each keyword of a call is called here, as torchao's own tensors call it.
_PARTS = {"b": "qdata", "b_scale": "scale", "b_zero": "zero_point", "b_index": "positions"}


def _turned(keyword: str, x: Tensor, stored: Stored) -> Tensor:
    """A part of a weight as a keyword of a call, or the other way round: matrices in the contract's layout."""
    return x.mT if keyword in ("b", "b_index") and stored.layout == "column" else x


@PackedWeight.implements(torch.ops.aten.linear.default)  # type: ignore[untyped-decorator]
@PackedWeight.implements_torch_function(torch.nn.functional.linear)  # type: ignore[untyped-decorator]
def _linear(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return _multiply(*args, **kwargs)


@PackedWeight.implements(torch.ops.aten._to_copy.default)  # type: ignore[untyped-decorator]
def _to(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PackedWeight:
    weight: PackedWeight = args[0]
    given = weight._get_to_kwargs(*args[1:], **kwargs)
    (layer,) = _named(weight.contract)
    stored, dtype = stored_by(layer.name), given.pop("dtype")
    alike = [x for x in LAYERS if x.dtype == dtype and x.rows == layer.rows and stored_by(x.name) == stored]
    contract, dtype = (alike[0].name, dtype) if alike and dtype != layer.dtype else (weight.contract, layer.dtype)
    parts = {part: getattr(weight, part) for part in _PARTS.values()}
    moved: dict[str, Any] = {part: None if x is None else x.to(**given) for part, x in parts.items()}
    return type(weight)(contract=contract, shape=weight.shape, dtype=dtype, **moved)


def _multiply(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x = require_tensor("input", input)
    if not isinstance(weight, PackedWeight):
        raise TypeError(
            f"weight must be a {PackedWeight.__name__} if another operand is one, got {type(weight).__name__}"
        )
    keywords = weight.keywords
    wanted = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
    if wanted:
        parts = [keywords.get(keyword) for keyword in _PARTS]
        result: Tensor = _Multiplied.apply(x, bias, weight.contract, *parts)  # type: ignore[no-untyped-call]
        return result
    return _product(x, bias, weight.contract, keywords)


def _product(x: Tensor, bias: Tensor | None, contract: str, keywords: dict[str, Tensor]) -> Tensor:
    """The product of an input (..., K) and a weight, with a bias after it, by the contract or torch."""
    (layer,) = _named(contract)
    name = layer.plain if bias is None else layer.biased
    operands = {} if bias is None or name is None else {"bias": bias}
    name = name or layer.plain
    if name is None:
        raise ValueError(f"{layer.biased} adds a bias, and the layer has none")
    if layer.rows is not None:
        device = x.device.type
        x = x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
        if x.dtype != layer.dtype:
            raise TypeError(f"input must be {layer.dtype}, which {name} returns, got {x.dtype}")
    rows = rows_of(x)
    a = {"a": rows} if layer.rows is None else quantize_rows(rows, layer.rows)
    result: Tensor = getattr(_FAMILY, name)(**a, **keywords, **operands)
    result = shaped_as(result.to(layer.dtype), x)
    return result if bias is None or operands else result + bias


class _Multiplied(torch.autograd.Function):
    """The product with gradients of the input and of the bias; the weight has none, as it is stored."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, contract: str, *parts: Tensor | None) -> Tensor:
        ctx.contract, ctx.has_bias = contract, bias is not None
        ctx.save_for_backward(*parts)
        return _product(x, bias, contract, _given(parts))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        dense = dequantize(ctx.contract, **_given(ctx.saved_tensors)).mT.to(gradient.dtype)
        of_x = gradient @ dense if ctx.needs_input_grad[0] else None
        needed = ctx.has_bias and ctx.needs_input_grad[1]
        of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if needed else None
        return of_x, of_bias, *[None] * (1 + len(_PARTS))


def _given(parts: tuple[Tensor | None, ...]) -> dict[str, Tensor]:
    return {keyword: x for keyword, x in zip(_PARTS, parts) if x is not None}


def _named(contract: str) -> list[LayerContracts]:
    """The contracts of which `contract` is one: none, or those of one way to store a weight."""
    return [layer for layer in LAYERS if contract in (layer.plain, layer.biased)]


@register_quantize_module_handler(Config)  # type: ignore[untyped-decorator]
def _packed(module: torch.nn.Module, config: Config, *, parameter_name: str = "weight") -> torch.nn.Module:
    """`module` with a packed weight, or as it is, with a warning, where no contract fits it."""
    reason = _why_left(module, parameter_name)
    weight: Tensor = getattr(module, parameter_name, torch.empty(0))
    bias = getattr(module, "bias", None) is not None
    # A bias can be added to what `plain` returns.
    layers = [] if reason else [x for x in LAYERS if x.dtype == weight.dtype and (bias or x.plain is not None)]
    if config.contract is not None:
        layers = [x for x in layers if config.contract in (x.plain, x.biased)]
    if len(layers) > 1:
        names = ", ".join([layer.name for layer in layers])
        raise ValueError(f"several contracts fit a weight of {weight.dtype}: name one of them as `contract`: {names}")
    if not reason and not layers:
        reason = (
            f"its weight is of {weight.dtype} {'with' if bias else 'without'} bias; what fits has {_fitting(config)}"
        )
    if not reason:
        try:
            check_rows(weight.shape[1], stored_by(layers[0].name), layers[0].name)
        except ValueError as error:
            reason = str(error)
    if reason:
        warnings.warn(f"{module} is not quantized: {reason}", stacklevel=2)
        return module
    packed = PackedWeight.of(weight, layers[0].name, config.scale_dtype)
    setattr(module, parameter_name, torch.nn.Parameter(packed, requires_grad=False))
    # A bound method would be pickled as an attribute of the module, which it is not.
    module.extra_repr = functools.partial(_extra_repr, module)  # type: ignore[method-assign]
    return module


def _why_left(module: torch.nn.Module, parameter: str) -> str:
    """Why a module is left, whatever contracts there are; empty if it need not be."""
    weight = getattr(module, parameter, None)
    if not isinstance(module, torch.nn.Linear) or parameter != "weight":
        return "only the weight of a torch.nn.Linear is"
    if not isinstance(weight, Tensor) or not is_plain(weight):
        return f"its weight is a {type(weight).__name__}"
    return "its weight has no memory: it is on the device meta" if weight.is_meta else ""


def _fitting(config: Config) -> str:
    """What layers could have been quantized."""
    layers = LAYERS if config.contract is None else _named(config.contract)
    weights = [f"a weight of {layer.dtype}{'' if layer.plain else ' with bias'}" for layer in layers]
    return ", ".join(dict.fromkeys(weights))


def _extra_repr(module: Any) -> str:
    out_features, in_features = module.weight.shape
    return f"{in_features=}, {out_features=}, bias={module.bias is not None}, weight={module.weight!r}"


def named(family: str) -> None:
    """Give both classes a name of their own among those of torchao, by which it finds them in what it saved.

    torchao finds a configuration by the name of its class in modules that it lists, and a tensor of a file of
    safetensors by the name of its class in a table. accelerate knows such tensors by `torchao` in their module's name.
    """
    # What it stores: `_pack` fills the contracts of `pack`.
    importlib.import_module(f"{_FAMILY.__name__}._pack")
    for cls in (Config, PackedWeight):
        cls.__qualname__ = cls.__name__ = f"{cls.__name__}_{family}"
        globals()[cls.__name__] = cls
    ALLOWED_AO_MODULES.add(__name__)
    safetensors_utils.ALLOWED_CLASSES[PackedWeight.__name__] = PackedWeight
    if PackedWeight.__name__ not in safetensors_utils.ALLOWED_TENSORS_SUBCLASSES:
        safetensors_utils.ALLOWED_TENSORS_SUBCLASSES.append(PackedWeight.__name__)
    torch.serialization.add_safe_globals([PackedWeight])


def __getattr__(name: str) -> Any:
    """The classes by those names, for which an unpickler may ask before anyone else has imported `ao`."""
    importlib.import_module(f"{_FAMILY.__name__}.ao")
    if name in globals():
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
