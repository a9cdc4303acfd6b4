"""The file of winners that a spec names by `tuned`: what is read of it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from generator.language import tuned_file
from generator.language.model import Fitted, Measured, Winner
from tests.helpers.tuned_file import AUTO, DEVICE, GOOD, LARGE, NONE, RATES, SMALL, changed


def test_a_good_file() -> None:
    contract = "gemm_fp16_rcr_none"
    assert tuned_file.parse(GOOD) == Measured(
        DEVICE,
        (Winner(contract, (4096, 4096, 64), AUTO, SMALL), Winner(contract, (128, 256, 512), NONE, LARGE)),
        tuple(Fitted(contract, how, (SMALL, LARGE)[row], rates) for (how, row), rates in RATES.items()),
        0.034,
        0.05,
    )


def test_times_are_read_where_they_are_there() -> None:
    def timed(found: dict[str, Any]) -> None:
        found["winners"][0] |= {"seconds": 2e-6, "library_seconds": 3e-6}

    first, second = tuned_file.parse(changed(timed)).winners
    assert [first.seconds, first.library_seconds, second.seconds, second.library_seconds] == [2e-6, 3e-6, None, None]


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


NO_RATES = "are not rates"
NO_SIZE = "a size is not a whole number of at least 1"
# What is wrong -> how the file is made so, and what is answered.
BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (lambda f: f.update(format=3), "its format is 3, and 2 is read"),
    "a format that is text": (lambda f: f.update(format="1"), "its format is '1', and 2 is read"),
    "no format": (lambda f: f.pop("format"), "KeyError: 'format'"),
    "no device": (lambda f: f.pop("device"), "KeyError: 'device'"),
    "no rates at all": (lambda f: f.pop("rates"), "KeyError: 'rates'"),
    "a device with a quote": (lambda f: f.update(device='a"b'), "'a\"b' is not a name"),
    "a device with a backslash": (lambda f: f.update(device="a\\"), r"'a\\\\' is not a name"),
    "a device with a line end": (lambda f: f.update(device="a\nb"), r"'a\\nb' is not a name"),
    "a device in another script": (lambda f: f.update(device="é"), "'é' is not a name"),
    "a device that is a number": (lambda f: f.update(device=200), "200 is not a name"),
    "a contract with a quote": (lambda f: f["rates"][0].update(contract='x"'), "'x\"' is not a name"),
    "a winner's kernel with a quote": (lambda f: f["winners"][0].update(kernel='x__"'), "'x__\"' is not a name"),
    "a kernel of rates with a quote": (lambda f: f["rates"][0].update(kernel='x__"'), "'x__\"' is not a name"),
    "a column with a quote": (lambda f: f["winners"][0].update(config={'"': 1}), "'\"' is not a name"),
    "a negative size": (lambda f: f["winners"][1].update(n=-1), NO_SIZE),
    "a size of 0": (lambda f: f["winners"][1].update(m=0), NO_SIZE),
    "half a size": (lambda f: f["winners"][1].update(k=1.5), NO_SIZE),
    "a size that is text": (lambda f: f["winners"][1].update(k="64"), NO_SIZE),
    "a winner without a size": (lambda f: f["winners"][1].pop("k"), "KeyError: 'k'"),
    "seven rates": (lambda f: f["rates"][0]["rates"].pop(), NO_RATES),
    "nine rates": (lambda f: f["rates"][0]["rates"].append(1.0), NO_RATES),
    "eleven rates": (lambda f: f["rates"][0]["rates"].extend([1.0] * 3), NO_RATES),
    "a B without bytes": (lambda f: f["rates"][0]["rates"].extend([0.0, 1.0]), NO_RATES),
    "a rate of 0": (lambda f: f["rates"][0].update(rates=[1, 1, 0, 1, 1, 1, 0, 0]), NO_RATES),
    "a negative rate": (lambda f: f["rates"][0].update(rates=[1, 1, -1, 1, 1, 1, 0, 0]), NO_RATES),
    "a rate that is no number": (lambda f: f["rates"][0].update(rates=[1, 1, float("nan"), 1, 1, 1, 0, 0]), NO_RATES),
    "a rate that is text": (lambda f: f["rates"][0].update(rates=[1, 1, "1", 1, 1, 1, 0, 0]), NO_RATES),
    "half a program": (lambda f: f["rates"][0].update(rates=[1.5, 1, 1, 1, 1, 1, 0, 0]), NO_RATES),
    "an exponent of 1": (lambda f: f["rates"][0].update(rates=[1, 1, 1, 1, 1, 1, 0, 1]), NO_RATES),
    "an exponent that is no number": (lambda f: f["rates"][0].update(rates=[1] * 6 + [float("nan"), 0]), NO_RATES),
    "a row that is a list": (lambda f: f["winners"][0].update(config=[64]), "AttributeError: 'list' object has no"),
    "a row that is a number": (lambda f: f["rates"][0].update(config=0), "AttributeError: 'int' object has no"),
    "a row of texts": (
        lambda f: f["winners"][0].update(config={"BLOCK_M": "64"}),
        "BLOCK_M is '64', which no kernel has",
    ),
    "a size that is true": (lambda f: f["winners"][1].update(m=True), NO_SIZE),
    "a tile that is no power of two": (
        lambda f: f["winners"][0].update(config=SMALL | {"BLOCK_M": 100}),
        "BLOCK_M is 100, which no kernel has",
    ),
    "a negative number of stages": (
        lambda f: f["rates"][0].update(config=SMALL | {"num_stages": -3}),
        "num_stages is -3, which no kernel has",
    ),
    "a thousand million stages": (
        lambda f: f["rates"][0].update(config=SMALL | {"num_stages": 10**9}),
        "num_stages is 1000000000, which no kernel has",
    ),
    "a split that is true": (lambda f: f["rates"][0].update(config=SMALL | {"SPLIT": True}), "SPLIT is True, which no"),
    "an error that is no number": (lambda f: f.update(error=float("nan")), "nan is not a share"),
    "an error that is text": (lambda f: f.update(error="small"), "could not convert string to float: 'small'"),
    "an error that is no float": (lambda f: f.update(error=10**400), "OverflowError: int too large"),
    "a rate that is no float": (lambda f: f["rates"][0]["rates"].append(10**400), "OverflowError: int too large"),
    "winners that are a number": (lambda f: f.update(winners=1), "TypeError: 'int' object is not iterable"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_a_bad_file(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("{", r"\{")):
        tuned_file.parse(changed(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "JSONDecodeError: "), ("{", "JSONDecodeError: "), ("[]", "TypeError: "), ("null", "TypeError: ")],
)
def test_a_file_that_is_something_else(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tuned_file.parse(text)
