"""Measurements in the repository: bounded in size, and each is read by what reads such files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.bench import measurements
from generator.language import tuned_file
from generator.tune import winners
from generator.tune.journal import Journal
from generator.verify import proof_records
from generator.verify.job_costs import JobCosts
from tests.helpers.support import ROOT

#: The most that a file may hold, in thousands of bytes: those of a tuner's journals are the largest.
LARGEST = 5272
#: The most of all files together, in the same unit.
TOTAL = 24_200

FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in (ROOT / "measured", ROOT / "specs" / "tuned")
    for path in sorted(folder.rglob("*"))
    if path.is_file() and path.suffix != ".py"
}


def test_no_file_grows_unseen() -> None:
    sizes = {name: path.stat().st_size / 1000 for name, path in FILES.items()}
    assert sum(sizes.values()) <= TOTAL and not [name for name, size in sizes.items() if size > LARGEST]


def _tuned(path: Path) -> object:
    assert tuned_file.parse(path.read_text()).winners
    return winners.read(path).winners


#: How files of the commands are read: a pattern of their names, and what a file holds, which is never empty.
READERS: dict[str, Callable[[Path], object]] = {
    "specs/tuned/*/*.json": _tuned,
    "measured/*/tune_*.jsonl": lambda path: Journal(path).outcomes,
    "measured/*/bench_*.json": lambda path: measurements.load(path).records,
    "measured/proofs/*.json": lambda path: proof_records.read(path).proved,
}


@pytest.mark.parametrize("pattern", READERS)
def test_every_committed_file_is_read(pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths and {path.relative_to(ROOT).as_posix() for path in paths} <= set(FILES)
    assert [path for path in paths if not READERS[pattern](path)] == []


def test_the_shipped_durations_of_jobs_are_read() -> None:
    assert JobCosts.shipped().seconds
