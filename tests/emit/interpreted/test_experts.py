"""`nn.Experts` of a family, forward and backward, and `nn.replace_experts`."""

import copy
import functools
import pickle

import pytest
import torch
from torch import nn

from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: [fp32, fp16]; batch: grouped; epilogue: [none, swiglu, geglu, geglu_tanh, scale_m]; "
    "load: pointer; with: experts; backward: kernels"
)
TOKENS, HIDDEN, INNER, COUNT, CHOSEN = 13, 24, 16, 5, 3
TANH = functools.partial(nn.functional.gelu, approximate="tanh")
ACTIVATIONS = {"swiglu": nn.functional.silu, "geglu": nn.functional.gelu, "geglu_tanh": TANH}


def by_torch(layer, x, index, weights, act):
    """What experts compute, in float64."""
    rows = []
    for t in range(len(x)):
        total = torch.zeros(x.shape[1], dtype=torch.float64)
        for j in range(index.shape[1]):
            if 0 <= (e := int(index[t, j])) < len(layer.down_proj):
                gate, up = (layer.gate_up_proj[e].double() @ x[t].double()).chunk(2)
                total = total + weights[t, j].double() * (layer.down_proj[e].double() @ (act(gate) * up))
        rows.append(total)
    return torch.stack(rows)


def drawn(outside=True):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(TOKENS, HIDDEN, generator=generator)
    index = torch.stack([torch.randperm(COUNT, generator=generator)[:CHOSEN] for _ in range(TOKENS)])
    if outside:
        # Experts of another device.
        index[2, 1], index[5] = COUNT, -1
    return x, index, torch.rand(TOKENS, CHOSEN, generator=generator)


@pytest.mark.parametrize("gate", ["swiglu", "geglu", "geglu_tanh"])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_a_layer_and_its_gradients_are_those_of_torch(family, gate, kind):
    layer = family.nn.Experts(COUNT, HIDDEN, INNER, gate=gate)
    act = ACTIVATIONS[gate]
    x, index, weights = drawn()
    index = index.to(kind)
    with torch.no_grad():
        alone = layer(x, index, weights)
    leaves = x.clone().requires_grad_(), weights.clone().requires_grad_()
    found = layer(leaves[0], index, leaves[1])
    expected = by_torch(layer, *(theirs := (x.clone().requires_grad_(), index, weights.clone().requires_grad_())), act)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(alone.double(), expected, rtol=1e-5, atol=1e-5)
    grad = torch.randn(TOKENS, HIDDEN)
    ours = torch.autograd.grad(found, [*leaves, *layer.parameters()], grad)
    reference = torch.autograd.grad(expected, [theirs[0], theirs[2], *layer.parameters()], grad.double())
    for one, other in zip(ours, reference, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=1e-4, atol=1e-5)
    again = torch.autograd.grad(layer(leaves[0], index, leaves[1]), [*leaves, *layer.parameters()], grad)
    assert all(torch.equal(one, other) for one, other in zip(ours, again, strict=True))


def test_rows_that_are_copied_give_the_bits_of_those_that_are_named(family, monkeypatch):
    layer = family.nn.Experts(COUNT, HIDDEN, INNER, dtype=torch.float16)
    x, index, weights = drawn()
    with torch.no_grad():
        named = layer(x.half(), index, weights)
        monkeypatch.setattr(family._runtime.experts, "COPIED", 0)
        assert torch.equal(layer(x.half(), index, weights), named)
    assert named.dtype == torch.float16


def test_a_compiled_step_is_one_graph(family):
    layer = family.nn.Experts(COUNT, HIDDEN, INNER)
    x, index, weights = drawn()

    def step(run):
        a, b = x.clone().requires_grad_(), weights.clone().requires_grad_()
        return torch.autograd.grad(run(a, index, b).square().sum(), [a, b, *layer.parameters()])

    for one, other in zip(step(layer), step(torch.compile(layer, fullgraph=True, backend="aot_eager")), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_no_tokens_no_experts_and_wrong_calls(family):
    layer = family.nn.Experts(COUNT, HIDDEN, INNER)
    x, index, weights = drawn()
    assert layer(x[:0], index[:0], weights[:0]).shape == (0, HIDDEN)
    assert not layer(x, index[:, :0], weights[:, :0]).any()
    assert not family.nn.Experts(0, HIDDEN, INNER)(x, index, weights).any()
    shapes = r"expected shapes \(tokens, hidden_size\), .*got \(13, 24\), \(13, 3\) and"
    for error, told, given in (
        (ValueError, shapes, (x, index, weights[:, :2])),
        (TypeError, "top_k_index must be a torch.Tensor, got list", (x, index.tolist(), weights)),
        (TypeError, "top_k_index must be of an integer type, got torch.float32", (x, index.float(), weights)),
        (TypeError, "top_k_index must be of an integer type, got torch.bool", (x, index.bool(), weights)),
        (ValueError, "hidden_states have 23 columns, and hidden_size is 24", (x[:, :23], index, weights)),
    ):
        with pytest.raises(error, match=told):
            layer(*given)
    for told, form in (("bfloat16 with swiglu", {"dtype": torch.bfloat16}), ("float32 with reglu", {"gate": "reglu"})):
        with pytest.raises(ValueError, match=f"no contracts fit experts of torch.{told}; those that"):
            family.nn.Experts(COUNT, HIDDEN, INNER, **form)
    recorded = weights.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(x, index, recorded).sum(), recorded, create_graph=True)
    with pytest.raises(RuntimeError, match=r"^Experts: a gradient of its gradient is asked for, and none is computed"):
        (first.square().sum() + layer.down_proj.sum()).backward()
    assert "5, hidden_size=24, intermediate_size=16, gate=swiglu" in repr(layer)
    again = pickle.loads(pickle.dumps(layer))
    assert torch.equal(again(x, index, weights), layer(x, index, weights))


class Stacked(nn.Module):
    """Experts as those of `transformers` are."""

    def __init__(self, act, **form):
        super().__init__()
        self.num_experts, self.act_fn = COUNT, act
        self.gate_up_proj = nn.Parameter(torch.randn(COUNT, 2 * INNER, HIDDEN) / 5)
        self.down_proj = nn.Parameter(torch.randn(COUNT, HIDDEN, INNER) / 5)
        usual = {"has_gate": True, "has_bias": False, "is_transposed": False, "is_concatenated": True}
        for word, value in {**usual, "has_post_expert_norm": False, **form}.items():
            setattr(self, word, value)

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return by_torch(self, hidden_states, top_k_index, top_k_weights, self.act_fn).to(hidden_states.dtype)


def _default_apply_gate(self, x):
    gate, up = x.chunk(2, -1)
    return self.act_fn(gate) * up


class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts, self.act_fn = 1, nn.SiLU()
        self.gate_up_proj, self.down_proj = nn.Parameter(torch.zeros(1, 4, 2)), nn.Parameter(torch.zeros(1, 2, 2))


class Doubled(Stacked):
    def forward(self, *given):
        return 2 * super().forward(*given)


class Clamped(Stacked):
    def _apply_gate(self, x):
        return x


Stacked._apply_gate = _default_apply_gate
Stacked.__module__ = Clamped.__module__ = "transformers.models.stand_in"


def changed(name, value):
    experts = Stacked(nn.SiLU())
    setattr(experts, name, value)
    return experts


#: What is left, with the reason.
LEFT = {
    "transposed": Stacked(nn.SiLU(), is_transposed=True),
    "add a bias": Stacked(nn.SiLU(), has_bias=True),
    "Clamped has a gate of its own": Clamped(nn.SiLU()),
    "each expert is a module of its own": nn.ModuleList([nn.Linear(2, 2)]),
    "no gate is made with Tanh": Stacked(nn.Tanh()),
    "no contracts fit experts of torch.bfloat16 with swiglu": Stacked(nn.SiLU()).bfloat16(),
    "Silent does not say how its weights are stored": Silent(),
    "a `forward` of their own": changed("forward", lambda *given: None),
    "of Doubled, a class of its own": Doubled(nn.SiLU()),
    "a `forward` of their own ": changed("_apply_gate", lambda x: x),
}


def test_experts_of_a_model_are_replaced_and_others_named(family):
    fits = Stacked(nn.SiLU())
    model = nn.ModuleDict({name: nn.Module() for name in "abc0123456789"})
    for module, experts in zip(model.values(), (fits, fits, Stacked(nn.GELU()), *LEFT.values()), strict=True):
        module.experts = experts
    before, state = copy.deepcopy(fits), {name: x.clone() for name, x in model.state_dict().items()}
    replaced = family.nn.replace_experts(model)
    assert replaced == ["a.experts", "b.experts", "c.experts"]
    assert model["a"].experts is model["b"].experts and type(model["a"].experts) is family.nn.Experts
    assert model["c"].experts.gate == "geglu"
    assert [*replaced.left] == [f"{place}.experts" for place in range(10)]
    assert all(told.strip() in reason for told, reason in zip(LEFT, replaced.left.values()))
    assert family.nn.replace_experts(model) == []
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    x, index, weights = drawn()
    torch.testing.assert_close(model["a"].experts(x, index, weights), before(x, index, weights), rtol=1e-5, atol=1e-5)
    alone = family.nn.replace_experts(Stacked(nn.SiLU()))
    assert alone == [] and "the model itself" in alone.left[""]
    assert not family.nn.replace_experts(nn.Linear(2, 2)).left


HOOKED = nn.SiLU()
HOOKED.register_forward_hook(lambda *given: given[-1] * 2)


class Trained(nn.SiLU):
    def forward(self, x):
        return super().forward(x) * (2 if self.training else 1)


@pytest.mark.parametrize(
    ("activation", "gate"),
    [
        *((each, "swiglu") for each in (nn.SiLU(), nn.SiLU(inplace=True), nn.functional.silu)),
        *((each, "geglu") for each in (nn.GELU(), nn.functional.gelu)),
        *((each, "geglu_tanh") for each in (nn.GELU(approximate="tanh"), TANH)),
        *((each, "reglu") for each in (nn.ReLU(), nn.ReLU(inplace=True), torch.relu, nn.functional.relu)),
        *((each, None) for each in (nn.ReLU6(), nn.Hardswish(), nn.LeakyReLU(), nn.Tanh(), Trained(), torch.sigmoid)),
        *((each, None) for each in (lambda x: nn.functional.silu(x), HOOKED, None, "silu")),
        (functools.partial(nn.functional.leaky_relu, negative_slope=0.0), None),
    ],
)
def test_an_activation_is_known_by_what_it_is(family, activation, gate):
    assert family._runtime.experts._gate_of(activation) == gate


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64])
def test_every_integer_type_names_experts(family, kind):
    for count in (COUNT, 300):
        layer = family.nn.Experts(count, HIDDEN, INNER)
        x, index, weights = drawn(outside=False)
        assert torch.equal(layer(x, index.to(kind), weights), layer(x, index, weights))


@pytest.mark.parametrize(("tokens", "k", "count"), [(1, 1, 1), (7, 3, 5), (300, 4, 3), (513, 5, 64)])
def test_a_kernel_routes_as_torch_does(family, tokens, k, count):
    """Pairs of several blocks, experts that there are not, a view of indices, and every type."""
    experts, drawn = family._runtime.experts, torch.Generator().manual_seed(tokens)
    of = torch.empty(count, 2, 2)
    given = torch.randint(-1, count + 2, (k, tokens), generator=drawn).t()
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8):
        wanted, found = experts.routed(given.to(kind), count), experts.combine.routed(given.to(kind), of)
        assert len(found) == len(wanted) and all(map(torch.equal, found, wanted))
    # Pairs behind the last end belong to no expert.
    unsigned = given.clamp(0).to(torch.uint8)
    assert all(map(torch.equal, experts.combine.routed(unsigned, of), experts.routed(unsigned, count)))


def test_hidden_states_have_the_type_of_the_weights_but_under_autocast(family):
    x, index, weights = drawn()
    layer = family.nn.Experts(COUNT, HIDDEN, INNER, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"hidden_states are torch.float32, and the weights are torch.float16"):
        layer(x * 1e5, index, weights)
    layer.down_proj.data = layer.down_proj.data.float()
    with pytest.raises(TypeError, match=r"the weights are torch.float16 and torch.float32"):
        layer(x.half(), index, weights)
    layer = family.nn.Experts(COUNT, HIDDEN, INNER)
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        found = layer(x, index, weights)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, layer(x, index, weights), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["gate_up_proj", "down_proj"])
def test_weights_may_have_any_order_in_memory(family, name):
    layer, (x, index, weights) = family.nn.Experts(COUNT, HIDDEN, INNER), drawn()
    expected = layer(x, index, weights)
    of = torch.autograd.grad(expected.sum(), getattr(layer, name))
    weight = getattr(layer, name)
    weight.data = weight.data.mT.contiguous().mT
    found = layer(x, index, weights)
    assert torch.equal(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), weight), of)


@pytest.mark.parametrize("recording", [False, True])
def test_the_number_of_tokens_may_be_known_at_run_time_only(family, recording):
    layer, (x, index, weights) = family.nn.Experts(COUNT, HIDDEN, INNER), drawn()
    mask = torch.arange(TOKENS) % 3 > 0

    def masked(*given):
        return layer(*[each[mask] for each in given])

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.set_grad_enabled(recording):
        found = torch.compile(masked, fullgraph=True, backend="aot_eager")(x, index, weights)
    assert torch.equal(found, masked(x, index, weights)) and found.requires_grad is recording


def test_families_without_both_products_have_no_experts(render):
    text = SPEC.replace("[none, swiglu, geglu, geglu_tanh, scale_m]", "[swiglu, scale_m]")
    half = render("half_of_experts", text.replace("with: experts\n", ""))
    assert not hasattr(half, "nn")
    both = render("experts_and_linear", SPEC.replace("batch: grouped", "batch: [none, grouped]")).nn
    assert both.Linear(4, 4, bias=False)(torch.ones(2, 4)).shape == (2, 4) and both.Experts(2, 4, 4).gate == "swiglu"
