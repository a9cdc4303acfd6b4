"""The README says what is so: its tables are what the commands beside them print, its example is what is rendered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from generator.epilogue import OPERATIONS
from generator.vocabulary import DTYPE_SHORTHANDS, SELECT, WORDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_measurements_is_what_the_command_prints() -> None:
    results = ROOT / "tests" / "results" / "nvidia_h200" / "bench_spine.json"
    printed = subprocess.run(
        [sys.executable, "-m", "generator", "bench", "--json", str(results), "--table"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    written = README.split("<!-- table: bench_spine -->\n")[1].split("<!-- end of table -->")[0]
    assert written.strip() == printed.strip()


def test_the_kernel_shown_is_the_one_rendered() -> None:
    shown = re.search(r"```python\n(@triton\.jit\n.*?)```", README, re.S)
    assert shown is not None
    rendered = ROOT / "generated" / "ladder" / "gemm_fp16_rcr_none__tiled_pointer_mnk_grouped.py"
    assert shown[1] in rendered.read_text(encoding="utf-8")


def test_the_axes_named_are_those_of_the_language() -> None:
    table = README.split("## What is supported")[1].split("The other words")[0]
    words = {*DTYPE_SHORTHANDS, *OPERATIONS, *(word for word, entry in SELECT.items() if entry.available)}
    for axis, entries in WORDS.items():
        words |= {word for word, entry in entries.items() if entry.available} if axis != "batch" else set()
    assert {word for word in words if not re.search(rf"\b{word}\b", table)} == set()


def test_the_counts_of_the_gpu_are_those_of_its_results() -> None:
    results = json.loads((ROOT / "tests" / "results" / "nvidia_h200" / "verify.json").read_text(encoding="utf-8"))
    kernels = [levels["gpu"] for levels in results.values() if "gpu" in levels]
    row = re.search(r"\| gpu, one H200 .*?\| (\d+) \| (\d+) \| ([\d,]+) \|", README)
    assert row is not None
    assert len(kernels) == int(row[1])
