"""The sides of a comparison, to be called and timed: rendered kernels loaded by path, and peers."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from generator.bench.comparison_plan import Comparison, Contestant
from generator.bench.device import Replay
from generator.bench.measurements import Side
from generator.bench.peers import PEERS, Launch, NoPeer
from generator.bench.random_operands import Operands
from generator.emit.loading import load_family, load_kernel
from generator.problem.product import Problem


@dataclass(eq=False)
class Competitor:
    """A side with the call that is timed; `side`, the replay and the samples are filled in as measuring goes on."""

    side: Side
    launch: Launch
    #: What a side that chooses has run with some operands: fields of `side`.
    ran: Callable[[Operands], Mapping[str, Any]] = lambda operands: {}
    #: Whether the result is what the call returns, also where an output is given.
    fresh: bool = False
    #: The recorded calls, how many they are, and the number of calls by the host in one sample.
    replay: Replay | None = None
    replayed: int = 1
    called: int = 0
    #: Seconds: of replays; of calls from an idle device until it is idle again; until the host has queued these calls.
    gpu: list[float] = field(default_factory=list)
    call: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    #: What the last plain call returned, and what the calls of a replay return for each set.
    last: Any = None
    returned: dict[int, Any] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether nothing has failed so far."""
        return self.side.failure is None

    @property
    def median(self) -> float:
        """The median seconds of a replayed call; infinite if a sample is no time, such as NaN."""
        whole = all(0 < sample < math.inf for sample in self.gpu)
        return statistics.median(self.gpu) if whole else math.inf

    def fail(self, failure: str, *, refused: bool = False) -> None:
        """Note why the side has no times; `refused` if that is no fault."""
        self.side = replace(self.side, failure=failure, refused=refused)


def competitors(comparison: Comparison, configs: str) -> list[Competitor]:
    """The sides of a comparison, the peers last; with `configs` of `all` also every row of each kernel's table.

    A peer that does not compute the problem is a side that refused.
    """
    sides = []
    for contestant in comparison.contestants:
        every = range(len(rows(contestant))) if configs == "all" else ()
        sides += [competitor(contestant, index) for index in (None, *every)]
    return sides + [peer_of(comparison.problem, peer) for peer in comparison.peers]


def rows(contestant: Contestant) -> tuple[Mapping[str, int], ...]:
    """The table of a kernel; empty for a contract."""
    if contestant.is_contract:
        return ()
    return tuple(module_of(contestant).CONFIGS)


def competitor(contestant: Contestant, index: int | None = None) -> Competitor:
    """The call with an entry of the table; without one, the kernel chooses it, and for a contract the kernel too."""
    gemm: Any = function(contestant)
    role = "contract" if contestant.is_contract else "kernel"
    side = Side(contestant.label, role, contestant.kernel, contestant.family, contestant.digest)
    if index is not None:
        row = dict(rows(contestant)[index])
        side = replace(side, label=f"{contestant.label} [{index}]", config=row, index=index, forced=True)
        return Competitor(side, lambda x, out: gemm(x.a, x.b, **x.keywords, out=out, config=index))

    def launch(x: Operands, out: torch.Tensor | None) -> Any:
        return gemm(x.a, x.b, **x.keywords, out=out)

    if contestant.is_contract and hasattr(gemm, "which"):
        return Competitor(side, launch, functools.partial(kernel_of, gemm))
    if not contestant.is_contract and hasattr(module_of(contestant), "CALL"):
        return Competitor(side, launch, functools.partial(row_of, module_of(contestant).CALL))
    return Competitor(side, launch)


def peer_of(problem: Problem, peer: str) -> Competitor:
    """The side of the peer of that word."""
    try:
        library = PEERS[peer](problem)
    except NoPeer as reason:
        return Competitor(Side(peer, "peer", peer, failure=str(reason), refused=True), _never)
    return Competitor(Side(library.name, "peer", library.name), library.launch, fresh=library.fresh)


def _never(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
    raise AssertionError("a side that refused is not called")


def function(contestant: Contestant) -> Callable[..., Any]:
    """The launcher of a kernel's file, or a family's function of a contract."""
    module = module_of(contestant)
    called: Callable[..., Any] = getattr(module, contestant.kernel if contestant.is_contract else "gemm")
    return called


def kernel_of(gemm: Any, operands: Operands) -> dict[str, Any]:
    """The kernel that a contract's function runs, and the configuration, if that is known before the call."""
    kernel, config = gemm.which(operands.a, operands.b, out=operands.out, **operands.keywords)
    return {"kernel": kernel, "config": dict(config) or None}


def row_of(call: Any, operands: Operands) -> dict[str, Any]:
    """The row that the kernel of `call` has run, and its index; nothing if Triton's autotuner chose another."""
    if getattr(call, "tunes", False):
        ran = call.tuner.kernel(call).best_config.all_kwargs()
    else:
        ran = call.row(None, call.state({"a": operands.a, "b": operands.b, **operands.keywords, "out": operands.out}))
    fitting = ((index, dict(row)) for index, row in enumerate(call.configs) if row.items() <= ran.items())
    return next(({"index": index, "config": row} for index, row in fitting), {})


def module_of(contestant: Contestant) -> ModuleType:
    """The module of a kernel's file, or the package that holds a contract's function."""
    # A relative path would be another file after a change of the working directory, here and for importlib.
    return _module(contestant.file.absolute(), contestant.digest)


@functools.cache
def _module(file: Path, digest: str) -> ModuleType:
    """The module of a kernel's file or a family's folder, loaded once for each digest."""
    return load_family(file) if file.is_dir() else load_kernel(file)
