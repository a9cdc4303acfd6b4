"""What a kernel needs of a call, and what its configurations need of sizes and of a device."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import triton

from .call import Row, Table
from .call_tensors import State
from .extents import Extent


@dataclass(frozen=True)
class Multiple:
    """A number that must be a multiple of another: of a constant, or of an entry of the configuration."""

    extent: Extent
    step: Extent | int
    why: str = ""

    def holds(self, numbers: Mapping[str, int]) -> bool:
        """Whether a configuration is legal for the sizes."""
        step = self.step if isinstance(self.step, int) else self.step.of(numbers)
        return bool(self.extent.of(numbers) % step == 0)

    def misfit(self, rows: list[Row], numbers: Mapping[str, int]) -> str | None:
        """Why none of the configurations is legal for the sizes, or None."""
        if any(self.holds({**numbers, **row}) for row in rows):
            return None
        steps = sorted({row[str(self.step)] for row in rows})
        shown = ", ".join(map(str, steps))
        return f"{self.extent} is {self.extent.of(numbers)}, not a multiple of {self.step}, which may be {shown}"

    def reason(self, state: State) -> str | None:
        """Why the call is not accepted, or None."""
        if self.holds(state.numbers):
            return None
        return f"{self.extent} is {self.extent.of(state.numbers)}, and {self.why} multiples of {self.step}"


@dataclass(frozen=True)
class AtMost:
    """A number that must not be above another: a constant, or an entry of the configuration."""

    extent: Extent
    most: Extent | int
    why: str

    def holds(self, numbers: Mapping[str, int]) -> bool:
        """Whether a configuration is legal for the sizes."""
        most = self.most if isinstance(self.most, int) else self.most.of(numbers)
        return bool(self.extent.of(numbers) <= most)

    def misfit(self, rows: list[Row], numbers: Mapping[str, int]) -> str | None:
        """Why none of the configurations is legal for the sizes, or None."""
        if any(self.holds({**numbers, **row}) for row in rows):
            return None
        most = max(row[str(self.most)] for row in rows)
        return f"{self.extent} is {self.extent.of(numbers)}, and {self.why} at most {most} ({self.most})"

    def reason(self, state: State) -> str | None:
        """Why the call is not accepted, or None."""
        if self.holds(state.numbers):
            return None
        return f"{self.extent} is {self.extent.of(state.numbers)}, and {self.why} at most {self.most}"


@functools.cache
def _capability(read: Callable[[torch.device], tuple[int, int]], device: torch.device) -> tuple[int, int]:
    """A GPU's capability, which does not change, and which torch takes microseconds to read."""
    return read(device)


@dataclass(frozen=True)
class Capability:
    """NVIDIA GPUs of a capability from `least` on, or below `below`, or of some of the major numbers."""

    why: str
    least: tuple[int, int] = (0, 0)
    majors: tuple[int, ...] = ()
    #: Whether the others are accepted, and these are not.
    inverted: bool = False

    def reason(self, state: State) -> str | None:
        """Why the call is not accepted, or None."""
        if state.device.type != "cuda":
            return None
        capability = _capability(torch.cuda.get_device_capability, state.device)
        inside = capability >= self.least and (not self.majors or capability[0] in self.majors)
        able = torch.version.hip is None and inside
        if able is not self.inverted:
            return None
        return f"{self.why}, and this is {torch.cuda.get_device_name(state.device)}"


@dataclass(frozen=True)
class Older:
    """A Triton older than a version."""

    version: tuple[int, int]
    why: str

    def reason(self, state: State) -> str | None:
        """Why the call is not accepted, or None."""
        if tuple(map(int, triton.__version__.split(".")[:2])) < self.version:
            return None
        return f"{self.why} need Triton older than {'.'.join(map(str, self.version))}, and this is {triton.__version__}"


@dataclass(frozen=True)
class Absent:
    """An operand that must be left out."""

    name: str
    why: str

    def reason(self, state: State) -> str | None:
        """Why the call is not accepted, or None."""
        return None if state.given.get(self.name) is None else self.why


@dataclass(frozen=True)
class NotDeterministic:
    """torch may use algorithms whose results do not repeat."""

    schedule: str

    def reason(self, state: State) -> str | None:
        """Why the call is not accepted, or None."""
        if not torch.are_deterministic_algorithms_enabled():
            return None
        return f"results of {self.schedule} do not repeat, and torch.use_deterministic_algorithms(True) holds"


class Limited(Table):
    """Configurations that are legal for sizes under conditions, and do not all fit into any device's shared memory.

    `too_large` has, by target, the indices of those that do not fit.
    """

    def __init__(
        self,
        rows: list[Row],
        fits: tuple[Multiple | AtMost, ...] = (),
        too_large: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(rows)
        self.fits, self.too_large = fits, too_large or {}

    def offered(self, device: torch.device) -> list[Row]:
        if device.type != "cuda":
            return self.rows
        properties = torch.cuda.get_device_properties(device)
        target = f"sm{properties.major}{properties.minor}"
        if torch.version.hip:
            target = properties.gcnArchName.partition(":")[0]
        return [row for index, row in enumerate(self.rows) if index not in self.too_large.get(target, ())]

    def fitting(self, rows: list[Row], numbers: Mapping[str, int]) -> list[Row]:
        return [row for row in rows if all(each.holds({**numbers, **row}) for each in self.fits)]

    def misfit(self, rows: list[Row], numbers: Mapping[str, int]) -> str | None:
        if self.fitting(rows, numbers):
            return None
        reasons = [each.misfit(rows, numbers) for each in self.fits]
        sizes = ", ".join(f"{name} {number}" for name, number in numbers.items())
        together = f"no configuration is legal for {sizes}: {rows}"
        return next((reason for reason in reasons if reason), together)
