"""What leaves the measurements of a kernel as they are, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.tune.code import code_digest

KERNEL = '''\
# Generated.
# sha256 of the text below: 0
"""C = A @ B

CONFIGS = [
"""

import functools

import triton

CONFIGS = [
    {"BLOCK_M": 64, "num_warps": 4},
]
# Rows that do not fit into the shared memory of a device, by index.
TOO_LARGE = {"sm80": (0,)}


@triton.jit
def gemm_kernel(a_ptr, BLOCK_M: "tl.constexpr"):
    # Which tile.
    pid = 0


@functools.lru_cache(maxsize=4096)
def _select(M):
    return CONFIGS[0]


def gemm(a):
    """What it returns."""
    return CONFIGS
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# sha256 of the text below: 0", "# sha256 of the text below: 1", True),
        ("C = A @ B", "C = B @ A", True),
        ("# Which tile.", "# The tile.\n\n    # Of all.", True),
        ('"num_warps": 4},\n', '"num_warps": 4},\n    {"BLOCK_M": 128, "num_warps": 8},\n', True),
        ('{"sm80": (0,)}', '{"sm80": (0, 1)}', True),
        ("return CONFIGS[0]", "return CONFIGS[1]", True),
        ("maxsize=4096", "maxsize=64", True),
        ("pid = 0", "pid = 1", False),
        ("    return CONFIGS\n", "    return CONFIGS[1:]\n", False),
        ("def gemm(a)", "def gemm(a, b)", False),
    ],
)
def test_words_and_rows_are_not_code(old: str, new: str, same: bool, tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(KERNEL)
    after.write_text(KERNEL.replace(old, new, 1))
    assert before.read_text() != after.read_text()
    assert (code_digest(before) == code_digest(after)) == same
