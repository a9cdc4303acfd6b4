"""The file of winners that a spec names by `tuned`: what is read of it, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from generator.language import tuned_file
from generator.language.measured_winners import Fitted, Measured, Winner
from tests.helpers.tuned_file import AUTO, DEVICE, GOOD, LARGE, NONE, RATES, SMALL, changed


def test_a_good_file() -> None:
    contract = "gemm_fp16_rcr_none"
    assert tuned_file.parse(GOOD) == Measured(
        DEVICE,
        tuple(
            Winner(contract, sizes, how, row)
            for sizes, how, row in (((4096, 4096, 64), AUTO, SMALL), ((128, 256, 512), NONE, LARGE))
        ),
        tuple(Fitted(contract, how, (SMALL, LARGE)[row], rates) for (how, row), rates in RATES.items()),
        0.034,
        0.05,
    )


def test_times_are_read_where_they_are_there() -> None:
    def timed(found: dict[str, Any]) -> None:
        found["winners"][0] |= {"seconds": 4e-6, "library_seconds": 3e-6}

    first, second = tuned_file.parse(changed(timed)).winners
    assert [first.seconds, first.library_seconds, second.seconds, second.library_seconds] == [4e-6, 3e-6, None, None]


def test_a_file_of_format_1_is_read_with_exponents_of_0() -> None:
    def older(found: dict[str, Any]) -> None:
        found["format"] = 1
        for entry in found["rates"]:
            del entry["rates"][6:]

    new, old = tuned_file.parse(GOOD), tuned_file.parse(changed(older))
    assert old.winners == new.winners
    assert [entry.rates for entry in old.fitted] == [(*entry.rates[:6], 0.0, 0.0) for entry in new.fitted]


def test_rates_may_say_how_many_bytes_are_moved() -> None:
    (first, *_) = tuned_file.parse(changed(lambda f: f["rates"][0]["rates"].extend([0.25, 4.0]))).fitted
    assert first.rates == (*tuned_file.parse(GOOD).fitted[0].rates, 0.25, 4.0)


GONE = object()
#: A place in the file, what is put there, and what is said of it.
BAD: list[tuple[str, Any, str]] = [
    ("format", 3, "format 3, this version reads 2"),
    ("format", "1", "format must be integer"),
    *((key, GONE, f"must contain ['{key}'] properties") for key in ("format", "device", "rates")),
    # What is written into source.
    *(("device", text, "device must match pattern") for text in ('a"b', "a\\", "a\nb", "\u00e9")),
    ("device", 200, "device must be string"),
    ("rates.0.contract", 'x"', "rates.0.contract must match pattern"),
    ("winners.0.kernel", 'x__"', "winners.0.kernel must match pattern"),
    ("rates.0.kernel", 'x__"', "rates.0.kernel must match pattern"),
    ("winners.0.config", {'"': 1}, "winners.0.config must not contain"),
    ("winners.0.kernel", "gemm_bf16_rcr_none__tiled", "is not a kernel of the contract 'gemm_fp16_rcr_none'"),
    # Sizes and times.
    ("winners", 1, "winners must be array"),
    ("winners.1.k", GONE, "winners.1 must contain ['k'] properties"),
    *(("winners.1.n", size, "winners.1.n must be bigger than or equal to 1") for size in (-1, 0)),
    *(("winners.1.k", size, "winners.1.k must be integer") for size in (1.5, "64", True)),
    ("winners.0.m", 2**31, "winners.0.m must be smaller than or equal to 2147418112"),
    ("winners.0.seconds", -1, "winners.0.seconds must be bigger than or equal to 1e-12"),
    # Rates.
    ("rates.0.rates", [1.0] * 6 + [0.0], "there are 7 rates; expected 8 or 10"),
    ("rates.0.rates", [1.0] * 6 + [0.0, 0.0, 1.0], "there are 9 rates; expected 8 or 10"),
    ("rates.0.rates", [1.0] * 6 + [0.0, 0.0, 1.0, 1.0, 1.0], "rates.0.rates must contain only specified items"),
    *(("rates.0.rates.2", rate, "rates.0.rates.2 must be bigger than or equal to 1e-30") for rate in (0, -1)),
    ("rates.0.rates", [1.0] * 6 + [0, 0, 0.0, 1.0], "rates.0.rates.8 must be bigger than or equal to 1e-30"),
    ("rates.0.rates", [1.0] * 6 + [0, 0, 10**400, 1.0], "rates.0.rates.8 must be smaller than or equal to 1e+30"),
    *((place, float("nan"), "NaN is not a finite number") for place in ("rates.0.rates.2", "rates.0.rates.6", "error")),
    ("rates.0.rates.2", "1", "rates.0.rates.2 must be number"),
    ("rates.0.rates.0", 1.5, "rates.0.rates.0 must be multiple of 1"),
    ("rates.0.rates.7", 1, "rates.0.rates.7 must be smaller than 1"),
    ("error", "small", "error must be number"),
    ("error", 10**400, "error must be smaller than or equal to 1e+30"),
    # Configurations.
    ("winners.0.config", [64], "winners.0.config must be object"),
    ("rates.0.config", 0, "rates.0.config must be object"),
    ("winners.0.config.BLOCK_M", "64", "winners.0.config.BLOCK_M must be integer"),
    ("winners.0.config.BLOCK_M", 240, "240 is not a value that a kernel has"),
    ("rates.0.config.num_stages", -3, "num_stages must be bigger than or equal to 1"),
    ("rates.0.config.num_stages", 10**9, "num_stages must be smaller than or equal to 1048576"),
    ("rates.0.config.SPLIT", True, "config.SPLIT must be integer"),
]


@pytest.mark.parametrize(("place", "value", "words"), BAD)
def test_a_bad_file(place: str, value: Any, words: str) -> None:
    def change(found: dict[str, Any]) -> None:
        at: Any = found
        *above, last = (int(key) if key.isdigit() else key for key in place.split("."))
        for key in above:
            at = at[key]
        if value is GONE:
            del at[last]
        else:
            at[last] = value

    with pytest.raises(ValueError, match=f"line 1: .*{re.escape(words)}"):
        tuned_file.parse(changed(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is not JSON"), ("{", "is not JSON"), ("[]", "must be object"), ("null", "must be object")],
)
def test_a_file_that_is_something_else(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tuned_file.parse(text)
