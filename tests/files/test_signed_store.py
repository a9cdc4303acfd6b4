"""A store that is damaged, foreign or not writable is a warning and holds nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from generator.files import signed_store
from generator.files.checked_json import Schema
from generator.files.reading import FileError
from generator.files.signed_store import SignedStore

NUMBERS = Schema({"type": "object", "additionalProperties": {"type": "integer"}})
KEY = b"k" * 32


class Store:
    """Opens the store of a folder, as one process after another does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []

    def __call__(self, secret: Callable[[], bytes] = lambda: KEY) -> SignedStore:
        warn = lambda path, reason: self.warnings.append(f"{path}: {reason}")  # noqa: E731
        return SignedStore(lambda: self.folder, secret, ("results", "parts"), warn)

    def put(self, **values: object) -> None:
        with closing(self()) as store:
            store.put("results", values.items())

    def get(self, key: str, secret: Callable[[], bytes] = lambda: KEY) -> object:
        with closing(self(secret)) as store:
            return store.get("results", key, NUMBERS)

    @property
    def file(self) -> Path:
        (found,) = self.folder.glob("results-*.sqlite")
        return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_what_was_put_is_read_and_keeps_itself_out_of_git(store: Store) -> None:
    assert store.get("a") is None
    store.put(a={"x": 1}, b={"x": float("inf")})
    assert store.get("a") == {"x": 1} and store.get("b") is None
    assert not store.warnings and (store.folder / ".gitignore").read_text() == "*\n"


def test_values_of_another_secret_are_not_read(store: Store) -> None:
    store.put(a={"x": 1})
    own = store.file
    assert store.get("a", lambda: b"o" * 32) is None
    (warning,) = store.warnings
    assert "did not write on this machine" in warning
    # Under its name, too.
    (other,) = {*store.folder.glob("results-*.sqlite")} - {own}
    other.write_bytes(own.read_bytes())
    assert store.get("a", lambda: b"o" * 32) is None and len(store.warnings) == 2


def test_a_database_of_somebody_else_is_never_opened(store: Store) -> None:
    """A view or a trigger in it could run without end."""
    store.folder.mkdir()
    endless = "WITH RECURSIVE r(key, value) AS (SELECT 'a', 'b' UNION ALL SELECT key, value FROM r) SELECT * FROM r"
    for name in ("results.sqlite", "results-0123456789abcdef.sqlite"):
        changed(f"CREATE VIEW results AS {endless}; CREATE TABLE parts (key, value)")(store.folder / name)
    assert store.get("a") is None
    store.put(a={"x": 1})
    assert store.get("a") == {"x": 1}


def test_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    store.put(a={"x": 1})
    victim, own = tmp_path / "victim.db", store.file
    changed("CREATE TABLE mine (x)")(victim)
    before = victim.read_bytes()
    own.unlink()
    own.symlink_to(victim)
    store.put(a={"x": 1})
    assert store.get("a") is None and victim.read_bytes() == before and len(store.warnings) >= 1


def test_a_folder_of_others_gets_no_gitignore(store: Store) -> None:
    store.folder.mkdir()
    (store.folder / "source.py").write_text("")
    store.put(a={"x": 1})
    assert store.get("a") == {"x": 1} and not (store.folder / ".gitignore").exists()


def changed(statement: str) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.executescript(statement)

    return change


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        file.unlink()
        make(file)

    return change


def deep(file: Path) -> None:
    changed(f"UPDATE results SET value = '{'[' * 100_000}'")(file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, 5000),
        lambda file: os.truncate(file, 50),
        lambda file: file.write_bytes(b"no database, but text" * 500),
        lambda file: file.write_bytes(file.read_bytes()[:100] + os.urandom(9000)),
        instead(Path.mkdir),
        instead(os.mkfifo),
        lambda file: os.mkfifo(f"{file}-journal"),
        changed("DROP TABLE results; CREATE TABLE results (a INTEGER)"),
        changed("DROP TABLE results; CREATE VIEW results AS SELECT 'a' AS key, 'x' AS value"),
        changed("UPDATE results SET value = substr(value, 1, 70)"),
        changed("UPDATE results SET value = 'x'"),
        changed("UPDATE results SET value = 5"),
        changed("UPDATE results SET value = x'ff00'"),
        changed("UPDATE results SET value = CAST(x'ff00' AS TEXT)"),
        changed("UPDATE results SET value = value || ' '"),
        changed("UPDATE results SET value = (SELECT value FROM results WHERE key = 'b')"),
        deep,
    ],
)
def test_whatever_is_damaged_is_one_warning_and_no_value(store: Store, damage: Callable[[Path], object]) -> None:
    store.put(a={"x": 1}, b={"x": 2}, c={"x": 3})
    damage(store.file)
    with closing(store()) as opened:
        assert [opened.get("results", key, NUMBERS) for key in "ac"] == [None, None]
        opened.put("results", [("d", {"x": 4})])
    assert len(store.warnings) == 1, store.warnings


def test_a_value_of_another_shape_is_none(store: Store) -> None:
    store.put(a={"x": "one"}, b=[1], c="[" * 200)
    with closing(store()) as opened:
        assert [opened.get("results", key, NUMBERS) for key in "abc"] == [None] * 3
    assert len(store.warnings) == 1


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_something_else_in_the_place_of_the_folder_is_a_warning(store: Store, make: Callable[[Path], object]) -> None:
    make(store.folder)
    store.put(a={"x": 1})
    assert len(store.warnings) == 1 and store.get("a") is None


def test_without_a_secret_nothing_is_stored(store: Store) -> None:
    def none() -> bytes:
        raise FileError(Path("home"), "cannot be written")

    with closing(store(none)) as opened:
        opened.put("results", [("a", {"x": 1})])
        assert opened.get("results", "a", NUMBERS) is None
    assert store.warnings == ["home: cannot be written"] and not store.folder.exists()


def test_a_full_or_locked_database_is_a_warning_and_is_still_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(a={"x": 1})
    monkeypatch.setattr(signed_store, "_TIMEOUT", 0.01)
    with closing(sqlite3.connect(store.file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(store()) as opened:
            opened.put("results", [("b", {"x": 2})])
            assert opened.get("results", "a", NUMBERS) == {"x": 1}
            assert opened.get("results", "b", NUMBERS) == {"x": 2}
    assert len(store.warnings) == 1 and "locked" in store.warnings[0]
    assert store.get("b") is None


def test_two_stores_at_once_share_a_database(store: Store) -> None:
    with closing(store()) as one, closing(store()) as two:
        for number in range(20):
            one.put("results", [(f"one{number}", {"x": number})])
            two.put("results", [(f"two{number}", {"x": number})])
    assert store.get("one19") == store.get("two19") == {"x": 19} and not store.warnings
