"""Repeated launches of a compiled kernel by what Triton does not document, as it is in Triton 3.6 to 3.9.

The driver's launcher of a compiled kernel is called at once, and tensor maps are cached by address. On other versions,
on AMD, with GEMM_RELAUNCH=0 in the environment, and where a name is missing, `launch` returns None: then launches are
repeated as Triton documents it.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
import triton
from triton import knobs
from triton.runtime.autotuner import Heuristics
from triton.tools.tensor_descriptor import TensorDescriptor

#: The place of an argument's tensor or number in the list of a call, and what makes the argument of it.
Slot: TypeAlias = tuple[int, Callable[[Any], Any]]
KNOWN: bool = (
    os.environ.get("GEMM_RELAUNCH", "1") != "0"
    and (3, 6) <= tuple(map(int, triton.__version__.split(".")[:2])) <= (3, 9)
    and not torch.version.hip
)
# How many tensor maps of an argument are cached before the cache is cleared. They hold addresses, and no tensors.
_ADDRESSES = 256
_hooks = knobs.runtime
# Compiled kernel, which Triton keeps too -> how it is entered.
_entries: dict[Any, Entry] = {}
# What Triton compiles a kernel for -> the compiled kernel, after its first launch.
compiled: dict[tuple[object, ...], Any] = {}


def specialisation(kernel: Any, arguments: dict[str, Any]) -> tuple[object, ...] | None:
    """What Triton would compile `kernel` for, on the current device; None if only a launch by Triton finds that out.

    `kernel` is a function of `triton.jit`, or one that `triton.heuristics` wraps; `arguments` has the values of its
    parameters by name. Launches with equal specialisations run the same compiled kernel.
    """
    own = kernel.fn if type(kernel) is Heuristics else kernel
    staged = getattr(_hooks, "add_stages_inspection_hook", None) is not None
    if not KNOWN or staged or type(own) is not triton.JITFunction or getattr(own, "pre_run_hooks", True):
        return None
    if kernel is not own:
        arguments = dict(arguments)
        for name, value in kernel.values.items():
            arguments[name] = value(arguments)
    device = current()[0]()
    modes = [getattr(knobs.compilation, x, None) for x in ("instrumentation_mode", "fpsan_homomorphic_casts")]
    # Triton's own function: types, and which integers are 1 and which integers and addresses are divisible by 16.
    try:
        *_, bind = own.device_caches[device]
        _, specialised, options = bind(**arguments)
    except AttributeError:
        return None
    return own, device, tuple(specialised), tuple(options.items()), getattr(_hooks, "debug", None), *modes


def _driver() -> Any:
    return triton.runtime.driver.active


def current() -> tuple[Callable[[], int], Callable[[int], int]]:
    """What returns the index of the current device, and the handle of a device's current stream."""
    driver = _driver()
    return driver.get_current_device, driver.get_current_stream


def launch(
    compiled: Any, grid: tuple[int, ...], values: Mapping[str, Any], slots: Mapping[str, Slot]
) -> Callable[[int, Sequence[Any]], None] | None:
    """What launches a compiled kernel on a stream with the tensors and numbers of a call; None if that is not known.

    `values` has the values of all parameters, in order, and `slots` says which of them a call changes.
    """
    if not KNOWN:
        return None
    try:
        return RepeatedLaunch(compiled, grid, values, slots)
    except (AttributeError, ImportError):
        return None


class Entry:
    """Launches a compiled kernel: `put(*grid, *head, *arguments)`, or `put(*grid, *head, arguments)` if not `spread`.

    `head` begins with the stream, which is at `STREAM` then. Calling the entry launches too, and runs the launch hooks.
    """

    STREAM = 3

    def __init__(self, compiled: Any, launcher: Any) -> None:
        self.compiled, self.launcher = compiled, launcher
        function, packed, none = compiled.function, compiled.packed_metadata, (None, None, None)
        self.put: Callable[..., object] = launcher
        self.head: list[Any] = [None, function, packed, *none]
        self.spread = True
        sizes = [getattr(launcher, f"{kind}_scratch_size", None) for kind in ("global", "profile")]
        if sizes == [0, 0] and not getattr(launcher, "gsan_enabled", False):
            # Without scratch memory to allocate, the C function behind the launcher can be called, which is faster.
            self.put, self.spread = launcher.launch, not hasattr(launcher, "kernel_signature")
            self.head = [None, function, launcher.launch_cooperative_grid, launcher.launch_pdl]
            if self.spread:
                self.head += [None, None, packed, *none]
            else:
                self.head += [packed, *none, None, None, launcher.arg_annotations, launcher.kernel_signature]

    def __call__(self, stream: int, arguments: Sequence[Any], grid: tuple[int, ...]) -> None:
        """Launch the kernel on the stream by its launcher, with the hooks that are installed now."""
        compiled, hooks = self.compiled, (None, None, None)
        if hooked():
            metadata = compiled.launch_metadata(grid, stream, *arguments)
            hooks = metadata, _hooks.launch_enter_hook, _hooks.launch_exit_hook
        self.launcher(*grid, stream, compiled.function, compiled.packed_metadata, *hooks, *arguments)


def hooked() -> object:
    """Whether a launch hook is installed, as a profiler does: true or false, but not a bool."""
    enter, leave = _hooks.launch_enter_hook, _hooks.launch_exit_hook
    return getattr(enter, "calls", enter) or getattr(leave, "calls", leave)


class RepeatedLaunch:
    """One launch of a compiled kernel, repeated with the addresses and numbers of other operands.

    `fixed` has room for all arguments; the first one behind the head is at `first`. `addresses`, `numbers` and
    `descriptors` have for each parameter that an operand changes its index there, and the operand's place in the call's
    list; for a descriptor also what makes the argument of an address, and the arguments that it has made.
    """

    def __init__(
        self, compiled: Any, grid: tuple[int, ...], values: Mapping[str, Any], slots: Mapping[str, Slot]
    ) -> None:
        # Where it says something of all descriptors, they are passed as tensor maps, with shapes and strides behind.
        metas = getattr(compiled.metadata, "tensordesc_meta", None) or [None]
        mapped = None not in metas
        entry = _entries.get(compiled)
        if entry is None:
            launcher = _launcher(compiled, values) if mapped else compiled.run
            entry = _entries[compiled] = Entry(compiled, launcher)
        self.entry, self.put, self.grid = entry, entry.put, grid
        head = [*grid, *entry.head]
        self.head: list[Any] | None = None if entry.spread else [*head, None]
        self.fixed: list[Any] = head if entry.spread else []
        fixed, self.first = self.fixed, len(self.fixed)
        self.addresses: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int]] = []
        self.descriptors: list[tuple[int, int, Any, dict[int, Any]]] = []
        described = iter(metas)
        for name, x in values.items():
            if name not in slots:
                # Neither a tensor nor a number of a call.
                fixed.append(x)
                continue
            place, make = slots[name]
            if type(x) is TensorDescriptor:
                self.descriptors.append((len(fixed), place, _maker(make, next(described, None), mapped), {}))
                fixed += [None, *x.shape, *x.strides] if mapped else [None]
            else:
                (self.addresses if isinstance(x, torch.Tensor) else self.numbers).append((len(fixed), place))
                fixed.append(None)

    def __call__(self, stream: int, operands: Sequence[Any]) -> None:
        arguments = self.fixed.copy()
        for index, owner in self.addresses:
            arguments[index] = operands[owner].data_ptr()
        for index, owner in self.numbers:
            arguments[index] = float(operands[owner])
        for index, owner, make, made in self.descriptors:
            address = operands[owner].data_ptr()
            argument = made.get(address)
            if argument is None:
                if len(made) >= _ADDRESSES:
                    made.clear()
                argument = made[address] = make(address)
            arguments[index] = argument
        if hooked():
            self.entry(stream, arguments[self.first :], self.grid)
        elif self.head is None:
            arguments[Entry.STREAM] = stream
            self.put(*arguments)
        else:
            head = self.head.copy()
            head[Entry.STREAM], head[-1] = stream, arguments
            self.put(*head)


def _launcher(compiled: Any, values: Mapping[str, Any]) -> Any:
    """The driver's launcher for the kernel's signature, with descriptors replaced by what Triton passes for them."""
    kinds = []
    for kind, value in zip(compiled.src.signature.values(), values.values()):
        described = isinstance(value, TensorDescriptor)
        kinds += ["nvTmaDesc", *["i32"] * len(value.shape), *["i64"] * len(value.strides)] if described else [kind]
    source = SimpleNamespace(constants={}, signature=dict(enumerate(kinds)))
    return _driver().launcher_cls(source, compiled.metadata._replace(tensordesc_meta=None))


def _maker(make: Callable[[Any], Any], meta: Any, mapped: bool) -> Callable[[int], Any]:
    """What makes an argument of an address: the descriptor that `make` makes of a tensor, or its map if `mapped`."""
    # It raises AttributeError where there is none, before anything is launched.
    encode = _encoder() if mapped else lambda descriptor, _: [descriptor]
    return lambda address: encode(make(SimpleNamespace(data_ptr=lambda: address)), meta)[0]


@functools.cache
def _encoder() -> Callable[[Any, Any], Any]:
    """Triton's function that encodes a descriptor; from 3.8 on it has a third parameter, which it does not read."""
    # Its module compiles C when it is imported.
    encode = importlib.import_module("triton.backends.nvidia.driver").make_tensordesc_arg
    unread = (None,) * (len(inspect.signature(encode).parameters) - 2)
    return lambda descriptor, meta: encode(descriptor, meta, *unread)
