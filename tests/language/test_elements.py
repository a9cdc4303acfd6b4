"""The records of types: they agree with torch and with each other, and a new one is enough; operands as stored."""

import pytest
import torch

from generator.bench import check
from generator.language import dtypes, model
from generator.language.dtypes import DTYPE_SHORTHANDS, NAMING
from generator.language.elements import ELEMENTS, FORMATS, ElementType
from generator.language.model import Dtype
from generator.language.schema import schema
from generator.language.storage import Block
from generator.language.targets import TARGETS
from generator.plan import legality
from generator.problem.element_types import torch_type
from generator.problem.poisoned_operands import poison_byte
from tests.helpers.support import read_text, render_spec, variant

#: The types that torch has itself.
OWN = [word for word, element in ELEMENTS.items() if element.bits >= 8]


@pytest.mark.parametrize("word", OWN)
def test_the_numbers_of_a_type_are_those_of_torch(word):
    element, own = ELEMENTS[word], getattr(torch, ELEMENTS[word].torch)
    assert element.bits == 8 * own.itemsize and element.floating == own.is_floating_point
    numbers = torch.finfo(own) if element.floating else torch.iinfo(own)
    assert (element.least, element.most) == (numbers.tiny if element.powers else numbers.min, numbers.max)
    if element.floating and not element.powers:
        # Of fp8e5m2fnuz torch states another eps than its numbers have.
        one = torch.ones((), dtype=own).view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[own.itemsize])
        eps = float((one + 1).view(own).double()) - 1
        assert element.smallest == numbers.smallest_normal * eps and 2.0**-element.mantissa == eps


@pytest.mark.parametrize("word", [word for word, element in ELEMENTS.items() if element.bits == 4])
def test_the_numbers_of_four_bits(word):
    element = ELEMENTS[word]
    found = [element.value(code) for code in range(16)]
    assert (min(found), max(found)) == (element.least, element.most)
    assert sorted({abs(x) for x in found})[1] == element.smallest
    if element.floating:
        # OCP MX 1.0.
        assert found[:8] == [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0] and found[8:] == [-x for x in found[:8]]


def test_records_name_what_exists():
    for element in ELEMENTS.values():
        assert element.multiplied | element.converted | element.written <= TARGETS.keys()
        assert {*element.accumulators, element.result, *element.others} <= ELEMENTS.keys()
        assert bool(element.accumulators) <= bool(element.multiplied)
        assert bool(element.quantises) == bool(element.nan) and bool(element.saturates) <= bool(element.quantises)
    for format in FORMATS.values():
        assert {format.element, *format.scales} <= ELEMENTS.keys()
        assert ELEMENTS[format.scales[0]].scale


def test_a_type_holds_another():
    held = {word: {other for other in ELEMENTS if ELEMENTS[word].holds(ELEMENTS[other])} for word in ELEMENTS}
    assert {"fp8e4m3", "fp8e5m2", "int8", "e2m1", "uint8"} <= held["bf16"] & held["fp16"]
    assert "fp16" in held["fp32"] and not {"bf16", "int32", "fp32"} & held["fp16"] and "int32" not in held["fp32"]


def test_a_type_that_names_no_target_is_multiplied_nowhere(monkeypatch):
    nowhere = ElementType(bits=8, torch="int8", triton="int8", least=0, most=1, accumulators=("int32",))
    monkeypatch.setitem(ELEMENTS, "bool8", nowhere)

    def reasons(a, b, out="bf16"):
        v = variant(dtype=Dtype(a, b, "fp32", out, None))
        found = {target: legality.why_not_on(v, target) for target in TARGETS}
        return {target: reason for target, reason in found.items() if reason is not None}

    assert reasons("bool8", "bool8") == {target: f"{target} does not multiply bool8" for target in TARGETS}
    assert reasons("bf16", "bool8") == {target: f"{target} does not multiply bool8" for target in TARGETS}
    refused = {target: f"{target} does not multiply fp8e4m3fnuz" for target in TARGETS if target != "gfx942"}
    assert reasons("fp8e4m3fnuz", "fp8e4m3fnuz") == reasons("bf16", "fp8e4m3fnuz") == refused
    assert reasons("fp16", "fp16", "fp8e4m3fnuz").keys() == TARGETS.keys()


def test_a_shorthand_that_is_added_renames_nothing(monkeypatch):
    dtype = Dtype("fp16", "fp16", "fp32", "fp32", None)
    name = variant(dtype=dtype).name
    assert name.startswith("gemm_fp16_fp32_fp32_")
    later = {**DTYPE_SHORTHANDS, "mixed": ("fp16", "fp16", "fp32", "fp32", None)}
    for module in (dtypes, model):
        monkeypatch.setattr(module, "DTYPE_SHORTHANDS", later)
    assert Dtype.of("mixed") == dtype and variant(dtype=Dtype.of("mixed")).name == name


def test_the_shorthands_of_names_are_those_of_the_first_release():
    assert [*NAMING] == ["fp16", "bf16", "fp32", "tf32", "tf32x3", "int8", "fp8e4m3", "fp8e5m2"]


SPEC = """summary: fp8 of CDNA3.
layout: rcr
dtype: [fp8e4m3fnuz, {a: fp8e4m3fnuz, scales: {a: [1, 32], b: [32, 32]}}, {a: bf16, b: fp8e4m3fnuz}, fp8e5m2fnuz]
tile: [{m: 32, n: 32, k: 32, warps: 4}]
targets: [gfx942]
"""


def test_one_record_is_enough(cli, tmp_path):
    word, folder = "fp8e4m3fnuz", render_spec(tmp_path, "cdna3", SPEC)
    # A name has the types in full, since the shorthand is none of the first release.
    assert Dtype.of(word).word == f"{word}_fp32_bf16"
    assert Dtype("bf16", word, "fp32", "bf16", None).word == f"bf16x{word}_fp32_bf16"
    assert schema()["definitions"]["dtype"]["anyOf"][0]["enum"][-2:] == [word, "fp8e5m2fnuz"]
    native = torch_type(word)
    assert (native, torch.finfo(native).max, poison_byte(native)) == (torch.float8_e4m3fnuz, 240.0, 0x80)
    assert 0 < check.tolerance(Dtype.of(word), 256) < 0.1
    for case in ("padded", "special"):
        said = cli("verify", folder, "--level", "interpret", "--only", "*__*", "--case", case, "--jobs", "1")
        assert said.status == 0 and "all 4 passed" in said.out, said
    (plain,) = folder.glob("gemm_fp8e4m3fnuz_fp32_bf16_rcr*.py")
    text = plain.read_text()
    assert "a        (M, K)  float8_e4m3fnuz" in text and "Needs: a matrix unit for fp8e4m3fnuz." in text
    (weight,) = folder.glob("gemm_bf16xfp8e4m3fnuz*.py")
    assert ".to(tl.bfloat16)" in weight.read_text()


def spec(dtype):
    return f"summary: Stored operands.\nlayout: rcr\ndtype: {dtype}\n"


def dtype_of(text):
    (found,) = read_text(spec(text)).axes["dtype"]
    return found


def test_a_packed_operand():
    b = dtype_of("{a: bf16, b: int4, scales: {b: [128, 1]}}").stored_b
    assert (b.container, b.packed, b.multiplied, b.bits) == ("uint8", 2, "bf16", 4)
    assert b.block == Block(along=128, across=1) and b.converted and not b.plain
    assert b.bytes(64) == 32


@pytest.mark.parametrize(("word", "packed", "together"), [("int4", 8, 32), ("uint4", 8, 32), ("int8", 4, 16)])
def test_an_operand_in_fragment_order(word, packed, together):
    dtype = dtype_of(f"{{a: bf16, b: {word}, scales: {{b: [128, 1]}}, packing: {{b: fragments}}}}")
    b = dtype.stored_b
    assert (b.container, b.packed, b.together, b.width, b.multiplied) == ("int32", packed, together, 4, "bf16")
    assert b.converted and not b.plain and b.bytes(128) == 128 * b.bits // 8
    assert dtype.together == together and Dtype.from_data(dtype.data) == dtype
    assert dtype.data["packing"] == {"b": "fragments"} and not dtype.stored_a.fragments


def test_an_operand_that_is_multiplied_as_it_is():
    dtype = dtype_of("{a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}")
    assert dtype.stored_a.block == Block(along=128, across=1)
    assert not any(storage.converted or storage.plain for storage in dtype.stored) and not dtype.plain
    assert all(storage.plain for storage in Dtype.of("fp16").stored) and Dtype.of("fp16").plain


@pytest.mark.parametrize(
    ("text", "multiplied"),
    [
        ("{a: bf16, b: mxfp4}", ("bf16", "bf16")),
        ("{a: mxfp8e4m3, b: mxfp8e5m2}", ("fp8e4m3", "fp8e5m2")),
        ("{a: mxfp8e4m3, b: mxfp4}", ("fp16", "fp16")),
        ("{a: mxfp4, b: mxfp8e5m2}", ("fp16", "fp16")),
        ("{a: nvfp4}", ("fp16", "fp16")),
        ("{a: int8, b: uint4, scales: {b: [64, 1]}, zeros: {b: true}}", ("int8", "int8")),
        ("{a: fp8e5m2, b: int4, scales: {a: [1, 0], b: [64, 1]}}", ("fp8e5m2", "fp8e5m2")),
    ],
)
def test_the_type_in_which_operands_are_multiplied(text, multiplied):
    dtype = dtype_of(text)
    assert (dtype.stored_a.multiplied, dtype.stored_b.multiplied) == multiplied
    assert dtype.scaled and dtype.sum == "fp32" and Dtype.from_data(dtype.data) == dtype


def test_a_format_has_scales_of_its_own():
    a, b = dtype_of("{a: mxfp8e4m3, b: mxfp4}").stored
    assert (a.kind, a.container, a.packed, a.block) == ("fp8e4m3", "fp8e4m3", 1, Block(along=32, across=1))
    assert (b.kind, b.container, b.packed, b.scale_types) == ("e2m1", "uint8", 2, ("e8m0", "uint8"))
    nvfp4 = dtype_of("{a: nvfp4}").stored_a
    assert (nvfp4.block, nvfp4.scale_types, nvfp4.packed) == (Block(along=16, across=1), ("fp8e4m3",), 2)
