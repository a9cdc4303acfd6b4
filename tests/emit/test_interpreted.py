"""The tests in `interpreted/`, in one process with Triton's interpreter: a test here for each file there."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.support import ROOT

FOLDER = Path(__file__).parent / "interpreted"
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("test_*.py"))}
#: The files that need the libraries of the marker `ecosystem`.
WITH_LIBRARIES = [name for name, text in _TEXTS.items() if "mark.ecosystem" in text]
FILES = [name for name in _TEXTS if name not in WITH_LIBRARIES]
ON_DEMAND = [name for name in FILES if "mark.operators" in _TEXTS[name]]


#: The files of each process, by which of their tests it runs.
RUNS = {"not operators": FILES, "operators": ON_DEMAND, "ecosystem": WITH_LIBRARIES}


def cases():
    for marks, files in RUNS.items():
        for file in files:
            own = [getattr(pytest.mark, marks)] if " " not in marks else []
            yield pytest.param(marks, file, marks=own, id=file if marks == "not operators" else f"{file}-{marks}")


@pytest.fixture(scope="module")
def ran(request):
    """What the tests of some files print: those that were selected for a run are in one process."""
    own = [item for item in request.session.items if item.path == Path(__file__) and isinstance(item, pytest.Function)]

    @functools.cache
    def process(marks):
        files = [item.callspec.params["file"] for item in own if item.callspec.params["marks"] == marks]
        paths = [str(FOLDER / f"{name}.py") for name in files]
        call = [sys.executable, "-m", "pytest", "-v", "-n", "0", "-m", marks, "--no-header", *paths]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(call, cwd=ROOT, env=variables, **both)

    return process


@pytest.mark.parametrize(("marks", "file"), [*cases()])
def test_interpreted_families(marks, file, ran):
    done = ran(marks)
    own = [line for line in done.stdout.splitlines() if f"/{file}.py::" in line]
    wrong = any(re.search(r"\b(FAILED|ERROR)\b", line) for line in own)
    if wrong or not own or done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        pytest.fail(done.stdout, pytrace=False)
