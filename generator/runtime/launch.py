"""The functions of this family: each takes what the kernels of its contract take, picks one and launches it.

The first call of a signature (shapes, strides, types, devices and alignment of the operands) is checked, and what it
launches is compiled. Later ones launch the same compiled kernels with the same grid, with the addresses and numbers of
their own operands: by Triton's `CompiledKernel[grid]`, or by `fast` where the family has it. Before a CUDA graph is
captured, call each signature once.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import importlib
import importlib.util
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from triton.tools.tensor_descriptor import TensorDescriptor

from .call import Call, Planned, Row, State, in_turn
from .launchable import require_apart, written

#: The operands of a call besides `a`, `b` and `out`, by name: tensors and numbers, and auxiliary outputs or None.
Operands: TypeAlias = dict[str, Any]
#: What a call returns: C, or C and the auxiliary outputs.
Result: TypeAlias = Tensor | tuple[Tensor, ...]
Config: TypeAlias = Row | int | None
#: The module of a kernel, which has CONFIGS, CALL and `gemm`.
KernelModule: TypeAlias = ModuleType
#: What a call does next: it continues as one of a function, with what a copier returns for `a` and `b`; or it launches
#: a kernel with a configuration, None for the kernel's own choice. The last is the state of the call, if it is known.
Step: TypeAlias = tuple[Any, Any, Row | None, State | None]

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


def added(name: str) -> Any:
    """A module of the library; None if the family has none of that name."""
    full = f"{__package__}.{name}"
    return importlib.import_module(full) if importlib.util.find_spec(full) else None


fast = added("fast")


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is open, whose levels count from 0; outside it no tensor has a tangent."""
    return bool(getattr(forward_ad, "_current_level", 0) >= 0)


def signature_of(*operands: Any) -> tuple[object, ...] | None:
    """What launches depend on: all of the operands but their addresses, and the values of numbers.

    None where torch must see a call with them: tensors of a subclass, without memory, or views of negated memory, as
    `z.conj().imag` is; and for what is neither a tensor nor a number.
    """
    signature: list[object] = [deterministic()]
    try:
        for x in operands:
            if type(x) in PLAIN:
                if x.is_neg():
                    return None
                signature.append((x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16))
            elif x is None or type(x) is float or type(x) is int:
                signature.append(type(x))
            else:
                return None
    except RuntimeError:
        # A transform of torch.func has tensors that look plain and have no memory.
        return None
    return tuple(signature)


def recording(*operands: Any) -> bool:
    """Whether a gradient is recorded for one of the operands."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in operands)


def remember(cached: dict[Any, Any], known: object, value: Any) -> None:
    """Keep what is found for a signature; a full dictionary is cleared first."""
    if len(cached) >= SIGNATURES:
        cached.clear()
    cached[known] = value


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


def started(call: Call, plan: State, given: Operands, first: Tensor) -> Repeat | None:
    """Launch a planned call on the device of `first`; return what repeats it for other operands, if that can be."""
    if not plan.launches:
        return None
    with in_turn(), torch.cuda.device_of(first):  # type: ignore[no-untyped-call]
        # With K = 0, descriptors do not belong to operands.
        repeatable = on_gpu(first) and first.numel() > 0
        keys = [fast.specialisation(x.kernel, x.arguments) if fast and repeatable else None for x in plan.launches]
        compiled = [None if key is None else fast.compiled.get(key) for key in keys]
        repeat = None if None in compiled else Repeat(call, plan, compiled, given)
        if repeat is not None and None not in repeat.steps:
            # Triton would launch what it has compiled for other sizes.
            repeat.run(repeat.stream(repeat.index), [*given.values(), *map(plan.known.get, repeat.names)])
            return repeat
        compiled = call.start(plan)
        if not repeatable or None in compiled:
            return None
        if fast:
            fast.compiled.update((key, each) for key, each in zip(keys, compiled) if key is not None)
        repeat = Repeat(call, plan, compiled, given)
        return None if None in repeat.steps else repeat


class Repeat:
    """A planned call with its compiled kernels, launched for the operands of others of the same signature.

    A call makes a list: the operands in the order of `given`, then a new tensor for each of `allocated`, with their
    sizes, strides and types, then the workspace. `results` and others refer to tensors by their places in it; `result`
    is that of the only result, and -1 that of a gradient which is not needed. No tensor of the first call is kept.
    """

    def __init__(self, call: Call, plan: State, compiled: Sequence[Any], given: Operands) -> None:
        known, shared = plan.known, [x.name for x in call.memory if hasattr(x, "cleared")]
        made = [name for name in (*plan.results, *(x.name for x in call.memory)) if given.get(name) is None]
        new = [name for name in made if known[name] is not None and name not in shared]
        self.names = [*new, *shared]
        places = {name: place for place, (name, x) in enumerate(given.items()) if x is not None}
        places.update((name, len(given) + index) for index, name in enumerate(self.names))
        self.allocated = [(x.shape, x.stride(), x.dtype) for x in map(known.__getitem__, new)]
        self.device, self.index = plan.device, plan.device.index
        # So many bytes and counters.
        self.workspace = [known[x].numel() * (known[x].element_size() if x == shared[0] else 1) for x in shared]
        self.workspaces = importlib.import_module(".workspaces", __package__) if shared else None
        self.results = [places.get(name, -1) for name in plan.results]
        self.result = self.results[0] if len(self.results) == 1 else None
        names = {id(x): name for name, x in known.items() if isinstance(x, (Tensor, float))}
        self.steps: list[Any] = [
            *(lambda _, tensors, at=places[name]: tensors[at].zero_() for name in call.cleared),
            *(again(each, kernel, names, places) for each, kernel in zip(plan.launches, compiled)),
            *(
                lambda _, tensors, run=x.run, to=places[x.name], parts=places[x.parts]: run(tensors[to], tensors[parts])
                for x in call.reduced
                if x.name in places
            ),
        ]
        self.current: Callable[[], int] = torch.cuda.current_device
        self.stream: Callable[[int], int] = lambda index: torch.cuda.current_stream(index).cuda_stream if shared else 0
        if fast:
            self.current, self.stream = fast.current()

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
        tensors = self.made_of([a, b, out, *operands.values()])
        if self.result is not None:
            only: Tensor = tensors[self.result]
            return only
        return tuple([tensors[index] for index in self.results])

    def made_of(self, given: list[Any]) -> list[Any]:
        """The list of a call with these operands, whose kernels have been launched."""
        if self.current() != self.index:
            with torch.cuda.device(self.index):
                return self.made_of(given)
        stream = self.stream(self.index)
        for size, strides, dtype in self.allocated:
            given.append(torch.empty_strided(size, strides, dtype=dtype, device=self.device))
        if self.workspaces is not None:
            given += self.workspaces.workspace(self.device, stream, *self.workspace)
        self.run(stream, given)
        return given

    def run(self, stream: int, tensors: list[Any]) -> None:
        """Fill the results of such a list, on the current stream."""
        try:
            for step in self.steps:
                step(stream, tensors)
        except BaseException:
            if self.workspaces is not None:
                # The kernel may not have reset its counters.
                self.workspaces.free()
            raise


def again(
    plan: Planned, compiled: Any, names: Mapping[int, str], places: Mapping[str, int]
) -> Callable[[int, list[Any]], None] | None:
    """What repeats a launch on a stream, for a list of tensors and numbers that are at `places`.

    `names` has the names of the first call's by identity; a descriptor, and a tensor that is passed as bytes, have the
    operand as `base`. None if an argument is another tensor or number: it could not be found in another call.
    """
    grid: Any = plan.grid
    if callable(grid):
        # The grid of an autotuned kernel depends on the configuration that it chose for these sizes.
        grid = grid({**plan.arguments, **plan.kernel.best_config.all_kwargs()})
    grid = (*grid, 1, 1)[:3]
    # What `triton.heuristics` adds is compiled in: a launch reads None in its place.
    values = {name: plan.arguments.get(name) for name in plan.kernel.arg_names}
    owners = {name: names.get(id(getattr(x, "base", x)), "") for name, x in values.items()}
    slots = {name: (places[owner], _made_as(values[name])) for name, owner in owners.items() if owner in places}
    if any(isinstance(getattr(x, "base", x), (Tensor, float)) and name not in slots for name, x in values.items()):
        return None
    known: Callable[[int, list[Any]], None] | None = fast and fast.launch(compiled, grid, values, slots)
    if known is not None:
        return known
    # By what Triton documents: descriptors are made and encoded again.
    run = compiled[grid]
    fixed = [None if name in slots else value for name, value in values.items()]
    changed = [(index, *slots[name]) for index, name in enumerate(values) if name in slots]

    def launch(_: int, tensors: list[Any]) -> None:
        arguments = fixed.copy()
        for index, operand, make in changed:
            arguments[index] = make(tensors[operand])
        run(*arguments)

    return launch


def _made_as(x: Any) -> Callable[[Any], Any]:
    """What makes an argument like `x` of a tensor or a number; it keeps no tensor."""
    if isinstance(x, TensorDescriptor):
        fields = {**vars(x), "base": None}

        def described(base: Any) -> Any:
            # The constructor's checks take some microseconds, and `x` has passed them.
            descriptor: Any = object.__new__(TensorDescriptor)
            descriptor.__dict__.update(fields, base=base)
            return descriptor

        return described
    return float if isinstance(x, float) else lambda y: y


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
        values = a, b, out, *operands.values()
        known = None if self.watched() else signature_of(*values)
        if known is None:
            return self.seen(a, b, out, config, operands)
        if recording(*values):
            return self.record(a, b, out, config, operands, known)
        return self.direct(a, b, out, config, operands, known)

    def by_place(self, more: Sequence[Any], operands: Operands) -> Operands:
        """The operands with those behind `b` that have a place; raises TypeError for others, and for a second value."""
        if len(more) != self.places - 2 or "offsets" in operands:
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

    def watched(self) -> bool:
        """Whether torch must see all calls now."""
        return torch.compiler.is_compiling() or in_forward_mode()

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

    def record(
        self, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands, known: tuple[object, ...]
    ) -> Result:
        """A call, with its signature, of which a gradient would have to be recorded."""
        return self.seen(a, b, out, config, operands)

    def direct(
        self,
        a: Tensor,
        b: Tensor,
        out: Tensor | None,
        config: Config,
        operands: Operands,
        known: tuple[object, ...] | None = None,
    ) -> Result:
        """A call that torch need not see; `known` is its signature, if that has been asked."""
        known = known or signature_of(a, b, out, *operands.values())
        call_signature = None if known is None or config is not None else (*known, *operands)
        call, filled = self.cached.get(call_signature), out is not None or (operands and self.outputs)
        if call is None:
            self.check(operands)
        try:
            if call is None:
                result = self.first(call_signature, a, b, out, config, operands)
            else:
                if filled:
                    results = {"out": out, **{x: operands.get(x) for x in self.outputs}}
                    require_apart(results, {"a": a, "b": b, **{x: operands.get(x) for x in self.beside}})
                result = call(a, b, out, operands)
        except (TypeError, ValueError) as error:
            name_contract(error, self.name)
            raise
        if filled:
            written(out, *map(operands.get, self.outputs))
        return result

    def first(
        self, call_signature: object, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands
    ) -> Result:
        """The first call of `call_signature`, whose launches are cached, or a call with a configuration."""
        given = {"a": a, "b": b, "out": out, **operands}
        if getattr(a, "is_meta", False):
            return self.table(config, **given)  # type: ignore[no-any-return]
        if self.interpreted_bf16 is not None:
            self.interpreted_bf16.check(a, b)
        if call_signature is None:
            return self.accepting(given)[0].CALL(config, **given)  # type: ignore[no-any-return]
        copier, target, row, state = self.step(given)
        if callable(target):
            # A product of torch, which follows the stream and the device itself; or another function, with copies.
            def copied(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
                return target(*copier(a, b), out=out, **operands)  # type: ignore[no-any-return]

            call = target if copier is None else copied
            remember(self.cached, call_signature, call)
            return call(a, b, out, operands)
        if not on_gpu(a):
            return target.gemm(a, b, **operands, out=out, config=row)  # type: ignore[no-any-return]
        call, given = target.CALL, distinct(given)
        state = call.state(given) if state is None else replace(state, given=given)
        plan = call.plan_of(state, row, accepted=self.nominal is None)
        repeat = started(call, plan, given, a)
        if repeat is not None:
            remember(self.cached, call_signature, repeat)
        return plan.result  # type: ignore[no-any-return]

    def modules(self) -> tuple[KernelModule, ...]:
        """The modules of all kernels."""
        return tuple([self.load(kernel) for kernel in self.kernels])

    def state(self, given: Operands) -> State:
        """The call by which kernels are chosen; raises TypeError or ValueError for operands that do not agree."""
        return self.table.state(given if self.nominal is None else self.nominal(self.table, given))

    def accepting(self, given: Operands, *, some: bool = True) -> list[KernelModule]:
        """The kernels that accept the operands, in order; ValueError if there must be `some` and is none.

        It is every kernel for wrong operands, of which the kernel's call reports what is wrong.
        """
        try:
            state = self.state(given)
        except (TypeError, ValueError):
            return [*self.modules()]
        reasons = {kernel: kernel.CALL.reason(state) for kernel in self.modules()}
        accepting = [kernel for kernel, why in reasons.items() if why is None]
        if some and not accepting:
            listed = [f"{name}: {why}" for name, why in zip(self.kernels, reasons.values())]
            raise ValueError("\n".join(["no kernel accepts the operands:", *listed]))
        return accepting

    def step(self, given: Operands) -> Step:
        """What a call with tensors does next; ValueError if no kernel accepts the operands."""
        if self.choice is not None:
            return self.choice(self, given)  # type: ignore[no-any-return]
        return None, self.accepting(given)[0], None, None

    def followed(self, given: Operands) -> tuple[list[Any], KernelModule, Row | None, Operands]:
        """What a call comes to: launches of copies, the kernel, its configuration and its operands."""
        copying: list[Any] = []
        copier, target, row, _ = self.step(given)
        while copier is not None:
            copying += filter(None, [copier.launch(given["a"], given["b"])])
            given = {**given, **dict(zip("ab", copier.like(given["a"], given["b"])))}
            copier, target, row, _ = target.step(given)
        return copying, target, row, given

    def which(self, a: Tensor, b: Tensor, *more: Any, out: Tensor | None = None, **operands: Any) -> tuple[str, Row]:
        """The name of the kernel that such a call would run, and its configuration; nothing is launched.

        The configuration is empty if it is measured at the call (`select: autotune`), or if the result is empty. The
        name is "aten" if torch's own product runs.
        """
        operands = self.by_place(more, operands) if more else operands
        self.check(operands)
        try:
            given = {"a": a, "b": b, "out": out, **operands}
            self.table.checked(given)
            _, kernel, row, given = self.followed(given)
            if callable(kernel):
                return "aten", {}
            call, state = kernel.CALL, kernel.CALL.checked(given)
            empty = 0 in [state.numbers[size] for size in call.outer]
            row = {} if empty or (row is None and call.tunes) else call.row(row, state)
        except (TypeError, ValueError) as error:
            name_contract(error, self.name)
            raise
        return kernel.__name__.rpartition(".")[2], dict(row)
