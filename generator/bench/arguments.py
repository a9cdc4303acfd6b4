"""Types of command-line arguments for `bench` and `tune`, and their check for a GPU.

The functions that convert an argument raise argparse.ArgumentTypeError for an invalid value.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TypeVar

from generator.bench.suite import peers
from generator.language.call_numbers import MOST_PROCESSES, number_above_0, whole_number
from generator.language.errors import CallError

_Read = TypeVar("_Read")
#: The most rounds of a comparison, and candidates of a trial.
_MOST = 1_000_000


def workers(text: str) -> int:
    """A number of processes, which may be 0."""
    return _argument(whole_number, text, 0, MOST_PROCESSES)


def gpus(text: str) -> int:
    """A number of GPUs."""
    return _argument(whole_number, text, 1, MOST_PROCESSES)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _argument(whole_number, text, 1, _MOST)


def above_0(text: str) -> float:
    """A number above 0."""
    return _argument(number_above_0, text)


def peer_words(text: str) -> tuple[str, ...]:
    """The peers of a comma-separated list; no peer for `none`."""
    return _argument(peers, text)


def _argument(read: Callable[..., _Read], text: str, *limits: int) -> _Read:
    """What `read` makes of a text, with its ValueError raised as the error that argparse reports."""
    try:
        return read(text, *limits)
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
