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
from collections.abc import Iterator
from typing import Any

_NAMES = ("stdout", "stderr")
#: The error handler that encodes the bytes of a path as they are, and other characters as escapes.
_SHOWN = "generator.shown"


class _Descriptor(io.RawIOBase):
    """The raw stream of a file descriptor, which drops everything after the first error."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left and self.error is None:
            try:
                left = left[os.write(self._handle, left) :]
            except BlockingIOError:
                # Another process has made the pipe or terminal non-blocking, and it has no room yet.
                select.select([], [self._handle], [])
            except OSError as error:
                self.error = error
        return size


class Streams:
    """Standard output and error as `install` has replaced them."""

    def __init__(self) -> None:
        _open_closed_descriptors()
        self._before = {name: getattr(sys, name) for name in _NAMES}
        self._raw: dict[str, _Descriptor] = {}
        codecs.register_error(_SHOWN, _shown)
        # Python escapes bytes of paths so where the system's settings have no encoding for them.
        self._ascii_only = any(
            isinstance(stream, io.TextIOWrapper) and stream.errors in ("surrogateescape", _SHOWN)
            for stream in self._before.values()
        )
        for handle, name in enumerate(_NAMES, 1):
            self._replace(name, handle)

    def _replace(self, name: str, handle: int) -> None:
        stream = self._before[name]
        if stream is None:
            raw = self._raw[name] = _Descriptor(handle)
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace"))
            return
        if not isinstance(stream, io.TextIOWrapper):
            return
        # The text of a spec and a path may have characters that the terminal's encoding lacks.
        errors = "backslashreplace" if stream.errors == "strict" else stream.errors
        errors = _SHOWN if self._ascii_only else errors
        buffer = stream.buffer
        # A stream of Python's own, whose raw stream is a file; a test or a notebook has others.
        if not isinstance(getattr(buffer, "raw", buffer), io.FileIO):
            if stream.errors != errors:
                stream.reconfigure(errors=errors)
            return
        with contextlib.suppress(OSError):
            stream.flush()
        raw = self._raw[name] = _Descriptor(stream.fileno())
        # With `python -u` there is no buffer.
        written: Any = raw if isinstance(buffer, io.FileIO) else io.BufferedWriter(raw)
        made = io.TextIOWrapper(
            written,
            stream.encoding,
            errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, made)

    def lost(self) -> str | None:
        """Why the standard output could not be written, or None. That its reader has closed it, as `head` does, or
        the caller, is no reason."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        error = self._raw["stdout"].error if "stdout" in self._raw else None
        return None if error is None or isinstance(error, BrokenPipeError) else error.strerror or str(error)

    def restore(self) -> None:
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


def _open_closed_descriptors() -> None:
    """Open the null device for each of the descriptors 0 to 2 that the caller has closed.

    The next file that is opened would get the number, and be mixed with what a library or another process prints.
    """
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            with contextlib.suppress(OSError):
                opened = os.open(os.devnull, os.O_RDWR)
                if opened == handle:
                    os.set_inheritable(handle, True)
                else:
                    os.dup2(opened, handle)
                    os.close(opened)


def install() -> None:
    """Replace the streams of this process, which is a worker of another, until it ends."""
    Streams()


@contextlib.contextmanager
def replaced() -> Iterator[Streams]:
    """Within, the streams are replaced."""
    streams = Streams()
    try:
        yield streams
    finally:
        streams.restore()
