"""What docs/contributing.md says of a new load: a file of macros and a word, and nothing else knows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.support import ROOT

SPEC = """\
summary: Two loads by pointers.
layout: [rcr, crr]
dtype: fp16
epilogue: [none, bias+add, swiglu]
masking: [none, auto]
schedule: [naive, tiled, persistent, split_k, stream_k]
load: [pointer, streamed]
exclude:
  - {schedule: naive, epilogue: swiglu, because: "one idea a step"}
"""
POINTER = '    "pointer": Load("tiles of pointers", rank=1),\n'
STREAMED = '    "streamed": Load("tiles of pointers, whose lines leave the cache first", rank=3),\n'
POLICY = ', eviction_policy="evict_first"'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the generator and its templates, to which a load is added."""
    for name in ("generator", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    words = tmp_path / "generator" / "language" / "vocabulary.py"
    text = words.read_text(encoding="utf-8")
    assert text.count(POINTER) == 1
    words.write_text(text.replace(POINTER, POINTER + STREAMED), encoding="utf-8")
    loads = tmp_path / "templates" / "load"
    macros = (loads / "pointer.j2").read_text(encoding="utf-8")
    for tile in ("a", "b"):
        end = f"other={{{{ {tile}.zero }}}}{{% endif %}})"
        assert macros.count(end) == 1
        macros = macros.replace(end, f"{end[:-1]}{POLICY})")
    (loads / "streamed.j2").write_text(macros, encoding="utf-8")
    return tmp_path


def test_a_load_is_a_file_and_a_word(checkout: Path) -> None:
    (checkout / "loads.yaml").write_text(SPEC)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "generator", "loads.yaml", "--out", "out"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = sorted((checkout / "out" / "loads").glob("gemm_*_streamed_*.py"))
    # Two layouts and two maskings, of three chains by four schedules and of two by one.
    assert len(found) == 2 * 2 * (3 * 4 + 2)
    for path in found:
        _, _, text = path.read_text(encoding="utf-8").split("\n", 2)
        plain = path.with_name(path.name.replace("streamed", "pointer")).read_text(encoding="utf-8")
        assert POLICY in text
        assert text.replace(POLICY, "").replace("_streamed_", "_pointer_") == plain.split("\n", 2)[2], path.name
