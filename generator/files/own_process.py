"""Run a module of this package in a process of its own, whatever module `generator` the current folder has."""

from __future__ import annotations

import sys
from pathlib import Path

#: The folder, or the archive, that has this package.
_ROOT = str(Path(__file__).parents[2])


def command(module: str) -> list[str]:
    """The command of the process, as `python -m module` would be without the current folder."""
    # The package is imported first, and its folder is not searched for other modules.
    code = (
        f"import sys; sys.path[:] = [{_ROOT!r}, *filter(None, sys.path)]; import generator; del sys.path[0]; "
        f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code]
