"""A type that is added to the records in memory, before anything follows from them; run as a process of its own.

Renders `cdna3.yaml` of the working folder, and prints what is known of the type as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from pathlib import Path

from generator.language import elements

WORD = "fp8e4m3fnuz"
ADDED = elements.ElementType(
    bits=8,
    torch="float8_e4m3fnuz",
    triton="float8e4b8",
    least=-240,
    most=240,
    exponent=4,
    mantissa=3,
    excess=8,
    negative_zero=False,
    multiplied=frozenset({"gfx942"}),
    converted=frozenset({"gfx942"}),
    accumulators=("fp32",),
    precisions=("full", "fast"),
    step=32,
    weight=True,
)


def main() -> None:
    assert isinstance(elements.ELEMENTS, dict)
    elements.ELEMENTS[WORD] = ADDED
    os.environ["TRITON_INTERPRET"] = "1"
    # Nothing below may be imported before the record is there.
    cli = importlib.import_module("generator.commands.command_line")
    with contextlib.redirect_stdout(io.StringIO()):
        status = cli.main(["cdna3.yaml", "--out", "."])
    if status:
        sys.exit(status)
    model = importlib.import_module("generator.language.model")
    types = importlib.import_module("generator.problem.element_types")
    poison = importlib.import_module("generator.problem.poisoned_operands")
    check = importlib.import_module("generator.bench.check")
    schema = importlib.import_module("generator.language.schema").schema()
    dtype = model.Dtype.of(WORD)
    native = types.torch_type(WORD)
    print(
        json.dumps(
            {
                "word": dtype.word,
                "weight": model.Dtype("bf16", WORD, "fp32", "bf16", None).word,
                "shorthands": schema["definitions"]["dtype"]["anyOf"][0]["enum"],
                "torch": str(native),
                "largest": importlib.import_module("torch").finfo(native).max,
                "poison": poison.poison_byte(native),
                "tolerance": check.tolerance(dtype, 256),
                "interpreted": interpreted(Path("cdna3")),
            }
        )
    )


def interpreted(folder: Path) -> dict[str, list[str]]:
    """The cases that each kernel of a family fails in Triton's interpreter, against the reference."""
    jobs = importlib.import_module("generator.verify.jobs")
    worker = importlib.import_module("generator.verify.worker")
    found = {}
    for path in sorted(folder.glob("gemm_*.py")):
        done = [
            worker.run(jobs.Job("interpret", folder, path.stem, case=case), contextlib.nullcontext())
            for case in ("padded", "special")
        ]
        assert all(result.cases == 1 for result in done)
        found[path.stem] = [failure.message for result in done for failure in result.failures]
    return found


if __name__ == "__main__":
    main()
