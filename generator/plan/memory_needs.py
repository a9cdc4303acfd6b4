"""What the configurations of kernels need of a GPU's shared memory, for every GPU: those too that a spec does not name.

The shared memory of a kernel depends on its matrix instructions, which several targets have in common (`Target.kind`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from generator.epilogue.chain import Epilogue
from generator.epilogue.quantisation import Quantisation
from generator.language.model import Tile, Variant
from generator.language.targets import TARGETS
from generator.plan import legality
from generator.plan.kernels import Kernel

#: Of each configuration the bytes, or None where it cannot run however many there are.
Needs = tuple[int | None, ...]


def needs_of(kernel: Kernel) -> dict[str, Needs]:
    """What the configurations of a kernel need, by kind of the targets that can run it."""
    # No rule about a configuration or a target reads the masking or the order of tiles: see `plan.expand`.
    v = replace(kernel.variant, masking="auto", swizzle="linear", epilogue=_like(kernel.variant.epilogue))
    return _needs_of(v, kernel.tiles)


def _like(epilogue: Epilogue) -> Epilogue:
    """The first chain whose memory is that of `epilogue`: no rule reads what a step makes of the running value."""
    steps = (
        step
        if step.output is not None or step is epilogue.gate or isinstance(step.meaning, Quantisation)
        else tuple(operand.shape for _, operand in step.operands)
        for step in epilogue.steps
    )
    return _first.setdefault(tuple(steps), epilogue)


_first: dict[tuple[object, ...], Epilogue] = {}


@lru_cache(maxsize=1024)
def _needs_of(v: Variant, tiles: tuple[Tile, ...]) -> dict[str, Needs]:
    return {
        kind: tuple(legality.shared_memory_needed(v, tile, target) for tile in tiles)
        for kind, target in _able(v).items()
        if v.traits.tiled
    }


def differing_needs_of(kernel: Kernel) -> dict[str, Needs]:
    """As `needs_of`, for the first kind, and for those that need something else."""
    needs = needs_of(kernel)
    return {kind: own for kind, own in needs.items() if kind == next(iter(needs)) or own != next(iter(needs.values()))}


def needs_of_all(kernels: Iterable[Kernel]) -> list[tuple[tuple[str, ...], Mapping[str, Needs]]]:
    """The kernels that need the same, by their names, and what they need."""
    by_needs: dict[tuple[tuple[str, Needs], ...], list[str]] = {}
    for kernel in kernels:
        needs = tuple(needs_of(kernel).items())
        if needs:
            by_needs.setdefault(needs, []).append(kernel.name)
    return [(tuple(names), dict(needs)) for needs, names in by_needs.items()]


def _able(v: Variant) -> dict[str, str]:
    """The kinds of the targets that can run a variant, each with one of them."""
    able: dict[str, str] = {}
    for name, target in TARGETS.items():
        if legality.why_not_on(v, name) is None:
            able.setdefault(target.kind, name)
    return able
