"""Gradients and results in the cases that torch's own functions have, beside those of every model."""

import pytest
import torch

from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import drawn, in_threads
from tests.helpers.support import render_spec, spec

SPEC = spec(
    "layout: LAYOUT; dtype: fp32; batch: [none, grouped]; epilogue: [none, bias+gelu_tanh, scale]; load: pointer; "
    "backward: kernels; "
    'exclude: [{batch: grouped, epilogue: [bias+gelu_tanh, scale], because: "no test calls them"}]'
)
NONE, GELU = "gemm_fp32_rcr_none", "gemm_fp32_rcr_bias_gelutanh"


@pytest.fixture(scope="module")
def family(render):
    return render("cases", SPEC.replace("LAYOUT", "rcr"))


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


class Named(torch.Tensor):
    """A subclass without memory of its own."""


def negated(y):
    """A function of `y` whose gradient is a view of negated memory."""
    ones = torch.ones_like(y)
    return (torch.complex(ones, y).conj() * torch.complex(y.detach(), ones)).real


@pytest.mark.parametrize(
    "kind", [lambda x: x, torch.nn.Parameter, lambda x: x.as_subclass(Named)], ids=["tensor", "parameter", "subclass"]
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


def test_threads_may_record_their_first_calls_at_once(render):
    family = render("recorded_at_once", SPEC.replace("LAYOUT", "rcr"))

    def work(_):
        own = leaves()
        return [torch.autograd.grad(called(family, *own).sum(), own) for _ in range(3)]

    expected = torch.autograd.grad(theirs(*(other := leaves())).sum(), other)
    torch.testing.assert_close(in_threads(5, work), [[expected] * 3] * 5)


def test_a_column_major_result_is_changed_in_place(render):
    family = render("columns", SPEC.replace("LAYOUT", "rcc"))
    x, w, _ = leaves()
    found = family.gemm_fp32_rcc_none(x, w.t())
    assert found._base is None and found.stride() == (1, 6)
    found.relu_().sum().backward()
    other, v, _ = leaves()
    torch.relu(torch.nn.functional.linear(other, v)).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert family.gemm_fp32_rcc_none(x[:0], w.t()).shape == (0, 24)


def test_autocast_does_not_reach_a_backward_pass(family):
    x, b = drawn((9, 16), torch.float32).requires_grad_(), drawn((2, 8, 16), torch.float32).requires_grad_()
    offsets = torch.tensor([2, 5], dtype=torch.int32)
    expected = torch.autograd.grad(family.gmm_fp32_rcr_none(x, b.mT, offsets)[:5].sum(), (x, b))
    found = family.gmm_fp32_rcr_none(x, b.mT, offsets)[:5].sum()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(torch.autograd.grad(found, (x, b)), expected)


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
