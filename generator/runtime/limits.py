"""What a kernel needs of a call, and its configurations of sizes: each function returns why it is not so, or None."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor


def first(*reasons: str | None) -> str | None:
    """The first of the reasons that is one."""
    return next((reason for reason in reasons if reason is not None), None)


def multiple(number: int, step: int, why: str) -> str | None:
    """A number must be a multiple of another."""
    return f"{why} multiples of {step}, got {number}" if number % step else None


def at_most(number: int, most: int, why: str) -> str | None:
    """A number must not be above another."""
    return f"{why} at most {most}, got {number}" if number > most else None


def absent(x: Any, why: str) -> str | None:
    """An operand must be left out."""
    return None if x is None else why


@functools.cache
def _capability(read: Callable[[torch.device], tuple[int, int]], device: torch.device) -> tuple[int, int]:
    """A GPU's capability, which does not change, and which torch takes microseconds to read."""
    return read(device)


def capability(
    x: Tensor, why: str, least: tuple[int, int] = (0, 0), majors: tuple[int, ...] = (), inverted: bool = False
) -> str | None:
    """An NVIDIA GPU must have a capability from `least` on, and one of the major numbers; if `inverted`, no such."""
    if x.device.type != "cuda":
        return None
    own = _capability(torch.cuda.get_device_capability, x.device)
    able = torch.version.hip is None and own >= least and (not majors or own[0] in majors)
    return f"{why}, and this is {torch.cuda.get_device_name(x.device)}" if able is inverted else None


def older(version: tuple[int, int], why: str) -> str | None:
    """Triton must be older than a version."""
    if tuple(map(int, triton.__version__.split(".")[:2])) < version:
        return None
    return f"{why} need Triton older than {'.'.join(map(str, version))}, and this is {triton.__version__}"


def unrepeatable(schedule: str) -> str | None:
    """torch must not demand algorithms whose results repeat."""
    if not torch.are_deterministic_algorithms_enabled():
        return None
    return f"results of {schedule} do not repeat, and torch.use_deterministic_algorithms(True) holds"
