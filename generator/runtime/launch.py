"""The functions of this family: each takes what the kernels of its contract take, picks one and launches it.

What was checked, chosen and compiled for a call holds for all of its signature: the shapes, strides, types, devices and
alignment of the operands. Their launches are repeated with the addresses and numbers of their own operands, by Triton's
`CompiledKernel[grid]`, or by `fast` where the family has it.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import copy
import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from triton.tools.tensor_descriptor import TensorDescriptor

from .call import Call, Plan, Planned, Row, State, in_turn
from .launchable import is_plain, require_apart, written

#: The operands of a call besides `a`, `b` and `out`, by name: tensors and numbers, and auxiliary outputs or None.
Operands: TypeAlias = dict[str, Any]
#: What a call returns: C, or C and the auxiliary outputs.
Result: TypeAlias = Tensor | tuple[Tensor, ...]
Config: TypeAlias = Row | int | None


class KernelModule(Protocol):
    """The module of a kernel; `gemm` launches it."""

    __name__: str
    CONFIGS: list[Row]
    CALL: Call
    gemm: Callable[..., Any]


#: What a call does next: it continues as one of a function, with what a copier returns for `a` and `b`; or it launches
#: a kernel with a configuration, with None for one that the kernel chooses.
Step: TypeAlias = tuple[Any, Any, Row | None]

# Operators and recorded calls are made once, by one thread.
registering = threading.RLock()


class _Within(threading.local):
    """Whether this thread is within an operator of `operators`, or a call of one with operands of the class DTensor."""

    operator: bool = False
    sharded: bool = False


within = _Within()

# How many call signatures are kept before all are forgotten.
SIGNATURES = 4096
PLAIN = (Tensor, torch.nn.Parameter)
deterministic = torch.are_deterministic_algorithms_enabled
# The types of operands that torch need not see beside plain tensors.
_NUMBERS = {float, int, type(None)}


def added(name: str) -> Any:
    """A module of the library; None if the family has none of that name."""
    try:
        return importlib.import_module(f".{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{name}":
            raise
        return None


fast = added("fast")


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is open, whose levels count from 0; outside it no tensor has a tangent."""
    return bool(getattr(forward_ad, "_current_level", 0) >= 0)


def special(*operands: Any) -> bool | None:
    """Whether a gradient is recorded for one of these operands; None where torch must see a call with them.

    Such operands are of a subclass, or views of negated memory.
    """
    recording, found = torch.is_grad_enabled(), False
    for x in operands:
        if is_plain(x):
            if x.is_neg():
                return None
            found = found or (recording and x.requires_grad)
        elif type(x) not in _NUMBERS:
            return None
    return found


def kind_of(x: object) -> object:
    """What the signature has of an operand: all but its address or value; RuntimeError for a tensor without memory."""
    return (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16) if isinstance(x, Tensor) else type(x)


def remember(cached: dict[Any, Any], kind: object, found: Any) -> None:
    """Keep what is known of a signature; a full dictionary is cleared first."""
    if len(cached) >= SIGNATURES:
        cached.clear()
    cached[kind] = found


def name_contract(error: Exception, name: str) -> None:
    """Make the text of a TypeError, ValueError or RuntimeError begin with the name of the contract that was called.

    The error gets an attribute `unnamed`, its text without a name. Errors of their subclasses stay as they are.
    """
    if type(error) in (TypeError, ValueError, RuntimeError):
        # It may come from another contract that this one called, and name it.
        marked: Any = error
        marked.unnamed = getattr(error, "unnamed", str(error))
        error.args = (f"{name}: {marked.unnamed}",)


def on_gpu(x: Tensor) -> bool:
    """Whether a tensor is on a GPU, where launches are repeated."""
    return x.is_cuda


def distinct(given: Operands) -> Operands:
    """The operands as objects of their own: one tensor may be two of them, which a launch tells apart by identity."""
    first: dict[int, str] = {}
    return {
        name: x.view(x.dtype) if isinstance(x, Tensor) and first.setdefault(id(x), name) != name else x
        for name, x in given.items()
    }


def started(call: Call, plan: Plan, given: Operands, first: Tensor) -> Repeat | None:
    """Launch a plan on the device of `first`; return what repeats it for other operands, or None if nothing can."""
    if not plan.launches:
        return None
    with in_turn(), torch.cuda.device_of(first):  # type: ignore[no-untyped-call]
        # With K = 0, descriptors do not belong to operands.
        repeatable = on_gpu(first) and first.numel() > 0
        keys = [fast.specialisation(x.kernel, x.arguments) if fast and repeatable else None for x in plan.launches]
        compiled = [None if key is None else fast.compiled.get(key) for key in keys]
        if None not in compiled:
            # Triton would launch what it has compiled for other sizes.
            found = Repeat(call, plan, compiled, given)
            stream, tensors = fast.current()[1](found.index), [*given.values(), *map(plan.known.get, found.names)]
            call.start(plan, lambda: found.run(stream, tensors))
            return found
        compiled = call.start(plan)
        if not repeatable or None in compiled:
            return None
        if fast:
            fast.compiled.update((key, each) for key, each in zip(keys, compiled) if key is not None)
        return Repeat(call, plan, compiled, given)


class Repeat:
    """A plan with its compiled kernels, launched for the operands of other calls of the same signature.

    A call makes a list: the operands in the order of `given`, then a new tensor for each of `made`, which has their
    sizes, strides and types, then the workspace. `results` and others refer to tensors by their places in it; `result`
    is that of the only result, and -1 that of a gradient which is not needed. No tensor of the first call is kept.
    """

    def __init__(self, call: Call, plan: Plan, compiled: Sequence[Any], given: Operands) -> None:
        owned = [*plan.results, *(x.name for x in call.memory)]
        tensors = {name: plan.known[name] for name in owned if plan.known[name] is not None}
        shared = [x.name for x in call.memory if hasattr(x, "cleared")]
        made = [name for name in tensors if given.get(name) is None and name not in shared]
        places = {name: place for place, (name, x) in enumerate(given.items()) if x is not None}
        places.update((name, len(given) + index) for index, name in enumerate([*made, *shared]))
        self.made = [(x.shape, x.stride(), x.dtype) for x in map(tensors.__getitem__, made)]
        self.device = next(iter(tensors.values())).device
        self.index = self.device.index
        # So many bytes and counters.
        sizes = [(tensors[name].numel(), tensors[name].element_size()) for name in shared]
        self.workspace = [count * (1 if place else size) for place, (count, size) in enumerate(sizes)]
        self.workspaces = importlib.import_module(".workspaces", __package__) if shared else None
        self.cleared = [places[name] for name in call.cleared]
        self.reduced = [(places[x.name], x.run, places[x.parts]) for x in call.reduced if x.name in places]
        self.results = [places.get(name, -1) for name in plan.results]
        self.result = self.results[0] if len(self.results) == 1 else None
        # A descriptor, and a tensor that is passed as bytes, have the operand as `base`.
        names = {id(x): name for name, x in plan.known.items() if isinstance(x, (Tensor, float))}
        owners = [{x: names.get(id(getattr(y, "base", y)), "") for x, y in z.arguments.items()} for z in plan.launches]
        self.launches = [again(*each, places) for each in zip(plan.launches, compiled, owners)]
        self.current: Callable[[], int] = torch.cuda.current_device
        self.stream: Callable[[int], int] | None = _stream if shared else None
        if fast:
            self.current, self.stream = fast.current()
        self.names = [*made, *shared]

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
        tensors = self.made_of([a, b, out, *operands.values()])
        if self.result is not None:
            only: Tensor = tensors[self.result]
            return only
        return tuple([tensors[place] for place in self.results])

    def made_of(self, given: list[Any]) -> list[Any]:
        """The list of a call with these operands, whose kernels have been launched."""
        if self.current() != self.index:
            with torch.cuda.device(self.index):
                return self.made_of(given)
        stream = 0 if self.stream is None else self.stream(self.index)
        for size, strides, dtype in self.made:
            given.append(torch.empty_strided(size, strides, dtype=dtype, device=self.device))
        if self.workspaces is not None:
            given += self.workspaces.workspace(self.device, stream, *self.workspace)
        for place in self.cleared:
            given[place].zero_()
        try:
            for launch in self.launches:
                launch(stream, given)
        except BaseException:
            if self.workspaces is not None:
                # The kernel may not have reset its counters.
                self.workspaces.free()
            raise
        for result, reduce, parts in self.reduced:
            reduce(given[result], given[parts])
        return given

    def run(self, stream: int, tensors: list[Any]) -> None:
        """Launch the kernels with such a list."""
        for launch in self.launches:
            launch(stream, tensors)

    def transposed(self) -> Repeat:
        """The same launches, whose only result is seen with its last two dimensions exchanged."""
        found = copy.copy(self)
        (*batch, m, n), (*strides, of_m, of_n), dtype = self.made[0]
        found.made = [(torch.Size((*batch, n, m)), (*strides, of_n, of_m), dtype), *self.made[1:]]
        return found


def _stream(index: int) -> int:
    """The handle of a GPU's current stream."""
    return torch.cuda.current_stream(index).cuda_stream


def again(
    plan: Planned, compiled: Any, owners: Mapping[str, str], places: Mapping[str, int]
) -> Callable[[int, list[Any]], None]:
    """What repeats a launch on a stream, for a call's list whose tensors and numbers, of arguments, are at `places`."""
    grid: Any = plan.grid
    if callable(grid):
        # The grid of an autotuned kernel depends on the configuration that it chose for these sizes.
        grid = grid({**plan.arguments, **plan.kernel.best_config.all_kwargs()})
    grid = (*grid, 1, 1)[:3]
    # `triton.heuristics` adds only constants, which a launch does not read.
    values = {name: plan.arguments.get(name) for name in plan.kernel.arg_names}
    slots = {name: places[owner] for name, owner in owners.items() if owner in places}
    launch: Callable[[int, list[Any]], None] | None = fast and fast.launch(compiled, grid, values, slots)
    return launch or _documented(compiled, grid, values, slots)


def _documented(
    compiled: Any, grid: tuple[int, ...], values: Mapping[str, Any], slots: Mapping[str, int]
) -> Callable[[int, list[Any]], None]:
    """A repeated launch by what Triton documents: its descriptors are made and encoded again."""
    run = compiled[grid]
    fixed = [None if name in slots else value for name, value in values.items()]
    changed: list[tuple[int, int, Any]] = []
    for index, (name, x) in enumerate(values.items()):
        if name in slots:
            make: Any = float if isinstance(x, float) else None
            if isinstance(x, TensorDescriptor):
                make = functools.partial(_described, {**vars(x), "base": None})
            changed.append((index, slots[name], make))

    def launch(_: int, tensors: list[Any]) -> None:
        arguments = fixed.copy()
        for index, place, make in changed:
            arguments[index] = tensors[place] if make is None else make(tensors[place])
        run(*arguments)

    return launch


def _copied(copier: Any, function: Function, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
    """A call of a function with copies of `a` and `b`."""
    return function(*copier(a, b), out=out, **operands)


def _described(fields: Mapping[str, Any], base: Tensor) -> Any:
    """A descriptor with other memory, which needs no check."""
    made: Any = object.__new__(TensorDescriptor)
    made.__dict__.update(fields, base=base)
    return made


class Function:
    """The function of a contract: it takes what the `gemm` of each of its kernels takes, and returns what that returns.

    `kernels` are the names of modules that `load` imports, in the order in which they are tried. `choice`, where the
    family has one, says which is taken otherwise, and with which configuration. `nominal` returns operands that do not
    have the call's M, by which a kernel is chosen (`invariant`).
    """

    def __init__(
        self,
        name: str,
        kernels: Sequence[str],
        load: Callable[[str], KernelModule],
        *,
        choice: Any = None,
        nominal: Any = None,
    ) -> None:
        self.name = self.__name__ = self.__qualname__ = name
        # Where pickle looks for it.
        self.__module__ = __name__.rsplit(".", 2)[0]
        first = load(kernels[0])
        self.__signature__, self.__doc__ = inspect.signature(first.gemm), first.gemm.__doc__
        self.kernels, self.load, self.choice, self.nominal = tuple(kernels), load, choice, nominal
        self.table: Call = first.CALL
        more, self.outputs = self.table.operands[2:], [x.name for x in self.table.results[1:]]
        self.beside = [x.name for x in more]
        self.needed = {x.name for x in more if x.absent is None}
        self.known = {*self.beside, *self.outputs}
        #: How many operands have places: `a`, `b`, and the `offsets` of groups.
        self.places = 2 + ("offsets" in self.known)
        self.cached: dict[object, Callable[..., Result]] = {}
        # Triton's interpreter may multiply the bits of bf16.
        self.interpreted_bf16 = added("interpreted_bf16")

    def __reduce__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.name}>"

    def __call__(
        self, a: Tensor, b: Tensor, *more: Any, out: Tensor | None = None, config: Config = None, **operands: Any
    ) -> Result:
        if more:
            operands = self.by_place(more, operands)
        if not self.hidden(a, b):
            return self.seen(a, b, out, config, operands)
        needs = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
        if operands or out is not None:
            kind = special(out, *operands.values())
            if kind is None:
                return self.seen(a, b, out, config, operands)
            needs = needs or kind
        if needs:
            return self.record(a, b, out, config, operands)
        found = self.direct(a, b, out, config, operands)
        if out is not None or (operands and self.outputs):
            written(out, *map(operands.get, self.outputs))
        return found

    def by_place(self, more: Sequence[Any], operands: Operands) -> Operands:
        """The operands with those behind `b` that have a place; raises TypeError for others, and for a second value."""
        if "offsets" in operands:
            raise TypeError(f"{self.name}() got multiple values for argument 'offsets'")
        if len(more) > self.places - 2:
            first = "a, b and offsets" if self.places > 2 else "a and b"
            names = "=, ".join([x for x in (*self.beside, *self.outputs, "out") if x != "offsets"])
            raise TypeError(f"{self.name}() takes {first} without a keyword, all others with one: {names}=")
        return {"offsets": more[0], **operands}

    def check(self, operands: Operands) -> None:
        """Raise TypeError unless the keywords are those of the contract."""
        # Torch's compiler traces no differences of sets.
        missing = [x for x in self.needed if x not in operands]
        unexpected = [x for x in operands if x not in self.known]
        if missing or unexpected:
            wrong = {"missing": missing, "unexpected": unexpected}
            listed = [f"{what} {', '.join(sorted(names))}" for what, names in wrong.items() if names]
            raise TypeError(f"{self.name}() got wrong keyword arguments: {'; '.join(listed)}")

    def hidden(self, a: Tensor, b: Tensor) -> bool:
        """Whether torch need not see a call with these tensors."""
        return not (
            torch.compiler.is_compiling()
            or type(a) not in PLAIN
            or type(b) not in PLAIN
            or in_forward_mode()
            # A view of negated memory, as `z.conj().imag` is, which torch resolves for its operators.
            or a.is_neg()
            or b.is_neg()
        )

    def seen(self, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands) -> Result:
        """A call that torch must see, or one with a wrong operand: the kernel refuses it, or makes fake results."""
        self.check(operands)
        try:
            call: Callable[..., Result] = self.table
            if torch.compiler.is_compiling():
                # Torch does not trace the launch.
                call = torch.compiler.disable(self)  # type: ignore[no-untyped-call]
            return call(a=a, b=b, **operands, out=out, config=config)
        except (TypeError, ValueError, RuntimeError) as error:
            name_contract(error, self.name)
            raise

    def record(self, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands) -> Result:
        """A call of which a gradient would have to be recorded."""
        return self.seen(a, b, out, config, operands)

    def direct(self, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands) -> Result:
        """A call that torch need not see."""
        kind: object
        try:
            # As `kind` says it: this is part of every call.
            where = a.device, b.device, a.data_ptr() % 16, b.data_ptr() % 16, deterministic()
            kind = a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, where
            if out is not None or operands:
                kind = kind, kind_of(out), *operands, *map(kind_of, operands.values())
            call = self.cached.get(kind) if config is None else None
        except RuntimeError:
            # A tensor without memory, as in a transform of torch.func.
            return self.seen(a, b, out, config, operands)
        except (AttributeError, TypeError):
            # Not a tensor: the kernel reports what is wrong.
            kind = call = None
        if call is None:
            self.check(operands)
        try:
            if call is not None:
                if out is not None or (operands and self.outputs):
                    results = {"out": out, **{x: operands.get(x) for x in self.outputs}}
                    require_apart(results, {"a": a, "b": b, **{x: operands.get(x) for x in self.beside}})
                return call(a, b, out, operands)
            return self.first(kind if config is None else None, a, b, out, config, operands)
        except (TypeError, ValueError) as error:
            name_contract(error, self.name)
            raise

    def kind(self, a: Tensor, b: Tensor) -> tuple[object, ...]:
        """The signature of a call with `a` and `b` alone."""
        where = a.device, b.device, a.data_ptr() % 16, b.data_ptr() % 16, deterministic()
        return a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, where

    def first(
        self, kind: object, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands
    ) -> Result:
        """The first call of a signature, whose launches are kept as `kind`, or a call with a configuration."""
        given = {"a": a, "b": b, "out": out, **operands}
        if getattr(a, "is_meta", False):
            return self.table(config, **given)  # type: ignore[no-any-return]
        if self.interpreted_bf16 is not None:
            self.interpreted_bf16.check(a, b)
        if kind is None:
            taking, reasons = self.accepting(given)
            if not taking:
                raise ValueError("\n".join(reasons))
            return taking[0].CALL(config, **given)  # type: ignore[no-any-return]
        (copier, target, row), state = self.planned(a, b, out, operands)
        if copier is not None:
            # Later calls of the signature are those of another function, with copies.
            copying = functools.partial(_copied, copier, target)
            remember(self.cached, kind, copying)
            return copying(a, b, out, operands)
        if callable(target):
            # A product of torch, which follows the stream and the device itself.
            remember(self.cached, kind, target)
            return target(a, b, out, operands)  # type: ignore[no-any-return]
        if not on_gpu(a):
            return target.gemm(a, b, **operands, out=out, config=row)  # type: ignore[no-any-return]
        call, given = target.CALL, distinct(given)
        state = call.state(given) if state is None else replace(state, given=given)
        plan = call.plan_of(state, row, accepted=self.nominal is None)
        repeat = started(call, plan, given, a)
        if repeat is not None:
            remember(self.cached, kind, repeat)
        return plan.result  # type: ignore[no-any-return]

    def modules(self) -> tuple[KernelModule, ...]:
        """The modules of all kernels."""
        return tuple([self.load(kernel) for kernel in self.kernels])

    def accepting(self, given: Operands) -> tuple[list[KernelModule], list[str]]:
        """The kernels that accept the operands, in order, and what is said where there is none.

        It is every kernel for wrong operands, of which the kernel's call reports what is wrong.
        """
        if self.nominal is not None:
            given = self.nominal(self.table, given)
        try:
            state = self.table.state(given)
        except (TypeError, ValueError):
            return [*self.modules()], []
        found = [(kernel, kernel.CALL.reason(state)) for kernel in self.modules()]
        reasons = [f"{name}: {why}" for name, (_, why) in zip(self.kernels, found)]
        return [kernel for kernel, why in found if why is None], ["no kernel accepts the operands:", *reasons]

    def planned(self, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> tuple[Step, State | None]:
        """What a call does next, and its sizes where they were found on the way; ValueError if no kernel accepts it."""
        if self.choice is not None:
            return self.choice(self, a, b, out, operands)  # type: ignore[no-any-return]
        taking, reasons = self.accepting({"a": a, "b": b, "out": out, **operands})
        if not taking:
            raise ValueError("\n".join(reasons))
        return (None, taking[0], None), None

    def step(self, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Step:
        """What a call with tensors does next; ValueError if no kernel accepts the operands."""
        return self.planned(a, b, out, operands)[0]

    def followed(self, given: Operands) -> tuple[list[Any], KernelModule, Row | None, Operands]:
        """What a call comes to: launches of copies, the kernel, its configuration and its operands."""
        copying: list[Any] = []
        function = self
        while True:
            a, b, out = given["a"], given["b"], given["out"]
            operands = {name: x for name, x in given.items() if name not in ("a", "b", "out")}
            copier, target, row = function.step(a, b, out, operands)
            if copier is None:
                return copying, target, row, given
            copying += filter(None, [copier.launch(a, b)])
            a, b = copier.like(a, b)
            given, function = {**given, "a": a, "b": b}, target

    def which(self, a: Tensor, b: Tensor, *more: Any, out: Tensor | None = None, **operands: Any) -> tuple[str, Row]:
        """The name of the kernel that such a call would run, and its configuration; nothing is launched.

        The configuration is empty if it is measured at the call (`select: autotune`), or if the result is empty. The
        name is "aten" if torch's own product runs.
        """
        operands = self.by_place(more, operands) if more else operands
        self.check(operands)
        try:
            self.table.checked({"a": a, "b": b, "out": out, **operands})
            _, kernel, row, given = self.followed({"a": a, "b": b, "out": out, **operands})
            if callable(kernel):
                return "aten", {}
            call, state = kernel.CALL, kernel.CALL.checked(given)
            empty = 0 in [state.numbers[size] for size in call.outer]
            row = {} if empty or (row is None and call.tunes) else call.row(row, state)
        except (TypeError, ValueError) as error:
            name_contract(error, self.name)
            raise
        return kernel.__name__.rpartition(".")[2], dict(row)
