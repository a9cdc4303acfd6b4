"""Compiling all that calls of this family's functions can run, before the first call.

The functions are asked, with tensors that have shape, strides, device and alignment but no memory (`which`).
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import torch
import triton
from torch import Tensor
from triton import knobs

from . import memoryless, private
from .call import Call, Operand, Plan, Planned, Row, State, extents, index_of
from .launch import Function, KernelModule, Operands, Repeat, name_contract

#: What an operand may be: a tensor of a dtype, or, for `float`, a Python number.
Dtype: TypeAlias = torch.dtype | type[float]
#: Strides and an offset, in elements.
_Placing: TypeAlias = tuple[tuple[int, ...], int]
_Compiled = TypeVar("_Compiled")
# The errors for which a tuner discards a configuration.
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
    dtypes: Mapping[str, Dtype | tuple[Dtype, ...]] | None = None,
) -> int:
    """Compile what calls of `gemm` with these sizes can run, in parallel; return how many configurations there are.

    `M` is an int, or a range or another iterable of ints; `B` is the number of matrices, for batched contracts. Later
    calls of these sizes wait for no compiler, in this process, and in others that use the same Triton cache.

    Triton compiles a kernel for each alignment of its operands: addresses and strides are multiples of 16 or not. All
    combinations are prepared. `unaligned` names the operands that may be unaligned or not contiguous, and limits this
    to them; `()` prepares only calls with aligned, contiguous operands. `dtypes` has for an operand of the epilogue its
    dtype, or a tuple of several; `float` stands for a Python number. The default for scalars is `float`; for tensors it
    is the dtype of the result, or torch.float32 if A or the result has 8 bits.

    Of groups `B` is their number. They divide M, or K in contracts whose names begin with `gmmk_`. Of a symmetric
    result each M is N.

    `device` is the current GPU by default. In Triton's interpreter nothing is compiled.
    Raises ValueError for wrong sizes or names, and if no kernel accepts any of the sizes; TypeError for wrong dtypes.
    """
    if device is None:
        device = "cpu" if knobs.runtime.interpret else f"cuda:{torch.cuda.current_device()}"
    device = torch.device(device)
    found = launches(gemm, N, K, M=M, B=B, device=device, unaligned=unaligned, dtypes=dtypes)
    if not hasattr(triton.JITFunction, "warmup"):
        warnings.warn("this version of Triton has no `warmup`: nothing is compiled before the first call", stacklevel=3)
    elif not knobs.runtime.interpret:
        compile_all(found, device)
        with torch.cuda.device(device):
            for launch in found:
                launch.load()
    return len({(launch.name, launch.row) for launch in found if launch.row is not None})


def compile_all(found: Collection[_Launch], device: torch.device) -> None:
    """Compile launches in threads; raises the error of a launch that does not compile."""

    def compiled(launch: _Launch) -> None:
        with torch.cuda.device(device), launch.tolerant():
            launch.compiled()

    in_threads(found, compiled)


def in_threads(launches: Collection[Any], compiled: Callable[[Any], _Compiled]) -> list[_Compiled]:
    """What `compiled` returns for each launch, called in as many threads as there are processors.

    Triton's compiler runs without Python's lock. Raises the first error of a launch that does not compile.
    """
    for each in launches:
        # Before there are threads: if reading a source fails, Triton goes on with a key that says nothing of its text.
        _key(each.kernel)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = [pool.submit(compiled, each) for each in launches]
    return [compiled(each) if _misread(one.exception()) else one.result() for each, one in zip(launches, done)]


def _key(kernel: Any) -> object:
    """Triton's key of a kernel's source, which it computes once; None for what is no kernel of Triton's."""
    key = None
    while key is None and kernel is not None:
        key, kernel = getattr(kernel, "cache_key", None), getattr(kernel, "fn", None)
    return key


def _misread(error: BaseException | None) -> bool:
    """Whether CPython's parser, before 3.11.8 and 3.12.2, took another thread that parses for a mistake of its own.

    Triton reads a function's source wherever another calls it, and hands on the error as the cause of its own.
    """
    while error is not None and not isinstance(error, SystemError):
        error = error.__cause__ or error.__context__
    return error is not None


def launches(
    gemm: Function,
    N: int,
    K: int,
    *,
    M: int | Iterable[int],
    B: int,
    device: torch.device,
    unaligned: Collection[str] | None = None,
    dtypes: Mapping[str, Dtype | tuple[Dtype, ...]] | None = None,
) -> list[_Launch]:
    """Every launch that calls with these sizes can make, one for each kernel that Triton compiles.

    The arguments are those of `prepare`, which says what is raised.
    """
    N, K, B, *rows = map(index_of, (N, K, B, *(M if isinstance(M, Iterable) else [M])))
    if not rows or not all(type(size) is int and size >= 0 for size in (N, K, B, *rows)):
        sizes_given = f"N={N!r}, K={K!r}, B={B!r}, M={M!r}"
        raise ValueError(
            f"{gemm.__name__}: N, K, B and each M must be integers that are not negative, got {sizes_given}"
        )
    for size in rows:
        reason = misfit(gemm.table, size, N, B)
        if reason is not None:
            raise ValueError(f"{gemm.__name__}: {reason}")
    unaligned = (unaligned,) if isinstance(unaligned, str) else unaligned
    unknown = {*(unaligned or ()), *(dtypes or ())} - {x.name for x in _tensors(gemm.table)}
    for name in unknown:
        listed = ", ".join(x.name for x in _tensors(gemm.table))
        raise ValueError(f"{gemm.__name__} has no operand {name!r}; its operands are {listed}")
    try:
        return _launches_of_sizes(gemm, rows, N, K, B, device, unaligned, dtypes or {})
    except (TypeError, ValueError) as error:
        name_contract(error, gemm.__name__)
        raise


def _launches_of_sizes(
    gemm: Function,
    rows: Collection[int],
    N: int,
    K: int,
    B: int,
    device: torch.device,
    unaligned: Collection[str] | None,
    dtypes: Mapping[str, Dtype | tuple[Dtype, ...]],
) -> list[_Launch]:
    """The same for sizes that a call of the contract may have, each M among `rows`; errors do not name it."""
    table = {x.name: x for x in _tensors(gemm.table)}
    naming = [(x.name, x.named) for x in gemm.table.results if x.named is not None]
    found: dict[tuple[object, ...], _Launch] = {}
    seen: set[tuple[object, ...]] = set()
    refusal: ValueError | None = None
    with memoryless.mode():
        for size in rows:
            # Groups divide what is M, or what is K.
            total = size if gemm.__name__.startswith("gmm_") else K
            state = State({}, {"G": B, "T": total, "R": total, "B": B, "M": size, "N": N, "K": K}, device, "a")
            choices = {name: _choices(gemm, table, x, state, unaligned, dtypes) for name, x in table.items()}
            plain = {name: value for name, (value, _) in choices.items()}
            specialised: dict[tuple[object, ...], tuple[object, ...]] = {}
            for place, values in enumerate(itertools.product(*(values for _, values in choices.values()))):
                called = dict(zip(choices, values))
                if any(called.get(named) is not None and called[name] is None for name, named in naming):
                    # Such a call is refused.
                    continue
                try:
                    copying, kernel, row, given = gemm.followed(called)
                except ValueError as error:
                    # A call with these operands raises this error.
                    refusal = error
                    continue
                copies = [_Launch("copies", None, *each) for each in copying]
                found.update((launch.key, launch) for launch in copies)
                copied = {name: given[name] for name in ("a", "b") if given[name] is not called[name]}
                chosen = name_of(kernel), row and (*row.items(),), *copied
                # What Triton knows of the sizes. Two values of M of which it knows the same are compiled once.
                if chosen not in specialised:
                    launched = _launches(kernel, row, {**plain, **copied})
                    specialised[chosen] = tuple(launch.key for launch in launched)
                if (place, *chosen, specialised[chosen]) not in seen:
                    seen.add((place, *chosen, specialised[chosen]))
                    found.update((launch.key, launch) for launch in _launches(kernel, row, given))
    if not found and refusal is not None:
        raise refusal
    return [*found.values()]


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
    without. `repeat` makes of the compiled kernel what later calls launch. `tuned`: the launch is one of those that a
    tuner tries. `constants` are those that are not of a configuration.
    """

    name: str
    row: tuple[tuple[str, int], ...] | None
    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    repeat: Callable[[], object] | None = None
    tuned: bool = False
    constants: tuple[object, ...] | None = None

    def __post_init__(self) -> None:
        # The values of `triton.heuristics`.
        derived = [value(self.arguments) for value in getattr(self.kernel, "values", {}).values()]
        self.key = self.name, self.row, self.constants, *map(_specialised, self.arguments.values()), *derived

    def compiled(self) -> Any:
        """The kernel, compiled now if it is not in Triton's cache."""
        return self.kernel.warmup(grid=self.grid, **self.arguments)

    def tolerant(self) -> suppress:
        """Ignores the errors for which a tuner discards a configuration."""
        return suppress(*(_UNFIT if self.tuned else ()))

    def load(self) -> None:
        """Load the compiled kernel on the current device and make its launcher, which Triton 3.6 compiles from C."""
        with self.tolerant():
            compiled = self.compiled()
            if self.repeat is not None:
                self.repeat()
            getattr(compiled, "run", None)


def _launches(kernel: KernelModule, row: Row | None, given: Operands) -> list[_Launch]:
    """The launches of a kernel, or one for each configuration that its tuner tries; none if the result is empty."""
    plan = kernel.CALL.plan(row, **given)
    if not plan.launches or configuration(kernel, plan) is not None:
        return _of_plan(kernel, plan, given)
    found: list[_Launch] = []
    for offered in kernel.CALL.offered(given["a"].device):
        # The tuner leaves out configurations that the sizes do not allow.
        with suppress(ValueError):
            found += _of_plan(kernel, kernel.CALL.plan(offered, **given), given, tuned=True)
    return found


def _of_plan(kernel: KernelModule, plan: Plan, given: Operands, tuned: bool = False) -> list[_Launch]:
    """The launches of a plan: one, or one for each of two kernels."""

    def repeat() -> object:
        # Either launch may be one compilation with that of another plan, so each repeats both.
        compiled = [each.kernel.warmup(grid=each.grid, **each.arguments) for each in plan.launches]
        return Repeat(kernel.CALL, plan, compiled, given)

    again = repeat if given["a"].numel() else None
    found: list[_Launch] = []
    for each in plan.launches:
        row = row_of(kernel, each)
        # What a kernel without a configuration is compiled for.
        constants = None if row else tuple(each.arguments.get(x) for x in ("BLOCK_N", "SPLIT"))
        items = (*row.items(),) if row else None
        found.append(_Launch(name_of(kernel), items, each.kernel, each.grid, each.arguments, again, tuned, constants))
    return found


def configuration(kernel: KernelModule, plan: Plan) -> Row | None:
    """The configuration of a plan; None if its tuner chooses one, or if nothing runs."""
    return next(filter(None, (row_of(kernel, each) for each in plan.launches)), None)


def row_of(kernel: KernelModule, launch: Planned) -> Row | None:
    """The configuration that a launch passes to its kernel, or None."""
    return next((row for row in kernel.CONFIGS if row.items() <= launch.arguments.items()), None)


def name_of(kernel: KernelModule) -> str:
    """The name of a kernel's module, without those of its packages."""
    return kernel.__name__.rpartition(".")[2]


def _specialised(x: Any) -> object:
    """What Triton compiles an argument for."""
    if isinstance(x, Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if hasattr(x, "block_shape"):
        return x.base.dtype, *x.block_shape
    if isinstance(x, tuple):
        return (*map(_specialised, x),)
    if type(x) is int:
        return x == 1, x % 16 == 0, x.bit_length() > 31
    return type(x) if isinstance(x, float) else x


def _choices(
    gemm: Function,
    table: Mapping[str, Operand],
    x: Operand,
    state: State,
    unaligned: Collection[str] | None,
    dtypes: Mapping[str, Dtype | tuple[Dtype, ...]],
) -> tuple[Any, list[Any]]:
    """A value for an operand with aligned rows, and the values that calls can pass, one for each alignment."""
    scale = isinstance(x.dtype, tuple)
    kinds: Dtype | tuple[Dtype, ...]
    if x.dtype is None or isinstance(x.dtype, tuple):
        if x.dtype is None:
            factor, result = (cast(torch.dtype, table[name].dtype) for name in ("a", "out"))
            usual = torch.float32 if 1 in (factor.itemsize, result.itemsize) else result
        else:
            usual = x.dtype[0]
        kinds = dtypes.get(x.name, usual if x.shape else float)
    elif x.name in dtypes:
        raise ValueError(f"the dtype of {x.name} is {x.dtype}, got {dtypes[x.name]}")
    else:
        kinds = x.dtype
    sizes = extents(x.shape)(state.numbers)
    plain: list[Tensor] = []
    values: list[Tensor | float | None] = []
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if kind is float:
            values.append(1.0)
            continue
        dtype = cast(torch.dtype, kind)
        placings = _placings_of_scales(sizes) if scale else _placings(sizes, x.unit, dtype.itemsize, x.name)
        made = [memoryless.tensor(dtype, state.device, sizes, strides, offset) for strides, offset in placings]
        plain.append(made[0])
        values += made[1:] if unaligned is None or x.name in unaligned else made[1:2]
    # What is left out is allocated, contiguous and aligned.
    optional = x.absent is not None or (x in gemm.table.results and not x.read)
    return (None, [None, *values]) if optional else ((plain or values)[0], values)


def _placings(sizes: tuple[int, ...], unit: int | None, size: int, name: str) -> list[_Placing]:
    """Strides and offset, in elements of `size` bytes: for aligned rows, for a contiguous operand, and for all others.

    Two of the others differ in what Triton specialises on, in whether a descriptor can address them, or, for A and B,
    in whether their rows are whole lines of the L2.
    """
    if len(sizes) < 2:
        ones = (1,) * len(sizes)
        return [(ones, 0), (ones, 0), (ones, 1)]
    *front, rows, columns = sizes
    multiplied = name in ("a", "b")
    aligned: list[_Placing] = []
    others: dict[tuple[object, ...], _Placing] = {}
    for inner in (-1, -2) if unit is None else (unit - len(sizes),):
        width, height = (max(columns, 1), rows) if inner == -1 else (max(rows, 1), columns)

        def strides(lead: int, apart: int, inner: int = inner) -> tuple[int, ...]:
            return (*([apart] if front else []), *((lead, 1) if inner == -1 else (1, lead)))

        line = -(-width // 128) * 128
        aligned.append((strides(line, line * height), 0))
        for lead, offset in itertools.product(range(width, width + 256), (0, 1)):
            least = lead * height
            for apart in (least, -(-least // 16) * 16, least | 1, *([0] if multiplied else [])) if front else (0,):
                numbers = (lead, apart) if front else (lead,)
                known = [(number == 1, number % 16 == 0) for number in numbers]
                addressed = not offset and all(number * size % 16 == 0 for number in numbers)
                lines = multiplied and (lead * size % 128 == 0, apart == 0)
                others.setdefault((inner, offset, *known, addressed, lines), (strides(lead, apart), offset))
    return [aligned[0], *others.values()]


def _placings_of_scales(sizes: tuple[int, ...]) -> list[_Placing]:
    """As `_placings`: scales that are contiguous along either dimension, with strides of whole lines or their own."""
    *front, rows, columns = sizes
    lines = [-(-size // 16) * 16 for size in (rows, columns)]

    def strides(*inner: int) -> tuple[int, ...]:
        return (*(max(inner) * max(rows, columns) for _ in front), *inner)

    placed = [strides(lines[1], 1), strides(max(columns, 1), 1), strides(1, lines[0]), strides(1, max(rows, 1))]
    return [(each, 0) for each in placed]
