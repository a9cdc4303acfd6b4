"""Renderings that were interrupted: each file is whole, and the next rendering mends the folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, OTHER, SMALLER, Cli, Interrupted, render_family
from tests.helpers.support import BESIDE_KERNELS, Spoken, contents


@pytest.fixture
def rendered(cli: Cli) -> Cli:
    """The command line in a folder where family.yaml, of four kernels, was rendered."""
    return render_family(cli)


def test_files_that_no_manifest_lists_are_removed(rendered: Cli) -> None:
    """A rendering was killed before the manifest, and then the spec of the manifest is rendered."""
    Path("family.yaml").write_text(SMALLER)
    assert rendered("family.yaml").status == 0
    old = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rendered("family.yaml").status == 0
    (FOLDER / "manifest.json").write_bytes(old["manifest.json"])
    Path("family.yaml").write_text(SMALLER)
    said = rendered("family.yaml", "--check")
    assert said.status == 1 and f"{FOLDER / OTHER}: would be removed\n" in said.err
    assert "3 removed" in rendered("family.yaml").out
    assert contents(FOLDER) == old and rendered("family.yaml", "--check").status == 0


def test_an_edited_file_that_no_manifest_lists_is_not_removed(rendered: Cli) -> None:
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER)
    text = (FOLDER / OTHER).read_text()
    for changed in (f"# SPDX-License-Identifier: MIT\n{text}", f"{text}# mine\n"):
        (FOLDER / OTHER).write_text(changed)
        before = contents(FOLDER)
        assert rendered("family.yaml").status == 1 and contents(FOLDER) == before


def test_a_first_rendering_that_was_killed_is_narrowed(rendered: Cli) -> None:
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER)
    same = 2 + len(BESIDE_KERNELS) - 3
    assert rendered("family.yaml").out == f"generated/family: 2 kernels; 1 created, 2 updated, 3 removed, {same} same\n"
    assert rendered("family.yaml", "--check").status == 0


def test_what_killed_processes_left_is_removed(rendered: Cli) -> None:
    before = contents(FOLDER)
    for name in (f".{KERNEL[:64]}.0123456789ab.new", ".manifest.json.0123456789ab.new"):
        (FOLDER / name).write_text("half")
    (FOLDER / ".mine.new").mkdir()
    assert rendered("family.yaml").status == 0 and contents(FOLDER) == before
    assert (FOLDER / ".mine.new").is_dir()


@pytest.mark.parametrize("at", [1, 2, 4, 7], ids=["the begin", "the first file", "the third file", "the manifest"])
def test_an_interrupted_update_leaves_whole_files_and_is_healed(
    rendered: Cli, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    old = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rendered("family.yaml", "--out", "aside").status == 0
    new = contents(Path("aside/family"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(at, KeyboardInterrupt()))
        assert rendered("family.yaml").status == 130
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
    assert rendered("family.yaml").status == 0
    assert contents(FOLDER) == new


@pytest.mark.parametrize("at", [1, 2, 4, 8], ids=["the begin", "the first file", "the third file", "a later one"])
def test_an_interrupted_first_rendering_is_healed(cli: Cli, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    Path("family.yaml").write_text(FAMILY)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(at, KeyboardInterrupt()))
        assert cli("family.yaml").status == 130
    assert len(contents(FOLDER)) == at - 1
    if at > 1:
        said = cli("verify", FOLDER, "--level", "static")
        assert said.status == 2 and "render the family again" in said.err
    said = cli("family.yaml")
    assert (said.status, said.err) == (0, "")
    assert cli("family.yaml", "--check").status == 0


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
def test_whatever_was_interrupted_any_spec_is_rendered(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, first: str | None, second: str, third: str
) -> None:
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


def test_only_after_an_interrupted_first_rendering(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("family.yaml").write_text(FAMILY)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(6, KeyboardInterrupt()))
        cli("family.yaml")
    before = contents(FOLDER)
    said = cli("family.yaml", "--only", "*_bias_*")
    assert said.status == 1 and "render without --only first" in said.err and contents(FOLDER) == before


def test_an_interrupted_removal_is_healed(rendered: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("family.yaml").write_text(SMALLER)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(3, KeyboardInterrupt()))  # the manifest, behind __init__.py
        assert rendered("family.yaml").status == 130
    assert rendered("family.yaml").status == 0
    assert rendered("family.yaml", "--check").status == 0


def test_an_interrupt_after_the_renaming_is_one(rendered: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    replace = os.replace

    def interrupted(source: str, target: str) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    assert rendered("family.yaml") == Spoken(130, "", "interrupted\n")
