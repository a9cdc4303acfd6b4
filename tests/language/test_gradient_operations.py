"""`grad(OP)` in a chain: how it is read, what is wrong with it, its name, the manifest, and its kernel."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from generator.emit.manifest_reader import read
from generator.language.built_in import chain_of
from generator.language.errors import CallError
from generator.lowering.kernel_lowering import view
from generator.problem.error_propagation import Bounded
from generator.problem.reference import finish
from tests.helpers.support import BASE, Spoken, family_of, python, read_text

OPS = (
    "ops: {soften: {formula: log(1 + exp(abs(x) / t)), scalars: {t: null}}, double: {formula: x * 2}, "
    "step: {formula: 'where(x > 0, 1, 0)'}, steep: {formula: x * x * 1e30 * 1e30}, "
    "taken: {formula: x * preact, scalars: {preact: 2}}}\n"
)


@pytest.mark.parametrize(
    ("chain", "word", "written", "operands", "tree"),
    [
        ("grad(relu)", "grad(relu)", "gradrelu", ["preact"], "where(preact <= 0, 0, x)"),
        ("[[{grad: {op: relu}}]]", "grad(relu)", "gradrelu", ["preact"], "where(preact <= 0, 0, x)"),
        ("grad(gelu_tanh)", "grad(gelu_tanh)", "gradgelutanh", ["preact"], None),
        (
            "[[{grad: {op: leaky_relu, negative_slope: 0.2}}, bias]]",
            "grad(leaky_relu)(negative_slope=0.2)+bias",
            "gradleakyrelu_0p2_negativeslope_bias",
            ["preact", "bias"],
            "x * where(preact > 0, 1, 0.2)",
        ),
        (
            "[[{grad: {op: clamp, max: 6}}]]",
            "grad(clamp)(max=6)",
            "gradclamp_6_max",
            ["preact"],
            "where(6 >= preact, x, 0)",
        ),
        ("grad(tanh)+grad(relu)", "grad(tanh)+grad(relu)", "gradtanh_gradrelu", ["preact", "preact2"], None),
        # After the outputs of that name, wherever they are in the chain.
        ("grad(tanh)+save+relu+save", "grad(tanh)+save+relu+save", "gradtanh_save_relu_save", ["preact3"], None),
        ("[[{save: hidden}, grad(tanh)]]", "save(hidden)+grad(tanh)", "save_1hidden_gradtanh", ["preact"], None),
        ("grad(soften)", "grad(soften)", "gradsoften", ["preact", "t"], None),
        ("[[{grad: {op: soften, t: 2}}]]", "grad(soften)(t=2)", "gradsoften_2_t", ["preact"], None),
    ],
)
def test_chains(chain: str, word: str, written: str, operands: list[str], tree: str | None) -> None:
    (kernel,) = family_of(f"{BASE}{OPS}epilogue: {chain}\n").kernels
    found = kernel.variant.epilogue
    assert (found.word, found.written) == (word, written)
    assert [operand.name for operand in found.operands] == operands
    assert tree is None or ast.unparse(found.steps[0].tree) == tree
    assert chain_of(json.loads(json.dumps(found.data))) == found


def test_names_like_those_of_gradients_that_cannot_be() -> None:
    assert read_text(f"{BASE}ops: {{grad_scale: {{formula: 'x * s', operands: {{s: []}}}}}}\nepilogue: grad_scale\n")


def test_a_formula_of_any_length_has_a_gradient() -> None:
    text = "x"
    while len(text) < 300:
        text = f"tanh({text} * sigmoid(x))"
    (kernel,) = family_of(f"{BASE}ops: {{long: {{formula: {text}}}}}\nepilogue: grad(long)\n").kernels
    assert len(ast.unparse(kernel.variant.epilogue.steps[0].tree)) > 1000
    assert view(kernel).steps[0].lines[-1].startswith("x = ")


def test_the_manifest_alone_tells_the_gradient(cli: Callable[..., Spoken], tmp_path: Path) -> None:
    text = (
        f"{BASE}{OPS}epilogue: [[grad(silu), {{grad: {{op: clamp, max: 6}}}}, save, {{grad: {{op: soften, t: 3}}}}]]\n"
    )
    (tmp_path / "family.yaml").write_text(text)
    assert cli("family.yaml", "--out", tmp_path).status == 0
    assert read(tmp_path / "family").kernels == family_of(text).kernels
    path = tmp_path / "family" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["operations"]["grad(silu)"] == {
        "derivative_of": "x * sigmoid(x)",
        "operands": {"preact": "MN"},
        "scalars": {},
    }
    manifest["operations"]["grad(silu)"]["operands"] = {"preact": "N"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(CallError, match="a gradient has the operand 'preact'"):
        read(tmp_path / "family")


def test_the_reference_is_the_gradient_of_torch() -> None:
    (kernel,) = family_of(f"{BASE}epilogue: grad(gelu)\n").kernels
    g, x = torch.randn(2, 9, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(functional.gelu(leaf), leaf, g)
    found = finish(kernel.variant, Bounded(g, torch.zeros_like(g)), {"preact": x})
    torch.testing.assert_close(found.value, expected, rtol=1e-11, atol=1e-13)


def test_a_kernel_is_verified_and_computes_the_gradient_of_torch(cli: Callable[..., Spoken], tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text(
        "summary: Gradients.\nlayout: [rrr, rcr]\ndtype: [bf16, fp16]\n"
        "epilogue: [grad(silu), bias+save+grad(hardswish)]\n"
        "tile: [{m: 16, n: 16, k: 16, warps: 1}]\nselect: fixed\n"
    )
    assert cli("family.yaml", "--out", tmp_path).status == 0
    verified = python(
        *("-m", "generator", "verify", tmp_path / "family", "--level", "static", "--level", "interpret", "--jobs", "1"),
        *("--coverage", "kernels"),
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    code = (
        "import torch, family\n"
        "g, x = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0)).half()\n"
        "got = family.gemm_fp16_rrr_gradsilu(g, torch.eye(16).half(), preact=x)\n"
        "leaf = x.float().requires_grad_()\n"
        "(wanted,) = torch.autograd.grad(torch.nn.functional.silu(leaf), leaf, g.float())\n"
        "print(float((got.float() - wanted).abs().max()) < 2**-11 * float(wanted.abs().max()))\n"
    )
    ran = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"})
    assert ran.stdout == "True\n", ran.stderr
