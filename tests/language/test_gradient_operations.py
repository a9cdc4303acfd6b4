"""`grad(OP)` in a chain: how it is read, what is wrong with it, its name, the manifest, and its kernel."""

import ast
import json

import pytest

from generator.emit.manifest_reader import read
from generator.language.built_in import chain_of
from generator.language.errors import CallError
from generator.lowering.kernel_lowering import view
from tests.helpers.support import BASE, family_of, render_spec

OPS = "ops: {soften: {formula: log(1 + exp(abs(x) / t)), scalars: {t: null}}}\n"


@pytest.mark.parametrize(
    ("chain", "written", "name", "operands", "tree"),
    [
        ("grad(relu)", "grad(relu)", "gradrelu", "preact", "where(preact <= 0, 0, x)"),
        ("[[{grad: {op: relu}}]]", "grad(relu)", "gradrelu", "preact", "where(preact <= 0, 0, x)"),
        (
            "[[{grad: {op: leaky_relu, negative_slope: 0.2}}, bias]]",
            *("grad(leaky_relu)(negative_slope=0.2)+bias", "gradleakyrelu_0p2_negativeslope_bias", "preact bias"),
            "x * where(preact > 0, 1, 0.2)",
        ),
        (
            "[[{grad: {op: clamp, max: 6}}]]",
            "grad(clamp)(max=6)",
            "gradclamp_6_max",
            "preact",
            "where(6 >= preact, x, 0)",
        ),
        ("grad(tanh)+grad(relu)", "grad(tanh)+grad(relu)", "gradtanh_gradrelu", "preact preact2", None),
        # After the outputs of that name, wherever they are in the chain.
        ("grad(tanh)+save+relu+save", "grad(tanh)+save+relu+save", "gradtanh_save_relu_save", "preact3", None),
        ("[[{save: hidden}, grad(tanh)]]", "save(hidden)+grad(tanh)", "save_1hidden_gradtanh", "preact", None),
        ("grad(soften)", "grad(soften)", "gradsoften", "preact t", None),
        ("[[{grad: {op: soften, t: 2}}]]", "grad(soften)(t=2)", "gradsoften_2_t", "preact", None),
    ],
)
def test_chains(chain, written, name, operands, tree):
    (kernel,) = family_of(f"{BASE}{OPS}epilogue: {chain}\n").kernels
    found = kernel.variant.epilogue
    assert (found.word, found.written) == (written, name)
    assert [operand.name for operand in found.operands] == operands.split()
    assert tree is None or ast.unparse(found.steps[0].tree) == tree
    assert chain_of(json.loads(json.dumps(found.data))) == found


def test_a_formula_of_any_length_has_a_gradient():
    text = "x"
    while len(text) < 300:
        text = f"tanh({text} * sigmoid(x))"
    (kernel,) = family_of(f"{BASE}ops: {{long: {{formula: {text}}}}}\nepilogue: grad(long)\n").kernels
    assert len(ast.unparse(kernel.variant.epilogue.steps[0].tree)) > 1000
    assert view(kernel).steps[0].lines[-1].startswith("x = ")


def test_the_manifest_alone_tells_the_gradient(tmp_path):
    chain = "[[grad(silu), {grad: {op: clamp, max: 6}}, save, {grad: {op: soften, t: 3}}]]"
    text = f"{BASE}{OPS}epilogue: {chain}\n"
    folder = render_spec(tmp_path, "family", text)
    assert read(folder).kernels == family_of(text).kernels
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    told = manifest["operations"]["grad(silu)"]
    assert told == {"derivative_of": "x * sigmoid(x)", "operands": {"preact": "MN"}, "scalars": {}}
    told["operands"] = {"preact": "N"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(CallError, match="a gradient has the operand 'preact'"):
        read(folder)
