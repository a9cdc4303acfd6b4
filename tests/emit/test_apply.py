"""Bringing a folder to what was rendered, never another's work, and what `--check` and `--diff` say of it."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from generator.emit import kept_digests
from generator.emit.manifest_reader import read
from generator.language.errors import CallError
from generator.plan.families import families
from tests.helpers import shipped
from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, OTHER, SMALLER, Interrupted
from tests.helpers.support import BASE, BESIDE_KERNELS, LIMITED, SPECS, Spoken, contents, files_of

RUNTIME = FOLDER / "_runtime"
MODULE = RUNTIME / "launch.py"


def test_outcomes_in_words(cli):
    spec = Path("family.yaml")
    spec.write_text(FAMILY)
    assert cli("family.yaml").out == f"generated/family: 4 kernels; {4 + LIMITED} created\n"
    assert cli("family.yaml").out == f"generated/family: 4 kernels; {4 + LIMITED} same\n"
    spec.write_text(SMALLER)
    # The two kernels that are left and the family's own files have not changed; __init__.py and the manifest have.
    smaller = 2 + len(BESIDE_KERNELS)
    assert cli("family.yaml").out == f"generated/family: 2 kernels; 3 updated, 3 removed, {smaller - 3} same\n"
    spec.write_text(SMALLER.replace("A product.", "Another."))
    assert cli("family.yaml").out == f"generated/family: 2 kernels; 4 updated, {smaller - 4} same\n"
    assert sorted(contents(FOLDER)) == sorted([KERNEL, KERNEL.replace("_bias_", "_none_"), *BESIDE_KERNELS])


def test_only_what_changed_is_written(rerender):
    for path in files_of(FOLDER):
        os.utime(path, ns=(10**18, 10**18))
    before = {path: path.stat().st_ino for path in files_of(FOLDER)}
    assert rerender("family.yaml").status == 0
    assert {path: path.stat().st_ino for path in files_of(FOLDER)} == before
    (FOLDER / KERNEL).unlink()
    assert rerender("family.yaml").out == f"generated/family: 4 kernels; 1 created, {3 + LIMITED} same\n"
    assert [path.name for path in files_of(FOLDER) if path.stat().st_mtime_ns != 10**18] == [KERNEL]


def test_a_hand_edit_stops_everything_and_each_is_named(rerender):
    Path("another.yaml").write_text(BASE)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    edited = sorted(FOLDER / name for name in (KERNEL, OTHER, "__init__.py"))
    for path in edited:
        path.write_text(path.read_text() + "# mine\n")
    before = contents(Path())
    # The other family of the call comes first and is in nobody's way, and is not written either.
    said = rerender("another.yaml", "family.yaml")
    assert said.status == 1 and said.out == "" and contents(Path()) == before
    told = "edited by hand; keep the edit elsewhere, or overwrite it with --force"
    assert sorted(said.err.splitlines()) == [f"{path}: {told}" for path in edited]


def test_an_edited_file_that_no_longer_belongs_is_not_removed_and_a_stray_one_never(rerender):
    Path("family.yaml").write_text(SMALLER)
    for name in (OTHER, "notes.txt", "_runtime/mine.py"):
        (FOLDER / name).write_text("mine\n")
    before = contents(FOLDER)
    assert rerender("family.yaml").status == 1 and contents(FOLDER) == before
    assert rerender("family.yaml", "--force").status == 0 and not (FOLDER / OTHER).exists()
    assert (FOLDER / "notes.txt").read_text() == (RUNTIME / "mine.py").read_text() == "mine\n"


def test_an_edit_that_was_also_made_in_the_spec_is_no_obstacle(rerender):
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    assert rerender("family.yaml", "--out", "aside").status == 0
    shutil.copy(Path("aside/family", KERNEL), FOLDER / KERNEL)
    assert rerender("family.yaml").status == 0


def test_a_folder_without_a_manifest_is_another_s(cli):
    Path("family.yaml").write_text(FAMILY)
    FOLDER.mkdir(parents=True)
    (FOLDER / "notes.txt").write_text("mine\n")
    for options in ((), ("--force",), ("--check",), ("--diff",)):
        said = cli("family.yaml", *options)
        assert said == Spoken(1, "", f"{FOLDER}: holds files (notes.txt) and no manifest.json: not rendered here\n")
        assert contents(FOLDER) == {"notes.txt": b"mine\n"}


@pytest.mark.parametrize("inside", [(), ("__pycache__",)], ids=["empty", "what Python leaves"])
def test_a_folder_that_holds_nobody_s_work_is_taken(cli, inside):
    Path("family.yaml").write_text(FAMILY)
    FOLDER.mkdir(parents=True)
    for name in inside:
        (FOLDER / name).mkdir()
    assert cli("family.yaml").status == 0


@pytest.mark.parametrize(("make", "kind"), [(os.mkdir, "a folder"), (os.mkfifo, "a device or a pipe")])
def test_what_is_no_file_in_the_place_of_one(rerender, make, kind):
    (FOLDER / KERNEL).unlink()
    make(FOLDER / KERNEL)
    for options in ((), ("--force",), ("--check",)):
        said = rerender("family.yaml", *options)
        assert said.status == 1 and f"{FOLDER / KERNEL}: is {kind}, not a file; move it away\n" in said.err


def test_links_are_replaced_or_removed_and_not_followed(rerender):
    for name in (KERNEL, OTHER):
        shutil.move(FOLDER / name, name)
        (FOLDER / name).symlink_to(Path(name).resolve())
    (FOLDER / "__init__.py").unlink()
    (FOLDER / "__init__.py").symlink_to("nowhere.py")
    (FOLDER / f".{KERNEL}.new").symlink_to(Path(KERNEL).resolve())
    before = [Path(name).read_bytes() for name in (KERNEL, OTHER)]
    Path("family.yaml").write_text(SMALLER.replace("A product.", "Another."))
    assert rerender("family.yaml").status == 0 and not (FOLDER / OTHER).exists()
    assert [Path(name).read_bytes() for name in (KERNEL, OTHER)] == before
    assert not [path for path in FOLDER.glob("[!.]*") if path.is_symlink()] and not (FOLDER / "nowhere.py").exists()


def test_a_disk_that_is_full_is_answered_in_a_line(rerender, monkeypatch):
    old = contents(FOLDER)
    Path("family.yaml").write_text(FAMILY.replace("A product.", "Another."))
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(1, OSError(28, "No space left on device")))
        said = rerender("family.yaml")
    assert said.status == 1 and "No space left on device" in said.err and said.err.count("\n") == 1
    assert contents(FOLDER) == old


def test_only_removes_what_the_spec_no_longer_makes(rerender):
    Path("family.yaml").write_text(SMALLER)
    assert rerender("family.yaml", "--only", "*_bias__*").status == 0
    left = sorted(name for name in contents(FOLDER) if name.startswith("gemm"))
    assert left == [KERNEL, KERNEL.replace("_bias__", "_none__")]


def test_no_link_is_followed(rerender):
    RUNTIME.rename("elsewhere")
    RUNTIME.symlink_to(Path("elsewhere").resolve())
    before = contents(Path("elsewhere"))
    for option in ((), ("--force",)):
        said = rerender("family.yaml", *option)
        assert said.status == 1 and f"{RUNTIME}: is a file or a link, and a folder" in said.err
    assert contents(Path("elsewhere")) == before
    (FOLDER / "manifest.json").unlink()
    assert rerender("family.yaml").status == 1 and contents(Path("elsewhere")) == before
    RUNTIME.unlink()
    assert rerender("family.yaml").status == 0 and RUNTIME.is_dir()


@pytest.fixture
def family(cli):
    """The command line in a folder with family.yaml."""
    Path("family.yaml").write_text(FAMILY)
    return cli


def advised(said):
    """The arguments of the command that the last line advises."""
    assert said.status == 1
    command = said.err.splitlines()[-1].rpartition(" with: ")[2]
    python, option, module, *arguments = shlex.split(command)
    assert (python, option, module) == ("python", "-m", "generator")
    return arguments


def several(folder, number):
    Path(folder).mkdir(exist_ok=True)
    paths = [Path(folder, f"family{index}.yaml") for index in range(number)]
    for path in paths:
        path.write_text(BASE)
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    "arguments",
    [
        ("family.yaml",),
        ("./verify",),
        ("./-mine.yaml",),
        ("a b.yaml", "--out", "far away"),
        ("family.yaml", "--only", "*_bias__*"),
        ("family.yaml", "--package", "plain"),
        ("family.yaml", "--with", "prepare,dtensor"),
        ("family.yaml", "--out=-vendor"),
        ("größe.yaml", "--out", "größer"),
        ("it's $HOME.yaml",),
    ],
)
def test_the_advised_command_works(family, arguments):
    path = Path(arguments[0])
    path.write_text(FAMILY + ("" if path.name == "family.yaml" else "name: mine\n"))
    words = advised(family(*arguments, "--check"))
    assert family(*words).status == 0 and family(*arguments, "--check").status == 0


@pytest.mark.parametrize("folder", ["specs", "kernels"])
def test_several_specs_by_path(family, folder):
    paths = several(folder, 5)
    assert family(*paths[1:], "--check").status == 1
    words = advised(family(*paths[1:], "--check"))
    assert words == paths[1:] and family(*words).status == 0
    # Only what differs is rendered.
    Path(paths[1]).write_text(BASE + "epilogue: bias\n")
    assert advised(family(*paths[1:], "--check")) == [paths[1]]


def test_all_is_not_advised_where_one_family_is_refused(family):
    several("specs", 5)
    foreign = Path("generated/family2/mine.py")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x = 1\n")
    said = family("--all", "--check")
    assert f"{foreign.parent}: holds files (mine.py) and no manifest.json" in said.err
    words = advised(said)
    assert "specs/family2.yaml" not in words and family(*words).status == 0 and family("--all").status == 1


def test_all_specs(family):
    several("specs", 5)
    assert advised(family("--all", "--check")) == ["--all"]
    # One that --all does not find is named.
    words = advised(family("--all", "family.yaml", "--check"))
    assert "family.yaml" in words and family(*words).status == 0
    assert family("--all", "family.yaml", "--check").status == 0


@pytest.mark.parametrize("options", [(), ("--only", "*_bias__*")])
def test_an_edit_by_hand_is_overwritten_by_the_advised_command(rerender, options):
    (FOLDER / KERNEL).write_text("# mine\n" + (FOLDER / KERNEL).read_text())
    said = rerender("family.yaml", "--check", *options)
    assert said.err.splitlines()[-1].startswith(
        "1 file to change, edited by hand; keep the edits elsewhere, then overwrite them with: python -m generator "
    )
    words = advised(said)
    assert words == ["family.yaml", *options, "--force"]
    (FOLDER / "_runtime" / "launch.py").unlink()
    assert "2 files to change, 1 of them edited by hand; keep the edits" in rerender("family.yaml", "--check").err
    assert rerender(*words).status == 0 and rerender("family.yaml", "--check").status == 0


def test_a_foreign_file_in_the_way(rerender):
    several("kernels", 1)
    Path("family.yaml").write_text(FAMILY.replace("bias", "bias, relu"))
    stranger = FOLDER / "gemm_fp16_rcr_relu__tiled_pointer_mnk_grouped.py"
    stranger.write_text("mine\n")
    said = rerender("family.yaml", "kernels/family0.yaml", "--check")
    # The other families are compared, too.
    assert f"{stranger}: was not rendered here; move it away\n" in said.err and "family0/__init__.py: would" in said.err
    assert "; move away what is in the way, then render with: " in said.err.splitlines()[-1]
    for options in ((), ("--force",)):
        assert rerender("family.yaml", *options).status == 1 and stranger.read_text() == "mine\n"
    stranger.rename("elsewhere.py")
    assert rerender(*advised(said)).status == 0
    assert rerender("family.yaml", "kernels/family0.yaml", "--check").status == 0


def test_rendering_does_not_remove_a_family_without_a_spec(family):
    several("specs", 1)
    assert family("--all").status == 0 and family("family.yaml").status == 0
    said = family("--all", "--check")
    told = f"{FOLDER}: no spec makes this family; bring its spec back, or remove the folder\n"
    assert said == Spoken(1, "", told)
    shutil.rmtree(FOLDER)
    # A file of the name of a manifest makes no family.
    Path("generated/site").mkdir()
    Path("generated/site/manifest.json").write_text('{"name": "my web page"}')
    assert family("--all", "--check").status == 0


def test_a_missing_manifest_is_a_difference_with_only(family):
    assert family("family.yaml", "--only", "*_bias__*").status == 0
    (FOLDER / "manifest.json").unlink()
    assert advised(family("family.yaml", "--only", "*_bias__*", "--check")) == ["family.yaml", "--only", "*_bias__*"]


def test_a_diff_can_be_applied(rerender, tmp_path):
    whole = (FOLDER / KERNEL).read_bytes()
    (FOLDER / KERNEL).write_bytes(whole.rstrip(b"\n") + b"  # \f mine")
    Path("change.diff").write_text(rerender("family.yaml", "--diff").out)
    done = subprocess.run(["git", "apply", "-p0", "change.diff"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (FOLDER / KERNEL).read_bytes() == whole


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
