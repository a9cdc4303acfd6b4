"""The keys `with` and `backends`: each word brings its modules to a family, which names a word that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.commands.command_line import main
from generator.cost import torch_operators
from generator.cost.torch_operators import operator_of, rule_of
from generator.emit.loading import load_family
from generator.language.vocabulary import ADDITIONS
from generator.plan.families import families
from tests.helpers.support import BASE, assert_formatted, python, render_spec, spec

#: A spec to which every word brings something.
EVERY = spec(
    "layout: rcr; dtype: [fp16, {a: fp16, b: int4, scales: {b: [32, 1]}}]; batch: [none, grouped]; "
    "epilogue: [none, swiglu]; load: pointer; exclude: [{batch: grouped, dtype: {a: fp16, b: int4, scales: {b: [32, "
    '1]}}, because: "experts have weights of fp16"}]'
)
#: The files that a word brings.
BRINGS = {
    "inductor": {"inductor.py", "_products.py", "_runtime/graph_pass.py", "_runtime/chain_search.py"}
    | {"_runtime/torch_products.py", "_runtime/precision.py"},
    "aten": {"_products.py", "_runtime/overriding.py", "_runtime/torch_products.py", "_runtime/precision.py"},
    "prepare": {"_runtime/prepare.py"},
    "dtensor": {"_runtime/sharding.py"},
    "experts": {"_runtime/experts.py"},
    "torchao": {"ao.py", "_runtime/torchao_weights.py"},
}


def rendered(folder, spec, *options):
    """The folder of a rendered family."""
    return render_spec(folder, "additions", spec, *options)


def files(folder, spec, *options):
    """The modules and stubs of a rendered family."""
    found = rendered(folder, spec, *options)
    return {path.relative_to(found).as_posix() for path in found.rglob("*.py*") if path.suffix in (".py", ".pyi")}


def test_each_word_brings_its_modules(tmp_path):
    assert BRINGS.keys() == ADDITIONS.keys()
    plain = files(tmp_path, EVERY)
    assert not plain & set().union(*BRINGS.values())
    for word, brings in BRINGS.items():
        assert files(tmp_path, f"{EVERY}with: {word}\n") - plain == brings
        assert files(tmp_path, EVERY, "--with", word) - plain == brings
    words = "prepare,inductor,dtensor,experts,aten"
    assert files(tmp_path, f"{EVERY}with: [torchao, aten]\n", "--with", words) - plain == set().union(*BRINGS.values())
    assert_formatted(tmp_path / "additions")


@pytest.fixture
def family(tmp_path):
    return load_family(rendered(tmp_path, EVERY))


def test_a_family_names_the_word_that_it_lacks(family):
    def told(of, name):
        with pytest.raises(AttributeError) as caught:
            getattr(of, name)
        return str(caught.value).partition("; ")[2]

    words = {"inductor": "inductor", "override_aten": "aten", "ao": "torchao"}
    for name, word in words.items():
        assert told(family, name) == f"add {word!r} to the key `with` of the spec"
    for name in ("Experts", "replace_experts"):
        assert told(family.nn, name) == "add 'experts' to the key `with` of the spec"
    assert (told(family, "nothing"), told(family.nn, "nothing")) == ("", "")
    function = family.gemm_fp16_rcr_none
    with pytest.raises(AttributeError, match="gemm_fp16_rcr_none has no 'prepare'; add 'prepare' to the key `with`"):
        function.prepare(16, 16, M=1)


def test_a_family_of_groups_alone_has_no_layers_without_experts(tmp_path):
    grouped = f"{BASE}batch: grouped\nepilogue: [none, swiglu]\nload: pointer\n"
    assert not (rendered(tmp_path, grouped) / "nn.py").exists()
    with pytest.raises(AttributeError, match="no attribute 'nn'; add 'experts' to the key `with` of the spec"):
        load_family(tmp_path / "additions").nn  # noqa: B018
    assert (rendered(tmp_path, grouped, "--with", "experts") / "nn.py").exists()


FASTEST = f"{BASE}select: fastest\ntargets: [sm90]\n"
ATEN = f"{FASTEST}backends: [triton, aten]\n"


def test_the_word_brings_two_modules_and_what_they_need(tmp_path):
    plain = files(tmp_path, FASTEST)
    assert files(tmp_path, f"{FASTEST}backends: [triton]\n") == plain
    more = files(tmp_path, ATEN) - plain
    assert more == {"_backends.py", "_runtime/aten_product.py", "_runtime/precision.py"}
    assert_formatted(tmp_path / "additions")
    text = (tmp_path / "additions" / "_backends.py").read_text()
    assert '"gemm_fp16_rcr_none": AtenOperator("mm", "", "gemm_fp16", "gemm_fp16_rcr_none"),' in text
    assert '("NVIDIA H200", "gemm_fp16"): (' in text


def test_a_family_without_measurements_has_empty_tables(tmp_path):
    files(tmp_path, ATEN.replace("sm90", "sm80"))
    text = (tmp_path / "additions" / "_backends.py").read_text()
    assert "MEASURED: Measured = {}\n" in text and "RULES: Rules = {}\n" in text
    assert_formatted(tmp_path / "additions")


def test_a_family_that_no_product_of_torch_computes_is_refused(tmp_path, capsys):
    (tmp_path / "additions.yaml").write_text(f"{ATEN}epilogue: gelu\n")
    assert main([str(tmp_path / "additions.yaml"), "--out", str(tmp_path)]) == 2
    assert "backends: 'aten' brings nothing" in capsys.readouterr().err and not (tmp_path / "additions").exists()


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
    path = tmp_path / "additions.yaml"
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
    text = (tmp_path / "additions" / "_backends.py").read_text()
    assert (
        '("NVIDIA A100", "gemm_fp16_rcr_none"): {\n        (16, 64, 64): False,\n        (32, 64, 64): True,\n    }'
        in text
    )
    assert '("NVIDIA A100", "gemm_fp16"): (\n        ("M", 100, "triton", "aten"),\n    ),' in text


def test_what_a_call_would_run_is_explained(tmp_path, capsys):
    path = tmp_path / "additions.yaml"
    path.write_text(ATEN)
    device = ["--device", "nvidia_h200", "--sizes"]
    assert main(["explain", str(path), *device, "4500,5120,5120"]) == 0
    assert "gemm_fp16_rcr_none runs aten\n    torch's own product" in capsys.readouterr().out
    assert main(["explain", str(path), *device, "3,512,512"]) == 0
    assert "gemm_fp16_rcr_none runs gemm_fp16_rcr_none__" in capsys.readouterr().out


INT4 = "dtype: {a: fp16, b: int4, scales: {b: [32, 1]}}\n"
UNSTORED = "summary: A product.\nlayout: rcr\ndtype: fp16\nload: pointer\n"


@pytest.mark.parametrize(
    "more", ["batch: strided\n", "epilogue: bias+relu\n", "dtype: {a: fp16, b: int4}\n", "dtype: fp16\n"]
)
def test_torchao_is_for_layers_with_a_stored_weight(tmp_path: Path, more: str) -> None:
    spec = UNSTORED.replace("dtype: fp16\n", "" if "dtype" in more else INT4) + f"{more}with: torchao\n"
    (tmp_path / "family.yaml").write_text(spec)
    assert main([str(tmp_path / "family.yaml"), "--out", str(tmp_path)]) == 2


#: Calls a layer with a stored weight where torchao cannot be imported, and asks for what needs it.
WITHOUT = """
import sys, torch
sys.modules["torchao"] = None
import family
from family._pack import quantize
(name,) = family._KERNELS
assert getattr(family, name)(torch.ones(2, 32).half(), **quantize(torch.ones(32, 8), name)).shape == (2, 8)
assert "ao" in dir(family)
try:
    family.ao
except ModuleNotFoundError as error:
    print(error.name.partition(".")[0])
"""


def test_a_family_works_without_torchao(tmp_path: Path) -> None:
    render_spec(tmp_path, "family", UNSTORED.replace("dtype: fp16", f"{INT4}with: torchao"))
    ran = python("-c", WITHOUT, cwd=tmp_path, env={"TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)})
    assert (ran.returncode, ran.stdout) == (0, "torchao\n"), ran.stderr
