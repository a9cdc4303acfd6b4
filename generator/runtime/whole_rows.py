"""The pass of Inductor of a family whose rows do not depend on each other: products of one row are kept whole.

Inductor makes sums of them before a pass sees the graph.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import torch
from torch._inductor import custom_graph_pass

from .graph_pass import GraphPass, installing

#: The products that Inductor makes sums of where they have one row, before a pass sees the graph.
_WHOLE = tuple(getattr(torch.ops.aten, name) for name in ("mm", "addmm", "bmm", "baddbmm"))

# What Inductor's tables had of those products, for all families of a process, while such passes are installed.
_taken: Any = SimpleNamespace(passes=[], entries=[])
_taken = vars(custom_graph_pass).setdefault("_products_whole", _taken)  # pyright: ignore[reportAttributeAccessIssue]


class WholePass(GraphPass):
    """The pass, which also takes such products out of Inductor's tables of decompositions while it is installed."""

    def install(self) -> None:
        with installing:
            super().install()
            if self not in _taken.passes:
                _taken.passes.append(self)
                # A torch without these tables decomposes products of one row, which the pass then does not see.
                holder: Any = importlib.import_module("torch._inductor.decomposition")
                for table in (getattr(holder, "decompositions", {}), getattr(holder, "fast_random_decomps", dict)()):
                    for key in [x for x in table if getattr(x, "overloadpacket", None) in _WHOLE]:
                        _taken.entries.append((table, key, table.pop(key)))

    def remove(self) -> None:
        with installing:
            super().remove()
            if self in _taken.passes:
                _taken.passes.remove(self)
            while not _taken.passes and _taken.entries:
                table, key, decomposition = _taken.entries.pop()
                table[key] = decomposition
