"""The fitted cost model: the time of a product with one configuration, with rates fitted to measurements.

Every family with measurements contains this file, for the sizes that were not measured.
"""

#: Arithmetic and memory traffic overlap: the time is their norm with this exponent.
SHARPNESS = 4
#: Cycles for 128 bytes to reach a multiprocessor of an H200: from one line of the L2, and from parts of two lines.
LINE, CROSSING = 2.0, 3.2
#: Products of tile elements per cycle of its matrix unit, along 128 bytes of K, for every type.
PRODUCTS = 32


def seconds(
    row: dict[str, int],
    rates: tuple[float, ...],
    sizes: tuple[int, ...],
    multiprocessors: int,
    width: int,
    crossing: tuple[bool, bool] = (False, False),
) -> float:
    """Seconds of an (M, N, K) product of elements of `width` bytes; of a batch, `sizes` begins with the number.

    `row` is the configuration as in CONFIGS.

    `rates` were fitted to the configuration: programs that a multiprocessor runs at once; the least seconds of a step
    along K; seconds of a step for each resident program; seconds of a tile besides its steps; bytes per second of its
    loads; and the least seconds of a launch. They assume that the row pitches of A and B are multiples of 128 bytes;
    `crossing` says for each whether that is not so.
    """
    *batch, M, N, K = sizes
    products = batch[0] if batch else 1
    resident, latency, step, tile, bandwidth, launch = rates
    split = row.get("SPLIT", 1)
    tiles = products * -(-M // row["BLOCK_M"]) * -(-N // row["BLOCK_N"]) * split
    steps = -(-K // (row["BLOCK_K"] * split))
    # A multiprocessor runs `resident` programs at a time; the remaining ones run together at the end.
    turns, left = divmod(-(-tiles // multiprocessors), resident)
    slower = _slower(row, crossing)
    arithmetic = turns * (max(latency, resident * step) * slower * steps + tile)
    if left:
        arithmetic += max(latency, left * step) * slower * steps + tile
    traffic = products * (M * K + K * N + M * N) * width / bandwidth
    together: float = (arithmetic**SHARPNESS + traffic**SHARPNESS) ** (1 / SHARPNESS)
    return launch + together


def _slower(row: dict[str, int], crossing: tuple[bool, bool]) -> float:
    """The factor on a step's time, by the longer of products and loads, if row pitches cross 128-byte lines."""
    m, n = row["BLOCK_M"], row["BLOCK_N"]
    products = m * n / PRODUCTS
    loads = sum(lines * (CROSSING if crosses else LINE) for lines, crosses in zip((m, n), crossing))
    return max(products, loads) / max(products, LINE * (m + n))
