"""A launch of a family's call as a program without Python makes it: its image, its grid, and where arguments are from.

What stands in the kernel's `CALL` says where each argument comes from. What Triton's compiler was told of the argument
stands in the compiled kernel: that a number or an address is a multiple of 16, or that a stride is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

from generator.emit.cubin.c_expressions import expression
from generator.emit.cubin.compiled_contracts import CubinArgument, CubinImage, CubinLaunch, TensorMap

#: The bytes of an argument of each type, as Triton writes types.
_BYTES = {"i32": 4, "i64": 8, "fp32": 4}
#: The type of a tensor map of fp32 that the hardware rounds to tf32, as `cuTensorMapEncodeTiled` numbers it.
_TF32 = 11


class Unpackable(Exception):
    """What a contract launches cannot be launched without Python; the message says why."""


def launch_of(symbolic: Any, planned: Any, compiled: Any, known: Mapping[str, int | str]) -> CubinLaunch:
    """A launch of a plan and its compiled kernel; `symbolic` is what `CALL` says of it.

    `known` has the sizes as C expressions, and the numbers of the configuration. Raises `Unpackable`.
    """
    grid = tuple(expression(each, known) for each in symbolic.grid)
    return CubinLaunch(_image(compiled), grid, tuple(_arguments(symbolic, planned, compiled, known)))


def _image(compiled: Any) -> CubinImage:
    """The compiled kernel with what a launch of it needs."""
    metadata = compiled.metadata
    for kind in ("global", "profile"):
        if size := getattr(metadata, f"{kind}_scratch_size", 0):
            raise Unpackable(
                f"it needs {size} bytes of {kind} scratch memory a program, which Triton's launcher allocates"
            )
    return CubinImage(
        metadata.name,
        bytes(compiled.asm["cubin"]),
        metadata.shared,
        metadata.num_warps,
        getattr(metadata, "num_ctas", 1),
        bool(getattr(metadata, "launch_cooperative_grid", False)),
        bool(getattr(metadata, "launch_pdl", False)),
    )


def _arguments(symbolic: Any, planned: Any, compiled: Any, known: Mapping[str, int | str]) -> Iterator[CubinArgument]:
    sources = {**symbolic.tensors, **symbolic.numbers, **symbolic.constants}
    metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for index, (name, kind) in enumerate(compiled.src.signature.items()):
        source: Any = sources.get(name)
        what = type(source).__name__
        if kind == "constexpr":
            if what == "Stride" and planned.arguments[name] == 1:
                yield CubinArgument("STRIDE", 0, source.name, source.dimension, one=True)
            continue
        divisible = ["tt.divisibility", 16] in compiled.src.attrs.get((index,), [])
        if kind.startswith("tensordesc"):
            meta = next(metas, None)
            if meta is None or what != "Described":
                raise Unpackable(f"Triton passes {name} as a descriptor that only its own launcher can make")
            yield CubinArgument("MAP", 64, source.name, map=_map(source, planned.arguments[name], meta))
        elif kind.startswith("*") and (what in ("str", "Bytes")):
            operand = source if isinstance(source, str) else source.name
            yield CubinArgument("ADDRESS", 8, operand, divisible=divisible)
        elif kind == "fp32" and what == "str":
            yield CubinArgument("SCALAR", 4, source)
        elif kind in ("i32", "i64") and what == "Stride":
            yield CubinArgument("STRIDE", _BYTES[kind], source.name, source.dimension, divisible=divisible)
        elif kind in ("i32", "i64") and (isinstance(source, int) or hasattr(source, "names")):
            yield CubinArgument("NUMBER", _BYTES[kind], number=expression(source, known))
        else:
            raise Unpackable(f"it passes {name}, a {what} of type {kind}, which only Python makes")


def _map(source: Any, descriptor: Any, meta: Mapping[str, Any]) -> TensorMap:
    """The tensor map of an operand, as `make_tensordesc_arg` of Triton's driver makes it."""
    kind = TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
    if getattr(descriptor, "round_f32_to_tf32", False):
        kind = _TF32
    return TensorMap(
        source.name,
        bool(source.turned),
        tuple(meta["block_size"]),
        meta["swizzle"],
        meta["elem_size"],
        kind,
        bool(meta["fp4_padded"]),
        descriptor.padding == "nan",
    )
