"""A file that several processes change, each by a path of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.files.reading import FileError
from generator.files.updating import update
from tests.helpers.support import side_by_side


def _add(path: Path, times: int) -> None:
    for _ in range(times):
        update(path, lambda: str(int(path.read_text()) + 1))


def test_processes_that_name_a_file_by_a_link_wait_for_each_other(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "count", tmp_path / "count"
    real.parent.mkdir()
    real.write_text("0")
    link.symlink_to(real)
    assert side_by_side(_add, (real, 20), (link, 20)) == [0, 0]
    assert real.read_text() == "40" and link.is_symlink()


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder, not a file"):
        update(tmp_path, lambda: "")
