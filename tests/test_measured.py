"""Measurements in the repository: they have a limit, and each is read by what reads such files."""

import pytest

from generator.bench import measurements
from generator.language import tuned_file
from generator.tune import winners
from generator.tune.journal import Journal
from generator.verify import proof_records
from tests.helpers.support import ROOT

#: The most bytes of all files of a folder, and of one of them.
LIMITS = {"measured": 12_000_000, "specs/tuned": 2_300_000}
LARGEST = 1_350_000


@pytest.mark.parametrize("folder", LIMITS)
def test_files_stay_below_their_limits(folder):
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) <= LARGEST and LIMITS[folder] * 0.8 < sum(sizes) <= LIMITS[folder]


def _tuned(path):
    found = tuned_file.parse(path.read_text())
    # Rules of when torch's product is faster are in a file of their own.
    return found.aten or (found.winners and winners.read(path).winners)


#: How files of the commands are read: a pattern of their names, and what a file holds, which is never empty.
READERS = {
    "specs/tuned/*/*.json": _tuned,
    "measured/*/tune_*.jsonl.bz2": lambda path: Journal(path).outcomes,
    "measured/*/bench_*.json*": lambda path: measurements.load(path).records,
    "measured/proofs/*.json": lambda path: proof_records.read(path).proved,
}


@pytest.mark.parametrize("pattern", READERS)
def test_every_committed_file_is_read(pattern):
    paths = sorted(ROOT.glob(pattern))
    assert paths and [path for path in paths if not READERS[pattern](path)] == []
