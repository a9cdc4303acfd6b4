"""Verify every shipped kernel with each Triton version, in a separate environment: `nox -s "triton(3.6.0)"`.

Arguments after `--` are passed to `verify` instead of the levels: `nox -- --level gpu`.
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"

#: The last release of each minor version that the project supports.
TRITON = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")

#: The levels that depend on Triton; static and bounds run no kernel.
INTERPRET = ("--level", "interpret")
COMPILE = ("--level", "compile", "--coverage", "pairs", "--target", "sm90")


def pins(triton: str) -> list[str]:
    """The requirements of constraints.txt, with this version of Triton and a numpy that supports it."""
    lines = Path("constraints.txt").read_text().splitlines()
    found = [line for line in lines if not re.match(r"#|triton==|numpy==", line)]
    # The interpreter of Triton 3.6 fails with numpy 2.4.
    return [*found, f"triton=={triton}", "numpy<2.4" if triton.startswith("3.6.") else "numpy"]


@nox.session(name="triton")
@nox.parametrize("triton", TRITON, ids=TRITON)
def triton(session: nox.Session, triton: str) -> None:
    """Run the levels that need Triton and no GPU; record what passed in measured/proofs/triton_VERSION.json."""
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
    # All levels have passed here; with --install-only nothing ran and there is no file.
    if fresh.exists():
        code = "import sys, pathlib; from generator.verify import proof_records; "
        code += "proof_records.renew(*map(pathlib.Path, sys.argv[1:]))"
        session.run("python", "-c", code, str(results), str(fresh))
