"""Who works: processes of this machine, one a GPU, or whatever `concurrent.futures.Executor` the caller names."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

from generator.language.errors import CallError

#: The word of `--executor` for processes of this machine.
PROCESSES = "processes"

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def loaded(name: str) -> Callable[[], Any]:
    """What `MODULE:CALLABLE` names; raises ImportError, AttributeError or TypeError where it names nothing to call."""
    module, _, attribute = name.partition(":")
    found: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
    if not callable(found):
        raise TypeError(f"{name} is {type(found).__name__}, which cannot be called")
    return found


def make(word: str, gpus: int) -> Executor:
    """The executor of a call; raises `CallError` where what it names does not give one."""
    if word == PROCESSES:
        return processes(gpus)
    try:
        found = loaded(word)()
    except Exception as error:
        raise CallError(f"--executor: {word} gives no executor ({type(error).__name__}: {error})") from None
    if not isinstance(found, Executor):
        raise CallError(f"--executor: {word} gives {type(found).__name__}, not a concurrent.futures.Executor")
    return found


def processes(gpus: int) -> ProcessPoolExecutor:
    """`gpus` processes started afresh, each of which sees one GPU of those that this one sees."""
    context = multiprocessing.get_context("spawn")
    devices = context.Queue()
    seen = [device for device in os.environ.get(_VISIBLE, "").split(",") if device]
    for device in (seen or [str(index) for index in range(gpus)])[:gpus]:
        devices.put(device)
    return ProcessPoolExecutor(gpus, context, initializer=_take_one, initargs=(devices,))


def _take_one(devices: Any) -> None:
    # Before torch looks for devices, which it does at the first use.
    os.environ[_VISIBLE] = devices.get()
    # Ctrl-C is for the process that hands out: what is under way here is short, and not to be taken for a failure.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
