"""A family read back from its manifest: what was expanded, and with a value changed it is refused or what is stated.

What is made of a family, by `package` in both forms, has no text of its manifest that could be more than text there."""

import copy
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import tomllib
import yaml

from generator.emit.family_package import contracts
from generator.emit.hub.repository import Repository
from generator.emit.manifest_reader import read
from generator.emit.package_files import package_names
from generator.emit.packed_family import Packed
from generator.emit.wheel import wheel
from generator.language.errors import CallError
from generator.language.spec import read as read_spec
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.odd_files import mutated
from tests.helpers.support import BASE, GENERATED, SPECS, family_of, python, render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: {a: fp16, b: int8, scales: {b: [64, 1]}}; "
    'ops: {cap: {formula: "min(x * s + r, limit)", operands: {r: [M, N]}, scalars: {s: 2, limit: .inf}}}; '
    "epilogue: [none, [{cap: {s: 3, limit: 6}}, {save: hidden}]]; schedule: decoded; "
    "tile: [{m: 64, n: 64, k: 64, warps: 4}, {m: 128, n: 128, k: 64, warps: 4, stages: 5}]; targets: [sm89, sm90]; "
    "masking: [auto, none]; exclude: [{masking: none, epilogue: none, because: no caller has those}]"
)
#: What no value of a manifest may become, or only with a meaning that the family then has.
VALUES = [
    *(float("nan"), 0, -1, 1.5, True, None, "", "x", [], {}, [[]], 10**30, "a\nb", 'a"""\nimport os\n"""', "a\\"),
    *("../x", "/etc/passwd", "a\x00b", "\x1b[31m", "a\u2028b", "\ud800", "\u202e", "'; import os", "x: y\n---\n", "é"),
]
#: Values that another family may have at that place: the family read is the one that the changed manifest states.
LEGAL = {
    **dict.fromkeys(("name", "summary", "spec.file", "left_out.name", "left_out.reason", "never_chosen.reason"), str),
    **dict.fromkeys(("kernels.formula", "operations.formula", "generator"), str),
    "kernels.not_offered": int,
    **dict.fromkeys(("left_out", "kernels.outputs"), list),
    "operations.scalars": (int, float, type(None)),
}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return render_spec(tmp_path_factory.mktemp("mutations"), "small", SPEC)


@pytest.fixture(scope="module")
def manifest(family):
    found = json.loads((family / "manifest.json").read_text())
    # One kernel and one entry of each kind are enough.
    found["kernels"] = dict(list(found["kernels"].items())[-1:])
    assert found["left_out"] and "not_offered" in next(iter(found["kernels"].values()))
    found["left_out"] = found["left_out"][-1:]
    found["files"] = {name: digest for name, digest in found["files"].items() if name[0] == "_"} | {
        f"{name}.py": found["files"][f"{name}.py"] for name in found["kernels"]
    }
    return found


def paths(value, at=()):
    """The path of every value below the top."""
    if at:
        yield at
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from paths(entry, (*at, key))


def parent(manifest, path):
    for step in path[:-1]:
        manifest = manifest[step]
    return manifest


def read_from(folder, text):
    """The family of a manifest of this text; None if it is refused, with its path and without a line end."""
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return read(folder)
    except CallError as error:
        assert re.match(rf"{re.escape(str(folder))}/manifest\.json:\d+: .", str(error)), error
        assert str(error).isprintable(), error
        return None


def assert_packed_as_text(family):
    """Nothing of the manifest is more than text in what is packed of the family."""
    packed = Packed(family, {name: "" for name in family.files} | {"__init__.py": '"""A family."""\n\n__all__ = []\n'})
    name, data = wheel([packed], "own_kernels", "1", None)
    assert name == "own_kernels-1-py3-none-any.whl" and data
    files = dict(Repository(packed, "own", 1, "other", None).files())
    for path, text in files.items():
        assert not os.path.isabs(path) and ".." not in Path(path).parts
        if path.endswith(".py"):
            compile(text, path, "exec")
    assert tomllib.loads(files["build.toml"])["general"].keys() == {"name", "version", "edition", "license", "backends"}
    _, front, _ = files["README.md"].split("---\n", 2)
    assert yaml.safe_load(front).keys() == {"library_name", "license", "tags"}


def test_the_manifest_itself_is_read(manifest, tmp_path):
    found = read_from(tmp_path / "small", json.dumps(manifest))
    assert found is not None and len(found.kernels) == 1
    assert_packed_as_text(found)


def test_a_value_replaced(manifest, tmp_path):
    original = read_from(tmp_path / "small", json.dumps(manifest))
    taken = 0
    for path in paths(manifest):
        for value in VALUES:
            changed = copy.deepcopy(manifest)
            parent(changed, path)[path[-1]] = value
            found = read_from(tmp_path / "small", json.dumps(changed))
            if found is None:
                continue
            taken += 1
            names = [str(step) for step in path if not isinstance(step, int) and step not in manifest["kernels"]]
            keys = [key for key in LEGAL if key.split(".")[0] == names[0] and {*key.split(".")} <= {*names}]
            assert found == original or any(isinstance(value, LEGAL[key]) for key in keys), (path, value)
            if isinstance(value, str):
                assert value.isprintable(), (path, value)
                assert_packed_as_text(found)
    # Those that may have another value, such as the summary.
    assert taken > 10


def test_what_is_removed_renamed_repeated_or_cut_off(manifest, tmp_path):
    optional = {"templates", "spec", "summary", "outputs", "not_offered", "target", "settings", "files", "scalars"}
    optional |= {*next(iter(manifest["kernels"].values()))["axes"], *manifest["files"]}
    optional |= {"group", "stages", "split", "chiplets", "sm89"}
    original = read_from(tmp_path / "small", json.dumps(manifest).encode())
    for name, data in mutated(json.dumps(manifest), values=("nested",)):
        found = read_from(tmp_path / "small", data)
        place, _, how = name.rpartition(" ")
        if how in ("renamed", "twice") and not place.rpartition(".")[2].isdigit():
            assert found is None, name
        elif how != "deleted" or not any(f".{place}".endswith(f".{key}") for key in optional):
            assert found in (None, original) or place.rpartition(".")[2].isdigit(), name


def test_a_file_has_a_plain_name(manifest, tmp_path):
    for name in ("../x.py", "/x.py", "_runtime/../x.py", "x.sh", "x.py\n", "", ".", "a\\x.py", "\0.py"):
        changed = manifest | {"files": manifest["files"] | {name: "0" * 64}}
        assert read_from(tmp_path / "small", json.dumps(changed)) is None, name


def test_the_contracts_of_a_family():
    family = family_of(BASE + "epilogue: [none, bias]\nmasking: [none, auto]\nload: [pointer, descriptor]\n")
    found = {contract.name: contract for contract in contracts(family)}
    assert list(found) == ["gemm_fp16_rcr_none", "gemm_fp16_rcr_bias"]
    assert found["gemm_fp16_rcr_bias"].formula == "C = A @ B + bias"
    # The fast one that refuses most comes first, the one that takes every size before the one that does not.
    assert [name.partition("__")[2] for name in found["gemm_fp16_rcr_none"].kernels] == [
        "tiled_descriptor_auto_grouped",
        "tiled_pointer_auto_grouped",
        "tiled_pointer_none_grouped",
    ]


def test_the_order_in_which_schedules_are_tried():
    family = family_of(BASE + "schedule: [elementwise, naive, stream_k, split_k, persistent, tiled]\nproduct: direct\n")
    (contract,) = contracts(family)
    assert [name.partition("__")[2].partition("_")[0] for name in contract.kernels] == [
        *("tiled", "persistent", "splitk", "streamk", "naive", "elementwise")
    ]


def test_the_package_is_lazy(tmp_path):
    shutil.copytree(GENERATED / "fp16_rcr", tmp_path / "vendored", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys, json, vendored\n"
        "listed = dir(vendored)\n"
        "print(json.dumps([vendored.__all__, [n for n in vendored.__all__ if n not in listed],\n"
        "    sorted({n.partition('.')[0] for n in sys.modules} & {'torch', 'triton', 'numpy'}),\n"
        "    [n for n in sys.modules if n.startswith('vendored.')]]))\n"
        "try: vendored.gemm_fp16_rcr_nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    ran = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    offered, not_in_dir, stack, kernels = json.loads(first)
    found = contracts(expand(read_spec(GENERATED.parent / "specs/fp16_rcr.yaml")))
    assert offered == [*(contract.name for contract in found), "register_operators"]
    assert (not_in_dir, stack, kernels) == ([], [], [])
    assert second == "module 'vendored' has no attribute 'gemm_fp16_rcr_nothing'"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_manifest_tells_what_the_spec_expands_to(path):
    family = expand(read_spec(path))
    found = read(shipped.folder(family.spec.name))
    assert found.kernels == family.kernels
    assert found.left_out == family.left_out
    assert found.name == family.spec.name
    modules = sorted(name for name in package_names(family) if name.endswith(".py"))
    assert found.own_modules == modules
