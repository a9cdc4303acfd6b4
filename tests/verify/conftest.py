"""Fixtures of the verification's tests: processes that interpret or compile, as this one must be free to use a GPU."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from generator.pytest_plugin import Outcomes
from generator.verify.jobs import Job, Result
from generator.verify.run import _initialize

_OUTCOMES: pytest.StashKey[Outcomes] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the kernels of every spec (test_generated.py), so that they are proved beside the other tests."""
    selected = [item.callspec.params["job"] for item in session.items if item.name.startswith("test_verified[")]
    outcomes = session.config.stash[_OUTCOMES] = Outcomes(selected)
    # The GPU is for one test at a time, and each process of xdist works out what it is asked.
    levels = dict.fromkeys(job.level for job in selected if job.level != "gpu")
    if levels and not session.config.option.collectonly and "PYTEST_XDIST_WORKER" not in os.environ:
        outcomes.begin(tuple(levels))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers, whatever ended the session."""
    if _OUTCOMES in config.stash:
        config.stash[_OUTCOMES].close()


@pytest.fixture(scope="session")
def outcome(request: pytest.FixtureRequest) -> Callable[[Job], Result]:
    """What becomes of a job of test_generated.py, once it is done."""
    return request.config.stash[_OUTCOMES]


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable[..., Any]]:
    """Call a function of a module in a process with Triton's interpreter."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, context, initializer=_initialize, initargs=("interpret", context.Semaphore(1))
    ) as executor:
        yield lambda function, *arguments: executor.submit(function, *arguments).result()
