"""Folders that several processes render, interrupted renderings and damaged manifests: no work is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from generator.emit import manifest_reader
from generator.files.updating import alone
from generator.language.errors import CallError
from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, OTHER, OUT, SMALLER, Interrupted
from tests.helpers.support import BASE, LIMITED, LONGEST, ROOT, Spoken, contents


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
    if at > 1:
        with pytest.raises(CallError, match="a rendering was interrupted; render the family again"):
            manifest_reader.read(FOLDER)
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


def test_kernels_of_a_spec_that_was_renamed_are_removed(rerender):
    """Nothing but their own heads says what the spec was called."""
    Path("other.yaml").write_text(Path("family.yaml").read_text().replace("[none, bias]", "none") + "name: family\n")
    Path("family.yaml").rename("gone.yaml")
    manifest = FOLDER / "manifest.json"
    manifest.write_text(manifest.read_text()[:500])
    said = rerender("other.yaml")
    assert said.status == 1 and "edited by hand" in said.err and "manifest.json:" in said.err
    said = rerender("other.yaml", "--force")
    assert said.status == 0 and " 2 removed" in said.out
    assert rerender("other.yaml", "--check").status == 0
    assert not [path for path in FOLDER.glob("*_bias__*")]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"files": ["x"]}', '{"files": {"x": 1}}', '{"files": {}, "kernels": 1}', "\0"),
        # Paths that lead elsewhere, and names that no file has.
        *(
            f'{{"files": {{"{x}": "00"}}}}'
            for x in ("../victim.txt", "/etc/passwd", "sub/x", "..", "", "manifest.json")
        ),
        *('{"files": {}, "files": {}}', '{"files": {}, "name": "\\ud800"}', '{"files": ' + "[" * 100_000),
    ],
    ids=lambda text: text[:30],
)
def test_a_damaged_manifest_is_written_again(rerender, text):
    manifest = FOLDER / "manifest.json"
    (OUT / "victim.txt").write_text("mine\n")
    before = contents(OUT)
    manifest.write_text(text)
    for option in ("--check", "--diff"):
        said = rerender("family.yaml", option)
        assert said.status == 1 and said.err.startswith(f"{manifest}:1: is not a manifest (")
        assert manifest.read_text() == text
    said = rerender("family.yaml")
    assert (said.status, said.out) == (0, f"generated/family: 4 kernels; 1 updated, {3 + LIMITED} same\n")
    assert said.err.startswith(f"{manifest}:1: is not a manifest (") and said.err.endswith("); it is written again\n")
    assert contents(OUT) == before


@pytest.mark.parametrize("damage", ["conflict", "cut off", "empty", "not text"])
def test_a_damaged_manifest_loses_no_work(rerender, damage):
    manifest = FOLDER / "manifest.json"
    text = manifest.read_bytes()
    damaged = {
        "conflict": b"<<<<<<< HEAD\n" + text + b"=======\n" + text + b">>>>>>> other\n",
        "cut off": text[: len(text) // 2],
        "empty": b"",
        "not text": b"\xff\xfe",
    }
    manifest.write_bytes(damaged[damage])
    edited = FOLDER / KERNEL
    edited.write_text(edited.read_text() + "# mine\n")
    before = contents(FOLDER)
    said = rerender("family.yaml")
    assert said.status == 1 and said.err.startswith(f"{edited}: edited by hand; ") and contents(FOLDER) == before
    # A foreign file stays, and where nothing shows that the manifest was one, the folder is left alone.
    (FOLDER / "notes.txt").write_text("mine\n")
    said = rerender("family.yaml", "--force")
    if damage in ("conflict", "cut off"):
        assert said.status == 0 and rerender("family.yaml", "--check").status == 0
    else:
        assert said.status == 1 and "holds files (notes.txt) that were not rendered" in said.err
        assert contents(FOLDER) == {**before, "notes.txt": b"mine\n"}
    assert (FOLDER / "notes.txt").read_text() == "mine\n"


def test_a_file_named_as_the_manifest_is_not_taken_for_one(cli):
    Path("family.yaml").write_text(FAMILY)
    FOLDER.mkdir(parents=True)
    (FOLDER / "manifest.json").write_text('{"name": "my web page"}')
    for options in ((), ("--force",), ("--check",)):
        said = cli("family.yaml", *options)
        assert said.status == 1 and "no file of the folder was rendered here: move it away" in said.err
        assert contents(FOLDER) == {"manifest.json": b'{"name": "my web page"}'}


def test_a_damaged_manifest_of_several_kernels_needs_a_whole_rendering(rerender):
    (FOLDER / "manifest.json").write_text("{")
    before = contents(FOLDER)
    for options in (("--only", "*_bias_*"), ("--only", "*_bias_*", "--check")):
        said = rerender("family.yaml", *options)
        assert said.status == 1 and "--only would lose the other kernels: render without --only first" in said.err
    assert contents(FOLDER) == before


def test_a_command_that_reads_a_damaged_manifest_names_what_mends_it(rerender):
    (FOLDER / "manifest.json").write_text("{")
    said = rerender("verify", FOLDER, "--level", "static")
    assert said.status == 2 and "manifest.json:1: is invalid: is not JSON: " in said.err
    command = said.err.strip().rpartition("render the family again: python -m generator ")[2]
    assert command == "family.yaml" and rerender(command).status == 0


THREE = BASE + "epilogue: [none, bias, relu]\nmasking: [none, mnk]\n"


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
    Path("family.yaml").write_text(THREE)
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
