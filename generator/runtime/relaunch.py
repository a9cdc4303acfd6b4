"""Repeated launches of a compiled kernel, without Triton's analysis of the arguments.

Triton has no documented interface for this. This module uses the driver's launcher of a compiled kernel, and the
function by which a kernel specialises on its arguments, as in Triton 3.6 to 3.9. On other versions, on AMD, and with
GEMM_RELAUNCH=0 in the environment, launches are not repeated (`KNOWN` is False).
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import triton
from triton import knobs

from . import private

driver = private.driver

#: The programs of a launch along each of up to three axes.
Grid: TypeAlias = tuple[int, ...]

# Whether launches are repeated: the launchers of the installed Triton are known, and the environment allows it.
KNOWN: bool = (
    os.environ.get("GEMM_RELAUNCH", "1") != "0"
    and (3, 6) <= tuple(map(int, triton.__version__.split(".")[:2])) <= (3, 9)
    and not torch.version.hip
    and None not in (driver, private.Heuristics, private.TensorDescriptor)
)

# How many tensor maps of an argument are cached, by address, before the cache is cleared.
_ADDRESSES = 256

_hooks, _compilation = knobs.runtime, knobs.compilation

# Compiled kernel, which Triton keeps too -> what its launches share (`_Form`).
_forms: dict[Any, _Form] = {}


def specialisation(kernel: Any, arguments: dict[str, Any]) -> tuple[object, ...] | None:
    """What Triton would compile `kernel` for, on the current device; None if only a launch by Triton finds that out.

    `kernel` is a function of `triton.jit`, or one that `triton.heuristics` wraps; `arguments` has the values of its
    parameters by name. Launches with equal specialisations run the same compiled kernel.
    """
    own = function_of(kernel)
    if own is None:
        return None
    if kernel is not own:
        arguments = dict(arguments)
        for name, value in kernel.values.items():
            arguments[name] = value(arguments)
    device, *others = modes()
    # Triton's own function: types, and which integers are 1 and which integers and addresses are divisible by 16.
    try:
        *_, bind = own.device_caches[device]
        _, found, options = bind(**arguments)
    except AttributeError:
        return None
    return own, device, tuple(found), tuple(options.items()), *others


def function_of(kernel: Any) -> Any:
    """The function of `triton.jit` that a launch compiles; None if what Triton does for it is not known."""
    if type(kernel) is private.Heuristics:
        kernel = kernel.fn
    if type(kernel) is not triton.JITFunction or getattr(kernel, "pre_run_hooks", True):
        return None
    return None if getattr(_hooks, "add_stages_inspection_hook", None) is not None else kernel


def modes() -> tuple[object, ...]:
    """The current device, and the modes of Triton that a compiled kernel depends on."""
    more = getattr(_compilation, "instrumentation_mode", None), getattr(_compilation, "fpsan_homomorphic_casts", None)
    return driver.active.get_current_device(), getattr(_hooks, "debug", None), more


class Entry:
    """Launches a compiled kernel: `put(*head, *arguments)`, or `put(*head, arguments)` if not `spread`.

    `STREAM` is the index of the stream in `head`. Calling the entry launches too, and runs the launch hooks.
    """

    STREAM = 3

    def __init__(self, compiled: Any, launcher: Any, grid: Grid) -> None:
        self.compiled, self.launcher, self.grid = compiled, launcher, grid
        function, packed, none = compiled.function, compiled.packed_metadata, (None, None, None)
        self.put: Callable[..., object] = launcher
        self.head: list[Any] = [*grid, None, function, packed, *none]
        self.spread = True
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

    def __init__(self, compiled: Any, values: Mapping[str, Any]) -> None:
        described = [value for value in values.values() if isinstance(value, private.TensorDescriptor)]
        metas = getattr(compiled.metadata, "tensordesc_meta", None) or [None] * len(described)
        self.mapped = bool(described) and None not in metas
        launcher = compiled.run
        if self.mapped:
            tensor_maps = importlib.import_module(".tensor_maps", __package__)
            launcher = tensor_maps.launcher(compiled, values)
        self.entry = entry = Entry(compiled, launcher, (1, 1, 1))
        self.fixed: list[Any] = entry.head.copy() if entry.spread else []
        self.first = len(self.fixed)
        self.addresses: list[tuple[str, int]] = []
        self.numbers: list[tuple[str, int]] = []
        self.descriptors: list[tuple[str, int, Any]] = []
        metas = iter(metas)
        for name, value in values.items():
            at = name, len(self.fixed)
            if isinstance(value, private.TensorDescriptor):
                self.descriptors.append((*at, next(metas)))
                self.fixed += [None] * (1 + 2 * len(value.shape) if self.mapped else 1)
            elif isinstance(value, torch.Tensor):
                self.addresses.append(at)
                self.fixed.append(None)
            else:
                self.numbers.append(at)
                self.fixed.append(value)


class RepeatedLaunch:
    """One launch of a compiled kernel, repeated with the addresses and numbers of other operands.

    `values` has the values of all parameters, in order. `slots` maps a parameter to the index of its operand in the
    operands of a call. `addresses`, `numbers` and `descriptors` have for each parameter that an operand changes its
    index among the launcher's arguments, and the operand's among those of the call; for a descriptor also the function
    that makes the argument from an address, and the arguments that it has made.
    """

    def __init__(self, compiled: Any, grid: Grid, values: Mapping[str, Any], slots: Mapping[str, int]) -> None:
        form = _forms.get(compiled)
        if form is None:
            form = _forms[compiled] = _Form(compiled, values)
        self.entry = entry = form.entry
        self.put, self.first, self.fixed = entry.put, form.first, form.fixed.copy()
        self.grid = grid
        self.head = None if entry.spread else [*grid, *entry.head[Entry.STREAM :], None]
        if entry.spread:
            self.fixed[: Entry.STREAM] = grid
        self.addresses = [(place, slots[name]) for name, place in form.addresses]
        self.numbers = [(place, slots[name]) for name, place in form.numbers if name in slots]
        for name, place in form.numbers:
            self.fixed[place] = values[name]
        self.descriptors: list[tuple[int, int, Any, dict[int, Any]]] = []
        for name, place, meta in form.descriptors:
            tensor_maps = importlib.import_module(".tensor_maps", __package__)
            make = tensor_maps.Made(values[name], meta, form.mapped)
            self.descriptors.append((place, slots[name], make, {}))
            if make.encode is not None:
                # The shape and the strides behind a tensor map.
                numbers = *make.shape, *make.strides
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
            self.entry.on(self.grid)(stream, arguments[self.first :])
        elif self.head is None:
            arguments[Entry.STREAM] = stream
            self.put(*arguments)
        else:
            head = self.head.copy()
            head[Entry.STREAM], head[-1] = stream, arguments
            self.put(*head)
