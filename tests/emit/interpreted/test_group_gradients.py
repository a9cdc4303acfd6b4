"""Gradients of grouped contracts: of rows in no group they are zero, and of an empty group's matrix too."""

import contextlib

import pytest
import torch

from generator.problem.grouping import spans
from tests.helpers.emit.calls import Seen, contracts, operands
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr, crr]; dtype: fp32; batch: grouped; "
    "epilogue: [none, scale_m+swiglu, silu+add, bias, bias+swiglu]; load: pointer; backward: kernels; "
    'exclude: [{layout: crr, epilogue: [silu+add, bias, bias+swiglu], because: "few tests"}]'
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
