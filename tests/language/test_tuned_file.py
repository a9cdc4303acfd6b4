"""The file of winners that a spec names by `tuned`: what is read of it, and what is refused."""

import re

import pytest

from generator.language import tuned_file
from generator.language.measured_winners import Fitted, Measured, Winner
from tests.helpers.tuned_file import AUTO, DEVICE, GOOD, LARGE, NONE, RATES, SMALL, changed


def test_a_good_file():
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


def test_times_are_read_where_they_are_there():
    def timed(found):
        found["winners"][0] |= {"seconds": 4e-6, "library_seconds": 3e-6}

    first, second = tuned_file.parse(changed(timed)).winners
    assert [first.seconds, first.library_seconds, second.seconds, second.library_seconds] == [4e-6, 3e-6, None, None]


def test_a_file_of_format_1_is_read_with_exponents_of_0():
    def older(found):
        found["format"] = 1
        for entry in found["rates"]:
            del entry["rates"][6:]

    new, old = tuned_file.parse(GOOD), tuned_file.parse(changed(older))
    assert old.winners == new.winners
    assert [entry.rates for entry in old.fitted] == [(*entry.rates[:6], 0.0, 0.0) for entry in new.fitted]


GONE = object()
#: Places in the file, each with values that it cannot have and what is said of them.
BAD = [
    ("format", (3,), "format 3, this version reads 2"),
    *((key, (GONE,), f"must contain ['{key}'] properties") for key in ("format", "device", "rates")),
    # What is written into source.
    ("device", ('a"b', "a\\", "a\nb", "\u00e9"), "must match pattern"),
    *((place, ('x__"',), "must match pattern") for place in ("rates.0.contract", "winners.0.kernel", "rates.0.kernel")),
    ("winners.0.config", ({'"': 1},), "must not contain"),
    ("winners.0.kernel", ("gemm_bf16_rcr_none__tiled",), "is not a kernel of the contract 'gemm_fp16_rcr_none'"),
    ("winners.1.k", (GONE,), "must contain ['k'] properties"),
    ("winners.1.n", (-1, 0), "must be bigger than or equal to 1"),
    ("winners.1.k", (1.5, "64", True), "must be integer"),
    ("winners.0.m", (2**31,), "must be smaller than or equal to 2147418112"),
    ("winners.0.seconds", (-1,), "must be bigger than or equal to 1e-12"),
    ("rates.0.rates", ([1.0] * 6 + [0.0], [1.0] * 6 + [0.0, 0.0, 1.0]), "rates; expected 8 or 10"),
    ("rates.0.rates", ([1.0] * 6 + [0.0, 0.0, 1.0, 1.0, 1.0],), "must contain only specified items"),
    ("rates.0.rates.2", (0, -1), "must be bigger than or equal to 1e-30"),
    ("rates.0.rates", ([1.0] * 6 + [0, 0, 0.0, 1.0],), "must be bigger than or equal to 1e-30"),
    ("rates.0.rates", ([1.0] * 6 + [0, 0, 10**400, 1.0],), "must be smaller than or equal to 1e+30"),
    *(
        (place, (float("nan"),), "NaN is not a finite number")
        for place in ("rates.0.rates.2", "rates.0.rates.6", "error")
    ),
    ("rates.0.rates.0", (1.5,), "must be multiple of 1"),
    ("rates.0.rates.7", (1,), "must be smaller than 1"),
    ("error", ("small",), "must be number"),
    ("error", (10**400,), "must be smaller than or equal to 1e+30"),
    *((place, ([64], 0), "must be object") for place in ("winners.0.config", "rates.0.config")),
    ("winners.0.config.BLOCK_M", ("64", True), "must be integer"),
    ("winners.0.config.BLOCK_M", (240,), "240 is not a value that a kernel has"),
    ("rates.0.config.num_stages", (-3,), "must be bigger than or equal to 1"),
    ("rates.0.config.num_stages", (10**9,), "must be smaller than or equal to 1048576"),
    # The rules of torch's products: a comparison that comes to nothing, or goes on to no later one.
    ("aten", ({"gemm": [["M", 1, 0, "aten"]]},), "cannot be validated by any definition, found 0"),
    ("aten", ({"gemm": [["M", 1, 1, "aten"]]},), "goes on to no later comparison"),
    ("aten", ({"gemm": [["rows", 1, "triton", "aten"]]},), "must be one of"),
    ("aten", ({"gemm": [["M", 1, "triton"]]},), "must contain at least 4 items"),
    ("aten", ({"gemm": []},), "must contain at least 1 items"),
]


@pytest.mark.parametrize(("place", "values", "words"), BAD)
def test_a_bad_file(place, values, words):
    *above, last = (int(key) if key.isdigit() else key for key in place.split("."))
    where = f"{last}.* " if words.startswith("must ") and values != (GONE,) else ""
    for value in values:

        def change(found, value=value):
            for key in above:
                found = found[key]
            if value is GONE:
                del found[last]
            else:
                found[last] = value

        with pytest.raises(ValueError, match=f"line 1: .*{where}{re.escape(words)}"):
            tuned_file.parse(changed(change))
