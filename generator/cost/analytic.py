"""An analytic cost model: predicts the cost of a configuration without measurements, as the source of a function.

A kernel's file contains this source and chooses its configuration by it. A family with `select: fastest` contains it in
a form that compares kernels. By that form the tuner ranks candidates, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

from generator.language.model import Variant
from generator.plan.devices import Device
from generator.plan.shared_memory import staged

#: The numbers of rows for which one configuration is chosen where M has no part in the choice (`invariant: rows`).
TYPICAL_M = (1, 16, 64, 256, 1024, 4096)

#: Multiplications of two 16-bit numbers per second and multiprocessor, close to what cuBLAS reaches on an H200. Other
#: widths are in proportion.
PRODUCTS = 2.6e12
#: The factor for fp32 without the matrix unit, of an H200, and how much longer products take whose right operand has K
#: contiguous, so that its elements of one index along K come from the same banks of shared memory.
_IEEE = 0.07
_BY_COLUMN = "1.6"
#: How much longer a summed product takes, whose elements each thread loads anew.
_SUMMED = "2"
#: Of an H200: the products in the time of a conversion of an element of B, where the matrix unit reads it from
#: registers or from shared memory again; of an addition to the scaled sum; and of the latency of a step, longer if it
#: converts.
_CONVERSION = {"exchanged": 60, "direct": 120}
#: What fragment order saves of a conversion, in such products: measured in exchanged products on an H100.
_IN_FRAGMENTS = 35
_SCALING = 12
_LATENCY, _CONVERTED_LATENCY, _IEEE_LATENCY = "400_000", "3_000_000", "28_000"
#: Bytes that a kernel reads and writes per second, of an H200.
_BYTES = 3.4e12
#: Seconds that the launch of a second kernel adds to a call, of an H200.
_LAUNCH = 2e-6


def cost_body(v: Variant) -> tuple[str, ...]:
    """The lines of the function `cost(row)` in a kernel's file, which compares the configurations of one kernel.

    They read `row`, a configuration as in CONFIGS; M, N and K, and the number B of several products; `multiprocessors`
    and `shared` of the device, as in `Device`; and `triton.cdiv`. The result is in products of two elements, which one
    multiprocessor computes one after the other: for each index along K, or for all of K if programs share the K of a
    tile.
    """
    # A program with one whole tile has no products of other tiles that hide its loads.
    whole = not (v.traits.walks or v.traits.divides_k)
    return _body(v.multiplied, bounded=v.loading.descriptors and whole and v.dtype.precision != "ieee")


def comparable_body(v: Variant) -> tuple[str, ...]:
    """The lines of a function like `cost(row)` whose results are comparable between the kernels of a contract.

    They read the names that the lines of `cost_body` read. The result is for all of K in every kernel. The time for
    loading the tiles is a lower bound in every kernel with tiles: kernels that do not count the loads would else be
    preferred to those that do. The launch of a second kernel and the time of one that decodes B count, which all
    configurations of a kernel have alike.
    """
    *lines, result = _body(v.multiplied, bounded=v.traits.tiled and v.dtype.precision != "ieee")
    if not v.traits.divides_k:
        indices = 'max(K, row["BLOCK_K"])' if v.traits.tiled else "max(K, 1)"
        result = f"{result} * {indices}"
    if v.traits.decodes:
        # All multiprocessors read the elements and write them.
        b = v.dtype.stored_b
        time = f"{(b.bits + b.multiplied_bits) / 8 / _BYTES * _rate(v):.2f}"
        lines.append(f"# Decoding an element of B takes as long as {time} products.")
        result = f"{result} + K * {_columns(v, 'N')} * {time}"
    if v.traits.twice:
        lines.append(f"# The launch of the second kernel takes as long as {round(_LAUNCH * _rate(v)):_} products.")
        result = f"{result} + {round(_LAUNCH * _rate(v)):_}"
    return (*lines, result)


def seconds(v: Variant, config: Mapping[str, int], sizes: tuple[int, ...], device: Device) -> float:
    """The predicted seconds of the kernel of `v` with `config`, an element of its `CONFIGS`, on `device`.

    `sizes` are M, N and K, after the number of products if there is a batch. It can rank configurations and find those
    that are far too slow; it does not predict times accurately.
    """
    *batch, m, n, k = sizes
    cost = _function(comparable_body(v))
    products = cost(config, math.prod(batch), m, n, k, device.multiprocessors, device.shared_memory)
    return products / _rate(v)


def _rate(v: Variant) -> float:
    """Products of two elements per second and multiprocessor."""
    return PRODUCTS * (_IEEE if v.dtype.precision == "ieee" else 16 / v.dtype.stored_a.multiplied_bits)


@cache
def _function(body: tuple[str, ...]) -> Callable[..., float]:
    """The function `cost` with the lines `body`; what they read beside `row` is a parameter."""
    names: dict[str, Any] = {"triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b))}
    exec("\n    ".join(("def cost(row, B, M, N, K, multiprocessors, shared):", *body)), names)
    cost: Callable[..., float] = names["cost"]
    return cost


def _body(v: Variant, *, bounded: bool) -> tuple[str, ...]:
    """The lines of `cost(row)`; if `bounded`, the cost is not less than that of loading the tiles."""
    t = v.traits
    loaded = loaded_columns(v, _columns(v, "n"))
    tiles = "triton.cdiv(M, m) * triton.cdiv(N, n)"
    if v.symmetric:
        # Those on and above the diagonal.
        tiles = "triton.cdiv(M, 2 * n) * (n // m) * (triton.cdiv(N, n) // 2 * 2 + 1)"
    programs = f"{'B * ' * v.products.several}{tiles}{' * parts' * t.splits}"
    result = " + m * n * 4" * staged(v)
    lines = ['m, n, depth = row["BLOCK_M"], row["BLOCK_N"], row["BLOCK_K"] * row["num_stages"]']
    if not t.tiled:
        lines = ["m, n, depth = 1, 1, 1"]
    elif t.splits:
        lines.append('parts, step = row["SPLIT"], row["BLOCK_K"]')
    elif t.walks_steps:
        lines.append('step = row["BLOCK_K"]')
    comments, area = _products(v)
    lines += [
        f"turns = triton.cdiv({programs}, multiprocessors)",
        f"resident = max(1, min(turns, shared // ((m + {loaded}) * depth * {width(v)}{result})))",
        *comments,
    ]
    # The tiles that a multiprocessor computes one after the other, times the indices along K if they are divided.
    share = "turns"
    if t.splits:
        share = "turns * triton.cdiv(K, step * parts) * step"
    elif t.walks_steps:
        share = "share"
        lines.append(f"share = triton.cdiv({tiles} * triton.cdiv(K, step), multiprocessors) * step")
    latency = _CONVERTED_LATENCY if v.dtype.stored_b.converted else _LATENCY
    each = f"{area} + {_IEEE_LATENCY if v.dtype.precision == 'ieee' else latency} / (depth * resident)"
    products = f"{share} * ({each})"
    if len(comments) > 1:
        lines.append(f"each = {each}")
        products = f"{share} * each"
    why, sums = _partial_sums(v)
    if bounded:
        # On an H200 a multiprocessor loads 64 bytes per cycle, 1.1e11 per second, and a load takes 1.4e-6 seconds.
        lines += [
            f"products = {products}",
            "# Loading an element takes as long as 47 products, and longer if less than 154,000 bytes are in flight.",
            f'under_way = resident * (m + {loaded}) * max(depth - row["BLOCK_K"], row["BLOCK_K"]) * {width(v)}',
            f"loads = {share} * (m + {loaded}) * 47 * max(1, 154_000 / under_way)",
        ]
        products = "max(products, loads)"
    elif t.splits:
        lines.append(f"sums = {products}")
        products = "sums"
    return (*lines, *why, f"return {products}{sums}")


def _columns(v: Variant, n: str) -> str:
    """The columns of B of `n` columns of the result."""
    return n if v.epilogue.order is None else f"2 * {n}"


def _products(v: Variant) -> tuple[list[str], str]:
    """The comments on the products of a tile for each index along K, and their number.

    The matrix unit, which fp32 does not use, has at least 64 rows. Plain arithmetic adds to the products.
    """
    columns, note, gated = _columns(v, "n"), " (the matrix unit has at least 64 rows)", v.epilogue.order is not None
    if v.dtype.precision == "ieee":
        factor, because = (_BY_COLUMN, "K is contiguous on the right") if by_column(v) else ("", "")
        if v.product == "summed":
            factor, because = _SUMMED, "each is of two loads"
        note = f" (times {factor}: {because})" if factor else ""
        area = f"{factor and f'{factor} * '}m * {columns}"
    elif v.product == "exchanged":
        area = f"m * max({columns}, {128 if gated else 64})"
    else:
        area = f"{'2 * ' * gated}max(m, 64) * n"
    comments = [f"# Products of a step{note}, and the load latency that is not hidden."]
    if v.dtype.stored_b.converted:
        time = _CONVERSION[v.product] - _IN_FRAGMENTS * v.dtype.fragments
        comments.append(f"# Converting an element of B takes as long as {time} products, and each step waits for it.")
        area += f" + {columns} * {time}"
    if any(storage.scales_sums for storage in v.dtype.stored):
        comments.append(f"# Scaling an element of a step's sum takes as long as {_SCALING} products.")
        area += f' + m * {columns} * {_SCALING} // row["BLOCK_K"]'
    return comments, area


def by_column(v: Variant) -> bool:
    """Whether the right operand of the product, which is A if it is exchanged, has K contiguous."""
    if v.product == "summed":
        return False
    return v.layout.a != "column" if v.product == "exchanged" else v.layout.b != "row"


def _partial_sums(v: Variant) -> tuple[tuple[str, ...], str]:
    """The comment on the cost of partial sums, and the term for it; both empty if one program sums all of K."""
    t = v.traits
    if t.joins:
        why = "Writing or reading a partial sum takes about as long as 512 products; all multiprocessors read them."
        read = "parts * M * N * 256" if v.symmetric else "parts * M * N * 512"
        return (f"# {why}",), f" + turns * m * n * 512 + {read} / multiprocessors"
    if t.splits:
        return ("# An atomic add takes about as long as 512 products.",), " + turns * m * n * 512"
    if t.walks_steps:
        why = "Two partial sums are written and read; each access takes about as long as 512 products."
        return (f"# {why}",), " + 4 * m * n * 512"
    return (), ""


def loaded_columns(v: Variant, columns: str) -> str:
    """The columns of B that a tile loads, as the number of columns of A's type that have as many bytes."""
    ratio = Fraction(v.dtype.stored_b.bits, 8 * width(v))
    more, narrower = f"{columns} * {ratio.numerator}" if ratio.numerator > 1 else columns, ratio.denominator
    return more if narrower == 1 else f"{more} // {narrower}"


def width(v: Variant) -> int:
    """Bytes of a container of A."""
    return v.dtype.stored_a.width
