"""Every value of a type through an operation's rendered kernel; called in a process with Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional

from generator.bench import eager
from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import remembered
from generator.epilogue.chain import Epilogue
from generator.epilogue.operations import SCALAR
from generator.language.model import Variant
from generator.lowering.approximate_math import LOST
from generator.problem.compare import compare
from generator.problem.element_types import FP32_TINY, half_ulp, torch_type
from generator.problem.error_propagation import Bounded
from generator.problem.reference import finish
from generator.verify import interpreter

Operands = Mapping[str, torch.Tensor | float]

#: What torch calls each operation, on a float64 accumulator (M, N).
WITNESSES: Mapping[str, Callable[[torch.Tensor, Operands], torch.Tensor]] = {
    "bias": lambda x, o: x + o["bias"].double(),
    "bias_m": lambda x, o: x + o["bias_m"].double()[:, None],
    "scale": lambda x, o: x * o["scale"],
    "scale_m": lambda x, o: x * o["scale_m"].double()[:, None],
    "scale_n": lambda x, o: x * o["scale_n"].double(),
    "add": lambda x, o: x + o["add"].double(),
    "mul": lambda x, o: x * o["mul"].double(),
    "relu": lambda x, o: functional.relu(x),
    "relu2": lambda x, o: functional.relu(x).square(),
    "leaky_relu": lambda x, o: functional.leaky_relu(x),
    "gelu": lambda x, o: functional.gelu(x),
    "gelu_tanh": lambda x, o: functional.gelu(x, approximate="tanh"),
    # As torch's users write it: there is no function of that name.
    "quick_gelu": lambda x, o: x * torch.sigmoid(1.702 * x),
    "silu": lambda x, o: functional.silu(x),
    "sigmoid": lambda x, o: functional.sigmoid(x),
    "tanh": lambda x, o: functional.tanh(x),
    "softplus": lambda x, o: functional.softplus(x),
    "hardswish": lambda x, o: functional.hardswish(x),
    "clamp(min=-1, max=2.5)": lambda x, o: torch.clamp(x, -1, 2.5),
    "clamp(min=0.1)": lambda x, o: torch.clamp(x, min=0.1),
    "clamp(max=-3)": lambda x, o: torch.clamp(x, max=-3),
    "clamp(min=3, max=-3)": lambda x, o: torch.clamp(x, 3, -3),
    "leaky_relu(negative_slope=-0.5)": lambda x, o: functional.leaky_relu(x, -0.5),
    "leaky_relu(negative_slope=0)": lambda x, o: functional.leaky_relu(x, 0.0),
    "softplus(beta=2.5, threshold=4)": lambda x, o: functional.softplus(x, 2.5, 4),
    "softplus(beta=-1)": lambda x, o: functional.softplus(x, -1),
    # Of gates an accumulator is (M, 2N).
    "swiglu": lambda x, o: functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "geglu": lambda x, o: functional.gelu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "geglu_tanh": lambda x, o: functional.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1],
    "reglu": lambda x, o: functional.relu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "swiglu(order=interleaved)": lambda x, o: functional.silu(x[:, 0::2]) * x[:, 1::2],
}

#: Each as a spec writes it.
WRITTEN = {
    word: word if "(" not in word else f"[{{{word.replace('(', ': {').replace('=', ': ').replace(')', '}')}}}]"
    for word in WITNESSES
}


def operands(chain: Epilogue, m: int, n: int) -> dict[str, torch.Tensor | float]:
    """Seeded operands of a chain."""
    shapes = {"1": (1,), "M": (m,), "N": (n,), "MN": (m, n)}
    found: dict[str, torch.Tensor | float] = {}
    for index, operand in enumerate(chain.operands):
        random = torch.Generator().manual_seed(index)
        found[operand.name] = 1.7 if operand.shape == SCALAR else torch.randn(shapes[operand.shape], generator=random)
    return found


def launched(
    folder: Path, name: str, *, typed: bool = False
) -> tuple[Variant, torch.Tensor, dict[str, torch.Tensor | float], torch.Tensor]:
    """A kernel's variant, every 16-bit value of its A's type (2**16, 1), operands, and what it makes of A times one.

    `typed` operands have the type of the result, others fp32. A gate is given A times one, and beside that times -3/4.
    """
    interpreter.install()
    kernel = remembered(folder).by_name[name]
    variant = kernel.variant
    module = load_kernel(folder / f"{name}.py")
    a = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch_type(variant.dtype.a))[:, None]
    b = beside(variant, a)
    given = operands(variant.epilogue, len(a), 1)
    if typed:
        given = {k: v.to(torch_type(variant.dtype.out)) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    # As few programs as a block of the interpreter holds.
    row = {**module.CONFIGS[0], "BLOCK_M": 2**14, "BLOCK_N": 16, "BLOCK_K": 16}
    module.CONFIGS.append(row)
    out = torch.full((len(a), 1), -77.0, dtype=torch_type(variant.dtype.out))
    regions = [
        interpreter.Region.of(key, x) for key, x in {"a": a, "b": b, **given}.items() if isinstance(x, torch.Tensor)
    ]
    with interpreter.watch([*regions, interpreter.Region.of("out", out, writable=True)]):
        module.gemm(a, b, **given, out=out, config=row)
    return variant, a, given, out


def beside(variant: Variant, a: torch.Tensor) -> torch.Tensor:
    """What A is multiplied by: one, and for a gate's other column -3/4."""
    return torch.tensor([[1.0, -0.75][: 1 if variant.epilogue.gate is None else 2]], dtype=a.dtype)


def every_value(folder: Path, name: str) -> list[str]:
    """What is wrong with a kernel of C = f(A @ B), fp32 out, given every 16-bit value of its A's type times one.

    Compared with the float64 formula, and with torch's function of that name, both within the formula's bounds.
    """
    variant, a, given, out = launched(folder, name)
    x = a.double() @ beside(variant, a).double()
    expected = finish(variant, Bounded(x, torch.zeros_like(x)), given)
    witness = WITNESSES[variant.epilogue.word](x, given)
    # torch's own float64 cancels in 1 + erf and 1 + tanh, by half a unit in the last place of 1, times x.
    times = x.abs().prod(-1, keepdim=True)
    cancelled = torch.where(times.isfinite(), 2.0**-52 * times, 0.0)
    bounded = Bounded(witness, expected.error + cancelled)
    faults = [compare(out, expected).fault, compare(out, bounded).fault]
    same = (expected.value - witness).abs() <= 1e-12 * witness.abs() + cancelled
    same |= (expected.value == witness) | (witness.isnan() & expected.value.isnan())
    # What passes the range of fp32 is infinite in a kernel and in its reference.
    largest = torch.finfo(torch.float32).max
    same |= expected.value.isinf() & (witness.abs() > largest)
    if not bool(same.all()):
        at = int((~same).flatten().nonzero()[0])
        faults.append(f"of {float(a[at])} the formula is {float(expected.value[at])}, and torch's {float(witness[at])}")
    # Only where it depends on a rounding whether the result is infinite, anything is right.
    free = expected.error.isnan() | (expected.error.isinf() & expected.value.isfinite())
    free &= ~((expected.value.abs() / largest - 1).abs() < 1e-6)
    # A factor of 0 that may be off by anything is no bound on what passes the range without it.
    free &= times.isnan() | (times <= largest)
    if bool(free.any()):
        faults.append(f"{int(free.sum())} of {len(a)} values are not bounded")
    return [fault for fault in faults if fault is not None]


def fast_errors(folder: Path, name: str) -> dict[str, tuple[float, float]]:
    """How far a kernel of C = f(A @ B), fp32 out, `math: fast`, is from f, in units of the last place of each type.

    The most over every 16-bit value of its A's type: as interpreted, and as the bounds of a GPU's instructions allow.
    """
    variant, a, given, out = launched(folder, name)
    x = a.double()
    found = {}
    for word in ("fp16", "bf16", "fp32"):
        narrow = replace(variant, dtype=replace(variant.dtype, out=word))
        expected = finish(narrow, Bounded(x, torch.zeros_like(x)), given, hardware=True)
        unit = 2 * half_ulp(expected.value, torch_type(word))
        off = (out.double() - expected.value).abs()
        size = expected.value.abs()
        assert bool((off[size < LOST] <= LOST).all())
        held = (size >= LOST) & (size <= torch.finfo(torch_type(word)).max)
        # Bounds have the range of subnormals on top of whatever is rounded, and where results are normal nothing is.
        bound = expected.error - FP32_TINY * (2 + 2 * x.abs())
        found[word] = float((off / unit)[held].max()), float((bound / unit)[held].max())
    return found


def unlike_eager(folder: Path, name: str, whole: bool) -> list[str]:
    """Where a kernel with `rounding: torch`, given every 16-bit value, is not what eager torch computes, bit for bit.

    `whole` looks at small whole numbers alone, where torch's own functions do not cancel.
    """
    variant, a, given, out = launched(folder, name, typed=True)
    x = eager.apply(variant.epilogue, torch.matmul(a, torch.ones(1, 1, dtype=a.dtype)), given)
    assert x.dtype == out.dtype
    unlike = (out.view(torch.int16) != x.view(torch.int16)) & ~(out.isnan() & x.isnan())
    if whole:
        unlike &= (a.float().frac() == 0) & (a.float().abs() <= 4)
    return [f"of {float(a[at])!r}: {float(out[at])!r}, eager {float(x[at])!r}" for at, _ in unlike.nonzero().tolist()]
