"""Numbers of a command line: whole and within limits, so that no call of a command asks for what cannot end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from generator.language.errors import shown
from generator.language.measured_values import LARGEST_SIZE

#: The most processes, or GPUs, of a call.
MOST_PROCESSES = 1024
#: The most sizes that the ranges of a call may have together.
MOST_SIZES = 10_000
#: The most elements of the matrices of a call: torch counts the bytes of each, with its padding, in 64 bits.
MOST_ELEMENTS = 2**58

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)|:([0-9]+)(?::(\*?)([0-9]+))?)?")


def whole_number(text: str, least: int, most: int) -> int:
    """The whole number that a text of ASCII digits is; raises ValueError for another, or one outside the limits."""
    # Leading zeros do not count, and int() refuses thousands of digits.
    digits = text.lstrip("0") or text[-1:]
    if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(most)) and least <= int(digits) <= most:
        return int(digits)
    raise ValueError(f"expected a whole number from {least} to {most}, got {shown(text)}")


def number_above_0(text: str) -> float:
    """The finite number above 0 that a text is; raises ValueError for another."""
    try:
        number = float(text) if text.isascii() else math.nan
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"expected a number above 0, got {shown(text)}")
    return number


def too_large(m: int, n: int, k: int, count: int = 1) -> str | None:
    """Why no call has the matrices of `count` products of sizes that a call takes one by one, or None."""
    elements = count * max(m * n, m * k, n * k)
    return (
        f"a matrix has {elements} elements, and at most {MOST_ELEMENTS} are possible"
        if elements > MOST_ELEMENTS
        else None
    )


def sizes_of(parts: Iterable[str], least: int = 1) -> tuple[int, ...]:
    """The sizes that numbers and ranges give, each once; none of a range such as `9-8`.

    A range has both its ends: `1-64` and `1:64` are 64 sizes, `16:64:16` has a step, and in `1:8192:*2` each size is
    twice the one before it. Raises ValueError for something else, for a range with `:` that ends before it begins, for
    a size that no kernel takes, and for more than `MOST_SIZES` sizes.
    """
    sizes: dict[int, None] = {}
    for part in parts:
        numbers = _range(part, least)
        if len(numbers) > MOST_SIZES or len(sizes) > MOST_SIZES:
            raise ValueError(f"at most {MOST_SIZES} sizes are possible, got {shown(part)}")
        sizes.update(dict.fromkeys(numbers))
    if len(sizes) > MOST_SIZES:
        raise ValueError(f"at most {MOST_SIZES} sizes are possible, got {len(sizes)}")
    return tuple(sizes)


def _range(part: str, least: int) -> Sequence[int]:
    """The sizes of a number or a range."""
    ends = _RANGE.fullmatch(part)
    if ends is None:
        forms = "1:64, 16:64:16 (a step) and 1:8192:*2 (a factor) are ranges too"
        raise ValueError(f"expected a size or a range such as 1-64, got {shown(part)}; {forms}")
    first, last = (whole_number(end, least, LARGEST_SIZE) for end in (ends[1], ends[2] or ends[3] or ends[1]))
    if ends[3] is not None and last < first:
        raise ValueError(f"the range {shown(part)} ends before it begins")
    if not ends[4]:
        return range(first, last + 1, whole_number(ends[5] or "1", 1, LARGEST_SIZE))
    factor = whole_number(ends[5], 2, LARGEST_SIZE)
    if first == 0:
        raise ValueError(f"the range {shown(part)} begins at 0, of which each multiple is 0")
    numbers = [first]
    while numbers[-1] * factor <= last:
        numbers.append(numbers[-1] * factor)
    return numbers
