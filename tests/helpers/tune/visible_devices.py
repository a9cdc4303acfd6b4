"""What a worker sees: apart from the tests, so that a fresh process has little to import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def devices(folder: Path, processes: int) -> str | None:
    """The devices of this process, once so many processes have been asked: none answers two of these calls."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < processes:
        time.sleep(0.02)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def ignores_interrupts() -> bool:
    """Whether Ctrl-C leaves this process alone."""
    return signal.getsignal(signal.SIGINT) == signal.SIG_IGN
