"""Executors for trials: processes of this machine, one for each GPU, or an Executor that the user names."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

from generator.files import standard_streams
from generator.files.parent_process import end_with_parent
from generator.language.errors import CallError

#: The word of `--executor` for processes of this machine.
PROCESSES = "processes"

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def loaded(name: str) -> Callable[[], Any]:
    """The callable that `MODULE:CALLABLE` names; raises ImportError, AttributeError or TypeError if there is none."""
    module, _, attribute = name.partition(":")
    found: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
    if not callable(found):
        raise TypeError(f"{name} is {type(found).__name__}, which cannot be called")
    return found


def make(word: str, gpus: int) -> Executor:
    """The executor that `--executor` names; raises `CallError` if its callable does not return one."""
    if word == PROCESSES:
        return processes(gpus)
    try:
        found = loaded(word)()
    except Exception as error:
        raise CallError(f"--executor: {word} returns no executor ({type(error).__name__}: {error})") from None
    if not isinstance(found, Executor):
        raise CallError(f"--executor: {word} returns {type(found).__name__}, not a concurrent.futures.Executor")
    return found


def processes(gpus: int) -> ProcessPoolExecutor:
    """`gpus` new processes, each of which sees one of the GPUs that this process sees."""
    context = multiprocessing.get_context("spawn")
    devices = context.Queue()
    seen = [device for device in os.environ.get(_VISIBLE, "").split(",") if device]
    for device in (seen or [str(index) for index in range(gpus)])[:gpus]:
        devices.put(device)
    return ProcessPoolExecutor(gpus, context, initializer=_take_one, initargs=(devices,))


def _take_one(devices: Any) -> None:
    standard_streams.install()
    end_with_parent()
    # torch looks for devices at the first use, which is later.
    os.environ[_VISIBLE] = devices.get()
    # Only the main process handles Ctrl-C: a running trial is short and must not be recorded as a failure.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
