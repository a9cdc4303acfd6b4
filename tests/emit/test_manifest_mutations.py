"""A manifest with any one value changed, removed, renamed or repeated is refused, or makes the family that it states.

What is made of a family, by `package` in both forms, has no text of its manifest that could be more than text there.
"""

import copy
import json
import os
import re
from pathlib import Path

import pytest
import tomllib
import yaml

from generator.emit.hub.repository import Repository
from generator.emit.manifest_reader import read
from generator.emit.packed_family import Packed
from generator.emit.wheel import wheel
from generator.language.errors import CallError
from tests.helpers.odd_files import mutated
from tests.helpers.support import render_spec, spec

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


def family_of(folder, text):
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
    found = family_of(tmp_path / "small", json.dumps(manifest))
    assert found is not None and len(found.kernels) == 1
    assert_packed_as_text(found)


def test_a_value_replaced(manifest, tmp_path):
    original = family_of(tmp_path / "small", json.dumps(manifest))
    taken = 0
    for path in paths(manifest):
        for value in VALUES:
            changed = copy.deepcopy(manifest)
            parent(changed, path)[path[-1]] = value
            found = family_of(tmp_path / "small", json.dumps(changed))
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
    original = family_of(tmp_path / "small", json.dumps(manifest).encode())
    for name, data in mutated(json.dumps(manifest), values=("nested",)):
        found = family_of(tmp_path / "small", data)
        place, _, how = name.rpartition(" ")
        if how in ("renamed", "twice") and not place.rpartition(".")[2].isdigit():
            assert found is None, name
        elif how != "deleted" or not any(f".{place}".endswith(f".{key}") for key in optional):
            assert found in (None, original) or place.rpartition(".")[2].isdigit(), name


def test_a_file_has_a_plain_name(manifest, tmp_path):
    for name in ("../x.py", "/x.py", "_runtime/../x.py", "x.sh", "x.py\n", "", ".", "a\\x.py", "\0.py"):
        changed = manifest | {"files": manifest["files"] | {name: "0" * 64}}
        assert family_of(tmp_path / "small", json.dumps(changed)) is None, name
