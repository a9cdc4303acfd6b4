"""The configurations of a kernel as in its `CONFIGS`: one key for each tile size, band size and launch option."""

from __future__ import annotations

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
    found = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    found |= {column: getattr(tile, key) for column, key in columns(v).items()}
    return found | {"num_warps": tile.warps, "num_stages": tile.stages}
