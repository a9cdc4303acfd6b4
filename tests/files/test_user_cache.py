"""The user's cache folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from generator.files.reading import FileError
from generator.files.user_cache import user_cache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the folder has another place")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gemm-generator"


def test_the_folder_is_the_platforms(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_cache() == folder
    monkeypatch.setenv("HOME", str(tmp_path))
    # A relative one would be in the checkout.
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert user_cache() == tmp_path / ".cache" / "gemm-generator"
    monkeypatch.setenv("HOME", "home")
    with pytest.raises(FileError, match="not an absolute path"):
        user_cache()
