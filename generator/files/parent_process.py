"""Let a worker process end with the process that started it, whatever ends that one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable

#: The exit status of a process whose parent has ended.
STATUS = 1


def end_with_parent(pipe: int | None = None) -> None:
    """From now on, end this process as soon as its parent has ended, by SIGKILL too.

    `pipe` is the descriptor of a pipe that the parent holds open, and to which it writes nothing more; the default is
    the one that `multiprocessing` gives to its workers. Without one, in a main process, nothing happens.
    """
    if pipe is not None:
        _watch(lambda: os.read(pipe, 1), pipe)
        return
    parent = multiprocessing.parent_process()
    if parent is not None:
        _watch(parent.join, parent.sentinel)


def _watch(wait: Callable[[], object], pipe: int) -> None:
    """End this process when `wait` returns, and by a signal when the other end of `pipe` is closed."""

    def work() -> None:
        wait()
        # Not sys.exit: the main thread may be within a compiler, and has nothing to finish.
        os._exit(STATUS)

    threading.Thread(target=work, name="end_with_parent", daemon=True).start()
    _signalled(pipe)


if sys.platform == "linux":
    import fcntl

    def _signalled(pipe: int) -> None:
        """Let the system send SIGIO, which ends the process, when the pipe is closed.

        A thread of Python cannot run while a library's function holds the interpreter's lock. PR_SET_PDEATHSIG would
        not do: it acts when the thread ends that started this process.
        """
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)

else:

    def _signalled(pipe: int) -> None:
        """No other system sends such a signal for a pipe."""
