"""Fixtures of the verification's tests: processes that interpret or compile, as this one must be free to use a GPU, and
a browser.
"""

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from generator.pytest_plugin import Outcomes
from generator.verify import worker_pool
from generator.verify.worker_pool import _initialize
from tests.helpers.support import GENERATED
from tests.helpers.verify.browser import browse, chromium  # noqa: F401
from tests.helpers.verify.rendered import rendered

_OUTCOMES = pytest.StashKey()


def pytest_collection_finish(session):
    """Select the kernels of every spec, which test_generated.py proves."""
    selected = [item.callspec.params["job"] for item in session.items if item.name.startswith("test_verified[")]
    # With `--dist loadfile` one process runs all of a file.
    session.config.stash[_OUTCOMES] = Outcomes(selected, together=True)


def pytest_unconfigure(config):
    """End the workers, whatever ended the session."""
    if _OUTCOMES in config.stash:
        config.stash[_OUTCOMES].close()


@pytest.fixture(scope="session")
def outcome(request):
    """What becomes of a job of test_generated.py, once it is done."""
    outcomes = request.config.stash[_OUTCOMES]
    # What needs the GPU is for one test at a time.
    outcomes.begin([*dict.fromkeys(job.level for job in outcomes.jobs if job.level != "gpu")])
    return outcomes


@pytest.fixture
def shared_workers(pools, monkeypatch):
    """Has `verify` in this process use the workers that all tests share: new ones take seconds to import torch.

    Not for tests of what ends a worker.
    """

    class Shared:
        def __init__(self, level, workers):
            self.submit = pools(level).submit

        def close(self):
            pass

    monkeypatch.setattr(worker_pool, "Pool", Shared)


def _interpreting():
    """Call a function of a module in a process with Triton's interpreter."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=_initialize, initargs=("interpret", context.Semaphore(1))) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


#: A process for all tests, and one where no test of another file has installed the guard.
interpreted = pytest.fixture(scope="session")(_interpreting)
unguarded = pytest.fixture(scope="module")(_interpreting)


@pytest.fixture(scope="module")
def family(request, tmp_path_factory):
    """The family of the module's SPEC."""
    name = request.module.__name__.rpartition("test_")[2]
    return rendered(tmp_path_factory.mktemp(name), name, request.module.SPEC)


@pytest.fixture
def ladder(tmp_path):
    """A copy of the family ladder."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(GENERATED / "ladder", tmp_path / "ladder", ignore=ignored))
