"""Random operands of a problem, in so many sets that they exceed the L2 cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from generator.bench.problem import Problem
from generator.epilogue.operations import ELEMENT, MATRIX
from generator.language.storage import element_of
from generator.plan.call import Argument
from generator.verify.element_types import torch_type
from generator.verify.stored_values import positions, values

#: All sets together are this many times as large as the L2, so that no set is still cached when it is used again.
_CACHES = 2
_MOST_SETS = 512
#: At most so many bytes are held by all sets together, where one alone is not larger.
_MOST_BYTES = 40e9

#: The value of scalar operands: a power of two, so that multiplying by it is exact.
SCALAR = 0.5


@dataclass(frozen=True)
class Operands:
    """One operand set: `a` (M, K), `b` (K, N), the operands of the epilogue by name, and the output `out` (M, N).

    With a batch every matrix has the number of products as its first dimension, with groups `b` and the vectors of N
    have their number. With a gated linear unit `b` is (K, 2N).
    """

    a: torch.Tensor
    b: torch.Tensor
    epilogue: Mapping[str, torch.Tensor | float]
    out: torch.Tensor
    #: The scales and zero points of `a` and `b`, and for peers the numbers that these stand for, in 16 bits.
    stored: Mapping[str, torch.Tensor] = field(default_factory=dict)
    dense: tuple[torch.Tensor, torch.Tensor] | None = None
    #: The end of each group's rows.
    offsets: torch.Tensor | None = None

    @property
    def keywords(self) -> Mapping[str, torch.Tensor | float]:
        """The operands behind `a` and `b`."""
        divided = {} if self.offsets is None else {"offsets": self.offsets}
        return {**divided, **self.stored, **self.epilogue}


def count_sets(problem: Problem, l2_bytes: int) -> int:
    """The number of sets that exceed an L2 of `l2_bytes`, at most `_MOST_SETS`, and at most `_MOST_BYTES`."""
    most = min(_MOST_SETS, int(_MOST_BYTES // problem.held))
    return max(1, min(most, math.ceil(_CACHES * l2_bytes / problem.bytes)))


def make_sets(problem: Problem, device: str, count: int, seed: int) -> list[Operands]:
    """`count` sets on `device`, the same for the same seed: normal floats, uniform integers."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return [_make(problem, device, generator) for _ in range(count)]


def shadow(problem: Problem) -> Operands:
    """A set on torch's meta device, which has no data: enough for a kernel's `refusal`, and needs no GPU."""
    return _make(problem, "meta", None)


def _make(problem: Problem, device: str, generator: torch.Generator | None) -> Operands:
    call, extents, pad = problem.call, problem.shape.extents, problem.shape.pad

    def matrix(x: Argument, word: str, layout: str) -> torch.Tensor:
        *front, rows, columns = x.sizes(extents)
        if layout == "column":
            rows, columns = columns, rows
        found = _random((*front, rows, columns + pad), word, device, generator)[..., :columns]
        return found.mT if layout == "column" else found

    epilogue: dict[str, torch.Tensor | float] = {}
    for operand, x in zip(problem.epilogue.operands, call.operands, strict=True):
        word = problem.operand_type
        if operand.shape == MATRIX:
            epilogue[operand.name] = matrix(x, word, problem.layout.c)
        elif operand.shape == ELEMENT:
            epilogue[operand.name] = torch.full((1,), SCALAR, dtype=torch_type(word), device=device)
        elif x.number:
            epilogue[operand.name] = SCALAR
        else:
            epilogue[operand.name] = _random(x.sizes(extents), word, device, generator)
    out = _out(problem, device)
    a, b = problem.dtype.stored
    one, other = matrix(call.a, a.container, problem.layout.a), matrix(call.b, b.container, problem.layout.b)
    offsets = torch.tensor(problem.shape.ends, dtype=torch.int32, device=device) if problem.shape.groups else None
    found = Operands(one, other, epilogue, out, offsets=offsets)
    if problem.dtype.plain:
        return found
    stored = {x.name: _beside(problem, x, device, generator) for x in call.stored}
    return replace(found, stored=stored, dense=dense_of(problem, one, other, stored))


def _out(problem: Problem, device: str) -> torch.Tensor:
    """An output, in the layout of C."""
    *front, rows, columns = problem.call.out.sizes(problem.shape.extents)
    turned = problem.layout.c == "column"
    rows, columns = (columns, rows) if turned else (rows, columns)
    size = (*front, rows, columns + problem.shape.pad)
    out = torch.empty(size, dtype=torch_type(problem.dtype.out), device=device)[..., :columns]
    return out.mT if turned else out


def _beside(problem: Problem, x: Argument, device: str, generator: torch.Generator | None) -> torch.Tensor:
    """Scales that make of an operand numbers of standard deviation 1, near enough; or zero points, or positions."""
    shape = x.sizes(problem.shape.extents)
    storage = problem.dtype.stored["ab".index(x.name[0])]
    if x.name == storage.index:
        if problem.layout.b == "row":
            return positions(shape, generator, device)
        return positions((*shape[:-2], shape[-1], shape[-2]), generator, device).mT
    signed = storage.word == "int4" or storage.element.floating
    middle = 0.0 if signed or storage.bits == 8 else 2.0 ** (storage.bits - 1)
    if x.name == storage.zero:
        return torch.randint(0, 2**storage.bits, shape, device=device, generator=generator).float()
    normal = storage.element.floating and storage.packed == 1
    deviation = 1.0 if normal else math.hypot(2.0**storage.bits / math.sqrt(12), middle)
    if storage.letter == "a":
        # The scales of a step are those of neighbouring rows.
        shape = (*shape[:-2], shape[-1], shape[-2])
    scale = (torch.rand(shape, device=device, generator=generator) + 0.5) / deviation
    if storage.bytewise:
        scale = scale.to(torch_type(storage.scale_types[0]))
    return scale.mT if storage.letter == "a" else scale


def dense_of(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, stored: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers that stored operands stand for, in the 16-bit type of A, or bf16; each in its operand's layout."""
    wide = torch_type(problem.dtype.dense)
    found = []
    for storage, x, order in zip(problem.dtype.stored, (a, b), (problem.layout.a, problem.layout.b), strict=True):
        value = x.to(wide) if storage.plain else values(storage, x, stored).to(wide)
        found.append(value.mT.contiguous().mT if order == "column" else value.contiguous())
    return found[0], found[1]


def _random(size: tuple[int, ...], word: str, device: str, generator: torch.Generator | None) -> torch.Tensor:
    """Standard normal numbers, or integers that are uniform over the whole range of an integer type."""
    dtype = torch_type(word)
    if not element_of(word).floating:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max + 1, size, dtype=dtype, device=device, generator=generator)
    wide = torch.float32 if element_of(word).bits == 8 else dtype
    return torch.randn(size, dtype=wide, device=device, generator=generator).to(dtype)


def poison(out: torch.Tensor) -> None:
    """Fill an output with a value that no right result has: NaN, or the least integer plus 1.

    Sums of products at the timed sizes do not come near this integer, and values that saturate go past it.
    """
    out.fill_(math.nan if out.dtype.is_floating_point else torch.iinfo(out.dtype).min + 1)
