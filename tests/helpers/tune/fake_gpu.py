"""A GPU that is none, for workers in this process or another: kernels of plain torch that say what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import triton

from generator.bench.device import Reading
from generator.plan import devices
from generator.runtime.call import Call, State

#: Seconds that the kernels run so far say they took, and how often a device gave memory back: once after each run.
spent = 0.0
freed = 0

SPEC = """\
summary: Two layouts, three rows.
name: tiny
layout: [rcr, rrr]
dtype: fp16
swizzle: [linear, grouped]
tile:
  - {m: 16, n: 16, k: 16, warps: 1, stages: 2}
  - {m: 32, n: 16, k: 16, warps: 1, stages: 2}
  - {m: 16, n: 32, k: 16, warps: 1, stages: 2}
"""

#: A rendered file's stand-in: its rows cost what COSTS says, BODY computes the result, and it selects the row CHOSEN.
KERNEL = """\
from types import SimpleNamespace

import torch
from generator.runtime.call import Launch, Operand
from tests.helpers.tune import fake_gpu as fakes

CONFIGS = [
    {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "num_warps": 1, "num_stages": 2},
    {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 16, "num_warps": 1, "num_stages": 2},
    {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 1, "num_stages": 2},
]


@fakes.jit
def gemm(a, b, *, out=None, config=None):
    result = (a.double() @ b.double()).to(out.dtype)
    fakes.spent += (COSTS)[CHOSEN if config is None else config]
    BODY
    return out


CALL = fakes.OnCpu(
    CONFIGS,
    operands=(Operand("a", "M K", torch.float16), Operand("b", "K N", torch.float16)),
    results=(Operand("out", "M N", torch.float16),),
    launches=(
        Launch(gemm, grid=lambda **_: (1,), arguments=lambda a, b, out, **_: {"a": a, "b": b, "out": out}),
    ),
    choose=lambda rows, sizes, device: CONFIGS[CHOSEN],
)
"""


def write(path: Path, costs: str, body: str = "out.copy_(result)", chosen: int = 0) -> None:
    """Put a kernel's stand-in, whose costs are an expression for three numbers of seconds, in place of its file."""
    path.write_text(KERNEL.replace("COSTS", costs).replace("BODY", body).replace("CHOSEN", str(chosen)))


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks what takes time as Triton marks a kernel: what was timed is of this code."""
    return function


class OnCpu(Call):
    """A call whose operands may be on the CPU, as if an interpreter ran the kernel."""

    def state(self, given: Mapping[str, Any]) -> State:
        with triton.knobs.runtime.scope():
            # It is a variable of the environment, too, which the scope takes back.
            triton.knobs.runtime.interpret = True
            return super().state(given)


class Replay:
    """Work that takes what its kernels say, and what the device says where it has none."""

    method = "graph"

    def __init__(self, device: Device, work: Callable[[], None]) -> None:
        self.device = device
        self.work = work

    def run(self) -> Reading:
        before = spent
        self.work()
        taken = spent - before
        return lambda: taken or self.device.library


class Device:
    """As much of a device as a worker needs."""

    name = "cpu"
    l2_bytes = 1 << 12
    #: Seconds of the library's replays.
    library = 2e-3

    def __init__(self) -> None:
        self.figures = devices.DEVICES["nvidia_h200"]
        self.environment = {"device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.7.1"}
        self.now = 0.0

    def record(self, work: Callable[[], None]) -> Replay:
        work()
        return Replay(self, work)

    def synchronize(self) -> None:
        pass

    def clock(self) -> float:
        self.now += 1e-3
        return self.now

    def free(self) -> None:
        global freed
        freed += 1


class Slow(Device):
    """A device on which one call of an interpreted kernel is enough for a sample."""

    l2_bytes = 1
    library = 1.0


class LosesIt(Device):
    """A device that answers no more once a kernel has raised."""

    def synchronize(self) -> None:
        if raised:
            raise RuntimeError("an illegal memory access was encountered")


raised: list[str] = []


class AtOnce(Executor):
    """An executor that does the work when it is asked, and stops as Ctrl-C would after `stop_after` calls."""

    calls: list[Any]
    stop_after = 1000

    def __init__(self) -> None:
        self.calls = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(arguments)
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


def threads() -> Executor:
    """What `--executor tests.helpers.tune.fake_gpu:threads` works with."""
    return ThreadPoolExecutor(1)


def no_executor() -> str:
    """What no executor is."""
    return "nothing"


#: What `dasked` opened, for the test to close.
opened: list[Any] = []


def dasked() -> Executor:
    """Dask's executor over two processes of this machine."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    client = Client(cluster)
    opened.extend([cluster, client])
    executor: Executor = client.get_executor()
    return executor
