"""The formula language: what is arithmetic is read and spelled, and nothing else is accepted."""

from __future__ import annotations

import ast
import math
import random
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from generator.epilogue import constant_folding, formula, formula_code
from generator.epilogue.chain import Epilogue
from generator.epilogue.formula import DEEPEST, FUNCTIONS, LONGEST, FormulaError
from generator.epilogue.operations import EpilogueOperation
from generator.language.built_in import OPERATIONS

NAMES = frozenset({"x", "bias"})
KNOWN = "names here: bias, x"
CALLS = f"functions: {', '.join(FUNCTIONS)}"
PLACE = "a comparison is only allowed as the first argument of where"
NOT = "is not part of the formula language"
POWER = "a power is a whole number from 2 to 8, written out"
CONSTANT = "a constant part is not a finite number"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        # Characters that the language does not have.
        ("x.real", 2, f"'.real' {NOT}"),
        ("x.__class__", 2, f"'.__class__' {NOT}"),
        ("x[0]", 2, f"'[' {NOT}"),
        ("[x for x in x]", 1, f"'[' {NOT}"),
        ("{x}", 1, f"'{{' {NOT}"),
        ("lambda: x", 7, f"':' {NOT}"),
        ("(x := 1)", 4, f"':=' {NOT}"),
        ("x + 'a'", 5, f'"\'" {NOT}'),
        ("f'{x}'", 2, f'"\'" {NOT}'),
        ("x # y", 3, f"'#' {NOT}"),
        ("x\n+ 1", 2, f"'\\n' {NOT}"),
        ("x\r+ 1", 2, f"'\\r' {NOT}"),
        ("x\t+ 1", 2, f"'\\t' {NOT}"),
        ("x\f", 2, f"'\\x0c' {NOT}"),
        ("x\0", 2, f"'\\x00' {NOT}"),
        ("x \\\n + 1", 3, f"'\\\\' {NOT}"),
        ("x; x", 2, f"';' {NOT}"),
        ("x = 1", 3, f"'=' {NOT}"),
        ("x // 2", 3, f"'//' {NOT}"),
        ("x << 2", 3, f"'<<' {NOT}"),
        ("x % 2", 3, f"'%' {NOT}"),
        ("x @ x", 3, f"'@' {NOT}"),
        ("~x", 1, f"'~' {NOT}"),
        ("max(x, y=x)", 9, f"'=' {NOT}"),
        ("...", 1, f"'...' {NOT}"),
        ("\uff58 + 1", 1, f"'\uff58' {NOT}"),
        ("x + \u00b2", 5, f"'\u00b2' {NOT}"),
        # Numbers that are none here.
        ("x + 1j", 5, f"'1j' {NOT}"),
        ("x + 0x10", 5, f"'0x10' {NOT}"),
        ("x + 1_000", 5, f"'1_000' {NOT}"),
        ("x + 1if", 5, f"'1if' {NOT}"),
        ("x * 1e999", 5, "the number is not finite in fp32"),
        ("x * 1e39", 5, "the number is not finite in fp32"),
        (f"x * 1{'0' * 400}", 5, "the number is not finite in fp32"),
        ("x * 1e-60", 5, "the number is 0 in fp32"),
        # Numbers that are 0 for Python already.
        ("x + 1e-400", 5, "the number is 0 in fp32"),
        ("x + .0001E-999", 5, "the number is 0 in fp32"),
        (f"x + 0.{'0' * 400}1", 5, "the number is 0 in fp32"),
        ("x + True", 5, f"True {NOT}; write a number"),
        ("x + None", 5, f"None {NOT}; write a number"),
        # Names.
        ("x + y", 5, f"'y' is unknown; {KNOWN}"),
        ("x + __builtins__", 5, f"'__builtins__' is unknown; {KNOWN}"),
        ("x + max", 5, f"'max' is a function: give it arguments; {KNOWN}"),
        ("__import__(x)", 1, f"unknown function '__import__'; {CALLS}"),
        ("x(x)", 1, f"unknown function 'x'; {CALLS}"),
        ("max(x, x)(x)", 1, f"a call of what is no function's name {NOT}; {CALLS}"),
        ("max(x)", 1, "max takes 2 arguments, got 1"),
        ("tanh(x, x)", 1, "tanh takes 1 argument, got 2"),
        # Other expressions of Python.
        ("x if x else 0", 1, f"a conditional expression, 'if' and 'else', {NOT}; write where(condition, x, y)"),
        ("x and 0", 1, f"'and' {NOT}; write where(a, where(b, x, y), y)"),
        ("x or 0", 1, f"'or' {NOT}; write where(a, x, where(b, x, y))"),
        ("not x", 1, f"'not' {NOT}; write the opposite comparison"),
        ("+x", 1, f"a sign '+' {NOT}; leave it out"),
        ("x, x", 1, f"a comma outside a function's arguments {NOT}"),
        ("()", 1, f"an empty pair of parentheses {NOT}"),
        ("max(*x)", 1, "max takes 2 arguments, got 1"),
        ("abs(*x)", 5, f"'*' before an argument {NOT}"),
        ("abs(**x)", 1, f"'**' before an argument {NOT}"),
        ("abs(x for x in x)", 4, f"'for' {NOT}"),
        ("await x", 1, f"'await' {NOT}"),
        ("x in x", 1, f"'in' {NOT}; comparisons are < <= > >= == !="),
        ("x not in x", 1, f"'in' {NOT}; comparisons are < <= > >= == !="),
        ("x is x", 1, f"'is' {NOT}; comparisons are < <= > >= == !="),
        ("(yield x)", 2, f"'yield' {NOT}"),
        # Comparisons.
        ("x < 0", 1, "a formula is a number; a comparison is only allowed as the first argument of where"),
        ("x + (x < 0)", 6, PLACE),
        ("where(x + 1, x, 0)", 7, "the first argument of where is a comparison or the name of a mask"),
        ("where(1, x, 0)", 7, "the first argument of where is a comparison or the name of a mask"),
        ("where(max(x, bias), x, 0)", 7, "the first argument of where is a comparison or the name of a mask"),
        ("where(keep, x, 0)", 7, f"'keep' is unknown; {KNOWN}"),
        ("where(x > 0, x > 0, 0)", 14, PLACE),
        ("where((x > 0) > 0, x, 0)", 8, PLACE),
        ("where(0 < x < 1, x, 0)", 7, "a comparison has two sides"),
        # Powers.
        ("x ** 9", 6, POWER),
        ("x ** 1", 6, POWER),
        ("x ** -1", 6, POWER),
        ("x ** 2.0", 6, POWER),
        ("x ** x", 6, POWER),
        ("2 ** x", 6, POWER),
        ("x ** 2 ** 2", 6, POWER),
        # Constant parts.
        ("x / 0", 5, "divides by 0"),
        ("x / 0.0", 5, "divides by 0"),
        ("x / -0", 5, "divides by 0"),
        ("x / (1 - 1)", 6, "divides by 0"),
        ("1 / 0 * x", 5, "divides by 0"),
        ("x / where(1 > 2, 1, 0)", 5, "divides by 0"),
        ("x / (0 * exp(1))", 6, "divides by 0"),
        ("x + log(0)", 5, CONSTANT),
        ("x + sqrt(-1)", 5, CONSTANT),
        ("x + exp(1000)", 5, CONSTANT),
        ("x + exp(90)", 5, "the number is not finite in fp32"),
        ("x + 1e30 * 1e30", 5, "the number is not finite in fp32"),
        ("x + 1e-30 * 1e-30", 5, "the number is 0 in fp32"),
        ("x + fp16(70000)", 5, CONSTANT),
        ("1 + 1", 1, "the formula does not depend on x"),
        ("bias", 1, "the formula does not depend on x"),
        ("where(1 > 2, x, bias)", 1, "the formula does not depend on x"),
        # Size.
        ("x" * 1001, 1001, "1001 characters; a formula has at most 1000"),
        ("(" * 400 + "x" + ")" * 400, DEEPEST + 1, f"nested more than {DEEPEST} levels deep"),
        ("-" * 400 + "x", DEEPEST + 1, f"nested more than {DEEPEST} levels deep"),
        ("x" + " + 1" * 200, 549, f"nested more than {DEEPEST} levels deep"),
        ("x" * 10_000, 1001, "10000 characters; a formula has at most 1000"),
    ],
)
def test_what_is_not_a_formula(text: str, column: int, message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        constant_folding.bind(text, NAMES)
    assert (caught.value.column, str(caught.value)) == (column, message)


@pytest.mark.parametrize(
    "text", ["", "   ", "x +", "x x", "import os", "x)(x", ")", "(", "()()", "x,", "*x", "max(,)", "012 + x", "x <> 1"]
)
def test_what_is_not_even_an_expression(text: str) -> None:
    with pytest.raises(FormulaError):
        constant_folding.bind(text, NAMES)


WORDS = (
    "x bias __import__ eval open os __class__ lambda if else for in not await 0 1 2 8 1e38 1e-45 0.5 "
    "- + * / ** // < >= == ( ) , . [ ] { } ' \" \\ # : := = @ % f'"
)
MORSELS = [*FUNCTIONS, *WORDS.split(" "), *(" ", "\n", "\r", "\0", "\u2028", "\uff08", "\ud800")]


def hostile(count: int) -> Iterator[str]:
    """Random strings, random words, and mutations of formulas: the same ones every time."""
    chance = random.Random(20)
    good = [operation.formula for operation in OPERATIONS.values()]
    good += ["where(x > bias, log(1 + exp(x)) ** 2, fp16(x) / 3)", "((((x + 1) * 2) - 3) / bias) ** 8"]
    for number in range(count):
        if number % 4 == 0:
            yield "".join(chr(chance.randrange(32, chance.choice((127, 0x300)))) for _ in range(20))
        elif number % 4 == 1:
            yield "".join(chance.choices(MORSELS, k=chance.randrange(1, 30)))
        else:
            text = chance.choice(good)
            for _ in range(chance.randrange(1, 5)):
                at, end = sorted(chance.choices(range(len(text) + 1), k=2))
                some = "".join(chance.choices(MORSELS, k=2))
                cut = chance.choice((text[at : at + 1], text[at:end] * chance.randrange(3), some))
                text = text[:at] + cut + text[chance.choice((at, at + 1, end)) :]
            yield text


def fuzz(count: int) -> tuple[int, int]:
    """How many hostile strings are formulas and how many are refused; anything else is raised."""
    accepted = refused = 0
    for text in hostile(count):
        try:
            tree = constant_folding.bind(text, NAMES)
        except FormulaError as error:
            assert 1 <= error.column <= len(text) + 2 and str(error)
            refused += 1
            continue
        accepted += 1
        lines = formula_code.to_triton(tree, {"x": "acc.to(tl.float32)", "bias": "bias[None, :]"})
        assert all(len(line) <= formula_code.WIDTH + 8 for line in lines)
        called = {ast.unparse(n.func) for n in ast.walk(ast.parse("\n".join(lines))) if isinstance(n, ast.Call)}
        assert called <= SPELLED
        constant_folding.bind.cache_clear()
        formula.parse.cache_clear()
    return accepted, refused


#: Everything that a kernel's epilogue may call.
SPELLED = {
    *("tl.where", "tl.maximum", "tl.minimum", "tl.abs", "tl.exp", "tl.exp2", "tl.log", "tl.sqrt", "tl.rsqrt", "tl.erf"),
    *("_tanh", "tl.sigmoid", "_softplus", "tl.cast", "_power", "acc.to"),
}


def test_hostile_strings_are_formulas_or_refused_and_nothing_is_run() -> None:
    touched: list[tuple[str, str]] = []
    watching = True
    # A formula is read in this thread; what another does is not its doing.
    here = threading.get_ident()
    events = ("exec", "open", "import", "os.system", "subprocess.Popen")

    def audit(event: str, arguments: object) -> None:
        if watching and threading.get_ident() == here and event in events:
            touched.append((event, repr(arguments)))

    # An audit hook cannot be taken out again.
    sys.addaudithook(audit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            accepted, refused = fuzz(100_000)
        finally:
            watching = False
    assert touched == []
    assert accepted > 2_000 and refused > 25_000


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("x + bias", "acc + bias[None, :]"),
        ("max(x, 0)", "tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
        ("min(x, 0)", "tl.minimum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
        ("-x * (1 + tanh(x))", "-acc * (1.0 + _tanh(acc))"),
        ("x * sigmoid(2 * (x + bias))", "acc * tl.sigmoid(2.0 * (acc + bias[None, :]))"),
        ("where(x > 0, x * x, 0)", "tl.where(acc > 0.0, acc * acc, 0.0)"),
        ("where(bias, x, -bias)", "tl.where(bias[None, :] != 0.0, acc, -bias[None, :])"),
        ("(x + 1) ** 3", "_power(acc + 1.0, 3)"),
        ("fp16(x + 1)", "tl.cast(tl.cast(acc + 1.0, tl.float16), tl.float32)"),
        ("  softplus(abs(x))  ", "_softplus(tl.abs(acc))"),
        # Constant parts are computed, and what changes nothing is left out.
        ("x * (1 + 2) / 4 - -1", "acc * 3.0 / 4.0 - -1.0"),
        ("1 * x * 1 / 1", "acc"),
        ("1 / x", "1.0 / acc"),
        ("where(2 > 1, x, bias)", "acc"),
        ("x + bf16(0.3)", "acc + 0.30078125"),
        ("x + where(1 > 2, 3, 2 ** 3)", "acc + 8.0"),
    ],
)
def test_spelling_in_a_kernel(text: str, spelled: str) -> None:
    tree = constant_folding.bind(text, NAMES)
    assert formula_code.to_triton(tree, {"x": "acc", "bias": "bias[None, :]"}) == (f"x = {spelled}",)


def test_a_long_formula_is_spelled_in_parts_whose_work_is_as_much_as_the_formula_says() -> None:
    text = "x"
    while len(text) < 200:
        text = f"({text} * x + max({text}, bias)) ** 8"
    lines = formula_code.to_triton(
        constant_folding.bind(text, NAMES), {"x": "acc.to(tl.float32)", "bias": "bias[None, :]"}
    )
    assert lines[0] == "x = acc.to(tl.float32)" and len(lines) < 40
    assert all(len(line) < 120 for line in lines)
    written: set[str] = set()
    for line in lines:
        name, _, value = line.partition(" = ")
        read = {node.id for node in ast.walk(ast.parse(value)) if isinstance(node, ast.Name)}
        assert {part for part in read if part.startswith("x_")} <= written
        written.add(name)
    assert sum(line.count("_power") for line in lines) == text.count("**")


def test_integers_stay_integers_where_they_can() -> None:
    tree = constant_folding.bind("max(x, -6)", NAMES)
    (line,) = formula_code.to_triton(tree, {"x": "acc"}, integer=True)
    assert line.startswith("x = tl.maximum(acc, -6, ")


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("max(x, 0)", True),
        ("min(max(x, -128), 127)", True),
        ("where(x > 3, x, 3 - 5)", True),
        # Past int32, or a sum, product or sign that may be.
        ("max(x, 3000000000)", False),
        ("x + 1", False),
        ("x * x", False),
        ("x ** 2", False),
        ("-x", False),
        ("abs(x)", False),
        ("x + bias", False),
        ("max(x, bias)", False),
        ("x / 2", False),
        ("x * 0.5", False),
        ("max(x, 0.5)", False),
        ("tanh(x)", False),
        ("fp32(x)", False),
    ],
)
def test_keeps_integers(text: str, keeps: bool) -> None:
    assert formula.keeps_integers(constant_folding.bind(text, NAMES)) is keeps


def test_numbers_stand_for_parameters() -> None:
    names = frozenset({"x", "min", "max"})
    text = "min(max, max(min, x))"
    bound = {
        values: ast.unparse(constant_folding.bind(text, names, (("min", values[0]), ("max", values[1]))))
        for values in ((0, 6), (0, math.inf), (-math.inf, 6), (-math.inf, math.inf))
    }
    assert list(bound.values()) == ["min(6, max(0, x))", "max(0, x)", "min(6, x)", "x"]


def test_spelling_leaves_the_tree_as_it_was() -> None:
    tree = formula.parse("x + bias * (1 + 1)", NAMES)
    before = ast.dump(tree)
    formula_code.to_triton(constant_folding.bind("x + bias * (1 + 1)", NAMES), {"x": "acc", "bias": "b"})
    formula_code.to_text(tree, {"x": ast.parse("A @ B", mode="eval").body})
    assert ast.dump(tree) == before


def test_every_function_and_operator_has_its_meaning_of_numbers_and_its_spelling() -> None:
    expected = {*FUNCTIONS, *formula.SYMBOLS}
    assert constant_folding.NUMBERS.keys() == formula_code.TRITON.keys() == expected


@pytest.mark.parametrize("zero", ["0", "0.0", "0e-999", ".0E5", "0e999"])
def test_a_zero_may_be_written_in_any_way(zero: str) -> None:
    assert formula.parse(f"x + {zero}", frozenset("x"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_uses_x_and_each_of_its_names(name: str) -> None:
    operation = OPERATIONS[name]
    assert set(formula.used(formula.parse(operation.formula, operation.names))) == operation.names
    assert len(operation.formula) <= LONGEST


def test_the_text_of_a_chain_does_not_outgrow_its_operations() -> None:
    twice = EpilogueOperation("x * x + s", {"s": ""})
    chain = Epilogue.chain([("twice", twice, ())] * 40)
    assert len(chain.text) < 40 * len("twice(, s40)") + len("A @ B")
