"""Who wrote a file, by which version: any change is an edit, also above the digest and of bytes that are no text."""

from pathlib import Path

import pytest

import generator
from generator.emit.file_digests import digest
from generator.emit.manifest_reader import VERSION
from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, SMALLER
from tests.helpers.support import BESIDE_KERNELS, LIMITED, Spoken, contents, files_of

HEADS = {
    "a licence": lambda text: "# SPDX-License-Identifier: MIT\n" + text,
    "a byte-order mark": lambda text: "\ufeff" + text,
    "another command": lambda text: text.replace("family.yaml", "other.yaml", 1),
    "no command": lambda text: text.split("\n", 1)[1],
    "a line between": lambda text: text.replace("\n", "\n# mine\n", 1),
}


@pytest.mark.parametrize("manifest", ["there", "absent", "damaged"])
@pytest.mark.parametrize("head", HEADS)
def test_a_change_above_the_digest_is_an_edit(rerender, head, manifest):
    edited = FOLDER / KERNEL
    edited.write_text(HEADS[head](edited.read_text()))
    if manifest == "absent":
        (FOLDER / "manifest.json").unlink()
    elif manifest == "damaged":
        (FOLDER / "manifest.json").write_text("")
    before = contents(FOLDER)
    said = rerender("family.yaml")
    assert said.status == 1 and contents(FOLDER) == before
    assert f"{edited}: edited by hand; keep the edit elsewhere, or overwrite it with --force\n" in said.err
    assert rerender("family.yaml", "--force").status == 0 and rerender("family.yaml", "--check").status == 0


def test_the_header_of_a_spec_is_no_edit(cli):
    header = "header: |\n  SPDX-License-Identifier: MIT\n\n  © Größe\n"
    Path("family.yaml").write_text(FAMILY + header)
    assert cli("family.yaml").status == 0
    (FOLDER / "manifest.json").unlink()
    Path("family.yaml").write_text(SMALLER + header)
    same = 2 + len(BESIDE_KERNELS) - 3
    assert cli("family.yaml").out == f"generated/family: 2 kernels; 1 created, 2 updated, 3 removed, {same} same\n"
    edited = FOLDER / KERNEL
    edited.write_text(edited.read_text().replace("# SPDX-License-Identifier: MIT\n", "", 1))
    assert cli("family.yaml").status == 1


def test_line_ends_do_not_count(rerender):
    for path in (Path("family.yaml"), *files_of(FOLDER)):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = contents(Path())
    assert rerender("family.yaml", "--check").status == 0
    assert rerender("family.yaml", "--diff") == Spoken(0, "", "")
    assert rerender("family.yaml").out == f"generated/family: 4 kernels; {4 + LIMITED} same\n"
    assert contents(Path()) == before
    (FOLDER / "manifest.json").unlink()
    assert rerender("family.yaml").out == f"generated/family: 4 kernels; 1 created, {3 + LIMITED} same\n"
    # What changes is written with LF; an edit in a file with CRLF is still one.
    Path("family.yaml").write_text(SMALLER)
    assert rerender("family.yaml").status == 0 and b"\r" not in (FOLDER / "__init__.py").read_bytes()
    (FOLDER / KERNEL).write_bytes((FOLDER / KERNEL).read_bytes() + b"# mine\r\n")
    assert rerender("family.yaml").status == 1


BYTES = {
    "not UTF-8": lambda data: data + b"# \xff\n",
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "NUL": lambda data: data + b"\0",
    "a lone CR": lambda data: data.replace(b"\n", b"\r"),
    "nothing": lambda data: b"",
}


@pytest.mark.parametrize("change", BYTES)
@pytest.mark.parametrize("name", [KERNEL, "__init__.py", ".gitattributes", "_runtime/launch.py"])
def test_bytes_that_are_no_text_are_an_edit(rerender, name, change):
    whole = contents(FOLDER)
    (FOLDER / name).write_bytes(BYTES[change](whole[name]))
    before = contents(FOLDER)
    for options in ((), ("--stage",)):
        said = rerender("family.yaml", *options)
        assert said.status == 1 and said.err.startswith(f"{FOLDER / name}: edited by hand; ")
    said = rerender("family.yaml", "--check")
    assert said.status == 1 and f"{FOLDER / name}: would be updated (edited by hand)\n" in said.err
    assert rerender("family.yaml", "--diff").status == 1 and contents(FOLDER) == before
    assert rerender("family.yaml", "--list").status == 0
    assert rerender("family.yaml", "--force").status == 0 and contents(FOLDER) == whole


def replaced(path, old, new):
    """Put another text into a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def older(rerender):
    """A folder with a family whose manifest names an older version."""
    replaced(FOLDER / "manifest.json", f'"generator": "{generator.__version__}"', '"generator": "0.1.0"')
    return rerender


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# Accumulate in", "# Sum in", "the comments of 1 file"),
        ("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b)", "the device code of 1 file"),
        ("a=a, b=b, bias=bias, out=out", "out=out, a=a, b=b, bias=bias", "the host code of 1 file"),
        ("a_ptr", "a_ptr", "no code"),
    ],
)
def test_what_an_update_would_change_is_told(older, old, new, told):
    kernel = FOLDER / KERNEL
    before = digest(kernel.read_text())
    replaced(kernel, old, new)
    replaced(FOLDER / "manifest.json", before, digest(kernel.read_text()))
    said = older("family.yaml", "--check")
    assert said.status == 1
    version = f"rendered by gemm-generator 0.1.0, and this is {generator.__version__}, which changes {told}"
    assert f"generated/family: {version}; docs/changelog.md says why\n" in said.err
    assert said.err.endswith("render with: python -m generator family.yaml\n")
    assert older("family.yaml").status == 0
    assert older("family.yaml", "--check") == Spoken(0, "4 kernels of 1 family as the specs say\n", "")


def test_a_manifest_of_a_later_format_is_refused_by_name(older):
    replaced(FOLDER / "manifest.json", f'"manifest": {VERSION}', f'"manifest": {VERSION + 1}')
    before = (FOLDER / KERNEL).read_bytes()
    told = f"version {VERSION + 1} of the manifest; this generator writes {VERSION}: install a later one\n"
    for arguments in ((), ("--check",), ("--force",), ("--only", "*none*")):
        said = older("family.yaml", *arguments)
        assert said.status == 1 and said.err.endswith(told), said
    assert (FOLDER / KERNEL).read_bytes() == before
