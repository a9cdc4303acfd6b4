"""Fixtures of the rendering half. Nothing here imports torch or triton."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

# Matrices are small, and workers prove kernels beside this process: torch's threads would spend more on waiting.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.helpers.support import Spoken, called


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Spoken]:
    """Runs the command line in this process, in an empty folder: `cli("family.yaml", "--check")`."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: called(capsys, *arguments)
