"""What the proof takes from the runtime is what the runtime does, which is called here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton

from generator.bounds import groups, runtime_theorems
from generator.bounds.call_reader import CLASSES, TableObject
from generator.bounds.extent_terms import factors, term
from generator.bounds.rewriting import value
from generator.bounds.source import NotUnderstood
from generator.bounds.terms import poly, variable
from generator.runtime import extents
from generator.runtime.arguments import Index, Stride
from generator.runtime.call import Call, Launch, Table
from generator.runtime.call_tensors import Operand, Result, State
from generator.runtime.descriptors import Described
from generator.runtime.extents import BLOCK_M, BLOCK_N, PROGRAMS, B, Extent, G, K, M, N, R, Size, T, ceil, least, power
from generator.runtime.limits import Absent, AtMost, Limited, Multiple
from generator.runtime.memory import Memory, Reduction, Workspace
from generator.runtime.occupancy import Occupancy
from generator.runtime.scalars import Number

ROWS = [{"BLOCK_M": 16, "BLOCK_N": 32}, {"BLOCK_M": 64, "BLOCK_N": 32}]
CPU = torch.device("cpu")
MOST = runtime_theorems.LARGEST


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)


def call(*operands: Operand, **changes: Any) -> Call:
    """A call of two operands and one result, with others behind."""
    given: dict[str, Any] = {
        "table": Table(ROWS),
        "sizes": (M, N, K),
        "operands": (
            Operand("a", (M, K), torch.float32, unit=1),
            Operand("b", (K, N), torch.float32, unit=0),
            *operands,
        ),
        "results": (Result("out", (M, N), torch.float32, unit=1),),
        "launches": (
            Launch(None, (ceil(M, BLOCK_M) * ceil(N, BLOCK_N),), {"a": "a"}, {"M": M, "lda": Stride("a", 0)}),
        ),
    }
    return Call(**given | changes)


def matrices(m: int, n: int, k: int) -> dict[str, torch.Tensor]:
    return {"a": torch.zeros(m, k), "b": torch.zeros(n, k).T}


def huge(*shape: int) -> torch.Tensor:
    """A tensor whose elements are all the same one."""
    return torch.zeros(1).expand(shape)


def refused(run: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run()


@pytest.mark.parametrize(("module", "kind"), [(module, kind) for module, kinds in CLASSES.items() for kind in kinds])
def test_classes_have_the_parameters_that_the_reader_gives_them(module: str, kind: str) -> None:
    actual = getattr(importlib.import_module(f"generator.runtime.{module}"), kind)
    parameters = [x for x in inspect.signature(actual).parameters.values() if x.name not in ("self", "args", "kwargs")]
    known = CLASSES[module][kind]
    assert [name.removeprefix("*") for name in known] == [x.name for x in parameters][: len(known)]
    for (name, (_, *default)), parameter in zip(known.items(), parameters):
        assert name.startswith("*") == (parameter.kind is inspect.Parameter.VAR_POSITIONAL)
        assert bool(default) == (parameter.default is not inspect.Parameter.empty or name == "constants")
        assert not default or default[0] == parameter.default or name == "constants"


def test_sizes_are_taken_from_the_operands_and_limited() -> None:
    """`Call.state`: every extent of an operand from which sizes are taken, and of `b`."""
    found = call().state(matrices(3, 5, 7)).numbers
    assert found == {"M": 3, "N": 5, "K": 7}
    for name, tensor in (("a", huge(MOST + 1, 7)), ("a", huge(3, MOST + 1)), ("b", huge(7, MOST + 1))):
        refused(lambda name=name, tensor=tensor: call().state(matrices(3, 5, 7) | {name: tensor}), "at most 2")
    assert call().state({"a": huge(MOST, 7), "b": huge(7, MOST)}).numbers["M"] == MOST == 2**31 - 2**16
    refused(lambda: call().state(matrices(3, 5, 7) | {"b": torch.zeros(8, 5)}), "they must be equal")
    # Two columns for one, and two elements in one.
    gate = (Operand("a", (M, K), torch.float32), Operand("b", (K, 2 * N), torch.float32))
    assert call(operands=gate).state({"a": huge(3, 7), "b": huge(7, 10)}).numbers["N"] == 5
    refused(lambda: call(operands=gate).state({"a": huge(3, 7), "b": huge(7, 11)}), "must be even")
    refused(lambda: call(operands=gate).state({"a": huge(3, 7), "b": huge(7, MOST + 2)}), "at most 2")
    packed = (Operand("a", (M, K), torch.float32), Operand("b", (K // 2, N), torch.float32))
    refused(lambda: call(operands=packed).state({"a": huge(3, 7), "b": huge(3, 5)}), "multiple of 2")


def test_an_operand_that_is_left_out_has_the_size_of_another() -> None:
    operands = (
        Operand("a", (R, K), torch.float32),
        Operand("b", (G, K, N), torch.float32),
        Operand("scale_m", (T,)),
        Operand("rows", (T,), torch.int32, absent=R),
    )
    grouped = call(operands=operands, sizes=(G, T, N, K))
    given = {"a": huge(3, 7), "b": huge(2, 7, 5), "scale_m": huge(9)}
    assert grouped.state(given).numbers["T"] == 3
    assert grouped.state(given | {"rows": huge(9).int()}).numbers["T"] == 9
    (need,) = (Absent("rows", "none"),)
    assert (
        need.reason(State(given, {}, CPU)) is None and need.reason(State(given | {"rows": huge(9)}, {}, CPU)) == "none"
    )


def test_rows_of_a_result_that_are_named_are_those_that_it_has() -> None:
    operands = (
        Operand("a", (R, K), torch.float32),
        Operand("b", (G, K, N), torch.float32),
        Operand("rows", (T,), torch.int32, absent=R),
        Operand("scatter", (T,), torch.int32, absent=T),
    )
    out = Result("out", (T, N), torch.float32, named="scatter")
    grouped = call(operands=operands, sizes=(G, T, N, K), results=(out,))
    given = {"a": huge(3, 7), "b": huge(2, 7, 5), "scatter": None}
    assert grouped.state(given).numbers["S"] == 3
    named = given | {"scatter": huge(3).int(), "out": huge(9, 5)}
    state = grouped.state(named)
    assert state.numbers["S"] == 9 and state.numbers["T"] == 3 and out.sizes_in(state) == (9, 5)
    refused(lambda: grouped.state(named | {"out": None}), "out must be given: scatter names its rows")
    refused(lambda: grouped.state(named | {"out": huge(MOST + 1, 5)}), "a size must be at most 2")
    refused(lambda: out.taken(huge(9, 4), state), r"out must have shape \(9, 5\)")
    refused(lambda: out.taken(huge(9, 5), grouped.state(given)), r"out must have shape \(3, 5\)")


def test_nothing_is_launched_for_an_empty_result_or_against_a_need() -> None:
    plan = call().plan
    assert plan(**matrices(3, 5, 0)).launches and not plan(**matrices(0, 5, 7)).launches
    assert not plan(**matrices(3, 0, 7)).launches
    refused(lambda: call(needs=(Multiple(N, 8, "it has"),)).plan(**matrices(3, 12, 7)), "multiples of 8")
    refused(lambda: call(needs=(AtMost(M * N, 14, "it has"),)).plan(**matrices(3, 5, 7)), "at most 14")
    assert call(needs=(AtMost(M * N, 15, "it has"), Multiple(N, 5))).plan(**matrices(3, 5, 7)).launches


@pytest.mark.parametrize("chosen", [None, lambda rows, sizes, device: rows[-1]])
def test_a_configuration_that_is_launched_fits(chosen: Any) -> None:
    fitted = call(table=Limited(ROWS, fits=(Multiple(M, BLOCK_M), AtMost(N, BLOCK_N, "it has"))), choose=chosen)
    assert fitted.plan(**matrices(16, 5, 7)).launches[0].arguments["BLOCK_M"] == 16
    refused(lambda: fitted.plan(1, **matrices(16, 5, 7)), "not a multiple")
    refused(lambda: fitted.plan(**matrices(17, 5, 7)), "not a multiple")
    refused(lambda: fitted.plan(**matrices(64, 33, 7)), "at most")
    refused(lambda: fitted.plan({"BLOCK_M": 8, "BLOCK_N": 8}, **matrices(16, 5, 7)), "config must be")


def test_operands_have_their_shape_and_unit_stride() -> None:
    bias = Operand("bias", (N,), unit=0)
    plan = call(bias).plan
    assert plan(**matrices(3, 5, 7), bias=torch.zeros(5)).launches
    refused(lambda: plan(**matrices(3, 5, 7), bias=torch.zeros(6)), "must have shape")
    refused(lambda: plan(**matrices(3, 5, 7), bias=torch.zeros(10)[::2]), "stride 1 along dimension 0")
    refused(lambda: plan(**matrices(3, 5, 7) | {"b": torch.zeros(7, 5)}, bias=torch.zeros(5)), "stride 1")
    refused(lambda: Number("x").taken(torch.zeros(2), State({}, {}, CPU)), "one element")


def test_results_do_not_overlap_themselves() -> None:
    plan = call(results=(Result("out", (M, N), torch.float32),)).plan
    for out in (
        torch.zeros(3, 1).expand(3, 5),
        torch.zeros(7).as_strided((3, 5), (1, 1)),
        torch.zeros(9).as_strided((3, 5), (2, 1)),
    ):
        refused(lambda out=out: plan(**matrices(3, 5, 7), out=out), "must not overlap")
    refused(lambda: plan(**matrices(3, 5, 7), out=torch.zeros(5, 3)), "must have shape")


@pytest.mark.parametrize(
    ("made", "strides"),
    [
        (Result("x", (M, N), torch.float32, unit=1), (5, 1)),
        (Result("x", (M, N), torch.float32, unit=0), (1, 3)),
        (Memory("x", (B, M, N), torch.float32, unit=1), (15, 1, 3)),
        (Memory("x", (B, M, N), torch.float32), (15, 5, 1)),
        (Memory("x", (M, N), torch.float32, unit=0, pitch=8), (1, 8)),
        (Memory("x", (M, N), torch.float32, pitch=4), (8, 1)),
        (Workspace("x", (2 * M * N,), torch.float32, cleared=True), (1,)),
    ],
)
def test_memory_is_as_large_as_its_extents_and_has_the_unit_that_is_assumed(
    made: Result, strides: tuple[int, ...]
) -> None:
    numbers = {"B": 2, "M": 3, "N": 5}
    x = made.new(State({}, numbers, CPU))
    known = {name: poly(number) for name, number in numbers.items()}
    fields = {"pitch": 1, **vars(made)}
    operand = runtime_theorems.tensor(TableObject(type(made).__name__, 1, fields), known)
    assert x.shape == tuple(extent.constant for extent in operand.shape) and x.stride() == strides
    assert operand.unit is not None and x.stride(operand.unit) == 1
    assert not isinstance(made, Workspace) or not x.any()


def test_a_unit_that_no_new_tensor_has_is_not_understood() -> None:
    names = {"B": poly(2), "M": poly(3), "N": poly(5)}
    for kind in ("Result", "Memory"):
        fields = {"name": "x", "shape": (B, M, N), "unit": 0, "pitch": 1, "named": None}
        with pytest.raises(NotUnderstood, match="the tensor x"):
            runtime_theorems.tensor(TableObject(kind, 1, fields), names)


@pytest.mark.parametrize("turned", [False, True])
def test_a_descriptor_has_the_shape_and_strides_of_its_tensor(turned: bool) -> None:
    x = torch.zeros(6, 32)[:, :8]
    given = x.T if turned else x
    descriptor = Described("a", (BLOCK_M, BLOCK_N), turned).value(State({"a": given}, ROWS[0], CPU))
    assert [*descriptor.shape] == [6, 8] and [*descriptor.strides] == [32, 1] and descriptor.block_shape == [16, 32]
    assert descriptor.base.data_ptr() == x.data_ptr()
    made = TableObject("Described", 1, {"name": "a", "block": (BLOCK_M, BLOCK_N), "turned": turned})
    names = {name: poly(number) for name, number in ROWS[0].items()}
    for unit in (0, 1):
        operand = runtime_theorems.LaunchedTensor("a", (variable("M"), variable("K")), unit)
        found = runtime_theorems.described(made, operand, names)
        assert (found.fault is None) == (given.stride(unit) == 1) and found.block == (16, 32)


def test_offsets_have_64_bits_beyond_the_span() -> None:
    near, far, one = (
        torch.empty_strided((2,), (stride,), device="meta")
        for stride in (runtime_theorems.SPAN - 1, runtime_theorems.SPAN, 1)
    )
    assert str(Index("a", "b").value(State({"a": near, "b": one}, {}, CPU))) == "int32"
    assert str(Index("a", "b").value(State({"a": one, "b": far}, {}, CPU))) == "int64"


def test_programs_are_at_least_one() -> None:
    assert Occupancy(shared=BLOCK_M * 2**40, registers=BLOCK_N * 2**40)(ROWS[0], CPU) >= 1
    source = inspect.getsource(Occupancy.__call__)
    assert "max(1, resident)" in source


def test_lanes_are_no_fewer_than_groups() -> None:
    for count in (1, 2, 31, 32, 33, 1000, 2**20):
        assert count <= power(G, 32).of({"G": count}) <= groups.MOST_LANES
    assert runtime_theorems.lanes(power(G, 32), {"G": variable("G")})
    assert not runtime_theorems.lanes(power(T, 32), {"G": variable("G")})


@pytest.mark.parametrize(
    "extent", [2 * N, ceil(M, BLOCK_M) * ceil(N, 16), (M + K) // 2, least(7, 5) * M, power(9, 5) - 3]
)
def test_extents_are_what_the_runtime_makes_of_them(extent: Extent) -> None:
    for m, n, k in ((1, 1, 0), (17, 33, 5), (64, 16, 8)):
        numbers = {"M": m, "N": n, "K": k, **ROWS[0]}
        names = {"BLOCK_M": poly(16)} | {name: variable(name) for name in "MNK"}
        assert value(term(1, extent, names), numbers) == extent.of(numbers)


def test_a_launch_has_the_grid_and_arguments_that_are_assumed() -> None:
    (planned,) = call().plan(0, **matrices(17, 33, 7)).launches
    names = {"M": poly(17), "N": poly(33), "BLOCK_M": poly(16), "BLOCK_N": poly(32)}
    (launch,) = call().launches
    sides = [term(1, factor, names).constant for factor in factors(launch.grid[0])]
    assert planned.grid == (4,) and sides == [2, 2]
    assert planned.arguments["lda"] == 7 and planned.arguments["M"] == 17 and planned.arguments["BLOCK_M"] == 16
    assert planned.owners == {"a": "a"}
    walking = call(
        launches=(Launch(None, (least(ceil(M, BLOCK_M), PROGRAMS),), {}, {}),),
        programs=Occupancy(shared=BLOCK_M * 1, registers=BLOCK_M * 1),
    )
    assert walking.plan(0, **matrices(17, 33, 7)).launches[0].grid == (2,)


def test_groups_have_no_more_tiles_than_programs() -> None:
    for t, g, m in ((1, 5, 16), (100, 3, 16), (17, 17, 64)):
        most = groups.programs(BLOCK_M).of({"T": t, "G": g, "N": 32, "BLOCK_M": m, "BLOCK_N": 32})
        rows = [1] * min(t - 1, g - 1) + [t - min(t - 1, g - 1)]
        assert sum(-(-each // m) for each in rows) <= most


def test_parts_are_reduced_along_the_last_dimension_but_one() -> None:
    parts, out = torch.tensor([[1.0, 5.0], [3.0, 2.0]]), torch.zeros(2)
    for how, expected in (("sum", [4.0, 7.0]), ("amax", [3.0, 5.0])):
        Reduction("x", "parts", how).run(out, parts)
        assert out.tolist() == expected


def test_every_size_has_its_name() -> None:
    assert {getattr(extents, name) for name in runtime_theorems.SIZES} == {
        Size(name) for name in runtime_theorems.SIZES
    }
