"""Rows of a grouped product that are written where `scatter` says, and their gradients."""

import pytest
import torch

from generator.emit.loading import library_module
from tests.helpers.emit.calls import Seen, contracts, operands, results
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr]; dtype: fp32; batch: grouped; epilogue: [none, scale_m+swiglu, silu+add, bias+save]; "
    "load: pointer; backward: kernels; "
    'exclude: [{layout: rrr, epilogue: [scale_m+swiglu, silu+add, bias+save], because: "few tests"}]'
)
NAME = "gmm_fp32_rcr_none"
ROWS = 50
ENDS = ([0, 10, 20, 30], [41, 41, 41, 41], [0, 0, 0, 0], [12, 5, 60, -1])


def scattering(count):
    """Rows of a result with ROWS of them, each named at most once; some that it does not have."""
    found = torch.randperm(ROWS, generator=torch.Generator().manual_seed(8))[:count].int()
    found[3], found[8], found[11], found[12] = -1, ROWS, 2**31 - 1, -(2**31)
    return found


def written(scatter, offsets):
    """Whether each row of a product is written anywhere."""
    last = int(offsets.clamp(0, len(scatter)).max())
    return (scatter >= 0) & (scatter < ROWS) & (torch.arange(len(scatter)) < last)


def rows_of(gemm, given):
    """The first result of a call, for each row of the product."""
    return results(gemm(**given))[0]


def grouped(family):
    return [name for name in contracts(family) if name.startswith("gmm_") and "whole" not in name]


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_rows_are_written_where_they_are_named(family, ends):
    for name in grouped(family):
        given = operands(contracts(family)[name]) | {"offsets": torch.tensor(ends, dtype=torch.int32)}
        plain = results(getattr(family, name)(**given))
        scatter = scattering(len(plain[0]))
        held = torch.randn(ROWS, plain[0].shape[1])
        out = held.clone()
        found = results(getattr(family, name)(**given, scatter=scatter, out=out))
        there = written(scatter, given["offsets"])
        expected = held.index_copy(0, scatter[there].long(), plain[0][there])
        assert found[0] is out and torch.equal(out, expected)
        last = int(given["offsets"].clamp(0, len(scatter)).max())
        for x, y in zip(found[1:], plain[1:], strict=True):
            assert torch.equal(x[:last], y[:last])


def test_wrong_calls_are_refused_under_the_name_of_the_contract(family):
    given = operands(contracts(family)[NAME])
    gemm = getattr(family, NAME)
    scatter, out = scattering(41), torch.zeros(ROWS, 24)
    for error, words, wrong in (
        (ValueError, "out must be given: scatter names its rows", {"scatter": scatter}),
        (ValueError, r"scatter must have shape \(41,\), got \(40,\)", {"scatter": scatter[:40], "out": out}),
        (TypeError, "scatter must be torch.int32, got torch.int64", {"scatter": scatter.long(), "out": out}),
        (TypeError, "scatter must be a torch.Tensor, got list", {"scatter": scatter.tolist(), "out": out}),
        (TypeError, "rows must be a torch.Tensor, got ndarray", {"rows": scatter.numpy()}),
        (ValueError, r"out must have shape \(50, 24\), got \(50, 23\)", {"scatter": scatter, "out": out[:, :23]}),
        (ValueError, r"out must have shape \(41, 24\), got \(50, 24\)", {"out": out}),
    ):
        with pytest.raises(error, match=f"{NAME}: {words}"):
            gemm(**given, **wrong)
        if "must be a torch.Tensor" in words:
            recorded = {**given, "b": given["b"].clone().requires_grad_()}
            with pytest.raises(error, match=f"{NAME}: {words}"):
                gemm(**recorded, **wrong)


def test_torch_sees_the_keyword(family):
    given, scatter = operands(contracts(family)[NAME]), scattering(41)
    gemm = getattr(family, NAME)
    with Seen(family) as seen:
        gemm(**given, scatter=scatter, out=torch.zeros(ROWS, 24))
    operator, arguments = seen.calls[0]
    assert "Tensor? scatter" in str(operator._schema)
    torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))
    out = torch.zeros(ROWS, 24)
    assert gemm.which(**given, scatter=scatter, out=out)[0].startswith(NAME)
    compiled = torch.compile(lambda **x: gemm(**x) + 1, fullgraph=True, backend="aot_eager")
    found = compiled(**given, scatter=scatter, out=torch.zeros(ROWS, 24))
    assert torch.equal(found, gemm(**given, scatter=scatter, out=out) + 1)


def stepped(run, given, held):
    """The gradients of all that a call reads, and of what the tensor that it fills held."""
    leaves = {x: value.clone() for x, value in given.items()}
    for value in (*leaves.values(), held := held.clone().requires_grad_()):
        if value.is_floating_point():
            value.requires_grad_()
    run(held * 1, leaves).square().sum().backward()
    grads = {x: value.grad for x, value in leaves.items() if value.is_floating_point()}
    return {**grads, "out": held.grad}


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("ends", ENDS[::3], ids=str)
def test_gradients_are_those_of_the_rows_that_were_written(family, ends):
    for name in (name for name in family._GRADIENTS if name in grouped(family)):
        given = operands(contracts(family)[name]) | {"offsets": torch.tensor(ends, dtype=torch.int32)}
        gemm, scatter = getattr(family, name), scattering(41)
        places = scatter[there := written(scatter, given["offsets"])].long()
        held = torch.randn(ROWS, 24)

        def ours(out, x, gemm=gemm, scatter=scatter):
            return rows_of(gemm, {**x, "scatter": scatter, "out": out})

        def theirs(out, x, gemm=gemm, at=(places, there)):
            return out.index_copy(0, at[0], rows_of(gemm, x)[at[1]])

        expected = stepped(theirs, given, held)
        for run in (ours, torch.compile(ours, fullgraph=True, backend="aot_eager")):
            found = stepped(run, given, held)
            assert found.keys() == expected.keys()
            for x, value in expected.items():
                assert torch.equal(found[x], value), (name, x)


def test_a_checkpoint_reads_what_is_saved_once(family):
    gemm, given, held = getattr(family, NAME), operands(contracts(family)[NAME]), torch.randn(ROWS, 24)

    def call(b, held):
        return gemm(**{**given, "b": b}, scatter=scattering(41), out=held * 1)

    found = []
    for run in (call, lambda *x: torch.utils.checkpoint.checkpoint(call, *x, use_reentrant=False)):
        operand, out = given["b"].clone().requires_grad_(), held.clone().requires_grad_()
        found.append(torch.autograd.grad(run(operand, out).square().sum(), (operand, out)))
    assert all(torch.equal(x, y) for x, y in zip(*found))


def test_what_is_prepared_has_calls_that_scatter(family):
    module = library_module(family, "prepare")
    found = module.launches(getattr(family, NAME), 24, 33, M=41, B=4, device=torch.device("cpu"))
    given = {(x.arguments["rows_ptr"] is not None, x.arguments["scatter_ptr"] is not None) for x in found}
    assert given == {(False, False), (False, True), (True, False), (True, True)}
