"""Fixtures of the rendering half. Nothing here imports torch or triton, and no environment variable is set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# The checkout is what is tested, wherever pytest is called and whatever is installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import Spoken, called


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Spoken]:
    """Runs the command line in this process, in an empty folder: `cli("family.yaml", "--check")`."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: called(capsys, *arguments)
