"""The folder in a family's folder: its files are the generator's like others, and nothing goes through a link."""

from pathlib import Path

import pytest

from tests.helpers.support import BASE, contents

FOLDER = Path("generated/family")
RUNTIME = FOLDER / "_runtime"
MODULE = RUNTIME / "launch.py"


@pytest.fixture
def rendered(cli):
    Path("family.yaml").write_text(BASE)
    assert cli("family.yaml").status == 0
    return cli


def test_what_a_killed_rendering_leaves_is_rendered_away(rendered):
    before = contents(FOLDER)
    (FOLDER / "manifest.json").unlink()
    (RUNTIME / ".launch.py.0123456789ab.new").write_text("half")
    # A module of a family that is none of this one's.
    (RUNTIME / "autograd.py").write_text(MODULE.read_text())
    assert rendered("family.yaml", "--check").status == 1
    assert rendered("family.yaml").status == 0
    assert contents(FOLDER) == before


def test_a_module_of_somebody_else_stays(rendered):
    (RUNTIME / "mine.py").write_text("mine = 1\n")
    assert rendered("family.yaml").status == 0 and (RUNTIME / "mine.py").is_file()
    said = rendered("verify", FOLDER, "--level", "static")
    assert said.status == 1 and "_runtime/mine.py is not in the manifest, and Python could import it" in said.out


def test_no_link_is_followed(rendered):
    RUNTIME.rename("elsewhere")
    RUNTIME.symlink_to(Path("elsewhere").resolve())
    before = contents(Path("elsewhere"))
    for option in ((), ("--force",)):
        said = rendered("family.yaml", *option)
        assert said.status == 1 and f"{RUNTIME}: is a file or a link, and a folder" in said.err
    assert contents(Path("elsewhere")) == before
    said = rendered("verify", FOLDER, "--level", "static")
    assert said.status == 1 and "_runtime is not in the manifest" in said.out
    (FOLDER / "manifest.json").unlink()
    assert rendered("family.yaml").status == 1 and contents(Path("elsewhere")) == before
    RUNTIME.unlink()
    assert rendered("family.yaml").status == 0 and RUNTIME.is_dir()


def test_what_the_manifest_lists_there_is_held_against_it(rendered):
    text = MODULE.read_text()
    MODULE.unlink()
    said = rendered("verify", FOLDER, "--level", "static")
    assert said.status == 1 and "_runtime/launch.py manifest: every file that the manifest lists is there" in said.out
    MODULE.write_text(text + "\n\nx = 1\n")
    said = rendered("verify", FOLDER, "--level", "static")
    assert said.status == 1 and "case:   _runtime/launch.py" in said.out
