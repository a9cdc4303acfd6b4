"""The grammars of layout, dtype, epilogue and the tile rows."""

from __future__ import annotations

import pytest

from generator.language.built_in import OPERATIONS
from generator.language.dtypes import WEIGHTS
from generator.language.model import Dtype, Layout, Tile
from tests.helpers.support import BASE, family_of, mistakes_of, read_text

LAYOUT = (
    "expected three letters for A, B and C, each r (row-major), c (column-major) or s (strided), "
    "or a mapping {a: row, b: column, c: row}"
)
SHORTHANDS = "legal: fp16, bf16, fp32, tf32, tf32x3, int8, fp8e4m3, fp8e5m2"
RESULTS = "legal: fp32, fp16, bf16, fp8e4m3, fp8e5m2, int8"
OPERANDS = f"{RESULTS}, mxfp8e4m3, mxfp8e5m2, mxfp4, nvfp4"
SIDES = "has a '+' without an operation on each side; write it as in bias+relu"
MORE_OPERATIONS = "accumulate, save, row_sum, col_sum, row_amax, a_sum, b_sum, amax, quantize, or define it under ops"
LEGAL_OPERATIONS = f"legal: {', '.join(['none', *OPERATIONS])}, {MORE_OPERATIONS}"
CLAMP = "epilogue: 'clamp' needs one of min, max, as in [{clamp: {min: 0}}]"
ROW_KEYS = "legal: m, n, k, warps, group, stages, split, chiplets"
NUMBER = "expected a whole number of at least 1, found"
UNUSED = "not available yet; leave it out"
ELSEWHERE = "that type is not available here"
EMPTY = "the list is empty; give at least one value or leave the key out"

KEYS = "a, b, acc, out, precision, scales, zeros, sparsity, packing"
#: What B may be where A is fp16.
HALVES = ("fp16", *WEIGHTS)


def spec(layout: str = "rcr", dtype: str = "fp16", more: str = "") -> str:
    return f"summary: x\nlayout: {layout}\ndtype: {dtype}\n{more}\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("rcx", [f"2:9: layout: unknown value 'rcx'; {LAYOUT}"]),
        ("RCR", [f"2:9: layout: unknown value 'RCR'; {LAYOUT}"]),
        (
            "[rcr, rcrr, 5]",
            [f"2:15: layout: unknown value 'rcrr'; {LAYOUT}", f"2:21: layout: unknown value 5; {LAYOUT}"],
        ),
        ("[[rcr]]", [f"2:10: layout: unknown value [rcr]; {LAYOUT}"]),
        ("[]", [f"2:9: layout: {EMPTY}"]),
        ("[rcr, {a: row, b: column, c: row}]", ["2:15: layout: 'rcr' is listed twice"]),
        ("{a: row, b: column}", ["2:9: layout: the key 'c' is missing"]),
        ("{a: row, b: column, c: row, d: row}", ["2:37: layout: unknown key 'd'; legal: a, b, c"]),
        (
            "{a: row, b: colum, c: r}",
            [
                "2:21: layout.b: unknown value 'colum'; did you mean 'column'? legal: row, column, strided",
                "2:31: layout.c: unknown value 'r'; legal: row, column, strided",
            ],
        ),
    ],
)
def test_layout_mistakes(value: str, expected: list[str]) -> None:
    assert mistakes_of(spec(layout=value)) == [f"family.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("[fp16, float16]", [f"3:15: dtype: unknown value 'float16'; did you mean 'fp16'? {SHORTHANDS}"]),
        ("fp61", [f"3:8: dtype: unknown value 'fp61'; did you mean 'fp16'? {SHORTHANDS}"]),
        ("16", [f"3:8: dtype: unknown value 16; did you mean 'fp16'? {SHORTHANDS}"]),
        ("[fp16, {a: fp16, out: fp16}]", ["3:15: dtype: 'fp16' is listed twice"]),
        ("{acc: fp32}", ["3:8: dtype: the key 'a' is missing"]),
        ("{a: fp17}", [f"3:12: dtype.a: unknown value 'fp17'; did you mean 'fp16'? {OPERANDS}"]),
        ("{a: tf32}", [f"3:12: dtype.a: unknown value 'tf32'; write fp32, and 'precision: tf32'; {OPERANDS}"]),
        (
            "{a: fp16, acc: bf16, out: fp64, precision: ieee}",
            [
                f"3:23: dtype.acc: unknown value 'bf16'; {ELSEWHERE}; legal: fp32, fp16",
                f"3:34: dtype.out: unknown value 'fp64'; {ELSEWHERE}; {RESULTS}",
                "3:51: dtype.precision: a product of fp16 has no choice of precision; leave it out",
            ],
        ),
        (
            "{a: fp16, b: bf16}",
            [f"3:21: dtype.b: 'bf16' cannot be multiplied with an a of fp16; legal with it: {', '.join(HALVES)}"],
        ),
        ("{a: fp32, precision: fast}", ["3:29: dtype.precision: unknown value 'fast'; legal: ieee, tf32, tf32x3"]),
        ("{a: fp8e4m3, precision: ieee}", ["3:32: dtype.precision: unknown value 'ieee'; legal: full, fast"]),
        ("{a: int8, acc: fp32}", [f"3:23: dtype.acc: unknown value 'fp32'; {ELSEWHERE}; legal: int32"]),
        (
            "{a: fp16, out: int32}",
            [f"3:23: dtype.out: unknown value 'int32'; {ELSEWHERE}; {RESULTS}"],
        ),
        ("{a: fp16, acc: [fp16, fp32]}", ["3:23: dtype.acc: unknown value [fp16, fp32]; legal: fp32, fp16"]),
        (
            "{a: fp16, size: 2}",
            ["3:18: dtype: unknown key 'size'; legal: a, b, acc, out, precision, scales, zeros, sparsity, packing"],
        ),
    ],
)
def test_dtype_mistakes(value: str, expected: list[str]) -> None:
    assert mistakes_of(spec(dtype=value)) == [f"family.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("bias+relu+bais", [f"4:11: epilogue: unknown operation 'bais'; did you mean 'bias'? {LEGAL_OPERATIONS}"]),
        ("bias++relu", [f"4:11: epilogue: 'bias++relu' {SIDES}"]),
        ("+bias", [f"4:11: epilogue: '+bias' {SIDES}"]),
        ("[[bias+]]", [f"4:13: epilogue: 'bias+' {SIDES}"]),
        ("''", ["4:11: epilogue: expected an operation, found an empty text"]),
        ("none+relu", ["4:11: epilogue: 'none' cannot be part of a chain"]),
        ("5", ["4:11: epilogue: expected none, operations joined by +, or a list, found 5"]),
        ("", ["4:10: epilogue: expected none, operations joined by +, or a list, found nothing"]),
        ("[]", [f"4:11: epilogue: {EMPTY}"]),
        ("[none, []]", [f"4:18: epilogue: {EMPTY}"]),
        ("[bias+relu, [bias, relu]]", ["4:23: epilogue: 'bias+relu' is listed twice"]),
        ("[none, [bias, {relu: {min: 0}}]]", ["4:32: epilogue: 'relu' takes no parameters"]),
        ("bias+clamp", [f"4:11: {CLAMP}"]),
        ("[[bias+clamp]]", [f"4:13: {CLAMP}"]),
        ("[[{clamp: {}}]]", [f"4:21: {CLAMP}"]),
        ("[[{clamp: {min: -.inf}}]]", [f"4:21: {CLAMP}"]),
        ("[[{clamp: {mim: 0}}]]", ["4:22: epilogue.clamp: no parameter 'mim'; did you mean 'min'? legal: min, max"]),
        ("[[{clamp: {lo: 0}}]]", ["4:22: epilogue.clamp: no parameter 'lo'; legal: min, max"]),
        (
            "[[{quantize: {to: int8, block: 0}}]]",
            [
                "4:42: epilogue.quantize.block: 0 columns; a block has one of 16, 32, 64, 128, 256; for one scale a "
                "row, scale_m with dtype.out where it is known before, else row_amax returns the maxima"
            ],
        ),
        ("[[{clamp: {min: .inf}}]]", ["4:27: epilogue.clamp.min: expected a finite number, found .inf"]),
        ("[[{clamp: {min: 1e999}}]]", ["4:27: epilogue.clamp.min: the number is not finite in fp32: 1e999"]),
        ("[[{clamp: {min: 1e-999}}]]", ["4:27: epilogue.clamp.min: the number is 0 in fp32: 1e-999"]),
        ("+".join(["relu"] * 101), ["4:11: epilogue: the chain has 101 operations, at most 100 are allowed"]),
        (f"[[{', '.join(['relu'] * 500)}]]", ["4:12: epilogue: the chain has 101 operations, at most 100 are allowed"]),
        # A number of any length is a number.
        (
            f"[[{{clamp: {{min: 1{'0' * 400}}}}}]]",
            [f"4:27: epilogue.clamp.min: the number is not finite in fp32: 1{'0' * 58}…"],
        ),
        ("[[{clamp: {min: .nan}}]]", ["4:27: epilogue.clamp.min: expected a number, found .nan"]),
        ("[[{clamp: {min: '0'}}]]", ["4:27: epilogue.clamp.min: expected a number, found '0'"]),
        ("[[{clamp: {min: true}}]]", ["4:27: epilogue.clamp.min: expected a number, found true"]),
        ("[[{clamp: {min: -0.0}}]]", ["4:27: epilogue.clamp.min: -0.0 is 0, and a 0 has no sign here; write 0"]),
        ("[[{clamp: {min: 1e39}}]]", ["4:27: epilogue.clamp.min: the number is not finite in fp32: 1e39"]),
        ("[[{clamp: {min: 1e-60}}]]", ["4:27: epilogue.clamp.min: the number is 0 in fp32: 1e-60"]),
        ("[[{clamp: {min: 0, min: 1}}]]", ["4:30: epilogue.clamp: the key 'min' appears twice, first on line 4"]),
        ("[[{clamp: [0]}]]", ["4:21: epilogue.clamp: expected a mapping of names, found [0]"]),
        (
            "[[{bais: {min: 0}}]]",
            [f"4:14: epilogue: unknown operation 'bais'; did you mean 'bias'? {LEGAL_OPERATIONS}"],
        ),
        (
            "[[{softplus: {beta: 0}}]]",
            [
                "4:24: epilogue.softplus: with these parameters its formula "
                "'where(beta * x > threshold, x, softplus(beta * x) / beta)' divides by 0"
            ],
        ),
        ("[relu, [{clamp: {max: 6}}], [{clamp: {max: 6.0}}]]", ["4:39: epilogue: 'clamp(max=6)' is listed twice"]),
        (
            "[none, [bias, [relu]]]",
            ["4:25: epilogue: expected an operation, or one with parameters as {name: {...}}, found [relu]"],
        ),
    ],
)
def test_epilogue_mistakes(value: str, expected: list[str]) -> None:
    assert mistakes_of(spec(more=f"epilogue: {value}")) == [f"family.yaml:{line}" for line in expected]


def test_an_operation_with_parameters_outside_a_list_is_shown_where_it_belongs() -> None:
    (line,) = mistakes_of(spec(more="epilogue: [bias, {clamp: {min: 0}}]"))
    assert line.startswith("family.yaml:4:18: epilogue:") and "a mapping'" not in line and "clamp" in line


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("[]", [f"4:7: tile: {EMPTY}"]),
        (
            "{m: 64, n: 100, k: 64, warps: 4}",
            [
                "4:7: tile: expected a list, as in tile: [{m: 128, n: 128, k: 64, warps: 4}], "
                "found {m: 64, n: 100, k: 64, warps: 4}",
                "4:18: tile.n: expected a power of two, or two or three together, as 208 is, found 100; "
                "nearest: 96, 112",
            ],
        ),
        (
            "[128x128]",
            [f"4:8: tile: expected a mapping with the keys {ROW_KEYS.removeprefix('legal: ')}, found '128x128'"],
        ),
        ("[{m: 64, n: 64, k: 64}]", ["4:8: tile: the key 'warps' is missing"]),
        (
            "[{m: 120, n: 0, k: -1, warps: 3}]",
            [
                "4:12: tile.m: expected a power of two, or two or three together, as 208 is, found 120; "
                "nearest: 112, 128",
                f"4:20: tile.n: {NUMBER} 0",
                f"4:26: tile.k: {NUMBER} -1",
                "4:37: tile.warps: expected a power of two, found 3; nearest: 2, 4",
            ],
        ),
        (
            '[{m: 64.0, n: "64", k: 1e2, warps: true, group: 0, stages: x}]',
            [
                f"4:12: tile.m: {NUMBER} 64.0",
                f"4:21: tile.n: {NUMBER} '64'",
                f"4:30: tile.k: {NUMBER} 1e2",
                f"4:42: tile.warps: {NUMBER} true",
                f"4:55: tile.group: {NUMBER} 0",
                f"4:66: tile.stages: {NUMBER} 'x'",
            ],
        ),
        (
            "[{m: 64, n: 64, k: 64, warps: 4, ctas: x, warp_specialize: 1}]",
            [f"4:46: tile.ctas: {UNUSED}", f"4:66: tile.warp_specialize: {UNUSED}"],
        ),
        (
            "[{m: 64, n: 64, k: 64, warps: 4, splt: 1, m: 4}]",
            [
                f"4:40: tile: unknown key 'splt'; did you mean 'split'? {ROW_KEYS}",
                "4:49: tile: the key 'm' appears twice, first on line 4",
            ],
        ),
        (
            "[{m: 64, n: 64, k: 64, warps: 4}, {m: 512, n: 512, k: 512, warps: 4}]",
            ["4:41: tile: no target can run this configuration: 2097152 bytes of shared memory, and sm80 has 166912"],
        ),
        (
            "[{m: 64, n: 64, k: 8, warps: 4}, {m: 64, n: 64, k: 64, warps: 4}]",
            ["4:8: tile: no target can run this configuration: k is 8, and the matrix unit needs at least 16 for fp16"],
        ),
        (
            "[{m: 64, n: 64, k: 64, warps: 4}, {m: 8, n: 64, k: 64, warps: 4}]",
            [
                "4:41: tile: no target can run this configuration: "
                "m and n are 8 and 64, and the matrix unit needs at least 16 of each"
            ],
        ),
        (
            "[{m: 64, n: 64, k: 64, warps: 64}, {m: 64, n: 64, k: 64, warps: 4}]",
            ["4:8: tile: no target can run this configuration: 64 warps, and sm80 runs at most 32 in a program"],
        ),
    ],
)
def test_tile_mistakes(value: str, expected: list[str]) -> None:
    assert mistakes_of(spec(more=f"tile: {value}")) == [f"family.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    "row",
    [
        "{m: 512, n: 512, k: 512, warps: 4}",  # shared memory
        "{m: 1048576, n: 64, k: 64, warps: 4}",  # a tensor that Triton refuses
        "{m: 64, n: 64, k: 64, warps: 4, stages: 999999}",  # more stages than any memory holds
    ],
)
def test_the_only_row_fits_nowhere(row: str) -> None:
    # The family is empty then, and what empties it is the row: the answer is at its place.
    assert any(
        line.startswith("family.yaml:4:8: tile: no target can run this configuration: ")
        for line in mistakes_of(spec(more=f"tile: [{row}]"))
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("fp16", Dtype("fp16", "fp16", "fp32", "fp16", None)),
        ("bf16", Dtype("bf16", "bf16", "fp32", "bf16", None)),
        ("fp32", Dtype("fp32", "fp32", "fp32", "fp32", "ieee")),
        ("tf32", Dtype("fp32", "fp32", "fp32", "fp32", "tf32")),
        ("tf32x3", Dtype("fp32", "fp32", "fp32", "fp32", "tf32x3")),
        ("int8", Dtype("int8", "int8", "int32", "int32", None)),
        ("fp8e4m3", Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", "full")),
        ("fp8e5m2", Dtype("fp8e5m2", "fp8e5m2", "fp32", "bf16", "full")),
        # What a mapping leaves out is what gives the operands' type its accuracy.
        ("{a: fp16}", Dtype("fp16", "fp16", "fp32", "fp16", None)),
        ("{a: fp32}", Dtype("fp32", "fp32", "fp32", "fp32", "ieee")),
        ("{a: fp8e4m3}", Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", "full")),
        ("{a: fp16, b: fp16, acc: fp16, out: fp32}", Dtype("fp16", "fp16", "fp16", "fp32", None)),
        ("{a: int8, out: bf16}", Dtype("int8", "int8", "int32", "bf16", None)),
    ],
)
def test_dtype(value: str, expected: Dtype) -> None:
    assert read_text(spec(dtype=value)).axes["dtype"] == (expected,)


@pytest.mark.parametrize("letters", [a + b + c for a in "rcs" for b in "rcs" for c in "rcs"])
def test_layout_letters_and_mapping_agree(letters: str) -> None:
    words = {"r": "row", "c": "column", "s": "strided"}
    mapping = ", ".join(f"{operand}: {words[letter]}" for operand, letter in zip("abc", letters))
    (value,) = read_text(spec(layout=f"{{{mapping}}}")).axes["layout"]
    assert isinstance(value, Layout) and value == Layout.of(letters) and value.word == letters


def test_tile_defaults() -> None:
    row = "{m: 64, n: 32, k: 0x40, warps: 4, ctas: 1, warp_specialize: false}"
    assert read_text(spec(more=f"tile: [{row}]")).tiles == (Tile(64, 32, 64, warps=4, group=8, stages=3),)


def test_a_second_use_of_an_operand_is_numbered() -> None:
    (kernel,) = family_of(BASE + "epilogue: add+bias+add+add+bias\n").kernels
    operands = [operand.name for operand in kernel.variant.epilogue.operands]
    assert operands == ["add", "bias", "add2", "add3", "bias2"]


@pytest.mark.parametrize(
    ("written", "formula"),
    [
        ("none", "A @ B"),
        ("bias", "A @ B + bias"),
        ("bias+relu", "relu(A @ B + bias)"),
        ("relu+scale", "relu(A @ B) * scale"),
        ("scale+bias+gelu_tanh", "gelu_tanh(A @ B * scale + bias)"),
        ("add+scale+add", "(A @ B + add) * scale + add2"),
        ("scale_m+scale_n+mul+softplus", "softplus(A @ B * scale_m * scale_n * mul)"),
        ("[[bias, {clamp: {min: 0, max: 6}}, relu2]]", "relu2(clamp(A @ B + bias, min=0, max=6))"),
    ],
)
def test_formula(written: str, formula: str) -> None:
    (kernel,) = family_of(BASE + f"epilogue: {written}\n").kernels
    assert kernel.variant.epilogue.text == formula
