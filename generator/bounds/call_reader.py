"""What the `CALL` of a file says: the file is imported, and the functions of `CALL` are evaluated over symbols.

The proof is about what Python makes of the file: of the text only what `gemm` does is compared, and which constructs
`CALL` has.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from generator.bounds.source import NotUnderstood, Source
from generator.emit.call_value import Made, Tensor, evaluated, extents, strange
from generator.emit.loading import load_kernel
from generator.emit.syntax_digest import undocumented
from generator.plan.extents import Amount


@dataclass(frozen=True)
class CallTensor:
    """A tensor of a call: `kind` is the runtime's class, `absent` the size of one that is left out."""

    kind: str
    name: str
    shape: tuple[Amount | int, ...] = ()
    dtypes: tuple[str, ...] = ()
    unit: int | None = None
    absent: Amount | int | None = None
    named: str | None = None
    pitch: int = 1
    cleared: bool = False


@dataclass(frozen=True)
class ReadLaunch:
    """A launch: the kernel by what it does, the grid, and the arguments besides the configuration."""

    kernel: str
    line: int
    grid: tuple[Amount | int, ...]
    arguments: Mapping[str, Any]
    configured: bool

    @cached_property
    def passed(self) -> Mapping[str, str]:
        """The tensors whose memory the kernel is passed, by the names of its parameters."""
        names = {}
        for parameter, x in self.arguments.items():
            match x:
                case Tensor(name) | Made("described" | "as_bytes", (Tensor(name), *_)):
                    names[parameter] = name
        return names


@dataclass(frozen=True)
class ReadCall:
    """What `CALL` says, and where it stands."""

    line: int
    rows: tuple[Mapping[str, int], ...]
    #: The sizes of the products, of which the last is summed over.
    sizes: tuple[str, ...]
    operands: tuple[CallTensor, ...]
    results: tuple[CallTensor, ...]
    memory: tuple[CallTensor, ...]
    launches: tuple[ReadLaunch, ...]
    #: What the kernel needs of a call, and what a configuration needs of one.
    needs: tuple[Made, ...]
    fits: tuple[Made, ...]
    #: Whether PROGRAMS has a value, which is then at least 1.
    counted: bool
    cleared: tuple[str, ...]
    reduced: tuple[Any, ...]
    #: The parameters that a tuner sets to zero; None without one.
    reset: tuple[str, ...] | None


def read_call(source: Source, path: Path) -> ReadCall:
    """What the `CALL` of a file says; raises `NotUnderstood` unless `gemm` only passes on to it."""
    line = source.call.lineno
    if (other := strange(source.call)) is not None:
        raise NotUnderstood(getattr(other, "lineno", line), ast.unparse(other))
    try:
        call = load_kernel(path).CALL
        return _read(source, line, call)
    except NotUnderstood:
        raise
    except Exception as error:
        raise NotUnderstood(line, f"CALL: {error}") from error


#: What the parts of a call are made of: classes of the runtime.
_PARTS = {
    "operands": {"Operand", "Number"},
    "results": {"Operand", "Scattered"},
    "launches": {"Launch"},
    "memory": {"Memory", "Workspace"},
    "reduced": {"Reduction"},
}


def _read(source: Source, line: int, call: Any) -> ReadCall:
    for part, kinds in (("", {"Call"}), *_PARTS.items()):
        for x in getattr(call, part) if part else (call,):
            if _maker(x) not in kinds:
                raise NotUnderstood(line, f"CALL: {x} is none of {', '.join(sorted(kinds))}")
    if call.choose is not None and _maker(call.choose) != "cheapest":
        raise NotUnderstood(line, "CALL: a choice of configurations that the runtime does not make")
    if call.sized:
        raise NotUnderstood(line, "CALL: sizes of products that are not those of its operands")
    operands, memory = (tuple(map(tensor_of, x)) for x in (call.operands, call.memory))
    results = tuple(replace(tensor_of(x), kind="Result") for x in call.results)
    names = [x.name for x in (*operands, *results)]
    if len({*names, *(x.name for x in memory)}) != len(names) + len(memory):
        raise NotUnderstood(line, "two tensors of one name")
    _require_passed_on(source, names)
    tensors = [*names, *(x.name for x in memory)]
    return ReadCall(
        line,
        tuple(call.configs),
        _sizes(operands, results),
        operands,
        results,
        memory,
        tuple(_launch(source, x, tensors) for x in call.launches),
        _needs(call.refuse, tensors),
        _needs(call.fits, tensors),
        _maker(call.programs) == "Occupancy" and call.programs.interpreted >= 1,
        tuple(call.cleared),
        tuple(call.reduced),
        None if call.tuner is None else call.tuner.reset,
    )


def _maker(x: Any) -> str:
    """The class of the family's library that a value is of, or its function that made it; empty for other values."""
    function_or_class = x if inspect.isfunction(x) else type(x)
    outer, _, inner = function_or_class.__qualname__.partition(".")
    return outer if "._runtime." in function_or_class.__module__ and bool(inner) == inspect.isfunction(x) else ""


def tensor_of(x: Any) -> CallTensor:
    """A tensor of the call, or a number."""
    dtypes = x.dtype if isinstance(x.dtype, tuple) else (x.dtype,)
    absent = None if x.absent is None else extents(x.absent)[0]
    more = {name: getattr(x, name) for name in ("named", "pitch", "cleared") if hasattr(x, name)}
    return CallTensor(type(x).__name__, x.name, extents(x.shape), tuple(map(str, dtypes)), x.unit, absent, **more)


def _sizes(operands: tuple[CallTensor, ...], results: tuple[CallTensor, ...]) -> tuple[str, ...]:
    """The sizes of a result, then the one that `a` and `b` share beside them; with the number of groups of rows."""
    a, b, out = (
        [name for x in tensor.shape if isinstance(x, Amount) for name in sorted(x.names)]
        for tensor in (*operands[:2], results[0])
    )
    summed = [name for name in a if name in b and name not in out]
    return (*(name for name in b[:1] if "T" in out), *out, *summed)


def _launch(source: Source, launch: Any, tensors: list[str]) -> ReadLaunch:
    kernel = launch.kernel
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    lines = {source.functions[name].decorator_list[0].lineno: name for name in source.kernels}
    grid, arguments = (evaluated(x, tensors) for x in (launch.grid, launch.arguments))
    line = launch.grid.__code__.co_firstlineno
    if not isinstance(grid, tuple) or not isinstance(arguments, dict):
        raise NotUnderstood(line, "a launch whose grid is no tuple, or whose arguments are no dict")
    return ReadLaunch(lines[kernel.__code__.co_firstlineno], line, grid, arguments, launch.configured)


def _needs(refuse: Any, tensors: list[str]) -> tuple[Made, ...]:
    """What a function refuses calls without."""
    match None if refuse is None else evaluated(refuse, tensors):
        case None:
            return ()
        case Made("first", needs, ()):
            return needs
    raise NotUnderstood(refuse.__code__.co_firstlineno, "a refusal that is not the first of several reasons")


def _require_passed_on(source: Source, names: list[str]) -> None:
    """Raise unless `gemm` passes to `CALL` what it is given, and does nothing else."""
    gemm = source.function("gemm")
    match undocumented(gemm):
        case [ast.Return(ast.Call(ast.Name("CALL"), [ast.Name("config")], keywords))]:
            if sorted(map(ast.unparse, keywords)) == sorted(f"{name}={name}" for name in names):
                return
    raise NotUnderstood(gemm.lineno, "gemm, which passes what it is given to CALL")
