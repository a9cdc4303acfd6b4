"""A changed comment or docstring in a template leaves every record of proof standing; changed code needs its proof.

Families are rendered from changed templates by a copy of the package. Of each kernel it is looked up which records of
proof stand, and of each job whether the result cache, which goes by bytes, has that of the committed families.
"""

import os
import shutil
import subprocess
import sys
from functools import cache

import pytest

from generator.emit.code_parts import of_file
from generator.emit.manifest_reader import read
from generator.verify import proof_records
from generator.verify.job_inputs import InputReader
from generator.verify.job_selection import plan
from generator.verify.jobs import LEVELS, JobResult, subject
from generator.verify.result_cache import ResultCache
from tests.helpers import shipped
from tests.helpers.support import ROOT

#: Of several schedules, with and without descriptors and tables that were measured.
FAMILIES = ("autotune", "fp16_rcr", "ladder", "stream_k", "tf32x3")
#: What is compiled for: all these kernels are for it.
TARGET = "sm90"


@pytest.fixture
def render(tmp_path):
    """Renders the families from templates with some edits: `render(("swizzle.j2", "old", "new"))`."""
    for name in ("generator", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path / "generated"

    def rendered(*edits):
        for name, old, new in edits:
            template = tmp_path / ("" if name.startswith("generator/") else "templates") / name
            text = template.read_text()
            assert old in text, f"{name} has no {old!r}"
            template.write_text(text.replace(old, new))
        specs = [str(ROOT / "specs" / f"{name}.yaml") for name in FAMILIES]
        call = [sys.executable, "-m", "generator", *specs, "--out", str(out)]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = [read(out / name) for name in FAMILIES]
        assert [family.digests.keys() for family in found] == [family.digests.keys() for family in committed()]
        return found

    return rendered


def committed():
    return [read(shipped.folder(name)) for name in FAMILIES]


@cache
def recorded():
    """What would be recorded of every kernel as it is committed: its code, with levels and targets."""
    found = {}
    for job in jobs(committed()):
        code = subject(job)
        if code is not None:
            found.setdefault(code, set()).add(job.label)
    return found


def standing(families):
    """The records that stand of the families' kernels: family, kernel, level and target."""
    return {
        (family.name, each.kernel, label)
        for family in families
        for each in proof_records.current([family])
        for label in recorded().get(each, ())
    }


def jobs(families):
    return plan(families, LEVELS, targets=(TARGET,))


def unknown(families, folder):
    """The jobs of which nothing is known when all results of the committed families are kept: family, name, level."""
    before = committed()
    store, reader = ResultCache(folder, before, "a GPU"), InputReader()
    by_folder = {family.folder: family for family in before}
    for job in jobs(before):
        store.store(JobResult(job, 1, inputs=reader.of(job, by_folder[job.folder]).digest))
    store.flush()
    found, left = store.cached(jobs(before))
    assert not left and {result.job.level for result in found} == set(LEVELS)
    _, left = ResultCache(folder, families, "a GPU").cached(jobs(families))
    return {(job.folder.name, job.name, job.level) for job in left}


WORDS = (
    # A comment of device code, one more, and one less; of a schedule and of a macro.
    ("swizzle.j2", "column by column in each, so that", "column by column: thus"),
    ("tile.j2", "# Accumulate{{ k.transposed }} in", "# Two lines,\n# to sum in"),
    ("stream_k.py.j2", "# ", "# Note: "),
    # A docstring of a function of device code, of the launcher, of the library, and of the whole file.
    (
        "math.j2",
        "def _reciprocal(x, APPROX: tl.constexpr):",
        'def _reciprocal(x, APPROX: tl.constexpr):\n    """1 / x."""',
    ),
    ("call.j2", '    """{{ k.docstring }}', '    """Says: {{ k.docstring }}'),
    ("generator/runtime/call.py", '"""What the call launches;', '"""What each call launches;'),
    ("module.py.j2", "{{ summary }}", "{{ summary }}\n\nAnd more."),
    ("module.py.j2", "# By target, the configurations", "# By target, those"),
    # Of a family's own files.
    ("family.py.j2", '"""{{ summary }}', '"""{{ summary }} Of all.'),
    ("generator/runtime/launch.py", '"""The functions of', '"""All functions of'),
)


def test_other_words_leave_every_record_standing(render):
    before = standing(committed())
    assert {label.partition(" ")[0] for *_, label in before} == {"bounds", "interpret", "compile", "gpu"}
    found = render(*WORDS)
    # Every kernel's text is another.
    for one, other in zip(found, committed(), strict=True):
        assert not set(one.digests.values()) & set(other.digests.values())
        assert all(of_file(one.file(name)) == of_file(other.file(name)) for name in one.by_name)
    assert standing(found) == before


def grouped(families):
    """Families and names of the kernels whose tiles are visited in bands, as all but the ladder's first steps are."""
    kernels = {(family.name, kernel.name): kernel for family in families for kernel in family.kernels}
    return {each for each, kernel in kernels.items() if kernel.variant.swizzle == "grouped"}


def test_another_operator_of_device_code_makes_all_fall_that_have_it(render, tmp_path):
    found = render(("swizzle.j2", "{{ result.at_n }} = within // height", "{{ result.at_n }} = within % height"))
    before, after = standing(committed()), standing(found)
    fallen = grouped(found)
    assert 0 < len(fallen) < sum(len(family.kernels) for family in found)
    assert after == {each for each in before if each[:2] not in fallen}
    left = unknown(found, tmp_path / "cache")
    assert {(family, name) for family, name, level in left if "__" in name and level != "static"} == fallen
    for level in LEVELS:
        assert {(family, name) for family, name, other in left if other == level} >= fallen


def test_another_constant_of_the_launch_makes_what_was_compiled_fall(render, tmp_path):
    """Though it stands in the host's code: the compiler sees it."""
    first = "        constants += [self._index] if k.pointed else []\n"
    found = render(("generator/lowering/call_table.py", first, f"{first}        constants.append(('num_ctas', '1'))\n"))
    assert standing(found) == set()
    assert {level for *_, level in unknown(found, tmp_path / "cache")} == set(LEVELS)
