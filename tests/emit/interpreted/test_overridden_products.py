"""Torch's products in eager mode by a family: `override_aten`."""

import math

import pytest
import torch
from torch.nn import functional

from tests.emit.interpreted.test_graph_pass import compiled
from tests.helpers.emit.calls import drawn, in_threads
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr, crr]; dtype: [fp16, fp32]; batch: [none, strided]; epilogue: [none, bias, add]; "
    "load: pointer; with: aten; tile: [{m: 16, n: 16, k: 32, warps: 1}]"
)
M, N, K = 7, 24, 40
#: What the family computes, of these operators.
NAMES = ("mm", "mm.out", "addmm", "addmm.out", "addmm_", "bmm", "bmm.out", "baddbmm", "mv", "_grouped_mm")


def dumps():
    """What torch's dispatcher has for each operator."""
    return {name: torch._C._dispatch_dump(f"aten::{name}") for name in NAMES}


@pytest.fixture(autouse=True)
def undone():
    """Every test leaves torch's dispatcher as it was."""
    before = dumps()
    yield
    assert dumps() == before


def matrices(dtype=torch.float16):
    """An input, a weight (N, K) and a bias."""
    return drawn((M, K), dtype), drawn((N, K), dtype, seed=1), drawn((N,), dtype, seed=2)


def results(dtype):
    """What models write, by the operator that torch makes of it."""
    x, w, bias = matrices(dtype)
    batch, square = drawn((3, M, K), dtype), drawn((M, N), dtype, seed=3)
    return {
        "mm": lambda: functional.linear(x, w),
        "mm rrr": lambda: x @ w.T.contiguous(),
        "mm crr": lambda: x.T.contiguous().T @ w.T.contiguous(),
        "mm out": lambda: torch.mm(x, w.T, out=torch.empty(M, N, dtype=dtype)),
        "addmm": lambda: functional.linear(x, w, bias),
        "addmm 3-D": lambda: functional.linear(batch, w, bias),
        "addmm matrix": lambda: torch.addmm(square, x, w.T),
        "addmm without": lambda: torch.addmm(square, x, w.T, beta=0),
        "addmm out": lambda: torch.addmm(bias, x, w.T, out=torch.empty(M, N, dtype=dtype)),
        "addmm in place": lambda: square.clone().addmm_(x, w.T),
        "addmm into what is added": lambda: torch.addmm(y := square.clone(), x, w.T, out=y),
        "bmm": lambda: batch @ w.T.expand(3, K, N),
        "bmm einsum": lambda: torch.einsum("bmk,bnk->bmn", batch, w.expand(3, N, K).contiguous()),
        "bmm out": lambda: torch.bmm(batch, w.expand(3, N, K).mT, out=torch.empty(3, M, N, dtype=dtype)),
        "baddbmm": lambda: torch.baddbmm(bias, batch, w.expand(3, N, K).mT),
        "mv": lambda: x @ w[0],
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_every_product_of_a_model_is_a_contracts(family, launches, dtype):
    for name, call in results(dtype).items():
        expected = call()
        with family.override_aten() as override:
            launches.clear()
            found = call()
        assert len(launches) == 1, (name, str(override))
        ((operator, contract),) = override.report.replaced
        assert operator == name.split()[0] and not override.report.kept, name
        assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), dtype)
        torch.testing.assert_close(found, expected, rtol=2e-2 if dtype == torch.float16 else 1e-5, atol=1e-2)
        if "addmm" in name and "without" not in name:
            assert contract.endswith("_add" if "matrix" in name or "in" in name.split() or "into" in name else "_bias")


def test_what_no_contract_fits_is_torchs_to_the_bit(family, launches):
    x, w, bias = matrices()
    calls = {
        "no contract of rcr has scale+bias; those there have none, bias, add": lambda: torch.addmm(
            bias, x, w.T, alpha=2
        ),
        "beta is 0.5": lambda: torch.addmm(bias, x, w.T, beta=0.5),
        "alpha is 0": lambda: torch.addmm(bias, x, w.T, alpha=0),
        "what is added has the shape (7, 1)": lambda: torch.addmm(x[:, :1], x, w.T),
        "multiplies float64 by float64 to float64": lambda: x.double() @ w.double().T,
        "multiplies bfloat16 by": lambda: x.bfloat16() @ w.bfloat16().T,
        "has the layout ccr; this type has rcr, rrr, crr": lambda: x.T.contiguous().T @ w.T,
        "has the layout srr": lambda: x[:1, :1].expand(M, K) @ w.T.contiguous(),
    }
    for reason, call in calls.items():
        expected = call()
        with family.override_aten() as override:
            found = call()
        assert not launches and torch.equal(found, expected)
        ((_, told),) = override.report.kept
        assert reason in told and not override.report.replaced


def test_sizes_of_zero_and_one(family):
    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 5, 8), (5, 1, 8)):
        x, w, bias = drawn((m, k), torch.float16), drawn((n, k), torch.float16), drawn((n,), torch.float16)
        expected = functional.linear(x, w), functional.linear(x, w, bias)
        with family.override_aten() as override:
            found = functional.linear(x, w), functional.linear(x, w, bias)
        assert sum(override.report.replaced.values()) == 2, override
        torch.testing.assert_close(found, expected)


def test_gradients_are_recorded_above_it(family, launches):
    """Also for families without a backward pass of their own: the backward pass is torch's, made of such products."""
    layer = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.ReLU(), torch.nn.Linear(N, K))
    x = torch.randn(M, K)
    expected = torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()])
    with family.override_aten() as override:
        found = torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()])
    torch.testing.assert_close(found, expected)
    # Two products forwards, and three backwards: the input needs no gradient.
    assert sum(override.report.replaced.values()) == len(launches) == 5
    with family.override_aten():
        per_sample = torch.func.vmap(torch.func.grad(lambda x: layer(x).sum()))(x)
    torch.testing.assert_close(per_sample, torch.func.vmap(torch.func.grad(lambda x: layer(x).sum()))(x))


def test_derivatives_in_forward_mode_are_computed_above_it(family, launches):
    x, weight, tangent = torch.randn(M, K), torch.randn(N, K), torch.randn(M, K)

    def call(x):
        return (x @ weight.T).square().sum(-1)

    expected = torch.func.jvp(call, (x,), (tangent,))
    with family.override_aten() as override:
        found = torch.func.jvp(call, (x,), (tangent,))
        with torch.autograd.forward_ad.dual_level():
            dual = call(torch.autograd.forward_ad.make_dual(x, tangent))
            other = torch.autograd.forward_ad.unpack_dual(dual)
        jacobian = torch.func.jacfwd(call)(x[:2])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(tuple(other), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(jacobian, torch.func.jacrev(call)(x[:2]), rtol=1e-4, atol=1e-4)
    assert launches and override.report.replaced


def test_autocast_modes_and_inference(family):
    x, w, bias = matrices(torch.float32)
    with family.override_aten() as override:
        with torch.autocast("cpu", torch.float16):
            assert functional.linear(x, w, bias).dtype == torch.float16
        with torch.inference_mode():
            assert (x @ w.T).is_inference()
        with torch.no_grad():
            assert not functional.linear(x.requires_grad_(), w, bias).requires_grad
    assert override.report.replaced == {
        ("addmm", "gemm_fp16_rcr_bias"): 1,
        ("mm", "gemm_fp32_rcr_none"): 1,
        ("addmm", "gemm_fp32_rcr_bias"): 1,
    }


def test_fake_tensors_and_traces_do_not_reach_it(family, launches):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with family.override_aten() as override, FakeTensorMode():
        assert (torch.empty(3, 4) @ torch.empty(4, 5)).shape == (3, 5)
    assert not launches and not override.report.replaced


def test_the_precision_of_fp32_is_what_torch_is_set_to(family):
    x, w, _ = matrices(torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        with family.override_aten() as override:
            torch.set_float32_matmul_precision("high")
            assert x @ w.T is not None
            torch.set_float32_matmul_precision("highest")
            assert x @ w.T is not None
    finally:
        torch.set_float32_matmul_precision(before)
    assert override.report.kept == {("mm", "no contract multiplies fp32 as torch is set to, tf32"): 1}
    assert override.report.replaced == {("mm", "gemm_fp32_rcr_none"): 1}


def test_it_ends_in_any_order_and_after_errors(family, render, launches):
    other = render("overriding_too", SPEC.replace("[fp16, fp32]", "fp32"))
    x, w, _ = matrices(torch.float32)
    before = dumps()

    def counted():
        for each in (first, second):
            each.report.clear()
        assert x @ w.T is not None
        return [sum(each.report.replaced.values()) for each in (first, second)]

    first, second = family.override_aten(), other.override_aten()
    # The newest is asked first, and what it leaves goes to the one before.
    assert counted() == [0, 1]
    assert (x.half() @ w.half().T).dtype == torch.float16 and sum(first.report.replaced.values()) == 1
    first.remove()
    assert counted() == [0, 1]
    first.remove()
    second.remove()
    assert dumps() == before and counted() == [0, 0] and not (first.installed or second.installed)
    # Twice of one family, nested, entered again, and left by an exception.
    with pytest.raises(KeyError), family.override_aten() as first, family.override_aten() as second:
        assert counted() == [0, 1]
        with second:
            assert second.installed
        assert second.installed
        raise KeyError
    assert dumps() == before and not (first.installed or second.installed)
    with first:
        assert counted() == [1, 0]
    assert dumps() == before


def test_an_override_of_someone_else_stays_beneath_it(family, launches):
    x, w, _ = matrices(torch.float64)
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("mm", lambda a, b: torch.full((len(a), b.shape[1]), 7.0, dtype=a.dtype), "CPU")
        with family.override_aten():
            assert (x @ w.T == 7).all() and not launches
            assert not (x.half() @ w.half().T == 7).all() and len(launches) == 1
        assert (x.half() @ w.half().T == 7).all()
    finally:
        library._destroy()


def test_threads_share_it(family):
    x, w, bias = matrices()
    expected = functional.linear(x, w, bias)
    with family.override_aten() as override:
        found = in_threads(4, lambda _: functional.linear(x, w, bias))
    assert override.report.replaced == {("addmm", "gemm_fp16_rcr_bias"): 4}
    torch.testing.assert_close(found, [expected] * 4)


def test_groups_and_rows_that_are_alike(render):
    """A whole layer of a mixture, whose tokens have the same bits in every batch."""
    spec = "summary: Rows alike.\nlayout: [rcr, rrr]\ndtype: bf16\nbatch: [none, grouped]\nepilogue: [none, bias]\n"
    exclude = "exclude:\n  - {batch: grouped, epilogue: bias, because: torch has none}\n"
    family = render("overriding_alike", f"{spec}load: pointer\ninvariant: rows\nwith: aten\n{exclude}")
    torch.manual_seed(0)
    router = torch.nn.Linear(32, 4, bias=True).bfloat16()
    up = torch.randn(4, 48, 32).bfloat16()

    def layer(x):
        expert = router(x).argmax(-1)
        order = expert.argsort(stable=True)
        ends = torch.searchsorted(expert[order], torch.arange(4), right=True).int()
        return torch._grouped_mm(x[order], up.mT, offs=ends)[order.argsort()]

    tokens = torch.randn(64, 32).bfloat16()
    with torch.no_grad(), family.override_aten() as override:
        whole = layer(tokens)
        for count in (1, 7):
            assert torch.equal(layer(tokens[:count]), whole[:count])
    assert not override.report.kept
    assert {contract for _, contract in override.report.replaced} == {"gemm_bf16_rcr_bias", "gmm_bf16_rcr_none"}


@pytest.mark.parametrize("dtype", ["int8", "[int8, fp16]"])
def test_integers_are_multiplied_by_a_contract(render, dtype):
    name = f"integers_{dtype.count(',')}"
    text = "summary: Products of integers.\nlayout: [rrr, rcr]\ndtype: {}\ntile: [{{m: 16, n: 16, k: 32, warps: 1}}]\n"
    family = render(name, text.format(dtype) + "load: pointer\nwith: aten\n")
    a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((32, 64), (64, 32)))
    expected = (a.long() @ b.long()).int()
    with family.override_aten() as override:
        assert torch.equal(torch._int_mm(a, b), expected)
        assert torch.equal(torch._int_mm(a, b.T.contiguous().T), expected)
        out = torch.empty(32, 32, dtype=torch.int32)
        assert torch._int_mm(a, b, out=out) is out and torch.equal(out, expected)
    names = [f"gemm_int8_{layout}_none" for layout in ("rrr", "rcr")]
    assert override.report.replaced == {("_int_mm", names[0]): 2, ("_int_mm", names[1]): 1} and not override.report.kept


def test_products_on_the_cpu_are_reported_without_an_interpreter(family, monkeypatch):
    x, w, bias = matrices(torch.float32)
    expected = functional.linear(x, w, bias)
    with family.override_aten() as override, monkeypatch.context() as patch:
        import triton

        patch.setattr(triton.knobs.runtime, "interpret", False)
        assert torch.equal(functional.linear(x, w, bias), expected)
    reason = "on cpu, a GPU is needed, or TRITON_INTERPRET=1 before Python starts"
    assert override.report.kept == {("addmm", reason): 1} and not override.report.replaced


SCALED = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; epilogue: [none, bias, scale, scale+bias, scale+add]; "
    "load: pointer; with: [aten, inductor]; tile: [{m: 16, n: 16, k: 32, warps: 1}]"
)


@pytest.fixture(scope="module")
def scaled(render):
    return render("scaled_addmm", SCALED)


def scaled_calls():
    """Products with an `alpha` of an input, with the contract whose chain begins with `scale`."""
    w, bias, square = drawn((N, K), torch.float32), drawn((N,), torch.float32), drawn((M, N), torch.float32)
    nothing, many = torch.full((N,), math.nan), torch.full((3, M, N), math.nan)
    batch = drawn((3, N, K), torch.float32)
    return {
        "no bias": ("gemm_fp32_rcr_scale", lambda x: torch.addmm(nothing, x, w.T, alpha=0.25, beta=0)),
        "a negative one": ("gemm_fp32_rcr_scale_bias", lambda x: torch.addmm(bias, x, w.T, alpha=-3)),
        "a matrix": ("gemm_fp32_rcr_scale_add", lambda x: torch.addmm(square, x, w.T, alpha=0.5)),
        "a batch": (
            "bmm_fp32_rcr_scale",
            lambda x: torch.baddbmm(many, x.expand(3, M, K), batch.mT, alpha=0.5, beta=0),
        ),
        "a batch with a bias": (
            "bmm_fp32_rcr_scale_bias",
            lambda x: torch.baddbmm(bias, x.expand(3, M, K), batch.mT, alpha=2),
        ),
        "neither": ("gemm_fp32_rcr_none", lambda x: torch.addmm(nothing, x, w.T, beta=0)),
    }


@pytest.mark.parametrize("name", scaled_calls())
def test_scaled_products_in_eager_mode(scaled, name):
    contract, call = scaled_calls()[name]
    x = drawn((M, K), torch.float32)
    expected = call(x)
    with scaled.override_aten() as override:
        found = [call(x) for _ in range(2)]
    ((_, told),) = override.report.replaced
    assert told == contract and not override.report.kept
    torch.testing.assert_close(found, [expected] * 2)


@pytest.mark.parametrize("name", scaled_calls())
def test_scaled_products_of_a_graph(scaled, name):
    contract, call = scaled_calls()[name]
    x = drawn((M, K), torch.float32)
    with scaled.inductor.install() as installed:
        found = compiled(call)(x)
    ((_, told),) = installed.report.replaced
    assert told == contract and not installed.report.kept
    torch.testing.assert_close(found, call(x))
