"""Families of which a folder keeps a digest alone: rendering with --all, checking, and what needs their files."""

import json
import shutil
from pathlib import Path

import pytest

from generator.emit import kept_digests
from generator.emit.manifest_reader import read
from generator.language.errors import CallError
from generator.plan.families import families
from tests.helpers import shipped
from tests.helpers.support import BASE, LIMITED, SPECS

SPEC, OUT = Path("specs/kept.yaml"), Path("generated")


@pytest.fixture
def kept(cli, tmp_path, monkeypatch):
    """The command line where a family's digest is kept, and another's folder."""
    SPEC.parent.mkdir()
    for name in ("kept", "other"):
        SPEC.with_stem(name).write_text(BASE)
    OUT.mkdir()
    (OUT / "digests.json").write_text('{"kept": ""}')
    monkeypatch.setattr(kept_digests, "aside", lambda: tmp_path / "aside")
    assert cli("--all").out.endswith("generated/kept: 1 kernel; 1 updated (its digest)\n")
    return cli


def folder():
    return kept_digests.folder(*families([SPEC]), OUT)


def rewritten():
    SPEC.write_text(f"{BASE}epilogue: relu\n")


def test_all_writes_the_digest_and_no_folder(kept):
    assert sorted(path.name for path in OUT.iterdir()) == ["digests.json", "other"]
    lines = f"generated/other: 1 kernel; {LIMITED} same", "generated/kept: 1 kernel; 1 same (its digest)"
    assert kept("--all").out.splitlines() == [*lines]
    assert kept("--all", "--check").out == "2 kernels of 2 families as the specs say\n"
    rewritten()
    assert kept("--all").out.endswith("1 updated (its digest)\n")


def test_a_digest_that_is_out_of_date_is_a_difference(kept):
    rewritten()
    said = kept("--all", "--check")
    assert said.status == 1
    assert said.err == (
        "generated/digests.json: kept: would be updated\n"
        "1 file to change; render with: python -m generator specs/kept.yaml\n"
    )
    with pytest.raises(CallError, match=r"digests\.json is out of date with specs.kept\.yaml; renew it: "):
        folder()


def test_a_spec_that_is_named_has_its_folder_and_its_digest(kept):
    rewritten()
    assert kept(SPEC).out == f"generated/kept: 1 kernel; {LIMITED} created\n"
    assert folder() == OUT / "kept"
    shutil.rmtree(OUT / "kept")
    (OUT / "kept" / "__pycache__").mkdir(parents=True)
    assert kept("--all", "--check").status == 0


def test_what_needs_the_files_renders_them_aside_once(kept, tmp_path):
    found = folder()
    assert found == tmp_path / "aside" / "kept" and len(read(found).kernels) == 1
    kernel = next(found.glob("gemm_*.py"))
    kernel.write_text("")
    assert folder() == found and kernel.read_text() == "", "what has the digest is not rendered again"
    with (found / "manifest.json").open("a") as file:
        file.write("\n")
    assert folder() == found and kernel.read_text() != ""
    said = kept("verify", SPEC, "--level", "static")
    assert said.status == 0 and "all 1 passed" in said.out
    assert kept("verify", SPEC.with_stem("other"), "--out", "nowhere").err.count("render it first") == 1


@pytest.mark.parametrize("text", ["[]", '{"kept": 1}', "{"])
def test_a_file_that_has_no_digests(kept, text):
    (OUT / "digests.json").write_text(text)
    said = kept("--all", "--check")
    assert said.status == 1 and said.err.startswith("generated/digests.json:1: ")


def test_every_shipped_family_is_committed_or_has_its_digest():
    digests = json.loads((shipped.GENERATED / kept_digests.FILE).read_text())
    own = {path.name for path in shipped.GENERATED.iterdir() if path.is_dir()}
    # One that somebody has rendered to look at is not committed for it.
    assert own | digests.keys() == {path.stem for path in SPECS} and [*digests] == sorted(digests)
