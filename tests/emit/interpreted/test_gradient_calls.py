"""Which gradients a backward pass computes, for which gradients that it is given, and what it refuses."""

import functools
import itertools
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import Seen, contracts, drawn, operands, results
from tests.helpers.emit.gradients import bounds, by_autograd
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: fp32; epilogue: [none, bias, bias+save+gelu+row_sum+mul+col_sum, bias+scale, bias+swiglu]; "
    "load: pointer; backward: {backward}"
)
NONE, BIAS, OUTPUTS = "gemm_fp32_rcr_none", "gemm_fp32_rcr_bias", "gemm_fp32_rcr_bias_save_gelu_rowsum_mul_colsum"
SCALED, GATED = "gemm_fp32_rcr_bias_scale", "gemm_fp32_rcr_bias_swiglu"


@pytest.fixture(scope="module")
def family(render):
    return render("backwards", SPEC.format(backward="kernels"))


@pytest.fixture(scope="module")
def without(render):
    return render("forwards", SPEC.format(backward="none"))


def given_of(family, name, *needed):
    """The operands of a contract, of which `needed` require a gradient; all, if none is named."""
    given = operands(contracts(family)[name])
    assert set(needed) <= given.keys()
    return {x: value.requires_grad_(x in needed or not needed) for x, value in given.items()}


def of(found):
    return [drawn(x.shape, x.dtype, seed=50 + at) for at, x in enumerate(found)]


def within(family, name, given, gradients):
    """The gradients of the operands that need one are right, and the others have none."""
    variant = contracts(family)[name]
    expected, allowed = by_autograd(variant, given, gradients), bounds(variant, given, gradients)
    for x, value in given.items():
        assert (value.grad is not None) == value.requires_grad, x
        if value.grad is not None:
            assert bool(((value.grad.double() - expected[x]).abs() <= allowed[x]).all()), x


@pytest.mark.parametrize("name", [BIAS, OUTPUTS, SCALED, GATED])
def test_each_operand_and_pair_alone(family, name):
    names = [*operands(contracts(family)[name])]
    for needed in [*itertools.combinations(names, 1), *itertools.combinations(names, 2)]:
        given = given_of(family, name, *needed)
        found = results(getattr(family, name)(**given))
        torch.autograd.backward(found, of(found))
        within(family, name, given, of(found))


def test_each_result_alone_has_a_gradient(family):
    """A gradient of the saved output, or of sums, while the result itself has none."""
    variant = contracts(family)[OUTPUTS]
    for chosen in ([0], [1], [2], [3], [1, 2], [0, 3]):
        given = given_of(family, OUTPUTS)
        found = results(getattr(family, OUTPUTS)(**given))
        gradients = of(found)
        torch.autograd.backward([found[at] for at in chosen], [gradients[at] for at in chosen])
        zeros = [x if at in chosen else torch.zeros_like(x) for at, x in enumerate(gradients)]
        within(family, OUTPUTS, given, zeros)
    assert [output.name for output in variant.epilogue.outputs] == ["preact", "row_sum", "col_sum"]


@pytest.mark.parametrize("name", [NONE, BIAS, OUTPUTS, GATED])
def test_gradients_of_the_result_may_have_any_strides(family, name):
    m, n = 20, 24
    shapes = {
        "expanded": torch.ones(()).expand(m, n),
        "a row": drawn((n,), torch.float32).expand(m, n),
        "transposed": drawn((n, m), torch.float32).mT,
        "strided": drawn((2 * m, 3 * n), torch.float32)[::2, ::3],
    }
    for how, gradient in shapes.items():
        given = given_of(family, name)
        found = results(getattr(family, name)(**given))
        # Of sums too: every other element of a vector.
        others = [drawn((2 * len(x),), x.dtype)[::2] if x.dim() == 1 else gradient for x in found[1:]]
        torch.autograd.backward(found, [gradient, *others])
        within(family, name, given, [gradient, *others])
        assert not gradient.is_contiguous(), how


def test_a_number_is_no_tensor(family):
    given = given_of(family, SCALED, "a", "b", "bias")
    del given["scale"]
    getattr(family, SCALED)(**given, scale=0.5).sum().backward()
    theirs = {**given, "scale": torch.tensor(0.5)}
    within(family, SCALED, theirs, [torch.ones(20, 24)])


def test_a_result_that_requires_a_gradient_is_not_filled(family, launches):
    given, out = operands(contracts(family)[BIAS]), torch.full((20, 24), 7.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="out requires a gradient"):
        getattr(family, BIAS)(**given, out=out)
    assert bool((out == 7).all()) and not launches


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_family_without_gradients_refuses_to_record_one(without, launches, compiled):
    for name in contracts(without):
        for needed in operands(contracts(without)[name]):
            given = given_of(without, name, needed)
            call = getattr(without, name)
            told = rf"{name}: {needed} requires a gradient, .* torch\.no_grad\(\), .*`backward: kernels`"
            with pytest.raises(Exception, match=told) as caught:
                (torch.compile(call, fullgraph=True, backend="eager") if compiled else call)(**given)
            assert compiled or type(caught.value) is RuntimeError
            assert not launches
            with torch.no_grad():
                found = results(call(**given))
            assert not any(x.requires_grad for x in found)
            launches.clear()


@pytest.mark.parametrize("name", [NONE, BIAS, OUTPUTS, SCALED, GATED])
def test_a_call_that_torch_need_not_see_is_none_of_an_operator(family, name, launches, monkeypatch):
    """Its gradients are those of the operators, bit for bit."""
    given = given_of(family, name)
    with Seen(family):
        found = results(getattr(family, name)(**given))
        expected = torch.autograd.grad(found, [*given.values()], of(found))
    seen = len(launches)
    launches.clear()
    monkeypatch.setattr(torch._ops.OpOverload, "__call__", forbidden)
    again = results(getattr(family, name)(**given))
    gradients = torch.autograd.grad(again, [*given.values()], of(found))
    assert len(launches) == seen and "Recorded" in type(again[0].grad_fn).__name__
    for mine, other in zip([*again, *gradients], [*found, *expected], strict=True):
        assert torch.equal(mine, other)


def forbidden(operator, *arguments, **options):
    raise AssertionError(f"{operator} was called")


def test_torch_does_with_a_recorded_call_what_it_does_with_its_own(family):
    """Hooks, a graph that is kept, changes in place, checkpoints and hooks on what is saved."""
    given = given_of(family, GATED)
    leaves = [*given.values()]
    call = functools.partial(getattr(family, GATED), **{x: value for x, value in given.items() if x != "a"})
    expected = torch.autograd.grad(call(given["a"]).sum(), leaves)
    seen = []
    made = call(given["a"])
    made.register_hook(seen.append)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(made.sum(), leaves, retain_graph=True), expected)
    assert len(seen) == 2
    for reentrant in (True, False):
        checkpointed = torch.utils.checkpoint.checkpoint(call, given["a"], use_reentrant=reentrant)
        assert checkpointed is not None
        for value in leaves:
            value.grad = None
        checkpointed.sum().backward()
        torch.testing.assert_close([x.grad for x in leaves], [*expected])
    with torch.autograd.graph.save_on_cpu():
        torch.testing.assert_close(torch.autograd.grad(call(given["a"]).sum(), leaves), expected)
    twice = call(given["a"]).sum() + call(given["a"]).sum()
    torch.testing.assert_close(torch.autograd.grad(twice, leaves), tuple(2 * x for x in expected))
    changed = given["a"].detach().clone().requires_grad_()
    made = call(changed)
    with torch.no_grad():
        changed.add_(1)
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        made.sum().backward()


def test_a_fake_number_on_the_cpu_is_not_read(family, launches):
    """torch.compile traces a backward pass so, where a number is a tensor of the CPU and the matrices are not."""
    call = load_kernel(Path(family.__path__[0]) / "gemm_fp32_rcr_save_1whole_bias_scale__gradient.py").CALL
    with FakeTensorMode():
        matrix, bias, scale = torch.empty(5, 7, device="cuda"), torch.empty(7, device="cuda"), torch.ones(())
        wanted = ["sum", "bias", "scale"]
        given = {"grad_out": matrix, "grad_whole": None, "sum": matrix, "bias": bias, "scale": scale}
        found = call(**given, needed=wanted)
    names = [x.of for x in call.results]
    shapes = {x: tuple(value.shape) for x, value in zip(names, found, strict=True)}
    assert shapes == {"sum": (5, 7), "bias": (7,), "scale": ()}
    assert {x.device.type for x in found} == {"cuda"}
    assert not launches
