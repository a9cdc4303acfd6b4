"""GPUs that measurements are of, or that kernels can be planned for on a machine without them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from generator.language.errors import CallError, nearest
from generator.language.gpus import gpu_of


def slug(name: str) -> str:
    """The name of a folder for a device: `nvidia_h200` for `NVIDIA H200`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@dataclass(frozen=True)
class Device:
    """A GPU, as far as the cost models need it."""

    #: The name that torch reports: `NVIDIA H200`.
    name: str
    #: The architecture as a spec's `targets` names it: `sm90`.
    target: str
    multiprocessors: int
    #: Bytes of shared memory of one multiprocessor.
    shared_memory: int
    #: Kilohertz of the multiprocessors, and bytes that the memory can transfer per second; 0 if they are not known.
    clock: int = 0
    memory: float = 0.0

    @property
    def slug(self) -> str:
        """The name as a folder."""
        return slug(self.name)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: (9, 0) for `sm90`; (0, 0) for a GPU that has none."""
        digits = self.target.removeprefix("sm")
        return (int(digits[:-1]), int(digits[-1])) if digits.isdecimal() else (0, 0)


#: Known devices by the names of their folders, with the figures that torch reports.
DEVICES: Mapping[str, Device] = {
    device.slug: device
    for device in (
        Device("NVIDIA A100-SXM4-80GB", "sm80", 108, 167936, 1_410_000, 2.039e12),
        Device("NVIDIA H100 80GB HBM3", "sm90", 132, 233472, 1_980_000, 3.352e12),
        Device("NVIDIA H200", "sm90", 132, 233472, 1_980_000, 4.917e12),
    )
}


def named(word: str) -> Device:
    """The known device that an option `--device` names, perhaps as torch does; raises `CallError` for another."""
    chosen = DEVICES.get(word) or DEVICES.get(slug(word))
    if chosen is not None:
        return chosen
    of_target = [name for name, device in DEVICES.items() if device.target == word]
    if of_target:
        raise CallError(f"--device: {word} is an architecture; kernels are chosen for a device: {', '.join(of_target)}")
    raise CallError(f"--device: {word!r} is not known; {nearest(word, DEVICES)}{_same_gpu(word)}")


def of_gpu(word: str) -> Device:
    """The known device that an option `--gpu` names as people do, `h100`; raises `CallError` for another GPU."""
    gpu = gpu_of(word)
    names = {own.name: device for device in DEVICES.values() if (own := gpu_of(device.name))}
    if gpu is not None and gpu.name in names:
        return names[gpu.name]
    if gpu is not None:
        like = [name for name, device in names.items() if device.target == gpu.architecture]
        known = f"; known of {gpu.architecture}: {', '.join(like)}" if like else f"; known: {', '.join(names)}"
        raise CallError(f"--gpu: {word} {gpu.description}, and no figures of one are known{known}")
    of_target = [name for name, device in names.items() if device.target == word]
    if of_target:
        raise CallError(f"--gpu: {word} is an architecture; kernels are chosen for a GPU: {', '.join(of_target)}")
    raise CallError(f"--gpu: {word!r} is not known; {nearest(word.lower(), names)}")


def _same_gpu(text: str) -> str:
    """What GPU a text names, and the known devices that have this one, or else its architecture; perhaps nothing."""
    gpu = gpu_of(text)
    if gpu is None:
        return ""
    same = [name for name, device in DEVICES.items() if (own := gpu_of(device.name)) and own.name == gpu.name]
    same = same or [name for name, device in DEVICES.items() if device.target == gpu.architecture]
    return f"; {text} {gpu.description}" + (
        f": write {' or '.join(same)}" if same else ", and no figures of one are known"
    )
