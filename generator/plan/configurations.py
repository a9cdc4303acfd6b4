"""The configurations of a kernel as in its `CONFIGS`: one key for each tile size, band size and launch option."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from generator.language.model import Tile, Variant
from generator.language.vocabulary import SWIZZLE
from generator.plan.kernels import Kernel

#: The rows of a tile of the kernel that adds partial sums: few, so that the device is filled, and enough for a
#: descriptor to copy a column-major tile of bytes.
STRIP = 16


def divided(tiles: tuple[Tile, ...], parts: tuple[int, ...] = (2, 4, 8)) -> tuple[Tile, ...]:
    """Each of `tiles` with its K divided over 2, 4 and 8 programs, or over so many `parts`."""
    return tuple(replace(tile, split=split) for tile in tiles for split in parts)


def columns(v: Variant) -> dict[str, str]:
    """The keys that the order of tiles and the schedule add to a configuration, each with its field of `Tile`."""
    return {**SWIZZLE[v.swizzle].columns, **v.traits.columns}


def configurations(kernel: Kernel) -> tuple[dict[str, int], ...]:
    """The configurations of a kernel, in the order of `CONFIGS`."""
    v = kernel.variant
    return tuple(row_of_tile(v, tile) for tile in kernel.tiles)


def row_of_tile(v: Variant, tile: Tile) -> dict[str, int]:
    """A configuration as an entry of `CONFIGS`."""
    if not v.traits.tiled:
        return {"num_warps": tile.warps}
    row = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    return row | v.columns(tile) | {"num_warps": tile.warps, "num_stages": tile.stages}


def label(v: Variant, tile: Tile) -> str:
    """A configuration for a message: its sizes, and the further fields in which those of `v` may differ."""
    fields = columns(v).values()
    # One that a spec leaves out is not what it reads of.
    further = [key for key in ("group", "chiplets") if key in fields and getattr(tile, key) != getattr(Tile, key)]
    further += ["split"] * ("split" in fields)
    sizes = f"tile {tile.m}x{tile.n}x{tile.k}, {tile.warps} warps, {tile.stages} stages"
    return ", ".join([sizes, *(f"{key} {getattr(tile, key)}" for key in further)])


def none_fits(left_out: Iterable[tuple[str, str | None]], target: str | None = None) -> str:
    """Why no configuration of a kernel is left, by the first of those that were left out, each with reason and target.

    With `target` only its own count. There are none where no entry of `tile` is for the kernel's schedule.
    """
    reasons = (reason for reason, refusing in left_out if target in (None, refusing))
    return f"no configuration fits: {next(reasons, 'no entry of tile is for this schedule')}"
