"""The operands of one case: its sizes, strides and offsets, seeded values, and poisoned margins around them."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from generator.epilogue.quantisation import OUT_SCALE
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Variant
from generator.language.storage import CONTAINER, Storage
from generator.plan.contract_call import Argument, call
from generator.plan.extents import S
from generator.plan.kernels import Kernel
from generator.problem.drawn_values import Draw, Recipe, is_of_bits, range_of
from generator.problem.element_types import OPERAND_TYPES, has_infinity, torch_type
from generator.problem.poisoned_operands import PoisonedOperand, fill, place, poison
from generator.problem.product import matrix_strides
from generator.verify.case_sizes import Case, sizes_of

#: A stride in elements that is a multiple of 16 bytes for every type.
_STEP = 16
#: The product's standard deviation: in this range the epilogue's functions are nonlinear and rounding errors show.
_SPREAD = 2.0
#: The same for saturated results, so that values exceed the range on both sides: a part of the largest number within
#: limits. Integer operands then have values of _SATURATING_WHOLE instead of their whole range.
_SATURATING_SPREAD, _LEAST_SPREAD, _MOST_SPREAD = 200 / 448, 100.0, 3000.0
_SATURATING_WHOLE = -8, 8
_PADDING = {"a": 3, "b": 7, "c": 11}
#: A stride that no layout has and no hardware copy accepts.
_ODD = 7
#: The type of scales, or of zero points where a byte is one of their types, by the type of the case's operands.
_SCALE_TYPE = {"fp32": "fp32", "fp64": "fp32", "bf16": "bf16", "fp16": "fp16", "uint8": "fp32"}
_ZERO_TYPE = {**_SCALE_TYPE, "bf16": CONTAINER}
_E8M0 = "e8m0"
_E8M0_TYPE = {word: CONTAINER if word == "bf16" else _E8M0 for word in _SCALE_TYPE}
#: The logarithms of scales of B that are powers of two and the least, up to which, and of what A is larger by.
_LEAST, _LARGER = -125, 100
#: The largest margin, in elements.
_LARGEST_MARGIN = 1 << 18


def _infinity(dtype: torch.dtype) -> float:
    """Infinity, or NaN of a floating type that has none."""
    return float("inf") if has_infinity(dtype) else float("nan")


def _spread(out: str) -> float:
    """The product's standard deviation for a result of the type `out`."""
    if out not in QUANTISED:
        return _SPREAD
    return min(max(_SATURATING_SPREAD * QUANTISED[out].most, _LEAST_SPREAD), _MOST_SPREAD)


class _CaseDraw(Draw):
    """Values that show mistakes: none is 0, scales have signs, and magnitudes are those of the case."""

    def __init__(self, generator: torch.Generator, variant: Variant, case: Case) -> None:
        super().__init__(generator)
        self.dtype, self.case = variant.dtype, case

    def elements(self, storage: Storage, deviation: float) -> Recipe:
        shift = self.case.shift
        if storage.sparse or (self.dtype.plain and storage.letter == "b"):
            deviation /= 2.0**shift
        elif storage.bits == 16 or self.dtype.plain:
            deviation *= 2.0 ** (_LARGER if self.case.least else shift)
        bits = is_of_bits(storage) and not self.dtype.plain
        return partial(self.bits, 256) if bits else partial(self.plain, deviation=deviation)

    def plain(self, shape: tuple[int, ...], dtype: torch.dtype, deviation: float = 1.0) -> torch.Tensor:
        if dtype == torch.uint8:
            # A mask, with zeros.
            return self.whole(shape, dtype, 0, 3)
        if not dtype.is_floating_point:
            limits = _SATURATING_WHOLE if self.dtype.out in QUANTISED else range_of(dtype)
            drawn = self.whole(shape, dtype, *limits)
            return drawn.masked_fill_(drawn == 0, 1)
        values = torch.randn(shape, generator=self.generator, dtype=torch.float64) * deviation
        return torch.where(values.to(dtype).double() == 0, deviation, values).to(dtype)

    def bits(self, many: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Bytes, or words of them: so many different ones, from 0."""
        drawn = self.whole((*shape, dtype.itemsize), torch.uint8, 0, many - 1)
        return drawn.reshape(-1).view(dtype).reshape(shape)

    def scales(self, storage: Storage, magnitude: float, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if ELEMENTS[storage.scale_types[0]].powers:
            # Some are larger and some smaller powers of two than the one in the middle.
            middle = math.log2(magnitude) - self.case.shift
            if self.case.least:
                middle = _LEAST - 2 if storage.letter == "b" else _LARGER
            exponents = self.whole(shape, torch.int64, -2, 2) + round(middle) + 127
            return exponents.clamp(0, 254).to(torch.uint8).view(dtype)
        drawn = self.plain(shape, dtype, magnitude / 2.0**self.case.shift)
        # A format's scales have no sign: the matrix unit reads none.
        return drawn.float().abs().to(dtype) if storage.bytewise else drawn

    def zero_points(self, storage: Storage, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if dtype.is_floating_point:
            return self.plain(shape, dtype, 2.0 ** (storage.bits - 2))
        return self.bits(2**storage.bits, shape, dtype)

    def named_rows(self, shape: tuple[int, ...], dtype: torch.dtype, *, count: int, once: bool) -> torch.Tensor:
        """Names of `count` rows, each at most once or some twice, and some that there are not."""
        if once:
            drawn = torch.randperm(count, generator=self.generator)[: shape[0]].to(dtype)
        else:
            drawn = self.whole(shape, dtype, 0, max(count, 1) - 1)
        for at, wrong in enumerate((-1, count, 2**31 - 1, -(2**31))):
            drawn[2 * at + 1 : 2 * at + 2] = wrong
        return drawn


class Setup:
    """The arguments of a launcher for one case, allocated and filled; the values are the same in every run.

    `a`, `b` and `tensors`, those behind them, are its operands, and `scalars` the ones that are Python numbers.
    `outputs` are the caller's tensors for results, `out` first. If `out`'s values are read, `before` is a copy of them,
    and `c` what each row of the product reads of them. Raises `NoMemory`.
    """

    def __init__(self, kernel: Kernel, case: Case, device: torch.device) -> None:
        self.variant, self.case, self.device = kernel.variant, case, device
        self.tile = kernel.tiles[case.row or 0]
        self.sizes = sizes_of(self.variant, case)
        random = torch.Generator().manual_seed(zlib.crc32(f"{kernel.name} {case.name}".encode()))
        self.draw = _CaseDraw(random, self.variant, case)
        self.scalars: dict[str, float] = {}
        self.outputs: dict[str, PoisonedOperand] = {}
        self.c: torch.Tensor | None = None
        self.before: torch.Tensor | None = None
        k = self.case.sizes[2]
        dtype, described = self.variant.dtype, call(self.variant)
        # Both factors are scaled by the same amount, so that neither leaves the range of fp8.
        recipes = self.draw.stored(dtype, (_spread(dtype.out) / max(k, 1) ** 0.5) ** 0.5)
        given = [described.a, described.b, *described.stored]
        if described.offsets is not None:
            given.append(described.offsets)
            ends = self.case.offsets(self.sizes["T"])
            recipes["offsets"] = lambda shape, dtype: torch.tensor(ends, dtype=dtype)
        if described.rows is not None and self.case.named:
            given.append(described.rows)
            recipes["rows"] = partial(self.draw.named_rows, count=self.sizes["R"], once=False)
        if described.scatter is not None and self.case.scattered:
            given.append(described.scatter)
            recipes["scatter"] = partial(self.draw.named_rows, count=self.sizes["S"], once=True)
        self.tensors = {x.name: self._write(self._tensor(x), recipes[x.name]) for x in given}
        self.a, self.b = self.tensors.pop("a"), self.tensors.pop("b")
        if self.case.given_out or described.reads_out or "c" in (self.case.huge, self.case.apart):
            self.outputs["out"] = self._result(described.out)
        if described.reads_out:
            out = self.outputs["out"]
            self._fill(out, _SPREAD if dtype.stored_a.element.floating else 5000.0 * max(k, 1) ** 0.5)
            if self.case.beta_zero and out.view.dtype.is_floating_point:
                out.view[..., ::2] = _infinity(out.view.dtype)
                out.view[..., 1::2] = float("nan")
            self.c = self.before = out.view.clone()
            if "scatter" in self.tensors:
                places = self.tensors["scatter"].view
                self.c = self.before[places.clamp(0, self.sizes["S"] - 1).long()]
        for output in described.outputs:
            must = self.case.scattered and output is described.out_scale
            if must or self.case.given_out or output.name in (self.case.huge, self.case.apart):
                self.outputs[output.name] = self._result(output)
        for operand in described.operands:
            self._add(operand)
        if self.case.special:
            self._spoil()

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments of the launcher behind A and B: operands, and the result tensors that the caller supplies."""
        return self.operands | {name: operand.view for name, operand in self.outputs.items()}

    @property
    def read(self) -> dict[str, torch.Tensor | float]:
        """What the epilogue reads: its operands, and C if it reads C."""
        return self.operands if self.c is None else {**self.operands, "c": self.c}

    @property
    def operands(self) -> dict[str, torch.Tensor | float]:
        """The operands behind A and B, by the launcher's keywords."""
        return {name: operand.view for name, operand in self.tensors.items()} | self.scalars

    @property
    def inputs(self) -> list[PoisonedOperand]:
        return [self.a, self.b, *self.tensors.values()]

    def _add(self, x: Argument) -> None:
        """Add one epilogue operand, of the product's magnitude, so that sums cancel and expose an early rounding."""
        spread = _SPREAD
        if not self.variant.dtype.stored_a.element.floating and self.variant.dtype.out not in QUANTISED:
            # Integer factors use their whole range; operands of the product's magnitude cancel it.
            spread = 5000.0 * max(self.case.sizes[2], 1) ** 0.5
        if x.number and not self.case.scalar_tensor:
            self.scalars[x.name] = 0.0 if self.case.beta_zero and x.name == self.variant.epilogue.beta else -1.3
            return
        if x.shared and (self.case.repeated or self.case.interleaved):
            x = replace(x, dimensions=x.dimensions[1:])
        self.tensors[x.name] = operand = self._tensor(x)
        self._fill(operand, 1.0 if x.number or x.extents == ("1",) else spread)

    def _result(self, x: Argument) -> PoisonedOperand:
        """The caller's tensor for a result, which has further rows where the rows of C are named."""
        if not self.case.scattered or x.name not in ("out", OUT_SCALE):
            return self._tensor(x)
        operand = self._tensor(replace(x, dimensions=(S, *x.dimensions[1:])))
        if self.device.type != "meta":
            # A buffer that is too large for it has no poison, which tells what nothing has named.
            poison(operand.view)
        return operand

    def _tensor(self, x: Argument) -> PoisonedOperand:
        """The tensor for an argument, with poisoned margins."""
        name = "c" if x.name == "out" else x.name
        shape = x.sizes(self.sizes)
        dtype = OPERAND_TYPES[self.case.operand_type]
        if isinstance(x.dtype, str):
            dtype = torch_type(x.dtype)
        elif x.dtype is not None:
            types = _E8M0_TYPE if _E8M0 in x.dtype else _ZERO_TYPE if CONTAINER in x.dtype else _SCALE_TYPE
            dtype = torch_type(types[self.case.operand_type])
        if x.layout:
            return self._matrix(name, shape[:-2], (shape[-2], shape[-1]), x.layout, dtype)
        elsewhere = x.number and self.case.scalar_elsewhere
        shape = shape or (1,)
        strides = (shape[-1] + _PADDING["c"], 1)[-len(shape) :]
        offset, margin = int(self.case.unaligned), max(self.tile.m, self.tile.n)
        device = torch.device("cpu") if elsewhere else self.device
        return place(name, shape, strides, dtype, device, offset=offset, margin=margin)

    def _matrix(
        self, name: str, front: tuple[int, ...], shape: tuple[int, int], layout: str, dtype: torch.dtype
    ) -> PoisonedOperand:
        """A matrix, or as many as `front` says, in the layout `layout`, with a margin of a tile on every side."""
        sizes, strides = self._batch(name, front, shape, self._strides(name, shape, layout, dtype))
        # The memory that an access one tile out of range would touch, limited to save memory.
        margin = min(max(self.tile.m, self.tile.n, self.tile.k, _STEP) * max(strides), _LARGEST_MARGIN)
        offset = 1 if self.case.unaligned else 0
        return place(name, sizes, strides, dtype, self.device, offset=offset, margin=margin)

    def _batch(
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

    def _strides(self, name: str, shape: tuple[int, int], layout: str, dtype: torch.dtype) -> tuple[int, int]:
        """Strides in elements for a layout, padded where the case or the hardware's copies require it."""
        column = layout == "column" or (layout == "strided" and self.case.strided == "column")
        lines, inner = shape[::-1] if column else shape
        descriptors = self.variant.loading.descriptors
        # Different amounts expose two leading dimensions that are swapped. They break every alignment, unless the
        # hardware requires one.
        pad = _PADDING.get(name, 5) * (_STEP if descriptors else 1) if self.case.padded else 0
        if name == self.case.huge:
            pad = (2**31 // max(lines - 1, 1) // _STEP + 1) * _STEP - inner
        # Hardware copies need strides of a multiple of 16 bytes, even for a single line.
        multiple = 16 // dtype.itemsize if descriptors else 1
        unit = 2 if layout == "strided" and self.case.strided == "gaps" else 1
        strides = matrix_strides(shape, column, pad=pad, multiple=multiple, unit=unit)
        if self.case.odd_single:
            strides = (_ODD if shape[0] == 1 else strides[0], _ODD if shape[1] == 1 else strides[1])
        return strides

    def _write(self, operand: PoisonedOperand, recipe: Recipe) -> PoisonedOperand:
        """Write what `recipe` makes; a matrix that the whole batch shares is written once."""
        view = operand.view[:1] if operand.name == self.case.repeated else operand.view
        fill(operand, recipe(tuple(view.shape), view.dtype).to(view.device))
        return operand

    def _fill(self, operand: PoisonedOperand, deviation: float) -> None:
        self._write(operand, partial(self.draw.plain, deviation=deviation))

    def _spoil(self) -> None:
        """Write infinity and NaN at the corners of each operand; most rows and columns stay unchanged."""
        for operand in (self.a, self.b):
            view = operand.view
            if not view.dtype.is_floating_point:
                continue
            infinity = _infinity(view.dtype)
            if view.numel():
                view[..., 0, -1] = infinity
                view[..., -1, 0] = -infinity if operand is self.a else float("nan")
        for operand in self.tensors.values():
            if operand.name.endswith("_scale") and operand.view.numel():
                # Of one byte, 0xFF is NaN in every type.
                bits = operand.view.view(torch.uint8) if operand.view.element_size() == 1 else operand.view
                bits[..., 0, -1] = 0xFF if bits.dtype == torch.uint8 else float("nan")
            if (
                operand.view.dim() == 1
                and operand.view.numel() > 2
                and operand.name not in ("offsets", "rows", "scatter")
            ):
                operand.view[1], operand.view[2] = float("-inf"), float("nan")
        for operand in self.inputs:
            if operand.before is not None:
                operand.before = operand.storage.clone()
