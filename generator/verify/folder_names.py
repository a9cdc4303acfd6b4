"""Names for the folders of a run that tell them apart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path


def folder_names(folders: Iterable[Path]) -> dict[Path, str]:
    """For each folder the shortest end of its path that no other has: `ladder`, or `a/ladder` beside `b/ladder`."""
    parts = {folder: Path(os.path.abspath(folder)).parts for folder in folders}
    found: dict[Path, str] = {}
    for length in range(1, max(map(len, parts.values()), default=0) + 1):
        left = {folder: own[-length:] for folder, own in parts.items() if len(own) >= length}
        counts = Counter(left.values())
        found |= {
            folder: Path(*own).as_posix() for folder, own in left.items() if folder not in found and counts[own] == 1
        }
    # Two spellings of one folder.
    return {folder: found.get(folder, folder.as_posix()) for folder in parts}
