"""Weights as this family's contracts store them: packed by `quantize`, or converted from the formats of others.

`quantize` and each `from_...` return the keywords of a call, `b` among them, so that a call is
`family.CONTRACT(a, **quantize(weight, "CONTRACT"))`. `dequantize` returns the matrix that such keywords stand for. A
contract of a batch has the batch as the first dimension of every tensor here.

What is not a tensor or has the wrong dtype raises TypeError, and everything else that does not fit ValueError.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Element(NamedTuple):
    """A type of elements: its kind and bits, the dtype of `b`, the least and the largest value, and dtypes of scales.

    Magnitudes up to `limit` are at most half a step from the largest value.
    """

    kind: str
    bits: int
    dtype: torch.dtype
    least: float
    most: float
    limit: float
    scales: tuple[torch.dtype, ...]


class Stored(NamedTuple):
    """How a contract stores B (K, N).

    `block` is the number of rows and of columns that share a scale, 0 for all of them; it is empty without scales. With
    `zeros` a value is (stored - zero) * scale. With `fragments` words of 32 bits hold the elements along K in the order
    in which a matrix unit takes them.
    """

    word: str
    layout: str
    block: tuple[int, ...] = ()
    zeros: bool = False
    batched: bool = False
    fragments: bool = False

    @property
    def element(self) -> Element:
        """The type of its elements."""
        return _ELEMENTS[self.word]

    @property
    def sparse(self) -> bool:
        """Whether two of four elements along K are stored."""
        return self.element.kind == "2:4"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of `b`."""
        return torch.int32 if self.fragments else self.element.dtype

    @property
    def together(self) -> int:
        """The elements along K that are stored together."""
        return 8 if self.sparse else 128 // self.element.bits if self.fragments else 8 // self.element.bits or 1


#: How each contract of the family stores B; `_pack` fills it.
CONTRACTS: dict[str, Stored] = {}

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_E8M0 = (torch.float8_e8m0fnu, torch.uint8)
_E4M3 = (torch.float8_e4m3fn,)
# Two elements of four bits are in a byte, that of even k in the low half. Of 16 bits, two of four along K are stored.
_ELEMENTS = {
    "int4": Element("integer", 4, torch.uint8, -8, 7, 7.5, FLOATS),
    "uint4": Element("integer", 4, torch.uint8, 0, 15, 15.5, FLOATS),
    "int8": Element("integer", 8, torch.int8, -128, 127, 127.5, FLOATS),
    "fp8e4m3": Element("float", 8, torch.float8_e4m3fn, -448, 448, 464, FLOATS),
    "fp8e5m2": Element("float", 8, torch.float8_e5m2, -57344, 57344, 61440, FLOATS),
    "mxfp8e4m3": Element("float", 8, torch.float8_e4m3fn, -448, 448, 464, _E8M0),
    "mxfp8e5m2": Element("float", 8, torch.float8_e5m2, -57344, 57344, 61440, _E8M0),
    "mxfp4": Element("e2m1", 4, torch.uint8, -6, 6, 7, _E8M0),
    "nvfp4": Element("e2m1", 4, torch.uint8, -6, 6, 7, _E4M3),
    "fp16": Element("2:4", 16, torch.float16, -math.inf, math.inf, math.inf, ()),
    "bf16": Element("2:4", 16, torch.bfloat16, -math.inf, math.inf, math.inf, ()),
}
# The values of e2m1 by their code.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@torch.no_grad()
def quantize(weight: Tensor, name: str, *, scale_dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Round a dense weight (K, N), of any floating dtype and strides, to what the contract `name` stores.

    A value is then off by at most half a step of its type, times the scale of its block:

    - Integers and fp8: the largest magnitude over the type's largest value, in `scale_dtype`. That value is 7 for int4
      and 127 for int8, so their least one is not used.
    - With zeros: the values of the block, and 0, span the type's range. Zeros are integers, so 0 is stored exactly.
      They are uint8 for uint4, and of `scale_dtype` for int4 and int8.
    - mx: the least power of two that brings the largest magnitude into the type's range, or half a step past it. That
      is the scale of OCP MX 1.0, but twice it where that would cut off more.
    - nvfp4: the largest magnitude over 6, in fp8e4m3. Divide the weight by a scale of the whole first, so that this is
      at most 448, and pass that scale to the call.

    Without scales, values must lie in the type's range. For 2:4, the two largest magnitudes of each four along K are
    kept, of equal ones the first. Of a weight without memory, on the device meta or a fake one, the result has shapes.
    """
    stored = stored_by(name)
    if scale_dtype not in FLOATS:
        raise TypeError(f"scale_dtype must be {_listed(FLOATS)}, got {scale_dtype}")
    w = _dense(weight, stored, name)
    if stored.sparse:
        return _sparsified(w, stored)
    element = stored.element
    if not stored.block:
        _within(w, element.least, element.most, f"{name} has no scales")
        return {"b": as_b(_rounded(w, element), stored)}
    blocks, zeros = _blocks(w, stored.block), {}
    if stored.zeros:
        low, high = blocks.amin((-3, -1)).clamp(max=0), blocks.amax((-3, -1)).clamp(min=0)
        span = (high - low) / (element.most - element.least)
        scale = _scale(span, span, scale_dtype)
        _require_finite(scale, span)
        zero = element.least - (low / scale).round()
        zeros["b_zero"] = zero.to(scale_dtype if element.least < 0 else torch.uint8)
        codes = w / tiled(scale, stored.block, w.shape) + tiled(zero, stored.block, w.shape)
    else:
        if element.least == 0:
            _within(w, 0, math.inf, f"{name} has no zeros")
        largest = blocks.abs().amax((-3, -1))
        scale = _symmetric(largest, element, scale_dtype)
        _require_finite(scale, largest / element.limit)
        codes = w / tiled(scale, stored.block, w.shape)
    b = as_b(_rounded(codes, element), stored)
    packed = {"b": b, "b_scale": scale, **zeros}
    # At the end of fp32 a value may be rounded to a larger one. A scale that cannot make one needs no second look.
    widest = scale.float() * (element.most - element.least)
    if _has_values(w) and not widest.isfinite().all() and not dequantize(name, **packed).isfinite().all():
        raise ValueError(f"weight has magnitudes up to {w.abs().max():g}, which {name} stores as infinite in fp32")
    return packed


@torch.no_grad()
def quantize_rows(x: Tensor, stored: Stored) -> dict[str, Tensor]:
    """Round an input (M, K) to elements with a scale for each block of rows and columns: the keywords `a`, `a_scale`.

    Scales are those that `quantize` makes. It looks at no value, so that torch.compile traces it and no GPU waits.
    """
    element, x = stored.element, x.float()
    scale = _symmetric(_blocks(x, stored.block).abs().amax((-3, -1)), element, torch.float32)
    codes = _rounded(x / tiled(scale, stored.block, x.shape), element)
    return {"a": _halves(codes.mT).mT.contiguous() if element.bits == 4 else codes, "a_scale": scale}


@torch.no_grad()
def dequantize(name: str, **keywords: Tensor) -> Tensor:
    """The fp32 matrix (K, N) that the keywords of a call of the contract `name` stand for.

    The keywords are `b`, and those of `b_scale`, `b_zero` and `b_index` that the contract has.
    """
    stored = stored_by(name)
    has = {"b": True, "b_scale": bool(stored.block), "b_zero": stored.zeros, "b_index": stored.sparse}
    expected = [keyword for keyword, given in has.items() if given]
    if keywords.keys() != set(expected):
        raise ValueError(f"{name} takes {', '.join(expected)}, got {', '.join(keywords) or 'nothing'}")
    check("b", keywords["b"], (stored.dtype,), stored)
    values = _values(_elements(keywords["b"], stored), stored.element)
    if stored.sparse:
        return _filled(values, keywords["b_index"], stored)
    if not stored.block:
        return values
    shape = scale_shape(values.shape, stored.block)
    check("b_scale", keywords["b_scale"], stored.element.scales, stored, shape)
    scale = keywords["b_scale"]
    if stored.zeros:
        check("b_zero", keywords["b_zero"], (*FLOATS, torch.uint8), stored, shape)
        values = values - tiled(keywords["b_zero"], stored.block, values.shape)
    scale = scale.view(torch.float8_e8m0fnu) if scale.dtype == torch.uint8 else scale
    return values * tiled(scale, stored.block, values.shape)


def stored_by(name: str, caller: str = "", words: tuple[str, ...] = ()) -> Stored:
    """How the contract `name` stores B; raise if that is none of the `words` with scales that the `caller` makes."""
    if name not in CONTRACTS:
        raise ValueError(f"{name} is no contract with a stored B; those of this family: {', '.join(CONTRACTS)}")
    fitting = [n for n, s in CONTRACTS.items() if s.word in words and (s.sparse or s.block)]
    if caller and name not in fitting:
        raise ValueError(f"{caller} does not make what {name} stores; contracts that fit: {', '.join(fitting)}")
    return CONTRACTS[name]


def check(what: str, x: object, dtypes: tuple[torch.dtype, ...], stored: Stored, shape: tuple[int, ...] = ()) -> None:
    """Raise unless `x` is a matrix, or a batch of them, of one of `dtypes`, and of `shape` if it is given."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, got {x.__class__.__name__}")
    if x.dtype not in dtypes:
        raise TypeError(f"{what} must be {_listed(dtypes)}, got {x.dtype}")
    if x.dim() != stored.batched + 2:
        raise ValueError(f"{what} must have {stored.batched + 2} dimensions, got shape {tuple(x.shape)}")
    if shape and tuple(x.shape) != shape:
        raise ValueError(f"{what} must have shape {shape}, got {tuple(x.shape)}")


def _listed(dtypes: tuple[torch.dtype, ...]) -> str:
    return " or ".join(map(str, dtypes))


def check_rows(K: int, stored: Stored, name: str) -> None:
    """Raise ValueError unless K rows fill the containers of their elements."""
    if K % stored.together:
        raise ValueError(f"K must be a multiple of {stored.together} for {name}, got {K}")


def _dense(weight: Tensor, stored: Stored, name: str) -> Tensor:
    """A checked weight in fp32; for 2:4 in the dtype of `b`."""
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(f"weight must be a tensor of a floating dtype, got {getattr(weight, 'dtype', weight)}")
    check("weight", weight, (weight.dtype,), stored)
    check_rows(weight.shape[-2], stored, name)
    w = weight.to(stored.element.dtype if stored.sparse else torch.float32)
    if _has_values(w) and not w.isfinite().all():
        raise ValueError(f"weight must be finite in {w.dtype}, got inf or nan")
    return w


def _has_values(x: Tensor) -> bool:
    """Whether a tensor has memory: it is neither on the device meta nor a fake one."""
    return not x.is_meta and not hasattr(x, "fake_mode")


def _within(w: Tensor, least: float, most: float, why: str) -> None:
    if w.numel() and _has_values(w) and not least <= w.min() <= w.max() <= most:
        raise ValueError(f"weight must be between {least} and {most}, since {why}, got {w.min():g} to {w.max():g}")


def _grid(extent: int, size: int) -> tuple[int, int]:
    """The number of blocks of a size, 0 for the whole extent, and the size of each."""
    return (-(-extent // size), size) if size else (1, max(extent, 1))


def scale_shape(shape: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the scales of a matrix, or a batch of them, of a shape."""
    *batch, K, N = shape
    return *batch, _grid(K, block[0])[0], _grid(N, block[1])[0]


def _blocks(x: Tensor, block: tuple[int, ...]) -> Tensor:
    """The matrix (K, N) as (rows of blocks, k, columns of blocks, n); zeros fill up short blocks."""
    *batch, K, N = x.shape
    (rows, k), (columns, n) = _grid(K, block[0]), _grid(N, block[1])
    x = torch.nn.functional.pad(x, (0, columns * n - N, 0, rows * k - K))
    return x.reshape(*batch, rows, k, columns, n)


def tiled(x: Tensor, block: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """The scale or the zero of each element of a matrix of a shape, or a batch of them, in fp32."""
    x = x.float()
    # Of a repetition, Inductor makes wrong code for a CPU where the last block is short.
    for dimension, extent, size in zip((-2, -1), shape[-2:], block):
        index = torch.arange(extent, device=x.device)
        x = x.index_select(dimension, index // size if size else index * 0)
    return x


def _symmetric(largest: Tensor, element: Element, dtype: torch.dtype) -> Tensor:
    """The scales of blocks by their largest magnitudes; NaN for one that is NaN, and for one that no scale is for.

    Kernels whose results are quantised find the same ones (`scale_...` in their files).
    """
    least = largest / element.limit
    if element.scales is _E8M0:
        mantissa, exponent = torch.frexp(least)
        byte = exponent - (mantissa == 0.5).int() + 127
        byte = byte.clamp(0, 254).where(least > 0, 0).where(least.isfinite(), 255)
        return byte.to(torch.uint8).view(torch.float8_e8m0fnu)
    return _scale(largest / element.most, least, torch.float8_e4m3fn if element.scales is _E4M3 else dtype)


def _scale(wanted: Tensor, least: Tensor, dtype: torch.dtype) -> Tensor:
    """`wanted` rounded to a dtype, or the next larger number where that is below `least`; never 0."""
    wanted, least = wanted.clamp(min=2.0**-126), least.clamp(min=2.0**-126)
    scale = wanted.clamp(max=torch.finfo(dtype).max).to(dtype)
    bits = scale.view((torch.uint8, torch.int16, torch.int32)[dtype.itemsize // 2])
    # The next larger number has the next bits.
    return (bits + (scale.float() < least)).view(dtype)


def _require_finite(scale: Tensor, largest: Tensor) -> None:
    """Raise ValueError where a scale is not finite, because its dtype ends below the one that a block needs."""
    if scale.dtype != torch.float8_e8m0fnu and _has_values(scale) and not scale.float().isfinite().all():
        most = torch.finfo(scale.dtype).max
        raise ValueError(f"weight needs a scale of {largest.max():g}, but {scale.dtype} ends at {most:g}")


def _rounded(x: Tensor, element: Element) -> Tensor:
    """fp32 values as elements of a type, saturated and rounded to nearest even; four bits take a whole byte."""
    x = x.clamp(element.least, element.most)
    if element.kind == "e2m1":
        # A code is a number of steps: of 0.5 up to 2, of 1 up to 4, then of 2.
        m = x.abs()
        code = (2 * m.clamp(max=2)).round() + (m.clamp(2, 4) - 2).round() + (m.clamp(min=4) / 2 - 2).round()
        return (code + 8 * x.signbit()).where(~m.isnan(), 0).to(torch.uint8)
    if element.kind == "integer":
        # In two's complement, whose lowest four bits are those of int4.
        x = x.round().where(~x.isnan(), 0).to(torch.int8)
    return x.view(torch.uint8) & 15 if element.bits == 4 else x.to(element.dtype)


def as_b(elements: Tensor, stored: Stored) -> Tensor:
    """Elements (K, N) as `b` in the contract's layout: those of four bits two to a byte, or words in fragment order."""
    if stored.fragments:
        return laid_out(_in_fragments(elements, stored), stored)
    return laid_out(_halves(elements) if stored.element.bits == 4 else elements, stored)


def _halves(x: Tensor) -> Tensor:
    """Rows of four bits two to a byte, the even one in the low half."""
    return x[..., 0::2, :] | x[..., 1::2, :] << 4


def _in_fragments(elements: Tensor, stored: Stored) -> Tensor:
    """Elements (K, N) as int32 words, four of which hold a group of elements along K.

    Word i has elements 8j + 2i and 8j + 2i + 1 of a group, for each j: from bit 4j and 4j + 16 on, or with 8 bits from
    8j and 8j + 16 on. So a thread of a matrix unit of 16 elements a step has two neighbours in each half of a word.
    """
    bits = stored.element.bits
    *batch, K, N = elements.shape
    groups = elements.view(torch.uint8).reshape(*batch, K // stored.together, 16 // bits, 4, 2, N)
    words = groups.new_zeros((*batch, K // stored.together, 4, N), dtype=torch.int64)
    for j in range(16 // bits):
        for half in range(2):
            words |= groups[..., j, :, half, :].long() << bits * j + 16 * half
    # As two's complement: a word whose highest bit is set is below 0.
    return (words - (words >> 31 << 32)).int().reshape(*batch, K * bits // 32, N)


def _elements(b: Tensor, stored: Stored) -> Tensor:
    """The elements (K, N) of `b`: what `as_b` is given."""
    bits = stored.element.bits
    if not stored.fragments:
        return torch.stack((b & 15, b >> 4), -2).flatten(-3, -2) if bits == 4 else b
    *batch, rows, N = b.shape
    if rows % 4:
        raise ValueError(f"b must have a multiple of 4 rows, got {rows}")
    words = b.reshape(*batch, rows // 4, 4, N)
    pairs = [torch.stack([words >> bits * j + 16 * half for half in range(2)], -2) for j in range(16 // bits)]
    elements: Tensor = (torch.stack(pairs, -4) & 2**bits - 1).to(torch.uint8).reshape(*batch, rows * 32 // bits, N)
    return elements if bits == 4 else elements.view(stored.element.dtype)


def laid_out(x: Tensor, stored: Stored) -> Tensor:
    """A matrix in the layout of the contract's B."""
    return x.contiguous() if stored.layout == "row" else x.mT.contiguous().mT


def _values(elements: Tensor, element: Element) -> Tensor:
    """What elements stand for, in fp32."""
    if element.kind == "e2m1":
        return torch.tensor(_E2M1, device=elements.device)[elements.int()]
    # Of int4 the highest bit is the sign.
    highest = 8 * (element.bits == 4 and element.least < 0)
    return (elements ^ highest).float() - highest if highest else elements.float()


def _sparsified(w: Tensor, stored: Stored) -> dict[str, Tensor]:
    """The keywords of a 2:4 contract for a dense weight."""
    *batch, K, N = w.shape
    fours = w.reshape(*batch, K // 4, 4, N)
    order = fours.abs().sort(dim=-2, descending=True, stable=True).indices
    kept = order[..., :2, :].sort(dim=-2).values
    pairs = (kept[..., 0, :] | kept[..., 1, :] << 2).to(torch.uint8)
    b = fours.gather(-2, kept).reshape(*batch, K // 2, N)
    return {"b": laid_out(b, stored), "b_index": laid_out(_halves(pairs), stored)}


def _filled(values: Tensor, index: Tensor, stored: Stored) -> Tensor:
    """The matrix (K, N) with the values (K/2, N) at the positions of an index (K/8, N), and zeros elsewhere."""
    *batch, half, N = values.shape
    check("b_index", index, (torch.uint8,), stored, (*batch, half // 4, N))
    kept = torch.stack([index >> shift & 3 for shift in (0, 2, 4, 6)], -2).reshape(*batch, half // 2, 2, N)
    fours = values.new_zeros(*batch, half // 2, 4, N)
    return fours.scatter(-2, kept.long(), values.reshape(kept.shape)).reshape(*batch, 2 * half, N)
