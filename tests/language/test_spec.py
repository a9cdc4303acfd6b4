"""Reading a spec: names, defaults, the grammars of layout, dtype, epilogue and tile rows, and limits."""

import hashlib

import pytest

from generator.language.model import Dtype, Layout, Tile, word_of
from generator.language.spec import read
from generator.language.versions import spelled
from generator.language.vocabulary import AXES, DEFAULTS
from tests.helpers.support import BASE, SPECS, family_of, mistakes_of, read_text


@pytest.mark.parametrize(
    ("file", "words"),
    [
        *((f"{name}.yaml", "is not a name") for name in ("a b", "fp16.rcr", "A", "__init__")),
        ("class.yaml", "keyword of Python"),
        (f"{'a' * 65}.yaml", "at most 64"),
    ],
)
def test_a_name_from_the_file(file, words):
    (told,) = mistakes_of(BASE, file)
    assert told.startswith(f"{file}:1:1: name (from the file's name;") and words in told
    assert read_text(f"{BASE}name: mine\n", file).name == "mine"


def test_a_spec_that_says_everything():
    spec = read_text(
        "summary: 'Everything: here.'\nname: all_of_it\nlayout: [rcr, {a: strided, b: row, c: column}]\n"
        "dtype: [fp16, {a: fp16, out: fp32}]\nbatch: none\nepilogue: [none, bias+relu, [bias, gelu]]\n"
        "masking: [none, mnk]\nswizzle: linear\nschedule: tiled\nload: pointer\nstore: as_load\n"
        "tile: [{m: 64, n: 32, k: 64, warps: 4, group: 4, stages: 2}]\nselect: fixed\ntargets: [sm90, gfx942]\n"
        "triton: '>=3.7'\nops: {}\nexclude: []\nheader: |\n  Copyright somebody\n\n  Do as you like.\n"
    )
    assert (spec.name, spec.summary) == ("all_of_it", "Everything: here.")
    assert spec.axes["layout"] == (Layout("row", "column", "row"), Layout("strided", "row", "column"))
    assert [word_of(value) for value in spec.axes["dtype"]] == ["fp16", "fp16_fp32_fp32"]
    assert [word_of(value) for value in spec.axes["epilogue"]] == ["none", "bias+relu", "bias+gelu"]
    assert spec.header == ("Copyright somebody", "", "Do as you like.")
    assert (spec.select, spec.targets, spelled(spec.triton)) == ("fixed", ("sm90", "gfx942"), ">=3.7,<3.10")


def test_defaults():
    spec = read_text(BASE)
    implied = {axis: [word_of(value) for value in values] for axis, values in spec.axes.items()}
    assert implied == {axis: [{"layout": "rcr", "dtype": "fp16", **DEFAULTS}[axis]] for axis in AXES}
    assert (spec.name, spec.tiles, spec.select, spec.targets) == ("family", None, "heuristic", ("sm80", "sm90"))
    assert (spec.exclude, spec.header, spelled(spec.triton)) == ((), (), ">=3.6,<3.10")


def test_additions_are_in_the_order_of_the_language():
    found = {text: read_text(f"{BASE}{text}\n").additions for text in ("", "with: []", "with: aten")}
    assert found == {"": (), "with: []": (), "with: aten": ("aten",)}
    assert read_text(f"{BASE}with: [dtensor, inductor]\n").additions == ("inductor", "dtensor")


def test_a_shipped_spec_is_named_as_its_file():
    assert [read(path).name for path in SPECS] == [path.stem for path in SPECS]


def test_a_single_value_and_a_list_of_one_are_the_same_family():
    one, many = family_of(BASE), family_of("summary: A product.\nlayout: [rcr]\ndtype: [fp16]\nmasking: [auto]\n")
    assert one.kernels == many.kernels


def test_reading_stops_after_many_mistakes():
    lines = mistakes_of(BASE + "".join(f"key{number}: 1\n" for number in range(1000)))
    assert len(lines) == 201 and lines[-1].endswith(": there may be more mistakes; reading stops after 200")


def test_line_ends_are_not_in_the_digest():
    text = f"{BASE}header: |\n  one\n  two\n"
    found, other = read_text(text), read_text(text.replace("\n", "\r\n").encode())
    assert found.digest == hashlib.sha256(text.encode()).hexdigest() == other.digest
    assert found.header == other.header == ("one", "two")
    assert found.digest != read_text(text.replace("one", "two")).digest


def test_a_header_has_an_end():
    assert read_text(f"{BASE}header: {'x' * 20_000}\n").header == ("x" * 20_000,)
    (line,) = mistakes_of(f"{BASE}header: {'x' * 20_001}\n")
    assert ":4:9: header: 20001 characters; at most 20000" in line


def spec(layout="rcr", dtype="fp16", more=""):
    return f"summary: x\nlayout: {layout}\ndtype: {dtype}\n{more}\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # What a mapping leaves out is what gives the operands' type its accuracy.
        ("{a: fp16}", Dtype("fp16", "fp16", "fp32", "fp16", None)),
        ("{a: fp32}", Dtype("fp32", "fp32", "fp32", "fp32", "ieee")),
        ("{a: fp8e4m3}", Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", "full")),
        ("{a: fp16, b: fp16, acc: fp16, out: fp32}", Dtype("fp16", "fp16", "fp16", "fp32", None)),
        ("{a: int8, out: bf16}", Dtype("int8", "int8", "int32", "bf16", None)),
    ],
)
def test_dtype(value, expected):
    assert read_text(spec(dtype=value)).axes["dtype"] == (expected,)


@pytest.mark.parametrize("letters", [a + b + c for a in "rcs" for b in "rcs" for c in "rcs"])
def test_layout_letters_and_mapping_agree(letters):
    words = {"r": "row", "c": "column", "s": "strided"}
    mapping = ", ".join(f"{operand}: {words[letter]}" for operand, letter in zip("abc", letters))
    (value,) = read_text(spec(layout=f"{{{mapping}}}")).axes["layout"]
    assert isinstance(value, Layout) and value == Layout.of(letters) and value.word == letters


def test_tile_defaults():
    row = "{m: 64, n: 32, k: 0x40, warps: 4, ctas: 1, warp_specialize: false}"
    assert read_text(spec(more=f"tile: [{row}]")).tiles == (Tile(64, 32, 64, warps=4, group=8, stages=3),)


@pytest.mark.parametrize(
    ("written", "formula"),
    [
        ("relu+scale", "relu(A @ B) * scale"),
        ("scale+bias+gelu_tanh", "gelu_tanh(A @ B * scale + bias)"),
        ("add+bias+add+add+bias", "A @ B + add + bias + add2 + add3 + bias2"),
        ("[[bias, {clamp: {min: 0, max: 6}}, relu2]]", "relu2(clamp(A @ B + bias, min=0, max=6))"),
    ],
)
def test_formula(written, formula):
    (kernel,) = family_of(BASE + f"epilogue: {written}\n").kernels
    assert kernel.variant.epilogue.text == formula
