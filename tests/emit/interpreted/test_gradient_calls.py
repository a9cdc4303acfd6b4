"""Which gradients a backward pass computes, for which it is given, what it refuses, and what torch does with it."""

import functools
import itertools
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import Seen, Tagged, contracts, drawn, operands, results
from tests.helpers.emit.gradients import bounds, by_autograd
from tests.helpers.support import render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: fp32; epilogue: [none, bias, bias+save+gelu+row_sum+mul+col_sum, bias+scale, bias+swiglu, "
    "bias+gelu_tanh]; load: pointer; backward: {backward}"
)
NONE, BIAS, OUTPUTS = "gemm_fp32_rcr_none", "gemm_fp32_rcr_bias", "gemm_fp32_rcr_bias_save_gelu_rowsum_mul_colsum"
SCALED, GATED = "gemm_fp32_rcr_bias_scale", "gemm_fp32_rcr_bias_swiglu"
GELU = "gemm_fp32_rcr_bias_gelutanh"


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


@pytest.mark.parametrize(
    ("gated", "used"), [(False, "pre"), (True, "pre"), (True, "mid"), (True, "both")], ids=lambda x: f"{x}"
)
def test_steps_behind_the_results_that_are_used_have_no_part_in_gradients(render, gated, used):
    """As with torch: their derivatives, which are infinite, times no gradient are not NaN."""
    family = render(
        "infinite",
        spec(
            "layout: rcr; dtype: fp32; load: pointer; backward: kernels; ops: {root: {formula: 'sqrt(x)'}}; epilogue: "
            "[[bias, {save: pre}, swiglu, {save: mid}, mul], [bias, {save: pre}, root, scale_n, {save: mid}, mul]]"
        ),
    )
    call = getattr(family, f"gemm_fp32_rcr_bias_save_1pre_{'swiglu' if gated else 'root_scalen'}_save_1mid_mul")
    m, n, wide = 20, 24, 48 if gated else 24
    given = {"a": torch.zeros(m, 32), "b": drawn((wide, 32), torch.float32).mT, "bias": torch.zeros(wide)}
    given |= {"mul": torch.full((m, n), torch.inf)} | ({} if gated else {"scale_n": torch.full((n,), torch.inf)})
    weights = {"pre": drawn((m, wide), torch.float32), "mid": drawn((m, n), torch.float32)}

    def backward(call, given):
        given = {x: value.detach().requires_grad_() for x, value in given.items()}
        _, pre, mid = call(**given)
        sum((x * weights[name]).sum() for name, x in (("pre", pre), ("mid", mid)) if used in (name, "both")).backward()
        return {x: torch.zeros_like(value) if value.grad is None else value.grad for x, value in given.items()}

    def theirs(a, b, bias, mul, scale_n=None):
        pre = a @ b + bias
        gate, up = pre.chunk(2, 1) if gated else (pre, pre)
        mid = torch.nn.functional.silu(gate) * up if gated else pre.sqrt() * scale_n
        return mid * mul, pre, mid

    expected = backward(theirs, given)
    assert all(bool(x.isfinite().all()) for x in expected.values())
    torch.testing.assert_close(backward(call, given), expected, rtol=1e-5, atol=1e-5)


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


def leaves():
    return [
        drawn(size, torch.float32, seed=seed).requires_grad_() for seed, size in enumerate(((6, 32), (24, 32), (24,)))
    ]


def theirs(x, w, bias):
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, bias), approximate="tanh")


def called(family, x, w, bias):
    return getattr(family, GELU)(x, w.t(), bias=bias)


class Dropped(torch.autograd.Function):
    """A function without a gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *_):
        return None


def negated(y):
    """A function of `y` whose gradient is a view of negated memory."""
    ones = torch.ones_like(y)
    return (torch.complex(ones, y).conj() * torch.complex(y.detach(), ones)).real


@pytest.mark.parametrize(
    "kind", [lambda x: x, torch.nn.Parameter, lambda x: x.as_subclass(Tagged)], ids=["tensor", "parameter", "subclass"]
)
def test_a_gradient_and_operands_are_of_any_class(family, kind):
    ours, other = [kind(x.detach()).requires_grad_() for x in leaves()], leaves()
    gradient = drawn((6, 24), torch.float32)
    called(family, *ours).backward(kind(gradient))
    theirs(*other).backward(gradient)
    found = [x.grad.as_subclass(torch.Tensor) for x in ours]
    torch.testing.assert_close(found, [x.grad for x in other])


@pytest.mark.parametrize("name", [NONE, GELU])
def test_a_negated_gradient_is_read_as_such(family, name):
    def loss(y):
        return negated(y).sum()

    ours, other = leaves(), leaves()
    given = {"bias": ours[2]} if name == GELU else {}
    loss(getattr(family, name)(ours[0], ours[1].t(), **given)).backward()
    loss(theirs(*other) if name == GELU else torch.nn.functional.linear(*other[:2])).backward()
    torch.testing.assert_close([x.grad for x in ours], [x.grad for x in other])


def test_no_gradient_comes_in(family):
    ours = leaves()
    Dropped.apply(called(family, *ours)).sum().backward()
    assert [x.grad for x in ours] == [None] * 3


def test_a_column_major_result_is_changed_in_place(render):
    family = render("columns", SPEC.format(backward="kernels").replace("rcr", "rcc"))
    x, w, _ = leaves()
    found = family.gemm_fp32_rcc_none(x, w.t())
    assert found._base is None and found.stride() == (1, 6)
    found.relu_().sum().backward()
    other, v, _ = leaves()
    torch.relu(torch.nn.functional.linear(other, v)).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert family.gemm_fp32_rcc_none(x[:0], w.t()).shape == (0, 24)


@pytest.mark.parametrize("package", ["torch", "plain", "files"])
def test_what_is_filled_has_another_version(tmp_path, package):
    spec = f"summary: To fill.\nlayout: rcr\ndtype: fp32\nepilogue: none\nload: pointer\npackage: {package}\n"
    x, w = drawn((6, 32), torch.float32), drawn((24, 32), torch.float32, seed=1)
    # The `gemm` of a kernel's file, which every package has.
    call = load_kernel(next(render_spec(tmp_path, "filled", spec).glob("gemm_*.py"))).gemm
    p, buffer = torch.ones(6, 24, requires_grad=True), torch.ones(6, 24)
    loss = (p * buffer).sum()
    call(x, w.t(), out=buffer)
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        call(x, w.t(), out=torch.empty(6, 24))


def test_a_number_that_a_batch_shares_has_any_shape(render):
    text = "summary: x\nlayout: rcr\ndtype: fp32\nbatch: [none, strided]\nepilogue: scale\nload: pointer\n"
    family, many, w = render("shared_number", text), drawn((3, 6, 32), torch.float32), drawn((24, 32), torch.float32)
    for shape in ((), (1,), (1, 1)):
        scale = torch.full(shape, 0.5)
        found = torch.vmap(lambda a, scale=scale: family.gemm_fp32_rcr_scale(a, w.t(), scale=scale))(many)
        torch.testing.assert_close(found, many @ w.t() / 2)


@pytest.mark.parametrize("name", [NONE, GELU])
def test_a_gradient_of_a_gradient_is_refused_for_some_operands_too(family, name):
    """Not left out, as torch leaves out what does not lead to the operands that are asked for."""
    x, w, bias = leaves()
    given = {"bias": bias} if name == GELU else {}

    def call(x, w):
        return getattr(family, name)(x, w.t(), **given)

    told = f"{name}: a gradient of its gradient is asked for, and none is computed"
    for asked in (x, w):
        (first,) = torch.autograd.grad(call(x, w).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=told):
            torch.autograd.grad(first.norm() + call(x, w).mean(), asked)
    with pytest.raises(RuntimeError, match=told):
        torch.autograd.functional.hessian(lambda x: call(x, w.detach()).square().sum(), x.detach())


def test_what_no_gradient_reads_may_change(family):
    x, w, _ = leaves()
    found = getattr(family, NONE)(x.detach(), w.t())
    with torch.no_grad():
        w.add_(1)
    found.sum().backward()
    torch.testing.assert_close(w.grad, x.detach().sum(0).expand(24, 32))
