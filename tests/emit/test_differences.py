"""What `--check` and `--diff` say, and that the command which `--check` advises does what it says."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.support import BASE, Spoken

FAMILY = BASE + "epilogue: [none, bias]\nmasking: [none, mnk]\n"
FOLDER = Path("generated/family")
KERNEL = FOLDER / "gemm_fp16_rcr_bias__tiled_pointer_mnk_grouped.py"


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
def test_an_edit_by_hand_is_overwritten_by_the_advised_command(family, options):
    assert family("family.yaml").status == 0
    KERNEL.write_text("# mine\n" + KERNEL.read_text())
    said = family("family.yaml", "--check", *options)
    assert said.err.splitlines()[-1].startswith(
        "1 file to change, edited by hand; keep the edits elsewhere, then overwrite them with: python -m generator "
    )
    words = advised(said)
    assert words == ["family.yaml", *options, "--force"]
    (FOLDER / "_runtime" / "launch.py").unlink()
    assert "2 files to change, 1 of them edited by hand; keep the edits" in family("family.yaml", "--check").err
    assert family(*words).status == 0 and family("family.yaml", "--check").status == 0


def test_a_foreign_file_in_the_way(family):
    several("kernels", 1)
    assert family("family.yaml").status == 0
    Path("family.yaml").write_text(FAMILY.replace("bias", "bias, relu"))
    stranger = FOLDER / "gemm_fp16_rcr_relu__tiled_pointer_mnk_grouped.py"
    stranger.write_text("mine\n")
    said = family("family.yaml", "kernels/family0.yaml", "--check")
    # The other families are compared, too.
    assert f"{stranger}: was not rendered here; move it away\n" in said.err and "family0/__init__.py: would" in said.err
    assert "; move away what is in the way, then render with: " in said.err.splitlines()[-1]
    for options in ((), ("--force",)):
        assert family("family.yaml", *options).status == 1 and stranger.read_text() == "mine\n"
    stranger.rename("elsewhere.py")
    assert family(*advised(said)).status == 0
    assert family("family.yaml", "kernels/family0.yaml", "--check").status == 0


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


def test_a_diff_can_be_applied(family, tmp_path):
    assert family("family.yaml").status == 0
    whole = KERNEL.read_bytes()
    KERNEL.write_bytes(whole.rstrip(b"\n") + b"  # \f mine")
    Path("change.diff").write_text(family("family.yaml", "--diff").out)
    done = subprocess.run(["git", "apply", "-p0", "change.diff"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert KERNEL.read_bytes() == whole
