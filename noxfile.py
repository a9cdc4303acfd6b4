"""`nox` proves every shipped kernel on each Triton version, in an environment of its own: `nox -s "triton(3.6.0)"`.

What follows `--` goes to `verify` in place of the levels: `nox -- --level gpu`.
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"

#: The last release of each minor version that the project supports.
TRITON = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")

#: What depends on Triton; static and bounds read the text alone.
INTERPRET = ("--level", "interpret")
COMPILE = ("--level", "compile", "--coverage", "pairs", "--target", "sm90")


def pins(triton: str) -> list[str]:
    """What CI pins, with this Triton and what goes with it."""
    lines = Path("constraints.txt").read_text().splitlines()
    found = [line for line in lines if not re.match(r"#|triton==|numpy==", line)]
    # Triton 3.6's interpreter does what numpy 2.4 forbids.
    return [*found, f"triton=={triton}", "numpy<2.4" if triton.startswith("3.6.") else "numpy"]


@nox.session(name="triton")
@nox.parametrize("triton", TRITON, ids=TRITON)
def triton(session: nox.Session, triton: str) -> None:
    """The levels that need Triton and no GPU; what passed goes to measured/proofs/triton_VERSION.json."""
    constraints = Path(session.create_tmp()) / "constraints.txt"
    constraints.write_text("\n".join(pins(triton)) + "\n")
    session.install("-c", str(constraints), ".[verify]", "torch==2.13.0")
    specs = sorted(map(str, Path("specs").glob("*.yaml")))
    if session.posargs:
        session.run("python", "-m", "generator", "verify", *specs, *session.posargs)
        return
    results = Path(f"measured/proofs/triton_{triton}.json")
    fresh = Path(session.create_tmp()) / results.name
    fresh.unlink(missing_ok=True)
    for levels in (INTERPRET, COMPILE):
        session.run("python", "-m", "generator", "verify", *specs, *levels, "--results", str(fresh))
    # Not before all has passed, nor where --install-only runs nothing.
    if fresh.exists():
        code = "import sys, pathlib; from generator.verify import proof_records as kept; "
        code += "kept.renew(*map(pathlib.Path, sys.argv[1:]))"
        session.run("python", "-c", code, str(results), str(fresh))
