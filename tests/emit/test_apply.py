"""Bringing a folder to what was rendered: only what changed, whole or absent, never another's work."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from generator.emit.apply import is_unchanged
from tests.helpers.support import BASE, BESIDE_KERNELS, Spoken, contents

Cli = Callable[..., Spoken]

FAMILY = BASE + "epilogue: [none, bias]\nmasking: [none, mnk]\n"
SMALLER = BASE + "epilogue: [none, bias]\nmasking: mnk\n"
OUT = Path("generated")
FOLDER = OUT / "family"
KERNEL = "gemm_fp16_rcr_bias__tiled_pointer_mnk_grouped.py"
OTHER = "gemm_fp16_rcr_none__tiled_pointer_none_grouped.py"


@pytest.fixture
def rendered(cli: Cli) -> Cli:
    """The command line in a folder where family.yaml, of four kernels, was rendered."""
    Path("family.yaml").write_text(FAMILY)
    assert cli("family.yaml").status == 0
    return cli


def test_outcomes_in_words(cli: Cli) -> None:
    spec = Path("family.yaml")
    spec.write_text(FAMILY)
    assert cli("family.yaml").out == "generated/family: 4 kernels; 14 created\n"
    assert cli("family.yaml").out == "generated/family: 4 kernels; 14 same\n"
    spec.write_text(SMALLER)
    # The two kernels that are left and the family's own files have not changed; __init__.py and the manifest have.
    assert cli("family.yaml").out == "generated/family: 2 kernels; 2 updated, 2 removed, 10 same\n"
    spec.write_text(SMALLER.replace("A product.", "Another."))
    assert cli("family.yaml").out == "generated/family: 2 kernels; 4 updated, 8 same\n"
    assert sorted(contents(FOLDER)) == sorted([KERNEL, KERNEL.replace("_bias_", "_none_"), *BESIDE_KERNELS])


def test_nothing_is_written_where_nothing_changed(rendered: Cli) -> None:
    for path in FOLDER.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    before = {path: path.stat().st_ino for path in FOLDER.iterdir()}
    assert rendered("family.yaml").status == 0
    assert {path: path.stat().st_ino for path in FOLDER.iterdir()} == before
    assert {path.stat().st_mtime_ns for path in FOLDER.iterdir()} == {10**18}


def test_only_what_changed_is_written(rendered: Cli) -> None:
    (FOLDER / KERNEL).unlink()
    for path in FOLDER.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    assert rendered("family.yaml").out == "generated/family: 4 kernels; 1 created, 13 same\n"
    assert [path.name for path in FOLDER.iterdir() if path.stat().st_mtime_ns != 10**18] == [KERNEL]


def test_a_hand_edit_stops_everything(rendered: Cli) -> None:
    Path("another.yaml").write_text(BASE)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    edited = FOLDER / KERNEL
    edited.write_text(edited.read_text() + "# mine\n")
    before = contents(Path())
    # The other family of the call comes first and is in nobody's way, and is not written either.
    said = rendered("another.yaml", "family.yaml")
    assert said.status == 1 and said.out == ""
    assert said.err == f"{edited}: edited by hand; keep the edit elsewhere, or overwrite it with --force\n"
    assert contents(Path()) == before


def test_every_obstacle_is_named(rendered: Cli) -> None:
    for name in (KERNEL, OTHER, "__init__.py"):
        (FOLDER / name).write_text("mine\n")
    said = rendered("family.yaml")
    assert said.status == 1
    assert sorted(line.partition(":")[0] for line in said.err.splitlines()) == sorted(
        str(FOLDER / name) for name in (KERNEL, OTHER, "__init__.py")
    )


@pytest.mark.parametrize("line", ["# mine\n", "import os\n", "\f"], ids=["comment", "code", "form feed"])
def test_any_edit_is_one(rendered: Cli, line: str) -> None:
    text = (FOLDER / KERNEL).read_text()
    (FOLDER / KERNEL).write_text(text + line)
    assert rendered("family.yaml", "--check").status == 1
    assert rendered("family.yaml").status == 1


def test_force_overwrites_an_edit(rendered: Cli) -> None:
    before = contents(FOLDER)
    (FOLDER / KERNEL).write_text("mine\n")
    assert rendered("family.yaml", "--force").out == "generated/family: 4 kernels; 1 updated, 13 same\n"
    assert contents(FOLDER) == before


def test_an_edited_file_that_no_longer_belongs_is_not_removed(rendered: Cli) -> None:
    Path("family.yaml").write_text(SMALLER)
    (FOLDER / OTHER).write_text("mine\n")
    before = contents(FOLDER)
    assert rendered("family.yaml").status == 1 and contents(FOLDER) == before
    assert rendered("family.yaml", "--force").status == 0 and not (FOLDER / OTHER).exists()


def test_an_edit_that_was_also_made_in_the_spec_is_no_obstacle(rendered: Cli) -> None:
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rendered("family.yaml", "--out", "aside").status == 0
    shutil.copy(Path("aside/family", KERNEL), FOLDER / KERNEL)
    assert rendered("family.yaml").status == 0


def test_a_stray_file_of_the_folder_is_left_alone(rendered: Cli) -> None:
    (FOLDER / "notes.txt").write_text("mine\n")
    Path("family.yaml").write_text(SMALLER)
    assert rendered("family.yaml", "--force").status == 0
    assert (FOLDER / "notes.txt").read_text() == "mine\n"


def test_a_folder_without_a_manifest_is_another_s(cli: Cli) -> None:
    Path("family.yaml").write_text(FAMILY)
    FOLDER.mkdir(parents=True)
    (FOLDER / "notes.txt").write_text("mine\n")
    for options in ((), ("--force",)):
        said = cli("family.yaml", *options)
        assert said.status == 1 and contents(FOLDER) == {"notes.txt": b"mine\n"}
        assert said.err == f"{FOLDER}: holds files (notes.txt) and no manifest.json: not rendered here\n"


@pytest.mark.parametrize("inside", [(), ("__pycache__",)], ids=["empty", "what Python leaves"])
def test_a_folder_that_holds_nobody_s_work_is_taken(cli: Cli, inside: tuple[str, ...]) -> None:
    Path("family.yaml").write_text(FAMILY)
    FOLDER.mkdir(parents=True)
    for name in inside:
        (FOLDER / name).mkdir()
    assert cli("family.yaml").status == 0


def test_a_foreign_file_in_the_way(rendered: Cli) -> None:
    Path("family.yaml").write_text(FAMILY.replace("[none, bias]", "[none, bias, relu]"))
    stranger = FOLDER / "gemm_fp16_rcr_relu__tiled_pointer_mnk_grouped.py"
    stranger.write_text("mine\n")
    before = contents(FOLDER)
    for options in ((), ("--force",)):
        said = rendered("family.yaml", *options)
        assert (said.status, said.err) == (1, f"{stranger}: was not rendered here; move it away\n")
        assert contents(FOLDER) == before


def test_a_folder_in_the_way_of_a_file(rendered: Cli) -> None:
    (FOLDER / KERNEL).unlink()
    (FOLDER / KERNEL).mkdir()
    said = rendered("family.yaml", "--force")
    assert (said.status, said.err) == (1, f"{FOLDER / KERNEL}: is a folder, not a file\n")


def test_a_file_in_the_way_of_the_folder(cli: Cli) -> None:
    Path("family.yaml").write_text(FAMILY)
    OUT.mkdir()
    FOLDER.write_text("mine\n")
    said = cli("family.yaml")
    assert (said.status, said.err) == (
        1,
        f"{FOLDER}: is a file, and the family's folder must be there; move the file away\n",
    )
    assert FOLDER.read_text() == "mine\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut off"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="without files"),
        pytest.param('{"files": ["x"]}', id="files as a list"),
        pytest.param('{"files": {"x": 1}}', id="a digest that is a number"),
        pytest.param('{"files": {"../victim.txt": "00"}}', id="a path up"),
        pytest.param('{"files": {"/etc/passwd": "00"}}', id="an absolute path"),
        pytest.param('{"files": {"..\\\\victim.txt": "00"}}', id="a path up on Windows"),
        pytest.param('{"files": {"sub/victim.txt": "00"}}', id="a path down"),
        pytest.param('{"files": {"..": "00"}}', id="the folder above"),
        pytest.param('{"files": {"": "00"}}', id="no name"),
        pytest.param('{"files": {"a\\u0000b": "00"}}', id="NUL"),
        pytest.param('{"files": {"manifest.json": "00"}}', id="itself"),
        pytest.param('{"files": {}, "kernels": 1}', id="kernels as a number"),
        pytest.param('{"files": {}, "spec": []}', id="the spec as a list"),
        pytest.param('{"files": {}, "files": {}}', id="a key twice"),
        pytest.param("\0", id="a control character"),
        pytest.param('{"files": ' + "[" * 100_000, id="nested beyond measure"),
    ],
)
def test_a_damaged_manifest_is_written_again(rendered: Cli, text: str) -> None:
    manifest = FOLDER / "manifest.json"
    (OUT / "victim.txt").write_text("mine\n")
    before = contents(OUT)
    manifest.write_text(text)
    for option in ("--check", "--diff"):
        said = rendered("family.yaml", option)
        assert said.status == 1 and said.err.startswith(f"{manifest}:1: is not a manifest (")
        assert manifest.read_text() == text
    said = rendered("family.yaml")
    assert (said.status, said.out) == (0, "generated/family: 4 kernels; 1 updated, 13 same\n")
    assert said.err.startswith(f"{manifest}:1: is not a manifest (") and said.err.endswith("); it is written again\n")
    assert contents(OUT) == before


@pytest.mark.parametrize("damage", ["conflict", "cut off", "empty", "not text"])
def test_a_damaged_manifest_loses_no_work(rendered: Cli, damage: str) -> None:
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
    before = contents(Path())
    said = rendered("family.yaml")
    assert said.status == 1 and said.err.startswith(f"{edited}: edited by hand; ") and contents(Path()) == before
    # A foreign file stays, and where nothing shows that the manifest was one, the folder is left alone.
    (FOLDER / "notes.txt").write_text("mine\n")
    said = rendered("family.yaml", "--force")
    if damage in ("conflict", "cut off"):
        assert said.status == 0 and rendered("family.yaml", "--check").status == 0
    else:
        assert said.status == 1 and "holds files (notes.txt) that were not rendered" in said.err
        assert contents(FOLDER) == {**before_of(before), "notes.txt": b"mine\n"}
    assert (FOLDER / "notes.txt").read_text() == "mine\n"


def before_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the family's folder among those of the folder of the test."""
    start = f"{FOLDER.as_posix()}/"
    return {name.removeprefix(start): data for name, data in files.items() if name.startswith(start)}


def test_a_file_named_as_the_manifest_is_not_taken_for_one(cli: Cli) -> None:
    Path("family.yaml").write_text(FAMILY)
    FOLDER.mkdir(parents=True)
    (FOLDER / "manifest.json").write_text('{"name": "my web page"}')
    for options in ((), ("--force",), ("--check",)):
        said = cli("family.yaml", *options)
        assert said.status == 1 and "no file of the folder was rendered here: move it away" in said.err
        assert contents(FOLDER) == {"manifest.json": b'{"name": "my web page"}'}


def test_a_damaged_manifest_of_several_kernels_needs_a_whole_rendering(rendered: Cli) -> None:
    (FOLDER / "manifest.json").write_text("{")
    before = contents(FOLDER)
    for options in (("--only", "*_bias_*"), ("--only", "*_bias_*", "--check")):
        said = rendered("family.yaml", *options)
        assert said.status == 1 and "--only would lose the other kernels: render without --only first" in said.err
    assert contents(FOLDER) == before


def test_a_command_that_reads_a_damaged_manifest_names_what_mends_it(rendered: Cli) -> None:
    (FOLDER / "manifest.json").write_text("{")
    said = rendered("verify", FOLDER, "--level", "static")
    assert said.status == 2 and "is not a manifest (is not JSON: " in said.err
    command = said.err.strip().rpartition("render the family again: python -m generator ")[2]
    assert command == "family.yaml" and rendered(command).status == 0


HEADS = {
    "a licence": lambda text: "# SPDX-License-Identifier: MIT\n" + text,
    "an import": lambda text: "import os\n" + text,
    "a byte-order mark": lambda text: "\ufeff" + text,
    "a blank line": lambda text: "\n" + text,
    "another command": lambda text: text.replace("family.yaml", "other.yaml", 1),
    "no command": lambda text: text.split("\n", 1)[1],
    "a line between": lambda text: text.replace("\n", "\n# mine\n", 1),
}


@pytest.mark.parametrize("manifest", ["there", "absent", "damaged"])
@pytest.mark.parametrize("head", HEADS)
def test_a_change_above_the_digest_is_an_edit(rendered: Cli, head: str, manifest: str) -> None:
    edited = FOLDER / KERNEL
    edited.write_text(HEADS[head](edited.read_text()))
    if manifest == "absent":
        (FOLDER / "manifest.json").unlink()
    elif manifest == "damaged":
        (FOLDER / "manifest.json").write_text("")
    before = contents(FOLDER)
    said = rendered("family.yaml")
    assert said.status == 1 and contents(FOLDER) == before
    assert f"{edited}: edited by hand; keep the edit elsewhere, or overwrite it with --force\n" in said.err
    assert rendered("family.yaml", "--force").status == 0 and rendered("family.yaml", "--check").status == 0


@pytest.mark.parametrize("head", HEADS)
def test_a_file_changed_above_the_digest_is_not_removed(rendered: Cli, head: str) -> None:
    Path("family.yaml").write_text(SMALLER)
    edited = FOLDER / OTHER
    edited.write_text(HEADS[head](edited.read_text()))
    before = contents(FOLDER)
    said = rendered("family.yaml")
    assert (said.status, said.err.partition(";")[0]) == (1, f"{edited}: edited by hand") and contents(FOLDER) == before
    assert rendered("family.yaml", "--force").status == 0 and not edited.exists()


def test_the_header_of_a_spec_is_no_edit(cli: Cli) -> None:
    header = "header: |\n  SPDX-License-Identifier: MIT\n\n  © Größe\n"
    Path("family.yaml").write_text(FAMILY + header)
    assert cli("family.yaml").status == 0
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER + header)
    assert cli("family.yaml").out == "generated/family: 2 kernels; 1 created, 1 updated, 2 removed, 10 same\n"
    edited = FOLDER / KERNEL
    edited.write_text(edited.read_text().replace("# SPDX-License-Identifier: MIT\n", "", 1))
    assert cli("family.yaml").status == 1


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
    assert "2 removed" in rendered("family.yaml").out
    assert contents(FOLDER) == old and rendered("family.yaml", "--check").status == 0


def test_an_edited_file_that_no_manifest_lists_is_not_removed(rendered: Cli) -> None:
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER)
    for change in HEADS["a licence"], lambda text: text + "# mine\n":
        text = (FOLDER / OTHER).read_text()
        (FOLDER / OTHER).write_text(change(text))
        before = contents(FOLDER)
        assert rendered("family.yaml").status == 1 and contents(FOLDER) == before
        (FOLDER / OTHER).write_text(text)


def test_a_first_rendering_that_was_killed_is_narrowed(rendered: Cli) -> None:
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER)
    assert rendered("family.yaml").out == "generated/family: 2 kernels; 1 created, 1 updated, 2 removed, 10 same\n"
    assert rendered("family.yaml", "--check").status == 0


def test_what_killed_processes_left_is_removed(rendered: Cli) -> None:
    before = contents(FOLDER)
    for name in (f".{KERNEL}.new", ".manifest.json.0123456789ab.new"):
        (FOLDER / name).write_text("half")
    (FOLDER / ".mine.new").mkdir()
    assert rendered("family.yaml").status == 0 and contents(FOLDER) == before
    assert (FOLDER / ".mine.new").is_dir()


def with_crlf(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def test_line_ends_do_not_count(rendered: Cli) -> None:
    for path in (Path("family.yaml"), *FOLDER.iterdir()):
        with_crlf(path)
    before = contents(Path())
    assert rendered("family.yaml", "--check").status == 0
    assert rendered("family.yaml", "--diff") == Spoken(0, "", "")
    assert rendered("family.yaml").out == "generated/family: 4 kernels; 14 same\n"
    assert contents(Path()) == before
    # What changes is written with LF; an edit in a file with CRLF is still one.
    Path("family.yaml").write_text(SMALLER)
    assert rendered("family.yaml").status == 0 and b"\r" not in (FOLDER / "__init__.py").read_bytes()
    (FOLDER / KERNEL).write_bytes((FOLDER / KERNEL).read_bytes() + b"# mine\r\n")
    assert rendered("family.yaml").status == 1


def test_line_ends_do_not_count_without_a_manifest(rendered: Cli) -> None:
    for path in FOLDER.iterdir():
        with_crlf(path)
    (FOLDER / "manifest.json").unlink()
    assert rendered("family.yaml").out == "generated/family: 4 kernels; 1 created, 13 same\n"


BYTES = {
    "not UTF-8": lambda data: data + b"# \xff\n",
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "NUL": lambda data: data + b"\0",
    "a lone CR": lambda data: data.replace(b"\n", b"\r"),
    "nothing": lambda data: b"",
}


@pytest.mark.parametrize("change", BYTES)
@pytest.mark.parametrize("name", [KERNEL, "__init__.py", ".gitattributes"])
def test_bytes_that_are_no_text_are_an_edit(rendered: Cli, name: str, change: str) -> None:
    whole = contents(FOLDER)
    (FOLDER / name).write_bytes(BYTES[change](whole[name]))
    before = contents(FOLDER)
    for options in ((), ("--stage",)):
        said = rendered("family.yaml", *options)
        assert said.status == 1 and said.err.startswith(f"{FOLDER / name}: edited by hand; ")
    said = rendered("family.yaml", "--check")
    assert said.status == 1 and f"{FOLDER / name}: would be updated (edited by hand)\n" in said.err
    assert rendered("family.yaml", "--diff").status == 1 and contents(FOLDER) == before
    assert rendered("family.yaml", "--list").status == 0
    assert rendered("family.yaml", "--force").status == 0 and contents(FOLDER) == whole


def test_a_file_is_compared_without_its_line_ends(rendered: Cli) -> None:
    path = FOLDER / KERNEL
    recorded = json.loads((FOLDER / "manifest.json").read_text())["files"][KERNEL]
    assert is_unchanged(path, recorded)
    with_crlf(path)
    assert is_unchanged(path, recorded)
    path.write_bytes(path.read_bytes() + b"\xff")
    assert not is_unchanged(path, recorded) and not is_unchanged(FOLDER / "absent.py", recorded)


def test_a_folder_of_an_older_version_gets_the_attributes(rendered: Cli) -> None:
    manifest = json.loads((FOLDER / "manifest.json").read_text())
    del manifest["files"][".gitattributes"]
    (FOLDER / "manifest.json").write_text(json.dumps(manifest))
    (FOLDER / ".gitattributes").unlink()
    assert f"{FOLDER}/.gitattributes: would be created\n" in rendered("family.yaml", "--check").err
    assert rendered("family.yaml").out == "generated/family: 4 kernels; 1 created, 1 updated, 12 same\n"


def test_a_pipe_in_the_place_of_a_file(rendered: Cli) -> None:
    (FOLDER / KERNEL).unlink()
    os.mkfifo(FOLDER / KERNEL)
    for options in ((), ("--force",), ("--check",)):
        said = rendered("family.yaml", *options)
        assert said.status == 1 and f"{FOLDER / KERNEL}: is a device or a pipe, not a file\n" in said.err


def test_a_link_in_the_place_of_a_file_is_not_followed(rendered: Cli) -> None:
    victim = Path("victim.py")
    shutil.move(FOLDER / KERNEL, victim)
    (FOLDER / KERNEL).symlink_to(victim.resolve())
    written = victim.read_bytes()
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rendered("family.yaml").status == 0
    assert victim.read_bytes() == written and not (FOLDER / KERNEL).is_symlink()


def test_a_link_where_a_file_is_removed_loses_the_link_alone(rendered: Cli) -> None:
    victim = Path("victim.py")
    shutil.move(FOLDER / OTHER, victim)
    (FOLDER / OTHER).symlink_to(victim.resolve())
    Path("family.yaml").write_text(SMALLER)
    assert rendered("family.yaml").status == 0
    assert victim.exists() and not (FOLDER / OTHER).is_symlink()


def test_a_link_that_leads_nowhere_is_replaced(rendered: Cli) -> None:
    (FOLDER / KERNEL).unlink()
    (FOLDER / KERNEL).symlink_to("nowhere.py")
    assert rendered("family.yaml").status == 0
    assert not (FOLDER / KERNEL).is_symlink() and not Path(FOLDER, "nowhere.py").exists()


def test_a_link_beside_a_file_is_not_written_through(rendered: Cli) -> None:
    victim = Path("victim.txt")
    victim.write_text("mine\n")
    (FOLDER / f".{KERNEL}.new").symlink_to(victim.resolve())
    (FOLDER / KERNEL).unlink()
    rendered("family.yaml")
    assert victim.read_text() == "mine\n"


class Interrupted:
    """`os.replace` that fails at one call."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.left, self.error, self.replace = at, error, os.replace

    def __call__(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error
        self.replace(source, target)


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


def test_a_disk_that_is_full_is_answered_in_a_line(rendered: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    old = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(1, OSError(28, "No space left on device")))
        said = rendered("family.yaml")
    assert said.status == 1 and "No space left on device" in said.err and said.err.count("\n") == 1
    assert contents(FOLDER) == old


def test_an_output_folder_below_a_file_is_answered_in_a_line(cli: Cli) -> None:
    Path("family.yaml").write_text(FAMILY)
    Path("file").write_text("mine\n")
    said = cli("family.yaml", "--out", "file/below")
    assert said.status == 1 and said.err.startswith("file/below") and said.err.count("\n") == 1


def test_only_keeps_the_others(rendered: Cli) -> None:
    before = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rendered("family.yaml", "--only", "*_bias__*_mnk_*").status == 0
    after = contents(FOLDER)
    assert after.keys() == before.keys()
    kernels = {name for name in before if name.startswith("gemm")}
    assert {name for name in kernels if before[name] != after[name]} == {KERNEL}
    manifest = json.loads(after["manifest.json"])
    assert {f"{name}.py" for name in manifest["kernels"]} == kernels
    assert manifest["files"].keys() == after.keys() - {"manifest.json"}


def test_only_into_an_empty_folder_makes_a_family_of_its_own(cli: Cli) -> None:
    Path("family.yaml").write_text(FAMILY)
    assert cli("family.yaml", "--only", "*_bias__*").status == 0
    kernels = [name for name in contents(FOLDER) if name.startswith("gemm")]
    assert kernels == sorted([KERNEL, OTHER.replace("_none__", "_bias__")])
    assert b"gemm_fp16_rcr_none" not in (FOLDER / "__init__.py").read_bytes()
    # The whole later finds its own.
    assert cli("family.yaml").status == 0 and cli("family.yaml", "--check").status == 0


def test_only_removes_what_the_spec_no_longer_makes(rendered: Cli) -> None:
    Path("family.yaml").write_text(SMALLER)
    assert rendered("family.yaml", "--only", "*_bias__*").status == 0
    assert sorted(name for name in contents(FOLDER) if name.startswith("gemm")) == [
        KERNEL,
        KERNEL.replace("_bias__", "_none__"),
    ]


def test_the_manifest_names_every_file_with_its_digest(rendered: Cli) -> None:
    import hashlib

    files = contents(FOLDER)
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def test_nothing_is_left_beside(rendered: Cli) -> None:
    assert [path.name for path in FOLDER.iterdir() if path.name.startswith(".")] == [".gitattributes"]
