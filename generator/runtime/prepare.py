"""Compiling all that calls of this family's functions can run, before the first call.

The functions are asked, with tensors that have shape, strides, device and alignment but no memory (`which`).
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from triton import knobs

from . import private
from .call import Call, Operand, Planned, Row, State, extents, index_of
from .launch import Function, KernelModule, Operands, Repeat, name_contract

#: What an operand may be: a tensor of a dtype, or, for `float`, a Python number.
Dtype: TypeAlias = torch.dtype | type[float]
_Dtypes: TypeAlias = Mapping[str, Dtype | tuple[Dtype, ...]]
#: Strides and an offset, in elements.
_Placing: TypeAlias = tuple[tuple[int, ...], int]
# What tensors without memory are made of; where torch lacks it, they have memory.
_DispatchMode: Any = private.named("torch.utils._python_dispatch", "TorchDispatchMode", object)
_without_functions: Any = private.named("torch", "_C._disabled_torch_function_impl", None)
_KNOWN = _DispatchMode is not object and None not in (private.make_wrapper, _without_functions)
# The errors of a kernel that a device cannot run.
_UNFIT = [private.named("triton.runtime.errors", x, MemoryError) for x in ("OutOfResources", "PTXASError")]


def prepare(
    gemm: Function,
    N: int,
    K: int,
    *,
    M: int | Iterable[int],
    B: int = 1,
    device: torch.device | str | None = None,
    unaligned: Collection[str] | None = None,
    dtypes: _Dtypes | None = None,
) -> int:
    """Compile what calls of `gemm` with these sizes can run, in parallel; return how many configurations there are.

    Later calls of these sizes wait for no compiler, in this process, and in others that use the same Triton cache.
    `M` is an int, or a range or another iterable of ints, and N for a symmetric result. `B` is the number of matrices
    of a batch, or of groups, which divide M, or K in contracts whose names begin with `gmmk_`.

    Triton compiles a kernel for each alignment of its operands: addresses and strides are multiples of 16 or not. All
    combinations are prepared; `unaligned` names the only operands that may be unaligned or not contiguous. `dtypes` has
    for an operand of the epilogue its dtype, or a tuple of several; `float` stands for a Python number. The default for
    scalars is `float`; for tensors it is the dtype of the result, or torch.float32 if A or the result has 8 bits.

    `device` is the current GPU by default. In Triton's interpreter nothing is compiled.
    Raises ValueError for wrong sizes or names, and if no kernel accepts any of the sizes; TypeError for wrong dtypes.
    """
    if device is None:
        device = "cpu" if knobs.runtime.interpret else f"cuda:{torch.cuda.current_device()}"
    device = torch.device(device)
    every = launches(gemm, N, K, M=M, B=B, device=device, unaligned=unaligned, dtypes=dtypes)
    if not knobs.runtime.interpret:
        compile_all(every, device)
        with torch.cuda.device(device):
            for launch in every:
                launch.load()
    return len({(launch.name, launch.row) for launch in every if launch.row is not None})


def compile_all(every: Collection[_Launch], device: torch.device) -> None:
    """Compile launches in threads; raises the error of a launch that does not compile."""
    in_threads(every, lambda launch: launch.compiled(device))


def in_threads(launches: Collection[Any], compiled: Callable[[Any], Any]) -> list[Any]:
    """What `compiled` returns for each launch, called in as many threads as there are processors.

    Triton's compiler runs without Python's lock. CPython's parser, before 3.11.8 and 3.12.2, may take another thread
    that parses for a mistake in a source: what fails is compiled once more when no thread runs, which raises its error.
    """
    for each in launches:
        kernel = each.kernel
        # Before there are threads: if reading a source fails, Triton goes on with a key that says nothing of its text.
        while not hasattr(kernel, "cache_key"):
            kernel = kernel.fn
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = [pool.submit(compiled, each) for each in launches]
    return [one.result() if one.exception() is None else compiled(each) for each, one in zip(launches, done)]


def launches(
    gemm: Function,
    N: int,
    K: int,
    *,
    M: int | Iterable[int],
    B: int,
    device: torch.device,
    unaligned: Collection[str] | None = None,
    dtypes: _Dtypes | None = None,
) -> list[_Launch]:
    """Every launch that calls with these sizes can make, one for each kernel that Triton compiles.

    The arguments are those of `prepare`, which says what is raised.
    """
    N, K, B, *rows = map(index_of, (N, K, B, *(M if isinstance(M, Iterable) else [M])))
    names = [x.name for x in _tensors(gemm.table)]
    unaligned = (unaligned,) if isinstance(unaligned, str) else unaligned
    try:
        if not rows or not all(type(size) is int and size >= 0 for size in (N, K, B, *rows)):
            sizes_given = f"N={N!r}, K={K!r}, B={B!r}, M={M!r}"
            raise ValueError(f"N, K, B and each M must be integers that are not negative, got {sizes_given}")
        for reason in filter(None, (misfit(gemm.table, size, N, B) for size in rows)):
            raise ValueError(reason)
        for name in {*(unaligned or ()), *(dtypes or ())} - {*names}:
            raise ValueError(f"it has no operand {name!r}; its operands are {', '.join(names)}")
        unique: dict[tuple[object, ...], _Launch] = {}
        refusal: ValueError | None = None
        with memoryless():
            for given in _calls(gemm, rows, {"B": B, "N": N, "K": K}, device, unaligned, dtypes or {}):
                try:
                    copying, kernel, row, operands = gemm.followed(given)
                except ValueError as error:
                    # A call with these operands raises this error.
                    refusal = error
                    continue
                if callable(kernel):
                    # Torch's own product, which is not compiled.
                    continue
                copies = [_Launch("copies", None, *each) for each in copying]
                for launch in (*copies, *_launches(kernel, row, operands)):
                    # Two values of M of which Triton knows the same are compiled once.
                    unique.setdefault(launch.key, launch)
        if not unique and refusal is not None:
            raise refusal
    except (TypeError, ValueError) as error:
        name_contract(error, gemm.__name__)
        raise
    return [*unique.values()]


def _calls(
    gemm: Function,
    rows: Collection[int],
    sizes: dict[str, int],
    device: torch.device,
    unaligned: Collection[str] | None,
    dtypes: _Dtypes,
) -> Iterator[Operands]:
    """The operands of calls of these `sizes` and of each M in `rows`, one for each alignment of each operand."""
    naming = [(x.name, x.named) for x in gemm.table.results if hasattr(x, "named")]
    for size in rows:
        # Groups divide what is M, or what is K.
        total = size if gemm.__name__.startswith("gmm_") else sizes["K"]
        state = State({}, {"G": sizes["B"], "T": total, "R": total, "M": size, **sizes}, device, "a")
        choices = {x.name: _choices(gemm.table, x, state, unaligned, dtypes) for x in _tensors(gemm.table)}
        for values in itertools.product(*choices.values()):
            given = dict(zip(choices, values))
            # A call whose `scatter` names rows of a result that is not given is refused.
            if all(given.get(named) is None or given[name] is not None for name, named in naming):
                yield given


def _tensors(table: Call) -> list[Operand]:
    """The operands of a call, and the results that are not made by torch of the sums and maxima of tiles."""
    reduced = {x.name for x in table.reduced}
    return [x for x in (*table.operands, *table.results) if x.name not in reduced]


def several(table: Call) -> bool:
    """Whether a call multiplies several matrices: of a batch, or of groups."""
    return not {"B", "G"}.isdisjoint(table.sizes)


def misfit(table: Call, M: int, N: int, B: int) -> str | None:
    """Why no call has these sizes, whatever its operands are, or None."""
    if B != 1 and not several(table):
        return f"B is {B}, and the contract has neither a batch nor groups"
    if M != N and "N" not in table.sizes:
        return f"M is {M} and N is {N}: they must be equal; C is symmetric, so N is M"
    return None


@dataclass(eq=False)
class _Launch:
    """One launch of a kernel. Launches with equal `key` are one compilation.

    `name` is that of the kernel's module, and `row` the configuration as a tuple of its items; None for a kernel
    without. `repeated` is what later calls repeat: the call, the plan and the operands. `tuned`: the launch is one of
    those that a tuner tries. `tolerant` ignores the errors for which a tuner discards a configuration.
    """

    name: str
    row: tuple[tuple[str, int], ...] | None
    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    repeated: tuple[Call, State, Operands] | None = None
    tuned: bool = False

    def __post_init__(self) -> None:
        # What a kernel without a configuration is compiled for, and the values of `triton.heuristics`.
        constants: tuple[object, ...] = self.row or tuple([self.arguments.get(x) for x in ("BLOCK_N", "SPLIT")])
        derived = [value(self.arguments) for value in getattr(self.kernel, "values", {}).values()]
        self.key = self.name, constants, *map(specialised, self.arguments.values()), *derived
        self.tolerant = contextlib.suppress(*(_UNFIT if self.tuned else ()))

    def compiled(self, device: torch.device) -> None:
        """Compile the kernel if it is not in Triton's cache."""
        with torch.cuda.device(device), self.tolerant:
            self.kernel.warmup(grid=self.grid, **self.arguments)

    def load(self) -> None:
        """Load the compiled kernel on the current device and make its launcher, which Triton 3.6 compiles from C."""
        with self.tolerant:
            # Either launch of a plan may be one compilation with that of another plan, so each loads both.
            plan = [self] if self.repeated is None else self.repeated[1].launches
            compiled = [each.kernel.warmup(grid=each.grid, **each.arguments) for each in plan]
            for each in compiled:
                # Before its launch is repeated, which reads what is loaded.
                getattr(each, "run", None)
            if self.repeated is not None:
                call, planned, given = self.repeated
                Repeat(call, planned, compiled, given)


def _launches(kernel: KernelModule, row: Row | None, given: Operands) -> list[_Launch]:
    """The launches of a kernel, or those for each configuration that its tuner tries; none if the result is empty."""
    call, plans, planned = kernel.CALL, [], []
    tuned, name = row is None and call.tunes, kernel.__name__.rpartition(".")[2]
    for each in call.offered(given["a"].device) if tuned else [row]:
        # The tuner leaves out configurations that the sizes do not allow.
        with contextlib.suppress(*[ValueError] * tuned):
            plans.append(call.plan(each, **given))
    for plan in plans:
        repeated = (call, plan, given) if given["a"].numel() else None
        for each in plan.launches:
            planned.append(_Launch(name, _row(kernel, each), each.kernel, each.grid, each.arguments, repeated, tuned))
    return planned


def _row(kernel: KernelModule, launch: Planned) -> tuple[tuple[str, int], ...] | None:
    """The configuration that a launch passes to its kernel, as its items, or None."""
    return next(((*row.items(),) for row in kernel.CONFIGS if row.items() <= launch.arguments.items()), None)


def specialised(x: Any) -> object:
    """What Triton compiles an argument for."""
    if isinstance(x, Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if hasattr(x, "block_shape"):
        return x.base.dtype, *x.block_shape
    if isinstance(x, tuple):
        return (*map(specialised, x),)
    if type(x) is int:
        return x == 1, x % 16 == 0, x.bit_length() > 31
    return type(x) if isinstance(x, float) else x


def _choices(
    table: Call, x: Operand, state: State, unaligned: Collection[str] | None, dtypes: _Dtypes
) -> list[Tensor | float | None]:
    """The values of an operand that calls can pass, one for each alignment."""
    kinds: Any = x.dtype
    if not isinstance(x.dtype, torch.dtype):
        a, out = (cast(torch.dtype, each.dtype) for each in (table.operands[0], table.results[0]))
        usual = x.dtype[0] if x.dtype else torch.float32 if 1 in (a.itemsize, out.itemsize) else out
        kinds = dtypes.get(x.name, usual if x.shape else float)
    elif x.name in dtypes:
        raise ValueError(f"the dtype of {x.name} is {x.dtype}, got {dtypes[x.name]}")
    sizes = extents(x.shape)(state.numbers)
    # What is left out is allocated, contiguous and aligned.
    values: list[Tensor | float | None] = [None] * (x.absent is not None or (x in table.results and not x.read))
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not isinstance(kind, torch.dtype):
            values.append(1.0)
            continue
        placings = _placings_of_scales(sizes) if isinstance(x.dtype, tuple) else _placings(sizes, x, kind.itemsize)
        placings = placings if unaligned is None or x.name in unaligned else placings[:1]
        values += [memoryless_tensor(kind, state.device, sizes, *placing) for placing in placings]
    return values


def _placings(sizes: tuple[int, ...], x: Operand, size: int) -> list[_Placing]:
    """Strides and offset, in elements of `size` bytes: for a contiguous operand, and for all others.

    Two of the others differ in what Triton specialises on, in whether a descriptor can address them, or, for A and B,
    in whether their rows are whole lines of the L2.
    """
    if len(sizes) < 2:
        ones = (1,) * len(sizes)
        return [(ones, 0), (ones, 1)]
    *front, rows, columns = sizes
    multiplied = x.name in ("a", "b")
    placings: dict[tuple[object, ...], _Placing] = {}
    for inner in (-1, -2) if x.unit is None else (x.unit - len(sizes),):
        width, height = (max(columns, 1), rows) if inner == -1 else (max(rows, 1), columns)
        for lead, offset in itertools.product(range(width, width + 256), (0, 1)):
            least = lead * height
            for apart in (least, -(-least // 16) * 16, least | 1, *([0] if multiplied else [])) if front else (0,):
                outer = [apart] * len(front)
                known = [(number == 1, number % 16 == 0) for number in (lead, *outer)]
                addressed = not offset and all(number * size % 16 == 0 for number in (lead, *outer))
                lines = multiplied and (lead * size % 128 == 0, apart == 0)
                strides = (*outer, lead, 1) if inner == -1 else (*outer, 1, lead)
                placings.setdefault((inner, offset, *known, addressed, lines), (strides, offset))
    return [*placings.values()]


def _placings_of_scales(sizes: tuple[int, ...]) -> list[_Placing]:
    """As `_placings`: scales that are contiguous along either dimension, along the first also in whole lines."""
    *front, rows, columns = sizes
    placed = (max(columns, 1), 1), (1, -(-rows // 16) * 16), (1, max(rows, 1))
    return [((*(max(each) * max(rows, columns) for _ in front), *each), 0) for each in placed]


# Tensors that have shape, strides, device and alignment but no memory, by which a call is worked out.


def memoryless_tensor(
    dtype: torch.dtype, device: torch.device, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> Tensor:
    """A tensor that begins `offset` elements behind an aligned address."""
    reach = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides) if size)
    return torch.empty(reach, dtype=dtype, device=device).as_strided(shape, strides, offset)


class StandIn(Tensor):
    """A tensor without memory: `meta`, as if it were on `device`."""

    # A kernel's `plan` accepts no other subclass.
    stand_in: bool = True
    __torch_function__ = _without_functions

    meta: Tensor

    @staticmethod
    def __new__(cls: type[StandIn], meta: Tensor, device: torch.device | None) -> StandIn:  # noqa: PYI034
        wrapper: StandIn = private.make_wrapper(
            cls, meta.shape, meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=device
        )
        wrapper.meta = meta
        return wrapper

    def data_ptr(self) -> int:
        # Under a mode of fake tensors `meta` is one, whose address torch warns about.
        return int(self.storage_offset()) * self.element_size() if self.numel() else 0

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{function} needs memory, which a stand-in does not have")


class _Memoryless(_DispatchMode):  # type: ignore[misc]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        first, options = arguments[0], dict(options or {})
        device = options.get("device", getattr(first, "device", None))
        if "device" in options:
            options["device"] = "meta"
        elif isinstance(first, StandIn):
            first = first.meta
        result = function(first, *arguments[1:], **options)
        return StandIn(result, device) if isinstance(result, Tensor) else result


def memoryless() -> contextlib.AbstractContextManager[object]:
    """Within it, new tensors have no memory."""
    return _Memoryless() if _KNOWN else contextlib.nullcontext()
