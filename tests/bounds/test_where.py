"""`tl.where` over coordinates: as a conditional expression, but that both sides are computed; over data it is data."""

from __future__ import annotations

import ast
import re
import shutil
from itertools import product
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest

from generator.bounds import concrete_run, prove
from generator.bounds.choices import where
from generator.bounds.rewriting import holds, value
from generator.bounds.sites import ExecutionPoint
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import LaneConditions, LaneIntegers, Opaque, Pointer, Value, Width
from generator.bounds.terms import at_most, below, variable
from tests.helpers.bounds.kernels import AUTO, HILBERT, planted, proof_of
from tests.helpers.bounds.replay import Replay
from tests.helpers.support import ROOT, python

TILES = "load_pointer/gemm_fp16_rcr_none__tiled_pointer_mnk_"
LINEAR, BANDS, COLUMNS = TILES + "linear", TILES + "grouped", TILES + "linearn"
PERSISTENT = "outputs/gemm_fp16_rcr_bias_save_gelu__persistent_pointer_auto_grouped"

#: Each a shipped order, the text that is replaced in it, and an order that turns back, or chooses in another way.
ROWS = "    pid_m = pid // num_n\n    pid_n = pid % num_n\n"
BAND = "    pid_m = first_m + within % height\n    pid_n = within // height\n"
SERPENTINE = """\
    pid_m = pid // num_n
    along = pid % num_n
    pid_n = tl.where(pid_m % 2 == 0, along, num_n - 1 - along)
"""
#: The coordinate is named first, and changed then.
CHANGED = ROWS + "    pid_n = tl.where(pid_m % 2 == 1, num_n - 1 - pid_n, pid_n)\n"
IN_BANDS = """\
    pid_n = within // height
    pid_m = first_m + tl.where(pid_n % 2 == 1, height - 1 - within % height, within % height)
"""
ACROSS_BANDS = """\
    pid_m = first_m + within % height
    pid_n = tl.where(band % 2 == 1, num_n - 1 - within // height, within // height)
"""
HALVES = """\
    num_m = tl.cdiv(M, BLOCK_M)
    half = num_m // 2 * num_n
    rest = tl.where(pid < half, pid, pid - half)
    pid_m = tl.where(pid < half, 0, num_m // 2) + rest // num_n
    pid_n = rest % num_n
"""
NESTED = """\
    pid_m = pid // num_n
    along = pid % num_n
    pid_n = tl.where(num_n < 4, along, tl.where(pid_m % 2 == 0, along, num_n - 1 - along))
"""
BY_KEYWORDS = """\
    pid_m = pid // num_n
    along = pid % num_n
    pid_n = tl.where(pid_m % 2, y=along, x=num_n - 1 - along)
"""
HEIGHT = "tl.where(num_m - first_m < GROUP_M, num_m - first_m, GROUP_M)"
LONGER = """\
    num_m = tl.cdiv(M, BLOCK_M)
    pid_m = tl.where(num_m > num_n, pid % num_m, pid // num_n)
    pid_n = tl.where(num_m > num_n, pid // num_m, pid % num_n)
"""
ORDERS = {
    "serpentine": (LINEAR, ROWS, SERPENTINE),
    "changed": (LINEAR, ROWS, CHANGED),
    "in bands": (BANDS, BAND, IN_BANDS),
    "across bands": (BANDS, BAND, ACROSS_BANDS),
    "halves": (LINEAR, ROWS, HALVES),
    "nested": (LINEAR, ROWS, NESTED),
    "keywords": (LINEAR, ROWS, BY_KEYWORDS),
    "height": (BANDS, "min(num_m - first_m, GROUP_M)", HEIGHT),
    "longer side": (LINEAR, ROWS, LONGER),
}


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_by_where_is_proved(order: str, tmp_path: Path) -> None:
    kernel, old, new = ORDERS[order]
    text = planted(kernel, (old, new))
    proof = proof_of(tmp_path, text)
    assert proof.order.state == "proved", proof.order
    assert {access.state for access in proof.accesses} == {"proved"}, proof.accesses
    # And it is what it is proved to be: run in plain numbers, nothing is left out.
    sizes = {"M": 129 * 5, "N": 128 * 3 + 1, "K": 1}
    row = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 3}
    replay = Replay(text, row, sizes)
    assert replay.outside() == [] and replay.stored() == sizes["M"] * sizes["N"]


@pytest.mark.parametrize(
    ("order", "old", "new"),
    [
        # Off by one: the first tile backwards lies outside.
        ("serpentine", "num_n - 1 - along", "num_n - along"),
        ("changed", "num_n - 1 - pid_n", "num_n - 2 - pid_n"),
        ("in bands", "height - 1 - within % height", "height - within % height"),
        # Another turn for each tile of a row: some tiles twice, others never.
        ("serpentine", "pid_m % 2 == 0", "along % 2 == 0"),
        ("changed", "pid_m % 2 == 1", "pid_n % 2 == 1"),
        ("in bands", "tl.where(pid_n % 2", "tl.where(within % 2"),
        ("across bands", "band % 2 == 1", "within % 2 == 1"),
        # Sides exchanged.
        ("halves", "pid < half, 0, num_m // 2", "pid < half, num_m // 2, 0"),
        ("halves", "pid < half, pid, pid - half", "pid < half, pid - half, pid"),
        ("height", "num_m - first_m, GROUP_M)", "GROUP_M, num_m - first_m)"),
        ("longer side", "num_m > num_n, pid // num_m, pid % num_n", "num_m > num_n, pid % num_n, pid // num_m"),
        ("nested", "along, tl.where", "0, tl.where"),
        ("keywords", "x=num_n - 1 - along", "x=num_n - 1"),
        # Changed behind the statement by which both coordinates are known.
        ("changed", "tl.where(pid_m % 2 == 1, num_n - 1 - pid_n, pid_n)", "pid_n // 2"),
    ],
)
def test_a_wrong_order_by_where_is_refuted_and_confirmed(order: str, old: str, new: str, tmp_path: Path) -> None:
    kernel, shipped, right = ORDERS[order]
    assert old in right
    text = planted(kernel, (shipped, right.replace(old, new)))
    proof = proof_of(tmp_path, text)
    found = re.match(r"in a grid of (\d+) by (\d+) tiles, program", proof.order.detail)
    assert proof.order.state == "refuted" and found is not None, proof.order
    # In plain numbers programs of such a grid leave it, or leave a part of the result out.
    row = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    sizes = {"M": 128 * int(found[1]), "N": 128 * int(found[2]), "K": 1}
    replay = Replay(
        text.replace("offs_m < M", "offs_m == offs_m").replace("offs_n < N", "offs_n == offs_n"), row, sizes
    )
    assert replay.outside() or replay.stored() < sizes["M"] * sizes["N"]


#: The last band by a division of its own, by zero where there is none: behind a branch nobody would compute it.
TAIL = """\
    whole = num_m // GROUP_M * GROUP_M * num_n
    tail = num_m % GROUP_M
    pid_m = tl.where(pid < whole, first_m + within % GROUP_M, first_m + (pid - whole) % tail)
    pid_n = tl.where(pid < whole, within // GROUP_M, (pid - whole) // tail)
"""


def test_a_division_by_zero_counts_where_it_is_not_taken(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(BANDS, (BAND, TAIL)))
    assert proof.order.state == "not proved" and "1 // " in proof.order.detail
    # Nor is anything refuted by sizes that have more tiles than a result can have.
    assert "refuted" not in {access.state for access in proof.accesses}


@pytest.mark.parametrize(("old", "new"), [("", ""), ("% 2 == 1", "% 2 == 1 + along")])
def test_programs_that_walk_the_tiles_may_turn_back(old: str, new: str, tmp_path: Path) -> None:
    turned = "    along = within // height\n" + ACROSS_BANDS.replace("within // height", "along").replace(
        old, new or ""
    )
    proof = proof_of(tmp_path, planted(PERSISTENT, (indent(BAND, "    "), indent(turned, "    "))))
    assert proof.order.state == ("refuted" if old else "proved"), proof.order


START = """\
    far, wide, dm, dn = columns, rows, 0, 1
    if rows > columns:
        far, wide, dm, dn = rows, columns, 1, 0
"""
CHOSEN = """\
    far = tl.where(rows > columns, rows, columns)
    wide = tl.where(rows > columns, columns, rows)
    dm = tl.where(rows > columns, 1, 0)
    dn = tl.where(rows > columns, 0, 1)
"""
END = """\
    if wide > 1:
        # One tile by many: the tiles are in the other direction.
        dm, dn = dn, dm
    return m + number * dm, n + number * dn
"""
RETURNED = "    return m + number * tl.where(wide > 1, dn, dm), n + number * tl.where(wide > 1, dm, dn)\n"


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        (START, CHOSEN, ""),
        (END, RETURNED, ""),
        (START, CHOSEN.replace("rows, columns", "rows, rows", 1), "tile"),
        (END, RETURNED.replace("dn, dm", "dm, dn"), "computes tile"),
        (END, RETURNED.replace("dn, dm", "dn, number // 0"), "divides by zero"),
    ],
)
def test_a_function_that_finds_tiles_may_choose_by_where(old: str, new: str, detail: str, tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(HILBERT, (old, new)))
    assert proof.order.state == ("refuted" if detail else "proved"), proof.order
    assert detail in proof.order.detail


def test_a_function_is_run_as_the_machine_would() -> None:
    (function,) = ast.parse(
        "def f(x, y):\n    return tl.where(x > y, x, y), tl.where(y, x // y, 7), x // y if y else 7\n"
    ).body
    assert isinstance(function, ast.FunctionDef)
    assert concrete_run.returned(function, (5, 2)) == (5, 2, 2) and concrete_run.returned(function, (2, 5)) == (5, 0, 0)
    with pytest.raises(ZeroDivisionError):
        concrete_run.returned(function, (5, 0))
    function.body = ast.parse("return tl.where(x > y, x, y), x // y if y else 7").body
    assert concrete_run.returned(function, (5, 0)) == (5, 7)


ROW = "a_ptr + offs_m[:, None] * lda"
MASK = "a_ptrs, mask=in_m[:, None] & in_k[None, :]"


def folded(rows: str) -> str:
    """AUTO with loads of A at these rows, and no mask along M."""
    return planted(AUTO, (ROW, f"a_ptr + {rows} * lda"), (MASK, "a_ptrs, mask=in_k[None, :]"))


@pytest.mark.parametrize(
    "rows",
    [
        "tl.where(offs_m < M, offs_m, 0)[:, None]",
        "tl.where((offs_m < M)[:, None], offs_m[:, None], M - 1)",
        "tl.where(offs_m < M, tl.where(offs_m < 0, 0, offs_m), offs_m % M)[:, None]",
        "tl.where(M > 5, offs_m % M, 0)[:, None]",
    ],
)
def test_offsets_of_a_block_are_proved(rows: str, tmp_path: Path) -> None:
    text = folded(rows)
    assert {access.state for access in proof_of(tmp_path, text).accesses} == {"proved"}
    row = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    assert Replay(text, row, {"M": 129, "N": 1, "K": 1}).outside() == []


@pytest.mark.parametrize(
    "rows",
    [
        "tl.where(offs_m <= M, offs_m, 0)[:, None]",
        "tl.where(offs_m < M, 0, offs_m)[:, None]",
        "tl.where(offs_m < M, offs_m, M)[:, None]",
        "tl.where(offs_m < M, tl.where(offs_m < 0, 0, offs_m), offs_m % (M + 1))[:, None]",
        "tl.where(M > 5, offs_m % M, 1)[:, None]",
    ],
)
def test_wrong_offsets_of_a_block_are_refuted_and_confirmed(rows: str, tmp_path: Path) -> None:
    text = folded(rows)
    refuted = [access for access in proof_of(tmp_path, text).accesses if access.state == "refuted"]
    assert {access.operand for access in refuted} == {"a"}
    at = {name: int(number) for name, number in re.findall(r"(\w+) = (-?\d+)", refuted[0].detail)}
    row = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    found = Replay(text, row, {name: at[name] for name in "MNK"}).outside([at["pid"]])
    assert refuted[0].line in {each.line for each in found}


@pytest.mark.parametrize(
    ("rows", "state", "detail"),
    [
        # LINE is the line of these rows.
        # What is not taken is computed all the same: behind a branch, neither of these would count.
        ("tl.where(offs_m < M, offs_m, tl.where(M < 9, M * 4, 0) * 0)", "refuted", "4 * M of line LINE"),
        ("tl.where(offs_m < M, tl.where(M < 2, 0, offs_m % (M - 1)), 0)", "not proved", "(1 // (-1 + M)) of line LINE"),
        ("tl.where(offs_m < M, (offs_m * 0 if M < 2 else offs_m % (M - 1)), 0)", "proved", ""),
        ("tl.where(offs_m < M, (offs_m % (M - 1) if M > 1 else offs_m * 0), 0)", "proved", ""),
        # As does what decides.
        ("tl.where(M * 4 < 9, offs_m % M, 0)", "refuted", "4 * M of line LINE"),
        # A constant is a number of 32 bits.
        ("tl.where(offs_m < M, offs_m, tl.where(M < 0, 2**31, 0))", "refuted", "2147483648 of line LINE"),
        ("offs_m % M + (tl.where(M < 9, 1, 0) + 2147483647) * 0", "refuted", "which does not fit 32 bits"),
        # Data.
        ("tl.where(tl.load(bias_ptr) > 0, offs_m, 0)", "not proved", "data of line LINE"),
        ("tl.where(offs_m < M, tl.load(bias_ptr), 0)", "not proved", "data of line LINE"),
        ("tl.where(offs_m < M)", "not proved", "one condition and two values"),
    ],
)
def test_what_is_not_taken_counts(rows: str, state: str, detail: str, tmp_path: Path) -> None:
    text = folded(f"({rows})[:, None]")
    access = next(x for x in proof_of(tmp_path, text).accesses if x.operand in ("a", "a_ptrs"))
    line = text[: text.index(rows)].count("\n") + 1
    assert access.state == state and detail.replace("LINE", str(line)) in access.detail


@pytest.mark.parametrize("chosen", ["tl.where(acc > 0, acc, 0.0)", "tl.where(in_m[:, None], acc, 0.0)"])
def test_data_may_be_chosen(chosen: str, tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(AUTO, ("x = acc + bias[None, :]", f"x = {chosen} + bias[None, :]")))
    assert {access.state for access in proof.accesses} == {"proved"}


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


def test_an_order_that_somebody_adds_is_proved(tmp_path: Path) -> None:
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


def test_it_is_numpy_s_where() -> None:
    x, y = variable("x"), variable("y")
    numbers: list[Value] = [
        LaneIntegers(x, width="32"),
        LaneIntegers(y - 1, width="32"),
        LaneIntegers(x // 2, width="64"),
    ]
    for test, a, b in product([below(x, y), at_most(y, 3)], numbers, numbers):
        found = where(PLACE, [LaneConditions(test), a, b], {})
        truth = where(PLACE, [LaneConditions(test), LaneConditions(below(x, 2)), LaneConditions(below(y, 2))], {})
        assert isinstance(found, LaneIntegers) and isinstance(a, LaneIntegers) and isinstance(b, LaneIntegers)
        assert found.width == ("64" if "64" in (a.width, b.width) else "32") and isinstance(truth, LaneConditions)
        for at in ({"x": p, "y": q} for p, q in product(range(5), repeat=2)):
            expected = np.where(holds(test, at), value(a.value, at), value(b.value, at))
            assert value(found.value, at) == expected
            assert holds(truth.condition, at) == bool(np.where(holds(test, at), at["x"] < 2, at["y"] < 2))


@pytest.mark.parametrize(
    ("a", "b", "width"),
    [("constant", "constant", "32"), ("32", "constant", "32"), ("constant", "64", "64"), ("32", "index", "index")],
)
def test_its_width_is_the_longer_one(a: Width, b: Width, width: Width) -> None:
    x, y = variable("x"), variable("y")
    found = where(PLACE, [LaneConditions(below(x, y)), LaneIntegers(x, width=a), LaneIntegers(y, width=b)], {})
    assert isinstance(found, LaneIntegers) and found.width == width


def test_addresses_and_shapes_that_do_not_meet_are_not_understood() -> None:
    x = variable("x")
    with pytest.raises(NotUnderstood, match="addresses"):
        where(PLACE, [LaneConditions(below(x, 1)), Pointer("a", x), Pointer("a", x + 1)], {})
    with pytest.raises(NotUnderstood, match="shapes"):
        where(PLACE, [LaneConditions(below(x, 1), (4,)), LaneIntegers(x, (8,), "32"), LaneIntegers(x, (), "32")], {})
    assert where(PLACE, [LaneConditions(below(x, 1)), Opaque("data"), LaneIntegers(x)], {}) == Opaque("data")
