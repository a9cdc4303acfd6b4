"""A device without a GPU: work runs at once on the CPU, and the clocks say what the test wants."""

from __future__ import annotations

from collections.abc import Callable

from generator.bench.device import Reading
from generator.plan import devices


class FakeReplay:
    """Work that runs when it is replayed and is said to take what the device says."""

    method = "graph"

    def __init__(self, device: FakeDevice, work: Callable[[], None]) -> None:
        self.device = device
        self.work = work

    def run(self) -> Reading:
        self.device.replays.append(self)
        self.work()
        return self.device.reading


class FakeDevice:
    """A CPU that counts: each reading of its clock is a second after the last."""

    name = "cpu"

    def __init__(self, l2_bytes: int = 1 << 12, seconds: float = 1.0) -> None:
        self.l2_bytes = l2_bytes
        self.environment: dict[str, str | int] = {"device": "fake", "torch": "0", "triton": "0", "python": "0"}
        self.figures = devices.Device("Fake GPU", "sm90", 132, 233472)
        self.seconds = seconds
        self.now = 0.0
        self.replays: list[FakeReplay] = []

    def record(self, work: Callable[[], None]) -> FakeReplay:
        work()
        return FakeReplay(self, work)

    def reading(self) -> float:
        return self.seconds

    def synchronize(self) -> None:
        pass

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    def free(self) -> None:
        pass
