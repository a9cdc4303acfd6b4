"""Grouped contracts: how they are called, their gradients, and rows that are written where `scatter` says."""

import contextlib
import itertools

import pytest
import torch

from generator.emit.loading import library_module
from generator.problem.grouping import spans
from tests.helpers.emit.calls import Seen, contracts, drawn, operands, results
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr, crr]; dtype: fp32; batch: grouped; "
    "epilogue: [none, scale_m+swiglu, silu+add, bias, bias+swiglu, bias+save]; load: pointer; backward: kernels; "
    'exclude: [{layout: crr, epilogue: [silu+add, bias, bias+swiglu, bias+save], because: "few tests"}]'
)
ENDS = ([0, 10, 20, 30], [41, 41, 41, 41], [0, 0, 0, 0], [12, 5, 60, -1])


def reference(name, given):
    """The result in float64, which autograd differentiates; zero where a row is in no group."""
    a, b = given["a"].double(), given["b"].double()
    parts, used = [], 0
    for group, (first, last) in enumerate(spans(given["offsets"].tolist(), len(a))):
        own = slice(first, last)
        x = a[own] @ b[group]
        if "bias" in name:
            x = x + given["bias"][group].double()
        if "swiglu" in name:
            gate, up = (x * given["scale_m"][own, None].double() if "scale" in name else x).chunk(2, -1)
            x = torch.nn.functional.silu(gate) * up
        elif "silu_add" in name:
            x = torch.nn.functional.silu(x) + given["add"][own].double()
        parts.append(x)
        used = last
    return torch.cat([*parts, x.new_zeros(len(a) - used, x.shape[-1])])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_gradients_are_those_of_each_group(family, ends, named):
    """Also of rows of A that `rows` names, several times or not at all, where those that A does not have are zeros."""
    variants, generator = contracts(family), torch.Generator().manual_seed(6)
    names = [name for name in family._GRADIENTS if "save" not in name]
    assert len(names) == 12
    # All contracts with the first ends; with each of the others, a few that are all of them between them.
    place = ENDS.index(ends)
    for name in names[place - 1 :: len(ENDS) - 1] if place else names:
        given = operands(variants[name]) | {"offsets": torch.tensor(ends, dtype=torch.int32)}
        needed = [x for x in given if x != "offsets"]
        ours, theirs = ({x: y.detach().clone().requires_grad_(x in needed) for x, y in given.items()} for _ in "ab")
        read, rows = theirs, None
        if named:
            count = len(given["a"])
            rows = torch.randint(-2, count // 2, (count,), generator=generator, dtype=torch.int32)
            rows[5], rows[7] = count, 2**31 - 1
            there = (rows >= 0) & (rows < count)
            read = {**theirs, "a": torch.where(there[:, None], theirs["a"][torch.where(there, rows, 0)], 0.0)}
        found = getattr(family, name)(**ours, rows=rows)
        grad = torch.randn(found.shape, generator=generator)
        found.backward(grad)
        reference(name, read).backward(grad.double())
        for x in needed:
            assert ours[x].grad is not None and ours[x].grad.dtype == given[x].dtype, (name, x)
            torch.testing.assert_close(ours[x].grad, theirs[x].grad, rtol=1e-4, atol=1e-4, msg=f"{name} {x}")


@pytest.mark.parametrize("which", ["a", "b"])
def test_one_gradient_of_named_rows_alone(family, which):
    given = operands(contracts(family)["gmm_fp32_rcr_none"])
    rows = torch.arange(50, dtype=torch.int32) % 7
    given[which].requires_grad_()
    family.gmm_fp32_rcr_none(**given, rows=rows).sum().backward()
    alone = given[which].grad
    given[which].grad = None
    family.gmm_fp32_rcr_none(**{**given, "a": given["a"][rows]}).sum().backward()
    torch.testing.assert_close(alone, given[which].grad)


@pytest.mark.parametrize("named", [False, True])
def test_a_step_is_compiled_in_one_graph(family, named):
    """The sums for rows that are named several times are of an operator, which a compiler leaves as it is."""
    name = "gmm_fp32_rcr_none"
    a, b, offsets = operands(contracts(family)[name]).values()
    rows = {"rows": torch.arange(41, dtype=torch.int32) % 5} if named else {}

    def loss(a, b):
        return getattr(family, name)(a, b, offsets, **rows)[:30].square().sum()

    gradients = []
    for run in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        x, y = a.clone().requires_grad_(), b.mT.contiguous().mT.requires_grad_()
        found = run(x, y)
        with Seen(family) if run is loss else contextlib.nullcontext() as seen:
            found.backward()
        assert seen is None or ("added_rows" in seen.names) == named
        gradients.append((x.grad, y.grad))
    torch.testing.assert_close(*gradients)


def test_autocast_does_not_reach_a_backward_pass(family):
    x, b = drawn((9, 16), torch.float32).requires_grad_(), drawn((2, 8, 16), torch.float32).requires_grad_()
    offsets = torch.tensor([2, 5], dtype=torch.int32)
    expected = torch.autograd.grad(family.gmm_fp32_rcr_none(x, b.mT, offsets)[:5].sum(), (x, b))
    found = family.gmm_fp32_rcr_none(x, b.mT, offsets)[:5].sum()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(torch.autograd.grad(found, (x, b)), expected)


NAME = "gmm_fp32_rcr_none"
ROWS = 50
SCATTERED = [f"gmm_fp32_{x}" for x in ("rcr_none", "rcr_scalem_swiglu", "rcr_silu_add", "rcr_bias_save", "rrr_none")]


def scattering(count):
    """Rows of a result with ROWS of them, each named at most once; some that it does not have."""
    found = torch.randperm(ROWS, generator=torch.Generator().manual_seed(8))[:count].int()
    found[3], found[8], found[11], found[12] = -1, ROWS, 2**31 - 1, -(2**31)
    return found


def written(scatter, offsets):
    """Whether each row of a product is written anywhere."""
    last = int(offsets.clamp(0, len(scatter)).max())
    return (scatter >= 0) & (scatter < ROWS) & (torch.arange(len(scatter)) < last)


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_rows_are_written_where_they_are_named(family, ends):
    for name in SCATTERED:
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
        (TypeError, "scatter must be a torch.Tensor, got list", {"scatter": scatter.tolist(), "out": out}),
        (TypeError, "rows must be a torch.Tensor, got ndarray", {"rows": scatter.numpy()}),
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
    for name in SCATTERED:
        given = operands(contracts(family)[name]) | {"offsets": torch.tensor(ends, dtype=torch.int32)}
        gemm, scatter = getattr(family, name), scattering(41)
        places = scatter[there := written(scatter, given["offsets"])].long()
        held = torch.randn(ROWS, 24)

        def ours(out, x, gemm=gemm, scatter=scatter):
            return results(gemm(**x, scatter=scatter, out=out))[0]

        def theirs(out, x, gemm=gemm, at=(places, there)):
            return out.index_copy(0, at[0], results(gemm(**x))[0][at[1]])

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


CALLS = spec(
    "layout: rcr; dtype: [fp16, bf16]; batch: [none, grouped]; epilogue: [none, bias+scale_m+save, swiglu]; "
    "load: pointer; with: prepare"
)
CALLED = "gmm_fp16_rcr_none"


@pytest.fixture(scope="module")
def calls(render):
    return render("called_groups", CALLS)


def test_offsets_are_given_by_place_or_by_keyword(calls):
    given = operands(contracts(calls)[CALLED])
    a, b, offsets = given.values()
    gemm = getattr(calls, CALLED)
    found = gemm(a, b, offsets)
    ends = [0, *offsets.tolist()]
    for group, (first, last) in enumerate(itertools.pairwise(ends)):
        wanted = a[first:last].float() @ b[group].float()
        torch.testing.assert_close(found[first:last].float(), wanted, rtol=0, atol=0.05)
    filled = torch.full_like(found, 7)
    assert gemm(a, b, offsets=offsets, out=filled) is filled
    assert torch.equal(filled[: ends[-1]], found[: ends[-1]]) and bool((filled[ends[-1] :] == 7).all())
    with pytest.raises(TypeError, match="offsets"):
        gemm(a, b)
    with pytest.raises(TypeError, match="unexpected offsets"):
        calls.gemm_fp16_rcr_none(a, b[0], offsets=offsets)


def test_a_gradient_is_not_lost_and_a_batch_is_none_of_groups(calls):
    a, b, offsets = operands(contracts(calls)[CALLED]).values()
    gemm = getattr(calls, CALLED)
    with pytest.raises(RuntimeError, match="backward"):
        gemm(a.requires_grad_(), b, offsets)
    with pytest.raises(NotImplementedError, match="lacks"):
        torch.vmap(lambda x: gemm(x, b, offsets))(torch.stack([a.detach(), a.detach()]))


def test_rows_of_a_may_be_named(calls):
    for name, variant in contracts(calls).items():
        if variant.batch != "grouped":
            continue
        given = operands(variant)
        generator = torch.Generator().manual_seed(3)
        rows = torch.randint(0, 7, (41,), generator=generator, dtype=torch.int32)
        rows[4], rows[20] = -1, 7
        named, few = rows.clamp(0, 6).long(), given["a"][:7]
        gathered = few[named].masked_fill(((rows < 0) | (rows > 6))[:, None], 0)
        found = results(getattr(calls, name)(**{**given, "a": few, "rows": rows}))
        for x, y in zip(found, results(getattr(calls, name)(**{**given, "a": gathered})), strict=True):
            assert x.shape == y.shape and torch.equal(x[:30], y[:30])
        with Seen(calls) as seen:
            getattr(calls, name)(**{**given, "a": few}, rows=rows)
        torch.library.opcheck(seen.calls[0][0], seen.calls[0][1], test_utils=("test_schema", "test_faketensor"))
        assert "Tensor? rows" in str(seen.calls[0][0]._schema)


def test_rows_are_of_groups_alone(calls):
    given = operands(contracts(calls)[CALLED])
    gemm = getattr(calls, CALLED)
    rows = torch.arange(5, dtype=torch.int32)
    assert gemm(**given, rows=rows).shape == (5, 24) and gemm.which(**given, rows=rows)[1]["BLOCK_M"] == 16
    with pytest.raises(TypeError, match="unexpected rows"):
        calls.gemm_fp16_rcr_none(given["a"], given["b"][0], rows=rows)
