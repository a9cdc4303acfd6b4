"""The device that is timed: CUDA graph replays between events, and the properties that times depend on."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import torch

from generator.plan import devices

#: Returns the seconds of a sample; to be called after the device was synchronized.
Reading = Callable[[], float]


def timed(device: CudaDevice, *replays: Replay) -> list[float]:
    """Seconds of one run of each replay, queued one after the other without a pause.

    Another run comes first and is not timed: the device is busy with it while the host queues the timed ones, so that
    no sample includes the launch of its own replay.
    """
    replays[-1].run()
    readings = [replay.run() for replay in replays]
    device.synchronize()
    return [reading() for reading in readings]


class Replay:
    """Recorded work that can be run repeatedly, between two events.

    Its method is `graph`, a replay of a CUDA graph without launches by the host, or `events`: the host launches it.
    """

    def __init__(self, method: str, work: Callable[[], None]) -> None:
        self.method = method
        # The method of a graph keeps it: the graph owns the memory that its kernels use.
        self._work = work

    def run(self) -> Reading:
        """Start one run, without waiting for its end."""
        start, end = _event(), _event()
        start.record()
        self._work()
        end.record()
        return lambda: float(start.elapsed_time(end)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class CudaDevice:
    """The current CUDA device: the operations and properties that measurements need."""

    #: The word for torch's `device` arguments.
    name = "cuda"

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or 64 * 2**20
        # On AMD the name of the architecture is followed by a colon and features; on NVIDIA it is the device's name.
        arch = properties.gcnArchName.partition(":")[0] if torch.version.hip else ""
        #: The properties that the cost models need.
        self.figures = devices.Device(
            properties.name,
            arch or f"sm{properties.major}{properties.minor}",
            properties.multi_processor_count,
            getattr(properties, "shared_memory_per_multiprocessor", 2**16),
        )
        #: Everything but the kernel that a time depends on: device, versions. No host, no path, no date.
        self.environment: Mapping[str, str | int] = {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": self.l2_bytes,
            "driver": _driver(),
            "cuda": torch.version.cuda or torch.version.hip or "none",
            **versions(),
        }

    def record(self, work: Callable[[], None]) -> Replay:
        """A graph of `work`, which has run once before, if it can be captured, else the work itself."""
        graph = torch.cuda.CUDAGraph()
        try:
            self._stream.wait_stream(torch.cuda.current_stream())
            # The outer context restores the stream if leaving the capture raises.
            with torch.cuda.stream(self._stream):
                work()
                with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                    work()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph.replay()
            torch.cuda.synchronize()
        except Exception as error:
            torch.cuda.synchronize()
            print(f"cannot be captured in a CUDA graph, timed by events: {reason(error)}", file=sys.stderr)
            return Replay("events", work)
        return Replay("graph", graph.replay)

    def synchronize(self) -> None:
        """Wait until the device is idle; raises an exception if work has failed."""
        torch.cuda.synchronize()

    def clock(self) -> float:
        """The host's clock in seconds."""
        return time.perf_counter()

    def free(self) -> None:
        """Return memory that is no longer used."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def versions() -> dict[str, str]:
    """The versions of the software that compiles and launches kernels."""
    import triton

    return {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}


def _driver() -> str:
    """The release of the driver, or `unknown` if nvidia-smi does not report it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=20, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer[0] if answer else "unknown"


def reason(error: BaseException) -> str:
    """An exception on one line: the first line of its message, and the second if the first ends with a colon."""
    lines = str(error).strip().splitlines() or ["no message"]
    message = lines[0] if not lines[0].endswith(":") else " ".join(lines[:2])
    return f"{type(error).__name__}: {message}"[:300]
