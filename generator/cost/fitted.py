"""The fitted cost model: the time of a product with one configuration, with rates fitted to measurements.

Every family with measurements contains this file, for the sizes that were not measured.
"""

#: Arithmetic and memory traffic overlap: the time is their norm with this exponent.
SHARPNESS = 4
#: Cycles for 128 bytes to reach a multiprocessor of an H200: from one line of the L2, and from parts of two lines.
LINE, CROSSING = 2.0, 3.2
#: Products of tile elements per cycle of its matrix unit, along 128 bytes of K, for every type.
PRODUCTS = 32


def rated(row: dict[str, int], rates: tuple[float, ...], clock: float = 1.0, memory: float = 1.0) -> tuple[float, ...]:
    """A configuration, as in CONFIGS, and its rates, as `seconds` reads them.

    Rates were fitted to the configuration: programs that a multiprocessor runs at once; the least seconds of a step
    along K; seconds of a step for each resident program; seconds of a tile besides its steps; bytes per second of its
    loads; and the least seconds of a launch. They assume that the row pitches of A and B are multiples of 128 bytes.
    `clock` and `memory` are the clock rate and the memory bandwidth relative to those of the device of the rates.
    """
    resident, latency, step, tile, bandwidth, launch = rates
    sizes = row["BLOCK_M"], row["BLOCK_N"], row["BLOCK_K"], row.get("SPLIT", 1)
    return (*sizes, resident, latency / clock, step / clock, tile / clock, bandwidth * memory, launch)


def seconds(
    configurations: list[tuple[float, ...]],
    sizes: tuple[int, ...],
    multiprocessors: int,
    width: int,
    crossing: tuple[bool, bool] = (False, False),
) -> list[float]:
    """Seconds of an (M, N, K) product of elements of `width` bytes, with each of the configurations (`rated`).

    Of a batch, `sizes` begins with the number of products. `crossing` says for A and B whether the row pitch is not a
    multiple of 128 bytes.
    """
    *batch, M, N, K = sizes
    products = batch[0] if batch else 1
    moved = products * (M * K + K * N + M * N) * width
    found = []
    for m, n, k, split, resident, latency, step, tile, bandwidth, launch in configurations:
        tiles = products * -(-M // m) * -(-N // n) * split
        steps = -(-K // (k * split))
        if crossing[0] or crossing[1]:
            steps *= _slower(m, n, crossing)
        # A multiprocessor runs `resident` programs at a time; the remaining ones run together at the end.
        turns, left = divmod(-(-tiles // multiprocessors), resident)
        full = resident * step
        arithmetic = turns * ((full if full > latency else latency) * steps + tile)
        if left:
            part = left * step
            arithmetic += (part if part > latency else latency) * steps + tile
        traffic = moved / bandwidth
        found.append(launch + (arithmetic**SHARPNESS + traffic**SHARPNESS) ** (1 / SHARPNESS))
    return found


def _slower(m: float, n: float, crossing: tuple[bool, bool]) -> float:
    """The factor on a step's time, by the longer of products and loads, if row pitches cross 128-byte lines."""
    products = m * n / PRODUCTS
    loads = sum(lines * (CROSSING if crosses else LINE) for lines, crosses in zip((m, n), crossing))
    return max(products, loads) / max(products, LINE * (m + n))
