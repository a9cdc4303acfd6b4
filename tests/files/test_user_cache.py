"""The user's cache folder, and the secret in it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from generator.files.reading import FileError
from generator.files.user_cache import secret, user_cache
from tests.helpers.support import ROOT

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


def test_the_secret_is_made_once_and_only_its_user_reads_it(folder: Path) -> None:
    first = secret()
    assert len(first) == 32 and secret() == first
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert os.listdir(folder) == ["secret"]


def linked(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to("other")


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"short"),
        lambda file: file.write_bytes(b"x" * 33),
        lambda file: file.chmod(0o644),
        linked,
        piped,
    ],
)
def test_a_secret_that_is_none_is_replaced(folder: Path, damage: Callable[[Path], object]) -> None:
    first = secret()
    damage(folder / "secret")
    again = secret()
    assert again != first and secret() == again and (folder / "secret").read_bytes() == again


def test_a_secret_that_cannot_be_made_is_an_error(folder: Path) -> None:
    (folder / "secret" / "full").mkdir(parents=True)
    with pytest.raises(FileError):
        secret()


def test_a_home_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    with pytest.raises(FileError, match="cannot be made"):
        secret()


def test_processes_that_start_at_once_have_one_secret(folder: Path) -> None:
    code = "from generator.files.user_cache import secret; print(secret().hex())"
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, encoding="ascii")
        for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in running}) == 1
