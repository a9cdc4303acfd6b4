"""What torch does with functions besides calling them: saves, traces at sizes it does not know, loops over a batch."""

import gc
import importlib
import io
import pickle

import pytest
import torch

from tests.helpers.support import forget, python, render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, grouped]; epilogue: [none, bias, [scale_m, bias_m], [scale, add]]; "
    "load: pointer; backward: kernels; "
    'exclude: [{batch: grouped, epilogue: [bias, [scale_m, bias_m], [scale, add]], because: "no test calls them"}]'
)
NONE, BIAS, VECTORS, ADD = (f"gemm_fp32_rcr_{chain}" for chain in ("none", "bias", "scalem_biasm", "scale_add"))


@pytest.fixture(autouse=True)
def any_shape():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


def random(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Renders a spec and imports the family by its name, as a program does: `imported(name, text)`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def family(name, text):
        render_spec(tmp_path, name, text)
        return importlib.import_module(name)

    return family


@pytest.mark.parametrize("package", ["torch", "plain"])
def test_a_function_is_pickled_by_its_name(imported, package, tmp_path):
    name = f"pickled_{package}"
    spec = f"summary: To pickle.\nlayout: rcr\ndtype: fp32\nepilogue: bias\nload: pointer\npackage: {package}\n"
    function = imported(name, spec).gemm_fp32_rcr_bias
    assert function.__module__ == name and pickle.loads(pickle.dumps(function)) is function
    file = io.BytesIO()
    model = torch.nn.Sequential()
    model.product = function
    torch.save(model, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).product is function
    (tmp_path / "function.pickle").write_bytes(pickle.dumps(function))
    code = "import pickle; print(pickle.load(open('function.pickle', 'rb')).__name__)"
    worker = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert worker.stdout == "gemm_fp32_rcr_bias\n", worker.stderr


X, V, W, B3 = random(9, 16), random(9), random(8, 16), random(2, 8, 16)
MASK = torch.arange(9) % 2 == 0
OFFSETS, INDEX = torch.tensor([2, 5], dtype=torch.int32), torch.arange(9, dtype=torch.int32)
#: The rows of groups, of which the others are in none and have no values.
ROWS = 5

#: Calls at sizes that only the data tell: a function of a family, a mask of nine rows and nothing else.
AT_RUN_TIME = {
    "rows": lambda of, mask: getattr(of, NONE)(X[mask], W.T),
    "vectors of rows": lambda of, mask: getattr(of, VECTORS)(X[mask], W.T, scale_m=V[mask], bias_m=-V[mask]),
    "a matrix that is added": lambda of, mask: getattr(of, ADD)(X[mask], W.T, scale=0.5, add=X[mask][:, :8]),
    "columns": lambda of, mask: getattr(of, BIAS)(X, X[mask].T, bias=V[mask]),
    "K": lambda of, mask: getattr(of, NONE)(X.T[:, mask], X.T[:8, mask].T),
    "out": lambda of, mask: getattr(of, NONE)(X[mask], W.T, out=X[mask].new_empty(X[mask].shape[0], 8)),
    "rows of groups": lambda of, mask: of.gmm_fp32_rcr_none(X[mask], B3.mT, OFFSETS)[:ROWS],
    "named rows of groups": lambda of, mask: of.gmm_fp32_rcr_none(X, B3.mT, OFFSETS, rows=INDEX[mask])[:ROWS],
    "groups": lambda of, mask: of.gmm_fp32_rcr_none(X, X[mask][:, None, :].mT, INDEX[mask])[:ROWS],
    "scattered rows of groups": lambda of, mask: of.gmm_fp32_rcr_none(
        X, B3.mT, OFFSETS, rows=INDEX[mask], scatter=INDEX[mask], out=X.new_zeros(12, 8)[torch.arange(12) < 9]
    ),
}


@pytest.mark.parametrize("call", AT_RUN_TIME)
def test_a_size_may_be_known_at_run_time_only(family, call):
    def traced(mask):
        return AT_RUN_TIME[call](family, mask)

    class Exported(torch.nn.Module):
        def forward(self, mask):
            return traced(mask)

    with torch.no_grad():
        compiled = torch.compile(traced, fullgraph=True, backend="aot_eager")
        program = torch.export.export(Exported(), (MASK,))
        for mask in (MASK, torch.arange(9) < 7):
            expected = traced(mask)
            torch.testing.assert_close(compiled(mask), expected)
            torch.testing.assert_close(program.module()(mask), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("call", AT_RUN_TIME)
def test_such_sizes_have_gradients(family, call, monkeypatch):
    found = []
    for compile in (lambda x: x, torch.compile(fullgraph=True, backend="aot_eager")):
        leaves = [x.clone().requires_grad_() for x in (X, V, W, B3)]
        for name, leaf in zip(("X", "V", "W", "B3"), leaves):
            monkeypatch.setitem(globals(), name, leaf)
        if call == "out":
            with pytest.raises(Exception, match="a call that fills tensors it is given records none"):
                compile(lambda mask: AT_RUN_TIME[call](family, mask))(MASK)
            continue
        result = compile(lambda mask: AT_RUN_TIME[call](family, mask))(MASK)
        found.append([result, *torch.autograd.grad(result.sum(), leaves, allow_unused=True)])
    for one, other in zip(*found or [(), ()]):
        torch.testing.assert_close(one, other)


def test_functions_are_functionalized(family):
    functionalize = torch.func.functionalize
    for call in (
        lambda x: getattr(family, NONE)(x, W.T),
        lambda x: getattr(family, VECTORS)(x, W.T, scale_m=V, bias_m=V),
        lambda x: family.gmm_fp32_rcr_none(x, B3.mT, OFFSETS)[:ROWS],
        lambda x: family.combine(x, INDEX[:, None]),
        family.nn.Linear(16, 8).requires_grad_(False),
    ):
        torch.testing.assert_close(functionalize(call)(X), call(X))
    with pytest.raises(NotImplementedError, match=f"^{NONE}: torch.func.functionalize .* call it without `out`"):
        functionalize(lambda x: getattr(family, NONE)(x, W.T, out=torch.empty(9, 8)))(X)


@pytest.mark.parametrize("name", [NONE, BIAS])
def test_the_backward_pass_itself_is_compiled(family, name):
    x, given = random(4, 16).requires_grad_(), {} if name == NONE else {"bias": random(8).requires_grad_()}

    def gradient():
        x.grad = None
        with torch._dynamo.utils.maybe_enable_compiled_autograd(True, fullgraph=True, dynamic=False):
            getattr(family, name)(x, W.T, **given).sum().backward()
        assert x.grad is not None
        return x.grad

    torch.testing.assert_close(gradient(), W.sum(0).expand(4, 16))


@pytest.mark.parametrize("name", [NONE, BIAS])
def test_a_jacobian_is_computed_at_once(family, name):
    x, bias = random(3, 16), random(8)

    def ours(x, bias):
        given = {} if name == NONE else {"bias": bias}
        return getattr(family, name)(x, W.T, **given) + bias * (name == NONE)

    def theirs(x, bias):
        return torch.nn.functional.linear(x, W, bias)

    jacobian = torch.autograd.functional.jacobian
    expected = jacobian(theirs, (x, bias))
    torch.testing.assert_close(jacobian(ours, (x, bias), vectorize=True), expected)
    x.requires_grad_(), bias.requires_grad_()
    found, each = ours(x, bias), torch.eye(24).reshape(24, 3, 8)
    at_once = torch.autograd.grad(found, (x, bias), each, is_grads_batched=True, retain_graph=True)
    mapped = torch.vmap(lambda grad: torch.autograd.grad(found, (x, bias), grad, retain_graph=True))(each)
    for made in (at_once, mapped):
        shaped = [one.reshape(3, 8, *one.shape[1:]) for one in made]
        torch.testing.assert_close(shaped, [*expected])


def test_a_family_is_imported_again(imported):
    imported("again", SPEC)

    def result():
        forget("again")
        family = importlib.import_module("again")
        x = X.clone().requires_grad_()
        getattr(family, BIAS)(x, W.T, bias=W[:, 0].contiguous()).sum().backward()
        assert x.grad is not None
        return family, x.grad

    first, expected = result()
    second, found = result()
    assert first is not second
    torch.testing.assert_close(found, expected)
    del first, second
    gc.collect()
    torch.testing.assert_close(result()[1], expected)


def test_what_records_no_operators_is_told(family):
    def call(x):
        return getattr(family, NONE)(x, W.T)

    for traced, name in ((call, NONE), (family.nn.Linear(16, 8), BIAS)):
        told = f"{name}: torch.jit.trace does not record it; use torch.export"
        with torch.no_grad(), pytest.raises(NotImplementedError, match=told):
            torch.jit.trace(traced, (X,))
    with pytest.raises(NotImplementedError, match=r"script does not compile .*\.nn\.Linear; use torch.export"):
        torch.jit.script(family.nn.Linear(8, 8))
    with pytest.raises(TypeError, match=f"{NONE}: a must be a torch.Tensor, got Proxy"):
        torch.fx.symbolic_trace(call)
