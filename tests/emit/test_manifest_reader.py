"""A family read back from its manifest: what was expanded, and nothing that a manifest cannot mean."""

import json
import shutil

import pytest

from generator.emit.manifest_reader import read
from generator.emit.package_files import package_names
from generator.language.errors import CallError
from generator.language.spec import read as read_spec
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.support import GENERATED, SPECS


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_manifest_tells_what_the_spec_expands_to(path):
    family = expand(read_spec(path))
    found = read(shipped.folder(family.spec.name))
    assert found.kernels == family.kernels
    assert found.left_out == family.left_out
    assert found.name == family.spec.name
    modules = sorted(name for name in package_names(family) if name.endswith(".py"))
    assert found.own_modules == modules


def ladder(folder, change):
    """A copy of a small family with its manifest changed."""
    shutil.copytree(GENERATED / "ladder", folder / "ladder")
    path = folder / "ladder" / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return folder / "ladder"


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(CallError, match="holds no rendered family"):
        read(tmp_path)


@pytest.mark.parametrize(
    "name", ["../x.py", "/x.py", "a/x.py", "_runtime/../x.py", "x.sh", "x.py\n", "", ".", "a\\x.py", "\0.py"]
)
def test_a_file_has_a_plain_name(tmp_path, name):
    with pytest.raises(CallError, match="is invalid: files must not contain"):
        read(ladder(tmp_path, lambda manifest: manifest["files"].update({name: "0" * 64})))
