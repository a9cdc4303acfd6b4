"""The specialisation of a launch, worked out by the launcher and by Triton's own launch path, with no GPU at hand.

The launcher is called with operands that have shapes, strides and addresses but no memory (torch's `meta` device).
Triton is given a driver that claims the target, and is stopped where it would compile. Written for Triton 3.6 to 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from generator.emit.loading import taken_for_memory
from generator.language.targets import TARGETS
from generator.plan.kernels import Kernel
from generator.verify.case_setup import Setup
from generator.verify.launches import CompiledLaunch


@dataclass(frozen=True)
class Specialisation:
    """What Triton's compiler is given: the function, types, constants and what is known of the arguments."""

    function: Any
    signature: dict[str, str]
    constants: dict[Any, Any]
    known: dict[Any, Any]
    options: dict[str, Any]
    #: Whether the launcher has made the device of the operands the current one.
    on_device: bool

    @property
    def passed(self) -> dict[str, Any]:
        """The constants that the launch passes, those of a row of CONFIGS among them, by name."""
        constants = {self.function.arg_names[path[0]]: value for path, value in self.constants.items()}
        return constants | {name: self.options[name] for name in ("num_warps", "num_stages")}

    @property
    def key(self) -> str:
        """Two launches of one key are one compilation."""
        return repr((self.signature, self.constants, self.known, self.options))


def gpu_target(target: str) -> GPUTarget:
    """A target of the spec language as Triton names it."""
    described = TARGETS[target]
    if described.vendor == "amd":
        return GPUTarget("hip", target, described.lanes)
    return GPUTarget("cuda", described.capability, described.lanes)


class NotLaunched(Exception):
    """The launcher came to another number of launches than it should."""


@contextmanager
def claimed_device(target: str, name: str = "", **others: int | float) -> Iterator[None]:
    """Make torch report that the current device is a GPU of the target, whether or not a GPU is present.

    `name` is the device's, by default the target; `others` are further properties, or other ones.
    """
    has = TARGETS[target]
    major, minor = divmod(has.capability, 10)
    memory = dict.fromkeys(("shared_memory_per_block", "shared_memory_per_block_optin"), has.shared_memory)
    known: dict[str, Any] = {"name": name or target, "multi_processor_count": 1, **memory, **others}
    properties = SimpleNamespace(major=major, minor=minor, gcnArchName=target, **known)
    with (
        patch.object(torch.cuda, "current_device", lambda: 0),
        patch.object(torch.cuda, "get_device_name", lambda device=None: properties.name),
        patch.object(torch.cuda, "get_device_properties", lambda device=None: properties),
        patch.object(torch.version, "hip", "claimed" if has.vendor == "amd" else None),
    ):
        yield


@contextmanager
def claimed(target: str, name: str = "", **others: int | float) -> Iterator[None]:
    """Within, Triton and torch find one GPU of the target, which cannot run anything; as `claimed_device` has it."""
    # Each target is a device of its own to Triton's caches.
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: gpu_target(target),
            get_current_device=lambda: target,
            get_current_stream=lambda device: 0,
        )
    )
    capability = divmod(TARGETS[target].capability, 10)
    with (
        claimed_device(target, name, **others),
        patch.object(torch.cuda, "get_device_capability", lambda device=None: capability),
    ):
        yield


@contextmanager
def _captured(target: str) -> Iterator[list[Specialisation]]:
    """Within, launches for `target` are put in the list, and launchers take operands that are on no GPU."""
    captured: list[Specialisation] = []
    entered: list[object] = []

    @contextmanager
    def device_of(tensor: object) -> Iterator[None]:
        entered.append(tensor)
        try:
            yield
        finally:
            entered.pop()

    def capture(
        self: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, known: Any, warmup: Any
    ) -> None:
        captured.append(Specialisation(self, signature, constants, known, dict(options.__dict__), bool(entered)))

    with (
        claimed(target),
        patch.object(torch.cuda, "device_of", device_of),
        patch.object(JITFunction, "_do_compile", capture),
        triton.knobs.runtime.scope(),
    ):
        triton.knobs.runtime.interpret = True
        yield captured


def specialise(module: ModuleType, kernel: Kernel, launch: CompiledLaunch, target: str) -> tuple[Specialisation, ...]:
    """What Triton would compile for `launch` of the loaded `module` on `target`, of two kernels for each.

    Raises what the launcher raises.
    """
    setup = Setup(kernel, launch.case, torch.device("meta"))
    with _captured(target) as captured, taken_for_memory(module):
        module.gemm(setup.a.view, setup.b.view, **setup.keywords, config=launch.row)
    expected = 1 + kernel.variant.traits.twice
    if len(captured) != expected:
        raise NotLaunched(f"the launcher came to {len(captured)} launches, expected {expected}")
    return tuple(captured)
