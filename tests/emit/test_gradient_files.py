"""The files of a backward pass in a family's folder: those of contracts that are there with all that they need."""

import ast
import json
from pathlib import Path

import pytest

from tests.helpers.support import BASE, contents, python

#: The gradients of each contract need `none` in the layouts rrr and crr; of gelu also the contract that saves the sum,
#: of swiglu also `none` in the layout rcr.
FAMILY = BASE + "backward: kernels\nepilogue: [none, bias, gelu, swiglu]\n"
FOLDER = Path("generated/family")
CHAINED = ("save_1whole_gelu", "save_1whole_swiglu")


@pytest.fixture
def family(cli):
    """The command line in a folder with family.yaml."""
    Path("family.yaml").write_text(FAMILY)
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
