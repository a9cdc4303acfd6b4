"""Fixtures of the verification's tests: a process that interprets, since this one must be free to use a GPU."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from generator.verify.run import _initialize


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable[..., Any]]:
    """Call a function of a module in a process with Triton's interpreter."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, context, initializer=_initialize, initargs=("interpret", context.Semaphore(1))
    ) as executor:
        yield lambda function, *arguments: executor.submit(function, *arguments).result()
