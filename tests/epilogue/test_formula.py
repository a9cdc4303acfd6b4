"""The formula language: what is arithmetic is read and spelled, and nothing else is accepted."""

import ast
import math
import random
import sys
import threading
import warnings

import pytest

from generator.epilogue import constant_folding, formula, formula_code
from generator.epilogue.chain import Epilogue
from generator.epilogue.formula import FUNCTIONS, LONGEST, FormulaError
from generator.epilogue.operations import EpilogueOperation
from generator.language.built_in import OPERATIONS

NAMES = frozenset({"x", "bias"})


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "x +", "x x", "import os", "x)(x", ")", "(", "()()", "x,", "*x", "max(,)", "012 + x", "x <> 1"),
        # What no line of a spec holds.
        *("x\n+ 1", "x\r+ 1", "x\t+ 1", "x\f", "x\0", "x \\\n + 1", "\uff58 + 1", "x + \u00b2"),
        *(f"x * 1{'0' * 400}", f"x + 0.{'0' * 400}1", "x" * 1001, "x" * 10_000),
        *("(" * 400 + "x" + ")" * 400, "-" * 400 + "x", "x" + " + 1" * 200),
    ],
)
def test_what_is_no_formula(text):
    with pytest.raises(FormulaError):
        constant_folding.bind(text, NAMES)


WORDS = (
    "x bias __import__ eval open os __class__ lambda if else for in not await 0 1 2 8 1e38 1e-45 0.5 "
    "- + * / ** // < >= == ( ) , . [ ] { } ' \" \\ # : := = @ % f'"
)
MORSELS = [*FUNCTIONS, *WORDS.split(" "), *(" ", "\n", "\r", "\0", "\u2028", "\uff08", "\ud800")]


def hostile(count):
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


def fuzz(count):
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


def test_hostile_strings_are_formulas_or_refused_and_nothing_is_run():
    touched = []
    watching = True
    # A formula is read in this thread; what another does is not its doing.
    here = threading.get_ident()
    events = ("exec", "open", "import", "os.system", "subprocess.Popen")

    def audit(event, arguments):
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
        ("max(x, 0)", "tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
        ("min(x, 0)", "tl.minimum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
        ("-x * (1 + tanh(x))", "-acc * (1.0 + _tanh(acc))"),
        ("x * sigmoid(2 * (x + bias))", "acc * tl.sigmoid(2.0 * (acc + bias[None, :]))"),
        ("where(x > 0, x * x, 0)", "tl.where(acc > 0.0, acc * acc, 0.0)"),
        ("where(bias, x, -bias)", "tl.where(bias[None, :] != 0.0, acc, -bias[None, :])"),
        *(("(x + 1) ** 3", "_power(acc + 1.0, 3)"), ("  softplus(abs(x))  ", "_softplus(tl.abs(acc))")),
        ("fp16(x + 1)", "tl.cast(tl.cast(acc + 1.0, tl.float16), tl.float32)"),
        # Constant parts are computed, and what changes nothing is left out.
        ("x * (1 + 2) / 4 - -1", "acc * 3.0 / 4.0 - -1.0"),
        *(("1 * x * 1 / 1", "acc"), ("1 / x", "1.0 / acc"), ("where(2 > 1, x, bias)", "acc")),
        *(("x + bf16(0.3)", "acc + 0.30078125"), ("x + where(1 > 2, 3, 2 ** 3)", "acc + 8.0")),
    ],
)
def test_spelling_in_a_kernel(text, spelled):
    tree = constant_folding.bind(text, NAMES)
    assert formula_code.to_triton(tree, {"x": "acc", "bias": "bias[None, :]"}) == (f"x = {spelled}",)


def test_a_long_formula_is_spelled_in_parts_whose_work_is_as_much_as_the_formula_says():
    text = "x"
    while len(text) < 200:
        text = f"({text} * x + max({text}, bias)) ** 8"
    lines = formula_code.to_triton(
        constant_folding.bind(text, NAMES), {"x": "acc.to(tl.float32)", "bias": "bias[None, :]"}
    )
    assert lines[0] == "x = acc.to(tl.float32)" and len(lines) < 40
    assert all(len(line) < 120 for line in lines)
    written = set()
    for line in lines:
        name, _, value = line.partition(" = ")
        read = {node.id for node in ast.walk(ast.parse(value)) if isinstance(node, ast.Name)}
        assert {part for part in read if part.startswith("x_")} <= written
        written.add(name)
    assert sum(line.count("_power") for line in lines) == text.count("**")


def test_integers_stay_integers_where_they_can():
    tree = constant_folding.bind("max(x, -6)", NAMES)
    (line,) = formula_code.to_triton(tree, {"x": "acc"}, integer=True)
    assert line.startswith("x = tl.maximum(acc, -6, ")


@pytest.mark.parametrize(
    ("texts", "keeps"),
    [
        ("max(x, 0); min(max(x, -128), 127); where(x > 3, x, 3 - 5)", True),
        # Past int32, or a sum, product or sign that may be.
        ("max(x, 3000000000); x + 1; x * x; x ** 2; -x; abs(x); x + bias; max(x, bias)", False),
        ("x / 2; x * 0.5; max(x, 0.5); tanh(x); fp32(x)", False),
    ],
)
def test_keeps_integers(texts, keeps):
    for text in texts.split("; "):
        assert formula.keeps_integers(constant_folding.bind(text, NAMES)) is keeps, text


def test_numbers_stand_for_parameters():
    names = frozenset({"x", "min", "max"})
    text = "min(max, max(min, x))"
    bound = {
        values: ast.unparse(constant_folding.bind(text, names, (("min", values[0]), ("max", values[1]))))
        for values in ((0, 6), (0, math.inf), (-math.inf, 6), (-math.inf, math.inf))
    }
    assert list(bound.values()) == ["min(6, max(0, x))", "max(0, x)", "min(6, x)", "x"]


def test_every_function_and_operator_has_its_meaning_of_numbers_and_its_spelling():
    assert constant_folding.NUMBERS.keys() == formula_code.TRITON.keys() == {*FUNCTIONS, *formula.SYMBOLS}


@pytest.mark.parametrize("zero", ["0", "0.0", "0e-999", ".0E5", "0e999"])
def test_a_zero_may_be_written_in_any_way(zero):
    assert formula.parse(f"x + {zero}", frozenset("x"))


def test_every_operation_uses_x_and_each_of_its_names():
    for operation in OPERATIONS.values():
        assert set(formula.used(formula.parse(operation.formula, operation.names))) == operation.names
        assert len(operation.formula) <= LONGEST


def test_the_text_of_a_chain_does_not_outgrow_its_operations():
    twice = EpilogueOperation("x * x + s", {"s": ""})
    chain = Epilogue.chain([("twice", twice, ())] * 40)
    assert len(chain.text) < 40 * len("twice(, s40)") + len("A @ B")
