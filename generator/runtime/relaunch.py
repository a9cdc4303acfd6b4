"""Repeated launches of a compiled kernel, without Triton's analysis of the arguments.

Triton has no documented interface for this. This module uses the driver's launcher of a compiled kernel, and the
function by which a kernel specialises on its arguments, as in Triton 3.6 to 3.9. The launcher of a kernel with
descriptors encodes each descriptor again for every launch, so this module makes another launcher, which takes encoded
tensor maps. On other versions, and on AMD, launches are not repeated (`KNOWN` is False).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
import triton
from triton.runtime import driver
from triton.runtime.autotuner import Heuristics
from triton.tools.tensor_descriptor import TensorDescriptor

#: The programs of a launch along each of up to three axes.
Grid: TypeAlias = tuple[int, ...]

# Whether the launchers of the installed Triton are known.
KNOWN: bool = (3, 6) <= tuple(map(int, triton.__version__.split(".")[:2])) <= (3, 9) and not torch.version.hip

# How many tensor maps of an argument are cached, by address, before the cache is cleared.
_ADDRESSES = 256

_hooks, _compilation = triton.knobs.runtime, triton.knobs.compilation

# Compiled kernel, which Triton keeps too -> what its launches share (`_Form`).
_forms: dict[Any, _Form] = {}


def specialisation(kernel: Any, arguments: dict[str, Any]) -> tuple[object, ...] | None:
    """What Triton would compile `kernel` for, on the current device; None if only a launch by Triton finds that out.

    `kernel` is a function of `triton.jit`, or one that `triton.heuristics` wraps; `arguments` has the values of its
    parameters by name. Launches with equal specialisations run the same compiled kernel.
    """
    if type(kernel) is Heuristics:
        arguments = dict(arguments)
        for name, value in kernel.values.items():
            arguments[name] = value(arguments)
        kernel = kernel.fn
    if type(kernel) is not triton.JITFunction or kernel.pre_run_hooks:
        return None
    if getattr(_hooks, "add_stages_inspection_hook", None) is not None:
        return None
    device = driver.active.get_current_device()
    # Triton's own function: types, and which integers are 1 and which integers and addresses are divisible by 16.
    *_, bind = kernel.device_caches[device]
    _, found, options = bind(**arguments)
    modes = _compilation.instrumentation_mode, getattr(_compilation, "fpsan_homomorphic_casts", None)
    return kernel, device, tuple(found), tuple(options.items()), _hooks.debug, modes


class Entry:
    """Launches a compiled kernel: `put(*head, *arguments)`, or `put(*head, arguments)` if not `spread`.

    `STREAM` is the index of the stream in `head`. Calling the entry launches too, and runs the launch hooks.
    """

    STREAM = 3

    compiled: Any
    launcher: Any
    grid: Grid
    put: Callable[..., object]
    head: list[Any]
    spread: bool

    def __init__(self, compiled: Any, launcher: Any, grid: Grid) -> None:
        self.compiled, self.launcher, self.grid = compiled, launcher, grid
        function, packed, none = compiled.function, compiled.packed_metadata, (None, None, None)
        self.put, self.head, self.spread = launcher, [*grid, None, function, packed, *none], True
        sizes = [getattr(launcher, f"{kind}_scratch_size", None) for kind in ("global", "profile")]
        if sizes == [0, 0] and not getattr(launcher, "gsan_enabled", False):
            # Without scratch memory to allocate, the C function behind the launcher can be called, which is faster.
            modes = launcher.launch_cooperative_grid, launcher.launch_pdl
            self.put, self.spread = launcher.launch, not hasattr(launcher, "kernel_signature")
            self.head = [*grid, None, function, *modes]
            if self.spread:
                self.head += [None, None, packed, *none]
            else:
                self.head += [packed, *none, None, None, launcher.arg_annotations, launcher.kernel_signature]

    def on(self, grid: Grid) -> Entry:
        """The entry for another grid."""
        found = object.__new__(Entry)
        found.__dict__.update(self.__dict__, grid=grid, head=[*grid, *self.head[Entry.STREAM :]])
        return found

    def __call__(self, stream: int, arguments: Sequence[Any]) -> None:
        """Launch the kernel on the stream by its launcher, with the hooks that are installed now."""
        hooks: tuple[Any, Any, Any]
        compiled, hooks = self.compiled, (None, None, None)
        if _hooked():
            metadata = compiled.launch_metadata(self.grid, stream, *arguments)
            hooks = metadata, _hooks.launch_enter_hook, _hooks.launch_exit_hook
        self.launcher(*self.grid, stream, compiled.function, compiled.packed_metadata, *hooks, *arguments)


def _hooked() -> object:
    """Whether a launch hook is installed, as a profiler does: true or false, but not a bool."""
    enter, leave = _hooks.launch_enter_hook, _hooks.launch_exit_hook
    return getattr(enter, "calls", enter) or getattr(leave, "calls", leave)


class _Form:
    """What all launches of a compiled kernel share: how they are entered, and where its arguments go.

    `addresses`, `numbers` and `descriptors` are the parameters of each sort, each with its index among the launcher's
    arguments and a descriptor with what the compiler says of it. `fixed` has room for all arguments, and those that no
    operand changes; the first one behind the head is at `first`. `mapped`: descriptors are passed as tensor maps.
    """

    entry: Entry
    mapped: bool
    fixed: list[Any]
    first: int
    addresses: list[tuple[str, int]]
    numbers: list[tuple[str, int]]
    descriptors: list[tuple[str, int, Any]]

    def __init__(self, compiled: Any, values: Mapping[str, Any]) -> None:
        described = [value for value in values.values() if isinstance(value, TensorDescriptor)]
        metas = getattr(compiled.metadata, "tensordesc_meta", None) or [None] * len(described)
        self.mapped = bool(described) and None not in metas
        launcher = _launcher(compiled, values) if self.mapped else compiled.run
        self.entry = entry = Entry(compiled, launcher, (1, 1, 1))
        self.fixed = entry.head.copy() if entry.spread else []
        self.first = len(self.fixed)
        self.addresses, self.numbers, self.descriptors = [], [], []
        metas = iter(metas)
        for name, value in values.items():
            at = name, len(self.fixed)
            if isinstance(value, TensorDescriptor):
                self.descriptors.append((*at, next(metas)))
                self.fixed += [None] * (1 + 2 * len(value.shape) if self.mapped else 1)
            elif isinstance(value, torch.Tensor):
                self.addresses.append(at)
                self.fixed.append(None)
            else:
                self.numbers.append(at)
                self.fixed.append(value)


def _form(compiled: Any, values: Mapping[str, Any]) -> _Form:
    found = _forms.get(compiled)
    if found is None:
        found = _forms[compiled] = _Form(compiled, values)
    return found


class Launch:
    """One launch of a compiled kernel, repeated with the addresses and numbers of other operands.

    `values` has the values of all parameters, in order. `slots` maps a parameter to the index of its operand in the
    operands of a call. `addresses`, `numbers` and `descriptors` have for each parameter that an operand changes its
    index among the launcher's arguments, and the operand's among those of the call; for a descriptor also the function
    that makes the argument from an address, and the arguments that it has made.
    """

    entry: Entry
    put: Callable[..., object]
    head: list[Any] | None
    first: int
    fixed: list[Any]
    addresses: list[tuple[int, int]]
    numbers: list[tuple[int, int]]
    descriptors: list[tuple[int, int, Callable[[int], Any], dict[int, Any]]]

    def __init__(self, compiled: Any, grid: Grid, values: Mapping[str, Any], slots: Mapping[str, int]) -> None:
        form = _form(compiled, values)
        self.entry = entry = form.entry.on(grid)
        self.put, self.head = entry.put, None if entry.spread else [*entry.head, None]
        self.first, self.fixed = form.first, form.fixed.copy()
        if entry.spread:
            self.fixed[: Entry.STREAM] = grid
        self.addresses = [(place, slots[name]) for name, place in form.addresses]
        self.numbers, self.descriptors = [], []
        for name, place in form.numbers:
            self.fixed[place] = values[name]
            if name in slots:
                self.numbers.append((place, slots[name]))
        for name, place, meta in form.descriptors:
            # The template has no tensor: it would keep the tensor of the first call alive.
            blank = _with_base(values[name], None)
            make = functools.partial(_tensor_map if form.mapped else _described, blank, meta)
            self.descriptors.append((place, slots[name], make, {}))
            if form.mapped:
                numbers = *blank.shape, *blank.strides
                self.fixed[place + 1 : place + 1 + len(numbers)] = numbers

    def __call__(self, stream: int, operands: Sequence[Any]) -> None:
        arguments = self.fixed.copy()
        for place, owner in self.addresses:
            arguments[place] = operands[owner].data_ptr()
        for place, owner in self.numbers:
            arguments[place] = float(operands[owner])
        for place, owner, make, made in self.descriptors:
            address = operands[owner].data_ptr()
            argument = made.get(address)
            if argument is None:
                if len(made) >= _ADDRESSES:
                    made.clear()
                argument = made[address] = make(address)
            arguments[place] = argument
        if _hooked():
            self.entry(stream, arguments[self.first :])
        elif self.head is None:
            arguments[Entry.STREAM] = stream
            self.put(*arguments)
        else:
            head = self.head.copy()
            head[Entry.STREAM], head[-1] = stream, arguments
            self.put(*head)


class _Address:
    """Replaces a descriptor's tensor, which the descriptor would otherwise keep alive."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def _described(descriptor: Any, meta: Any, address: int) -> Any:
    """The descriptor with this address."""
    return _with_base(descriptor, _Address(address))


def _with_base(descriptor: Any, base: _Address | None) -> Any:
    """The descriptor for memory of `base`, whose address has been checked."""
    found = object.__new__(TensorDescriptor)
    found.__dict__.update(descriptor.__dict__, base=base)
    return found


def _tensor_map(descriptor: Any, meta: Any, address: int) -> Any:
    """The encoded tensor map of the descriptor with this address."""
    return _encoder()(_described(descriptor, meta, address), meta)[0]


@functools.cache
def _encoder() -> Callable[[Any, Any], Any]:
    """Triton's function that encodes a descriptor; from 3.8 on it has a third parameter, which it does not read."""
    from triton.backends.nvidia.driver import make_tensordesc_arg as encode

    unread = (None,) * (len(inspect.signature(encode).parameters) - 2)
    return lambda descriptor, meta: encode(descriptor, meta, *unread)


def _launcher(compiled: Any, values: Mapping[str, Any]) -> Any:
    """The driver's launcher for the kernel's signature, with descriptors replaced by what Triton passes for them."""
    kinds = []
    for kind, value in zip(compiled.src.signature.values(), values.values()):
        if isinstance(value, TensorDescriptor):
            kinds += ["nvTmaDesc", *["i32"] * len(value.shape), *["i64"] * len(value.strides)]
        else:
            kinds.append(kind)
    source = SimpleNamespace(constants={}, signature=dict(enumerate(kinds)))
    return driver.active.launcher_cls(source, compiled.metadata._replace(tensordesc_meta=None))
