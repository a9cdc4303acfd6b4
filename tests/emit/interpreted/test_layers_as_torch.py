"""`nn.Linear` and `nn.replace_linear`: layers take what those of torch take, as they are when they are called."""

import copy
import functools
import io
import pickle
import types
import warnings

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.helpers.emit.calls import random
from tests.helpers.support import spec

#: Nothing that torch's layer does.
WITHOUT_PLAIN = "summary: x\nlayout: rcr\ndtype: fp32\nepilogue: bias+relu\nload: pointer\n"
SPEC = spec(
    "layout: rcr; dtype: [fp32, fp16]; epilogue: [none, bias, bias+relu, bias+swiglu, scale]; load: pointer; "
    "backward: kernels"
)

linear = torch.nn.functional.linear


INPUTS = {
    "transposed": random(32, 6).T,
    "a batch that is transposed": random(2, 32, 6).transpose(1, 2),
    "every second of K": random(6, 64)[:, ::2],
    "an expanded row": random(32).expand(6, 32),
    "an expanded batch": random(1, 6, 32).expand(3, 6, 32),
    "a permuted batch": random(6, 3, 32).permute(1, 0, 2),
    "a column of a batch": random(6, 2, 32)[:, 1],
    "no rows": random(0, 32),
    "rows from the middle": random(9, 40)[2:7, 4:36],
}
WEIGHTS = {
    "(K, N)": random(32, 24).T,
    "every second row": random(48, 32)[::2],
    "every second of K": random(24, 64)[:, ::2],
    "an expanded row": random(1, 32).expand(24, 32),
}


def layer_with(family, weight):
    layer = family.nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight = torch.nn.Parameter(weight)
    return layer


@pytest.mark.parametrize("input", INPUTS)
def test_an_input_is_any_view(family, launches, input):
    layer, x = family.nn.Linear(32, 24), INPUTS[input].clone().requires_grad_()
    x.data = INPUTS[input]
    found, expected = layer(x), linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(found, expected)
    gradient = random(*expected.shape)
    mine = torch.autograd.grad(found, (x, layer.weight, layer.bias), gradient)
    torch.testing.assert_close(mine, torch.autograd.grad(expected, (x, layer.weight, layer.bias), gradient))
    assert launches or not x.numel()


@pytest.mark.parametrize("weight", WEIGHTS)
def test_a_weight_is_any_view(family, launches, weight):
    layer, x = layer_with(family, WEIGHTS[weight]), random(6, 32)
    torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias))
    assert launches == ["gemm_kernel"]


@pytest.mark.parametrize(("K", "N"), [(0, 24), (32, 0), (1, 24), (32, 1), (1, 1)])
def test_a_size_may_be_none_or_one(family, K, N):
    layer, x = layer_with(family, random(N, K)), random(3, 5, K)
    torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias))


def replaced(layer, state):
    for name, value in state.items():
        setattr(layer, name, torch.nn.Parameter(value))


CHANGES = {
    "converted": lambda layer, state: layer.half(),
    "assigned": lambda layer, state: layer.load_state_dict(state, assign=True),
    "replaced": replaced,
    "functional": None,
}


@pytest.mark.parametrize("contract", [None, "gemm_fp32_rcr_bias_relu"])
@pytest.mark.parametrize("how", CHANGES)
def test_the_type_is_that_of_the_weight_at_the_call(family, how, contract):
    layer, x = family.nn.Linear(32, 24, contract=contract), random(6, 32).half()
    state = {name: value.detach().half() for name, value in layer.state_dict().items()}
    if change := CHANGES[how]:
        change(layer, state)
    found = layer(x) if change else torch.func.functional_call(layer, state, (x,))
    expected = linear(x, *state.values())
    assert found.dtype == torch.float16
    torch.testing.assert_close(found, expected if contract is None else expected.relu(), atol=2e-3, rtol=2e-3)
    own = contract or "gemm_fp32_rcr_bias"
    told = f"no contract with the same epilogue as {own} accepts a weight of torch.bfloat16 with bias; this family has"
    with pytest.raises(ValueError, match=told):
        layer.bfloat16()(x.bfloat16())


def test_one_layer_under_several_names_stays_one(family):
    layer = torch.nn.Linear(8, 8)
    model = torch.nn.ModuleDict(
        {"first": layer, "again": layer, "deep": torch.nn.Sequential(torch.nn.Sequential(layer))}
    )
    model["twice"] = model["deep"]
    assert family.nn.replace_linear(model) == ["first", "again", "deep.0.0", "twice.0.0"]
    found = model["first"]
    assert type(found) is family.nn.Linear and found is model["again"] and found is model["deep"][0][0]
    assert len([*model.parameters()]) == 2


PATCHES = {
    "a function": lambda layer: functools.partial(lambda old, x: old(x), layer.forward),
    "a method": lambda layer: types.MethodType(lambda self, x: linear(x, self.weight) * 2, layer),
}


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patched_layer_is_left_and_told(family, patch):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    first = model[0]
    first.forward = PATCHES[patch](first)
    expected = model(random(2, 8))
    found = family.nn.replace_linear(model)
    assert found == ["1"] and found.left == {"0": "with a `forward` of its own, as hooks set it"}
    assert model[0] is first
    torch.testing.assert_close(model(random(2, 8)), expected)


def test_a_compiled_layer_is_compiled_as_the_new_one(family, launches):
    model = torch.nn.Sequential(torch.nn.Linear(32, 16))
    model[0].compile(backend="eager")
    assert family.nn.replace_linear(model) == ["0"] and model[0]._compiled_call_impl is not None
    model[0].compile(backend="eager")
    launches.clear()
    with torch.no_grad():
        model(torch.randn(4, 32))
    assert launches


def test_a_weight_made_of_tensors_is_multiplied_by_torch(family, launches):
    model, weight, x = torch.nn.Sequential(torch.nn.Linear(32, 24)), random(24, 32), random(6, 32)
    model[0].weight = torch.nn.Parameter(TwoTensor(weight, weight))
    with pytest.warns(UserWarning, match="no linear layer is replaced: 0: with a weight of a tensor subclass"):
        assert family.nn.replace_linear(model) == []
    layer = family.nn.Linear(32, 24)
    layer.weight = torch.nn.Parameter(TwoTensor(weight, weight))
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        found = call(x)
        assert type(found) is TwoTensor
        torch.testing.assert_close(found.a, linear(x, weight, layer.bias))
    nested = torch.nested.nested_tensor([random(2, 32), random(5, 32)], layout=torch.jagged)
    layer = family.nn.Linear(32, 24)
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(call(nested).values(), linear(nested.values(), layer.weight, layer.bias))
    assert launches == []


def test_a_model_of_which_nothing_fits_is_told(family, render):
    with pytest.warns(UserWarning, match="no linear layer is replaced: the model: that is the model itself"):
        assert family.nn.replace_linear(torch.nn.Linear(8, 8)) == []
    other = render("without_plain", WITHOUT_PLAIN)
    with pytest.warns(UserWarning, match="with bias; contracts that fit: gemm_fp32_rcr_bias"):
        assert other.nn.replace_linear(torch.nn.Sequential(torch.nn.Linear(8, 8))) == []
    with pytest.warns(UserWarning, match="no linear layer is replaced: the model has none"):
        assert family.nn.replace_linear(torch.nn.Sequential(torch.nn.ReLU())) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert other.nn.replace_linear(torch.nn.Sequential(torch.nn.Linear(8, 8)), "gemm_fp32_rcr_bias_relu") == ["0"]


def test_what_is_left_has_a_reason(family):
    """`left` names each module with a 2-D parameter that was not replaced, linear layers and others."""
    normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))
    parts = torch.nn.Embedding(4, 8), torch.nn.Linear(8, 8), torch.nn.MultiheadAttention(8, 2), normed
    others = torch.nn.LSTM(8, 8), torch.nn.LayerNorm(8), torch.nn.LazyConv1d(2, 3)
    model = torch.nn.Sequential(*parts, *others)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replaced = family.nn.replace_linear(model)
        assert replaced == ["1"]
    told = {name: reason for name, reason in replaced.left.items() if "parametrizations" not in name}
    assert told == {
        "0": "of Embedding, no torch.nn.Linear",
        "2": "of MultiheadAttention, no torch.nn.Linear",
        "2.out_proj": "of NonDynamicallyQuantizableLinear, a class of its own",
        "3": "of ParametrizedLinear, a class of its own",
        "4": "of LSTM, no torch.nn.Linear",
    }


def test_a_bias_is_that_of_the_call(family):
    x, layer = random(6, 32), family.nn.Linear(32, 24)
    layer.bias = None
    torch.testing.assert_close(layer(input=x), linear(x, layer.weight))
    layer = family.nn.Linear(32, 24, bias=False)
    layer.bias = torch.nn.Parameter(random(24))
    torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias))
    layer = family.nn.Linear(32, 24, contract="gemm_fp32_rcr_bias_relu")
    layer.bias = None
    with pytest.raises(
        ValueError, match=r"same epilogue as gemm_fp32_rcr_bias_relu accepts a weight of torch\.float32 without"
    ):
        layer(x)


def test_tensors_that_torch_alone_multiplies(family):
    layer, x = family.nn.Linear(32, 24).requires_grad_(False), random(6, 32)
    nested = torch.nested.nested_tensor([x, x[:2]])
    torch.testing.assert_close(layer(nested).unbind()[1], linear(x[:2], layer.weight, layer.bias))
    torch.testing.assert_close(layer(x.to_sparse()), linear(x, layer.weight, layer.bias))
    with pytest.raises(RuntimeError, match="at least 1D"):
        layer(torch.tensor(1.0))


@pytest.mark.parametrize("bias", [random(48)[::2], random(1).expand(24), random(2, 24).T[:, 0]])
def test_a_bias_is_any_view(family, launches, bias):
    layer, x = family.nn.Linear(32, 24), random(6, 32)
    layer.bias = torch.nn.Parameter(bias)
    assert layer.bias.stride() == bias.stride()
    found, expected = layer(x), linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(found, expected)
    gradient = random(6, 24)
    (mine,) = torch.autograd.grad(found, layer.bias, gradient)
    torch.testing.assert_close(mine, torch.autograd.grad(expected, layer.bias, gradient)[0])
    assert launches


def model(dtype=torch.float32):
    """Two linear layers and one within another module."""
    torch.manual_seed(0)
    inner = torch.nn.ModuleDict({"up": torch.nn.Linear(24, 24, dtype=dtype)})
    made = torch.nn.Sequential(torch.nn.Linear(33, 24, bias=False, dtype=dtype), torch.nn.ReLU())
    made.add_module("inner", torch.nn.Sequential(*inner.values()))
    made.append(torch.nn.Linear(24, 8, dtype=dtype))
    return made


def test_layers_are_replaced_and_trained_alike(family, launches):
    ours, theirs = model(), model()
    parameters = [*ours.parameters()]
    assert family.nn.replace_linear(ours) == ["0", "inner.0", "3"]
    layers = [each for each in ours.modules() if isinstance(each, torch.nn.Linear)]
    assert [type(each) for each in layers] == [family.nn.Linear] * 3
    contracts = ["gemm_fp32_rcr_none", "gemm_fp32_rcr_bias", "gemm_fp32_rcr_bias"]
    assert [each.contract for each in layers] == contracts and "contract=gemm_fp32_rcr_none" in repr(ours)
    # The parameters are the same tensors, so that an optimiser that was made before has them.
    assert all(x is y for x, y in zip(parameters, ours.parameters(), strict=True))
    x = torch.randn(2, 5, 33)
    expected, found = theirs(x), ours(x)
    torch.testing.assert_close(found, expected)
    assert launches.count("gemm_kernel") == 3
    expected.square().sum().backward()
    found.square().sum().backward()
    torch.testing.assert_close([x.grad for x in ours.parameters()], [x.grad for x in theirs.parameters()])
    assert family.nn.replace_linear(ours) == []


def test_layers_are_copied_and_pickled(family):
    layer = family.nn.Linear(33, 24, contract="gemm_fp32_rcr_bias_relu")
    x = torch.randn(5, 33)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
        assert type(other) is family.nn.Linear and other.contract == layer.contract
        assert other.weight is not layer.weight and torch.equal(other(x), layer(x))


def test_a_layer_computes_its_contract(family):
    x = torch.randn(2, 3, 33)
    relu = family.nn.Linear(33, 24, contract="gemm_fp32_rcr_bias_relu")
    torch.testing.assert_close(relu(x), torch.relu(torch.nn.functional.linear(x, relu.weight, relu.bias)))
    gated = family.nn.Linear(33, 24, contract="gemm_fp32_rcr_bias_swiglu")
    gate, up = torch.nn.functional.linear(x, gated.weight, gated.bias).chunk(2, -1)
    assert gated(x).shape == (2, 3, 12)
    torch.testing.assert_close(gated(x), torch.nn.functional.silu(gate) * up)
    empty = relu(torch.randn(0, 3, 33))
    assert empty.shape == (0, 3, 24)
    with torch.autocast("cpu", dtype=torch.float16):
        assert relu(x).dtype == torch.float16


def test_a_contract_that_does_not_fit_is_refused(family):
    with pytest.raises(ValueError, match=r"no contract does just what torch\.nn\.Linear does for .*bfloat16"):
        family.nn.Linear(33, 24, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="gemm_fp32_rcr_scale is no contract of a linear layer; those of this family"):
        family.nn.replace_linear(model(), "gemm_fp32_rcr_scale")


def test_a_model_is_compiled_and_exported(family, launches):
    ours, theirs, x = model(), model(), torch.randn(2, 5, 33)
    family.nn.replace_linear(ours)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    found = compiled(x)
    assert launches == ["gemm_kernel"] * 3
    torch.testing.assert_close(found, theirs(x))
    found.sum().backward()
    theirs(x).sum().backward()
    torch.testing.assert_close([x.grad for x in ours.parameters()], [x.grad for x in theirs.parameters()])
    program = torch.export.export(ours, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert len([x for x in targets if "of_layers_as_torch.gemm" in x]) == 3 and "linear" not in str(targets)
    y = torch.randn(7, 5, 33)
    torch.testing.assert_close(program.module()(y), theirs(y))
