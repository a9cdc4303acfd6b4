"""Fixtures of all tests. Nothing here imports torch or triton: worker processes do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Matrices are small, and workers prove kernels beside this process: torch's threads would spend more on waiting.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from generator.verify.parallel import workers_by_default
from generator.verify.worker_pool import Pool
from tests.helpers.support import Spoken, called


@pytest.fixture(scope="session")
def pools() -> Iterator[Callable[[str], Pool]]:
    """The worker processes of a level, which all tests of this process share: each worker takes seconds to start."""
    begun: dict[str, Pool] = {}

    def of(level: str) -> Pool:
        if level not in begun:
            begun[level] = Pool(level, workers_by_default())
        return begun[level]

    yield of
    for pool in begun.values():
        pool.close()


_numbers = itertools.count()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give each test a result cache of its own: what stand-ins for workers prove must reach no other run."""
    # Not the test's own `monkeypatch`, which it may undo.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / f"cache{next(_numbers)}"))
        yield


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Spoken]:
    """Runs the command line in this process, in an empty folder: `cli("family.yaml", "--check")`."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: called(capsys, *arguments)
