"""The configurations that a kernel's file must list, computed from the manifest and not from the templates."""

from __future__ import annotations

from collections.abc import Mapping

from generator.language.model import Tile, Variant
from generator.plan import variant_rules
from generator.plan.kernels import Kernel
from generator.plan.memory_needs import differing_needs_of


def configuration_of(variant: Variant, tile: Tile) -> dict[str, int]:
    """The entry of CONFIGS for `tile`."""
    launched = {"num_warps": tile.warps}
    if not variant.traits.tiled:
        return launched
    sizes = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    return sizes | variant.columns(tile) | launched | {"num_stages": tile.stages}


def label_of(row: Mapping[str, int]) -> str:
    """A configuration in a word: its values in the order of their names, those of its sizes first."""
    return ",".join(str(row[name]) for name in sorted(row))


def labels_of(kernel: Kernel) -> list[str]:
    """The word of each configuration of a kernel, in the order of CONFIGS."""
    return [label_of(configuration_of(kernel.variant, tile)) for tile in kernel.tiles]


def takes(variant: Variant, tile: Tile, sizes: tuple[int, int, int]) -> bool:
    """Whether the configuration `tile` supports a product of `sizes` (M, N, K)."""
    if not variant.traits.tiled:
        return True
    ragged = variant_rules.ragged(variant.masking)
    blocks = (tile.m, tile.n, tile.k)
    whole = all(
        variant.loading.descriptors or ragged[dimension] is not False or size % block == 0
        for dimension, size, block in zip("mnk", sizes, blocks, strict=True)
    )
    return whole and (variant.traits.looped or sizes[2] <= tile.k)


def tables(kernel: Kernel, *, alone: bool) -> dict[str, object]:
    """The tables of a kernel's file, by their names in the file; `alone`: it is one that stands alone."""
    tables_of: dict[str, object] = {"CONFIGS": [configuration_of(kernel.variant, tile) for tile in kernel.tiles]}
    needs = differing_needs_of(kernel) if alone else {}
    if needs:
        tables_of["SHARED_MEMORY"] = needs
    elif kernel.not_offered:
        tables_of["TOO_LARGE"] = {target: tuple(indices) for target, indices in kernel.not_offered}
    return tables_of
