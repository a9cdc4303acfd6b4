"""What torch does with functions: compiles, exports, counts and saves them, at sizes it does not know, over a batch."""

import gc
import importlib
import io
import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.emit.calls import contracts, drawn, operands, random, results
from tests.helpers.support import ROOT, forget, python, render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: [fp16, bf16]; batch: [none, strided]; "
    "epilogue: [none, scale+bias, bias+save+gelu+row_sum, bias+swiglu]; load: pointer; backward: kernels; "
    "exclude: [{batch: strided, epilogue: bias+swiglu, because: not needed here}]"
)
PLAIN, CHAIN, OUTPUTS = "gemm_fp16_rcr_none", "gemm_fp16_rcr_scale_bias", "gemm_fp16_rcr_bias_save_gelu_rowsum"


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def test_every_contract_is_one_operator_in_one_graph(family, launches):
    variants = contracts(family)
    assert len(variants) > 15
    for name, variant in variants.items():
        torch._dynamo.reset()
        given = operands(variant)
        expected = results(getattr(family, name)(**{x: value.clone() for x, value in given.items()}))
        launches.clear()
        found = results(compiled(lambda given, name=name: getattr(family, name)(**given))(given))
        assert launches == ["gemm_kernel"]
        for x, y in zip(found, expected, strict=True):
            assert torch.equal(x, y) and x.stride() == y.stride(), name


def test_the_first_call_of_a_family_may_be_traced(render):
    """With a gradient, and under autocast: both call other contracts of the family, which nothing has imported."""
    text = "summary: x\nlayout: rcr\ndtype: [fp32, bf16]\nepilogue: [none, gelu]\nload: pointer\nbackward: kernels\n"
    name = "gemm_fp32_rcr_gelu"
    trained, cast = (render(each, text) for each in ("firsttrained", "firstcast"))
    given = operands(contracts(trained)[name])
    given["a"].requires_grad_()
    compiled(lambda given: getattr(trained, name)(**given))(given).sum().backward()
    assert given["a"].grad is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = compiled(lambda a, b: getattr(cast, name)(a, b))(given["a"].detach(), given["b"])
    assert found.dtype == torch.bfloat16


def test_a_number_may_change_and_accumulation_adds(render):
    name = "gemm_fp16_rcr_accumulate"
    family = render("adding", "summary: x\nlayout: rcr\ndtype: fp16\nepilogue: accumulate\nload: pointer\n")
    given = operands(contracts(family)[name])
    call = torch.compile(
        lambda given, out, beta: getattr(family, name)(**given, out=out, beta=beta), backend="aot_eager"
    )
    product = {x: given[x] for x in "ab"}
    for beta in (2.0, 0.5, 2.0, torch.tensor(2.0), torch.tensor(3.0)):
        ours, theirs = given["out"].clone(), given["out"].clone()
        assert call(product, ours, beta) is ours
        getattr(family, name)(**product, out=theirs, beta=beta)
        assert torch.equal(ours, theirs)


def test_vmap_and_a_gradient_are_compiled(family):
    batch = operands(contracts(family)["bmm_fp16_rcr_none"])
    mapped = torch.vmap(getattr(family, PLAIN))
    assert torch.equal(compiled(mapped)(batch["a"], batch["b"]), mapped(batch["a"], batch["b"]))
    for name in (PLAIN, CHAIN, OUTPUTS, "gemm_fp16_rcr_bias_swiglu"):
        given = {x: value.requires_grad_() for x, value in operands(contracts(family)[name]).items()}

        def loss(given, name=name):
            return sum((x.float() ** 2).sum() for x in results(getattr(family, name)(**given)))

        expected = torch.autograd.grad(loss(given), [*given.values()])
        found = torch.autograd.grad(compiled(loss)(given), [*given.values()])
        assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True)), name


class Layer(torch.nn.Module):
    """A layer over a contract."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(drawn((24, 33), torch.float16), requires_grad=False)

    def forward(self, x, bias):
        return self.function(x, self.weight.mT, scale=0.5, bias=bias) + 1


LOADED = """\
import json, sys
import torch
import {name} as family
if json.loads(sys.argv[2]):
    family.register_operators()
x, bias, expected, gradient = torch.load(sys.argv[1] + "/tensors.pt")
try:
    program = torch.export.load(sys.argv[1] + "/program.pt2").module()
    found = program(x.requires_grad_(), bias)
    found.sum().backward()
    told = [torch.equal(found, expected), torch.equal(x.grad, gradient)]
except Exception as error:
    told = str(error)
print(json.dumps(told))
"""


def test_a_new_process_loads_a_saved_program_after_registering(family, tmp_path):
    layer, bias = Layer(getattr(family, CHAIN)), drawn((24,), torch.float32)
    x = drawn((20, 33), torch.float16).requires_grad_()
    expected = layer(x, bias)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    program = torch.export.export(layer, (x, bias), dynamic_shapes=({0: torch.export.Dim("rows")}, None))
    torch.export.save(program, tmp_path / "program.pt2")
    torch.save((x.detach(), bias, expected.detach(), gradient), tmp_path / "tensors.pt")
    path = os.pathsep.join([str(Path(family.__path__[0]).parent), str(ROOT)])
    code = LOADED.format(name=family.__name__)
    for registered in (True, False):
        ran = python("-c", code, tmp_path, json.dumps(registered), cwd=tmp_path, env={"PYTHONPATH": path})
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        if registered:
            assert told == [True, True]
        else:
            assert isinstance(told, str) and family._GRADIENTS[CHAIN]["saving"] in ran.stderr


def counted(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", [PLAIN, CHAIN, "bmm_fp16_rcr_none", "gemm_fp16_rcr_bias_swiglu"])
def test_a_call_counts_as_its_product(family, name):
    """The first call as every other one, which returns new results or fills `out`."""
    given = operands(contracts(family)[name])
    function, product = getattr(family, name), counted(lambda: given["a"] @ given["b"])
    assert product > 0
    assert [counted(lambda: function(**given)) for _ in range(2)] == [product] * 2
    out = function(**given)
    assert counted(lambda: function(**given, out=out)) == product


@pytest.mark.parametrize("chain", ["none", "scale_bias", "bias_swiglu"])
def test_a_backward_pass_counts_as_its_products(render, chain):
    """Also where the counter was made before any operator was registered."""
    family = render(f"countedback{chain}", SPEC)
    name = f"gemm_fp16_rcr_{chain}"
    given = {x: value.requires_grad_() for x, value in operands(contracts(family)[name]).items()}
    forward = counted(lambda: given["a"].detach() @ given["b"].detach())
    expected = counted(lambda: (given["a"] @ given["b"]).sum().backward())
    assert expected == 3 * forward
    found = counted(lambda: results(getattr(family, name)(**given))[0].sum().backward())
    assert found == expected
    needed = {**given, "b": given["b"].detach()}
    assert counted(lambda: getattr(family, name)(**needed).sum().backward()) == 2 * forward


MODES = spec(
    "layout: rcr; dtype: fp32; batch: [none, grouped]; epilogue: [none, bias, [scale_m, bias_m], [scale, add]]; "
    "load: pointer; backward: kernels; "
    'exclude: [{batch: grouped, epilogue: [bias, [scale_m, bias_m], [scale, add]], because: "no test calls them"}]'
)
NONE, BIAS, VECTORS, ADD = (f"gemm_fp32_rcr_{chain}" for chain in ("none", "bias", "scalem_biasm", "scale_add"))


@pytest.fixture(scope="module")
def modes(render):
    return render("torch_modes", MODES)


@pytest.fixture(autouse=True)
def any_shape():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


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

#: Calls at sizes that only the data tell: a function of a modes, a mask of nine rows and nothing else.
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
def test_a_size_may_be_known_at_run_time_only(modes, call):
    def traced(mask):
        return AT_RUN_TIME[call](modes, mask)

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
def test_such_sizes_have_gradients(modes, call, monkeypatch):
    found = []
    for compile in (lambda x: x, torch.compile(fullgraph=True, backend="aot_eager")):
        leaves = [x.clone().requires_grad_() for x in (X, V, W, B3)]
        for name, leaf in zip(("X", "V", "W", "B3"), leaves):
            monkeypatch.setitem(globals(), name, leaf)
        if call == "out":
            with pytest.raises(Exception, match="a call that fills tensors it is given records none"):
                compile(lambda mask: AT_RUN_TIME[call](modes, mask))(MASK)
            continue
        result = compile(lambda mask: AT_RUN_TIME[call](modes, mask))(MASK)
        found.append([result, *torch.autograd.grad(result.sum(), leaves, allow_unused=True)])
    for one, other in zip(*found or [(), ()]):
        torch.testing.assert_close(one, other)


def test_functions_are_functionalized(modes):
    functionalize = torch.func.functionalize
    for call in (
        lambda x: getattr(modes, NONE)(x, W.T),
        lambda x: getattr(modes, VECTORS)(x, W.T, scale_m=V, bias_m=V),
        lambda x: modes.gmm_fp32_rcr_none(x, B3.mT, OFFSETS)[:ROWS],
        lambda x: modes.combine(x, INDEX[:, None]),
        modes.nn.Linear(16, 8).requires_grad_(False),
    ):
        torch.testing.assert_close(functionalize(call)(X), call(X))
    with pytest.raises(NotImplementedError, match=f"^{NONE}: torch.func.functionalize .* call it without `out`"):
        functionalize(lambda x: getattr(modes, NONE)(x, W.T, out=torch.empty(9, 8)))(X)


@pytest.mark.parametrize("name", [NONE, BIAS])
def test_the_backward_pass_itself_is_compiled(modes, name):
    x, given = random(4, 16).requires_grad_(), {} if name == NONE else {"bias": random(8).requires_grad_()}

    def gradient():
        x.grad = None
        with torch._dynamo.utils.maybe_enable_compiled_autograd(True, fullgraph=True, dynamic=False):
            getattr(modes, name)(x, W.T, **given).sum().backward()
        assert x.grad is not None
        return x.grad

    torch.testing.assert_close(gradient(), W.sum(0).expand(4, 16))


@pytest.mark.parametrize("name", [NONE, BIAS])
def test_a_jacobian_is_computed_at_once(modes, name):
    x, bias = random(3, 16), random(8)

    def ours(x, bias):
        given = {} if name == NONE else {"bias": bias}
        return getattr(modes, name)(x, W.T, **given) + bias * (name == NONE)

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
    imported("again", MODES)

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


def test_what_records_no_operators_is_told(modes):
    def call(x):
        return getattr(modes, NONE)(x, W.T)

    for traced, name in ((call, NONE), (modes.nn.Linear(16, 8), BIAS)):
        told = f"{name}: torch.jit.trace does not record it; use torch.export"
        with torch.no_grad(), pytest.raises(NotImplementedError, match=told):
            torch.jit.trace(traced, (X,))
    with pytest.raises(NotImplementedError, match=r"script does not compile .*\.nn\.Linear; use torch.export"):
        torch.jit.script(modes.nn.Linear(8, 8))
    with pytest.raises(TypeError, match=f"{NONE}: a must be a torch.Tensor, got Proxy"):
        torch.fx.symbolic_trace(call)
