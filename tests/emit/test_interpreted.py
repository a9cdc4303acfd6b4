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


def run(request, test, marks):
    """A run of the files for which `test` was selected."""
    own = [item for item in request.session.items if item.path == Path(__file__) and isinstance(item, pytest.Function)]
    files = [item.callspec.params["file"] for item in own if item.name.startswith(f"{test}[")]
    begun = Run(files, marks)
    try:
        yield begun.of
        begun.close()
    finally:
        begun.process.kill()
        begun.process.wait()


@pytest.fixture(scope="module")
def by_default(request):
    yield from run(request, "test_interpreted_families", "not operators")


@pytest.mark.parametrize("file", FILES)
def test_interpreted_families(file, by_default):
    assert by_default(file)


@pytest.fixture(scope="module")
def on_demand(request):
    yield from run(request, "test_interpreted_families_on_demand", "operators")


@pytest.mark.operators
@pytest.mark.parametrize("file", ON_DEMAND)
def test_interpreted_families_on_demand(file, on_demand):
    assert on_demand(file)


@pytest.fixture(scope="module")
def with_libraries(request):
    yield from run(request, "test_interpreted_families_with_libraries", "ecosystem")


@pytest.mark.ecosystem
@pytest.mark.parametrize("file", WITH_LIBRARIES)
def test_interpreted_families_with_libraries(file, with_libraries):
    assert with_libraries(file)
