"""What a kernel's text must have, from texts with and without it."""

from __future__ import annotations

import ast

import pytest

from generator.verify.kernel_structure import not_waited, unread

KERNEL = """\
@triton.jit
def gemm_kernel(a_ptr, b_ptr, b_scale_ptr, M, lda, EVEN_M: tl.constexpr):
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, M):
        a = tl.load(a_ptr + k * lda)
        b = tl.load(b_ptr + k) * tl.load(b_scale_ptr)
        STEP
    return acc
"""
HELPER = "@triton.jit\ndef _helper(unused):\n    return 0\n"


def messages(found: object) -> list[str]:
    return [message for _, _, message in found]  # type: ignore[attr-defined]


def test_an_operand_that_is_not_read_is_named() -> None:
    text = HELPER + KERNEL.replace("STEP", "acc = tl.dot(a, b, acc)")
    assert messages(unread(ast.parse(text))) == []
    without = text.replace(" * tl.load(b_scale_ptr)", "").replace(" * lda", "")
    assert messages(unread(ast.parse(without))) == [
        "gemm_kernel does not read b_scale_ptr",
        "gemm_kernel does not read lda",
    ]


@pytest.mark.parametrize(
    ("step", "waits"),
    [
        ("acc = tl.dot(a, b, acc)", False),
        ("acc = tl.dot(a, b, acc); a += 1", False),
        # A use in front of the product is of the sum before.
        ("b *= acc; acc = tl.dot(a, b, acc)", False),
        ("acc = tl.dot(a, b, acc); acc = tl.where(k < M, acc, 0.0)", True),
        ("acc += tl.dot(a, b) * 2.0", True),
    ],
)
def test_a_step_waits_by_a_use_of_its_sum(step: str, waits: bool) -> None:
    lines = step.replace("; ", "\n        ")
    found = messages(not_waited(ast.parse(KERNEL.replace("STEP", lines))))
    number = 7 + lines.split("\n").index(next(x for x in lines.split("\n") if "tl.dot" in x))
    assert found == ([] if waits else [f"line {number}: no later statement of the step uses acc"])
