"""Who wrote a file, by which version: any change is an edit, but for the layout of another formatter."""

import json
import subprocess
from pathlib import Path

import pytest

import generator
from generator.emit.file_digests import digest, is_same, unformatted_digest
from generator.emit.manifest_reader import VERSION
from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, OTHER, SMALLER
from tests.helpers.support import BESIDE_KERNELS, GENERATED, LIMITED, Spoken, contents, files_of, ruff

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


#: Settings of `ruff format` that repositories have.
SETTINGS = {
    "79 columns": ("line-length=79",),
    "320 columns": ("line-length=320", "format.skip-magic-trailing-comma=true"),
    "single quotes": ("format.quote-style='single'", "line-length=100"),
    "tabs": ("format.indent-style='tab'", "line-length=60", "format.docstring-code-format=true"),
    "two spaces": ("indent-width=2", "format.line-ending='cr-lf'"),
}


def formatted(folder, setting="single quotes"):
    options = [word for option in SETTINGS[setting] for word in ("--config", option)]
    done = ruff("format", "--isolated", "--no-cache", "-q", *options, folder.absolute())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_formatted_folder_passes_and_is_written_again(rerender, setting):
    whole = contents(FOLDER)
    formatted(FOLDER, setting)
    changed = contents(FOLDER)
    assert sum(changed[name] != whole[name] for name in whole) > 10
    said = rerender("family.yaml", "--check")
    assert said.status == 0 and said.err == "" and " files in the layout of another formatter\n" in said.out
    assert rerender("family.yaml", "--diff").out == "" and contents(FOLDER) == changed
    assert rerender("verify", FOLDER, "--level", "static", "--jobs", "1").status == 0
    said = rerender("family.yaml")
    assert said.status == 0 and " updated, " in said.out and in_unix() == whole


def in_unix():
    """The files of the folder, line ends aside."""
    return {name: data.replace(b"\r\n", b"\n") for name, data in contents(FOLDER).items()}


def test_an_older_rendering_that_was_formatted_is_no_edit(rerender):
    """The text that was rendered is gone: the manifest has what the layout does not change."""
    formatted(FOLDER)
    Path("family.yaml").write_text(SMALLER)
    said = rerender("family.yaml", "--check")
    assert said.status == 1 and "edited by hand" not in said.err and f"{FOLDER / OTHER}: would be removed" in said.err
    assert rerender("family.yaml").status == 0 and not (FOLDER / OTHER).exists()


def test_without_a_manifest_what_the_spec_renders_is_no_edit(rerender):
    whole = contents(FOLDER)
    formatted(FOLDER)
    (FOLDER / "manifest.json").unlink()
    assert rerender("family.yaml").status == 0 and contents(FOLDER) == whole


def test_two_hooks_come_to_rest(rerender):
    """The hook that renders stages, and leaves what the formatter's hook behind it has made of the files."""
    for command in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", *command], check=True)
    formatted(FOLDER)
    before = contents(FOLDER)
    said = rerender("family.yaml", "--stage")
    assert said.status == 0 and "updated" not in said.out and contents(FOLDER) == before
    Path("family.yaml").write_text(SMALLER)
    assert rerender("family.yaml", "--stage").status == 0
    formatted(FOLDER)
    before = contents(FOLDER)
    assert rerender("family.yaml", "--stage").status == 0 and contents(FOLDER) == before
    assert rerender("family.yaml", "--check").status == 0
    assert rerender("family.yaml", "--stage", "--force").status == 0 and contents(FOLDER) != before


EDITS = {
    "a comment": lambda text: text.replace("import torch\n", "import torch  # mine\n", 1),
    "no comment": lambda text: text.replace("# Generated by", "# Made by", 1),
    "a docstring": lambda text: text.replace('"""', '"""My ', 1),
    "a name": lambda text: text.replace("BLOCK_M", "TILE_M"),
    "the order of imports": lambda text: text.replace(
        "import triton\nimport triton.language as tl\n", "import triton.language as tl\nimport triton\n"
    ),
    "a statement": lambda text: text + "MINE = 1\n",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_kept_in_a_formatted_file(rerender, edit):
    formatted(FOLDER)
    path = FOLDER / KERNEL
    text = path.read_text()
    path.write_text(EDITS[edit](text))
    assert path.read_text() != text
    before = contents(FOLDER)
    said = rerender("family.yaml")
    assert said.status == 1 and said.err.startswith(f"{path}: edited by hand") and contents(FOLDER) == before
    assert "(edited by hand)" in rerender("family.yaml", "--check").err
    said = rerender("verify", FOLDER, "--level", "static", "--jobs", "1")
    assert said.status == 1 and "was edited since it was rendered" in said.out


@pytest.mark.parametrize("form", ["wheel", "kernels"])
def test_a_formatted_family_is_packaged_and_verified(rerender, form):
    formatted(FOLDER)
    assert rerender("package", FOLDER, "--format", form, "--out", "made").status == 0
    if form == "kernels":
        made = next(Path("made", "torch-ext").iterdir())
        assert rerender("verify", made, "--level", "static", "--jobs", "1").status == 0


PAIRS = [
    ("x = f(a, b)\n", "x = f(\n    a,\n    b,\n)\n", True),
    ("x = a + b\n", "x = (\n    a\n    + b\n)\n", True),
    ("if x: y = 1\n", "if x:\n  y = 1\n", True),
    ("x = 1E5\n", "x = 1e5\n", True),
    ("def f():\n    '''A.'''\n", 'def f():\n\n  """A.   """\n', True),
    ("x = a * (b + c)\n", "x = a * b + c\n", False),
    ("x = (1,)\n", "x = (1)\n", False),
    ("if x:\n    y = 1\n    z = 1\n", "if x:\n    y = 1\nz = 1\n", False),
    ("x = 1  # a\ny = 2\n", "x = 1\ny = 2  # a\n", False),
    ("x = 'a b'\n", "x = 'ab'\n", False),
    ("def f():\n    '''A.'''\n", "def f():\n    '''B.'''\n", False),
    ("x = 1\n", "\nx = 1\n", False),
    ("x = 1\n", "x = 1\n\f", False),
    ("x = (\n", "x = (\n\n", False),
]


@pytest.mark.parametrize(("one", "other", "same"), PAIRS)
def test_what_is_layout(one, other, same):
    assert is_same("a.py", one, other) is same
    assert is_same("py.typed", one, other) is (one == other)


def test_every_file_of_a_manifest_has_its_digest_without_layout():
    for folder in (GENERATED / "ladder", GENERATED / "int4_rcr"):
        found = json.loads((folder / "manifest.json").read_text())
        assert found["unformatted"].keys() == {name for name in found["files"] if name.endswith((".py", ".pyi"))}
        for name, stated in found["unformatted"].items():
            assert unformatted_digest((folder / name).read_text(encoding="utf-8")) == stated


def test_a_manifest_of_an_earlier_version_has_none(rerender):
    manifest = json.loads((FOLDER / "manifest.json").read_text())
    del manifest["unformatted"]
    (FOLDER / "manifest.json").write_text(json.dumps(manifest))
    formatted(FOLDER)
    assert rerender("verify", FOLDER, "--level", "static", "--jobs", "1").status == 1
    assert rerender("family.yaml", "--check").err.startswith(f"{FOLDER}/manifest.json: would be updated\n")
    assert rerender("family.yaml").status == 0
