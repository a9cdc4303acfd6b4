"""The key `backends`: what it asks of a spec, and what a family has then."""

import pytest

from generator.commands.command_line import main
from generator.cost import torch_operators
from generator.cost.torch_operators import operator_of, rule_of
from generator.plan.families import families
from tests.helpers.support import BASE, assert_formatted, render_spec

FASTEST = f"{BASE}select: fastest\ntargets: [sm90]\n"
ATEN = f"{FASTEST}backends: [triton, aten]\n"


def files(folder, text, *options):
    """The modules of a rendered family."""
    found = render_spec(folder, "products", text, *options)
    return {path.relative_to(found).as_posix() for path in found.rglob("*.py")}


def test_the_word_brings_two_modules_and_what_they_need(tmp_path):
    plain = files(tmp_path, FASTEST)
    assert files(tmp_path, f"{FASTEST}backends: [triton]\n") == plain
    more = files(tmp_path, ATEN) - plain
    assert more == {"_backends.py", "_runtime/aten_product.py", "_runtime/precision.py"}
    assert_formatted(tmp_path / "products")
    text = (tmp_path / "products" / "_backends.py").read_text()
    assert '"gemm_fp16_rcr_none": AtenOperator("mm", "", "gemm_fp16", "gemm_fp16_rcr_none"),' in text
    assert '("NVIDIA H200", "gemm_fp16"): (' in text


def test_a_family_without_measurements_has_empty_tables(tmp_path):
    files(tmp_path, ATEN.replace("sm90", "sm80"))
    text = (tmp_path / "products" / "_backends.py").read_text()
    assert "MEASURED: Measured = {}\n" in text and "RULES: Rules = {}\n" in text
    assert_formatted(tmp_path / "products")


def test_a_family_that_no_product_of_torch_computes_is_refused(tmp_path, capsys):
    (tmp_path / "products.yaml").write_text(f"{ATEN}epilogue: gelu\n")
    assert main([str(tmp_path / "products.yaml"), "--out", str(tmp_path)]) == 2
    assert "backends: 'aten' brings nothing" in capsys.readouterr().err and not (tmp_path / "products").exists()


#: What a spec says -> the operator of each contract, and the rule.
OPERATORS = {
    "dtype: bf16\nepilogue: [none, bias, add, relu, bias+add, scale]": {
        "gemm_bf16_rcr_none": ("mm", "", "gemm_fp16"),
        "gemm_bf16_rcr_bias": ("addmm", "bias", "gemm_fp16"),
        "gemm_bf16_rcr_add": ("addmm", "add", ""),
    },
    "dtype: fp16\nbatch: strided\nepilogue: [none, add, bias]": {
        "bmm_fp16_rcr_none": ("bmm", "", "bmm_fp16"),
        "bmm_fp16_rcr_add": ("baddbmm", "add", ""),
    },
    "dtype: [fp32, tf32, tf32x3]": {
        "gemm_fp32_rcr_none": ("mm", "", "gemm_fp32"),
        "gemm_tf32_rcr_none": ("mm", "", "gemm_tf32"),
    },
    "dtype: [int8, {a: int8, out: bf16}]": {"gemm_int8_rcr_none": ("_int_mm", "", "gemm_int8")},
    "dtype: [fp8e4m3, {a: fp8e4m3, precision: fast}, fp8e5m2]": {
        "gemm_fp8e4m3_rcr_none": ("_scaled_mm", "full", "gemm_fp8e4m3"),
        "gemm_fp8e4m3_fp32_bf16_fast_rcr_none": ("_scaled_mm", "fast", "gemm_fp8e4m3_fp32_bf16_fast"),
    },
    "dtype: [{a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}, {a: fp8e4m3, scales: {a: [1, 0], b: [0, 1]}}]": {
        "gemm_fp8e4m3_a1x128_b128x128_rcr_none": ("_scaled_mm", "blocks", "gemm_fp8e4m3_a1x128_b128x128"),
        "gemm_fp8e4m3_a1xall_ballx1_rcr_none": ("_scaled_mm", "rows", "gemm_fp8e4m3_a1xall_ballx1"),
    },
    # Rounded after the product too; sizes of groups that would be read outside the operands; not known by torch.
    "dtype: bf16\nepilogue: [none, bias]\nrounding: torch": {
        "gemm_bf16_rcr_none_roundingtorch": ("mm", "", "gemm_fp16")
    },
    "dtype: [bf16, {a: bf16, out: fp32}]\nbatch: [none, grouped]": {"gemm_bf16_rcr_none": ("mm", "", "gemm_fp16")},
    "dtype: [bf16, {a: bf16, b: int4, scales: {b: [128, 1]}}]": {"gemm_bf16_rcr_none": ("mm", "", "gemm_fp16")},
}


@pytest.mark.parametrize("text", OPERATORS)
def test_contracts_that_an_operator_computes(tmp_path, text):
    path = tmp_path / "products.yaml"
    path.write_text(f"summary: x.\nlayout: rcr\n{text}\nselect: fastest\nbackends: [triton, aten]\ntargets: [sm90]\n")
    (family,) = families([path])
    found = {x.contract: (x.operator, x.detail, x.rule) for x in torch_operators.operators(family)}
    assert found == OPERATORS[text]
    for name, kernels in family.contracts.items():
        assert (operator_of(kernels[0].variant) is not None) == (name in found)
        assert rule_of(kernels[0].variant)


def test_winners_of_a_specs_own_file_say_where_torch_was_faster(tmp_path):
    winner = """{"contract": "gemm_fp16_rcr_none", "m": %d, "n": 64, "k": 64, "seconds": 1e-5, "library_seconds": %s,
     "kernel": "gemm_fp16_rcr_none__tiled_pointer_auto_grouped",
     "config": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}}"""
    listed = ",".join(winner % each for each in ((16, "2e-5"), (32, "9e-6"), (64, "null")))
    rule = '"aten": {"gemm_fp16": [["M", 100, "triton", "aten"]]}'
    head = '"format": 2, "device": "NVIDIA A100", "error": 0.0, "regret": 0.0'
    (tmp_path / "mine.json").write_text(f'{{{head}, "winners": [{listed}], "rates": [], {rule}}}')
    files(tmp_path, f"{BASE}select: table\ntuned: mine.json\nbackends: [triton, aten]\nepilogue: [none, bias]\n")
    text = (tmp_path / "products" / "_backends.py").read_text()
    assert (
        '("NVIDIA A100", "gemm_fp16_rcr_none"): {\n        (16, 64, 64): False,\n        (32, 64, 64): True,\n    }'
        in text
    )
    assert '("NVIDIA A100", "gemm_fp16"): (\n        ("M", 100, "triton", "aten"),\n    ),' in text


def test_what_a_call_would_run_is_explained(tmp_path, capsys):
    path = tmp_path / "products.yaml"
    path.write_text(ATEN)
    device = ["--device", "nvidia_h200", "--sizes"]
    assert main(["explain", str(path), *device, "4500,5120,5120"]) == 0
    assert "gemm_fp16_rcr_none runs aten\n    torch's own product" in capsys.readouterr().out
    assert main(["explain", str(path), *device, "3,512,512"]) == 0
    assert "gemm_fp16_rcr_none runs gemm_fp16_rcr_none__" in capsys.readouterr().out
