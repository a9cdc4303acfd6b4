"""The interpreter, mended and guarded: what is stray is caught, what is right passes."""

import pytest

from tests.helpers.verify import kernels


def test_what_stays_inside_passes(interpreted):
    assert interpreted(kernels.run_copy, 0, 9, 4) is None
    assert interpreted(kernels.run_shift, 0) is None and interpreted(kernels.run_atomic, 0) is None
    # Offsets of gigabytes cost nothing.
    assert interpreted(kernels.huge) is None


@pytest.mark.parametrize(
    ("function", "arguments", "access"),
    [
        # Into the padding between rows, which is no element; of rows that are too near, too far, and too many.
        (kernels.run_copy, (1, 9, 4), "stray store: 1 lanes of 4 bytes"),
        *((kernels.run_copy, each, "stray load") for each in ((0, 8, 4), (0, 10, 4), (0, 9, 5))),
        # Before and behind.
        *((kernels.run_shift, (by,), "stray load") for by in (-1, 1, 1 << 20)),
        (kernels.run_atomic, (1,), "stray atomic"),
        (kernels.write_input, (), "stray store"),
        # Of a tensor that nobody named, and as elements of another type.
        *((each, (), "stray load") for each in (kernels.read_another_tensor, kernels.read_another_type)),
    ],
)
def test_what_is_stray_is_caught(interpreted, function, arguments, access):
    fault = interpreted(function, *arguments)
    assert fault is not None and fault.startswith("StrayAccess") and access in fault


def test_masked_lanes_without_other_hold_poison_and_what_was_not_written_is_known(interpreted):
    assert interpreted(kernels.missing_other, True)
    assert not interpreted(kernels.missing_other, False)
    assert interpreted(kernels.written) == (2, 2)


@pytest.mark.parametrize("function", [kernels.conversions, kernels.products])
def test_rounding_and_products_are_mended(interpreted, function):
    found = interpreted(function)
    assert all(found.values()), found
