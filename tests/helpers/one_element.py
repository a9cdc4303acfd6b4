"""What follows from the record of a type: the family of `cdna3.yaml` of the working folder, as JSON."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from pathlib import Path

WORD = "fp8e4m3fnuz"


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
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
