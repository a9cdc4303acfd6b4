"""A family that another version of the generator rendered: what `--check` says of it, and a manifest of later times."""

from pathlib import Path

import pytest

import generator
from generator.emit.file_digests import digest
from generator.emit.manifest_reader import VERSION
from tests.helpers.support import BASE, Spoken

FOLDER = Path("generated/family")
KERNEL = FOLDER / "gemm_fp16_rcr_none__tiled_pointer_auto_grouped.py"


def replaced(path, old, new):
    """Put another text into a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def older(cli):
    """A folder with a family whose manifest names an older version."""
    Path("family.yaml").write_text(BASE)
    assert cli("family.yaml").status == 0
    replaced(FOLDER / "manifest.json", f'"generator": "{generator.__version__}"', '"generator": "0.1.0"')
    return cli


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# Accumulate in", "# Sum in", "the comments of 1 file"),
        ("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b)", "the device code of 1 file"),
        ("a=a, b=b, out=out", "out=out, a=a, b=b", "the host code of 1 file"),
        ("a_ptr", "a_ptr", "no code"),
    ],
)
def test_what_an_update_would_change_is_told(older, old, new, told):
    before = digest(KERNEL.read_text())
    replaced(KERNEL, old, new)
    replaced(FOLDER / "manifest.json", before, digest(KERNEL.read_text()))
    said = older("family.yaml", "--check")
    assert said.status == 1
    version = f"rendered by gemm-generator 0.1.0, and this is {generator.__version__}, which changes {told}"
    assert f"generated/family: {version}; docs/changelog.md says why\n" in said.err
    assert said.err.endswith("render with: python -m generator family.yaml\n")
    assert older("family.yaml").status == 0
    assert older("family.yaml", "--check") == Spoken(0, "1 kernel of 1 family as the specs say\n", "")


def test_a_manifest_of_a_later_format_is_refused_by_name(older):
    replaced(FOLDER / "manifest.json", f'"manifest": {VERSION}', f'"manifest": {VERSION + 1}')
    before = KERNEL.read_bytes()
    told = f"version {VERSION + 1} of the manifest; this generator writes {VERSION}: install a later one\n"
    for arguments in ((), ("--check",), ("--force",), ("--only", "*none*")):
        said = older("family.yaml", *arguments)
        assert said.status == 1 and said.err.endswith(told), said
    assert KERNEL.read_bytes() == before
