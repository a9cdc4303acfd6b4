"""Types of command-line arguments for `bench` and `tune`, and their check for a GPU.

The functions that convert an argument raise argparse.ArgumentTypeError for an invalid value.
"""

from __future__ import annotations

import argparse
import math
import os

from generator.bench.suite import peers
from generator.language.errors import CallError


def whole(text: str) -> int:
    """A whole number."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def above_0(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def peer_words(text: str) -> tuple[str, ...]:
    """The peers of a comma-separated list; no peer for `none`."""
    try:
        return peers(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def require_gpu(otherwise: str) -> None:
    """Raise `CallError` if there is no GPU to time on, or if Triton would interpret kernels.

    `otherwise` states what the command can do without a GPU.
    """
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        raise CallError(f"timing needs torch and triton: {error}") from None
    if not torch.cuda.is_available():
        raise CallError(f"timing needs a GPU, and torch finds no CUDA device ({otherwise} without one)")
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise CallError("TRITON_INTERPRET is set: times of interpreted kernels are meaningless; unset it")
