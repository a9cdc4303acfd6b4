"""Backward passes of a signature that was seen before, whose launches are repeated.

The interpreter has no launches to repeat: here stand-ins run the kernels with what a launch would read.
"""

import importlib

import pytest
import torch

from tests.helpers.emit.calls import drawn
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr, ccr]; dtype: fp32; epilogue: [none, bias, bias+gelu_tanh, scale+bias, swiglu]; "
    "load: pointer; backward: kernels"
)
CHAINS = {"none": [], "bias": ["bias"], "bias_gelutanh": ["bias"], "scale_bias": ["bias"], "swiglu": []}
LAYOUTS = ("rcr", "rrr", "ccr")

# One list, because what a family caches outlives a test.
_SEEN = []


@pytest.fixture
def repeated(family, monkeypatch):
    """What was repeated since the test began: a product or a chain."""
    prefix = f"{family.__name__}._runtime"
    cached = importlib.import_module(f"{prefix}.launch")
    started, seen = cached.started, _SEEN
    del seen[:]

    class Product(cached.Repeat):
        def __init__(self, contract, a, b):
            self.gemm, self.read = getattr(family, contract), [(x.shape, x.stride()) for x in (a, b)]
            result = self.gemm(a, b)
            self.allocated, self.result = [(result.shape, result.stride(), result.dtype)], 3
            self.filled = result.shape, result.stride()

        def made_of(self, given):
            seen.append("product")
            a, b = (x.as_strided(*read) for x, read in zip(given, self.read, strict=False))
            ((size, strides, dtype),) = self.allocated
            result = torch.empty_strided(size, strides, dtype=dtype)
            self.gemm(a, b, out=result.as_strided(*self.filled))
            return [*given, result]

    class Chain(cached.Repeat):
        def __init__(self, table, given):
            self.table, self.given = table, given
            self.results = [len(given) + place for place in range(len(table.results))]

        def made_of(self, values):
            seen.append("chain")
            given = dict(zip(self.given, [*values[:-1], self.given["needed"]], strict=True))
            plan = self.table.plan(**given)
            started(self.table, plan, given, given["grad_out"])
            return [*values, *plan.results.values()]

    def first(table, plan, given, tensor):
        started(table, plan, given, tensor)
        return Chain(table, {**given})

    monkeypatch.setattr(cached, "started", first)
    for name in family.__all__:
        if name.startswith("gemm_"):
            function = getattr(family, name)
            monkeypatch.setattr(function, "repeated", lambda a, b, name=name: Product(name, a, b))
    yield seen


def operands(layout, chain, seed):
    columns = 48
    a = drawn((24, 32), torch.float32, column=layout[0] == "c", seed=seed)
    b = drawn((32, columns), torch.float32, column=layout[1] == "c", seed=seed + 1)
    more = {x: drawn((columns,), torch.float32, seed=seed + 2) for x in CHAINS[chain]}
    return a, b, {**more, "scale": 0.5} if "scale" in chain else more


def gradients(family, layout, chain, needed, seed):
    a, b, more = operands(layout, chain, seed)
    tensors = {"a": a, "b": b, **{x: y for x, y in more.items() if isinstance(y, torch.Tensor)}}
    leaves = [x.requires_grad_() for name, x in tensors.items() if name in needed.split()]
    result = getattr(family, f"gemm_fp32_{layout}_{chain}")(a, b, **more)
    gradient = drawn(tuple(result.shape), torch.float32, seed=seed + 9)
    return [*torch.autograd.grad(result, leaves, gradient)]


@pytest.mark.parametrize(
    ("chain", "needed"), [(chain, needed) for chain in CHAINS for needed in ("a b bias", "a", "b bias")]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_repeated_pass_has_the_gradients_of_a_first_one(family, repeated, layout, chain, needed):
    gradients(family, layout, chain, needed, seed=1)
    del repeated[:]
    found = gradients(family, layout, chain, needed, seed=20)
    products = len({"a", "b"} & set(needed.split()))
    assert repeated == ["chain"] * (chain not in ("none", "bias")) + ["product"] * products
    a, b, more = operands(layout, chain, 20)
    exact = [x.double().requires_grad_() for x in (a, b)]
    y = exact[0] @ exact[1]
    bias = more.get("bias", torch.zeros(48)).double().requires_grad_()
    y = y * more.get("scale", 1.0) + bias
    if "gelu" in chain:
        y = torch.nn.functional.gelu(y, approximate="tanh")
    if "swiglu" in chain:
        gate, up = y[:, :24], y[:, 24:]
        y = torch.nn.functional.silu(gate) * up
    of = {"a": exact[0], "b": exact[1], "bias": bias}
    wanted = [of[x] for x in ("a", "b", *CHAINS[chain]) if x in needed.split()]
    gradient = drawn(tuple(y.shape), torch.float32, seed=29).double()
    for one, other in zip(found, torch.autograd.grad(y, wanted, gradient), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_a_layer_of_three_dimensions_repeats_its_pass(family, repeated):
    theirs = torch.nn.Sequential(torch.nn.Linear(32, 48))
    ours = torch.nn.Sequential(torch.nn.Linear(32, 48))
    ours.load_state_dict(theirs.state_dict())
    assert family.nn.replace_linear(ours) == ["0"]
    for turn in range(2):
        del repeated[:]
        x = drawn((2, 3, 32), torch.float32, seed=turn).requires_grad_()
        gradient = drawn((2, 3, 48), torch.float32, seed=9 + turn)
        found = torch.autograd.grad(ours(x), [x, *ours.parameters()], gradient)
        for one, other in zip(found, torch.autograd.grad(theirs(x), [x, *theirs.parameters()], gradient), strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert repeated == ["product", "product"]


@pytest.mark.parametrize("what", ["expanded", "turned", "scale needs one"])
def test_other_passes_go_the_long_way(family, repeated, what):
    """What a launch would read is not what torch has in memory, or more follows the launch."""
    a, b, _ = operands("rcr", "none", 1)
    a.requires_grad_()
    if what == "scale needs one":
        scale, bias = torch.tensor(0.5, requires_grad=True), drawn((48,), torch.float32, seed=2)
        for _ in range(2):
            result = family.gemm_fp32_rcr_scale_bias(a, b, scale=scale, bias=bias)
            _, found = torch.autograd.grad(result, [a, scale], torch.ones_like(result))
        torch.testing.assert_close(found, (a @ b).sum().detach(), rtol=1e-4, atol=1e-3)
    else:
        ones = torch.ones(()).expand(24, 48)
        gradient = ones if what == "expanded" else drawn((24, 48), torch.float32, column=True, seed=3)
        for _ in range(2):
            (found,) = torch.autograd.grad(family.gemm_fp32_rcr_none(a, b), [a], gradient)
        torch.testing.assert_close(found, gradient @ b.T, rtol=1e-4, atol=1e-4)
    # A chain has a cache of its own.
    assert "product" not in repeated
