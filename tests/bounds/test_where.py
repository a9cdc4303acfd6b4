"""`tl.where` over coordinates: as a conditional expression, but that both sides are computed; over data it is data."""

import ast
import shutil
from itertools import product

import numpy as np
import pytest

from generator.bounds import concrete_run, prove
from generator.bounds.choices import where
from generator.bounds.rewriting import holds, value
from generator.bounds.sites import ExecutionPoint
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import LaneConditions, LaneIntegers, Opaque, Pointer
from generator.bounds.terms import at_most, below, variable
from tests.helpers.support import ROOT, python


def test_a_function_is_run_as_the_machine_would():
    (function,) = ast.parse(
        "def f(x, y):\n    return tl.where(x > y, x, y), tl.where(y, x // y, 7), x // y if y else 7\n"
    ).body
    assert concrete_run.returned(function, (5, 2)) == (5, 2, 2) and concrete_run.returned(function, (2, 5)) == (5, 0, 0)
    with pytest.raises(ZeroDivisionError):
        concrete_run.returned(function, (5, 0))
    function.body = ast.parse("return tl.where(x > y, x, y), x // y if y else 7").body
    assert concrete_run.returned(function, (5, 0)) == (5, 7)


SPEC = """\
summary: A product in an order that turns back.
layout: rcr
dtype: fp16
masking: [auto, none]
swizzle: serpentine
tile:
  - {m: 32, n: 32, k: 32, warps: 4}
"""
MACRO = """

{%- macro serpentine(walked=false) -%}
# Which tile: row after row, every other one backwards.
{% if not walked %}
pid = tl.program_id(0)
{% endif %}
num_n = tl.cdiv(N, BLOCK_N)
pid_m = pid // num_n
pid_n = pid % num_n
pid_n = tl.where(pid_m % 2 == 1, num_n - 1 - pid_n, pid_n)
{%- endmacro -%}
"""


def test_an_order_that_somebody_adds_is_proved(tmp_path):
    for folder in ("generator", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    words, macros = tmp_path / "generator" / "language" / "vocabulary.py", tmp_path / "templates" / "swizzle.j2"
    first = '    "linear": Order('
    assert words.read_text().count(first) == 1
    column = "columns - 1 - n if m % 2 else n"
    visits = f"lambda tile, rows, columns: ((m, {column}) for m in range(rows) for n in range(columns))"
    added = f'    "serpentine": Order("row after row, and back", visits={visits}),\n'
    words.write_text(words.read_text().replace(first, added + first))
    macros.write_text(macros.read_text() + MACRO)
    (tmp_path / "mine.yaml").write_text(SPEC)
    verify = ("verify", "mine.yaml", "--level", "bounds", "--jobs", "1", "--cache", tmp_path / "cache")
    for call in (("mine.yaml",), verify):
        ended = python("-m", "generator", *call, "--out", "out", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all 2 passed" in ended.stdout and "not understood" not in ended.stdout, ended.stdout
    rendered = sorted((tmp_path / "out" / "mine").glob("gemm_*serpentine.py"))
    assert len(rendered) == 2
    for path in rendered:
        proof = prove(path)
        assert proof.order.state == "proved" and {access.state for access in proof.accesses} == {"proved"}


PLACE = ExecutionPoint(7, 0, (), frozenset())


def test_it_is_numpy_s_where():
    x, y = variable("x"), variable("y")
    numbers = [LaneIntegers(x, width="32"), LaneIntegers(y - 1, width="32"), LaneIntegers(x // 2, width="64")]
    for test, a, b in product([below(x, y), at_most(y, 3)], numbers, numbers):
        found = where(PLACE, [LaneConditions(test), a, b], {})
        truth = where(PLACE, [LaneConditions(test), LaneConditions(below(x, 2)), LaneConditions(below(y, 2))], {})
        assert found.width == ("64" if "64" in (a.width, b.width) else "32") and isinstance(truth, LaneConditions)
        for at in ({"x": p, "y": q} for p, q in product(range(5), repeat=2)):
            expected = np.where(holds(test, at), value(a.value, at), value(b.value, at))
            assert value(found.value, at) == expected
            assert holds(truth.condition, at) == bool(np.where(holds(test, at), at["x"] < 2, at["y"] < 2))


@pytest.mark.parametrize(
    ("a", "b", "width"),
    [("constant", "constant", "32"), ("32", "constant", "32"), ("constant", "64", "64"), ("32", "index", "index")],
)
def test_its_width_is_the_longer_one(a, b, width):
    x, y = variable("x"), variable("y")
    found = where(PLACE, [LaneConditions(below(x, y)), LaneIntegers(x, width=a), LaneIntegers(y, width=b)], {})
    assert isinstance(found, LaneIntegers) and found.width == width


def test_addresses_and_shapes_that_do_not_meet_are_not_understood():
    x = variable("x")
    with pytest.raises(NotUnderstood, match="addresses"):
        where(PLACE, [LaneConditions(below(x, 1)), Pointer("a", x), Pointer("a", x + 1)], {})
    with pytest.raises(NotUnderstood, match="shapes"):
        where(PLACE, [LaneConditions(below(x, 1), (4,)), LaneIntegers(x, (8,), "32"), LaneIntegers(x, (), "32")], {})
    assert where(PLACE, [LaneConditions(below(x, 1)), Opaque("data"), LaneIntegers(x)], {}) == Opaque("data")
