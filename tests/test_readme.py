"""The README says what is so: its tables are what the commands beside them print, its example is what is rendered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from generator import operations, taps
from generator.parts import of_file
from generator.rendered import read
from generator.verify import results
from generator.verify.jobs import Subject
from generator.versions import minor_versions
from generator.vocabulary import DTYPE_SHORTHANDS, QUANTISED, SELECT, TARGETS, WORDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


RESULTS = ROOT / "tests" / "results" / "nvidia_h200"
TUNED = ROOT / "specs" / "tuned" / "nvidia_h200"
SUITES = ("speed", "spine", "inductor", "decode", "types", "batched", "fused")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((f"bench_{n}", ["bench", "--json", RESULTS / f"bench_{n}.json", "--summary"]) for n in SUITES),
        *((f"tuned_{n}", ["tune", "--report", "--tuned", TUNED / f"{n}.json"]) for n in ("gemm16", "batched", "fused")),
    ],
)
def test_a_table_of_measurements_is_what_the_command_prints(name: str, command: list[str | Path]) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "generator", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    written = README.split(f"<!-- table: {name} -->\n")[1].split("<!-- end of table -->")[0]
    assert written.strip() == printed.strip()


@pytest.mark.parametrize("path", sorted(TUNED.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_tuned_was_measured_of_kernels_as_they_are(path: Path) -> None:
    """A kernel whose code has changed since may be slower or faster: measure it again."""
    folder = ROOT / "generated" / path.stem
    measured = json.loads(path.read_text())["kernels"]
    assert measured and all(of_file(folder / f"{name}.py").timed == digest for name, digest in measured.items())


def test_the_kernel_shown_is_the_one_rendered() -> None:
    shown = re.search(r"```python\n(@triton\.jit\(.*?)```", README, re.S)
    assert shown is not None
    rendered = ROOT / "generated" / "ladder" / "gemm_fp16_rcr_none__tiled_pointer_mnk_grouped.py"
    assert shown[1] in rendered.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [operations.table, operations.functions, taps.table])
def test_a_table_of_the_language_is_what_the_code_says(table: Callable[[], str]) -> None:
    names = {operations.table: "operations", operations.functions: "functions", taps.table: "outputs"}
    name = names[table]
    written = README.split(f"<!-- table: {name} -->\n")[1].split("<!-- end of table -->")[0]
    assert written.strip() == table()


def test_the_types_that_saturate_are_those_of_the_language() -> None:
    written = README.split("<!-- table: quantised -->\n")[1].split("<!-- end of table -->")[0]
    rows = [f"| `{word}` | {found.least} | {found.most} | {found.nan} |" for word, found in QUANTISED.items()]
    assert written.strip().splitlines()[2:] == rows


def test_the_operations_shown_are_those_of_the_spec() -> None:
    shown = re.search(r"```yaml\n(ops:\n.*?)epilogue:", README, re.S)
    assert shown is not None
    rendered = (ROOT / "specs" / "ops.yaml").read_text(encoding="utf-8")
    assert all(line in rendered for line in shown[1].splitlines())


def test_the_axes_named_are_those_of_the_language() -> None:
    table = README.split("## What is supported")[1].split("The other words")[0]
    words = {*DTYPE_SHORTHANDS, *(word for word, entry in SELECT.items() if entry.available)}
    for entries in WORDS.values():
        words |= {word for word, entry in entries.items() if entry.available}
    assert {word for word in words if not re.search(rf"\b{word}\b", table)} == set()


def test_the_table_of_proofs_is_what_the_command_prints() -> None:
    specs = sorted(map(str, (ROOT / "specs").glob("*.yaml")))
    records = sorted(map(str, (ROOT / "tests" / "results" / "proofs").glob("*.json")))
    printed = subprocess.run(
        [sys.executable, "-m", "generator", "verify", *specs, "--table", *records],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    written = README.split("<!-- table: proofs -->\n")[1].split("<!-- end of table -->")[0]
    assert written.strip() == printed.strip()


def test_every_kernel_is_proved_as_far_as_the_readme_says() -> None:
    """On a GPU and on each Triton version that it is for: a kernel that has changed since must be proved anew."""
    families = [read(folder) for folder in sorted((ROOT / "generated").iterdir())]
    assert "run on an NVIDIA H200: every kernel in `generated/`; compiled" in README
    proved: dict[Subject, set[str]] = {}
    for path in (ROOT / "tests" / "results" / "proofs").glob("*.json"):
        record = results.read(path)
        minor = ".".join(record.place["triton"].split(".")[:2])
        for subject, levels in record.proved.items():
            stand = {level for level, figures in levels.items() if results.stands(figures)}
            proved.setdefault(subject, set()).update(f"{level} {minor}" for level in stand)
    for family in families:
        for subject in results.current([family]):
            kernel = family.by_name[subject.kernel]
            minors = minor_versions(SpecifierSet(kernel.triton))
            # Of device code alone, what is compiled: by all pairs of values, not of each kernel.
            wanted = {"gpu 3.6", *(f"interpret {minor}" for minor in minors)} if subject.host else set()
            missing = wanted - proved.get(subject, set())
            assert not missing, f"{kernel.name}: {sorted(missing)}"


def test_every_target_is_told() -> None:
    table = README.split("how far its kernels are proved |")[1].split("\n\n")[0]
    assert {target for target in TARGETS if not re.search(rf"\b{target}\b", table)} == set()
