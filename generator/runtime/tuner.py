"""The choice of a configuration by measurements at the first call of each size, as Triton's autotuner makes them."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
import triton

from .call import Call, Planned, State, extents


class Tuner:
    """Plans launches of a kernel that Triton's autotuner wraps; those in `reset` are zero before each trial."""

    def __init__(self, *reset: str) -> None:
        self.reset = reset
        self.kernel = functools.cache(self._kernel)

    def plan(self, call: Call, state: State) -> State:
        """What a call launches: a grid that follows from the configuration, and memory that is enough for each."""
        rows, (launch,) = call.configs, call.launches
        call.planned(state, rows[0])
        for each in call.memory:
            size = max(extents(each.shape)(_with(row, call, state))[0] for row in rows)
            state.given[each.name] = each.of_size(size, state.device)
        known = state.known

        def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
            return launch.grid(**{**known, **_with(meta, call, state)})

        state.launches = [Planned(self.kernel(call), grid, launch.arguments(**known))]
        return state

    def _kernel(self, call: Call) -> Any:
        """The kernel that tries the configurations."""
        (launch,) = call.launches
        # The blocks of descriptors follow from the configuration alone: any tensors tell them.
        tensors = (*call.operands, *call.results, *call.memory)
        like = {x.name: torch.empty((1,) * len(x.words), device="meta", dtype=torch.float16) for x in tensors}
        names = {name: 1 for x in tensors for name in x.sizes}

        def blocks(row: Mapping[str, Any]) -> dict[str, Any]:
            arguments = launch.arguments(**{**names, "PROGRAMS": 1, **like, **row})
            return {name: x.block_shape for name, x in arguments.items() if hasattr(x, "block_shape")}

        def set_blocks(arguments: dict[str, Any]) -> None:
            """Set the block shapes of descriptors to those of the configuration that runs next."""
            for name, shape in blocks({name: x for name, x in arguments.items() if type(x) is int}).items():
                arguments[name].block_shape = shape

        def prune(configs: list[Any], arguments: Mapping[str, Any], **others: Any) -> list[Any]:
            """The configurations that the device holds, and that are legal for the sizes."""
            rows = call.offered(torch.device("cuda", torch.cuda.current_device()))
            legal = call.fitting(rows, {**arguments, **others})
            return [config for config, row in zip(configs, call.configs) if row in legal]

        hook = set_blocks if blocks(call.configs[0]) else None
        configs = []
        for row in call.configs:
            sizes = {name: value for name, value in row.items() if not name.startswith("num_")}
            configs.append(triton.Config(sizes, row["num_warps"], row["num_stages"], pre_hook=hook))
        tuned = triton.autotune(
            configs=configs,
            key=["M", "N", "K"],
            prune_configs_by={"early_config_prune": prune},
            reset_to_zero=list(self.reset) or None,
        )
        return tuned(launch.kernel)


def _with(row: Mapping[str, Any], call: Call, state: State) -> dict[str, Any]:
    """The sizes of a call and a configuration."""
    numbers: dict[str, Any] = state.numbers | dict(row)
    if call.programs is not None:
        numbers["PROGRAMS"] = call.programs(numbers, state.device)
    return numbers
