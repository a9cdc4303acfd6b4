"""Small kernels, right and wrong, that the tests of the guard run in a process with Triton's interpreter.

Each function here returns None where nothing was wrong, else the name and message of what was raised.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from generator.problem.poisoned_operands import PoisonedOperand, fill, place, unwritten
from generator.verify import interpreter

CPU = torch.device("cpu")


@triton.jit
def copy(x_ptr, y_ptr, rows, columns, ldx, ldy, REACH: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, 8)
    inside = offsets < columns
    x = tl.load(x_ptr + row * ldx + offsets, mask=inside, other=0.0)
    tl.store(y_ptr + row * ldy + offsets, x, mask=offsets < columns + REACH)


@triton.jit
def shift(x_ptr, y_ptr, columns, BY: tl.constexpr):
    offsets = tl.arange(0, 8)
    x = tl.load(x_ptr + offsets + BY, mask=offsets < columns, other=0.0)
    tl.store(y_ptr + offsets, x, mask=offsets < columns)


@triton.jit
def without_other(x_ptr, y_ptr, columns, RELY: tl.constexpr):
    offsets = tl.arange(0, 8)
    x = tl.load(x_ptr + offsets, mask=offsets < columns)
    if RELY:
        x = tl.zeros((8,), tl.float32) + tl.sum(x, 0)
    tl.store(y_ptr + offsets, x, mask=offsets < columns)


@triton.jit
def add_atomically(x_ptr, y_ptr, BY: tl.constexpr):
    offsets = tl.arange(0, 8)
    tl.atomic_add(y_ptr + offsets + BY, tl.load(x_ptr + offsets))


@triton.jit
def convert(x_ptr, y_ptr, TO: tl.constexpr):
    offsets = tl.arange(0, 8)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets).to(TO))


@triton.jit
def multiply(a_ptr, b_ptr, c_ptr):
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    offsets = rows * 16 + columns
    tl.store(c_ptr + offsets, tl.dot(tl.load(a_ptr + offsets), tl.load(b_ptr + offsets)))


def operand(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> PoisonedOperand:
    made = place(name, shape, strides, dtype, CPU, margin=64)
    if name != "y":
        fill(made, torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype))
    return made


def fault(call: Callable[[], object], *inputs: PoisonedOperand, output: PoisonedOperand) -> str | None:
    interpreter.install()
    regions = [interpreter.Region.of(o.name, o.view) for o in inputs]
    regions.append(interpreter.Region.of(output.name, output.view, writable=True))
    try:
        with interpreter.watch(regions):
            call()
    except Exception as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"
    return None


def run_copy(reach: int, ldx: int, rows: int) -> str | None:
    """Copy 4 rows of 5 numbers, `reach` columns too many, stepping by `ldx` in a matrix whose rows are 9 apart."""
    x, y = operand("x", (4, 5), (9, 1)), operand("y", (4, 5), (7, 1))
    return fault(lambda: copy[(rows,)](x.view, y.view, 4, 5, ldx, 7, REACH=reach), x, output=y)


def run_shift(by: int) -> str | None:
    x, y = operand("x", (8,), (1,)), operand("y", (8,), (1,))
    return fault(lambda: shift[(1,)](x.view, y.view, 8, BY=by), x, output=y)


def run_atomic(by: int) -> str | None:
    x, y = operand("x", (8,), (1,)), operand("y", (8,), (1,))
    y.view.zero_()
    return fault(lambda: add_atomically[(1,)](x.view, y.view, BY=by), x, output=y)


def write_input() -> str | None:
    x, y = operand("x", (8,), (1,)), operand("y", (8,), (1,))
    return fault(lambda: shift[(1,)](y.view, x.view, 8, BY=0), x, output=y)


def read_another_tensor() -> str | None:
    x, y = operand("x", (8,), (1,)), operand("y", (8,), (1,))
    return fault(lambda: shift[(1,)](torch.ones(8), y.view, 8, BY=0), x, output=y)


def read_another_type() -> str | None:
    x, y = operand("x", (16,), (1,), torch.float16), operand("y", (8,), (1,))
    return fault(lambda: shift[(1,)](x.view.view(torch.float32), y.view, 8, BY=0), x, output=y)


def missing_other(rely: bool) -> bool:
    """Whether NaN came out of a masked load without `other`, where the masked lanes count or do not."""
    x, y = operand("x", (5,), (1,)), operand("y", (5,), (1,))
    assert fault(lambda: without_other[(1,)](x.view, y.view, 5, RELY=rely), x, output=y) is None
    return bool(y.view.isnan().any())


def written() -> tuple[int, int]:
    """How many of 5 elements a kernel that writes 3 leaves: by the poison, and by the guard's own record."""
    x, y = operand("x", (8,), (1,)), operand("y", (5,), (1,))
    interpreter.install()
    region = interpreter.Region.of("y", y.view, writable=True)
    with interpreter.watch([interpreter.Region.of("x", x.view), region]):
        shift[(1,)](x.view, y.view, 3, BY=0)
    return int(unwritten(y.view).sum()), int((~region.written).sum())


def huge() -> str | None:
    """A matrix whose rows are 2**29 elements apart: gigabytes of virtual memory, a few pages touched."""
    x = place("x", (4, 5), (2**29, 1), torch.float32, CPU)
    x.view.copy_(torch.ones(4, 5))
    y = operand("y", (4, 5), (7, 1))
    wrong = fault(lambda: copy[(4,)](x.view, y.view, 4, 5, 2**29, 7, REACH=0), x, output=y)
    assert wrong is not None or bool((y.view == 1).all())
    return wrong


def conversions() -> dict[str, bool]:
    """Whether the mended interpreter rounds as torch does, NaN and infinity among the numbers."""
    interpreter.install()
    x = torch.tensor([1.00390625, 1.01171875, 3.0e38, float("nan"), float("inf"), -1.0039063692092896, 1e-40, 0.0])
    whole = torch.arange(8)
    found = {}
    for name, source, target, word in (
        ("fp32 to bf16", x, torch.bfloat16, tl.bfloat16),
        ("fp64 to bf16", x.double(), torch.bfloat16, tl.bfloat16),
        ("bf16 to fp32", x.bfloat16(), torch.float32, tl.float32),
        ("e4m3 to fp32", x.to(torch.float8_e4m3fn), torch.float32, tl.float32),
        ("e5m2 to fp32", x.to(torch.float8_e5m2), torch.float32, tl.float32),
        ("e4m3 to fp16", x.to(torch.float8_e4m3fn), torch.float16, tl.float16),
        ("int8 to bf16", whole.to(torch.int8), torch.bfloat16, tl.bfloat16),
        ("uint8 to bf16", (whole + 248).to(torch.uint8), torch.bfloat16, tl.bfloat16),
    ):
        y = torch.empty(8, dtype=target)
        with interpreter.watch([interpreter.Region.of("x", source), interpreter.Region.of("y", y, writable=True)]):
            convert[(1,)](source, y, TO=word)
        expected = source.to(target)
        found[name] = bool(((y == expected) | (y.isnan() & expected.isnan())).all())
    return found


def products() -> dict[str, bool]:
    """Whether the mended interpreter multiplies each type exactly."""
    interpreter.install()
    found = {}
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.int8):
        x = torch.randint(-4, 5, (2, 16, 16), generator=torch.Generator().manual_seed(1))
        a, b = x[0].float().to(dtype), x[1].float().to(dtype)
        c = torch.empty(16, 16, dtype=torch.float32 if dtype.is_floating_point else torch.int32)
        with interpreter.watch(
            [interpreter.Region.of("a", a), interpreter.Region.of("b", b), interpreter.Region.of("c", c, writable=True)]
        ):
            multiply[(1,)](a, b, c)
        found[str(dtype)] = bool((c == a.float() @ b.float()).all())
    return found
