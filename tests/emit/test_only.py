"""`--only` into a folder whose other kernels do not fit what the family's other files become."""

import os
from pathlib import Path

import pytest

import generator
from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, SMALLER, Interrupted
from tests.helpers.support import BASE, contents

ONLY = ("--only", "*_none__*")
REFUSED = "; --only would leave kernels that do not fit the other files: render without --only first\n"
OTHER_KEPT = KERNEL.removesuffix(".py")
KEPT = "gemm_fp16_rcr_bias__tiled_pointer_none_grouped"
OWN = BASE + "epilogue: [none, bend]\nops: {{bend: {{formula: 'x * {}'}}}}\n"
TILE = "tile: [{{m: 64, n: 64, k: {}, warps: 4}}]\n"


@pytest.mark.parametrize("first", ["torch", "plain", "files"])
@pytest.mark.parametrize("second", ["torch", "plain", "files"])
def test_kernels_of_another_package_are_not_kept(cli, first, second):
    Path("family.yaml").write_text(FAMILY)
    assert cli("family.yaml", "--package", first).status == 0
    before, call = contents(FOLDER), ("family.yaml", "--package", second)
    for mode in ((), ("--force",), ("--check",), ("--diff",)):
        said = cli(*call, *ONLY, *mode)
        assert said.status == (first != second), said
        if first != second:
            told = f"'package: {first}', and this call has 'package: {second}'"
            assert said.err == f"{FOLDER}: its other kernels were rendered with {told}{REFUSED}"
        assert contents(FOLDER) == before
    # What the message advises, and a choice that leaves out no kernel.
    assert cli(*call).status == 0 and cli(*call, *ONLY, "--check").status == 0
    assert cli("family.yaml", "--package", first, "--only", "*").status == 0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (FAMILY, FAMILY + "select: autotune\n", f"{KEPT} was rendered with another value of select"),
        (FAMILY, FAMILY + "select: fixed\n", f"{KEPT} was rendered with another value of select"),
        (SMALLER, SMALLER + "invariant: rows\n", f"{OTHER_KEPT} was rendered with another value of invariant"),
        (FAMILY, FAMILY + "targets: [sm90]\n", f"{KEPT} was rendered with another value of targets"),
        (FAMILY, FAMILY + "triton: '>=3.7'\n", f"{KEPT} was rendered with another value of triton"),
        (FAMILY + TILE.format(64), FAMILY + TILE.format(32), f"{KEPT} was rendered with another value of tiles"),
        (OWN.format(2), OWN.format(3), "its other kernels were rendered with another operation 'bend'"),
    ],
)
def test_kernels_of_another_spec_are_not_kept(cli, old, new, told):
    Path("family.yaml").write_text(old)
    assert cli("family.yaml").status == 0
    Path("family.yaml").write_text(new)
    before = contents(FOLDER)
    said = cli("family.yaml", *ONLY)
    assert (said.status, said.err) == (1, f"{FOLDER}: {told}{REFUSED}")
    assert contents(FOLDER) == before
    assert cli("family.yaml").status == 0 and cli("family.yaml", *ONLY, "--check").status == 0


def test_what_changes_no_other_kernel_keeps_them(cli):
    """Gradients are files of the family; a summary is in docstrings; more kernels are no others."""
    spec = "summary: A product.\nlayout: [rcr, rrr, crr]\ndtype: fp16\nepilogue: [none, bias]\n"
    Path("family.yaml").write_text(spec)
    assert cli("family.yaml").status == 0
    changed = spec.replace("A product.", "Another.").replace("bias]", "bias, relu]")
    Path("family.yaml").write_text(changed)
    assert cli("family.yaml", *ONLY).status == 0
    Path("family.yaml").write_text(spec + "exclude: [{layout: crr, epilogue: bias, because: x}]\n")
    assert cli("family.yaml", *ONLY).status == 0
    Path("family.yaml").write_text(BASE + "epilogue: [none, bias]\nbackward: kernels\n")
    assert cli("family.yaml", *ONLY).status == 0
    assert "_GRADIENTS" in (FOLDER / "__init__.py").read_text()


def test_kernels_of_another_version_are_not_kept(cli):
    Path("family.yaml").write_text(FAMILY)
    assert cli("family.yaml").status == 0
    manifest = FOLDER / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{generator.__version__}"', '"0.1.0"', 1))
    said = cli("family.yaml", *ONLY)
    told = f"its other kernels were rendered by gemm-generator 0.1.0, and this is {generator.__version__}"
    assert (said.status, said.err) == (1, f"{FOLDER}: {told}{REFUSED}")


def test_kernels_of_an_interrupted_rendering_are_not_kept(cli, monkeypatch):
    """The manifest still names the package before, and one of the files has the new one."""
    Path("family.yaml").write_text(FAMILY)
    assert cli("family.yaml").status == 0
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", Interrupted(4, KeyboardInterrupt()))
        assert cli("family.yaml", "--package", "files").status == 130
    before = contents(FOLDER)
    said = cli("family.yaml", *ONLY)
    assert said.status == 1 and said.err.endswith(f" is not the one of manifest.json{REFUSED}")
    assert contents(FOLDER) == before
    assert cli("family.yaml").status == 0 and cli("family.yaml", *ONLY).status == 0
