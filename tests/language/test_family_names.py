"""Names of families and packages: one rule, with the same verdict on every version of Python."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.language.errors import CallError
from generator.language.family_names import distribution, why_no_family, why_no_identifier, why_no_package
from generator.language.spec import read as read_spec
from tests.helpers.support import BASE, GENERATED, SPECS, mistakes_of, python


@pytest.mark.parametrize("name", ["torch", "triton", "types", "generator", "con", "lpt9", "binhex"])
def test_a_name_that_would_hide_something_is_refused_everywhere(cli, tmp_path, name):
    reason = why_no_family(name)
    assert reason is not None and reason.endswith(f"choose another name, such as {name}_gemm")
    assert why_no_package(name) == reason
    what = "name (from the file's name; set the key `name` to choose another)"
    assert mistakes_of(BASE, f"{name}.yaml") == [f"{name}.yaml:1:1: {what}: {reason}"]
    assert mistakes_of(f"{BASE}name: {name}\n") == [f"family.yaml:4:7: name: {reason}"]
    package = ("package", GENERATED / "ladder", "--format", "wheel", "--out", "x", "--name", name)
    for said in (cli("new", name), cli(*package)):
        assert said.status == 2 and reason in said.err, said
    shutil.copytree(GENERATED / "ladder", "ladder")
    path = Path("ladder/manifest.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": name}))
    with pytest.raises(CallError, match="is invalid: name: ") as caught:
        read(Path("ladder"))
    assert reason in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["ladder"]


def test_names_of_modules_of_tools_and_of_what_python_looks_for_are_refused():
    # Names that begin with _ or have a capital are no names of families at all.
    others = "numpy ast nul com1 compression test z3 ruff sitecustomize usercustomize"
    for name in (*sys.stdlib_module_names, *others.split()):
        assert why_no_family(name) is not None, name


def test_every_name_in_use_is_a_name():
    for path in SPECS:
        assert why_no_family(read_spec(path).name) is None, path
    # Soft keywords can be imported, and an operation hides nothing.
    assert [why_no_family(name) for name in ("match", "case", "nn", "own__one", "torch_gemm", "x")] == [None] * 6
    assert why_no_identifier("torch") is None


@pytest.mark.parametrize(
    ("name", "expected"), [("a__b", "a-b"), ("own_kernels", "own-kernels"), ("fp16_rcr", "fp16-rcr")]
)
def test_a_distribution_has_the_normal_name(name, expected):
    assert why_no_package(name) is None and distribution(name) == expected


LOADED = """
import sys, importlib, ast, types, torch
from pathlib import Path
from generator.emit.loading import load_family

for folder in sys.argv[1:]:
    print(folder)
    before = sys.modules.get(folder)
    family = load_family(Path("families") / folder)
    assert sys.modules.get(folder) is before
    assert family.gemm_fp16_rcr_none.__module__
    operators = importlib.import_module(family.__name__ + "._runtime.operators")
    assert hasattr(torch.ops, operators.NAMESPACE)
    again = load_family(Path("families") / folder)
    assert again is not family
    assert again.__name__ == family.__name__ and sys.modules[again.__name__] is again
import vendored
assert vendored.HERE
"""


def test_a_folder_of_any_name_is_loaded_and_hides_no_module(tmp_path):
    folders = ("torch", "types", "ast", "a.b", "a-b", "1", "vendored")
    for folder in folders:
        shutil.copytree(GENERATED / "ladder", tmp_path / "families" / folder)
    (tmp_path / "vendored.py").write_text("HERE = True\n")
    done = python("-c", LOADED, *folders, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.split() == [*folders], done.stdout + done.stderr
