"""Names that tell the folders of a run apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.verify.folder_names import folder_names


def named(*folders: str) -> dict[str, str]:
    return {str(folder): name for folder, name in folder_names(map(Path, folders)).items()}


def test_the_shortest_end_that_no_other_path_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert named() == {}
    assert named("a/ladder", "b/split_k") == {"a/ladder": "ladder", "b/split_k": "split_k"}
    assert named("a/ladder", "b/ladder", "c/x") == {"a/ladder": "a/ladder", "b/ladder": "b/ladder", "c/x": "x"}
    assert named("x/a/l", "y/a/l", "b/l") == {"x/a/l": "x/a/l", "y/a/l": "y/a/l", "b/l": "b/l"}
    assert named("ladder", "a/ladder") == {"ladder": f"{tmp_path.name}/ladder", "a/ladder": "a/ladder"}


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert named(".") == {".": tmp_path.name}


def test_two_spellings_of_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = str(tmp_path / "ladder")
    assert named("ladder", other) == {"ladder": "ladder", other: other}
