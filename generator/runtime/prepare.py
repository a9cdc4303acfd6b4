"""What a call of this family's functions would run, and compiling all of it before the first call.

Both ask the functions themselves, with tensors that have shape, strides, device and alignment but no memory.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias, cast

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.errors import OutOfResources, PTXASError
from triton.tools.tensor_descriptor import TensorDescriptor

from . import cached_launch, copies, relaunch
from .contracts import Config, Function, Kernel, Operands, Plan, PlannedLaunch, Table, name_contract

#: What an operand may be: a tensor of a dtype, or, for `float`, a Python number.
Dtype: TypeAlias = torch.dtype | type[float]
#: Strides and an offset, in elements.
Placing: TypeAlias = tuple[tuple[int, ...], int]


def which(
    gemm: Function,
    a: torch.Tensor,
    b: torch.Tensor,
    *offsets: torch.Tensor,
    out: torch.Tensor | None = None,
    **operands: Any,
) -> tuple[str, Config]:
    """The name of the kernel that `gemm(a, b, out=out, **operands)` would run, and its configuration as a dictionary.

    Nothing is compiled or launched. The configuration is empty if it is measured at the call (`select: autotune`), or
    if the result is empty, so that nothing runs. Raises TypeError and ValueError as the call does.
    """
    operands = {**dict.fromkeys(["offsets"][: len(offsets)], *offsets), **operands}
    gemm.check(operands)
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{gemm.__name__}: {name} must be a torch.Tensor, got {type(x).__name__}")
    given: Operands = {"a": a, "b": b, "out": out, **operands}
    with _Memoryless():  # type: ignore[no-untyped-call]
        # The call reads a scalar that is on another device.
        like = {name: _like(x) if getattr(x, "device", None) == a.device else x for name, x in given.items()}
        try:
            _, kernel, row, like = _followed(gemm, like)
            plan = kernel.plan(**like, config=row)
        except (TypeError, ValueError) as error:
            name_contract(error, gemm.__name__)
            raise
    return _name(kernel), dict(_configuration(kernel, plan) or {})


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

    Of groups `B` is their number. They divide M, or K in contracts whose names begin with `gmmk_`.

    `device` is the current GPU by default. In Triton's interpreter nothing is compiled.
    Raises ValueError for wrong sizes or names, and if no kernel accepts any of the sizes.
    """
    if device is None:
        device = "cpu" if triton.knobs.runtime.interpret else f"cuda:{torch.cuda.current_device()}"
    device = torch.device(device)
    found = launches(gemm, N, K, M=M, B=B, device=device, unaligned=unaligned, dtypes=dtypes)
    if not triton.knobs.runtime.interpret:
        compile_all(found, device)
        with torch.cuda.device(device):
            for launch in found:
                launch.load()
    return len({(launch.name, launch.row) for launch in found if launch.row is not None})


def compile_all(found: Sequence[_Launch], device: torch.device) -> None:
    """Compile launches in as many threads as there are processors: Triton's compiler runs without Python's lock.

    Raises the error of a launch that does not compile.
    """

    def compiled(launch: _Launch) -> None:
        with torch.cuda.device(device), launch.tolerant():
            launch.compiled()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in [pool.submit(compiled, launch) for launch in found]:
            done.result()


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
    rows = [*M] if isinstance(M, Iterable) else [M]
    if not rows or not all(isinstance(size, int) and size >= 0 for size in (N, K, B, *rows)):
        sizes_given = f"N={N!r}, K={K!r}, B={B!r}, M={M!r}"
        raise ValueError(
            f"{gemm.__name__}: N, K, B and each M must be integers that are not negative, got {sizes_given}"
        )
    table, derived = gemm.described()
    dtypes = dtypes or {}
    for name in {*(unaligned or ()), *dtypes} - table.keys():
        raise ValueError(f"{gemm.__name__} has no operand {name!r}; its operands are {', '.join(table)}")
    found: dict[tuple[object, ...], _Launch] = {}
    seen: set[tuple[object, ...]] = set()
    refusal: ValueError | None = None
    with _Memoryless():  # type: ignore[no-untyped-call]
        for size in rows:
            # Groups divide what is M, or what is K.
            total = size if gemm.__name__.startswith("gmm_") else K
            sizes = {"G": B, "T": total, "R": total, "1": 1, "B": B, "M": size, "N": N, "2 * N": 2 * N, "K": K}
            sizes |= {extent: value(size, N, K) for extent, value in derived.items()}
            choices = {name: _choices(gemm, table, name, sizes, unaligned, dtypes, device) for name in table}
            plain = {name: value for name, (value, _) in choices.items()}
            specialised: dict[tuple[object, ...], tuple[object, ...]] = {}
            for place, values in enumerate(itertools.product(*(values for _, values in choices.values()))):
                called = dict(zip(choices, values))
                try:
                    copying, kernel, row, given = _followed(gemm, called)
                except ValueError as error:
                    # A call with these operands raises this error.
                    refusal = error
                    continue
                found.update((launch.key, launch) for launch in copying)
                copied = {name: given[name] for name in ("a", "b") if given[name] is not called[name]}
                chosen = _name(kernel), _frozen(row), *copied
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


class _Launch:
    """One launch of a kernel. Launches with equal `key` are one compilation.

    `name` is that of the kernel's module, and `row` the configuration as a tuple of its items; None for a kernel
    without. `repeat` makes of the compiled kernel what later calls launch. `tuned`: the launch is one of those that a
    tuner tries. `constants` are those that are not of a configuration.
    """

    name: str
    row: tuple[tuple[str, int], ...] | None
    key: tuple[object, ...]

    def __init__(
        self,
        name: str,
        row: Config | None,
        kernel: Any,
        grid: Any,
        arguments: dict[str, Any],
        repeat: Callable[[Any], object] | None = None,
        tuned: bool = False,
        constants: tuple[object, ...] | None = None,
    ) -> None:
        self.name, self.row, self.repeat, self.tuned = name, _frozen(row), repeat, tuned
        self.kernel, self.grid, self.arguments = kernel, grid, arguments
        # The values of `triton.heuristics`.
        derived = [value(arguments) for value in getattr(kernel, "values", {}).values()]
        self.key = name, self.row, constants, *map(_specialised, arguments.values()), *derived

    def compiled(self) -> Any:
        """The kernel, compiled now if it is not in Triton's cache."""
        return self.kernel.warmup(grid=self.grid, **self.arguments)

    def tolerant(self) -> suppress:
        """Ignores the errors for which a tuner discards a configuration."""
        return suppress(*((OutOfResources, PTXASError) if self.tuned else ()))

    def load(self) -> None:
        """Load the compiled kernel on the current device and make its launcher, which Triton 3.6 compiles from C."""
        with self.tolerant():
            compiled = self.compiled()
            if relaunch.KNOWN and self.repeat is not None:
                self.repeat(compiled)
            else:
                compiled.run  # noqa: B018


def _followed(gemm: Function, given: Operands) -> tuple[list[_Launch], Kernel, Config | None, Operands]:
    """What a call of `gemm` comes to: launches of copies, the kernel, its configuration and its operands."""
    copying: list[_Launch] = []
    while True:
        a, b, out = given["a"], given["b"], given["out"]
        operands = {name: x for name, x in given.items() if name not in ("a", "b", "out")}
        following = gemm.step(a, b, out, operands)
        if following[0] is None:
            _, kernel, row = following
            return copying, kernel, row, given
        copier, target, _ = following
        launched = copier.launch(a, b)
        if launched is not None:
            grid, arguments = launched
            named = dict(zip(copies._copy_kernel.arg_names, arguments))
            copying.append(_Launch("copies", None, copies._copy_kernel, grid, named))
        a, b = copier.like(a, b)
        given, gemm = {**given, "a": a, "b": b}, target


def _launches(kernel: Kernel, row: Config | None, given: Operands) -> list[_Launch]:
    """The launches of a kernel, or one for each configuration that its tuner tries; none if the result is empty."""
    plan = kernel.plan(**given, config=row)
    if plan.grid is None:
        return []
    if _configuration(kernel, plan) is not None:
        return _of_plan(kernel, plan, given)
    found: list[_Launch] = []
    for row in getattr(kernel, "_offered", lambda device: kernel.CONFIGS)(given["a"].device):
        # The tuner leaves out configurations that the sizes do not allow.
        with suppress(ValueError):
            found += _of_plan(kernel, kernel.plan(**given, config=row), given, tuned=True)
    return found


def _of_plan(kernel: Kernel, plan: Plan, given: Operands, tuned: bool = False) -> list[_Launch]:
    """The launches of a plan: one, or one for each of two kernels."""
    launches = cached_launch.launches_of(plan)

    def repeat(_: Any) -> cached_launch.Call:
        # Either launch may be one compilation with that of another plan, so each repeats both.
        for each in launches:
            each.compiled = each.kernel.warmup(grid=each.grid, **each.arguments)
        return cached_launch.Call(plan, plan.compiled, given)

    again = repeat if given["a"].numel() else None
    found: list[_Launch] = []
    for each in launches:
        row = _row(kernel, each)
        # What a kernel without a configuration is compiled for.
        constants = None if row else tuple(each.arguments.get(x) for x in ("BLOCK_N", "SPLIT"))
        made = _Launch(_name(kernel), row, each.kernel, each.grid, each.arguments, again, tuned, constants)
        found.append(made)
    return found


def _configuration(kernel: Kernel, plan: Plan) -> Config | None:
    """The configuration of a plan; None if its tuner chooses one, or if nothing runs."""
    if plan.grid is None:
        return None
    return next(filter(None, (_row(kernel, each) for each in cached_launch.launches_of(plan))), None)


def _row(kernel: Kernel, launch: PlannedLaunch) -> Config | None:
    """The configuration that a launch passes to its kernel, or None."""
    return next((row for row in kernel.CONFIGS if row.items() <= launch.arguments.items()), None)


def _frozen(row: Config | None) -> tuple[tuple[str, int], ...] | None:
    """The configuration as a tuple of its items."""
    return (*row.items(),) if row else None


def _name(kernel: Kernel) -> str:
    """The name of a kernel's module, without those of its packages."""
    return kernel.__name__.rpartition(".")[2]


def _specialised(x: Any) -> object:
    """What Triton compiles an argument for."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if isinstance(x, TensorDescriptor):
        return x.base.dtype, *x.block_shape
    if isinstance(x, tuple):
        return (*map(_specialised, x),)
    if type(x) is int:
        return x == 1, x % 16 == 0, x.bit_length() > 31
    return type(x) if isinstance(x, float) else x


def _choices(
    gemm: Function,
    table: Table,
    name: str,
    sizes: Mapping[str, int],
    unaligned: Collection[str] | None,
    dtypes: Mapping[str, Dtype | tuple[Dtype, ...]],
    device: torch.device,
) -> tuple[Any, list[Any]]:
    """A value for an operand with aligned rows, and the values that calls can pass, one for each alignment."""
    dtype, shape, unit, optional = table[name]
    scale = isinstance(dtype, tuple)
    kinds: Dtype | tuple[Dtype, ...]
    if dtype is None or isinstance(dtype, tuple):
        usual = _usual_dtype(table) if dtype is None else dtype[0]
        kinds = dtypes.get(name, usual if shape else float)
    elif name in dtypes:
        raise ValueError(f"{gemm.__name__}: the dtype of {name} is {dtype}, got {dtypes[name]}")
    else:
        kinds = dtype
    extents = tuple(sizes[size] for size in shape)
    plain: list[torch.Tensor] = []
    values: list[torch.Tensor | float | None] = []
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if kind is float:
            values.append(1.0)
            continue
        memory = torch.empty(0, dtype=cast(torch.dtype, kind), device=device)
        placings = _placings_of_scales(extents) if scale else _placings(extents, unit, memory.itemsize, name)
        made = [memory.as_strided(extents, strides, offset) for strides, offset in placings]
        plain.append(made[0])
        values += made[1:] if unaligned is None or name in unaligned else made[1:2]
    # What is left out is allocated, contiguous and aligned.
    return (None, [None, *values]) if optional else ((plain or values)[0], values)


def _usual_dtype(table: Table) -> torch.dtype:
    """The dtype of the tensors of an epilogue, where the caller names none."""
    dtypes = [cast(torch.dtype, table[name][0]) for name in ("a", "out")]
    return torch.float32 if 1 in [dtype.itemsize for dtype in dtypes] else dtypes[-1]


def _placings(extents: tuple[int, ...], unit: int | None, size: int, name: str) -> list[Placing]:
    """Strides and offset, in elements of `size` bytes: for aligned rows, for a contiguous operand, and for all others.

    Two of the others differ in what Triton specialises on, in whether a descriptor can address them, or, for A and B,
    in whether their rows are whole lines of the L2.
    """
    if len(extents) < 2:
        ones = (1,) * len(extents)
        return [(ones, 0), (ones, 0), (ones, 1)]
    *front, rows, columns = extents
    multiplied = name in ("a", "b")
    aligned: list[Placing] = []
    others: dict[tuple[object, ...], Placing] = {}
    for inner in (-1, -2) if unit is None else (unit - len(extents),):
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


def _placings_of_scales(extents: tuple[int, ...]) -> list[Placing]:
    """As `_placings`: scales that are contiguous along either dimension, with strides of whole lines or their own."""
    *front, rows, columns = extents
    lines = [-(-size // 16) * 16 for size in (rows, columns)]

    def strides(*inner: int) -> tuple[int, ...]:
        return (*(max(inner) * max(rows, columns) for _ in front), *inner)

    placed = [strides(lines[1], 1), strides(max(columns, 1), 1), strides(1, lines[0]), strides(1, max(rows, 1))]
    return [(each, 0) for each in placed]


def _like(x: Any) -> Any:
    """A tensor like `x`, without its memory."""
    if not isinstance(x, torch.Tensor):
        return x
    # A fake tensor has no address, and stands for an aligned one.
    offset = 0 if isinstance(x, FakeTensor) else x.data_ptr() % 16 // x.element_size()
    return torch.empty(0, dtype=x.dtype, device=x.device).as_strided(x.shape, x.stride(), offset)


class _StandIn(torch.Tensor):
    """A tensor without memory: `meta`, as if it were on `device`."""

    # A kernel's `plan` accepts no other subclass.
    stand_in: bool = True
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    meta: torch.Tensor

    @staticmethod
    def __new__(cls: type[_StandIn], meta: torch.Tensor, device: torch.device | None) -> _StandIn:
        made: _StandIn = torch.Tensor._make_wrapper_subclass(
            cls, meta.shape, meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=device
        )
        made.meta = meta
        return made

    def data_ptr(self) -> int:
        return self.meta.data_ptr()

    @functools.cached_property
    def mT(self) -> torch.Tensor:  # type: ignore[override]
        # Each kernel that is asked whether it accepts the operand transposes it.
        return super().mT

    T = property(lambda self: self.mT)

    def view(self, dtype: torch.dtype) -> _StandIn:  # type: ignore[override]
        # Kernels view nothing in another shape.
        return _StandIn(self.meta.view(dtype), self.device)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        arguments: tuple[Any, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> NoReturn:
        raise RuntimeError(f"{function} needs memory, which a stand-in does not have")


class _Memoryless(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, new tensors have no memory."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its compiler, which takes seconds.
        return False

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        arguments: tuple[Any, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        first, options = arguments[0], dict(options or {})
        device = options.get("device", getattr(first, "device", None))
        if "device" in options:
            options["device"] = "meta"
        elif isinstance(first, _StandIn):
            first = first.meta
        made = function(first, *arguments[1:], **options)
        return _StandIn(made, device) if isinstance(made, torch.Tensor) else made
