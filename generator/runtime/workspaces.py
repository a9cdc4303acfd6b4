"""Memory for partial sums and counters, which launches on one stream share, one after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from .launch import within

# How many streams have a cached workspace, and its largest size. A call that needs more allocates its own.
_STREAMS = 8
_BYTES = 2**26
_COUNTERS = 2**16

# Device and stream -> memory for partial sums, and counters, which are zero before and after each launch.
_workspaces: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}


def free() -> None:
    """Free all of it; the next launch that needs some allocates it again."""
    _workspaces.clear()


def workspace(device: torch.device, stream: int, size: int, count: int) -> tuple[Tensor, Tensor]:
    """`size` bytes, and `count` zero counters, for a launch on `stream`, the current stream."""
    if size > _BYTES or count > _COUNTERS or within.operator or torch.cuda.is_current_stream_capturing():
        # A CUDA graph has its own workspace, and clears it on every replay. What an operator allocates may belong to
        # the memory of a graph that torch.compile is about to record.
        return _memory(device, size, count)
    held = _workspaces.get((device, stream))
    if held is None or held[0].numel() < size or held[1].numel() < count:
        if held is not None:
            size, count = max(size, held[0].numel()), max(count, held[1].numel())
        elif len(_workspaces) >= _STREAMS:
            del _workspaces[next(iter(_workspaces))]
        held = _workspaces[device, stream] = _memory(device, size, count)
    return held


def _memory(device: torch.device, size: int, count: int) -> tuple[Tensor, Tensor]:
    sums = torch.empty(size, dtype=torch.uint8, device=device)
    return sums, torch.zeros(count, dtype=torch.int32, device=device)
