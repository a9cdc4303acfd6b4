"""What a row of a kernel's table is in the file, by the meaning of the manifest: never by the templates."""

from __future__ import annotations

from generator.language.model import Tile, Variant
from generator.language.vocabulary import SWIZZLE
from generator.plan import legality
from generator.plan.kernels import Kernel


def row_of(variant: Variant, tile: Tile) -> dict[str, int]:
    """The row of CONFIGS that stands for `tile`."""
    launched = {"num_warps": tile.warps}
    if not variant.traits.tiled:
        return launched
    sizes = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    ordered = {column: getattr(tile, key) for column, key in SWIZZLE[variant.swizzle].columns.items()}
    divided = {column: getattr(tile, key) for column, key in variant.traits.columns.items()}
    return sizes | ordered | divided | launched | {"num_stages": tile.stages}


def takes(variant: Variant, tile: Tile, sizes: tuple[int, int, int]) -> bool:
    """Whether a product of `sizes` can be computed in tiles of that row."""
    if not variant.traits.tiled:
        return True
    ragged = legality.ragged(variant.masking)
    blocks = (tile.m, tile.n, tile.k)
    whole = all(
        variant.load == "descriptor" or ragged[dimension] is not False or size % block == 0
        for dimension, size, block in zip("mnk", sizes, blocks, strict=True)
    )
    return whole and (variant.traits.looped or sizes[2] <= tile.k)


def tables(kernel: Kernel) -> dict[str, object]:
    """The tables of a kernel's file, by the name that each has there."""
    found: dict[str, object] = {"CONFIGS": [row_of(kernel.variant, tile) for tile in kernel.tiles]}
    if kernel.not_offered:
        found["TOO_LARGE"] = {target: tuple(rows) for target, rows in kernel.not_offered}
    return found
