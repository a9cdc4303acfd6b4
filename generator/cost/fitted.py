"""How long a product takes by one row of a kernel's table: a model of the device, its rates fitted to measurements.

The model stands in every family that has a measured table, for the sizes that were not measured.
"""

#: How sharply the longer of arithmetic and memory traffic decides: the exponent of their norm.
SHARPNESS = 4
#: Cycles in which a multiprocessor of an H200 takes in 128 bytes: a line of the L2, and as much of two of them.
LINE, CROSSING = 2.0, 3.2
#: Products of tile elements along 128 bytes of K that its matrix unit does in a cycle, of every type.
PRODUCTS = 32


def seconds(
    row: dict[str, int],
    rates: tuple[float, ...],
    sizes: tuple[int, ...],
    multiprocessors: int,
    width: int,
    crossing: tuple[bool, bool] = (False, False),
) -> float:
    """Seconds of an (M, N, K) product, or of as many as stand in front of these, of elements of `width` bytes.

    `row` are the tile's sizes as CONFIGS has them.

    `rates` are what was fitted to the row: how many programs a multiprocessor holds, the seconds that a step along K
    takes at least, those it adds for each program beside it, those a tile takes beside its steps, the bytes a second
    that its loads reach, and the seconds that a launch takes at least. They are of lines of A and B that are lines of
    the L2; `crossing` tells of each whether it lies across them.
    """
    *batch, M, N, K = sizes
    products = batch[0] if batch else 1
    resident, latency, step, tile, bandwidth, launch = rates
    split = row.get("SPLIT", 1)
    tiles = products * -(-M // row["BLOCK_M"]) * -(-N // row["BLOCK_N"]) * split
    steps = -(-K // (row["BLOCK_K"] * split))
    # A multiprocessor works through its programs as many at a time as it holds, the last ones among themselves.
    turns, left = divmod(-(-tiles // multiprocessors), resident)
    slower = _slower(row, crossing)
    arithmetic = turns * (max(latency, resident * step) * slower * steps + tile)
    if left:
        arithmetic += max(latency, left * step) * slower * steps + tile
    traffic = products * (M * K + K * N + M * N) * width / bandwidth
    together: float = (arithmetic**SHARPNESS + traffic**SHARPNESS) ** (1 / SHARPNESS)
    return launch + together


def _slower(row: dict[str, int], crossing: tuple[bool, bool]) -> float:
    """How many times as long a step takes, by the longer of products and loads, where lines cross those of the L2."""
    m, n = row["BLOCK_M"], row["BLOCK_N"]
    products = m * n / PRODUCTS
    loads = sum(lines * (CROSSING if crosses else LINE) for lines, crosses in zip((m, n), crossing))
    return max(products, loads) / max(products, LINE * (m + n))
