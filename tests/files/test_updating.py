"""A file that several processes change, each by a path of its own."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from generator.files.reading import FileError
from generator.files.updating import update


def _add(path: Path, times: int) -> None:
    for _ in range(times):
        update(path, lambda: str(int(path.read_text()) + 1))


def test_processes_that_name_a_file_by_a_link_wait_for_each_other(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "count", tmp_path / "count"
    real.parent.mkdir()
    real.write_text("0")
    link.symlink_to(real)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_add, args=(path, 20)) for path in (real, link)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert real.read_text() == "40" and link.is_symlink()


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder, not a file"):
        update(tmp_path, lambda: "")
