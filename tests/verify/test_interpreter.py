"""The interpreter, mended and guarded: what is stray is caught, what is right passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.verify import kernels

Interpreted = Callable[..., Any]


def test_what_stays_inside_passes(interpreted: Interpreted) -> None:
    assert interpreted(kernels.run_copy, 0, 9, 4) is None
    assert interpreted(kernels.run_shift, 0) is None


@pytest.mark.parametrize(
    ("arguments", "access"),
    [
        ((1, 9, 4), "stray store: 1 lanes of 4 bytes"),
        ((0, 8, 4), "stray load"),
        ((0, 10, 4), "stray load"),
        ((0, 9, 5), "stray load"),
    ],
    ids=["into the padding", "row too near", "row too far", "row too many"],
)
def test_padding_between_rows_is_no_element(interpreted: Interpreted, arguments: Any, access: str) -> None:
    fault = interpreted(kernels.run_copy, *arguments)
    assert fault is not None and fault.startswith("StrayAccess") and access in fault


@pytest.mark.parametrize("by", [-1, 1, 1 << 20])
def test_before_and_behind(interpreted: Interpreted, by: int) -> None:
    fault = interpreted(kernels.run_shift, by)
    assert fault is not None and "stray load" in fault


def test_atomics_are_checked(interpreted: Interpreted) -> None:
    assert interpreted(kernels.run_atomic, 0) is None
    assert "stray atomic" in interpreted(kernels.run_atomic, 1)


def test_an_input_cannot_be_written(interpreted: Interpreted) -> None:
    assert "stray store" in interpreted(kernels.write_input)


def test_a_tensor_that_nobody_named_cannot_be_read(interpreted: Interpreted) -> None:
    assert "stray load" in interpreted(kernels.read_another_tensor)


def test_an_element_is_read_as_what_it_is(interpreted: Interpreted) -> None:
    assert "stray load" in interpreted(kernels.read_another_type)


def test_masked_lanes_without_other_hold_poison(interpreted: Interpreted) -> None:
    assert interpreted(kernels.missing_other, True)
    assert not interpreted(kernels.missing_other, False)


def test_what_was_not_written_is_known(interpreted: Interpreted) -> None:
    assert interpreted(kernels.written) == (2, 2)


def test_offsets_of_gigabytes_cost_nothing(interpreted: Interpreted) -> None:
    assert interpreted(kernels.huge) is None


def test_rounding_is_mended(interpreted: Interpreted) -> None:
    found = interpreted(kernels.conversions)
    assert all(found.values()), found


def test_products_are_mended(interpreted: Interpreted) -> None:
    found = interpreted(kernels.products)
    assert all(found.values()), found
