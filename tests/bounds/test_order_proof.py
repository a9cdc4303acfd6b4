"""The order of tiles: proved for every swizzle, refuted where it is wrong; what it takes from Triton is Triton's."""

import ast
import importlib.util
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from generator.bounds import triton_semantics
from generator.bounds.rewriting import value
from generator.bounds.sites import ExecutionPoint
from generator.bounds.symbolic_values import LaneIntegers, Several
from generator.bounds.terms import variable
from tests.helpers.bounds.kernels import planted, proof_of

TILES = "load_pointer/gemm_fp16_rcr_none__tiled_pointer_mnk_"


@pytest.mark.parametrize("swizzle", ["linear", "linearn", "grouped", "groupedn", "swizzle2d"])
@pytest.mark.parametrize("group", [1, 3, 16])
def test_the_order_is_proved_for_other_groups_than_those_shipped(tmp_path, swizzle, group):
    groups = ((f'"GROUP_{letter}": 8', f'"GROUP_{letter}": {group}') for letter in "MN")
    text = (planted(TILES + swizzle)).replace(*next(groups)).replace(*next(groups))
    proof = proof_of(tmp_path, text)
    assert proof.order.state == "proved"
    assert {access.state for access in proof.accesses} == {"proved"}


def triton_function(name):
    """A function of Triton's standard library, run on whole numbers; Triton itself is not imported."""
    spec = importlib.util.find_spec("triton")
    tree = ast.parse((Path(spec.origin).parent / "language" / "standard.py").read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    function.decorator_list = []
    space = {"core": SimpleNamespace(minimum=min)}
    exec(compile(ast.Module([function], []), name, "exec"), space)
    return space[name]


@pytest.mark.parametrize(("name", "arguments"), [("cdiv", "ab"), ("swizzle2d", "abcde")])
def test_the_functions_are_those_of_triton(name, arguments):
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
