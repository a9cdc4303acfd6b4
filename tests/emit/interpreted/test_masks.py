"""Masks: operands of bool and uint8 in formulas and in built-in operations, without a copy."""

import pytest
import torch

from tests.helpers.emit.calls import drawn

SPEC = """\
summary: Masks.
layout: rcr
dtype: fp32
batch: [none, strided]
ops:
  dropout: {formula: "where(keep, x * 2, 0)", operands: {keep: [M, N]}}
  rows: {formula: "where(valid, x, -1)", operands: {valid: [M]}}
  level: {formula: "x * (level / 255)", operands: {level: [N]}}
epilogue: [dropout, rows+level, mul, grad(relu)]
load: pointer
backward: kernels
"""
M, N, K = 20, 70, 19
#: Of 70 columns of bytes, which begin anywhere.
WIDE = 96


def given():
    a, b = drawn((M, K), torch.float32), drawn((N, K), torch.float32).T
    return a, b, drawn((M, WIDE), torch.float32)[:, 3 : 3 + N] > 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_a_mask_of_any_of_its_types_is_read_as_it_is(family, dtype):
    a, b, keep = given()
    x, mask = a @ b, keep.to(dtype)
    for _ in range(2):
        found = family.gemm_fp32_rcr_dropout(a, b, keep=mask)
        torch.testing.assert_close(found, torch.where(keep, x * 2, 0))
        torch.testing.assert_close(family.gemm_fp32_rcr_mul(a, b, mul=mask), x * keep)
        torch.testing.assert_close(family.gemm_fp32_rcr_gradrelu(a, b, preact=mask), x * keep)


def test_a_uint8_has_all_of_its_values(family):
    a, b, _ = given()
    valid, level = torch.arange(M).to(torch.uint8) // 3, torch.arange(N).to(torch.uint8) * 3 + 40
    expected = torch.where((valid > 0)[:, None], a @ b, -1) * (level.float() / 255)
    torch.testing.assert_close(family.gemm_fp32_rcr_rows_level(a, b, valid=valid, level=level), expected)
    many = family.bmm_fp32_rcr_rows_level(a.expand(3, M, K), b.expand(3, K, N), valid=valid.bool(), level=level)
    torch.testing.assert_close(many, expected.expand(3, M, N))


def test_gradients_pass_where_the_mask_is_not_zero(family):
    a, b, keep = given()
    found, expected = a.clone().requires_grad_(), a.clone().requires_grad_()
    for _ in range(2):
        found.grad = expected.grad = None
        family.gemm_fp32_rcr_dropout(found, b, keep=keep).square().sum().backward()
        torch.where(keep, expected @ b * 2, 0).square().sum().backward()
        torch.testing.assert_close(found.grad, expected.grad)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.complex64])
def test_other_types_are_refused(family, dtype):
    a, b, keep = given()
    told = f"keep must be of a floating type, bool or uint8, got {dtype}"
    with pytest.raises(TypeError, match=told):
        family.gemm_fp32_rcr_dropout(a, b, keep=keep.to(dtype))
    with pytest.raises(TypeError, match=r"a must be torch\.float32"):
        family.gemm_fp32_rcr_dropout(a.bool(), b, keep=keep)
