"""The name by which the program was called, as messages and advised commands repeat it."""

from __future__ import annotations

import sys
from pathlib import Path


def program() -> str:
    """`gemm-generator`, if that was called, else `python -m generator`."""
    # On Windows the program is `gemm-generator.exe`, or was `gemm-generator-script.py`.
    name = Path(sys.argv[0]).stem.removesuffix("-script") if sys.argv else ""
    return name if name == "gemm-generator" else "python -m generator"
