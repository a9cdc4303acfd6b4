"""A launch of a family's call as a program without Python makes it: its image, its grid, and where arguments are from.

What stands in the kernel's `CALL` says where each argument comes from. What Triton's compiler was told of the argument
stands in the compiled kernel: that a number or an address is a multiple of 16, or that a stride is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

from generator.emit.call_value import Made, Tensor
from generator.emit.cubin.contracts import CubinArgument, CubinImage, CubinLaunch, TensorMap, expression
from generator.plan.extents import Amount

#: The bytes of an argument of each type, as Triton writes types.
_BYTES = {"i32": 4, "i64": 8, "fp32": 4}
#: What a plain launch has: no scratch memory, no clusters, no programs that wait for each other or for another kernel.
_PLAIN = {
    "global_scratch_size": 0,
    "profile_scratch_size": 0,
    "num_ctas": 1,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
}
#: The type of a tensor map of fp32 that the hardware rounds to tf32, as `cuTensorMapEncodeTiled` numbers it.
_TF32 = 11


class Unpackable(Exception):
    """What a contract launches cannot be launched without Python; the message says why."""


def launch_of(
    grid: Sequence[Amount | int],
    sources: Mapping[str, Any],
    planned: Any,
    compiled: Any,
    known: Mapping[str, int | str],
) -> CubinLaunch:
    """A launch of a plan and its compiled kernel; `grid` and `sources`, its arguments, are what `CALL` says of it.

    `known` has the sizes as C expressions, and the numbers of the configuration. Raises `Unpackable`.
    """
    programs = tuple(expression(each, known) for each in grid)
    return CubinLaunch(image_of(compiled), programs, tuple(_arguments(sources, planned, compiled, known)))


def image_of(compiled: Any) -> CubinImage:
    """The compiled kernel with what a launch of it needs; raises `Unpackable` if that is more than a plain launch."""
    metadata = compiled.metadata
    for name, plain in _PLAIN.items():
        if (needed := getattr(metadata, name, None) or plain) != plain:
            raise Unpackable(f"its launch has {name} {needed}, which only Triton's launcher makes")
    return CubinImage(metadata.name, bytes(compiled.asm["cubin"]), metadata.shared, metadata.num_warps)


def _arguments(
    sources: Mapping[str, Any], planned: Any, compiled: Any, known: Mapping[str, int | str]
) -> Iterator[CubinArgument]:
    metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for index, (name, kind) in enumerate(compiled.src.signature.items()):
        divisible = ["tt.divisibility", 16] in compiled.src.attrs.get((index,), [])
        meta = next(metas, None) if kind.startswith("tensordesc") else None
        match kind, sources.get(name):
            case "constexpr", source:
                if isinstance(source, Made) and source.function == "stride" and planned.arguments[name] == 1:
                    yield CubinArgument("STRIDE", 0, source.given[0].name, source.given[1], one=True)
            case _, Made("described", (Tensor(operand), *_)) as source if meta is not None:
                yield CubinArgument("MAP", 64, operand, map=_map(source, planned.arguments[name], meta))
            case pointer, Tensor(operand) | Made("as_bytes", (Tensor(operand),)) if pointer.startswith("*"):
                yield CubinArgument("ADDRESS", 8, operand, divisible=divisible)
            case "fp32", Tensor(operand):
                yield CubinArgument("SCALAR", 4, operand)
            case "i32" | "i64", Made("stride", (Tensor(operand), dimension)):
                yield CubinArgument("STRIDE", _BYTES[kind], operand, dimension, divisible=divisible)
            case "i32" | "i64", int() | Amount() as source:
                yield CubinArgument("NUMBER", _BYTES[kind], number=expression(source, known))
            case _, source:
                raise Unpackable(f"it passes {name}, {source} of type {kind}, which only Python makes")


def _map(source: Made, descriptor: Any, meta: Mapping[str, Any]) -> TensorMap:
    """The tensor map of an operand, as `make_tensordesc_arg` of Triton's driver makes it."""
    kind = TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
    if getattr(descriptor, "round_f32_to_tf32", False):
        kind = _TF32
    return TensorMap(
        bool(dict(source.options).get("turned")),
        tuple(meta["block_size"]),
        meta["swizzle"],
        meta["elem_size"],
        kind,
        bool(meta["fp4_padded"]),
        descriptor.padding == "nan",
    )
