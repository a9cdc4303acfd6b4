"""The words of the axis `dtype`: types of elements, formats with scales, what they multiply and are multiplied in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Element:
    """A scalar type of an operand, the accumulator or the result, with its name in each library."""

    bits: int
    floating: bool
    torch: str
    triton: str


ELEMENTS: Mapping[str, Element] = {
    "fp32": Element(32, True, "float32", "float32"),
    "fp16": Element(16, True, "float16", "float16"),
    "bf16": Element(16, True, "bfloat16", "bfloat16"),
    "fp8e4m3": Element(8, True, "float8_e4m3fn", "float8e4nv"),
    "fp8e5m2": Element(8, True, "float8_e5m2", "float8e5"),
    "int8": Element(8, False, "int8", "int8"),
    "int32": Element(32, False, "int32", "int32"),
}

#: Types that no product and no result has, with the libraries' names of what contains them: several elements of K of
#: four bits share a byte. Triton has no type of powers of two, e8m0, and reads their bytes.
STORED: Mapping[str, Element] = {
    "uint8": Element(8, False, "uint8", "uint8"),
    "int4": Element(4, False, "uint8", "uint8"),
    "uint4": Element(4, False, "uint8", "uint8"),
    "e2m1": Element(4, True, "uint8", "uint8"),
    "e8m0": Element(8, True, "float8_e8m0fnu", "uint8"),
}


@dataclass(frozen=True)
class Format:
    """A format whose scales belong to it: its elements, how many along K share a scale, and the types of scales."""

    element: str
    block: int
    scales: tuple[str, ...]


#: OCP MX 1.0, and NVIDIA's format of four bits.
FORMATS: Mapping[str, Format] = {
    "mxfp8e4m3": Format("fp8e4m3", 32, ("e8m0", "uint8")),
    "mxfp8e5m2": Format("fp8e5m2", 32, ("e8m0", "uint8")),
    "mxfp4": Format("e2m1", 32, ("e8m0", "uint8")),
    "nvfp4": Format("e2m1", 16, ("fp8e4m3",)),
}

#: Types of a B whose A has 16 bits; the kernel converts them to A's type.
WEIGHTS = ("int4", "uint4", "int8", "fp8e4m3", "fp8e5m2", "mxfp4", "mxfp8e4m3", "nvfp4")
#: Those of them that may have zero points.
OFFSET = ("int4", "uint4", "int8")
#: How many elements of how many along K are stored, of a B of 16 bits.
SPARSITIES = ("2:4",)


@dataclass(frozen=True)
class Quantised:
    """A type to which results are saturated and rounded to nearest even: its range, and what NaN becomes."""

    least: int
    most: int
    nan: str


QUANTISED: Mapping[str, Quantised] = {
    "int8": Quantised(-128, 127, "NaN becomes 0"),
    "fp8e4m3": Quantised(-448, 448, "NaN stays NaN"),
    "fp8e5m2": Quantised(-57344, 57344, "NaN stays NaN"),
}

#: Shorthand: a, b, acc, out, precision.
DTYPE_SHORTHANDS: Mapping[str, tuple[str, str, str, str, str | None]] = {
    "fp16": ("fp16", "fp16", "fp32", "fp16", None),
    "bf16": ("bf16", "bf16", "fp32", "bf16", None),
    "fp32": ("fp32", "fp32", "fp32", "fp32", "ieee"),
    "tf32": ("fp32", "fp32", "fp32", "fp32", "tf32"),
    "tf32x3": ("fp32", "fp32", "fp32", "fp32", "tf32x3"),
    "int8": ("int8", "int8", "int32", "int32", None),
    "fp8e4m3": ("fp8e4m3", "fp8e4m3", "fp32", "bf16", "full"),
    "fp8e5m2": ("fp8e5m2", "fp8e5m2", "fp32", "bf16", "full"),
}

#: Operand type -> the legal precisions of the product; the first is the default.
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("ieee", "tf32", "tf32x3"),
    "fp8e4m3": ("full", "fast"),
    "fp8e5m2": ("full", "fast"),
    "mxfp8e4m3": ("full",),
    "mxfp8e5m2": ("full",),
}

#: Operand type -> the legal accumulators.
ACCUMULATORS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("fp32",),
    "fp16": ("fp32", "fp16"),
    "bf16": ("fp32",),
    "fp8e4m3": ("fp32",),
    "fp8e5m2": ("fp32",),
    "int8": ("int32",),
    **{word: ("fp32",) for word in FORMATS},
}
