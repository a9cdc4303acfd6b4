"""How far functions' choices are from the fastest configuration: `PYTHONPATH=. python measured/scripts/choices.py`.

The sizes, to which nothing is fitted, and the times of configurations there were measured on an H200
(`measured/nvidia_h200/regret_*.jsonl.bz2`). Prints for each contract and size the time of what was chosen then, and of
what is chosen now, as multiples of the fastest one's. Needs no GPU.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import json
import re
import statistics
import tempfile
from pathlib import Path
from typing import Any

from generator.commands.command_line import main as render
from generator.plan import devices, families
from generator.tune.predicted_choice import choices

MEASURED = Path(__file__).parents[1]
#: The spec whose functions are asked, and the results.
COMPARED = {
    MEASURED / "specs/chains_held.yaml": MEASURED / "nvidia_h200/regret_chains.jsonl.bz2",
    MEASURED.parent / "specs/grouped.yaml": MEASURED / "nvidia_h200/regret_groups.jsonl.bz2",
}


def times(result: dict[str, Any]) -> dict[Any, float]:
    """The seconds of each kernel and configuration at a size."""
    return {
        (each["kernel"], frozenset(zip(each["names"], row))): row[-1]
        for each in result["times"]
        for row in each["rows"]
    }


def compare(spec: Path, path: Path) -> None:
    """Print what the family of a spec chooses at the sizes of a file of results."""
    results: dict[str, dict[tuple[int, ...], dict[str, Any]]] = {}
    for line in bz2.decompress(path.read_bytes()).splitlines():
        result = json.loads(line)
        contract, sizes = result["about"].partition("/")[2].split(" ")
        results.setdefault(contract, {})[tuple(map(int, re.split("[gx]", sizes)))] = result
    (family,) = families.families([spec])
    kernels = {kernel.name: kernel for kernel in family.kernels}
    before, now = [], []
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            if render([str(spec), "--out", folder]) != 0:
                raise SystemExit(1)
        for contract, of_sizes in results.items():
            for choice in choices(
                Path(folder) / spec.stem, [contract], kernels, of_sizes, devices.named("nvidia_h200")
            ):
                known = times(of_sizes[choice.sizes])
                best = min(known.values())
                then = of_sizes[choice.sizes].get("chosen", {}).get("seconds")
                seconds = known.get((choice.kernel, frozenset((choice.config or {}).items())))
                if then and seconds:
                    before.append(then / best)
                    now.append(seconds / best)
                shown = [f"{each / best:.3f}" if each else "was not measured" for each in (then, seconds)]
                print(f"{contract} {'x'.join(map(str, choice.sizes))}: {shown[0]}, now {shown[1]}")
    print(f"mean of {len(now)}: {statistics.mean(before):.3f}, now {statistics.mean(now):.3f}")


def main() -> None:
    for spec, path in COMPARED.items():
        compare(spec, path)


if __name__ == "__main__":
    main()
