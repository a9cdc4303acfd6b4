"""Real input: the `fp16_rcr` family in place of every linear layer of a transformer block."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.helpers.support import ROOT

FULL = ("512", "2048")
# A hidden size of 144 makes an inner size of 396, whose rows no descriptor can address: a sibling takes those layers.
SIZES = [("48", "256"), ("41", "144"), *([FULL] if torch.cuda.is_available() else [])]


def run(*sizes: str, interpret: bool) -> dict[str, float]:
    """The errors that tests/helpers/llama.py reports, from a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
        environment["CUDA_VISIBLE_DEVICES"] = ""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "helpers" / "llama.py"), str(ROOT / "generated" / "fp16_rcr"), *sizes],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def agrees(errors: dict[str, float]) -> None:
    """Seven layers replaced, and an error like that of torch's own fp16 products."""
    assert errors["linear_layers"] == 7
    assert 0 < errors["torch"] < 2e-3
    assert errors["family"] < 1.25 * errors["torch"]
    assert errors["between"] < 2 * errors["torch"]


@pytest.mark.parametrize("sizes", SIZES, ids=" ".join)
def test_a_transformer_block(sizes: tuple[str, ...]) -> None:
    agrees(run("--tokens", sizes[0], "--hidden", sizes[1], interpret=sizes != FULL))
