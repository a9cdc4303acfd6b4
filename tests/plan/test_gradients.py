"""What a backward pass needs: the contract of each product, what is kept of the sum, and what is refused."""

import ast
import itertools

import pytest

from generator.emit.package_files import package_source
from generator.language.model import Layout
from generator.language.reserved_names import is_taken
from generator.language.vocabulary import LAYOUT_LETTERS
from generator.plan.gradients import gradients
from tests.helpers.support import family_of, mistakes_of, variant

#: What the kernel of a gradient adds to the name of an operand.
MADE = ("{}_gate", "{}_up", "d_{}")

#: The value of `backward` is at 2:11; what a test adds begins on line 5.
BACKWARD = "summary: A product.\nbackward: kernels\nlayout: rcr\ndtype: bf16\n"
OPERATION = "ops: {{mine: {{formula: x * {0}, operands: {{{0}: [N]}}}}}}\nepilogue: mine\n"

TRANSPOSED = {"r": "c", "c": "r", "s": "s"}


def found(text):
    """The gradients of the family of a spec, by contract."""
    return {gradient.contract: gradient for gradient in family_of(text).gradients}


@pytest.mark.parametrize("layout", list(map("".join, itertools.product(LAYOUT_LETTERS, repeat=3))))
def test_a_product_reads_each_factor_in_its_own_layout_and_returns_the_operand_s(layout):
    (gradient,) = gradients(variant(layout=Layout.of(layout)))
    a, b, _ = layout
    # dA = dS @ B^T and dB = A^T @ dS, where dS is row-major.
    for product, left, right, operand in ((gradient.a, "r", TRANSPOSED[b], a), (gradient.b, TRANSPOSED[a], "r", b)):
        if product.turned:
            left, right = TRANSPOSED[right], TRANSPOSED[left]
        result = TRANSPOSED["r"] if product.turned else "r"
        assert product.contract == f"gemm_fp16_{left}{right}r_none"
        assert operand in (result, "s")


@pytest.mark.parametrize("name", ["gradient", "gated", "weight", "up", "rate_up", "d_rate", "inside"])
def test_other_names_of_operands_are_free(name):
    assert "gemm_bf16_rcr_mine" in found(BACKWARD + OPERATION.format(name))


#: Operands of every shape, in front of a gate and behind it.
EVERY = (
    BACKWARD
    + """batch: [none, strided]
ops: {own: {formula: "max(x, low) * one", operands: {low: [], one: [1]}}}
epilogue: [bias+scale+swiglu+mul+own+save, bias_m+mul+gelu+scale_n+row_sum+col_sum+softplus+scale]
"""
)


def test_every_other_name_of_a_gradient_s_kernel_is_one_that_no_operand_has():
    family = family_of(EVERY)
    chained = [gradient for gradient in family.gradients if gradient.chain and gradient.chained]
    assert len(chained) == 4
    for gradient in chained:
        operands = {operand.name for operand in gradient.chain.epilogue.operands}
        tree = ast.parse(package_source(family, f"{gradient.file}.py"))
        # The kernel, and the table of its call, in which tensors have names.
        (kernel,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == gradient.file)
        table = tree.body[-1]
        used = {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name)} | {n.arg for n in kernel.args.args}
        tensors = {n.value for n in ast.walk(table) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert tensors > operands and "d_sum" in used | tensors
        used |= tensors
        # No operand's name is in capitals or begins with an underscore.
        used = {name for name in used - operands if name.islower() and not name.startswith("_")}
        used -= {form.format(name) for name in operands for form in MADE}
        for name in sorted(name for name in used if not is_taken(name)):
            assert mistakes_of(BACKWARD + OPERATION.format(name)), name
