"""Standard output and error that may be closed, full or without a reader: what cannot be written is dropped.

A command then goes on to its end, and its exit status is that of its work.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import sys
from typing import Any

#: The error handler that encodes the bytes of a path as they are, and other characters as escapes.
_SHOWN = "generator.shown"


class _Lenient(io.FileIO):
    """The raw stream of a file descriptor, which drops everything after the first error."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            while self.error is None and (count := super().write(data)) is None:
                # Another process has made the pipe or terminal non-blocking, and it has no room yet.
                select.select([], [self], [])
            return len(data) if self.error is not None else count
        except OSError as error:
            self.error = error
            return len(data)


class Streams:
    """Standard output and error, replaced until the end of the context, if it is one, else of the process."""

    def __init__(self) -> None:
        # The next file that is opened takes the lowest free descriptor. If the caller has closed 0, 1 or 2, the file
        # would be mixed with what a library or another process prints, so the null device takes these.
        while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
            os.set_inheritable(opened, True)
        os.close(opened)
        self._before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self._raw: dict[str, _Lenient] = {}
        codecs.register_error(_SHOWN, _shown)
        # Python escapes bytes of paths so where the system's settings have no encoding for them.
        kept = ("surrogateescape", _SHOWN)
        self._ascii_only = any(getattr(stream, "errors", "") in kept for stream in self._before.values())
        for handle, name in enumerate(self._before, 1):
            self._replace(name, handle)

    def _replace(self, name: str, handle: int) -> None:
        stream = self._before[name]
        raw = getattr(getattr(stream, "buffer", None), "raw", getattr(stream, "buffer", None))
        # The text of a spec and a path may have characters that the terminal's encoding lacks.
        errors = getattr(stream, "errors", "strict")
        errors = _SHOWN if self._ascii_only else "backslashreplace" if errors == "strict" else errors
        if stream is not None and not isinstance(raw, io.FileIO):
            # A stream of a test or a notebook.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=errors)
            return
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
            handle = stream.fileno()
        lenient = self._raw[name] = _Lenient(handle, "w", closefd=False)
        made = io.TextIOWrapper(
            # With `python -u` there is no buffer.
            lenient if isinstance(getattr(stream, "buffer", None), io.FileIO) else io.BufferedWriter(lenient),
            getattr(stream, "encoding", "utf-8"),
            errors,
            line_buffering=getattr(stream, "line_buffering", False),
            write_through=getattr(stream, "write_through", False),
        )
        setattr(sys, name, made)

    def lost(self) -> str | None:
        """Why the standard output could not be written, or None. That its reader has closed it, as `head` does, or
        the caller, is no reason."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        error = self._raw["stdout"].error if "stdout" in self._raw else None
        return None if error is None or isinstance(error, BrokenPipeError) else error.strerror or str(error)

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is buffered, and put the streams back that there were before."""
        for name, stream in self._before.items():
            with contextlib.suppress(OSError, ValueError):
                getattr(sys, name).flush()
            setattr(sys, name, stream)


def _shown(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # One character at a time, because the handlers take a whole row of them or none.
    error.end = error.start + 1
    is_byte = "\udc80" <= error.object[error.start] <= "\udcff"
    return codecs.lookup_error("surrogateescape" if is_byte else "backslashreplace")(error)
