"""Several processes that render one folder: the folder is whole, and each process says what it did."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generator.files.updating import alone
from tests.helpers.support import BASE, LIMITED, LONGEST, ROOT, Spoken, contents

FAMILY = BASE + "epilogue: [none, bias, relu]\nmasking: [none, mnk]\n"
FOLDER = Path("generated/family")


def start(*arguments):
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "generator", *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(processes):
    """How the processes have ended."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=LONGEST)
        found.append(Spoken(process.returncode, out, err))
    return found


@pytest.fixture
def family(cli):
    Path("family.yaml").write_text(FAMILY)
    return cli


def test_processes_that_render_one_folder(family):
    assert family("family.yaml", "--out", "aside").status == 0
    for said in ended([start("family.yaml") for _ in range(4)]):
        assert said.status == 0 and said.out.startswith("generated/family: 6 kernels; ")
        assert set(said.err.splitlines()) <= {f"{FOLDER}: waiting for another process that renders this folder"}
    assert contents(FOLDER) == contents(Path("aside/family"))
    assert family("family.yaml", "--check").status == 0


def test_a_process_waits_for_another_one(family):
    FOLDER.mkdir(parents=True)
    with alone(FOLDER):
        waiting = start("family.yaml")
        assert waiting.stderr.readline() == f"{FOLDER}: waiting for another process that renders this folder\n"
        assert contents(FOLDER) == {}
    (said,) = ended([waiting])
    assert said == Spoken(0, f"generated/family: 6 kernels; {6 + LIMITED} created\n", "")


@pytest.mark.parametrize("other", ["other.yaml", "below/family.yaml"])
def test_after_another_process_with_another_spec_nothing_is_written(family, other):
    """Two specs of one name, each in a call of its own: the second of the calls is refused."""
    Path("below").mkdir()
    Path(other).write_text(BASE + "name: family\n")
    FOLDER.mkdir(parents=True)
    with alone(FOLDER):
        waiting = start(other)
        waiting.stderr.readline()
        # What the process that has the folder renders meanwhile.
        assert family("family.yaml", "--out", "aside").status == 0
        for path in Path("aside/family").iterdir():
            path.rename(FOLDER / path.name)
    (said,) = ended([waiting])
    assert said.status == 1 and said.out == "" and "another process has rendered " in said.err
    assert "another `name`" in said.err and family("family.yaml", "--check").status == 0


def test_a_spec_beside_another_of_the_same_name(family):
    assert family("family.yaml").status == 0
    Path("other.yaml").write_text(BASE + "name: family\n")
    before = contents(FOLDER)
    for options in ((), ("--force",), ("--check",)):
        said = family("other.yaml", *options)
        told = f"{FOLDER}: was rendered from family.yaml, which has the same name: give one of the two specs another"
        assert said.status == 1 and said.err.startswith(told) and contents(FOLDER) == before
    # A spec that was renamed is no other spec.
    Path("family.yaml").unlink()
    assert family("other.yaml").status == 0


def test_calls_with_the_same_families_in_another_order_do_not_wait_for_ever(family):
    Path("other.yaml").write_text(BASE)
    calls = [("family.yaml", "other.yaml"), ("other.yaml", "family.yaml")]
    assert [said.status for said in ended([start(*call) for call in (*calls, *calls)])] == [0] * 4
    assert family("family.yaml", "other.yaml", "--check").status == 0


def test_a_folder_of_which_nothing_is_written_is_not_left(family):
    Path("other.yaml").write_text(BASE)
    Path("vendor/family").mkdir(parents=True)
    Path("vendor/family/notes.txt").write_text("mine\n")
    assert family("other.yaml", "family.yaml", "--out", "vendor").status == 1
    assert [path.name for path in Path("vendor").iterdir()] == ["family"]


def test_every_obstacle_of_every_folder_is_named(family):
    Path("other.yaml").write_text(BASE)
    Path("generated").mkdir()
    FOLDER.write_text("mine\n")
    Path("generated/other").mkdir()
    Path("generated/other/notes.txt").write_text("mine\n")
    said = family("family.yaml", "other.yaml")
    assert said.status == 1 and said.err.splitlines() == [
        f"{FOLDER}: is a file, and the family's folder must be there; move the file away",
        "generated/other: holds files (notes.txt) and no manifest.json: not rendered here",
    ]


def test_two_names_of_one_folder(family):
    Path("other.yaml").write_text(BASE)
    Path("generated/other").mkdir(parents=True)
    FOLDER.symlink_to("other")
    said = family("family.yaml", "other.yaml")
    assert said.status == 1 and "is the same folder as" in said.err
    assert contents(Path("generated/other")) == {}
