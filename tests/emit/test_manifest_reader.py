"""A family read back from its manifest: what was expanded, and nothing that a manifest cannot mean."""

import pytest

from generator.emit.manifest_reader import read
from generator.emit.package_files import package_names
from generator.language.spec import read as read_spec
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.support import SPECS


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_manifest_tells_what_the_spec_expands_to(path):
    family = expand(read_spec(path))
    found = read(shipped.folder(family.spec.name))
    assert found.kernels == family.kernels
    assert found.left_out == family.left_out
    assert found.name == family.spec.name
    modules = sorted(name for name in package_names(family) if name.endswith(".py"))
    assert found.own_modules == modules
