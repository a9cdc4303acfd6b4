"""The fitted cost model: the time of a product with one configuration, with rates fitted to measurements.

Every family with measurements contains this file, for the sizes that were not measured.
"""

from typing import TypeAlias

#: A configuration with its rates, as `rated` returns it: the extents of its tile along M, N and K; the parts of K; the
#: programs that a multiprocessor runs at once; the seconds of a step by the number of resident programs; the seconds
#: of a tile besides its steps; bytes per second; the seconds of a launch; the exponents of rows and of waves; cycles of
#: a step for each element along K; and the multiples of traffic for B and for partial sums.
Rated: TypeAlias = tuple[
    int, int, int, int, int, tuple[float, ...], float, float, float, float, float, float, float, float
]

#: A step takes the norm, with this exponent, of its least seconds and of those of the programs that share the unit.
SHARPNESS = 4
#: Cycles for 128 bytes to reach a multiprocessor of an H200: from one line of the L2, and from parts of two lines.
LINE, CROSSING = 2.0, 3.2
#: Products of tile elements per cycle of its matrix unit, along 128 bytes of K, for every type.
PRODUCTS = 32
#: Cycles per second of an H200 that multiplies.
CYCLES = 1.5e9
#: The least part of the rows, and of the waves, that still makes a step faster: fewer rows or tiles leave its latency.
LEAST = 0.25


def rated(row: dict[str, int], rates: tuple[float, ...], clock: float = 1.0, memory: float = 1.0) -> Rated:
    """A configuration, as in CONFIGS, and its rates, as `seconds` reads them.

    The rates are: programs that a multiprocessor runs at once; the least seconds of a step along K; seconds of a step
    for each resident program; seconds of a tile besides its steps; bytes per second of its loads; the seconds that a
    launch adds to arithmetic and to traffic; and two exponents in the seconds of a step, of the part of the tiles' rows
    that are rows of C, and of the part of all waves that has tiles. All but the first were fitted to the configuration.
    They assume that the row pitches of A and B are multiples of 128 bytes. Two more may follow, as multiples of
    the bytes of an element of A: what is moved for an element of B (else 1), and for each partial sum of an element of
    C (else 0). `clock` and `memory` are the clock rate and the memory bandwidth relative to those of the device of the
    rates.
    """
    resident, latency, step, tile, bandwidth, launch, rows, wave, *moved = rates
    # The cycles of a step for each element along K; a clock rate does not change them.
    cycles = step * CYCLES / row["BLOCK_K"]
    latency, step, tile, bandwidth = latency / clock, step / clock, tile / clock, bandwidth * memory
    of_b, of_sum = moved or (1.0, 0.0)
    split = row.get("SPLIT", 1)
    counts = range(1, int(resident) + 1)
    # The seconds of a step if 0, 1, ... programs are resident.
    steps = (0.0, *((latency**SHARPNESS + (count * step) ** SHARPNESS) ** (1 / SHARPNESS) for count in counts))
    extents, of_sums = (row["BLOCK_M"], row["BLOCK_N"], row["BLOCK_K"]), of_sum * split if split > 1 else 0.0
    return *extents, split, int(resident), steps, tile, bandwidth, launch, rows, wave, cycles, of_b, of_sums


def seconds(
    configurations: list[Rated],
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
    a, b, c = products * M * K * width, products * K * N * width, products * M * N * width
    moved, crosses = a + c, crossing[0] or crossing[1]
    times = []
    for m, n, k, split, resident, step, tile, bandwidth, launch, rows, wave, cycles, of_b, of_sums in configurations:
        down = -(-M // m)
        tiles = products * down * -(-N // n) * split
        # The tiles that a multiprocessor computes, of which it runs `resident` at a time and the rest at the end.
        own = -(-tiles // multiprocessors)
        part, waves = M / (down * m), tiles / (own * multiprocessors)
        steps = -(-K // (k * split)) * (part if part > LEAST else LEAST) ** rows  # noqa: FURB136
        steps *= (waves if waves > LEAST else LEAST) ** wave  # noqa: FURB136
        if crosses:
            steps *= _slower(m, n, cycles * 128 / width, crossing)
        if resident == 1:
            arithmetic = launch + own * (step[1] * steps + tile)
        else:
            turns, left = divmod(own, resident)
            arithmetic = launch + turns * (step[resident] * steps + tile)
            if left:
                arithmetic += step[left] * steps + tile
        traffic = launch + (moved + b * of_b) / bandwidth
        # Arithmetic and memory traffic overlap in part; partial sums are added behind both.
        time = (arithmetic * arithmetic + traffic * traffic) ** 0.5
        times.append(time + c * of_sums / bandwidth if of_sums else time)
    return times


def _slower(m: float, n: float, cycles: float, crossing: tuple[bool, bool]) -> float:
    """The factor on a step's time if row pitches cross 128-byte lines, by the longest of what it may wait for.

    That is products, loads, and `cycles`, what a step of 128 bytes along K takes with other row pitches: where it waits
    for something else, such as the promotion of sums, longer loads may still fit in.
    """
    usual = max(m * n / PRODUCTS, LINE * (m + n), cycles)
    loads = sum(lines * (CROSSING if crosses else LINE) for lines, crosses in zip((m, n), crossing))
    return max(usual, loads) / usual
