"""Renderings that were interrupted: each file is whole, and the next rendering mends the folder."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, OTHER, SMALLER, Interrupted
from tests.helpers.support import contents


def test_files_that_no_manifest_lists_are_removed(rerender):
    """A rendering was killed before the manifest, and then the spec of the manifest is rendered."""
    Path("family.yaml").write_text(SMALLER)
    assert rerender("family.yaml").status == 0
    old = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rerender("family.yaml").status == 0
    (FOLDER / "manifest.json").write_bytes(old["manifest.json"])
    Path("family.yaml").write_text(SMALLER)
    said = rerender("family.yaml", "--check")
    assert said.status == 1 and f"{FOLDER / OTHER}: would be removed\n" in said.err
    assert "3 removed" in rerender("family.yaml").out
    assert contents(FOLDER) == old and rerender("family.yaml", "--check").status == 0


def test_an_edited_file_that_no_manifest_lists_is_not_removed(rerender):
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER)
    text = (FOLDER / OTHER).read_text()
    for changed in (f"# SPDX-License-Identifier: MIT\n{text}", f"{text}# mine\n"):
        (FOLDER / OTHER).write_text(changed)
        before = contents(FOLDER)
        assert rerender("family.yaml").status == 1 and contents(FOLDER) == before


def test_what_killed_processes_left_is_removed(rerender):
    before = contents(FOLDER)
    # A module that this family does not have, and no manifest; then with one, and a folder of somebody else.
    shutil.copy(FOLDER / "_runtime/launch.py", FOLDER / "_runtime/autograd.py")
    (FOLDER / "manifest.json").unlink()
    for _ in range(2):
        for name in (f".{KERNEL[:64]}", ".manifest.json", "_runtime/.launch.py"):
            (FOLDER / f"{name}.0123456789ab.new").write_text("half")
        assert rerender("family.yaml").status == 0 and contents(FOLDER) == before
        (FOLDER / ".mine.new").mkdir(exist_ok=True)
    assert (FOLDER / ".mine.new").is_dir()


@pytest.mark.parametrize("at", [1, 2, 4, 7], ids=["the begin", "the first file", "the third file", "the manifest"])
def test_an_interrupted_update_leaves_whole_files_and_is_healed(rerender, monkeypatch, at):
    old = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rerender("family.yaml", "--out", "aside").status == 0
    new = contents(Path("aside/family"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(at, KeyboardInterrupt()))
        assert rerender("family.yaml").status == 130
    between = contents(FOLDER)
    assert between.keys() == old.keys()
    files = old.keys() - {"manifest.json"}
    assert all(between[name] in (old[name], new[name]) for name in files)
    changed = [name for name in files if new[name] != old[name]]
    assert len(changed) == 5 and sum(between[name] == new[name] for name in changed) == max(at - 2, 0)
    # The manifest lists what it did, and what was begun.
    manifest = json.loads(between["manifest.json"])
    assert manifest.pop("begun", []) == ([{"file": "family.yaml", "header": []}] if at > 1 else [])
    assert manifest == json.loads(old["manifest.json"])
    assert rerender("family.yaml").status == 0
    assert contents(FOLDER) == new


#: Specs of one family, of which each pair differs in its kernels, in its summary or in its header.
SPECS_OF_A_FAMILY = {
    "many": FAMILY,
    "few": SMALLER,
    "another summary": SMALLER.replace("A product.", "Another."),
    "a header": SMALLER + "header: A licence.\n",
    "another header": FAMILY + "header: |\n  One.\n\n  Two.\n",
}


@pytest.mark.parametrize("third", SPECS_OF_A_FAMILY)
@pytest.mark.parametrize("second", SPECS_OF_A_FAMILY)
@pytest.mark.parametrize("first", [None, "few"])
def test_whatever_was_interrupted_any_spec_is_rendered(cli, monkeypatch, first, second, third):
    spec = Path("family.yaml")
    spec.write_text(SPECS_OF_A_FAMILY[third])
    assert cli("family.yaml", "--out", "aside").status == 0
    if first is not None:
        spec.write_text(SPECS_OF_A_FAMILY[first])
        assert cli("family.yaml").status == 0
    spec.write_text(SPECS_OF_A_FAMILY[second])
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(5, KeyboardInterrupt()))
        cli("family.yaml")
    spec.write_text(SPECS_OF_A_FAMILY[third])
    said = cli("family.yaml")
    assert (said.status, said.err) == (0, "")
    assert contents(FOLDER) == contents(Path("aside/family")) and cli("family.yaml", "--check").status == 0


def test_an_interrupted_removal_is_healed(rerender, monkeypatch):
    Path("family.yaml").write_text(SMALLER)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(3, KeyboardInterrupt()))  # the manifest, behind __init__.py
        assert rerender("family.yaml").status == 130
    assert rerender("family.yaml").status == 0
    assert rerender("family.yaml", "--check").status == 0
