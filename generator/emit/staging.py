"""Add rendered families to git's index, as a hook before a commit needs it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from generator.emit.apply import MANIFEST, Refused, read_manifest
from generator.emit.folder_lock import held
from generator.emit.job import RenderingJob

#: How long to wait for another process that changes git's index, and how often to try, in seconds.
_PATIENCE, _PAUSE = 20.0, 0.1


def stage(jobs: Sequence[RenderingJob]) -> None:
    """Add the files of the families, and the removal of those that are gone; raises `Refused` if git fails.

    Waits for other processes that render the folders or change git's index.
    """
    folders = [job.folder for job in jobs if (job.folder / MANIFEST).is_file()]
    with held(folders):
        files = [folder / name for folder in folders for name in (*(read_manifest(folder) or {})["files"], MANIFEST)]
        # What was rendered before and is gone now is known to git alone.
        _add(folders, "--update")
        _add(files)


def _add(paths: Sequence[Path], *options: str) -> None:
    """`git add`; the paths are read from standard input, because there may be thousands."""
    if not paths:
        return
    call = ["git", "add", *options, "--pathspec-from-file=-", "--pathspec-file-nul"]
    names = b"\0".join(os.fsencode(f":(literal){path}") for path in paths)
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            done = subprocess.run(call, input=names, capture_output=True)
        except OSError as error:
            raise Refused(f"--stage: git cannot be run: {error.strerror}") from None
        message = done.stderr.decode("utf-8", errors="replace").strip()
        if done.returncode == 0:
            return
        if "index.lock" not in message:
            raise Refused(f"--stage: {message}")
        if time.monotonic() >= end:
            raise Refused(
                f"--stage: another process has had git's index for {_PATIENCE:.0f} seconds, and nothing was added; "
                f"when it has ended, give the same command again: {message}"
            )
        time.sleep(_PAUSE)
