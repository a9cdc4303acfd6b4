"""A rendered folder in somebody else's repository: their linters and type checkers find nothing in it."""

import subprocess
import sys

import pytest

from generator.commands.command_line import main
from generator.emit.render import is_alike
from tests.helpers.support import assert_formatted

SPECS = {
    # One kernel: most modules of the library are not there.
    "one": "layout: rcr\ndtype: bf16\nepilogue: bias\n",
    # Loops of scalars, roundings to int8 and imports of many names.
    "several": "layout: rcr\ndtype: {a: int8, out: int8}\nschedule: [elementwise, persistent]\n"
    "load: [pointer, descriptor]\n",
    # Weights, and a constant of the matrix unit that depends on a tile.
    "stored": "layout: rcr\ndtype: [fp8e4m3, {a: bf16, b: int4, scales: {b: [128, 1]}}]\n",
    # Layers that add gradients where they are kept.
    "kept": "layout: [rcr, crr]\ndtype: bf16\nepilogue: [none, [{accumulate: {beta: 1}}]]\n",
    "grouped": "layout: rcr\ndtype: bf16\nbatch: grouped\nschedule: persistent\n",
}
#: What a choice among files adds, and gradients.
FASTEST, GRADIENTS = "select: fastest\n", "backward: kernels\nselect: fastest\nbackends: [triton, aten]\n"
ALIKE = {"several": FASTEST, "one": f"{FASTEST}invariant: rows\n"}
FORMS = {"torch": {"one": GRADIENTS, "several": FASTEST}, "plain": ALIKE, "files": {}}


@pytest.fixture(scope="module", params=FORMS)
def folders(request, tmp_path_factory):
    """A folder with a family of each spec."""
    root = tmp_path_factory.mktemp(request.param)
    for name, text in SPECS.items():
        more = FORMS[request.param].get(name, "")
        (root / f"{name}.yaml").write_text(f"summary: A product.\npackage: {request.param}\n{text}{more}")
    assert main([*(str(root / f"{name}.yaml") for name in SPECS), "--out", str(root / "vendored")]) == 0
    return root / "vendored"


def run(*command, folder):
    ran = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_ruff_finds_nothing_by_its_defaults(folders):
    run("ruff", "check", "--isolated", "--no-cache", ".", folder=folders)
    assert_formatted(folders)


def test_mypy_finds_nothing_by_its_defaults(folders, tmp_path):
    # What torch has is Any here: to read it takes a minute.
    options = ("--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=skip")
    run("mypy", *options, *SPECS, folder=folders)


def test_equal_modules_are_equal_files(folders):
    found = {}
    for path in folders.rglob("*.py"):
        name = "/".join(path.relative_to(folders).parts[1:])
        if is_alike(name):
            found.setdefault(name, set()).add(path.read_bytes())
    assert bool(found) == (folders / "one" / "_runtime").is_dir()
    assert not [name for name, texts in found.items() if len(texts) > 1]
