"""Worker processes, which end with the process that started them, and processes that run a module of this package."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

from generator.files import standard_streams

#: The folder, or the archive, that has this package.
_ROOT = str(Path(__file__).parents[2])


def end_with_parent() -> None:
    """From now on, end this worker of `multiprocessing` as soon as its parent has ended, by SIGKILL too."""
    if (parent := multiprocessing.parent_process()) is None:
        return

    def work() -> None:
        parent.join()
        # Not sys.exit: the main thread may be within a compiler, and has nothing to finish.
        os._exit(1)

    threading.Thread(target=work, name="end_with_parent", daemon=True).start()
    if sys.platform == "linux":
        import fcntl

        # The system sends SIGIO, which ends the process, when the parent's pipe is closed: the thread cannot run while
        # a library's function holds the interpreter's lock.
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, fcntl.fcntl(parent.sentinel, fcntl.F_GETFL) | os.O_ASYNC)


def begin_worker() -> None:
    """Prepare a new worker, which ends with its parent, and does not end because nobody reads what it prints.

    Only the main process handles Ctrl-C: it keeps what has passed, and ends the workers.
    """
    standard_streams.Streams()
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def own_command(module: str) -> list[str]:
    """The command that runs a module of this package, whatever module `generator` the current folder has."""
    # The package is imported first, and its folder is not searched for other modules.
    code = (
        f"import sys; sys.path[:] = [{_ROOT!r}, *filter(None, sys.path)]; import generator; del sys.path[0]; "
        f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code]
