"""The check of `bench` and `tune` for a GPU to time on."""

from __future__ import annotations

import os

from generator.language.errors import CallError


def require_gpu(otherwise: str, count: int = 1) -> None:
    """Raise `CallError` if there are not `count` GPUs to time on, or if Triton would interpret kernels.

    `otherwise` states what the command can do without a GPU.
    """
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        raise CallError(f"timing needs torch and triton: {error}") from None
    if not torch.cuda.is_available():
        raise CallError(f"timing needs a GPU, and torch finds no CUDA device ({otherwise} without one)")
    if count > torch.cuda.device_count():
        raise CallError(f"--gpus: {count} requested, and torch finds {torch.cuda.device_count()}")
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise CallError("TRITON_INTERPRET is set: times of interpreted kernels are meaningless; unset it")
