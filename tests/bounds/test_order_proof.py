"""The order of tiles: proved for every swizzle, refuted where it is wrong; what it takes from Triton is Triton's."""

from __future__ import annotations

import ast
import importlib.util
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from generator.bounds import triton_semantics
from generator.bounds.order_proof import OrderVerdict
from generator.bounds.rewriting import value
from generator.bounds.sites import ExecutionPoint
from generator.bounds.symbolic_values import LaneIntegers, Several
from generator.bounds.terms import variable
from tests.helpers.bounds.kernels import BANDS, CHIPLET, HILBERT, planted, proof_of

#: What is said of small grids that break the order.
REFUTED = ("computes tile", "both compute tile", "does not terminate")
TILES = "load_pointer/gemm_fp16_rcr_none__tiled_pointer_mnk_"


@pytest.mark.parametrize("swizzle", ["linear", "linearn", "grouped", "groupedn", "swizzle2d"])
@pytest.mark.parametrize("group", [1, 3, 16])
def test_the_order_is_proved_for_other_groups_than_those_shipped(tmp_path: Path, swizzle: str, group: int) -> None:
    groups = ((f'"GROUP_{letter}": 8', f'"GROUP_{letter}": {group}') for letter in "MN")
    text = (planted(TILES + swizzle)).replace(*next(groups)).replace(*next(groups))
    proof = proof_of(tmp_path, text)
    assert proof.order.state == "proved"
    assert {access.state for access in proof.accesses} == {"proved"}


@pytest.mark.parametrize(
    ("swizzle", "old", "new", "detail"),
    [
        ("linear", "pid // num_n", "pid % num_n", "1 by 2 tiles, program 1 computes tile (1, 1)"),
        ("linear", "pid_n = pid % num_n", "pid_n = 0", "programs 0 and 1 both compute tile (0, 0)"),
        ("linearn", "pid_m = pid % num_m", "pid_m = pid // num_m", "1 by 2 tiles, program 1 computes tile (1, 1)"),
        ("grouped", "min(num_m - first_m, GROUP_M)", "GROUP_M", "computes tile"),
        ("grouped", "pid_n = within // height", "pid_n = within // GROUP_M", "both compute tile"),
        ("groupedn", "pid_m = within // width", "pid_m = within % width", "computes tile"),
        ("swizzle2d", "num_m, num_n, GROUP_M", "num_n, num_m, GROUP_M", "computes tile"),
        ("grouped", "height = min(num_m", "height = min(num_n", "tiles, program"),
    ],
)
def test_a_wrong_order_is_refuted(tmp_path: Path, swizzle: str, old: str, new: str, detail: str) -> None:
    proof = proof_of(tmp_path, planted(TILES + swizzle, (old, new)))
    assert proof.order.state == "refuted"
    assert proof.order.detail.startswith("in a grid of ") and detail in proof.order.detail


def test_two_programs_of_one_tile_touch_nothing_outside(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(BANDS, ("pid_n = within // height", "pid_n = within // GROUP_M")))
    assert proof.order.state == "refuted"
    assert {access.state for access in proof.accesses} == {"proved"}


def test_a_grid_that_is_too_large_is_refuted(tmp_path: Path) -> None:
    text = planted(BANDS, ("(cdiv(M, BLOCK_M) *", "((cdiv(M, BLOCK_M) + 1) *"))
    proof = proof_of(tmp_path, text)
    assert proof.order.state == "refuted"
    assert "refuted" in {access.state for access in proof.accesses}


def triton_function(name: str) -> Any:
    """A function of Triton's standard library, run on whole numbers; Triton itself is not imported."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / "language" / "standard.py").read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    function.decorator_list = []
    space: dict[str, Any] = {"core": SimpleNamespace(minimum=min)}
    exec(compile(ast.Module([function], []), name, "exec"), space)
    return space[name]


@pytest.mark.parametrize(("name", "arguments"), [("cdiv", "ab"), ("swizzle2d", "abcde")])
def test_the_functions_are_those_of_triton(name: str, arguments: str) -> None:
    place = ExecutionPoint(1, 0, (), frozenset())
    told = triton_semantics.FUNCTIONS[f"tl.{name}"](
        place, [LaneIntegers(variable(x), width="32") for x in arguments], {}
    )
    actual = triton_function(name)
    sizes = range(1, 5)
    for numbers in itertools.product(sizes, repeat=len(arguments)):
        if name == "swizzle2d" and not (numbers[0] <= numbers[2] and numbers[1] <= numbers[3]):
            continue
        # Indices count from 0.
        given = tuple(x - 1 if name == "swizzle2d" and at < 2 else x for at, x in enumerate(numbers))
        at = dict(zip(arguments, given))
        found = told.items if isinstance(told, Several) else (told,)
        expected = actual(*given)
        computed = tuple(value(each.value, at) for each in found if isinstance(each, LaneIntegers))
        assert computed == (expected if isinstance(expected, tuple) else (expected,))


def test_a_curve_is_proved_whatever_the_grid(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(HILBERT))
    assert proof.order == OrderVerdict("proved", "")
    assert {access.state for access in proof.accesses} == {"proved"}


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ("if rows > columns", "if rows > 2 * columns", ""),
        ("dm, dn = -dn, -dm", "dm, dn = dn, dm", "computes tile"),
        ("far -= half", "far = half", "computes tile"),
        ("wide -= side", "wide -= 1", "computes tile"),
        ("if number < half * wide", "if number <= half * wide", "computes tile"),
        ("far, wide = side, far - half", "far, wide = side, half", "computes tile"),
        ("min(far, wide) > 1", "min(far, wide) > 0", "does not terminate"),
        pytest.param(
            *("half = (far + 2) // 4 * 2", "half = (far + 2) // 4 * 2 + far // 99 * 99", "not known"),
            marks=pytest.mark.mutations,
        ),
        pytest.param(
            *("side = min(", "number = number * 1 + far // 999\n        side = min(", "not known"),
            marks=pytest.mark.mutations,
        ),
        ("return m + number * dm", "return m + number * dm + m // 1000", "not known"),
        ("min(far, wide) > 1:", "min(far, wide) > 1 + number // 5000:", "depends on the number"),
        ("m, n = 0, 0", "m, n = 0, number // 5000", "start with the program's number"),
        ("    if wide > 1:", "    while wide > 1:", "does not assign the coordinates of a tile"),
    ],
)
def test_a_curve_is_proved_only_where_it_is_right(tmp_path: Path, old: str, new: str, detail: str) -> None:
    proof = proof_of(tmp_path, planted(HILBERT, (old, new)))
    assert proof.order.state == ("proved" if not detail else "refuted" if detail in REFUTED else "not proved")
    assert detail in proof.order.detail


@pytest.mark.parametrize(("dies", "group"), [(1, 8), (2, 1), (5, 3), (8, 8), (38, 4)])
def test_programs_dealt_to_dies_are_proved(tmp_path: Path, dies: int, group: int) -> None:
    row = (('"NUM_CHIPLETS": 8', f'"NUM_CHIPLETS": {dies}'), ('"GROUP_M": 8', f'"GROUP_M": {group}'))
    proof = proof_of(tmp_path, planted(CHIPLET, *row))
    assert proof.order == OrderVerdict("proved", "")
    assert {access.state for access in proof.accesses} == {"proved"}


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ("min(die, longer)", "longer", "computes tile"),
        ("min(die, longer)", "min(min(die, longer), 2)", "both compute tile"),
        ("+ pid // NUM_CHIPLETS", "+ pid // (NUM_CHIPLETS + 1)", "both compute tile"),
        ("die = pid % NUM_CHIPLETS", "die = pid % NUM_CHIPLETS + pid // 9999 * 2", "not known"),
        ("run = num_m * num_n //", "run = num_m * 2 //", "computes tile"),
        ("band = tile //", "band = pid //", "tile"),
        ("tile = die", "tile = pid // 9999 - pid // 9999 % 2 + die", "not known"),
    ],
)
def test_programs_dealt_otherwise_are_not_proved(tmp_path: Path, old: str, new: str, detail: str) -> None:
    proof = proof_of(tmp_path, planted(CHIPLET, (old, new)))
    assert proof.order.state == ("not proved" if detail == "not known" else "refuted")
    assert detail in proof.order.detail
