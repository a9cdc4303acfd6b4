"""`--only` into a folder: it keeps no kernels that do not fit the other files, and no gradients that lack a kernel."""

import ast
import json
import os
from pathlib import Path

import pytest

import generator
from tests.helpers.family_folder import FAMILY, FOLDER, KERNEL, SMALLER, Interrupted
from tests.helpers.support import BASE, contents, python

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
        (SMALLER, SMALLER + "invariant: rows\n", f"{OTHER_KEPT} was rendered with another value of invariant"),
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


#: The gradients of each contract need `none` in the layouts rrr and crr; of gelu also the contract that saves the sum,
#: of swiglu also `none` in the layout rcr.
TRAINED = BASE + "backward: kernels\nepilogue: [none, bias, gelu, swiglu]\n"
CHAINED = ("save_1whole_gelu", "save_1whole_swiglu")


@pytest.fixture
def family(cli):
    """The command line in a folder with family.yaml."""
    Path("family.yaml").write_text(TRAINED)
    return cli


def chained():
    """The epilogues of the contracts whose chain a kernel runs backwards."""
    names = [name for name in contents(FOLDER) if name.endswith("__gradient.py")]
    return [name.removeprefix("gemm_fp16_rcr_").removesuffix("__gradient.py") for name in names]


def with_gradients():
    """The contracts for which the package knows what computes their gradients."""
    tree = ast.parse((FOLDER / "__init__.py").read_bytes())
    tables = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    return set(ast.literal_eval(tables["_GRADIENTS"])) if "_GRADIENTS" in tables else set()


def test_a_family_has_a_kernel_for_each_chain_that_is_run_backwards(family):
    assert family("family.yaml").status == 0
    assert chained() == sorted(CHAINED)
    assert with_gradients() == {f"gemm_fp16_rcr_{word}" for word in ("none", "bias", "gelu", "swiglu", *CHAINED)}
    manifest = json.loads((FOLDER / "manifest.json").read_text())
    assert not [name for name in manifest["kernels"] if name.endswith("__gradient")]
    assert manifest["files"].keys() == contents(FOLDER).keys() - {"manifest.json"}


def test_only_leaves_no_gradient_of_what_it_leaves_out(family):
    """Rendered step by step into one folder: a contract has gradients as soon as all that they need is there."""
    # Without the products there is no gradient, and no file that would import one.
    assert family("family.yaml", "--only", "*_bias__*").status == 0
    assert chained() == [] and with_gradients() == set()
    assert not [name for name in contents(FOLDER) if "gradient" in name]
    steps = {
        "gemm_fp16_rrr_none__*": set[str](),
        "gemm_fp16_crr_none__*": {"bias"},
        # The contracts that save their sums are not there.
        "gemm_fp16_rcr_gelu__*": {"bias"},
        "gemm_fp16_rcr_swiglu__*": {"bias"},
        "*_save_1whole_gelu__*": {"bias", "gelu", "save_1whole_gelu"},
        "*_save_*": {"bias", "gelu", "swiglu", *CHAINED},
        "gemm_fp16_rcr_none__*": {"bias", "gelu", "swiglu", *CHAINED, "none"},
    }
    for glob, expected in steps.items():
        assert family("family.yaml", "--only", glob).status == 0
        assert with_gradients() == {f"gemm_fp16_rcr_{word}" for word in expected}, glob
        assert chained() == sorted(expected & set(CHAINED)), glob
        assert (FOLDER / "_runtime" / "autograd.py").exists() == bool(expected), glob
    # Step by step the whole was made.
    assert family("family.yaml", "--check").status == 0


def test_a_contract_without_what_its_gradients_need_refuses_them(family, tmp_path):
    said = family("family.yaml", "--only", "*_none__*", "--out", tmp_path)
    assert said.status == 0, said.err
    said = family("family.yaml", "--only", "*_bias__*", "--out", tmp_path / "other")
    assert said.status == 0, said.err
    code = (
        "import torch, family, other.family\n"
        "a = torch.eye(16, dtype=torch.float16).requires_grad_()\n"
        "b = torch.arange(256, dtype=torch.float16).reshape(16, 16).T / 256\n"
        "family.gemm_fp16_rcr_none(a, b).sum().backward()\n"
        "print(torch.equal(a.grad, b.sum(1).expand(16, 16)))\n"
        "try: other.family.gemm_fp16_rcr_bias(a, b, bias=b[0])\n"
        "except RuntimeError as error: print(error)\n"
    )
    ran = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"})
    assert ran.returncode == 0, ran.stderr
    found, refused = ran.stdout.splitlines()
    assert found == "True"
    assert refused.startswith("gemm_fp16_rcr_bias: a requires a gradient, and this contract records none")
