"""The operands of one case: its sizes, strides and offsets, seeded values, and poisoned margins around them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from generator.language.dtypes import QUANTISED
from generator.language.storage import CONTAINER
from generator.plan.call import Argument, call
from generator.plan.kernels import Kernel
from generator.verify.case_sizes import Case, sizes_of
from generator.verify.element_types import OPERAND_TYPES, has_infinity, torch_type
from generator.verify.poisoned_operands import Operand, fill, place
from generator.verify.stored_values import positions

#: A stride in elements that is a multiple of 16 bytes for every type.
_STEP = 16
#: The product's standard deviation: in this range the epilogue's functions are nonlinear and rounding errors show.
_SPREAD = 2.0
#: The same for saturated results, so that values exceed the range on both sides. Integer operands then have values of
#: at most _SATURATING_WHOLE instead of their whole range.
_SATURATING_SPREAD = {"int8": 100.0, "fp8e4m3": 200.0, "fp8e5m2": 3000.0}
_SATURATING_WHOLE = 8
_PADDING = {"a": 3, "b": 7, "c": 11}
#: A stride that no layout has and no hardware copy accepts.
_ODD = 7
#: The type of scales, or of zero points where a byte is one of their types, by the type of the case's operands.
_SCALE_TYPE = {"fp32": "fp32", "fp64": "fp32", "bf16": "bf16", "fp16": "fp16"}
_ZERO_TYPE = {**_SCALE_TYPE, "bf16": CONTAINER}
_E8M0_TYPE = {word: CONTAINER if word == "bf16" else "e8m0" for word in _SCALE_TYPE}
#: The logarithms of scales of B that are powers of two and the least, up to which, and of what A is larger by.
_LEAST, _LARGER = -125, 100
#: The largest margin, in elements.
_LARGEST_MARGIN = 1 << 18


@dataclass
class Setup:
    """The arguments of a launcher; `tensors` are those behind A and B, and `scalars` the ones that are Python numbers.

    `outputs` are the caller's tensors for results other than `out`; `c` is a copy of `out`'s values if they are read.
    """

    a: Operand
    b: Operand
    out: Operand | None
    tensors: dict[str, Operand]
    scalars: dict[str, float]
    outputs: dict[str, Operand]
    c: torch.Tensor | None = None

    @property
    def written(self) -> list[Operand]:
        """The result tensors that the caller supplies."""
        return [*([] if self.out is None else [self.out]), *self.outputs.values()]

    @property
    def results(self) -> dict[str, torch.Tensor]:
        """The result tensors that the caller supplies, by the launcher's keywords."""
        given = {name: operand.view for name, operand in self.outputs.items()}
        return given if self.out is None else {"out": self.out.view, **given}

    @property
    def read(self) -> dict[str, torch.Tensor | float]:
        """What the epilogue reads: its operands, and C if it reads C."""
        return self.operands if self.c is None else {**self.operands, "c": self.c}

    @property
    def operands(self) -> dict[str, torch.Tensor | float]:
        """The operands behind A and B, by the launcher's keywords."""
        return {name: operand.view for name, operand in self.tensors.items()} | self.scalars

    @property
    def inputs(self) -> list[Operand]:
        return [self.a, self.b, *self.tensors.values()]


def prepare(kernel: Kernel, case: Case, device: torch.device) -> Setup:
    """Allocate and fill the operands of `case`; the values are the same in every run. Raises `NoMemory`."""
    return _Builder(kernel, case, device).setup()


class _Builder:
    def __init__(self, kernel: Kernel, case: Case, device: torch.device) -> None:
        self.variant, self.case, self.device = kernel.variant, case, device
        self.tile = kernel.tiles[case.row or 0]
        self.random = torch.Generator().manual_seed(zlib.crc32(f"{kernel.name} {case.name}".encode()))

    def setup(self) -> Setup:
        k = self.case.sizes[2]
        dtype, described = self.variant.dtype, call(self.variant)
        # Both factors are scaled by the same amount, so that neither leaves the range of fp8.
        spread = (_SATURATING_SPREAD.get(dtype.out, _SPREAD) / max(k, 1) ** 0.5) ** 0.5
        a, b = (self.tensor(x, x.name) for x in (described.a, described.b))
        stored = {x.name: self.tensor(x, x.name) for x in described.stored}
        if dtype.plain:
            self.fill(a, spread * 2.0**self.case.shift)
            self.fill(b, spread / 2.0**self.case.shift)
        else:
            self.fill_stored({"a": a, "b": b, **stored}, spread)
        if described.offsets is not None:
            stored["offsets"] = self.offsets(described.offsets)
        if described.rows is not None and self.case.named:
            stored["rows"] = self.rows(described.rows)
        out = None
        if self.case.given_out or described.reads_out or "c" in (self.case.huge, self.case.apart):
            out = self.tensor(described.out, "c")
        setup = Setup(a, b, out, stored, {}, {})
        if out is not None and described.reads_out:
            self.fill(out, _SPREAD if dtype.stored_a.element.floating else 5000.0 * max(k, 1) ** 0.5)
            setup.c = out.view.clone()
        for output in described.outputs:
            if self.case.given_out or output.name in (self.case.huge, self.case.apart):
                setup.outputs[output.name] = self.tensor(output, output.name)
        for operand in described.operands:
            self.add(setup, operand)
        if self.case.special:
            self.spoil(setup)
        return setup

    def offsets(self, x: Argument) -> Operand:
        """The ends of groups."""
        found = self.tensor(x, x.name)
        ends = self.case.offsets(sizes_of(self.variant, self.case)["T"])
        fill(found, torch.tensor(ends, dtype=torch.int32, device=self.device))
        return found

    def rows(self, x: Argument) -> Operand:
        """Names of rows of A: some twice, and some that it does not have."""
        found = self.tensor(x, x.name)
        sizes = sizes_of(self.variant, self.case)
        named = torch.randint(0, max(sizes["R"], 1), (sizes["T"],), generator=self.random)
        for at, wrong in enumerate((-1, sizes["R"], 2**31 - 1, -(2**31))):
            named[2 * at + 1 : 2 * at + 2] = wrong
        fill(found, named.to(torch.int32).to(self.device))
        return found

    def add(self, setup: Setup, x: Argument) -> None:
        """Add one epilogue operand, of the product's magnitude, so that sums cancel and expose an early rounding."""
        spread = _SPREAD
        if not self.variant.dtype.stored_a.element.floating and self.variant.dtype.out not in QUANTISED:
            # Integer factors use their whole range; operands of the product's magnitude cancel it.
            spread = 5000.0 * max(self.case.sizes[2], 1) ** 0.5
        if x.number and not self.case.scalar_tensor:
            setup.scalars[x.name] = -1.3
            return
        setup.tensors[x.name] = operand = self.tensor(x, x.name)
        self.fill(operand, 1.0 if x.number or x.extents == ("1",) else spread)

    def tensor(self, x: Argument, name: str) -> Operand:
        """The tensor for an argument, with poisoned margins; `name` is the one that cases know it by."""
        shape = x.sizes(sizes_of(self.variant, self.case))
        dtype = OPERAND_TYPES[self.case.operand_type]
        if isinstance(x.dtype, str):
            dtype = torch_type(x.dtype)
        elif x.dtype is not None:
            types = _E8M0_TYPE if "e8m0" in x.dtype else _ZERO_TYPE if CONTAINER in x.dtype else _SCALE_TYPE
            dtype = torch_type(types[self.case.operand_type])
        if x.layout:
            return self.matrix(name, shape[:-2], (shape[-2], shape[-1]), x.layout, dtype)
        elsewhere = x.number and self.case.scalar_elsewhere
        shape = shape or (1,)
        strides = (shape[-1] + _PADDING["c"], 1)[-len(shape) :]
        offset, margin = int(self.case.unaligned), max(self.tile.m, self.tile.n)
        device = torch.device("cpu") if elsewhere else self.device
        return place(name, shape, strides, dtype, device, offset=offset, margin=margin)

    def matrix(
        self, name: str, front: tuple[int, ...], shape: tuple[int, int], layout: str, dtype: torch.dtype
    ) -> Operand:
        """A matrix, or as many as `front` says, in the layout `layout`, with a margin of a tile on every side."""
        sizes, strides = self.batch(name, front, shape, self.strides(name, shape, layout, dtype))
        # The memory that an access one tile out of range would touch, limited to save memory.
        margin = min(max(self.tile.m, self.tile.n, self.tile.k, _STEP) * max(strides), _LARGEST_MARGIN)
        offset = 1 if self.case.unaligned else 0
        return place(name, sizes, strides, dtype, self.device, offset=offset, margin=margin)

    def batch(
        self, name: str, front: tuple[int, ...], shape: tuple[int, int], strides: tuple[int, int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides with the batch dimension in front: matrices are contiguous unless the case differs."""
        case = self.case
        if not front:
            return shape, strides
        count = front[0]
        apart = max(sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1, 1)
        if case.interleaved:
            apart = max(strides)
            row, column = (stride * count if stride == apart else stride for stride in strides)
            strides = row, column
        elif case.padded:
            apart += _PADDING.get(name, 5)
        if self.variant.loading.descriptors and not case.interleaved:
            apart = -(-apart // _STEP) * _STEP
        if name == case.repeated:
            apart = 0
        if name == case.apart:
            apart = (2**31 // max(count - 1, 1) // _STEP + 1) * _STEP
        return (*front, *shape), (apart, *strides)

    def strides(self, name: str, shape: tuple[int, int], layout: str, dtype: torch.dtype) -> tuple[int, int]:
        """Strides in elements for a layout, padded where the case or the hardware's copies require it."""
        column = layout == "column" or (layout == "strided" and self.case.strided == "column")
        lines, inner = shape[::-1] if column else shape
        leading = inner
        if self.case.padded:
            # Different amounts expose two leading dimensions that are swapped. They break every alignment, unless the
            # hardware requires one.
            leading += _PADDING.get(name, 5) * (_STEP if self.variant.loading.descriptors else 1)
        if self.variant.loading.descriptors:
            # Hardware copies need strides of a multiple of 16 bytes, even for a single line.
            step = 16 // torch.empty((), dtype=dtype).element_size()
            leading = max(-(-leading // step) * step, step)
        if name == self.case.huge:
            leading = (2**31 // max(lines - 1, 1) // _STEP + 1) * _STEP
        unit = 2 if layout == "strided" and self.case.strided == "gaps" else 1
        outer = max(leading, 1) * unit
        strides = (unit, outer) if column else (outer, unit)
        if self.case.odd_single:
            strides = (_ODD if shape[0] == 1 else strides[0], _ODD if shape[1] == 1 else strides[1])
        return strides

    def fill(self, operand: Operand, spread: float) -> None:
        """Write seeded nonzero values: normal with standard deviation `spread`, or over an integer type's range."""
        # A matrix that the whole batch shares is written once.
        view = operand.view[:1] if operand.name == self.case.repeated else operand.view
        shape, dtype = view.shape, view.dtype
        if dtype.is_floating_point:
            values = torch.randn(shape, generator=self.random, dtype=torch.float64) * spread
            rounded = values.to(dtype)
            values = torch.where(rounded.double() == 0, torch.full_like(values, spread), values).to(dtype)
        else:
            limits = torch.iinfo(dtype)
            least, most = limits.min, limits.max
            if self.variant.dtype.out in QUANTISED:
                least, most = -_SATURATING_WHOLE, _SATURATING_WHOLE
            values = torch.randint(least, most + 1, shape, generator=self.random)
            values = torch.where(values == 0, 1, values).to(dtype)
        fill(operand, values.to(operand.view.device))

    def fill_stored(self, operands: Mapping[str, Operand], spread: float) -> None:
        """Write operands as they are stored: elements of few bits over their whole range, and the rest so that the
        product has the magnitude that it has of two operands of standard deviation `spread`.
        """
        dtype, rest = self.variant.dtype, spread * spread
        scaled = [storage for storage in dtype.stored if storage.block is not None]
        for storage in reversed(dtype.stored):
            if storage.sparse:
                magnitude = spread
                self.fill(operands[storage.letter], magnitude / 2.0**self.case.shift)
                self.fill_positions(operands[storage.index])
            elif storage.bits == 16:
                magnitude = spread if scaled else rest
                self.fill(
                    operands[storage.letter], magnitude * 2.0 ** (_LARGER if self.case.least else self.case.shift)
                )
            elif storage.element.floating and storage.packed == 1:
                magnitude = 1.0
                self.fill(operands[storage.letter], magnitude)
            else:
                magnitude = 2.0**storage.bits / 12**0.5
                self.fill_integers(operands[storage.letter])
            rest /= magnitude
        for storage in scaled:
            if storage.scale_types[0] == "e8m0":
                self.fill_powers(operands[storage.scale], storage.letter, math.log2(rest) / len(scaled))
                continue
            self.fill(operands[storage.scale], rest ** (1 / len(scaled)) / 2.0**self.case.shift)
            if storage.bytewise:
                # A format's scales have no sign: the matrix unit reads none.
                fill(operands[storage.scale], operands[storage.scale].view.float().abs())
            if storage.zeros and operands[storage.zero].view.dtype.is_floating_point:
                self.fill(operands[storage.zero], 2.0 ** (storage.bits - 2))
            elif storage.zeros:
                self.fill_integers(operands[storage.zero], 2**storage.bits)

    def fill_integers(self, operand: Operand, many: int = 256) -> None:
        """Write seeded bytes: so many different ones, from 0."""
        view = operand.view[:1] if operand.name == self.case.repeated else operand.view
        values = torch.randint(0, many, view.shape, generator=self.random).to(torch.uint8).view(view.dtype)
        fill(operand, values.to(view.device))

    def fill_powers(self, operand: Operand, letter: str, middle: float) -> None:
        """Write scales that are powers of two, some larger and smaller than that to `middle`."""
        middle -= self.case.shift
        if self.case.least:
            middle = _LEAST - 2 if letter == "b" else _LARGER
        view = operand.view[:1] if operand.name == self.case.repeated else operand.view
        exponents = torch.randint(-2, 3, view.shape, generator=self.random) + round(middle) + 127
        values = exponents.clamp(0, 254).to(torch.uint8).view(view.dtype)
        fill(operand, values.to(view.device))

    def fill_positions(self, operand: Operand) -> None:
        """Write seeded bytes of positions."""
        view = operand.view[:1] if operand.name == self.case.repeated else operand.view
        fill(operand, positions(tuple(view.shape), self.random).to(view.device))

    def spoil(self, setup: Setup) -> None:
        """Write infinity and NaN at the corners of each operand; most rows and columns stay unchanged."""
        for operand in (setup.a, setup.b):
            view = operand.view
            if not view.dtype.is_floating_point:
                continue
            infinity = float("inf") if has_infinity(view.dtype) else float("nan")
            if view.numel():
                view[..., 0, -1] = infinity
                view[..., -1, 0] = -infinity if operand is setup.a else float("nan")
        for operand in setup.tensors.values():
            if operand.name.endswith("_scale") and operand.view.numel():
                # Of one byte, 0xFF is NaN in every type.
                bits = operand.view.view(torch.uint8) if operand.view.element_size() == 1 else operand.view
                bits[..., 0, -1] = 0xFF if bits.dtype == torch.uint8 else float("nan")
            if operand.view.dim() == 1 and operand.view.numel() > 2 and operand.name not in ("offsets", "rows"):
                operand.view[1], operand.view[2] = float("-inf"), float("nan")
        for operand in setup.inputs:
            if operand.before is not None:
                operand.before = operand.storage.clone()
