"""Torch's own product among the candidates of the choice: `backends: [triton, aten]`."""

import importlib

import pytest
import torch
from torch._inductor import config as inductor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from generator.emit.loading import library_module
from tests.helpers.emit.calls import drawn
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrc]; dtype: [fp16, fp32]; batch: [none, strided]; epilogue: [none, bias, add, bias+gelu]; "
    "select: fastest; backward: kernels; backends: [triton, aten]; with: [aten, inductor, prepare]; schedule: tiled; "
    "load: pointer; tile: [{m: 16, n: 16, k: 32, warps: 1}]; "
    'exclude: [{batch: strided, epilogue: [bias, bias+gelu], because: "one product is enough"}]'
)
#: Torch's product is the faster one from this number of rows on, and at one measured size below.
ROWS, MEASURED = 16, (5, 24, 64)
N, K = 24, 64


@pytest.fixture(scope="module")
def rendered(render):
    return render("with_aten", SPEC)


@pytest.fixture(autouse=True)
def family(rendered, monkeypatch):
    """The family, with a decision table for the device of the tests."""
    found = rendered._contract("gemm_fp16_rcr_none").choice.aten
    rule = (("M", ROWS, "triton", "aten"),)
    monkeypatch.setattr(found, "rules", {("cpu", name): rule for name in ("gemm_fp16", "gemm_fp32", "bmm_fp16")})
    sizes = {MEASURED: True, (ROWS, N, K): False}
    monkeypatch.setattr(found, "measured", {("cpu", "gemm_fp16_rcr_none"): sizes})
    for name in rendered._KERNELS:
        rendered._contract(name).cached.clear()
    yield rendered


@pytest.fixture
def products():
    """The operators of torch's products that ran."""
    ran = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if function in (torch.mm, torch.addmm, torch.bmm, torch.baddbmm):
                ran.append(function.__name__)
            return function(*arguments, **(options or {}))

    with Seen():
        yield ran


def operands(rows, dtype=torch.float16):
    """A, a column-major B, and a bias."""
    return drawn((rows, K), dtype), drawn((N, K), dtype, seed=1).t(), drawn((N,), dtype, seed=2)


@pytest.mark.parametrize(("rows", "word"), [(5, "aten"), (6, ""), (ROWS, ""), (ROWS + 1, "aten"), (0, ""), (1, "")])
def test_the_table_and_the_rule_decide(family, products, rows, word):
    a, b, bias = operands(rows)
    for function, more in ((family.gemm_fp16_rcr_none, {}), (family.gemm_fp16_rcr_bias, {"bias": bias})):
        products.clear()
        function(a, b, **more, config=0)
        assert not products, "a configuration is one of the kernels"
        name, row = function.which(a, b, **more)
        assert (name, row) == ("aten", {}) if word else "__tiled" in name
        products.clear()
        wanted = a.double() @ b.double() + sum(x.double() for x in more.values())
        for _ in range(2):
            found = function(a, b, **more)
            out = torch.full_like(found, torch.nan)
            assert function(a, b, **more, out=out) is out and torch.equal(out, found)
            torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=1e-2)
        assert bool(products) == bool(word)
    # What torch has no operator for, and what is copied before it is added to, has no candidate.
    assert family.gemm_fp16_rcr_bias_gelu.which(a, b, bias=bias)[0] != "aten"
    assert family.gemm_fp16_rcr_add.which(a, b, add=drawn((rows, N), torch.float16))[0] != "aten"


def test_a_result_by_columns_and_a_batch(family):
    a, b, _ = operands(40)
    for _ in range(2):
        found = family.gemm_fp16_rrc_none(a, b.contiguous())
        assert found.stride() == (1, 40)
        torch.testing.assert_close(found, a @ b, rtol=1e-2, atol=1e-2)
    left, right = drawn((3, 40, K), torch.float16), drawn((3, N, K), torch.float16).mT
    assert family.bmm_fp16_rcr_none.which(left, right) == ("aten", {})
    assert torch.equal(family.bmm_fp16_rcr_none(left, right), torch.bmm(left, right))


def test_wrong_operands_are_refused_as_ever(family):
    a, b, bias = operands(40)
    function = family.gemm_fp16_rcr_bias
    with pytest.raises(ValueError, match="gemm_fp16_rcr_bias: K is 64 in a and 24 in b"):
        function(a, b.t(), bias=bias)
    for _ in range(2):
        with pytest.raises(ValueError, match="out shares memory with a"):
            function(a, b, bias=bias, out=a[:, :N])
        function(a, b, bias=bias, out=torch.empty(40, N, dtype=a.dtype))
    strided = drawn((40, 2 * K), torch.float16)[:, ::2]
    with pytest.raises(ValueError, match="stride 1"):
        function(strided, b, bias=bias)
    padded = drawn((40, K + 8), torch.float16)[:, :K]
    assert function.which(padded, b, bias=bias) == ("aten", {})
    assert torch.equal(function(padded, b, bias=bias), torch.addmm(bias, padded, b))


def test_the_settings_of_torch_hold(family, products):
    a, b, _ = operands(40, torch.float32)
    function, matmul = family.gemm_fp32_rcr_none, torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "ieee"
        assert function.which(a, b) == ("aten", {})
        exact = function(a, b)
        matmul.fp32_precision = "tf32"
        products.clear()
        # The call that is cached is one of fp32.
        torch.testing.assert_close(function(a, b), exact)
        assert not products and function.which(a, b)[0] != "aten"
    finally:
        matmul.fp32_precision = before
    torch.use_deterministic_algorithms(True)
    try:
        assert family.gemm_fp16_rcr_none.which(*operands(40)[:2])[0] != "aten"
    finally:
        torch.use_deterministic_algorithms(False)


_OF_LAYER = ("gemm_fp16_rcr_bias", "gemm_fp16_rrr_none", "gemm_fp16_crr_none")


@pytest.mark.parametrize("of_kernels", [None, *_OF_LAYER])
def test_a_layer_is_torchs_own_where_all_its_products_are(family, monkeypatch, of_kernels):
    """Else each product asks for itself, of which an interpreted family caches those of torch alone."""
    aten = family._contract(_OF_LAYER[0]).choice.aten
    prefers = aten.prefers
    monkeypatch.setattr(aten, "prefers", lambda called, given: called.name != of_kernels and prefers(called, given))
    layer = family.nn.Linear(K, N, dtype=torch.float16)
    # Of other sizes each time: a backward pass is repeated as it ran first.
    x = drawn((2, ROWS + [None, *_OF_LAYER].index(of_kernels), K), torch.float16).requires_grad_()
    for _ in range(2):
        x.grad = None
        found = layer(x)
        torch.testing.assert_close(found, functional.linear(x, layer.weight, layer.bias))
        found.sum().backward()
        torch.testing.assert_close(x.grad, torch.ones_like(found) @ layer.weight, rtol=1e-2, atol=1e-2)
        cached = [name for name in _OF_LAYER if family._contract(name).cached]
        assert cached == [name for name in _OF_LAYER if of_kernels not in (None, name)]
        with torch.no_grad():
            layer(x)
    assert [x is not None for x in layer._left.values()] == [of_kernels is None, of_kernels != _OF_LAYER[0]]
    with pytest.raises(TypeError, match=r"input must be torch\.float16 as weight is"):
        layer(x.float())


def test_a_product_shorter_than_its_call_is_torchs(family, monkeypatch):
    """In layers, and in graphs of Inductor unless the GPU's own graph is made; a function runs what is faster."""
    chosen = family._contract(_OF_LAYER[0]).choice.aten
    monkeypatch.setattr(chosen, "rules", {("cpu", "gemm_fp16"): (("M", ROWS, "triton", "triton"),)})
    layer = family.nn.Linear(K, N, dtype=torch.float16)
    a, b, bias = operands(3)
    products = importlib.import_module(f"{family.__name__}._products").PRODUCTS
    traced = make_fx(lambda a, b, bias: torch.ops.aten.addmm.default(bias, a, b), tracing_mode="fake")
    for least, graphs, ours in ((1e-6, False, False), (1e-6, True, True), (1e-3, False, True)):
        monkeypatch.setattr(library_module(family, "aten_product"), "least_seconds", lambda sizes, a, s=least: s)
        made = library_module(family, "graph_pass").GraphPass(products, family._contract)
        try:
            with inductor.patch({"triton.cudagraphs": graphs}):
                made(traced(a, b, bias).graph)
        finally:
            made.remove()
        assert bool(made.report.replaced) == ours
        layer.to(torch.float16)
        assert torch.equal(layer(a), functional.linear(a, layer.weight, layer.bias)) or least == 1e-3
        assert [x is not None for x in layer._left.values()] == [least < 1e-3]
    assert family.gemm_fp16_rcr_bias.which(a, b, bias=bias)[0] != "aten"


@pytest.mark.parametrize("of_kernels", [None, "gemm_fp16_rrr_none"])
def test_torch_records_a_call_whose_products_are_all_torchs(family, monkeypatch, of_kernels):
    chosen = family._contract(_OF_LAYER[0]).choice.aten
    prefers = chosen.prefers
    monkeypatch.setattr(chosen, "prefers", lambda called, given: called.name != of_kernels and prefers(called, given))
    for name in family._KERNELS:
        getattr(family._contract(name), "torchs", {}).clear()
    a, b, bias = (x.detach().requires_grad_() for x in operands(40))
    for _ in range(2):
        found = family.gemm_fp16_rcr_bias(a, b, bias=bias)
        assert ("Addmm" in type(found.grad_fn).__name__) == (of_kernels is None)
        upstream = drawn((40, N), torch.float16, seed=3)
        grads = torch.autograd.grad(found, [a, b, bias], upstream)
        wanted = torch.autograd.grad(torch.addmm(bias, a, b), [a, b, bias], upstream)
        torch.testing.assert_close(grads, wanted, rtol=1e-2, atol=1e-2)
    for wrong, told in ((b.t(), "K is 64 in a and 24 in b"), (b[0], "b must have two dimensions")):
        with pytest.raises(ValueError, match=f"gemm_fp16_rcr_bias: {told}"):
            family.gemm_fp16_rcr_bias(a, wrong, bias=bias)


def test_overriding_leaves_such_products_to_torch(family):
    with family.override_aten() as override:
        for rows in (40, 7):
            a, b, _ = operands(rows)
            assert torch.equal(torch.mm(a, b), torch.mm(a, b))
    kept = "gemm_fp16_rcr_none: torch's own product is the faster one"
    assert dict(override.report.kept) == {("mm", kept): 2}
    assert dict(override.report.replaced) == {("mm", "gemm_fp16_rcr_none"): 2}
    # These may go on as calls of another contract's function, which reads a row as a column.
    with family.override_aten() as override:
        torch.mm(drawn((1, K), torch.float16), operands(1)[1].contiguous())
        torch.mm(drawn((K, 1), torch.float16).t(), operands(1)[1].contiguous())
    assert not override.report.kept and override.report.replaced.total() == 2


@pytest.mark.parametrize("own", [False, True])
def test_graphs_leave_such_products_to_inductor(family, own):
    """Also those of the family's own operators that compiled layers call: Inductor fuses what follows a product."""
    products = importlib.import_module(f"{family.__name__}._products").PRODUCTS
    made = library_module(family, "graph_pass").GraphPass(products, family._contract)
    called = library_module(family, "operators").operator("gemm_fp16_rcr_bias")

    def layer(a, b, bias):
        return called(a, b, bias, None) if own else torch.ops.aten.addmm.default(bias, a, b)

    try:
        for rows, calls in ((40, torch.ops.aten.addmm.default), (7, called)):
            graph = make_fx(layer, tracing_mode="fake")(*operands(rows)).graph
            made(graph)
            assert [node.target for node in graph.find_nodes(op="call_function", target=calls)] == [calls]
    finally:
        made.remove()
    faster = "torch's own product is the faster one"
    kept = ("gemm_fp16_rcr_bias", faster) if own else ("addmm", f"gemm_fp16_rcr_bias: {faster}")
    assert dict(made.report.kept) == {kept: 1}
    assert dict(made.report.replaced) == ({} if own else {("addmm", "gemm_fp16_rcr_bias"): 1})


def test_a_traced_call_runs_what_its_operator_chooses(family):
    a, b, _ = operands(40)
    compiled = torch.compile(lambda a, b: family.gemm_fp16_rcr_none(a, b).relu(), backend="eager", fullgraph=True)
    assert torch.equal(compiled(a, b), (a @ b).relu())
