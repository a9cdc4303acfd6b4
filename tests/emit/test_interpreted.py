"""The tests in `interpreted/`, in one process with Triton's interpreter: a test here for each file there."""

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


class Run:
    """The tests of some files in one process, which goes on while a file's results are read."""

    def __init__(self, files, marks):
        paths = [FOLDER / f"{name}.py" for name in files]
        call = [sys.executable, "-m", "pytest", "-v", "-n", "0", "-m", marks, "--no-header", *map(str, paths)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
        self.process = subprocess.Popen(
            call, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        self.lines = self.process.stdout
        self.said = []
        #: A line that belongs to the next file.
        self.next = None

    def of(self, name):
        """The lines of the tests of a file; fails with all that the process prints if one has not passed."""
        own = []
        while (line := self.next or self.lines.readline()) != "":
            self.next = None
            found = re.match(r"\S*/(test_\w+)\.py::", line)
            if found is not None and found[1] != name:
                self.next = line
                break
            self.said.append(line)
            if found is not None:
                own.append(line)
        if not own or any(re.search(r" (FAILED|ERROR) ", line) for line in own):
            pytest.fail("".join([*self.said, self.next or "", *self.lines]), pytrace=False)
        return own

    def close(self):
        """End the process; fails if it says that anything is wrong."""
        rest = "".join([self.next or "", *self.lines])
        if self.process.wait() != 0:
            pytest.fail("".join(self.said) + rest, pytrace=False)


#: The files of each process, by which of their tests it runs.
RUNS = {"not operators": FILES, "operators": ON_DEMAND, "ecosystem": WITH_LIBRARIES}


def cases():
    for marks, files in RUNS.items():
        for file in files:
            own = [getattr(pytest.mark, marks)] if " " not in marks else []
            yield pytest.param(marks, file, marks=own, id=file if marks == "not operators" else f"{file}-{marks}")


@pytest.fixture(scope="module")
def passed(request):
    """Whether all tests of a file have passed; the files that were selected for a run share its process."""
    own = [item for item in request.session.items if item.path == Path(__file__) and isinstance(item, pytest.Function)]
    selected = [item.callspec.params for item in own]
    begun = {}

    def of(marks, file):
        if marks not in begun:
            begun[marks] = Run([each["file"] for each in selected if each["marks"] == marks], marks)
        return begun[marks].of(file)

    try:
        yield of
        for run in begun.values():
            run.close()
    finally:
        for run in begun.values():
            run.process.kill()
            run.process.wait()


@pytest.mark.parametrize(("marks", "file"), [*cases()])
def test_interpreted_families(marks, file, passed):
    assert passed(marks, file)
