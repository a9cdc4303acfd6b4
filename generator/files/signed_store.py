"""A database of JSON values by key, of which only those are read that this user wrote on this machine.

A cache: whatever is wrong with the database, nothing is raised. There is one warning, and the values are not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from generator.files.checked_json import Schema, Wrong
from generator.files.reading import FileError
from generator.files.writing import write

#: The file's name, with a part that only this user knows: a database of somebody else is never opened.
_NAME = "results-{}.sqlite"
#: The hexadecimal digits of a signature, which precede the value.
_DIGITS = hashlib.sha256().digest_size * 2
#: Values wait in memory for at most so many others and about so many seconds, because each commit waits for the disk.
_WAITING = 500
_SECONDS = 1.0
#: The seconds for which another process may hold the database.
_TIMEOUT = 5.0


class SignedStore:
    """The values of some tables, in a database in `folder`; `secret` signs them.

    Both are functions, which may raise `FileError`. `warn` is called once at most, with a file and what is wrong.
    """

    def __init__(
        self,
        folder: Callable[[], Path],
        secret: Callable[[], bytes],
        tables: Iterable[str],
        warn: Callable[[Path, str], None],
    ) -> None:
        self._folder, self._secret, self._tables, self._warn = folder, secret, tuple(tables), warn
        self._path = Path(_NAME)
        self._connection: sqlite3.Connection | None = None
        self._key = b""
        self._opened = self._warned = False
        self._writable = True
        self._waiting: dict[tuple[str, str], str] = {}
        self._flushed = 0.0

    def get(self, table: str, key: str, schema: Schema) -> Any:
        """The value of a key, or None; a value that is damaged, not signed, or not what `schema` says is none."""
        text: object = self._waiting.get((table, key))
        if text is None:
            connection = self._open()
            if connection is None:
                return None
            try:
                row = connection.execute(f"SELECT value FROM {table} WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                self._fail(f"cannot be read: {error}")
                self._discard()
                return None
            if row is None:
                return None
            (text,) = row
        value = text[_DIGITS:] if isinstance(text, str) else ""
        if not isinstance(text, str) or not hmac.compare_digest(
            text[:_DIGITS].encode(errors="replace"), self._signature(table, key, value).encode()
        ):
            self._fail("values that this user did not write on this machine are not used")
            return None
        try:
            return schema.parse(value)
        except Wrong as error:
            self._fail(f"a value is not used: {error.reason}")
            return None

    def put(self, table: str, entries: Iterable[tuple[str, object]]) -> None:
        """Store the value of each key; numbers that JSON has no literal for make a value that is not stored."""
        if self._open() is None or not self._writable:
            return
        for key, value in entries:
            with contextlib.suppress(ValueError):
                text = json.dumps(value, allow_nan=False)
                self._waiting[table, key] = self._signature(table, key, text) + text
        if len(self._waiting) >= _WAITING or time.monotonic() - self._flushed > _SECONDS:
            self._flush()

    def close(self) -> None:
        """Write what is waiting, and close the database."""
        self._flush()
        self._discard()

    def _open(self) -> sqlite3.Connection | None:
        if not self._opened:
            self._opened = True
            try:
                self._key = self._secret()
                folder = self._folder()
                own = hmac.new(self._key, _NAME.encode(), hashlib.sha256).hexdigest()[:16]
                self._path = folder / _NAME.format(own)
                self._connection = self._connected(folder)
            except FileError as error:
                self._path = error.path
                self._fail(error.reason)
            except (OSError, sqlite3.Error, ValueError) as error:
                self._fail(f"cannot be used: {getattr(error, 'strerror', None) or error}")
        return self._connection

    def _connected(self, folder: Path) -> sqlite3.Connection:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Only in a folder of its own: it would hide other files from git.
            with contextlib.suppress(FileError):
                write(folder / ".gitignore", "*\n")
        # A pipe, or a journal that is one, would be read without end, and a link leads elsewhere.
        for name in os.listdir(folder):
            if name.startswith(self._path.name) and not stat.S_ISREG(os.lstat(folder / name).st_mode):
                raise FileError(folder / name, "is no regular file")
        if not self._path.exists() and any(folder.glob(_NAME.format("*"))):
            self._fail("results that this user did not write on this machine are in the folder, and are not used")
        connection = sqlite3.connect(self._path, timeout=_TIMEOUT)
        try:
            for name in self._tables:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        except BaseException:
            connection.close()
            raise
        return connection

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        waiting, connection = self._waiting, self._connection
        if not waiting or connection is None or not self._writable:
            return
        try:
            with connection:
                for (table, key), text in waiting.items():
                    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key, text))
        except sqlite3.Error as error:
            self._writable = False
            self._fail(f"cannot be written: {error}")
        else:
            self._waiting = {}

    def _discard(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _signature(self, table: str, key: str, text: str) -> str:
        # The lengths keep apart what the parts hold.
        message = f"{len(table)} {len(key)} {table}{key}{text}".encode(errors="surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def _fail(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(self._path, reason)
