"""How long rendering takes: 1,000 and 10,000 variants, rendered and written to an empty folder.

    python measured/scripts/rendering.py

Prints, for each, the best and the median of several runs in processes of their own (seconds, start included) and the
largest resident memory of the parent; then how long a fixed loop takes, by which to judge the machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
ROOT = Path(__file__).resolve().parents[1]

SPEC = """\
summary: A product of axes, for the time it takes.
name: many
layout: [{layouts}]
dtype: [{dtypes}]
epilogue: [none, bias, bias+relu, bias+gelu_tanh, bias+silu, add, bias+add+relu, scale, scale+bias, bias+gelu]
masking: [none, k, mn, mnk, auto]
swizzle: [linear, linear_n, grouped, grouped_n, swizzle2d]
"""
SIZES = {
    1_000: SPEC.format(layouts="rrr, rcr", dtypes="fp16, bf16"),
    10_000: SPEC.format(layouts="rrr, rrc, rcr, rcc, crr, crc, ccr, ccc, sss, srr", dtypes="fp16, bf16, tf32, fp32"),
}

# Runs the command line and prints the largest resident memory in kilobytes.
_RUN = """
import resource, sys
from generator.commands.command_line import main
status = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(status)
"""


def render(text: str, folder: Path) -> tuple[float, int]:
    """Seconds and kilobytes of rendering a spec into an empty folder."""
    spec = folder / "many.yaml"
    spec.write_text(text)
    started = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, str(spec), "--out", str(folder / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return time.perf_counter() - started, int(ran.stdout.split()[-1])


def loop() -> float:
    """Seconds of ten million additions."""
    started = time.perf_counter()
    total = 0
    for i in range(10_000_000):
        total += i
    return time.perf_counter() - started


def main() -> None:
    for count, text in SIZES.items():
        with tempfile.TemporaryDirectory() as scratch:
            runs = []
            for index in range(ROUNDS):
                folder = Path(scratch) / str(index)
                folder.mkdir()
                runs.append(render(text, folder))
        times = [seconds for seconds, _ in runs]
        memory = max(kilobytes for _, kilobytes in runs) / 1024
        print(f"{count:>6} variants: best {min(times):.2f} s, median {statistics.median(times):.2f} s, {memory:.0f} MB")
    print(f"ten million additions in a loop: {loop():.2f} s")


if __name__ == "__main__":
    main()
