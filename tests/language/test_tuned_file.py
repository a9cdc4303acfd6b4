"""The file of winners that a spec names by `tuned`: what is read of it, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
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


# What is wrong -> how the file is made so, and what is answered.
BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (lambda f: f.update(format=3), "format 3, this version reads 2"),
    "a format that is text": (lambda f: f.update(format="1"), 'format must be integer, found "1"'),
    "no format": (lambda f: f.pop("format"), "the value must contain ['format'] properties"),
    "no device": (lambda f: f.pop("device"), "the value must contain ['device'] properties"),
    "no rates at all": (lambda f: f.pop("rates"), "the value must contain ['rates'] properties"),
    "a device with a quote": (
        lambda f: f.update(device='a"b'),
        'device must match pattern ^[ !#-\\[\\]-~]+$, found "a\\"b"',
    ),
    "a device with a backslash": (
        lambda f: f.update(device="a\\"),
        'device must match pattern ^[ !#-\\[\\]-~]+$, found "a\\\\"',
    ),
    "a device with a line end": (
        lambda f: f.update(device="a\nb"),
        'device must match pattern ^[ !#-\\[\\]-~]+$, found "a\\nb"',
    ),
    "a device in another script": (
        lambda f: f.update(device="é"),
        'device must match pattern ^[ !#-\\[\\]-~]+$, found "\\u00e9"',
    ),
    "a device that is a number": (lambda f: f.update(device=200), "device must be string, found 200"),
    "a contract with a quote": (
        lambda f: f["rates"][0].update(contract='x"'),
        'rates.0.contract must match pattern ^[ !#-\\[\\]-~]+$, found "x\\""',
    ),
    "a winner's kernel with a quote": (
        lambda f: f["winners"][0].update(kernel='x__"'),
        'winners.0.kernel must match pattern ^[ !#-\\[\\]-~]+$, found "x__\\""',
    ),
    "a kernel of rates with a quote": (
        lambda f: f["rates"][0].update(kernel='x__"'),
        'rates.0.kernel must match pattern ^[ !#-\\[\\]-~]+$, found "x__\\""',
    ),
    "a column with a quote": (
        lambda f: f["winners"][0].update(config={'"': 1}),
        "winners.0.config must not contain {'\"'} properties",
    ),
    "a negative size": (
        lambda f: f["winners"][1].update(n=-1),
        "winners.1.n must be bigger than or equal to 1, found -1",
    ),
    "a size of 0": (lambda f: f["winners"][1].update(m=0), "winners.1.m must be bigger than or equal to 1, found 0"),
    "half a size": (lambda f: f["winners"][1].update(k=1.5), "winners.1.k must be integer, found 1.5"),
    "a size that is text": (lambda f: f["winners"][1].update(k="64"), 'winners.1.k must be integer, found "64"'),
    "a winner without a size": (lambda f: f["winners"][1].pop("k"), "winners.1 must contain ['k'] properties"),
    "seven rates": (lambda f: f["rates"][0]["rates"].pop(), "rates.0.rates: there are 7 rates; expected 8 or 10"),
    "nine rates": (lambda f: f["rates"][0]["rates"].append(1.0), "rates.0.rates: there are 9 rates; expected 8 or 10"),
    "eleven rates": (
        lambda f: f["rates"][0]["rates"].extend([1.0] * 3),
        "rates.0.rates must contain only specified items, found [2, 3e-07, ",
    ),
    "a B without bytes": (
        lambda f: f["rates"][0]["rates"].extend([0.0, 1.0]),
        "rates.0.rates.8 must be bigger than or equal to 1e-30, found 0.0",
    ),
    "a rate of 0": (
        lambda f: f["rates"][0].update(rates=[1, 1, 0, 1, 1, 1, 0, 0]),
        "rates.0.rates.2 must be bigger than or equal to 1e-30, found 0",
    ),
    "a negative rate": (
        lambda f: f["rates"][0].update(rates=[1, 1, -1, 1, 1, 1, 0, 0]),
        "rates.0.rates.2 must be bigger than or equal to 1e-30, found -1",
    ),
    "a rate that is no number": (
        lambda f: f["rates"][0].update(rates=[1, 1, float("nan"), 1, 1, 1, 0, 0]),
        "NaN is not a finite number",
    ),
    "a rate that is text": (
        lambda f: f["rates"][0].update(rates=[1, 1, "1", 1, 1, 1, 0, 0]),
        'rates.0.rates.2 must be number, found "1"',
    ),
    "half a program": (
        lambda f: f["rates"][0].update(rates=[1.5, 1, 1, 1, 1, 1, 0, 0]),
        "rates.0.rates.0 must be multiple of 1, found 1.5",
    ),
    "an exponent of 1": (
        lambda f: f["rates"][0].update(rates=[1, 1, 1, 1, 1, 1, 0, 1]),
        "rates.0.rates.7 must be smaller than 1, found 1",
    ),
    "an exponent that is no number": (
        lambda f: f["rates"][0].update(rates=[1] * 6 + [float("nan"), 0]),
        "NaN is not a finite number",
    ),
    "a row that is a list": (
        lambda f: f["winners"][0].update(config=[64]),
        "winners.0.config must be object, found [64]",
    ),
    "a row that is a number": (lambda f: f["rates"][0].update(config=0), "rates.0.config must be object, found 0"),
    "a row of texts": (
        lambda f: f["winners"][0].update(config={"BLOCK_M": "64"}),
        'winners.0.config.BLOCK_M must be integer, found "64"',
    ),
    "a size that is true": (lambda f: f["winners"][1].update(m=True), "winners.1.m must be integer, found true"),
    "a tile that is no power of two": (
        lambda f: f["winners"][0].update(config=SMALL | {"BLOCK_M": 240}),
        "winners.0.config.BLOCK_M: 240 is not a value that a kernel has",
    ),
    "a negative number of stages": (
        lambda f: f["rates"][0].update(config=SMALL | {"num_stages": -3}),
        "rates.0.config.num_stages must be bigger than or equal to 1, found -3",
    ),
    "a thousand million stages": (
        lambda f: f["rates"][0].update(config=SMALL | {"num_stages": 10**9}),
        "rates.0.config.num_stages must be smaller than or equal to 1048576, found 1000000000",
    ),
    "a split that is true": (
        lambda f: f["rates"][0].update(config=SMALL | {"SPLIT": True}),
        "rates.0.config.SPLIT must be integer, found true",
    ),
    "an error that is no number": (lambda f: f.update(error=float("nan")), "NaN is not a finite number"),
    "an error that is text": (lambda f: f.update(error="small"), 'error must be number, found "small"'),
    "an error that is no float": (
        lambda f: f.update(error=10**400),
        "error must be smaller than or equal to 1e+30, found 1",
    ),
    "a rate that is no float": (
        lambda f: f["rates"][0]["rates"].append(10**400),
        "rates.0.rates.8 must be smaller than or equal to 1e+30, found 1",
    ),
    "a kernel of another contract": (
        lambda f: f["winners"][0].update(kernel="gemm_bf16_rcr_none__tiled"),
        "winners.0.kernel: 'gemm_bf16_rcr_none__tiled' is not a kernel of the contract 'gemm_fp16_rcr_none'",
    ),
    "a negative time": (
        lambda f: f["winners"][0].update(seconds=-1),
        "winners.0.seconds must be bigger than or equal to 1e-12, found -1",
    ),
    "a size of more than 32 bits": (
        lambda f: f["winners"][0].update(m=2**31),
        "winners.0.m must be smaller than or equal to 2147418112, found 2147483648",
    ),
    "winners that are a number": (lambda f: f.update(winners=1), "winners must be array, found 1"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_a_bad_file(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"line 1: {message}")):
        tuned_file.parse(changed(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is not JSON"), ("{", "is not JSON"), ("[]", "must be object"), ("null", "must be object")],
)
def test_a_file_that_is_something_else(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tuned_file.parse(text)
