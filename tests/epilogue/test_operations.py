"""Operations of a spec's own: how they are read, what is wrong with them, and that one entry is all that one takes."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.epilogue.formula import FUNCTIONS
from generator.epilogue.operations import EpilogueOperation
from generator.language import built_in
from generator.language.built_in import OPERATIONS
from generator.lowering.kernel_lowering import view
from tests.helpers.support import (
    BASE,
    Spoken,
    assert_formatted,
    contents,
    family_of,
    mistakes_of,
    ops,
)

SHAPES = "is not a shape of an operand; shapes: [], [1], [M], [N], [M, N] ([] is a number)"
OWN = "is a name that kernels or launchers use themselves; choose another"
NO_NAME = "is not a name; expected lower-case letters, digits and _, a letter first"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The formula, at the column of what is wrong in it.
        ('f: {formula: "x + y"}', "4:25: ops.f.formula: 'y' is unknown; names here: x"),
        ("f: {formula: x + y}", "4:24: ops.f.formula: 'y' is unknown; names here: x"),
        ('f: {formula: "x.real"}', "4:22: ops.f.formula: '.real' is not part of the formula language"),
        (
            'f: {formula: "torch.sigmoid(x)"}',
            "4:26: ops.f.formula: '.sigmoid' is not part of the formula language; write sigmoid(…) alone",
        ),
        ('f: {formula: "x # c"}', "4:23: ops.f.formula: '#' is not part of the formula language"),
        ('f: {formula: "x / (2 - 2)"}', "4:26: ops.f.formula: divides by 0"),
        # Escapes, folded lines and blocks have no columns of their own: the place is where the text begins.
        ('f: {formula: "x\\u0020+ y"}', "4:20: ops.f.formula: 'y' is unknown; names here: x"),
        ('f: {formula: "x +\n   y"}', "4:20: ops.f.formula: 'y' is unknown; names here: x"),
        ("f: {formula: 5}", "4:20: ops.f.formula: expected text, found 5 (quote it to make it text)"),
        ("f: {formula: [x]}", "4:20: ops.f.formula: expected text, found [x]"),
        ("f: {}", "4:10: ops.f: the key 'formula' is missing"),
        ("f: x", "4:10: ops.f: expected a mapping with the keys formula, operands, scalars, found 'x'"),
        (
            "f: {formula: x, scale: 2}",
            "4:23: ops.f: unknown key 'scale'; did you mean 'scalars'? legal: formula, operands, scalars",
        ),
        # Its own name.
        ("relu: {formula: x}", "4:7: ops: 'relu' is a built-in operation; choose another name"),
        ("none: {formula: x}", "4:7: ops: 'none' is a built-in operation; choose another name"),
        ("F: {formula: x}", f"4:7: ops: 'F' {NO_NAME}"),
        ("../f: {formula: x}", f"4:7: ops: '../f' {NO_NAME}"),
        ("__f__: {formula: x}", f"4:7: ops: '__f__' {NO_NAME}"),
        ("lambda: {formula: x}", "4:7: ops: 'lambda' is a keyword of Python and cannot be imported"),
        ("5: {formula: x}", "4:7: ops: expected text, found 5 (quote it to make it text)"),
        (
            "gelutanh: {formula: x}",
            "4:7: ops: 'gelutanh' and 'gelu_tanh' would be the same in the names of kernels, which drop underscores; "
            "choose another name",
        ),
        (
            "a_b: {formula: x}, ab: {formula: x}",
            "4:26: ops: 'ab' and 'a_b' would be the same in the names of kernels, which drop underscores; "
            "choose another name",
        ),
        (
            "rounding_torch: {formula: x}",
            "4:7: ops: 'rounding_torch' and 'rounding: torch' would be the same in the names of kernels, which drop "
            "underscores; choose another name",
        ),
        ("f: {formula: x}, f: {formula: x}", "4:24: ops: the key 'f' appears twice, first on line 4"),
        # Operands.
        ("f: {formula: x + s, operands: {s: [K]}}", f"4:41: ops.f.operands.s: [K] {SHAPES}"),
        ("f: {formula: x + s, operands: {s: M}}", f"4:41: ops.f.operands.s: 'M' {SHAPES}"),
        (
            "f: {formula: x + s, operands: {s: [N, M]}}",
            f"4:41: ops.f.operands.s: [N, M] {SHAPES}",
        ),
        (
            "f: {formula: x + s, operands: {s: [true]}}",
            f"4:41: ops.f.operands.s: [true] {SHAPES}",
        ),
        ("f: {formula: x + s, operands: [s]}", "4:37: ops.f.operands: expected a mapping of names, found [s]"),
        ("f: {formula: x, operands: {s: [M]}}", "4:20: ops.f.formula: 's' is not used"),
        (
            "f: {formula: x, operands: {x: [M]}}",
            "4:34: ops.f.operands: 'x' is the running value of a formula; choose another name",
        ),
        (
            "f: {formula: x + erf, operands: {erf: [M]}}",
            "4:40: ops.f.operands: 'erf' is a function of a formula; choose another name",
        ),
        (
            "f: {formula: x + if, operands: {if: [M]}}",
            "4:39: ops.f.operands: 'if' is a keyword of Python and cannot be imported",
        ),
        (
            f"f: {{formula: x, operands: {{{'s' * 25}: [M]}}}}",
            "4:34: ops.f.operands: the name has 25 characters, at most 24 are allowed",
        ),
        # Scalars.
        ("f: {formula: x + p, scalars: {p: a}}", "4:40: ops.f.scalars.p: expected a number, found 'a'"),
        ("f: {formula: x + p, scalars: {p: .nan}}", "4:40: ops.f.scalars.p: expected a number, found .nan"),
        ("f: {formula: x + p, scalars: {p: 1e40}}", "4:40: ops.f.scalars.p: the number is not finite in fp32: 1e40"),
        ("f: {formula: x / p, scalars: {p: 0}}", "4:24: ops.f.formula: divides by 0"),
        ("f: {formula: x, scalars: {p: 1}}", "4:20: ops.f.formula: 'p' is not used"),
        (
            "f: {formula: x + x, scalars: {x: 1}}",
            "4:37: ops.f.scalars: 'x' is the running value of a formula; choose another name",
        ),
        ("f: {formula: x + row, scalars: {row: null}}", f"4:39: ops.f.scalars: 'row' {OWN}"),
        (
            "f: {formula: x + p_q + pq, scalars: {p_q: 1, pq: 1}}",
            "4:52: ops.f.scalars: 'pq' and 'p_q' differ only in underscores; choose another name",
        ),
        (
            "f: {formula: x + p, scalars: {p: .inf}}",
            "4:24: ops.f.formula: 'p' is inf by default, so it may only be an argument of min",
        ),
        (
            "f: {formula: 'max(x, p)', scalars: {p: .inf}}",
            "4:28: ops.f.formula: 'p' is inf by default, so it may only be an argument of min",
        ),
    ],
)
def test_mistakes_in_ops(text: str, expected: str) -> None:
    assert mistakes_of(ops(text)) == [f"family.yaml:{expected}"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "a",
            "b",
            "out",
            "config",
            "acc",
            "tl",
            "triton",
            "torch",
            "row",
            "pid_m",
            "offs_n",
            "in_m",
            "index",
            "lda",
            "lds",
        ),
        *(
            "stride_sm",
            "s_ptr",
            "s_ptrs",
            "s_desc",
            "s_or_ptr",
            "s_on_device",
            "x_1",
            "sum",
            "float",
            "isinstance",
            "gemm",
            "work",
        ),
    ],
)
@pytest.mark.parametrize("key", ["operands", "scalars"])
def test_names_that_no_keyword_of_a_launcher_may_have(name: str, key: str) -> None:
    line = f"ops: {{f: {{formula: x + {name}, {key}: {{{name}: {'[M]' if key == 'operands' else 'null'}}}}}}}"
    column = line.index(f"{name}: ", 20) + 1
    assert mistakes_of(f"{BASE}{line}\n") == [f"family.yaml:4:{column}: ops.f.{key}: {name!r} {OWN}"]


@pytest.mark.parametrize(
    ("text", "chain", "expected"),
    [
        (
            "my_op: {formula: x * x}",
            "my_opp",
            "5:11: epilogue: unknown operation 'my_opp'; did you mean 'my_op'? legal: ",
        ),
        (
            "f: {formula: x + p, scalars: {p: 2}}",
            "[[{f: {p: null}}]]",
            "5:21: epilogue.f.p: expected a number, found null",
        ),
        (
            "f: {formula: x / p, scalars: {p: 2}}",
            "[[{f: {p: 0}}]]",
            "5:17: epilogue.f: with these parameters its formula 'x / p' divides by 0",
        ),
        (
            "f: {formula: x + p * s, operands: {s: [M]}, scalars: {p: 2}}",
            "[[{f: {s: 0}}]]",
            "5:18: epilogue.f: no parameter 's'; legal: p",
        ),
        (
            "f: {formula: x + add2, operands: {add2: [M]}}",
            "add+add+f",
            "5:11: epilogue: two operands of add+add+f would be called 'add2'; rename that of an op",
        ),
    ],
)
def test_mistakes_in_chains(text: str, chain: str, expected: str) -> None:
    (found,) = mistakes_of(ops(text, chain))
    assert found.startswith(f"family.yaml:{expected}")


def test_a_wrong_op_is_told_once_and_not_where_it_is_used() -> None:
    assert mistakes_of(ops("f: {formula: x +}", "[f, f+relu]")) == [
        "family.yaml:4:22: ops.f.formula: not a formula: invalid syntax"
    ]


def test_operations_of_a_spec() -> None:
    text = (
        "f: {formula: x * s / 2 + p + q, operands: {s: []}, scalars: {p: 2.0, q: null}}, "
        "g: {formula: x * s, operands: {s: [1]}}"
    )
    family = family_of(ops(text, "[f+g, [{f: {p: 3}}], [{f: {q: 1, p: 2}}]]"))
    first, second, third = (kernel.variant.epilogue for kernel in family.kernels)
    assert [(o.name, o.shape) for o in first.operands] == [("s", ""), ("q", ""), ("s2", "1")]
    assert [(o.name, o.shape) for o in third.operands] == [("s", "")]
    assert [e.word for e in (first, second, third)] == ["f+g", "f(p=3)", "f(q=1)"]
    assert [e.written for e in (first, second, third)] == ["f_g", "f_3_p", "f_1_q"]
    assert ast.unparse(second.steps[0].tree) == "x * s / 2 + 3 + q"
    assert view(family.kernels[2]).steps[0].lines == ("x = acc * s / 2.0 + 2.0 + 1.0",)
    assert second.text == "A @ B * s / 2 + 3 + q"


HOSTILE = [
    "__import__('os').system('touch pwned')",
    "open('pwned', 'w')",
    "x.__class__.__mro__",
    "[open(y) for y in x]",
    "(" * 500 + "x" + ")" * 500,
    "x + " * 3000 + "x",
    "x / 0",
    "().__class__.__bases__[0].__subclasses__()",
    "x if open('pwned', 'w') else x",
    "f'{open(chr(112), chr(119))}'",
    "x\n__import__('os').system('touch pwned')",
    "x # \r__import__('os').system('touch pwned')",
    '"""x"""',
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_formula_is_refused_and_nothing_is_written(
    text: str, cli: Callable[..., Spoken], tmp_path: Path
) -> None:
    (tmp_path / "family.yaml").write_text(f"{BASE}ops:\n  f: {{formula: {json.dumps(text)}}}\nepilogue: f\n")
    said = cli("family.yaml")
    assert said.status == 2 and said.err.startswith("family.yaml:5:") and "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1
    assert list(contents(tmp_path)) == ["family.yaml"]


def test_the_manifest_alone_tells_what_a_family_computes(cli: Callable[..., Spoken], tmp_path: Path) -> None:
    text = ops(
        "f: {formula: 'min(x * s, p) + q', operands: {s: [1]}, scalars: {p: .inf, q: null}}",
        "[[{f: {p: 2}}], [{clamp: {min: 0}}, leaky_relu]]",
    )
    (tmp_path / "family.yaml").write_text(text)
    assert cli("family.yaml", "--out", tmp_path).status == 0
    found = read(tmp_path / "family")
    assert found.kernels == family_of(text).kernels
    manifest = json.loads((tmp_path / "family" / "manifest.json").read_text(), parse_constant=pytest.fail)
    assert manifest["operations"]["f"] == {
        "formula": "min(x * s, p) + q",
        "operands": {"s": "1"},
        "scalars": {"p": "inf", "q": None},
    }


def test_a_manifest_from_before_there_were_scalars_is_read(tmp_path: Path, cli: Callable[..., Spoken]) -> None:
    (tmp_path / "family.yaml").write_text(f"{BASE}epilogue: bias+relu\n")
    cli("family.yaml", "--out", tmp_path)
    path = tmp_path / "family" / "manifest.json"
    manifest = json.loads(path.read_text())
    for entry in manifest["operations"].values():
        del entry["scalars"]
    for kernel in manifest["kernels"].values():
        for step in kernel["axes"]["epilogue"]:
            del step["settings"]
    path.write_text(json.dumps(manifest))
    assert read(tmp_path / "family").kernels == family_of(f"{BASE}epilogue: bias+relu\n").kernels


LONG = "where(abs(x) > threshold_of_it, x, min(max(x * weights_of_rows + x ** 3, lowest), exp(x) * softplus(x)))"


def test_long_formulas_and_names_are_written_as_a_formatter_would(cli: Callable[..., Spoken], tmp_path: Path) -> None:
    first = f"{LONG} + " + LONG.replace("x", "(x - 1e-5)").replace("e(x - 1e-5)p", "exp").replace(
        "ma(x - 1e-5)(", "max("
    )
    text = (
        f"{BASE}ops:\n  f:\n    formula: {json.dumps(first)}\n    operands: {{weights_of_rows: [M]}}\n"
        "    scalars: {threshold_of_it: null, lowest: 1.0e+30}\n"
        "epilogue: [f, f+f, f+f+f, f+bias]\nschedule: [elementwise, tiled, stream_k]\n"
        "dtype: [fp16, {a: int8, out: fp16}]\n"
    ).replace("dtype: fp16\n", "", 1)
    (tmp_path / "family.yaml").write_text(text)
    said = cli("family.yaml", "--out", tmp_path)
    assert said.status == 0, said.err
    assert_formatted(tmp_path / "family")
    for path in (tmp_path / "family").glob("*.py"):
        # A formatter breaks neither a name nor the parameters of a lambda.
        lines = [x for x in path.read_text().splitlines() if "gemm_" not in x and "=lambda " not in x]
        assert all(len(line) <= 120 for line in lines)


def test_one_entry_is_all_that_an_operation_takes(
    cli: Callable[..., Spoken], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more in the table, and the listing, the documentation, the launcher and the verification have it."""
    added = EpilogueOperation("sqrt(abs(x)) * offset + power", {"offset": "N"}, {"power": 3})
    monkeypatch.setitem(OPERATIONS, "rooted", added)  # type: ignore[arg-type]
    (found,) = mistakes_of(f"{BASE}epilogue: rootd\n")
    assert "did you mean 'rooted'? legal: none, bias" in found and ", rooted, accumulate" in found
    assert "| `rooted` | `sqrt(abs(x)) * offset + power` | `offset` [N] | `power` 3 |" in built_in.table()
    spec = "summary: x\nlayout: rrr\ndtype: bf16\nepilogue: [[{rooted: {power: 4}}]]\nschedule: elementwise\n"
    (tmp_path / "family.yaml").write_text(spec)
    assert cli("family.yaml", "--out", ".").status == 0
    (path,) = Path("family").glob("gemm_*.py")
    assert path.name == "gemm_bf16_rrr_rooted_4_power__elementwise_pointer_auto_grouped.py"
    assert "a: Tensor, b: Tensor, *, offset: Tensor, out: Tensor | None = None" in path.read_text()
    assert "    x = tl.sqrt(tl.abs(acc)) * offset + 4.0\n" in path.read_text()
    # The table of another process has no such operation: the manifest is enough.
    said = cli("verify", "family", "--level", "static", "--level", "bounds", "--level", "interpret", "--jobs", "1")
    assert said.status == 0, said.out + said.err


def test_every_function_stands_in_the_documentation() -> None:
    assert [line.split("`")[1].partition("(")[0] for line in built_in.functions().splitlines()[2:]] == list(FUNCTIONS)
