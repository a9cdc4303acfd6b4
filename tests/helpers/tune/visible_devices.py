"""What a worker sees: apart from the tests, so that a fresh process has little to import."""

from __future__ import annotations

import os
import signal
import time


def devices() -> str | None:
    """The devices of this process, told so late that another process has its own call to answer."""
    time.sleep(1.0)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def ignores_interrupts() -> bool:
    """Whether Ctrl-C leaves this process alone."""
    return signal.getsignal(signal.SIGINT) == signal.SIG_IGN
