"""A family of four kernels whose folder the tests of rendering change, and an interruption of a rendering."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.helpers.support import BASE, Spoken

Cli = Callable[..., Spoken]

FAMILY = BASE + "epilogue: [none, bias]\nmasking: [none, mnk]\n"
SMALLER = BASE + "epilogue: [none, bias]\nmasking: mnk\n"
OUT = Path("generated")
FOLDER = OUT / "family"
KERNEL = "gemm_fp16_rcr_bias__tiled_pointer_mnk_grouped.py"
OTHER = "gemm_fp16_rcr_none__tiled_pointer_none_grouped.py"


def render_family(cli: Cli) -> Cli:
    """Render family.yaml in the folder of the test, and return the command line."""
    Path("family.yaml").write_text(FAMILY)
    assert cli("family.yaml").status == 0
    return cli


class Interrupted:
    """`os.replace` that fails at one call."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.left, self.error, self.replace = at, error, os.replace

    def __call__(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error
        self.replace(source, target)
