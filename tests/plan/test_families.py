"""Several specs are read together, and a spec under several paths once."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.language.errors import SpecError
from generator.plan.families import families
from tests.helpers.support import BASE


def names(*paths: Path) -> list[str]:
    return [family.spec.name for family in families(paths)]


def test_a_spec_under_several_paths_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec, other = tmp_path / "one.yaml", tmp_path / "folder"
    spec.write_text(BASE)
    other.mkdir()
    (other / "one.yaml").symlink_to(spec)
    paths = [Path("one.yaml"), spec, Path("folder/../one.yaml"), other / "one.yaml"]
    assert names(*paths) == ["one"]
    assert [family.spec.path for family in families(paths)] == [Path("one.yaml")]


def test_a_link_of_another_name_is_another_spec(tmp_path: Path) -> None:
    spec, link = tmp_path / "one.yaml", tmp_path / "two.yaml"
    spec.write_text(BASE)
    link.symlink_to(spec)
    assert names(spec, link) == ["one", "two"]
    # Unless the text gives the name.
    spec.write_text(BASE + "name: three\n")
    assert names(spec, link) == ["three"]


def test_a_copy_is_another_spec_that_cannot_have_the_folder_and_a_mistake_is_said_once(tmp_path: Path) -> None:
    spec, copy = tmp_path / "one.yaml", tmp_path / "folder" / "one.yaml"
    copy.parent.mkdir()
    spec.write_text(BASE)
    copy.write_text(BASE)
    with pytest.raises(SpecError, match="'one' is also the name of"):
        families([spec, copy])
    spec.write_text(BASE.replace("rcr", "xyz"))
    with pytest.raises(SpecError) as caught:
        families([spec, tmp_path / "." / ".." / tmp_path.name / "one.yaml"])
    assert len(caught.value.mistakes) == 1
