"""The command line: every option and every exit status."""

import json
import re
from pathlib import Path

import pytest

import generator
from tests.helpers.support import BASE, BESIDE_KERNELS, LIMITED, ROOT, Spoken, contents, python, unread

FAMILY = BASE + "epilogue: [none, bias]\nmasking: [none, mnk]\n"
NAMES = [f"gemm_fp16_rcr_{e}__tiled_pointer_{m}_grouped" for e in ("none", "bias") for m in ("none", "mnk")]


@pytest.fixture
def family(cli):
    """The command line in a folder with family.yaml."""
    Path("family.yaml").write_text(FAMILY)
    return cli


def test_rendering_goes_into_generated(family):
    said = family("family.yaml")
    assert (said.status, said.out, said.err) == (0, f"generated/family: 4 kernels; {4 + LIMITED} created\n", "")
    assert sorted(contents(Path("generated"))) == sorted(
        f"family/{name}" for name in (*(f"{n}.py" for n in NAMES), "_runtime/limits.py", *BESIDE_KERNELS)
    )


def test_check_and_diff_name_what_differs_and_write_nothing(family):
    family("family.yaml")
    assert family("family.yaml", "--diff") == Spoken(0, "", "")
    Path("generated/family/manifest.json").unlink()
    Path("family.yaml").write_text(FAMILY.replace("masking: [none, mnk]", "masking: [mnk, k]"))
    before = contents(Path())
    said, diff = family("family.yaml", "--check"), family("family.yaml", "--diff")
    *lines, last = said.err.splitlines()
    assert said.status == diff.status == 1 and contents(Path()) == before
    outcomes = {"removed": {f"{NAMES[0]}.py", f"{NAMES[2]}.py"}, "updated": {"__init__.py", "_shared_memory.py"}}
    outcomes["created"] = {*(f"{name.replace('mnk', 'k')}.py" for name in NAMES[1::2]), "manifest.json"}
    told = {f"generated/family/{name}: would be {word}" for word, names in outcomes.items() for name in names}
    assert set(lines) == told and last == "7 files to change; render with: python -m generator family.yaml"
    assert f"--- generated/family/{NAMES[0]}.py\n+++ /dev/null\n" in diff.out
    assert f"--- /dev/null\n+++ generated/family/{NAMES[1].replace('mnk', 'k')}.py\n" in diff.out


def test_a_tile_that_is_left_out_is_not_listed_as_a_kernel_is(family):
    tiles = "tile: [{m: 128, n: 128, k: 32, warps: 8, stages: 5}, {m: 64, n: 64, k: 32, warps: 4}]\n"
    text = BASE.replace("fp16", "fp32") + f"masking: [auto, none]\nload: [pointer, descriptor]\n{tiles}"
    Path("family.yaml").write_text(f"{text}targets: [sm86, sm90]\n")
    lines = family("family.yaml", "--list").out.splitlines()
    titles = ("left out: 1", "targets of kernels above left out: 1", "tiles of kernels above left out: 2")
    left, targets, rows = (lines.index(f"  {title}") for title in titles)
    assert "tiled_descriptor_none_grouped: the hardware bounds" in lines[left + 1] and targets == left + 2
    assert "tiled_descriptor_auto_grouped on sm86: sm86 has no bulk" in lines[targets + 1] and rows == targets + 2
    assert all(" on sm86: tile 128x128x32, 8 warps, 5 stages: " in line for line in lines[rows + 1 : rows + 3])
    assert lines[rows + 3] == "  never chosen by a function: 1" and len(lines) == rows + 5


def test_list_as_json(family):
    Path("family.yaml").write_text(f"{FAMILY}load: [pointer, descriptor]\ntargets: [sm80, sm90]\n")
    Path("other.yaml").write_text(BASE)
    said = family("family.yaml", "other.yaml", "--list", "--json")
    listing, other = json.loads(said.out)
    assert said.status == 0 and not Path("generated").exists()
    assert (listing["name"], listing["summary"], other["name"]) == ("family", "A product.", "other")
    assert len(listing["kernels"]) == 6 and set(NAMES) < listing["kernels"].keys()
    assert listing["kernels"][NAMES[2]]["formula"] == "C = A @ B + bias"
    (reason,) = {entry["reason"] for entry in listing["left_out"] if entry.get("target") == "sm80"}
    assert reason == "sm80 has no bulk tensor copies; descriptors need sm90 or later"


def test_only_goes_with_every_mode(family):
    said, glob = family("family.yaml", "--list"), "*_bias__*"
    lines = ["family: 4 kernels from family.yaml", f"  {NAMES[0]}  [sm80 sm90]"]
    assert said.status == 0 and not Path("generated").exists() and said.out.splitlines()[:2] == lines
    listed = json.loads(family("family.yaml", "--only", glob, "--list", "--json").out)
    assert list(listed[0]["kernels"]) == NAMES[2:]
    assert family("family.yaml", "--only", glob, "--check").status == 1
    family("family.yaml")
    assert family("family.yaml", "--only", glob, "--check").status == 0
    assert family("family.yaml", "--only", glob, "--diff").status == 0


def test_all(family):
    Path("specs").mkdir()
    Path("specs/one.yaml").write_text(BASE)
    Path("specs/two.yaml").write_text(FAMILY)
    said = family("--all")
    assert said.status == 0
    one, two = 1 + len(BESIDE_KERNELS), 4 + LIMITED
    assert said.out == f"generated/one: 1 kernel; {one} created\ngenerated/two: 4 kernels; {two} created\n"
    assert family("--all", "--check").out == "5 kernels of 2 families as the specs say\n"


def test_all_without_specs(family):
    assert family("--all") == Spoken(2, "", "python -m generator: --all: no spec found as specs/*.yaml\n")


def test_of_several_specs_one_is_wrong(family):
    Path("wrong.yaml").write_text(BASE + "masking: atuo\nload: x\n")
    Path("worse.yaml").write_text("a: [\n")
    said = family("family.yaml", "wrong.yaml", "worse.yaml")
    assert said.status == 2 and said.out == "" and not Path("generated").exists()
    assert re.findall(r"^\w+\.yaml:\d+:\d+", said.err, re.M) == ["worse.yaml:2:1", "wrong.yaml:4:10", "wrong.yaml:5:7"]


@pytest.mark.parametrize("options", [(), ("--check",), ("--diff",), ("--list",), ("--list", "--json")])
def test_a_wrong_spec_is_status_2_in_every_mode(family, options):
    Path("wrong.yaml").write_text(BASE + "masking: atuo\n")
    message = "wrong.yaml:4:10: masking: unknown value 'atuo'; did you mean 'auto'? legal: none, k, mn, mnk, auto\n"
    assert family("wrong.yaml", *options) == Spoken(2, "", message)


LONG = "x" * 300


@pytest.mark.parametrize("arguments", [("family.yaml", "--out", LONG), ("new", LONG), ("new", f"{LONG}/family")])
def test_what_the_system_refuses_is_one_line(family, arguments):
    said = family(*arguments)
    assert (said.status, said.out) == (1, "") and re.fullmatch(f"{LONG}.*: File name too long\n", said.err)


COMMANDS = [
    *("family.yaml --list", "family.yaml --diff", "family.yaml", "schema", "explain family.yaml", "new other"),
    *("--help", "--version", "explain --help"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_is_full_is_one_line(family, tmp_path, command):
    ran = python("-c", INTO.format(command.split(), "/dev/full"), cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "standard output: cannot be written: No space left on device\n")


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_a_difference_is_status_1_whoever_reads(family, tmp_path, option, both):
    assert unread("family.yaml", option, cwd=tmp_path, both=both) == 1
    family("family.yaml")
    assert unread("family.yaml", option, cwd=tmp_path, both=both) == 0
    edited = Path("generated/family", f"{NAMES[0]}.py")
    edited.write_text(edited.read_text() + "# mine\n")
    assert unread("family.yaml", option, cwd=tmp_path, both=both) == 1


@pytest.mark.parametrize("both", [False, True])
def test_every_file_is_rendered_whoever_reads(family, tmp_path, both):
    Path("other.yaml").write_text(BASE)
    assert unread("family.yaml", "other.yaml", cwd=tmp_path, both=both) == 0
    assert family("family.yaml", "other.yaml", "--check").status == 0


@pytest.mark.parametrize(
    ("commands", "status"),
    [
        ("family.yaml --list; family.yaml --list --json; schema; new x; --help", 0),
        ("absent.yaml; family.yaml --json; verify; bench --table", 2),
    ],
)
def test_a_reader_that_stops_changes_no_status(family, tmp_path, commands, status):
    for command in commands.split("; "):
        assert unread(*command.split(), cwd=tmp_path, both=status == 2) == status, command
    assert Path("x.yaml").is_file() is (status == 0)


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_a_difference_is_status_1_if_outputs_are_closed(family, tmp_path, option, closed):
    code = f"import os, sys; [os.close(n) for n in {closed}]; " + RUN.format(["family.yaml", option])
    ran = python("-c", code, cwd=tmp_path)
    # What belongs to one stream does not go to the other.
    assert ran.returncode == 1 and "would be created" not in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("options", [("-OO",), ("-O",), ("-I",), ("-W", "error"), ("-u",)])
def test_options_of_the_interpreter(family, tmp_path, options):
    family("family.yaml", "--out", "expected")
    # -I ignores PYTHONPATH.
    start = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from generator.commands.command_line import main; sys.exit(main(sys.argv[1:]))"
    )
    ran = python(*options, "-c", start, "family.yaml", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert contents(Path("generated")) == contents(Path("expected"))


def test_every_command_has_a_parser_without_docstrings():
    code = "import importlib, sys; from generator.commands import COMMANDS, render; render.parser()\n"
    code += "for name in COMMANDS:\n    module = importlib.import_module('generator.commands.' + name)\n"
    code += "    if hasattr(module, 'parser'): module.parser()\n    else: module.parse(['x'])"
    ran = python("-OO", "-c", code)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_folder_that_was_removed(family, tmp_path):
    where = ("--out", tmp_path / "generated")
    Path("gone").mkdir()

    def run(*arguments):
        words = [str(word) for word in arguments]
        ran = python("-c", f"import os, sys; os.chdir('gone'); os.rmdir('../gone'); {RUN.format(words)}", cwd=tmp_path)
        Path("gone").mkdir()
        return Spoken(ran.returncode, ran.stdout, ran.stderr)

    assert run(tmp_path / "family.yaml", *where).status == 0
    assert run("family.yaml") == Spoken(2, "", "family.yaml:1:1: cannot be read: No such file or directory\n")
    message = "python -m generator: verify: the current folder does not exist any more; change to one that does\n"
    assert run("verify", tmp_path / "generated" / "family") == Spoken(2, "", message)


#: A system whose settings have no other characters than ASCII.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
SUMMARY = "© é \u2013 ∑"
NOT_ASCII = f"{FAMILY.replace('A product.', SUMMARY)}header: |\n  © Größe\n"


def test_files_are_alike_where_the_system_has_only_ascii(family, tmp_path):
    Path("größe.yaml").write_text(f"{NOT_ASCII}name: family\n", encoding="utf-8")
    assert family("größe.yaml", "--out", "one").status == 0
    ran = python("-m", "generator", "größe.yaml", "--out", "two", cwd=tmp_path, env=ASCII)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert contents(Path("one")) == contents(Path("two"))
    ran = python("-m", "generator", "größe.yaml", "--out", "two", "--check", cwd=tmp_path, env=ASCII)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "# © Größe\n# Generated by `python -m generator 'größe.yaml'`" in Path("one/family/nn.py").read_text("utf-8")


@pytest.mark.parametrize("command", ["--list", "--list --json", "--diff", "--check", "--out größe --check", "explain"])
def test_what_is_printed_where_the_system_has_only_ascii(family, tmp_path, command):
    Path("family.yaml").write_text(NOT_ASCII, encoding="utf-8")
    words = command.split()
    call = ["explain", "family.yaml"] if command == "explain" else ["family.yaml", *words]
    ran = python("-m", "generator", *call, cwd=tmp_path, env=ASCII)
    assert ran.returncode == int("--diff" in words or "--check" in words) and "Traceback" not in ran.stderr
    if "--json" in words:
        assert json.loads(ran.stdout)[0]["summary"] == SUMMARY
    if "größe" in words:
        # A path is printed as it is, so that the command can be copied.
        assert "--out 'größe'" in ran.stderr


#: A call of the module in a fresh interpreter, and one whose standard output is a file.
RUN = "os.execv(sys.executable, [sys.executable, '-m', 'generator', *{!r}])"
INTO = "import os, sys; os.dup2(os.open({1!r}, os.O_WRONLY), 1); " + RUN.replace("{!r}", "{0!r}")


def test_a_file_named_as_a_command(family):
    Path("verify").write_text(FAMILY)
    assert family("./verify").out == f"generated/verify: 4 kernels; {4 + LIMITED} created\n"


def test_version(family):
    assert family("--version") == Spoken(0, f"python -m generator {generator.__version__}\n", "")
