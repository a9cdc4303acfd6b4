"""Several paths to one file or folder are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.files.same_file import distinct, identity


def test_paths_to_one_folder_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    paths = [Path("a"), tmp_path / "a", Path("a/b/.."), Path("./a/."), Path("link"), Path("a/")]
    assert distinct(paths) == [Path("a")]
    assert distinct([*reversed(paths), Path("a/b")]) == [Path("a"), Path("a/b")]


def test_what_does_not_exist_is_known_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert identity(Path("x")) == identity(tmp_path / "y" / ".." / "x") != identity(Path("y"))
    assert identity(Path("x\0")) != identity(Path("x"))
