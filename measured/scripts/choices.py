"""How far functions' choices are from the fastest configuration: `PYTHONPATH=. python measured/scripts/choices.py`.

The sizes, and the times of every configuration there, are those of `tune --regret` on an H200, of which
`measured/nvidia_h200/regret_chains.jsonl.bz2` has the results. Prints for each contract and size the time of what was
chosen then, and of what is chosen now, as multiples of the fastest one's. Needs no GPU.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from generator.commands.command_line import main as render
from generator.plan import devices, families
from generator.tune.predicted_choice import choices

MEASURED = Path(__file__).parents[1]
SPEC, RESULTS = MEASURED / "specs/chains_held.yaml", MEASURED / "nvidia_h200/regret_chains.jsonl.bz2"


def times(result: dict[str, Any]) -> dict[Any, float]:
    """The seconds of each kernel and configuration at a size."""
    return {
        (each["kernel"], frozenset(zip(each["names"], row))): row[-1]
        for each in result["times"]
        for row in each["rows"]
    }


def main() -> None:
    results: dict[str, dict[tuple[int, ...], dict[str, Any]]] = {}
    for line in bz2.decompress(RESULTS.read_bytes()).splitlines():
        result = json.loads(line)
        contract, sizes = result["about"].partition("/")[2].split(" ")
        results.setdefault(contract, {})[tuple(map(int, sizes.split("x")))] = result
    (family,) = families.families([SPEC])
    kernels = {kernel.name: kernel for kernel in family.kernels}
    before, now = [], []
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            if render([str(SPEC), "--out", folder]) != 0:
                raise SystemExit(1)
        for contract, of_sizes in results.items():
            for choice in choices(
                Path(folder) / SPEC.stem, [contract], kernels, of_sizes, devices.named("nvidia_h200")
            ):
                known = times(of_sizes[choice.sizes])
                best = min(known.values())
                before.append(of_sizes[choice.sizes]["chosen"]["seconds"] / best)
                seconds = known.get((choice.kernel, frozenset((choice.config or {}).items())))
                now += [] if seconds is None else [seconds / best]
                shown = "was not measured then" if seconds is None else f"{seconds / best:.3f}"
                print(f"{contract} {'x'.join(map(str, choice.sizes))}: {before[-1]:.3f}, now {shown}")
    print(f"mean {statistics.mean(before):.3f} of {len(before)}, now {statistics.mean(now):.3f} of {len(now)}")


if __name__ == "__main__":
    main()
