"""What `verify --level compile --coverage pairs` takes for four targets.

PYTHONPATH=. python measured/scripts/coverage.py

Writes measured/coverage.json, from which docs/proving.md has its figures. It plans, and compiles nothing; it takes more
than a minute. `kernels` is a digest of what is planned for: a test compares it with the shipped families.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from generator.emit import manifest_reader
from generator.verify.coverage import Coverage
from generator.verify.job_selection import covered, plan
from generator.verify.level_scope import out_of_reach
from tests.helpers import shipped

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("sm80", "sm90", "sm100", "gfx942")


def digest(families: list[manifest_reader.Rendered]) -> str:
    """Of the kernels of rendered families: their names, configurations, targets and versions of Triton."""
    kernels = [(x.name, x.tiles, x.targets, x.not_offered, x.triton) for family in families for x in family.kernels]
    return hashlib.sha256(repr(sorted(kernels, key=repr)).encode()).hexdigest()[:32]


def rendered() -> list[manifest_reader.Rendered]:
    """The shipped families."""
    return [manifest_reader.read(folder) for folder in shipped.folders()]


def main() -> None:
    """Plan, and write the file."""
    families = rendered()
    jobs = plan(families, ["compile"], "*", None, TARGETS)
    _, choices = covered(jobs, families, Coverage("pairs"), out_of_reach(jobs, families, None))
    (text,) = [choice.text() for choice in choices]
    match = re.fullmatch(
        r"coverage pairs: ([\d,]+) of ([\d,]+) combinations, all ([\d,]+) pairs of ([\d,]+) axes", text
    )
    assert match is not None, text
    numbers = (int(each.replace(",", "")) for each in match.groups())
    record = {"kernels": digest(families), **dict(zip(("launches", "of", "pairs", "axes"), numbers))}
    (ROOT / "measured" / "coverage.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
