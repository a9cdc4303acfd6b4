"""Read the file of winners that `tune` writes, and check every value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from generator.language.model import Fitted, Measured, Rates, Winner

#: The format of the file. Format 1, whose rates have no exponents, is read too; others are refused.
FORMAT = 2
#: The rates that are positive, of which the first is a whole number, and the exponents after them. Two more, which are
#: positive too, may follow.
_POSITIVE, _EXPONENTS, _MORE = 6, 2, 2


def parse(text: str) -> Measured:
    """The measurements in the text of a file; raise ValueError with the reason if it is not such a file."""
    try:
        found = contents(text)
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, and {FORMAT} is read")
        device = _printable(found["device"])
        winners = tuple(
            Winner(
                _printable(entry["contract"]),
                (*((entry["batch"],) if "batch" in entry else ()), entry["m"], entry["n"], entry["k"]),
                _how(entry["kernel"]),
                _row(entry["config"]),
                *(_seconds(entry.get(key)) for key in ("seconds", "library_seconds")),
            )
            for entry in found["winners"]
        )
        fitted = tuple(
            Fitted(_printable(entry["contract"]), _how(entry["kernel"]), _row(entry["config"]), _rates(entry["rates"]))
            for entry in found["rates"]
        )
        if not all(_whole(size) for winner in winners for size in winner.sizes):
            raise ValueError("a size is not a whole number of at least 1")
        return Measured(device, winners, fitted, _share(found["error"]), _share(found["regret"]))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def contents(text: str) -> Any:
    """What is in the text of a file; of format 1 as of the format now, with exponents of 0.

    Rates are then less accurate until `tune --again` has fitted them to the journal. Raises ValueError for text that is
    not JSON, and KeyError or TypeError if it is not such a file.
    """
    found = json.loads(text)
    if found["format"] == 1:
        rates = [{**entry, "rates": [*entry["rates"], *[0.0] * _EXPONENTS]} for entry in found["rates"]]
        found = {**found, "format": FORMAT, "rates": rates}
    return found


def _printable(text: Any) -> str:
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or {'"', "\\"} & set(text):
        raise ValueError(f"{text!r} is not a name")
    return text


def _how(kernel: Any) -> str:
    """The implementation part of a kernel's name, by which one contract's measurements serve others too."""
    return _printable(kernel).partition("__")[2]


#: The columns of a configuration that are powers of two, or the sum of so many; and the largest value of a column.
_POWERS = {"BLOCK_M": 1, "BLOCK_N": 2, "BLOCK_K": 1, "num_warps": 1}
_LARGEST = {"num_warps": 64, "num_stages": 64}


def _row(config: Any) -> Mapping[str, int]:
    """A configuration with values that an entry of `CONFIGS` may have."""
    for name, value in config.items():
        if not _whole(value) or value > _LARGEST.get(name, 1 << 20) or value.bit_count() > _POWERS.get(name, 64):
            raise ValueError(f"{_printable(name)} is {value!r}, which no kernel has")
    return {_printable(name): value for name, value in config.items()}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _seconds(value: Any) -> float | None:
    """A time, or None if it was not measured."""
    return None if value is None else _share(value)


def _share(value: Any) -> float:
    """A finite number."""
    if not math.isfinite(float(value)):
        raise ValueError(f"{value!r} is not a share")
    return float(value)


def _rates(values: Any) -> Rates:
    numbers = all(isinstance(value, int | float) and math.isfinite(value) for value in values)
    if not numbers or len(values) not in (_POSITIVE + _EXPONENTS, _POSITIVE + _EXPONENTS + _MORE):
        raise ValueError(f"{values!r} are not rates")
    exponents = values[_POSITIVE : _POSITIVE + _EXPONENTS]
    positive = [*values[:_POSITIVE], *values[_POSITIVE + _EXPONENTS :]]
    if min(positive) <= 0 or positive[0] != int(positive[0]) or not all(-1 < value < 1 for value in exponents):
        raise ValueError(f"{values!r} are not rates")
    return tuple(values)
