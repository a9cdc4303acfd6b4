"""Graphs of torch.compile whose products a family computes: `inductor.install`."""

import logging
from pathlib import Path

import pytest
import torch
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx, config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import decompositions, fast_random_decomps
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.virtualized import V
from torch.nn import functional

from tests.helpers.emit.calls import drawn
from tests.helpers.support import ROOT, python, spec

INVARIANT = spec(
    "layout: [rcr, rrr]; dtype: fp32; batch: [none, strided]; epilogue: [none, bias]; load: pointer; "
    "invariant: rows; with: inductor; tile: [{m: 16, n: 16, k: 32, warps: 1}]; "
    'exclude: [{batch: strided, epilogue: bias, because: "no batch has one"}]'
)
SPEC = spec(
    "layout: [rcr, rrr]; dtype: [fp16, fp32]; batch: [none, strided]; with: inductor; epilogue: [none, bias, add, "
    "bias+relu, bias+gelu_tanh, silu+mul, swiglu, scale, bias+scale_n+tanh, [{clamp: {min: 0, max: 6}}]]; "
    "rounding: [late, torch]; load: pointer; tile: [{m: 16, n: 16, k: 32, warps: 1}]; exclude: ["
    "{batch: strided, epilogue: [add, bias+relu, bias+gelu_tanh, silu+mul, swiglu, bias+scale_n+tanh], because: one}, "
    "{layout: rrr, epilogue: [add, bias+relu, bias+gelu_tanh, silu+mul, swiglu, bias+scale_n+tanh], because: one}]"
)
N, K = 24, 32


def graphs_only(graph, inputs):
    """A backend that runs the graphs that Inductor would compile, after its passes: C++ takes seconds for each."""

    def inner(graph, inputs, **options):
        values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        with V.set_fake_mode(detect_fake_mode(values)):
            view_to_reshape(graph)
            compile_fx._recursive_post_grad_passes(graph, is_inference=bool(options.get("is_inference")))
        graph.recompile()
        return graph

    return compile_fx.compile_fx(graph, inputs, inner_compile=inner)


def compiled(model, **options):
    return torch.compile(model, backend=graphs_only, **options)


@pytest.fixture(autouse=True)
def undone():
    """Every test leaves Inductor's options as they were."""
    before = config.post_grad_custom_pre_pass
    with config.patch(force_disable_caches=True):
        yield
    assert config.post_grad_custom_pre_pass is before is None


def weights(dtype):
    shapes = {"w": (N, K), "v": (N, K), "back": (K, N), "wide": (2 * N, K)}
    found = {name: drawn(shape, dtype, seed=at) / 4 for at, (name, shape) in enumerate(shapes.items())}
    return {**found, "bias": drawn((N,), dtype, seed=9), "vector": drawn((N,), dtype, seed=10)}


def models(dtype):
    """What a model writes, and the chains of the contracts that compute its products."""
    given = weights(dtype)
    w, v, back, wide, bias, vector = given.values()
    linear = functional.linear

    def parts(x):
        both = linear(x, wide)
        return functional.silu(both[..., :N]) * both[..., N:]

    def exchanged(x):
        gate, up = linear(x, wide).chunk(2, dim=-1)
        return torch.relu(gate) * functional.silu(up)

    def chunks(x):
        gate, up = linear(x, wide).chunk(2, dim=-1)
        return functional.silu(gate) * up

    return {
        "with a bias": (lambda x: linear(x, w, bias), ["bias"]),
        "a bias that is added apart": (lambda x: x @ w.T + bias, ["bias"]),
        "a residual": (lambda x: x + linear(linear(x, w), back), ["none", "add"]),
        "relu": (lambda x: torch.relu(linear(x, w, bias)), ["bias_relu"]),
        "gelu": (lambda x: functional.gelu(linear(x, w, bias), approximate="tanh"), ["bias_gelutanh"]),
        "a gate of two layers": (lambda x: functional.silu(linear(x, w)) * linear(x, v), ["silu_mul", "none"]),
        "its factors exchanged": (lambda x: linear(x, v) * functional.silu(linear(x, w)), ["silu_mul", "none"]),
        "a gate of one layer": (chunks, ["swiglu"]),
        "a gate of slices": (parts, ["swiglu"]),
        "clamp": (lambda x: linear(x, w).clamp(0, 6), ["clamp_0_min_6_max"]),
        "relu6": (lambda x: functional.relu6(linear(x, w)), ["clamp_0_min_6_max"]),
        "a number": (lambda x: linear(x, w) * 0.25, ["scale"]),
        "three operations": (lambda x: torch.tanh(linear(x, w, bias) * vector), ["bias_scalen_tanh"]),
        "attention": (lambda x: (x @ x.mT) * 0.125, ["scale"]),
        # What no contract has as it is: its product is replaced alone.
        "another clamp": (lambda x: linear(x, w).clamp(0, 5), ["none"]),
        "another gelu": (lambda x: functional.gelu(linear(x, w, bias)), ["bias"]),
        "a gate of exchanged halves": (exchanged, ["none"]),
        "a value that is read again": (lambda x: (torch.relu(y := linear(x, w, bias)), y), ["bias"]),
        "a row that is repeated": (lambda x: linear(x[:1], w) + x[..., :1], ["none"]),
        "a column": (lambda x: linear(x, w) + x[..., :1], ["none"]),
        "another result type": (lambda x: linear(x, w).double() + bias, ["none"]),
    }


NAMES = [*models(torch.float32)]


def chains(report):
    found = [contract.split("_", 3)[3] for (_, contract), count in report.replaced.items() for _ in range(count)]
    return sorted(name.removesuffix("_roundingtorch") for name in found)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_has_the_contracts_operators_and_their_values(family, launches, name):
    model, expected = models(torch.float16)[name]
    x = drawn((2, 5, K), torch.float16, seed=20)
    wanted = model(x)
    with family.inductor.install() as installed:
        found = compiled(model)(x)
    assert chains(installed.report) == sorted(expected) and not installed.report.kept, str(installed)
    assert len(launches) == len(expected)
    if name == "a value that is read again":
        assert str(installed) == (
            "replaced: 1\n  1 addmm: gemm_fp16_rcr_bias\nleft to torch: 0\nreplaced without what follows: 1\n"
            "  1 addmm: gemm_fp16_rcr_bias_relu: a value on the way is used elsewhere, too"
        )
    for one, other in zip(*([y if isinstance(y, tuple) else (y,) for y in (found, wanted)]), strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_inductors_code_calls_the_operators(family, launches, dtype):
    every = models(dtype)
    chosen = [
        every[name] for name in ("a residual", "a gate of two layers", "a gate of one layer", "gelu", "attention")
    ]
    x = drawn((2, 5, K), dtype, seed=20)
    with family.inductor.install() as installed:
        found = torch.compile(lambda x: [model(x) for model, _ in chosen])(x)
    expected = sorted(chain for _, chains in chosen for chain in chains)
    # The layers of which two models have the same are computed once.
    assert {*chains(installed.report)} == {*expected} and len(launches) == sum(installed.report.replaced.values())
    for y, (model, _) in zip(found, chosen, strict=True):
        torch.testing.assert_close(y, model(x), rtol=1e-2, atol=1e-2)


def test_with_the_rounding_of_torch_the_bits_are_those_of_eager_mode(family):
    """Where the sum of a product is exact: of small whole numbers."""
    w, v, wide = (
        drawn(shape, torch.float32, seed=at).round().half() for at, shape in enumerate([(N, K)] * 2 + [(2 * N, K)])
    )
    x, bias = drawn((3, 7, K), torch.float32, seed=20).round().half(), drawn((N,), torch.float16, seed=9)

    def gate(x):
        up = (x @ wide.T).chunk(2, -1)
        return functional.silu(x @ w.T) * (x @ v.T), torch.relu(x @ w.T + bias), functional.silu(up[0]) * up[1]

    with config.patch(emulate_precision_casts=True), family.inductor.install("torch") as installed:
        found = compiled(gate)(x)
    told = {contract for _, contract in installed.report.replaced}
    assert told == {f"gemm_fp16_rcr_{chain}" for chain in ("silu_mul_roundingtorch", "bias_relu_roundingtorch", "none")}
    wanted = gate(x)
    assert torch.equal(found[1], wanted[1])
    # Torch rounds within a gate, which is one operation of a contract. Exponential functions differ in fp32.
    assert all((one == other).float().mean() > 0.98 for one, other in zip(found, wanted))
    # `addmm` adds in fp32, which no chain that rounds on the way does.
    torch._dynamo.reset()
    with family.inductor.install("torch") as installed:
        compiled(lambda x: torch.relu(functional.linear(x, w, bias)))(x)
    assert installed.report.replaced == {("addmm", "gemm_fp16_rcr_bias"): 1}
    with pytest.raises(ValueError, match="rounding must be one of late, torch, got 'early'"):
        family.inductor.install("early")


def test_sizes_that_change_share_a_graph(family, launches):
    model, expected = models(torch.float16)["a gate of two layers"]
    with family.inductor.install() as installed:
        call = compiled(model, dynamic=True)
        for rows in (5, 8, 31):
            x = drawn((2, rows, K), torch.float16, seed=rows)
            launches.clear()
            with torch.compiler.set_stance("default" if rows == 5 else "fail_on_recompile"):
                torch.testing.assert_close(call(x), model(x), rtol=1e-2, atol=1e-2)
            assert len(launches) == 2
    assert chains(installed.report) == sorted(expected)


def test_a_backward_pass_is_replaced_too(family):
    """What it reads of the forward pass stays in the graph, so that a chain is left apart there, with its reason."""
    layer = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.Tanh(), torch.nn.Linear(N, K))
    x = drawn((6, K), torch.float32)
    expected = torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()])
    with family.inductor.install() as installed:
        found = torch.autograd.grad(compiled(layer)(x).square().sum(), [*layer.parameters()])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert installed.report.replaced["addmm", "gemm_fp32_rcr_bias"] == 2
    assert installed.report.replaced["mm", "gemm_fp32_rrr_none"] == 1
    # The gradients of weights have a column-major A.
    assert installed.report.kept == {("mm", "no contract has the layout crr; this type has rcr, rrr"): 2}


def test_what_no_contract_fits_stays(family, launches):
    x, w = drawn((6, K), torch.float32), weights(torch.float32)["w"]
    calls = {
        "no contract multiplies float64 by float64 to float64": lambda x: x.double() @ w.double().T,
        "beta is 2": lambda x: torch.addmm(w[0, :N], x, w.T, beta=2),
        "alpha is 0, with which torch reads neither A nor B": lambda x: torch.addmm(w[0, :N], x / 0, w.T, alpha=0),
        "no contract has the layout crr; this type has rcr, rrr": lambda x: x.T @ x,
    }
    for reason, model in calls.items():
        torch._dynamo.reset()
        with family.inductor.install() as installed:
            found = compiled(model)(x)
        ((_, told),) = installed.report.kept
        assert told == reason and not installed.report.replaced and not launches
        torch.testing.assert_close(found, model(x))


def test_what_no_operand_may_be_is_added_behind(family, caplog):
    """Torch logs the error of a call that it makes with fake tensors."""
    logging.getLogger("torch._subclasses.fake_tensor").addHandler(caplog.handler)
    x, w = drawn((6, K), torch.float32), weights(torch.float32)["w"]
    with family.inductor.install() as installed:
        found = compiled(model := lambda x: x @ w.T + torch.arange(N))(x)
    torch.testing.assert_close(found, model(x))
    assert [*installed.report.replaced] == [("mm", "gemm_fp32_rcr_none")]
    assert not [x for x in caplog.records if x.levelname == "ERROR"]


def test_kernels_that_need_multiples_or_aligned_operands_are_not_taken(render):
    """A graph serves any number of rows, and operands wherever they begin."""
    plain = "summary: x\nlayout: rcr\ndtype: fp16\nwith: inductor\ntile: [{m: 16, n: 16, k: 16, warps: 1}]\n"
    weight = drawn((N, 40), torch.float16)
    for name, more, reason in (
        ("compiling_multiples", "load: pointer\nmasking: none\n", "N: BLOCK_N needs multiples of 16, got 24"),
        ("compiling_aligned", "load: descriptor\n", "descriptors need operands that are aligned"),
    ):
        torch._dynamo.reset()
        family = render(name, plain + more)
        with family.inductor.install() as installed:
            found = compiled(lambda x: x @ weight.T)(drawn((16, 40), torch.float16))
        assert found.shape == (16, N)
        ((_, told),) = installed.report.kept
        assert reason in told and not installed.report.replaced


class Counted(CustomGraphPass):
    """A pass of somebody else, with a name for Inductor's cache."""

    seen = 0

    def __call__(self, graph):
        self.seen += 1

    def uuid(self):
        return "theirs"


def test_passes_are_composed_and_removed_in_any_order(family, render):
    other = render("compiling_too", SPEC.replace("[fp16, fp32]", "fp16"))
    x, w = drawn((6, K), torch.float32), weights(torch.float32)["w"]

    def replaced():
        torch._dynamo.reset()
        for each in (first, second):
            each.report.clear()
        half, whole = compiled(lambda x: (x.half() @ w.half().T, x @ w.T))(x)
        assert half.shape == whole.shape == (6, N)
        return [sum(each.report.replaced.values()) for each in (first, second)]

    theirs = Counted()
    with config.patch(post_grad_custom_pre_pass=theirs):
        first, second = family.inductor.install(), other.inductor.install()
        assert first.uuid() != second.uuid() and "theirs" in str(second.uuid())
        # Those that were installed before come first.
        assert replaced() == [2, 0] and theirs.seen == 1
        first.remove()
        assert replaced() == [0, 1] and theirs.seen == 2
        first.remove()
        assert config.post_grad_custom_pre_pass is second
        second.remove()
        assert config.post_grad_custom_pre_pass is theirs and replaced() == [0, 0]
        # A pass without a name for the cache, of which several may be given, and one that comes after a family's.
        with config.patch(post_grad_custom_pre_pass=lambda graph: None):
            assert family.inductor.install().uuid() is None
            config.post_grad_custom_pre_pass = second = Counted()
            second.report = first.report
    with pytest.raises(KeyError), family.inductor.install() as first, family.inductor.install() as again:
        with again:
            assert again.installed
        assert again.installed and config.post_grad_custom_pre_pass is again
        raise KeyError
    assert config.post_grad_custom_pre_pass is None and not first.installed


def test_the_cache_keeps_graphs_apart(family, tmp_path):
    """A process with the pass does not take the graph of one without it, and a later one takes that of the first."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(family.__path__[0]).parent)!r})
import torch, of_graph_pass as compiling
assert "torch._inductor" not in sys.modules
from torch._dynamo.utils import counters
torch.manual_seed(0)
w, x = torch.randn(24, 32), torch.randn(6, 32)
call = lambda x: torch.relu(x @ w.T)
if sys.argv[1] == "installed":
    installed = compiling.inductor.install()
found = torch.compile(call)(x)
assert torch.allclose(found, call(x), atol=1e-5)
hits = counters["inductor"]["fxgraph_cache_hit"]
print(hits, sum(installed.report.replaced.values()) if sys.argv[1] == "installed" else 0)
"""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    told = []
    for how in ("plain", "installed", "installed", "plain"):
        ran = python("-c", code, how, cwd=tmp_path, env=env)
        assert ran.returncode == 0, ran.stderr
        told.append(ran.stdout.split())
    assert told == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "0"]]


SELECTED, WEIGHT, SQUARE = torch.arange(20) % 2 == 0, drawn((N, K), torch.float32), drawn((K, K), torch.float32, seed=3)


def _narrowed(x, length):
    count = length.item()
    torch._check(count >= 0)
    torch._check(count <= 20)
    return functional.linear(x.narrow(0, 0, count), WEIGHT)


#: Products of sizes that only the run knows, each with a mask of the rows of `x` (20, K).
AT_RUN_TIME = {
    "a chain": lambda x, mask: functional.linear(x[mask], WEIGHT, WEIGHT[:, 0]).relu(),
    "three dimensions": lambda x, mask: functional.linear(x[mask].view(-1, 2, K), WEIGHT),
    "a matrix that is added": lambda x, mask: torch.addmm(x[mask], x[mask], SQUARE),
    "a batch of them": lambda x, mask: torch.bmm(x[mask][:, None], SQUARE.expand(x[mask].shape[0], K, K)),
    "K": lambda x, mask: x.T[:, mask] @ x[mask],
    "both": lambda x, mask: x[mask] @ x[mask].T,
    "item": lambda x, mask: _narrowed(x, mask.sum()),
}


# Torch alone does not compile the gradient of a K that only the run knows.
@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_a_size_that_only_the_run_knows_ends_no_compilation(family, name, recording):
    recording &= name != "K"
    x = drawn((20, K), torch.float32, seed=4).requires_grad_(recording)
    options = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**options), family.inductor.install() as installed:
        found = compiled(AT_RUN_TIME[name], fullgraph=True)(x, SELECTED)
        expected = AT_RUN_TIME[name](x, SELECTED)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
        if recording and expected.requires_grad:
            ours, theirs = (torch.autograd.grad(each.square().sum(), x)[0] for each in (found, expected))
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-2)
    assert installed.report.replaced or installed.report.kept


def test_a_fault_of_the_pass_leaves_the_product_to_torch(family, monkeypatch):
    x = drawn((5, K), torch.float32)
    with family.inductor.install() as installed:
        monkeypatch.setattr(installed, "_search", lambda *given, **options: 1 / 0)
        torch.testing.assert_close(compiled(functional.linear)(x, WEIGHT), functional.linear(x, WEIGHT))
    assert list(installed.report.kept) == [("mm", "ZeroDivisionError: division by zero")]


def test_products_of_one_row_are_kept_whole_where_rows_are_alike(family, render):
    alike = render("alike_in_graphs", INVARIANT)
    tables = decompositions, fast_random_decomps()
    before = [dict(table) for table in tables]
    x, bias = drawn((9, 16), torch.float32), drawn((16,), torch.float32, seed=2)
    weight = drawn((16, 16), torch.float32, seed=1)
    models = {
        "linear": lambda x: functional.linear(x, weight, bias),
        "mm": lambda x: x @ weight,
        "bmm": lambda x: torch.bmm(x[None], weight[None])[0],
        "one column": lambda x: x @ weight[:, :1],
    }
    for name, model in models.items():
        results = []
        for rows in (9, 1):
            torch._dynamo.reset()
            with alike.inductor.install() as installed, alike.inductor.install():
                results.append(compiled(model)(x[:rows]))
            assert installed.report.replaced.total() == 1 and not installed.report.kept, name
        assert torch.equal(results[0][:1], results[1]), name
    assert [dict(table) for table in tables] == before
    with family.inductor.install():
        assert [dict(table) for table in tables] == before
