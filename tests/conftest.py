"""Fixtures of all tests. Nothing here imports torch or triton: worker processes do."""

from __future__ import annotations

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


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Spoken]:
    """Runs the command line in this process, in an empty folder: `cli("family.yaml", "--check")`."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: called(capsys, *arguments)
