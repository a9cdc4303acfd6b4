"""What a backward pass needs: the contract of each product, what is kept of the sum, and what is refused."""

from __future__ import annotations

import ast
import itertools

import pytest

from generator.emit.package_files import package_source
from generator.language.model import Layout
from generator.language.reserved_names import is_taken
from generator.language.vocabulary import LAYOUT_LETTERS
from generator.plan.gradients import ContractGradient, gradients
from tests.helpers.support import family_of, mistakes_of, variant

#: What the kernel of a gradient adds to the name of an operand.
MADE = ("{}_gate", "{}_up", "d_{}")

#: The value of `backward` is at 2:11; what a test adds begins on line 5.
BACKWARD = "summary: A product.\nbackward: kernels\nlayout: rcr\ndtype: bf16\n"
OPERATION = "ops: {{mine: {{formula: x * {0}, operands: {{{0}: [N]}}}}}}\nepilogue: mine\n"

TRANSPOSED = {"r": "c", "c": "r", "s": "s"}


def found(text: str) -> dict[str, ContractGradient]:
    """The gradients of the family of a spec, by contract."""
    return {gradient.contract: gradient for gradient in family_of(text).gradients}


def contracts(text: str) -> list[str]:
    """The contracts of the family of a spec, in order."""
    return list(dict.fromkeys(kernel.variant.contract for kernel in family_of(text).kernels))


# The two products.


@pytest.mark.parametrize("layout", list(map("".join, itertools.product(LAYOUT_LETTERS, repeat=3))))
def test_a_product_reads_each_factor_in_its_own_layout_and_returns_the_operand_s(layout: str) -> None:
    (gradient,) = gradients(variant(layout=Layout.of(layout)))
    a, b, _ = layout
    # dA = dS @ B^T and dB = A^T @ dS, where dS is row-major.
    for product, left, right, operand in (
        (gradient.a, "r", TRANSPOSED[b], a),
        (gradient.b, TRANSPOSED[a], "r", b),
    ):
        if product.turned:
            left, right = TRANSPOSED[right], TRANSPOSED[left]
        result = TRANSPOSED["r"] if product.turned else "r"
        assert product.contract == f"gemm_fp16_{left}{right}r_none"
        assert operand in (result, "s")


@pytest.mark.parametrize(
    ("dtype", "product"),
    [
        ("fp16", "fp16"),
        ("tf32", "tf32"),
        ("{a: fp16, acc: fp16}", "fp16_fp16_fp16"),
        # A gradient has the type of its operand, not that of the result.
        ("{a: bf16, out: fp32}", "bf16"),
        ("{a: fp32, out: bf16}", "fp32"),
    ],
)
def test_a_product_is_computed_as_its_contract_and_rounded_to_the_operand_s_type(dtype: str, product: str) -> None:
    text = BACKWARD.replace("bf16", dtype)
    (gradient,) = found(text).values()
    assert (gradient.a.contract, gradient.b.contract) == (f"gemm_{product}_rrr_none", f"gemm_{product}_crr_none")


def test_a_batch_has_products_of_batches() -> None:
    names = contracts(BACKWARD + "batch: [none, strided]\n")
    kinds = [f"{kind}_bf16_{layout}_none" for kind in ("gemm", "bmm") for layout in ("rrr", "crr")]
    assert names == ["gemm_bf16_rcr_none", "bmm_bf16_rcr_none", *kinds]
    assert {g.contract: (g.a.contract, g.b.contract) for g in found(BACKWARD + "batch: strided\n").values()} == {
        "bmm_bf16_rcr_none": ("bmm_bf16_rrr_none", "bmm_bf16_crr_none")
    }


# What is kept of the sum.


@pytest.mark.parametrize(
    ("epilogue", "saving", "kept"),
    [
        # No derivative reads a value.
        ("none", None, None),
        ("bias+add", None, None),
        ("bias+row_sum+save", None, None),
        # A contract that also returns the sum is called in place of this one.
        ("relu", "save_1whole_relu", "whole"),
        ("bias+gelu", "save_1whole_bias_gelu", "whole"),
        ("scale", "save_1whole_scale", "whole"),
        ("bias+save+gelu", "save_1whole_bias_save_gelu", "whole"),
        # The contract itself returns the sum, under any name.
        ("save+gelu", None, "preact"),
        ("[[{save: hidden}, bias, gelu]]", None, "hidden"),
        # A sum over the columns of a row is not the product's sum.
        ("row_sum+gelu", "save_1whole_rowsum_gelu", "whole"),
        # In front of a gated linear unit it has two columns for each of C.
        ("swiglu", "save_1whole_swiglu", "whole"),
        ("bias+swiglu+add", "save_1whole_bias_swiglu_add", "whole"),
        ("save+swiglu", None, "preact"),
    ],
)
def test_what_is_kept_of_the_sum(epilogue: str, saving: str | None, kept: str | None) -> None:
    text = f"{BACKWARD}epilogue: {epilogue}\n"
    first, *others = found(text).values()

    def contract(word: str | None) -> str | None:
        return word and f"gemm_bf16_rcr_{word}"

    assert first.contract == contracts(text)[0]
    assert (first.saving, first.sum) == (contract(saving), kept)
    # What is only added has the gradient of the result.
    assert first.chained == (epilogue not in ("none", "bias+add") and saving is None)
    # The contract that saves has gradients of its own, and needs no other.
    assert [(g.contract, g.saving, g.sum, g.chained) for g in others] == (
        [(contract(saving), None, kept, True)] if saving else []
    )
    assert first.contracts <= set(contracts(text))


@pytest.mark.parametrize(
    ("epilogue", "chained"),
    [
        ("add", False),
        ("bias_m", False),
        ("bias+plus", False),
        ("offset", True),
        ("bias+row_sum", True),
        ("bias+scale_m", True),
    ],
)
def test_a_chain_that_only_adds_vectors_and_matrices_runs_backwards_without_a_kernel(
    epilogue: str, chained: bool
) -> None:
    ops = "ops: {plus: {formula: x + y, operands: {y: [M, N]}}, offset: {formula: x + s, operands: {s: []}}}\n"
    assert any(each.chained for each in found(f"{BACKWARD}epilogue: {epilogue}\n{ops}").values()) is chained


def test_the_output_that_keeps_the_sum_is_the_first_of_the_outputs() -> None:
    text = BACKWARD + "epilogue: [[bias, {save: hidden}, relu, row_amax]]\n"
    saved = found(text)["gemm_bf16_rcr_save_1whole_bias_save_1hidden_relu_rowamax"]
    assert saved.chain is not None
    assert [output.name for output in saved.chain.epilogue.outputs] == ["whole", "hidden", "row_amax"]
    assert saved.constant == ("row_amax",)


def test_the_products_have_neither_the_chain_nor_its_rounding_and_accuracy() -> None:
    names = contracts(BACKWARD + "epilogue: bias+relu\nrounding: torch\n")
    assert names == [
        "gemm_bf16_rcr_bias_relu_roundingtorch",
        *("gemm_bf16_rrr_none", "gemm_bf16_crr_none"),
        "gemm_bf16_rcr_save_1whole_bias_relu_roundingtorch",
    ]
    kernels = [kernel.name.partition("__") for kernel in family_of(BACKWARD + "epilogue: silu\nmath: fast\n").kernels]
    assert {contract for contract, _, how in kernels if how.endswith("mathfast")} == {
        *("gemm_bf16_rcr_silu", "gemm_bf16_rcr_save_1whole_silu")
    }


# The kernels.


def test_kernels_for_the_backward_pass_alone_come_last_and_are_of_the_same_kinds() -> None:
    text = BACKWARD + "epilogue: [none, swiglu]\nload: [descriptor, pointer]\n"
    of = {
        contract: [k.name.partition("__")[2] for k in family_of(text).kernels if k.variant.contract == contract]
        for contract in contracts(text)
    }
    words = "rcr_none", "rcr_swiglu", "rrr_none", "crr_none", "rcr_save_1whole_swiglu"
    assert list(of) == [f"gemm_bf16_{word}" for word in words]
    assert set(map(tuple, of.values())) == {("tiled_descriptor_auto_grouped", "tiled_pointer_auto_grouped")}


def test_a_spec_of_all_layouts_needs_no_other_contract() -> None:
    layouts = "[rcr, rrr, crr, ccr]"
    text = BACKWARD.replace("rcr", layouts)
    assert contracts(text) == [f"gemm_bf16_{layout}_none" for layout in layouts.strip("[]").split(", ")]
    assert len(family_of(text).kernels) == len(found(text)) == 4


@pytest.mark.parametrize("line", ["", "backward: none\n"])
def test_without_the_key_nothing_is_added(line: str) -> None:
    family = family_of(BACKWARD.replace("backward: kernels\n", line) + "epilogue: relu\n")
    assert [kernel.variant.contract for kernel in family.kernels] == ["gemm_bf16_rcr_relu"]
    assert family.gradients == ()


# Refusals, each at the value of `backward`.


@pytest.mark.parametrize("name", ["gradient", "gated", "weight", "up", "rate_up", "d_rate", "inside"])
def test_other_names_of_operands_are_free(name: str) -> None:
    assert "gemm_bf16_rcr_mine" in found(BACKWARD + OPERATION.format(name))


#: Operands of every shape, in front of a gate and behind it.
EVERY = (
    BACKWARD
    + """batch: [none, strided]
ops: {own: {formula: "max(x, low) * one", operands: {low: [], one: [1]}}}
epilogue: [bias+scale+swiglu+mul+own+save, bias_m+mul+gelu+scale_n+row_sum+col_sum+softplus+scale]
"""
)


def test_every_other_name_of_a_gradient_s_kernel_is_one_that_no_operand_has() -> None:
    family = family_of(EVERY)
    chained = [gradient for gradient in family.gradients if gradient.chain and gradient.chained]
    assert len(chained) == 4
    for gradient in chained:
        assert gradient.chain is not None
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
