"""What the proof takes from the runtime is what the runtime does, which is called here."""

from dataclasses import fields

import pytest
import torch
import triton

from generator.bounds import groups, runtime_theorems
from generator.bounds.call_reader import CallTensor, tensor_of
from generator.bounds.extent_terms import factors, term
from generator.bounds.rewriting import value
from generator.bounds.source import NotUnderstood
from generator.bounds.terms import poly, variable
from generator.emit.call_value import Made, Tensor, evaluated, extents
from generator.plan.extents import OPERATIONS, Amount
from generator.runtime import arguments
from generator.runtime import call as runtime
from generator.runtime.arguments import next_power
from generator.runtime.call import Call, Launch, Operand, cdiv, index_type, least
from generator.runtime.descriptors import described
from generator.runtime.limits import absent, at_most, first, multiple
from generator.runtime.memory import Memory, Reduction, Workspace
from generator.runtime.occupancy import Occupancy
from generator.runtime.scattered import Scattered

ROWS = [{"BLOCK_M": 16, "BLOCK_N": 32}, {"BLOCK_M": 64, "BLOCK_N": 32}]
MOST = runtime_theorems.LARGEST
LAUNCH = Launch(
    None,
    grid=lambda M, N, BLOCK_M, BLOCK_N, **_: (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),),
    arguments=lambda a, M, **_: {"a": a, "M": M, "lda": a.stride(0)},
)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)


def call(*operands, **changes):
    """A call of two operands and one result, with others behind."""
    given = {
        "operands": (Operand("a", "M K", torch.float32, unit=1), Operand("b", "K N", torch.float32, unit=0), *operands),
        "results": (Operand("out", "M N", torch.float32, unit=1),),
        "launches": (LAUNCH,),
    }
    return Call(ROWS, **given | changes)


def matrices(m, n, k):
    return {"a": torch.zeros(m, k), "b": torch.zeros(n, k).T}


def huge(*shape):
    """A tensor whose elements are all the same one."""
    return torch.zeros(1).expand(shape)


def refused(run, reason):
    with pytest.raises(ValueError, match=reason):
        run()


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (
            Call,
            "configs operands results launches choose refuse fits memory cleared reduced programs tuner needs "
            "too_large sized",
        ),
        (Launch, "kernel grid arguments configured"),
        (Operand, "name shape dtype unit absent read shared"),
        (Scattered, "name shape dtype unit absent read shared named"),
        (Memory, "name shape dtype unit absent read shared pitch"),
        (Workspace, "name shape dtype unit absent read shared pitch cleared"),
        (Reduction, "name parts how along"),
        (Occupancy, "shared registers interpreted"),
    ],
)
def test_no_field_is_passed_over(made, known):
    """What a class has more, the reader in `call_reader` must learn to understand, or refuse."""
    assert {x.name for x in fields(made)} <= set(known.split())


@pytest.mark.parametrize("name", [x for x in OPERATIONS if x.isidentifier()])
def test_operations_are_those_of_the_runtime(name):
    of = runtime if hasattr(runtime, name) else arguments
    for left, right in ((0, 7), (1, 7), (7, 7), (100, 7), (33, 32)):
        assert OPERATIONS[name](left, right) == getattr(of, name)(left, right)


def test_sizes_are_taken_from_the_operands_and_limited():
    """`Call.state`: every extent of an operand from which sizes are taken, and of `b`."""
    found = call().state(matrices(3, 5, 7)).numbers
    assert found == {"M": 3, "N": 5, "K": 7}
    for name, tensor in (("a", huge(MOST + 1, 7)), ("a", huge(3, MOST + 1)), ("b", huge(7, MOST + 1))):
        refused(lambda name=name, tensor=tensor: call().state(matrices(3, 5, 7) | {name: tensor}), "at most 2")
    assert call().state({"a": huge(MOST, 7), "b": huge(7, MOST)}).numbers["M"] == MOST == 2**31 - 2**16
    refused(lambda: call().state(matrices(3, 5, 7) | {"b": torch.zeros(8, 5)}), "they must be equal")
    # Two columns for one, and two elements in one.
    gate = (Operand("a", "M K", torch.float32), Operand("b", "K 2*N", torch.float32))
    assert call(operands=gate).state({"a": huge(3, 7), "b": huge(7, 10)}).numbers["N"] == 5
    refused(lambda: call(operands=gate).state({"a": huge(3, 7), "b": huge(7, 11)}), "must be even")
    refused(lambda: call(operands=gate).state({"a": huge(3, 7), "b": huge(7, MOST + 2)}), "at most 2")
    packed = (Operand("a", "M K", torch.float32), Operand("b", "K//2 N", torch.float32))
    refused(lambda: call(operands=packed).state({"a": huge(3, 7), "b": huge(3, 5)}), "multiple of 2")


def test_an_operand_that_is_left_out_has_the_size_of_another():
    operands = (
        Operand("a", "R K", torch.float32),
        Operand("b", "G K N", torch.float32),
        Operand("scale_m", "T"),
        Operand("rows", "T", torch.int32, absent="R"),
    )
    grouped = call(operands=operands, results=(Operand("out", "T N", torch.float32),))
    given = {"a": huge(3, 7), "b": huge(2, 7, 5), "scale_m": huge(9)}
    assert grouped.state(given).numbers["T"] == 3
    assert grouped.state(given | {"rows": huge(9).int()}).numbers["T"] == 9
    assert absent(None, "none") is None and absent(huge(9), "none") == "none"


def test_nothing_is_launched_for_an_empty_result_or_against_a_need():
    plan = call().plan
    assert plan(**matrices(3, 5, 0)).launches and not plan(**matrices(0, 5, 7)).launches
    assert not plan(**matrices(3, 0, 7)).launches
    many = call(refuse=lambda N, **_: first(multiple(N, 8, "it has")))
    refused(lambda: many.plan(**matrices(3, 12, 7)), "multiples of 8")
    small = call(refuse=lambda M, N, **_: first(at_most(M * N, 14, "it has")))
    refused(lambda: small.plan(**matrices(3, 5, 7)), "at most 14")
    both = call(refuse=lambda M, N, **_: first(at_most(M * N, 15, "it has"), multiple(N, 5, "it has")))
    assert both.plan(**matrices(3, 5, 7)).launches


@pytest.mark.parametrize("choose", [None, lambda rows, sizes, device: rows[-1]])
def test_a_configuration_that_is_launched_fits(choose):
    fitted = call(
        fits=lambda M, N, BLOCK_M, BLOCK_N, **_: first(multiple(M, BLOCK_M, "it takes"), at_most(N, BLOCK_N, "it has")),
        choose=choose,
    )
    assert fitted.plan(**matrices(16, 5, 7)).launches[0].arguments["BLOCK_M"] == 16
    refused(lambda: fitted.plan(1, **matrices(16, 5, 7)), "multiples")
    refused(lambda: fitted.plan(**matrices(17, 5, 7)), "multiples")
    refused(lambda: fitted.plan(**matrices(64, 33, 7)), "at most")
    refused(lambda: fitted.plan({"BLOCK_M": 8, "BLOCK_N": 8}, **matrices(16, 5, 7)), "config must be")


def test_results_do_not_overlap_themselves():
    plan = call(results=(Operand("out", "M N", torch.float32),)).plan
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
        (Memory("x", "K M N", torch.float32, unit=1), (15, 1, 3)),
        (Memory("x", "K M N", torch.float32), (15, 5, 1)),
        (Memory("x", "M N", torch.float32, unit=0, pitch=8), (1, 8)),
        (Memory("x", "M N", torch.float32, pitch=4), (8, 1)),
        (Workspace("x", "2*M*N", torch.float32, cleared=True), (1,)),
    ],
)
def test_memory_is_as_large_as_its_extents_and_has_the_unit_that_is_assumed(made, strides):
    x = call(memory=(made,)).plan(**matrices(3, 5, 2)).known["x"]
    known = {"K": poly(2), "M": poly(3), "N": poly(5)}
    operand = runtime_theorems.tensor(1, tensor_of(made), known)
    assert x.shape == tuple(extent.constant for extent in operand.shape) and x.stride() == strides
    assert operand.unit is not None and x.stride(operand.unit) == 1
    assert not isinstance(made, Workspace) or not x.any()


@pytest.mark.parametrize(("unit", "strides"), [(1, (5, 1)), (0, (1, 3))])
def test_a_result_is_made_with_the_unit_that_is_assumed(unit, strides):
    made = call(results=(Operand("out", "M N", torch.float32, unit=unit),)).plan(**matrices(3, 5, 7))
    assert made.results["out"].stride() == strides


@pytest.mark.parametrize("kind", ["Result", "Memory"])
def test_a_unit_that_no_new_tensor_has_is_not_understood(kind):
    names = {"B": poly(2), "M": poly(3), "N": poly(5)}
    with pytest.raises(NotUnderstood, match="the tensor x"):
        runtime_theorems.tensor(1, CallTensor(kind, "x", extents("B M N"), unit=0), names)


@pytest.mark.parametrize("turned", [False, True])
def test_a_descriptor_has_the_shape_and_strides_of_its_tensor(turned):
    x = torch.zeros(6, 32)[:, :8]
    given = x.T if turned else x
    descriptor = described(given, 16, 32, turned=turned)
    assert [*descriptor.shape] == [6, 8] and [*descriptor.strides] == [32, 1] and descriptor.block_shape == [16, 32]
    assert descriptor.base.data_ptr() == x.data_ptr()
    made = Made("described", (Tensor("a"), Amount("BLOCK_M"), Amount("BLOCK_N")), (("turned", turned),))
    names = {name: poly(number) for name, number in ROWS[0].items()}
    for unit in (0, 1):
        operand = runtime_theorems.LaunchedTensor("a", (variable("M"), variable("K")), unit)
        found = runtime_theorems.described(1, made, operand, names)
        assert (found.fault is None) == (given.stride(unit) == 1) and found.block == (16, 32)


def test_offsets_have_64_bits_beyond_the_span():
    near, far, one = (
        torch.empty_strided((2,), (stride,), device="meta")
        for stride in (runtime_theorems.SPAN - 1, runtime_theorems.SPAN, 1)
    )
    assert str(index_type(near, one)) == "int32" and str(index_type(one, far)) == "int64"


def test_programs_are_at_least_one():
    large = Occupancy(shared="BLOCK_M*2**40", registers="BLOCK_N*2**40")
    walking = call(
        launches=(Launch(None, grid=lambda PROGRAMS, **_: (PROGRAMS,), arguments=lambda **_: {}),), programs=large
    )
    assert walking.plan(0, **matrices(17, 33, 7)).launches[0].grid[0] >= 1


def test_lanes_are_no_fewer_than_groups():
    for count in (1, 2, 31, 32, 33, 1000, 2**20):
        assert count <= next_power(count, 32) <= groups.MOST_LANES
    of_groups, of_rows = extents("next_power(G,32) next_power(T,32)")
    assert runtime_theorems.lanes(of_groups, {"G": variable("G")})
    assert not runtime_theorems.lanes(of_rows, {"G": variable("G")})


@pytest.mark.parametrize(
    "words", ["2*N", "cdiv(M,BLOCK_M)*cdiv(N,16)", "(M+K)//2", "least(7,5)*M", "next_power(9,5)-3", "K//2"]
)
def test_numbers_are_what_the_runtime_makes_of_them(words):
    for m, n, k in ((1, 1, 0), (17, 33, 5), (64, 16, 8)):
        numbers = {"M": m, "N": n, "K": k, **ROWS[0]}
        names = {"BLOCK_M": poly(16)} | {name: variable(name) for name in "MNK"}
        expected = eval(words, {"cdiv": cdiv, "least": least, "next_power": next_power}, numbers)
        assert value(term(1, extents(words)[0], names), numbers) == expected


def test_a_launch_has_the_grid_and_arguments_that_are_assumed():
    (planned,) = call().plan(0, **matrices(17, 33, 7)).launches
    names = {"M": poly(17), "N": poly(33), "BLOCK_M": poly(16), "BLOCK_N": poly(32)}
    tiles = Amount("*", extents("cdiv(M,BLOCK_M) cdiv(N,BLOCK_N)"))
    sides = [term(1, factor, names).constant for factor in factors(tiles)]
    assert planned.grid == (4,) and sides == [2, 2]
    assert planned.arguments["lda"] == 7 and planned.arguments["M"] == 17 and planned.arguments["BLOCK_M"] == 16
    walking = call(
        launches=(
            Launch(
                None,
                grid=lambda M, BLOCK_M, PROGRAMS, **_: (least(cdiv(M, BLOCK_M), PROGRAMS),),
                arguments=lambda **_: {},
            ),
        ),
        programs=Occupancy(shared="BLOCK_M*1", registers="BLOCK_M*1"),
    )
    assert walking.plan(0, **matrices(17, 33, 7)).launches[0].grid == (2,)


def test_groups_have_no_more_tiles_than_programs():
    for t, g, m in ((1, 5, 16), (100, 3, 16), (17, 17, 64)):
        numbers = {"T": t, "G": g, "N": 32, "BLOCK_M": m, "BLOCK_N": 32}
        names = {name: poly(number) for name, number in numbers.items()}
        most = term(1, groups.programs(Amount("BLOCK_M")), names).constant
        rows = [1] * min(t - 1, g - 1) + [t - min(t - 1, g - 1)]
        assert most is not None and sum(-(-each // m) for each in rows) <= most


def test_a_function_of_a_call_sees_its_arguments_alone():
    kept = 3
    for function in (lambda M, x=kept: M, lambda M: M * kept, lambda M: M if M else 0, lambda M, **_: M.bit_length()):
        with pytest.raises(NotUnderstood):
            evaluated(function, ())
