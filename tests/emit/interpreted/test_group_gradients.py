"""Gradients of grouped contracts: of rows in no group they are zero, and of an empty group's matrix too."""

import contextlib
import importlib

import pytest
import torch

from generator.problem.grouping import spans
from tests.helpers.emit.calls import Seen, contracts, drawn, operands
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr, crr]; dtype: fp32; batch: grouped; "
    "epilogue: [none, scale_m+swiglu, silu+add, bias, bias+swiglu]; load: pointer; backward: kernels; "
    'exclude: [{layout: crr, epilogue: [silu+add, bias, bias+swiglu], because: "few tests"}]'
)
FASTEST = spec(
    "layout: rcr; dtype: fp16; batch: grouped; epilogue: [swiglu, scale_m]; select: fastest; backward: kernels"
)
LAUNCHING = "launch", "ranking", "measured_choice"
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


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_gradients_are_those_of_each_group(family, ends):
    variants = contracts(family)
    names = [name for name in family._GRADIENTS if "save" not in name]
    assert len(names) == 12
    # All contracts with the first ends; with each of the others, a few that are all of them between them.
    place = ENDS.index(ends)
    for name in names[place - 1 :: len(ENDS) - 1] if place else names:
        given = operands(variants[name])
        given["offsets"] = torch.tensor(ends, dtype=torch.int32)
        needed = [x for x in given if x != "offsets"]
        ours = {x: value.detach().requires_grad_(x in needed) for x, value in given.items()}
        found = getattr(family, name)(**ours)
        grad = torch.randn(found.shape, generator=torch.Generator().manual_seed(5))
        found.backward(grad)
        theirs = {x: value.detach().clone().requires_grad_(x in needed) for x, value in given.items()}
        reference(name, theirs).backward(grad.double())
        for x in needed:
            assert ours[x].grad is not None and ours[x].grad.dtype == given[x].dtype, (name, x)
            torch.testing.assert_close(ours[x].grad, theirs[x].grad, rtol=1e-4, atol=1e-4, msg=f"{name} {x}")


def test_the_backward_pass_is_of_operators_and_waits_for_nothing(family):
    given = operands(contracts(family)["gmm_fp32_rcr_none"])
    given["a"].requires_grad_()
    given["b"].requires_grad_()
    found = family.gmm_fp32_rcr_none(**given)
    with Seen(family) as seen:
        found.sum().backward()
    assert set(seen.names) == {"gmm_fp32_rrr_none_out", "gmmk_fp32_crc_none"}


@pytest.mark.parametrize("ends", ENDS[::3], ids=str)
def test_gradients_of_rows_that_are_named_add_up(family, ends):
    variants = contracts(family)
    generator = torch.Generator().manual_seed(6)
    for name in (name for name in family._GRADIENTS if "save" not in name):
        given = operands(variants[name])
        count = len(given["a"])
        # Rows are named several times, or not at all, or are none of A's, which count as zeros.
        rows = torch.randint(-2, count // 2, (count,), generator=generator, dtype=torch.int32)
        rows[5], rows[7] = count, 2**31 - 1
        there = (rows >= 0) & (rows < count)
        given["offsets"] = torch.tensor(ends, dtype=torch.int32)
        needed = [x for x in given if x != "offsets"]
        ours = {x: value.detach().requires_grad_(x in needed) for x, value in given.items()}
        found = getattr(family, name)(**ours, rows=rows)
        grad = torch.randn(found.shape, generator=generator)
        found.backward(grad)
        theirs = {x: value.detach().clone().requires_grad_(x in needed) for x, value in given.items()}
        gathered = torch.where(there[:, None], theirs["a"][torch.where(there, rows, 0)], 0.0)
        reference(name, {**theirs, "a": gathered}).backward(grad.double())
        for x in needed:
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


def test_a_step_of_training_runs_what_is_chosen_for_a_gpu(render, monkeypatch):
    """Both layers of experts, forward and backward, with the kernels and configurations that an H200 would run."""
    family = render("fast_groups", FASTEST)
    launch, ranking, choice = (importlib.import_module(f"{family.__name__}._runtime.{x}") for x in LAUNCHING)
    ran = {}
    modules = [family._kernel(name) for names in family._KERNELS.values() for name in names]
    run = launch.started

    def started(call, plan, given, first):
        for module in [module for module in modules if module.CALL is call]:
            contract, _, how = module.__name__.rpartition(".")[2].partition("__")
            assert any(row.items() <= plan.launches[0].arguments.items() for row in module.CONFIGS)
            ran.setdefault(contract, set()).add(how)
        return run(call, plan, given, first)

    monkeypatch.setattr(launch, "started", started)
    for module in (launch, ranking):
        monkeypatch.setattr(module, "on_gpu", lambda x: True)
    monkeypatch.setattr(choice, "_device", lambda device: ("NVIDIA H200", 132))
    rows, hidden, inner, groups = 70, 64, 32, 4
    shapes = (rows, hidden), (groups, 2 * inner, hidden), (groups, hidden, inner), (rows,), (rows, hidden)
    x, up, down, scale, grad = (drawn(shape, torch.float16, seed=at) / 8 for at, shape in enumerate(shapes))
    for ends in ([9, 9, 60, 66], [0, 70, 70, 70]):
        offsets, used = torch.tensor(ends, dtype=torch.int32), ends[-1]
        ours = [value.clone().requires_grad_() for value in (x, up, down, scale)]
        h = family.gmm_fp16_rcr_swiglu(ours[0], ours[1].mT, offsets)
        y = family.gmm_fp16_rcr_scalem(h, ours[2].mT, offsets, scale_m=ours[3])
        y[:used].backward(grad[:used])
        theirs = [value.double().requires_grad_() for value in (x, up, down, scale)]
        parts = []
        for group, (first, last) in enumerate(spans(ends, rows)):
            gate, value = (theirs[0][first:last] @ theirs[1][group].mT).chunk(2, -1)
            own = torch.nn.functional.silu(gate) * value @ theirs[2][group].mT
            parts.append(own * theirs[3][first:last, None])
        exact = torch.cat(parts)
        exact.backward(grad[:used].double())
        torch.testing.assert_close(y[:used].double(), exact, rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(
            [each.grad.double() for each in ours], [each.grad for each in theirs], rtol=2e-2, atol=1e-3
        )
    for contract in ("gmm_fp16_rrr_none", "gmmk_fp16_crc_none"):
        # Without a choice among kernels it would be the first that takes the operands.
        assert family._KERNELS[contract][0].partition("__")[2] not in ran[contract]
