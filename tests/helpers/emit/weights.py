"""A family's `_pack.py` with every way to store B, and what stored elements are by the definition of each type."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

import torch

from generator.emit.family_package import CONVERTERS

#: Contracts by how they store B.
STORED = {
    "int4": 'Stored("int4", "column", (32, 1))',
    "int4_row": 'Stored("int4", "row", (32, 1))',
    "int4_wide": 'Stored("int4", "row", (16, 3))',
    "int4_zeros": 'Stored("int4", "column", (32, 1), zeros=True)',
    "int4_plain": 'Stored("int4", "column")',
    "int4_batch": 'Stored("int4", "column", (32, 1), batched=True)',
    "uint4": 'Stored("uint4", "column", (32, 1))',
    "uint4_zeros": 'Stored("uint4", "row", (32, 1), zeros=True)',
    "uint4_whole": 'Stored("uint4", "column", (0, 0), zeros=True)',
    "int8": 'Stored("int8", "column", (0, 1))',
    "int8_zeros": 'Stored("int8", "column", (32, 1), zeros=True)',
    "fp8e4m3": 'Stored("fp8e4m3", "column", (16, 16))',
    "fp8e5m2": 'Stored("fp8e5m2", "row", (0, 1))',
    "fp8e4m3_plain": 'Stored("fp8e4m3", "column")',
    "mxfp8e4m3": 'Stored("mxfp8e4m3", "column", (32, 1))',
    "mxfp8e5m2": 'Stored("mxfp8e5m2", "column", (32, 1))',
    "mxfp4": 'Stored("mxfp4", "column", (32, 1))',
    "nvfp4": 'Stored("nvfp4", "column", (16, 1))',
    "fp16": 'Stored("fp16", "column")',
    "bf16": 'Stored("bf16", "row")',
}


#: Those whose elements are in fragment order, and one that another test compares with.
FRAGMENTS = {
    "int4_fragments": 'Stored("int4", "column", (32, 1), fragments=True)',
    "int4_zeros_fragments": 'Stored("int4", "column", (32, 1), zeros=True, fragments=True)',
    "uint4_fragments_row": 'Stored("uint4", "row", (32, 1), zeros=True, fragments=True)',
    "int8_fragments": 'Stored("int8", "column", (0, 1), fragments=True)',
    "int8_batch_fragments": 'Stored("int8", "column", (0, 1), batched=True, fragments=True)',
    "int8_batch": 'Stored("int8", "column", (0, 1), batched=True)',
}


@functools.cache
def packing() -> ModuleType:
    """The public names of a `_pack.py` with the contracts of STORED."""
    module = ModuleType("packing")
    for each in ("pack", *(f"pack_{part}" for part in CONVERTERS)):
        vars(module).update(vars(importlib.import_module(f"generator.runtime.{each}")))
    module.CONTRACTS.update({name: eval(stored, vars(module)) for name, stored in (STORED | FRAGMENTS).items()})
    return module


def floating(code: int, exponent_bits: int, mantissa_bits: int) -> float:
    """The value of a code of a small floating type with subnormal numbers; codes of infinity and NaN are not meant."""
    bias = 2 ** (exponent_bits - 1) - 1
    mantissa, rest = code % 2**mantissa_bits, code >> mantissa_bits
    exponent, sign = rest % 2**exponent_bits, rest >> exponent_bits
    least = 1 if exponent else 0
    return (-1.0) ** sign * (least + mantissa / 2**mantissa_bits) * 2.0 ** (max(exponent, 1) - bias)


#: What each type's codes are worth, by its definition.
VALUES = {
    "int4": [float(code - 16 * (code > 7)) for code in range(16)],
    "uint4": [float(code) for code in range(16)],
    "int8": [float(code - 256 * (code > 127)) for code in range(256)],
    # S.1111.111 is NaN; S.11111.00 is infinity, and above are NaN.
    "fp8e4m3": [floating(code, 4, 3) if code & 127 < 127 else float("nan") for code in range(256)],
    "fp8e5m2": [floating(code, 5, 2) if code & 127 < 124 else float("nan") for code in range(256)],
    "fp4": [floating(code, 2, 1) for code in range(16)],
}


def values_of(name: str) -> list[float]:
    """What the codes of a contract of STORED are worth."""
    return VALUES[name.partition("_")[0].replace("mx", "").replace("nv", "")]


def decoded(name: str, b: torch.Tensor) -> torch.Tensor:
    """The elements of a matrix `b` in float64, by the value of each code."""
    values, octets = torch.tensor(values_of(name), dtype=torch.float64), b.contiguous().view(torch.uint8).long()
    if len(values) == 16:
        octets = torch.stack((octets & 15, octets >> 4), 1).flatten(0, 1)
    return values[octets]


def along(block: tuple[int, ...], x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """What each element has of a matrix with one of each block, in float64."""
    for dimension, size in enumerate((rows, columns)):
        x = x.repeat_interleave(block[dimension] or size, dimension).narrow(dimension, 0, size)
    return x.double()


def dense(name: str, keywords: dict[str, torch.Tensor]) -> torch.Tensor:
    """What `dequantize` gives of a matrix with scales, in float64."""
    found, block = decoded(name, keywords["b"]), packing().CONTRACTS[name].block
    zero = along(block, keywords["b_zero"], *found.shape) if "b_zero" in keywords else 0.0
    return (found - zero) * along(block, keywords["b_scale"], *found.shape)
