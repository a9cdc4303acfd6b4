"""Add rendered families to git's index, as a hook before a commit needs it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from generator.emit.apply import MANIFEST, Refused, read_manifest
from generator.emit.job import Job


def stage(jobs: Sequence[Job]) -> None:
    """Add the files of the families, and the removal of those that are gone; raises `Refused` if git fails."""
    folders = [job.folder for job in jobs if (job.folder / MANIFEST).is_file()]
    files = [folder / name for folder in folders for name in (*(read_manifest(folder) or {})["files"], MANIFEST)]
    # What was rendered before and is gone now is known to git alone.
    _add(folders, "--update")
    _add(files)


def _add(paths: Sequence[Path], *options: str) -> None:
    """`git add`; the paths are read from standard input, because there may be thousands."""
    call = ["git", "add", *options, "--pathspec-from-file=-", "--pathspec-file-nul"]
    names = "\0".join(f":(literal){path}" for path in paths)
    try:
        done = subprocess.run(call, input=names, capture_output=True, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise Refused(f"--stage: git cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise Refused(f"--stage: {done.stderr.strip()}")
