"""The tests in `interpreted/`, in a process with Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.support import python

FOLDER = Path(__file__).parent / "interpreted"


@pytest.mark.parametrize(
    ("marks", "seconds"),
    [("not operators", 600), pytest.param("operators", 7200, marks=pytest.mark.operators)],
    ids=["plain", "on demand"],
)
def test_interpreted_families(marks: str, seconds: int) -> None:
    ran = python("-m", "pytest", "-q", "-n", "0", "-m", marks, FOLDER, env={"TRITON_INTERPRET": "1"}, timeout=seconds)
    assert ran.returncode == 0, ran.stdout + ran.stderr
