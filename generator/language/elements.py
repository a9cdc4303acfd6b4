"""The types of elements, a record each, and the formats whose scales belong to them.

Everything else follows from these records: which types a spec may name, what a target multiplies, what a kernel
converts and saturates, the docstrings, the cost of a step, and the reference and the tolerances of the proofs. A new
type is one record in `ELEMENTS`; docs/contributing.md has the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from generator.language.targets import TARGETS

_EVERY = frozenset(TARGETS)
_NVIDIA = frozenset(name for name, target in TARGETS.items() if target.vendor == "nvidia")
_AMD = _EVERY - _NVIDIA
#: The targets whose matrix unit multiplies the fp8 types of OCP.
_OCP = frozenset({"sm89", "sm90", "sm100", "sm120", "gfx942", "gfx950", "gfx1201"})
#: The target whose matrix unit multiplies the fp8 types with one zero.
_CDNA3 = frozenset({"gfx942"})


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """A type of elements. A target, or a use of the type, that its record does not name is refused."""

    #: The bits of an element, and the libraries' names of the type. A type that torch or Triton lacks has the name of
    #: what contains it; two elements along K of four bits share a byte.
    bits: int
    torch: str
    triton: str

    #: The least and the largest finite number.
    least: float
    most: float
    #: The bits of the exponent, 0 of an integer, and the explicit bits of the mantissa.
    exponent: int = 0
    mantissa: int = 0
    #: What the bits of the exponent exceed the exponent by; None for half of their range, as IEEE 754 has it.
    excess: int | None = None
    #: Whether there is a negative zero. A type without one has its bits for NaN.
    negative_zero: bool = True

    #: The targets whose matrix unit multiplies the type.
    multiplied: frozenset[str] = frozenset()
    #: The targets for which a kernel can convert operands of the type to another.
    converted: frozenset[str] = frozenset()
    #: The targets for which a kernel can convert results to the type.
    written: frozenset[str] = frozenset()

    #: The legal accumulators of a product, the first is the default; a type without any is no type of A.
    accumulators: tuple[str, ...] = ()
    #: The legal precisions of a product, the first is the default; none where there is no choice.
    precisions: tuple[str, ...] = ()
    #: The other types that the matrix unit multiplies the type by, if an operand has scales.
    others: tuple[str, ...] = ()
    #: The least elements along K of a step of the matrix unit.
    step: int = 16
    #: The type of the result where a spec names none.
    result: str = "bf16"
    #: The type whose measurements may stand for those of this one; empty if there is none.
    measured_as: str = ""

    #: Whether B may have the type where A has 16 bits, and whether it may then have zero points.
    weight: bool = False
    zeros: bool = False
    #: The macro of templates/storage.j2 that converts a tile of the type; `cast` is Triton's own conversion.
    converts: str = "cast"
    #: The macro for a tile of words in fragment order; empty for a type that is not stored so.
    fragments: str = ""
    #: The macro of templates/math.j2 that saturates and rounds fp32 to the type, in a function `_to_WORD`, and the one
    #: for int32; empty for a type to which Triton's own conversion rounds.
    quantises: str = ""
    saturates: str = ""
    #: What NaN becomes where results are saturated.
    nan: str = ""
    #: What a docstring says of scales of the type, if formats have such scales.
    scale: str = ""

    @property
    def floating(self) -> bool:
        """Whether an element has an exponent; otherwise it is an integer."""
        return self.exponent > 0

    @property
    def signed(self) -> bool:
        """Whether there are numbers below 0."""
        return self.least < 0

    @property
    def bias(self) -> int:
        """What the bits of the exponent exceed the exponent by."""
        return 2 ** (self.exponent - 1) - 1 if self.excess is None else self.excess

    @property
    def smallest(self) -> float:
        """The smallest number above 0."""
        return 2.0 ** (1 - self.bias - self.mantissa) if self.floating else 1.0

    @property
    def significant(self) -> int:
        """The significant bits of the longest number."""
        return self.mantissa + 1 if self.floating else max(int(self.most), -int(self.least) - 1).bit_length()

    @property
    def powers(self) -> bool:
        """Whether every number is a power of two."""
        return self.floating and self.mantissa == 0

    @property
    def format(self) -> str:
        """The bits of a floating type as `tl.dot_scaled` names them: `e4m3`."""
        return f"e{self.exponent}m{self.mantissa}"

    def holds(self, other: ElementType) -> bool:
        """Whether the type has every finite number of another."""
        fits = self.least <= other.least and other.most <= self.most
        return fits and self.significant >= other.significant and self.smallest <= other.smallest

    def value(self, code: int) -> float:
        """The number that the bits `code` stand for, of a type without infinities and NaN."""
        if not self.floating:
            return float(code - (1 << self.bits) if self.signed and code >> (self.bits - 1) else code)
        exponent = code >> self.mantissa & (1 << self.exponent) - 1
        digits = (code & (1 << self.mantissa) - 1) + ((1 << self.mantissa) if exponent else 0)
        sign = -1.0 if self.signed and code >> (self.bits - 1) else 1.0
        return sign * digits * 2.0 ** (max(exponent, 1) - self.bias - self.mantissa)


_FP16 = ElementType(
    bits=16,
    torch="float16",
    triton="float16",
    least=-65504,
    most=65504,
    exponent=5,
    mantissa=10,
    multiplied=_EVERY,
    converted=_EVERY,
    written=_EVERY,
    accumulators=("fp32", "fp16"),
    result="fp16",
    measured_as="bf16",
)
_FP8E4M3 = ElementType(
    bits=8,
    torch="float8_e4m3fn",
    triton="float8e4nv",
    least=-448,
    most=448,
    exponent=4,
    mantissa=3,
    multiplied=_OCP,
    converted=_OCP,
    # Triton has the instruction on NVIDIA only; on AMD it converts bit by bit where there is none.
    written=_AMD | _OCP,
    accumulators=("fp32",),
    precisions=("full", "fast"),
    others=("fp8e5m2",),
    step=32,
    weight=True,
    converts="fp8e4m3",
    quantises="to_fp8e4m3",
    nan="NaN stays NaN",
    scale="Scales are float8_e4m3fn.",
)
#: A type of CDNA3, which has one zero, one NaN and no infinities.
_FP8E4M3FNUZ = ElementType(
    bits=8,
    torch="float8_e4m3fnuz",
    triton="float8e4b8",
    least=-240,
    most=240,
    exponent=4,
    mantissa=3,
    excess=8,
    negative_zero=False,
    multiplied=_CDNA3,
    converted=_CDNA3,
    accumulators=("fp32",),
    step=32,
    weight=True,
)
_INT4 = ElementType(
    bits=4,
    torch="uint8",
    triton="uint8",
    least=-8,
    most=7,
    converted=_EVERY,
    weight=True,
    zeros=True,
    converts="int4",
    fragments="int4_fragments",
)

#: Each type under its name in the language.
ELEMENTS: Mapping[str, ElementType] = {
    "fp32": ElementType(
        bits=32,
        torch="float32",
        triton="float32",
        least=-(2 - 2.0**-23) * 2.0**127,
        most=(2 - 2.0**-23) * 2.0**127,
        exponent=8,
        mantissa=23,
        multiplied=_EVERY,
        written=_EVERY,
        accumulators=("fp32",),
        precisions=("ieee", "tf32", "tf32x3"),
        result="fp32",
    ),
    "fp16": _FP16,
    "bf16": replace(
        _FP16,
        torch="bfloat16",
        triton="bfloat16",
        least=-(2 - 2.0**-7) * 2.0**127,
        most=(2 - 2.0**-7) * 2.0**127,
        exponent=8,
        mantissa=7,
        accumulators=("fp32",),
        result="bf16",
        measured_as="fp16",
    ),
    "fp8e4m3": _FP8E4M3,
    # Triton 3.6 uses an instruction of sm89 for fp8e5m2, too.
    "fp8e5m2": replace(
        _FP8E4M3,
        torch="float8_e5m2",
        triton="float8e5",
        least=-57344,
        most=57344,
        exponent=5,
        mantissa=2,
        others=("fp8e4m3",),
        converts="fp8e5m2",
        quantises="to_fp8e5m2",
        scale="",
    ),
    "fp8e4m3fnuz": _FP8E4M3FNUZ,
    "fp8e5m2fnuz": replace(
        _FP8E4M3FNUZ,
        torch="float8_e5m2fnuz",
        triton="float8e5b16",
        least=-57344,
        most=57344,
        exponent=5,
        mantissa=2,
        excess=16,
    ),
    "int8": ElementType(
        bits=8,
        torch="int8",
        triton="int8",
        least=-128,
        most=127,
        multiplied=_EVERY,
        converted=_EVERY,
        written=_EVERY,
        accumulators=("int32",),
        step=32,
        result="int32",
        weight=True,
        zeros=True,
        converts="int8",
        fragments="int8_fragments",
        quantises="to_int8",
        saturates="saturate_int8",
        nan="NaN becomes 0",
    ),
    "int32": ElementType(bits=32, torch="int32", triton="int32", least=-(2**31), most=2**31 - 1, written=_EVERY),
    "uint8": ElementType(bits=8, torch="uint8", triton="uint8", least=0, most=255),
    "int4": _INT4,
    "uint4": replace(_INT4, least=0, most=15, converts="uint4"),
    "e2m1": ElementType(
        bits=4,
        torch="uint8",
        triton="uint8",
        least=-6,
        most=6,
        exponent=2,
        mantissa=1,
        converted=_EVERY,
        converts="e2m1",
        quantises="to_e2m1",
        nan="NaN becomes 0",
    ),
    # Triton has no type of powers of two, and reads their bytes.
    "e8m0": ElementType(
        bits=8,
        torch="float8_e8m0fnu",
        triton="uint8",
        least=2.0**-127,
        most=2.0**127,
        exponent=8,
        scale="A scale is a byte e that stands for 2**(e - 127), or for NaN if it is 255.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format whose scales belong to it: its elements, how many along K share a scale, and the types of scales."""

    element: str
    block: int
    scales: tuple[str, ...]
    #: The standard whose formats can be multiplied by each other; empty for a format that only itself is multiplied by.
    standard: str = ""
    #: As those of an element.
    accumulators: tuple[str, ...] = ("fp32",)
    precisions: tuple[str, ...] = ()
    weight: bool = False


#: OCP MX 1.0, and NVIDIA's format of four bits.
FORMATS: Mapping[str, Format] = {
    "mxfp8e4m3": Format(
        element="fp8e4m3", block=32, scales=("e8m0", "uint8"), standard="MX", precisions=("full",), weight=True
    ),
    "mxfp8e5m2": Format(element="fp8e5m2", block=32, scales=("e8m0", "uint8"), standard="MX", precisions=("full",)),
    "mxfp4": Format(element="e2m1", block=32, scales=("e8m0", "uint8"), standard="MX", weight=True),
    "nvfp4": Format(element="e2m1", block=16, scales=("fp8e4m3",), weight=True),
}


@dataclass(frozen=True)
class Precision:
    """A precision that not every target has: those that have it, and the reason on others, with their name as `{}`."""

    targets: frozenset[str]
    reason: str


PRECISION_TARGETS: Mapping[str, Precision] = {
    "tf32": Precision(_NVIDIA | {"gfx942"}, "{} has no tf32"),
    "tf32x3": Precision(_NVIDIA, "Triton emulates fp32 by three tf32 products on NVIDIA GPUs only"),
}


def every_target(word: str) -> bool:
    """Whether the matrix unit of every target multiplies a type."""
    return ELEMENTS[word].multiplied == _EVERY
