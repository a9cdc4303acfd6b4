"""The tensors of a call: what operands and results must be, and the sizes that are taken from them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .extents import Extent, Operation, Size
from .launchable import is_fake, require_dense, require_tensor

#: The types that scales may have.
SCALES = (torch.float32, torch.float16, torch.bfloat16)

# The largest size: the offsets of a tile that begins below it are 32-bit integers.
MOST = 2**31 - 2**16


@dataclass
class State:
    """A call while its launch is worked out: tensors and numbers of the caller; sizes and configuration by name."""

    given: dict[str, Any]
    numbers: dict[str, int]
    device: torch.device
    #: The operand whose device that is.
    first: str = "a"

    def all_of(self, extents: Sequence[Extent | int]) -> tuple[int, ...]:
        """Each of the extents as a number."""
        numbers = self.numbers
        return tuple([x if type(x) is int else x.of(numbers) for x in extents])  # type: ignore[union-attr]


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: `dtype` None is any floating type, `unit` the dimension of stride 1, None if there is none.

    One with `absent` may be left out; its size is `absent` then.
    """

    name: str
    shape: tuple[Extent | int, ...]
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None
    unit: int | None = None
    absent: Extent | None = None

    @functools.cached_property
    def sizes(self) -> set[str]:
        """The sizes in its shape."""
        return {name for extent in self.shape if isinstance(extent, Extent) for name in extent.names}

    @property
    def gives_size(self) -> bool:
        """Whether a size is taken from it, and is another one where it is left out."""
        return self.absent is not None and self.absent != self.shape[0]

    def sizes_in(self, state: State) -> tuple[int, ...]:
        """The shape that a tensor of the caller must have."""
        return state.all_of(self.shape)

    def typed(self, given_as: Any, given: Mapping[str, Any]) -> torch.Tensor:
        """The tensor of the caller; raises TypeError for what is none, or one of another type."""
        x = require_tensor(self.name, given_as)
        dtypes = self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)
        if not (x.is_floating_point() if self.dtype is None else x.dtype in dtypes):
            wanted = " or ".join(map(str, dtypes)) if self.dtype else "of a floating type"
            stored = self.name == "b" and ("b_scale" in given or "b_index" in given)
            source = " from `_pack.quantize`" if stored and "b_scale" in given else " from `_pack`" if stored else ""
            hint = "" if stored or isinstance(self, Result) else how_converted(self.name, x, dtypes[0])
            raise TypeError(f"{self.name} must be {wanted}{source}, got {x.dtype}{hint}")
        return x

    def taken(self, x: Any, state: State) -> Any:
        """The tensor of the caller; raises TypeError or ValueError unless it is what the operand must be."""
        if x is None and self.absent is not None:
            return None
        if type(x) is torch.Tensor and x.dtype is self.dtype and not torch.compiler.is_compiling():
            # What nearly every call has, at once.
            along = x.layout is torch.strided and (self.unit is None or x.stride()[self.unit : self.unit + 1] == (1,))
            if along and x.shape == state.all_of(self.shape) and x.device == state.device:
                return x
        x = self.typed(x, state.given)
        shape = self.sizes_in(state)
        if x.dim() != len(shape) or any(map(surely, map(operator.ne, x.shape, shape))):
            # Another number of dimensions, of which the others have one element.
            own, wanted = [[n for n in sizes if type(n) is not int or n != 1] for sizes in (x.shape, shape)]
            same = len(own) == len(wanted) and not any(map(surely, map(operator.ne, own, wanted)))
            hint = f"; pass {self.name}.reshape({', '.join(map(str, shape))})" if same and x.dim() != len(shape) else ""
            raise ValueError(f"{self.name} must have shape {shape}, got {tuple(x.shape)}{hint}")
        require_dense(self.name, x)
        if x.device != state.device:
            raise ValueError(f"{self.name} must be on {state.device} as {state.first} is, got {x.device}")
        unit = self.unit
        stepped = unit is not None and surely(x.stride(unit) != 1) and surely(x.shape[unit] > 1)
        if unit is not None and stepped and surely(x.numel() > 0):
            raise ValueError(
                f"{self.name} must have stride 1 along dimension {unit}, got strides {x.stride()}"
                f"{'' if isinstance(self, Result) else how_turned(self.name, x, unit)}"
            )
        return x


@dataclass(frozen=True)
class Result(Operand):
    """A tensor that a call fills, and makes where it is not given; one that is `read` must be given.

    Where the operand `named` is given, it names the rows to fill: then the tensor must be given, with S rows.
    """

    read: bool = False
    named: str | None = None

    def sizes_in(self, state: State) -> tuple[int, ...]:
        shape = super().sizes_in(state)
        return shape if self.named is None else (state.numbers["S"], *shape[1:])

    def rows(self, given: Mapping[str, Any], known: Mapping[str, int]) -> int:
        """S, of a result with `named`; raises TypeError or ValueError for a tensor of which `named` can name no row."""
        if given.get(self.named or "") is None:
            own: Any = self.shape[0]
            found: int = own.of(known)
            return found
        x = given.get(self.name)
        if x is None:
            raise ValueError(f"{self.name} must be given: {self.named} names its rows")
        rows: int = require_tensor(self.name, x).shape[0] if x.dim() else 0
        if type(rows) is int and rows > MOST:
            raise ValueError(f"{self.name} has {rows} rows: a size must be at most 2**31 - 2**16")
        return rows

    def taken(self, x: Any, state: State) -> Any:
        if x is None and self.read:
            raise ValueError(f"{self.name} must be given: it is C, which is read, scaled by beta and added")
        if x is None:
            return self.new(state)
        reach, dimensions = 0, [*zip(super().taken(x, state).stride(), x.shape)]
        traced = torch.compiler.is_compiling()
        if traced or not all(type(stride) is int and type(size) is int for stride, size in dimensions):
            # As torch.compile traces it; the call that it records asks again.
            return x
        for stride, size in sorted(dimensions):
            if size > 1 and stride <= reach and x.numel():
                how = f"shape {tuple(x.shape)} with strides {x.stride()}"
                raise ValueError(f"{self.name} must not overlap itself, got {how}")
            reach += (size - 1) * stride
        return x

    def new(self, state: State) -> torch.Tensor:
        """A new tensor, contiguous along its unit. It is a fake one if the first operand is."""
        assert isinstance(self.dtype, torch.dtype)
        shape, first = state.all_of(self.shape), state.given.get(state.first)
        # Outside its mode, torch makes a fake tensor only of another.
        real = first is None or not is_fake(first)
        empty: Callable[..., torch.Tensor] = torch.empty if real else first.new_empty  # type: ignore[union-attr]
        if self.unit in (None, len(shape) - 1):
            return empty(shape, dtype=self.dtype, device=state.device)
        rows, columns = (torch.sym_max(1, size) for size in shape[-2:])  # type: ignore[no-untyped-call]
        # No view, which autograd would not let be changed in place.
        strided: Callable[..., torch.Tensor] = torch.empty_strided if real else first.new_empty_strided  # type: ignore[union-attr]
        return strided(shape, (rows * columns, 1, rows)[-len(shape) :], dtype=self.dtype, device=state.device)


def surely(condition: Any) -> bool:
    """Whether a condition on sizes holds; False where only the device knows them, and the call itself asks again."""
    try:
        return bool(condition)
    except RuntimeError:
        # torch.compile traces the size of a selection, such as `x[mask]`, as an unknown number.
        return False


#: What converts a tensor to a type.
_CONVERSIONS = {torch.float16: "half", torch.bfloat16: "bfloat16", torch.float32: "float", torch.int32: "int"}


def how_converted(name: str, x: torch.Tensor, dtype: torch.dtype | None) -> str:
    """The end of a message on a type: what converts the tensor, if no more than rounding is lost."""
    if dtype is None or dtype not in _CONVERSIONS:
        return ""
    if x.dtype.itemsize == 1 or x.is_floating_point() != dtype.is_floating_point:
        return ""
    return f"; pass {name}.{_CONVERSIONS[dtype]}()"


def how_turned(name: str, x: torch.Tensor, unit: int) -> str:
    """The end of a message on a tensor that is not dense along `unit`: what to pass in its place."""
    dims = x.dim()
    turn = "T" if dims == 2 else "mT"
    made = f"{name}.contiguous()" if unit == dims - 1 else f"{name}.{turn}.contiguous().{turn}"
    if dims < 2 or surely(x.stride(2 * dims - 3 - unit) != 1):
        return f"; pass {made}"
    if unit == dims - 1:
        return f"; {name} is row-major here: pass it without .{turn}, or {made}"
    return f"; {name} is column-major here: was .T forgotten? pass the .T of a contiguous tensor, as {made}"


def how_flattened(name: str, x: torch.Tensor, count: int) -> str:
    """The end of a message on a tensor of another number of dimensions than `count`: what to do about it."""
    if name == "a" and x.dim() > count:
        return f"; pass a.flatten(0, {-count}), as nn.Linear does"
    if name == "b" and (x.dim(), count) == (3, 2):
        return "; products of a batch need `batch: strided` in the spec"
    return "; pass a[None]" if name == "a" and x.dim() == count - 1 else ""


def measure(operand: str, extent: Extent | int, number: int, known: dict[str, int], x: torch.Tensor) -> None:
    """Learn a size from the number of elements along a dimension; raises ValueError where it is another, or too large.

    The extent is a size, twice a size, or a part of one.
    """
    size, name = number, extent.name if isinstance(extent, Size) else ""
    if isinstance(extent, Operation) and isinstance(extent.left, int):
        size, name = number // extent.left, str(extent.right)
        if surely(number % extent.left):
            raise ValueError(f"{operand} has {number} columns: the number must be even, two for one of the result")
    elif isinstance(extent, Operation) and isinstance(extent.right, int):
        size, name = number * extent.right, str(extent.left)
    # A symbolic size, which torch.compile traces, would get a guard.
    if (type(number) is int and number > MOST) or (type(size) is int and size > MOST):
        raise ValueError(f"{extent} is {number}: a size must be at most 2**31 - 2**16")
    if surely(known.setdefault(name, size) != size):
        own = "" if size == number else f", which has {number}"
        hint = {"B": "; expand a single matrix", "M": "; C is symmetric, so N is M"}.get(name, "")
        if name == "K" and isinstance(extent, Extent):
            turn = "T" if x.dim() == 2 else "mT"
            turned = operand if x.shape[-1] == extent.of(known) else "a" if size == known.get("M") else ""
            hint = f"; was .{turn} forgotten? {turned}.{turn} has that size" if turned else ""
        raise ValueError(f"{name} is {known[name]} in a and {size} in {operand}{own}: they must be equal{hint}")


def require_whole(operand: str, extent: Operation, known: Mapping[str, int]) -> None:
    """Raise ValueError where elements of which several are stored together do not fill the last container."""
    size, together = known.get(str(extent.left), 0), int(str(extent.right))
    if surely(size % together):
        reason = f"{operand} stores {together} of its elements together, so it must be a multiple of {together}"
        raise ValueError(f"{extent.left} is {size}: {reason}")
