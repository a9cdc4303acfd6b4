"""Every mutation through every level that there is here, and the page of it: `python -m tests.mutations`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from .catalogue import MUTATIONS
from .levels import fates, surprise
from .page import PAGE, page, score


def main() -> int:
    """Write the page; the exit status is 1 where a mutation's fate is not the one that the catalogue foretells."""
    started = time.monotonic()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for mutation, fate in fates(MUTATIONS, Path(folder)):
            found[mutation] = fate
            print(f"{time.monotonic() - started:6.1f} s  {fate.level or 'passed':9}  {mutation.name}", flush=True)
    ordered = {mutation: found[mutation] for mutation in MUTATIONS}
    PAGE.write_text(page(ordered))
    surprises = {mutation.name: surprise(mutation, fate) for mutation, fate in ordered.items()}
    print(score(ordered), *(f"{name}: {text}" for name, text in surprises.items() if text), sep="\n")
    return 1 if any(surprises.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
