"""The tables of gpus.md: which GPU is which target, and what happens on the GPUs of other architectures."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import patch

from figures import MEASURED, ROOT

from generator.language.gpus import ARCHITECTURES
from generator.language.targets import TARGETS
from generator.plan.devices import DEVICES

TUNED = ROOT / "specs" / "tuned"
#: For which architectures Triton compiles a kernel, as `measured/scripts/other_gpus.py` writes it.
COMPILED = json.loads((MEASURED / "other_gpus.json").read_text(encoding="utf-8"))

TARGET_COLUMNS = ("target", "GPUs", "`--device`, with the figures of cost models", "measurements in the package")
OTHER_COLUMNS = ("architecture", "GPUs", f"a kernel in Triton {COMPILED['triton']}", "what a call does")


def targets() -> list[tuple[str, ...]]:
    """A row for each target."""
    return [
        (
            f"`{target}`",
            _names(target),
            ", ".join(f"`{slug}`" for slug, device in DEVICES.items() if device.target == target) or "—",
            ", ".join(gpu for slug, device in DEVICES.items() if device.target == target and (gpu := _tuned(slug)))
            or "—",
        )
        for target in TARGETS
    ]


def others() -> list[tuple[str, ...]]:
    """A row for each architecture that is no target."""
    return [
        (f"`{architecture}`", _names(architecture), _compiled(architecture), _call(architecture))
        for architecture in ARCHITECTURES
        if architecture not in TARGETS
    ]


def _names(architecture: str) -> str:
    return ", ".join(f"`{name}`" for name in ARCHITECTURES[architecture])


def _tuned(device: str) -> str:
    """How many files of winners the package has for a device."""
    count = len(list((TUNED / device).glob("*.json")))
    return f"`{device}`: {count} {'file' if count == 1 else 'files'}" if count else ""


def _compiled(architecture: str) -> str:
    return "ends with an error" if COMPILED["refused"][architecture] else "compiles"


def _call(architecture: str) -> str:
    """What a call of a rendered function does on a GPU of an architecture that no spec can name."""
    if reason := COMPILED["refused"][architecture]:
        return "the compiler ends the process: `" + reason.replace("|", "\\|") + "`"
    return f"compiles and launches, with the configurations that fit by what `{_kind(architecture)}` needs"


def _kind(architecture: str) -> str:
    """The target whose shared memory the family's table takes, as the family's own library finds it."""
    import torch

    from generator.runtime.call import kind_of

    amd = architecture.startswith("gfx")
    properties = SimpleNamespace(gcnArchName=architecture, major=0 if amd else int(architecture[2:-1]))
    with (
        patch.object(torch.cuda, "get_device_properties", lambda device: properties),
        patch.object(torch.version, "hip", "6.0" if amd else None),
    ):
        kind = kind_of(torch.device("cuda", 0))
    return next(target for target, each in TARGETS.items() if each.kind == kind)
