"""Triton's interpreter, corrected where its results differ from the compiler's, with every address checked.

`install` changes the interpreter of this process once. `watch` then takes the operands of one call: inside its context,
each unmasked lane must access exactly one element of an operand, and a store one of an output. Membership is computed
from the strides, without a table as large as the operand. Supports Triton 3.6 to 3.9.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partialmethod
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from generator.language.elements import ELEMENTS, FORMATS
from generator.problem.element_types import of_codes, scales
from generator.problem.poisoned_operands import poison_byte

_Array = np.ndarray[Any, np.dtype[Any]]


class StrayAccess(Exception):
    """A kernel accessed an address that is not an element of its operands, or wrote to an input."""


@dataclass
class Region:
    """A tensor's elements as addresses: extents and strides in bytes, outermost first."""

    name: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    width: int
    writable: bool
    #: Whether each element was stored to, in the order of `extents`.
    written: _Array = field(repr=False)
    #: For each extent, the dimension of the tensor.
    dimensions: tuple[int, ...]
    #: How many of the elements that a store writes were written before.
    again: int = 0
    #: For each store, in their order, the smallest index along each extent.
    corners: list[tuple[int, ...]] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor, *, writable: bool = False) -> Region:
        """The region of `tensor`; dimensions of one element or of stride 0 are dropped."""
        width = tensor.element_size()
        numbered = enumerate(zip(tensor.stride(), tensor.shape, strict=True))
        dims = [(stride * width, size, number) for number, (stride, size) in numbered if size != 1 and stride]
        dims.sort(reverse=True)
        extents = tuple(size for _, size, _ in dims)
        strides, order = tuple(stride for stride, _, _ in dims), tuple(number for _, _, number in dims)
        written = np.zeros(extents if writable else (), dtype=bool)
        return cls(name, tensor.data_ptr(), extents, strides, width, writable, written, order)

    def stored(self, indices: tuple[_Array, ...]) -> None:
        """Record that the elements with these indices were written."""
        self.again += int(self.written[indices].sum())
        self.written[indices] = True
        self.corners.append(tuple(int(index.min()) for index in indices))

    def find(self, addresses: _Array) -> tuple[_Array, tuple[_Array, ...]]:
        """For int64 `addresses`: whether each is an element, and its index along each extent (undefined if not)."""
        rest = addresses - self.address
        inside = np.ones(rest.shape, dtype=bool)
        if 0 in self.extents:
            return ~inside, ()
        indices = []
        for extent, stride in zip(self.extents, self.strides, strict=True):
            index, rest = np.divmod(rest, stride)
            inside &= (index >= 0) & (index < extent)
            indices.append(index)
        return inside & (rest == 0), tuple(indices)


class _Checked:
    """The interpreter's native memory functions, each with an address check before it."""

    def __init__(self, native: Any) -> None:
        self._native = native
        #: The operands of the current call; None outside a call, where nothing is checked.
        self.regions: list[Region] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, addresses: _Array, mask: _Array, other: _Array, dtype: Any) -> Any:
        self.check("load", addresses, mask, np.dtype(dtype).itemsize)
        return self._native.load(addresses, mask, other, dtype)

    def store(self, addresses: _Array, values: _Array, mask: _Array) -> Any:
        self.check("store", addresses, mask, values.dtype.itemsize)
        return self._native.store(addresses, values, mask)

    def atomic_rmw(self, operation: Any, addresses: _Array, values: _Array, mask: _Array, order: Any) -> Any:
        self.check("atomic", addresses, mask, values.dtype.itemsize)
        return self._native.atomic_rmw(operation, addresses, values, mask, order)

    def atomic_cas(self, addresses: _Array, compared: _Array, values: _Array, order: Any) -> Any:
        self.check("atomic", addresses, np.ones((), dtype=bool), values.dtype.itemsize)
        return self._native.atomic_cas(addresses, compared, values, order)

    def check(self, access: str, addresses: _Array, mask: _Array, width: int) -> None:
        """Raise `StrayAccess` unless every lane in `mask` is an element of a region that `access` may use."""
        if self.regions is None:
            return
        # Triton passes a descriptor's mask as the buffer of an array.
        lanes, mask = np.broadcast_arrays(addresses.astype(np.int64), np.asarray(mask, dtype=bool))
        lanes = lanes[mask]
        stray = np.ones(lanes.shape, dtype=bool)
        for region in self.regions:
            if region.width != width or (access != "load" and not region.writable):
                continue
            inside, indices = region.find(lanes)
            stray &= ~inside
            if access != "load" and inside.any():
                region.stored(tuple(index[inside] for index in indices))
            if not stray.any():
                return
        if stray.any():
            raise StrayAccess(_described(access, lanes[stray], width, self.regions))


def _described(access: str, stray: _Array, width: int, regions: Sequence[Region]) -> str:
    """The message for stray lanes: the operand nearest to the first one, and the offset from its start."""
    address = int(stray[0])

    def distance(region: Region) -> int:
        reach = sum((extent - 1) * stride for extent, stride in zip(region.extents, region.strides, strict=True))
        return max(region.address - address, address - (region.address + reach), 0)

    where = "the call has no operands"
    if regions:
        nearest = min(regions, key=distance)
        where = f"the first address is {address - nearest.address} bytes from the start of {nearest.name}"
    return f"stray {access}: {len(stray)} lanes of {width} bytes are outside all operands they may use; {where}"


#: Types that the interpreter represents as unsigned integers, and the torch type of the same bits.
_BITS = {
    getattr(tl, element.triton).name: getattr(torch, element.torch)
    for element in ELEMENTS.values()
    if element.floating and element.triton not in ("float32", "float16", "uint8")
}
_CARRIERS = {1: (np.uint8, torch.uint8), 2: (np.int16, torch.int16)}


def _to_torch(data: _Array, dtype: Any) -> torch.Tensor:
    """The numbers that an interpreter's array of Triton type `dtype` represents."""
    contiguous = np.array(data, order="C")
    if dtype.name not in _BITS:
        return torch.from_numpy(contiguous)
    return torch.from_numpy(contiguous.view(_CARRIERS[contiguous.itemsize][0])).view(_BITS[dtype.name])


def _convert(src: Any, target: Any) -> Any:
    """`src` converted to the Triton floating type `target`, rounded to nearest even; NaN and infinity stay."""
    wide = _to_torch(src.data, src.dtype.scalar)
    target = target.scalar
    if target.name in _BITS:
        # fp64 is converted through fp32, as the compiler does.
        narrow = wide.float().to(_BITS[target.name])
        data = narrow.view(_CARRIERS[narrow.element_size()][1]).numpy()
        return interpreter.TensorHandle(data.view(f"u{data.itemsize}"), target)
    return interpreter.TensorHandle(wide.to(getattr(torch, f"float{target.primitive_bitwidth}")).numpy(), target)


def _between_floats(self: Any, original: Any, src: Any, target: Any, *rest: Any) -> Any:
    """A conversion of floating numbers: the interpreter truncates fp32 to bf16, and makes 480 of NaN in e4m3."""
    kinds = {src.dtype.scalar.name, target.scalar.name}
    if kinds & _BITS.keys() and src.dtype.scalar.is_floating() and target.scalar.is_floating():
        return _convert(src, target)
    return original(self, src, target, *rest)


def _from_integers(self: Any, original: Any, src: Any, target: Any) -> Any:
    """A conversion of integers, of which the interpreter makes integers for bf16."""
    if target.scalar.name not in _BITS:
        return original(self, src, target)
    return _convert(interpreter.TensorHandle(src.data.astype(np.float32), tl.float32), target)


def _complete_types() -> None:
    """Add the types that the interpreter's `dtype.to_ir` lacks: those of fp8 without a negative zero."""
    original = interpreter._patch_lang_core

    def patch_lang_core(lang: Any, *scope: Any) -> None:
        original(lang, *scope)
        known = lang.dtype.to_ir

        def to_ir(self: Any, builder: Any) -> Any:
            return self if self.name in _BITS else known(self, builder)

        if scope:
            scope[0].set_attr(lang.dtype, "to_ir", to_ir)
        else:
            lang.dtype.to_ir = to_ir

    interpreter._patch_lang_core = patch_lang_core


def _dot(self: Any, original: Any, a: Any, b: Any, *rest: Any) -> Any:
    """A product of fp32, which is exact: bf16 is multiplied as the integers of its bits, NaN in e4m3 as 480."""
    a, b = (_convert(x, tl.float32) if x.dtype.scalar.name in _BITS else x for x in (a, b))
    return original(self, a, b, *rest)


def _arithmetic(self: Any, original: Any, a: Any, b: Any) -> Any:
    """A difference or a product of bf16 numbers, whose bits the interpreter takes."""
    dtype = a.dtype
    if dtype.scalar.name not in _BITS:
        return original(self, a, b)
    return _convert(original(self, _convert(a, tl.float32), _convert(b, tl.float32)), dtype)


def _constant_bf16(self: Any, value: float) -> Any:
    """A constant in bf16, of which the interpreter has none."""
    return _convert(self.get_fp32(value), tl.bfloat16)


def _splat(self: Any, original: Any, kind: Any, x: Any) -> Any:
    """A comparison of numbers stays a mask where it is repeated: its handle has the type of what it compares."""
    splat = original(self, kind, x)
    return interpreter.TensorHandle(splat.data.astype(bool), tl.int1) if x.data.dtype == bool else splat


def _fma(self: Any, original: Any, x: Any, y: Any, z: Any) -> Any:
    """A fused product and sum of fp32, rounded once: before 3.9 the interpreter rounds the product, too."""
    if z.dtype.scalar.name != "fp32":
        return original(self, x, y, z)
    return interpreter.TensorHandle(_fused(x.data, y.data, z.data), tl.float32)


def _fused(x: _Array, y: _Array, z: _Array) -> _Array:
    """x * y + z of fp32, rounded once: in float64 the product is exact, and the sum is rounded to an odd last bit."""
    product, added = np.broadcast_arrays(x.astype(np.float64) * y, z.astype(np.float64))
    total = product + added
    back = total - product
    lost = (product - (total - back)) + (added - back)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    odd: _Array = bits + np.where(inexact, np.where((lost > 0) == (total > 0), 1, -1), 0)
    return odd.view(np.float64).astype(np.float32)


#: The elements of dot_scaled by its words for them.
_SCALED = {each.format: each for each in (ELEMENTS[format.element] for format in FORMATS.values())}


def _bits(x: Any) -> torch.Tensor:
    """The bytes of a tile."""
    return torch.from_numpy(np.array(x.handle.data, order="C").view(np.uint8))


def _elements(x: Any, kind: Any) -> torch.Tensor:
    """The numbers of a tile with K along its rows, in float64; `kind` is a word, or Triton's value of one."""
    element, bits = _SCALED[getattr(kind, "value", kind)], _bits(x)
    if element.bits == 8:
        return bits.view(getattr(torch, element.torch)).double()
    return of_codes(element, torch.stack([bits & 0xF, bits >> 4], -1).flatten(-2))


def _scales(x: Any) -> torch.Tensor:
    """The scales of a tile in float64: of bytes, powers of two."""
    name = x.dtype.scalar.name
    return _bits(x).view(_BITS[name]).double() if name in _BITS else scales("e8m0", _bits(x))


def _scaled_dot(self: Any, original: Any, *given: Any, **named: Any) -> Any:
    """A product of scaled tiles: Triton 3.6 and 3.7 do not interpret it, and 3.8 reads the scale 2**-127 as 0."""
    if not isinstance(self.builder, interpreter.InterpreterBuilder) or named:
        return original(self, *given, **named)
    a, a_scale, a_kind, b, b_scale, b_kind, acc, *_ = given
    transposed = interpreter.TensorHandle(np.ascontiguousarray(b.handle.data.T), b.handle.dtype)
    rows = _elements(a, a_kind)
    columns = _elements(tl.core.tensor(transposed, b.type), b_kind)
    scaled_rows, scaled_columns = _scales(a_scale), _scales(b_scale)
    (m, depth), n, blocks = rows.shape, len(columns), scaled_rows.shape[-1]
    if len(columns.T) != depth or scaled_rows.shape != (m, blocks) or scaled_columns.shape != (n, blocks):
        shapes = [tuple(x.shape) for x in (rows, scaled_rows, columns.T, scaled_columns)]
        raise ValueError(f"dot_scaled of tiles and scales of the shapes {shapes}")
    left, right = (x.reshape(len(x), blocks, -1).transpose(0, 1) for x in (rows, columns))
    sums = left @ right.mT * scaled_rows.T[:, :, None] * scaled_columns.T[:, None, :]
    total = (sums.sum(0) + _to_torch(acc.handle.data, tl.float32).double()).float()
    return tl.core.tensor(interpreter.TensorHandle(total.numpy(), tl.float32), acc.type)


def _masked_load(self: Any, original: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
    """A load without `other`, whose masked lanes are undefined: poison, where the interpreter has 0."""
    if other is None:
        element = ptrs.get_element_ty()
        width = max(element.primitive_bitwidth // 8, 1)
        byte = poison_byte(_BITS.get(element.name, torch.float32) if element.is_floating() else torch.int32)
        fill = np.full((*ptrs.data.shape, width), byte, dtype=np.uint8).view(interpreter._get_np_dtype(element))
        other = interpreter.TensorHandle(fill.reshape(ptrs.data.shape), element)
    return original(self, ptrs, mask, other, *rest, **named)


#: The methods of the interpreter's builder with what corrects them: it gets the original method as its first argument.
_CORRECTED = {
    **dict.fromkeys(("create_fp_trunc", "create_fp_ext", "create_fp_to_fp"), _between_floats),
    **dict.fromkeys(("create_si_to_fp", "create_ui_to_fp"), _from_integers),
    **dict.fromkeys(("create_fsub", "create_fmul"), _arithmetic),
    "create_dot": _dot,
    "create_splat": _splat,
    "create_fma": _fma,
    "create_masked_load": _masked_load,
}


def _cache_builtin_search() -> None:
    """Cache the search of triton.language for builtins, which each launch and each call of a helper repeats."""
    builtins: dict[int, list[tuple[str, Any]]] = {}

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        if id(package) not in builtins:
            members = inspect.getmembers(package)
            builtins[id(package)] = [(name, member) for name, member in members if tl.core.is_builtin(member)]
        for name, member in builtins[id(package)]:
            # Inside a launch they are already replaced.
            if getattr(package, name) is member:
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtin


def install() -> None:
    """Install the corrections and the address checks in this process; a second call does nothing."""
    if isinstance(interpreter._interpreter, _Checked):
        return
    interpreter._interpreter = _Checked(interpreter._interpreter)
    # The functions of families ask for this name before they multiply bf16.
    vars(interpreter)["corrected_by"] = __name__
    builder = interpreter.InterpreterBuilder
    for name, corrected in _CORRECTED.items():
        setattr(builder, name, partialmethod(corrected, getattr(builder, name)))
    builder.get_bf16 = _constant_bf16
    semantic = interpreter.TritonSemantic
    semantic.dot_scaled = partialmethod(_scaled_dot, semantic.dot_scaled)
    _complete_types()
    _cache_builtin_search()
    # A second computation of integer arithmetic in 64 bits, whose assertion only a debug build makes.
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    # On the CPU the interpreter works on the caller's memory and then copies every operand's storage onto itself. For
    # gigabytes of virtual memory that are mostly untouched, this copy dominates the time of the call.
    interpreter.GridExecutor._restore_args_dev = lambda *_: None


def allow(name: str, tensor: torch.Tensor) -> Region:
    """Allow the current call to write to `tensor`, which the launcher allocated."""
    region = Region.of(name, tensor, writable=True)
    interpreter._interpreter.regions.append(region)
    return region


@contextmanager
def watch(regions: list[Region]) -> Iterator[None]:
    """Check every access inside the context against `regions`; `install` must have been called."""
    checked = interpreter._interpreter
    checked.regions = list(regions)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            # numpy warns about the NaN and infinity in a case's operands.
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        checked.regions = None
