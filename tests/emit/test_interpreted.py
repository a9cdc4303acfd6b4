"""The tests in `interpreted/`, each file in a process with Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.support import python

FILES = sorted((Path(__file__).parent / "interpreted").glob("test_*.py"))


def passed(file: Path, marks: str, seconds: int) -> None:
    ran = python("-m", "pytest", "-q", "-n", "0", "-m", marks, file, env={"TRITON_INTERPRET": "1"}, timeout=seconds)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_passes(file: Path) -> None:
    passed(file, "not operators", 300)


@pytest.mark.operators
@pytest.mark.parametrize("file", [file for file in FILES if "mark.operators" in file.read_text()], ids=lambda f: f.stem)
def test_what_a_file_has_on_demand_passes(file: Path) -> None:
    passed(file, "operators", 7200)
