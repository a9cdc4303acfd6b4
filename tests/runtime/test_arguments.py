"""What a kernel is passed for tensors that a call may leave out, and for those whose offsets pass 2**31."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

from generator.runtime.arguments import stride
from generator.runtime.call import index_type

LARGE, SMALL = torch.empty((2**17, 2**15), device="meta"), torch.empty((3, 5), device="meta")


@pytest.mark.parametrize(("x", "index"), [(LARGE, tl.int64), (SMALL, tl.int32), (None, tl.int32)])
def test_offsets_are_as_wide_as_the_largest_tensor_needs(x: torch.Tensor | None, index: tl.dtype) -> None:
    assert index_type(SMALL, x) == index


def test_a_tensor_that_is_not_there_has_strides_of_zero() -> None:
    assert [stride(x, 0) for x in (SMALL, None)] == [5, 0]
