"""Numbers and ranges of a command line: what is read, and what is refused with the limits."""

import pytest

from generator.bounds import runtime_theorems
from generator.language.call_numbers import MOST_ELEMENTS, MOST_SIZES, number_above_0, sizes_of, too_large, whole_number
from generator.language.measured_values import LARGEST_SIZE
from generator.runtime import call


def test_what_is_read():
    assert [whole_number(text, 0, 1024) for text in ("0", "7", "007", "1024", "0" * 5000 + "3")] == [0, 7, 7, 1024, 3]
    assert number_above_0("1e-3") == 1e-3
    assert sizes_of(["1-3", "2", "9"]) == (1, 2, 3, 9)
    assert sizes_of(["9-8"]) == ()
    assert len(sizes_of([f"1-{MOST_SIZES}"])) == MOST_SIZES


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "+1", "1.0", "1e3", "nan", "x", "1025", "9" * 5000, "²", "٣", "1_0", " 1"]
)
def test_what_is_no_number(text):
    with pytest.raises(ValueError, match=r"expected a whole number from 1 to 1024, got '") as error:
        whole_number(text, 1, 1024)
    assert len(str(error.value)) < 120
    if text not in ("+1", "1.0", "1e3", "1025", "1_0", " 1"):
        with pytest.raises(ValueError, match=r"expected a number above 0, got '") as error:
            number_above_0(text)
        assert len(str(error.value)) < 120


def test_the_largest_size_is_that_of_a_call():
    assert LARGEST_SIZE == call.MOST == runtime_theorems.LARGEST
    assert sizes_of([str(LARGEST_SIZE)]) == (LARGEST_SIZE,)
    for refused in (LARGEST_SIZE + 1, 2**31 - 1, 2**31):
        with pytest.raises(ValueError, match=f"from 1 to {LARGEST_SIZE}, got '{refused}'"):
            sizes_of([str(refused)])


def test_matrices_whose_bytes_torch_cannot_count():
    assert too_large(LARGEST_SIZE, 2**20, 16) is None
    for sizes in ((LARGEST_SIZE, LARGEST_SIZE, 1, 1), (2**20, 2**20, 2**20, 2**20), (1, 2**30, 2**29, 1)):
        assert f"and at most {MOST_ELEMENTS} are possible" in (too_large(*sizes) or "")
