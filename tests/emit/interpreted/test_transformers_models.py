"""Models of `transformers`, random and tiny: by a family's pass, products in eager mode, and experts."""

import copy

import numpy as np
import pytest
import torch
from torch._inductor import config

from tests.helpers.support import spec

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.ecosystem

SPEC = spec(
    "layout: [rcr, rrr]; dtype: fp32; batch: [none, strided, grouped]; epilogue: [none, bias, add, silu+mul]; "
    "load: pointer; with: [inductor, aten]; tile: [{{m: 16, n: 16, k: 32, warps: 1}}]; {more}exclude: ["
    "{{batch: [strided, grouped], epilogue: [bias, add, silu+mul], because: no model has these}}, "
    "{{batch: grouped, layout: rrr, because: no model has these}}]"
)
STACKED = spec(
    "layout: rcr; dtype: fp32; batch: grouped; epilogue: [none, swiglu, geglu_tanh]; load: pointer; with: experts; "
    "tile: [{m: 16, n: 16, k: 32, warps: 1}]; backward: kernels"
)
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def made(name, **more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **EXPERTS, **more})
    config._attn_implementation = "eager"
    return getattr(transformers, f"{name}ForCausalLM")(config)


@pytest.fixture(params=["Llama", "Qwen3", "Mixtral"])
def model(request):
    return made(request.param).eval()


@pytest.fixture(scope="module")
def experts(render):
    return render("model_experts", STACKED)


@pytest.fixture(scope="module")
def family(render):
    return render("model_layers", SPEC.format(more=""))


@pytest.fixture(scope="module")
def alike(render):
    return render("model_rows", SPEC.format(more="invariant: rows\n"))


def tokens(count):
    torch.manual_seed(1)
    return torch.randint(64, (count, 16))


@torch.no_grad()
def test_a_compiled_model_has_the_familys_operators(family, model):
    expected = model(tokens(2), use_cache=False).logits
    with config.patch(force_disable_caches=True), family.inductor.install() as installed:
        found = torch.compile(model)(tokens(2), use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    told = {contract.split("_", 1)[1] for _, contract in installed.report.replaced}
    assert {"fp32_rcr_none", "fp32_rcr_add"} <= told, str(installed)
    if not model.config.model_type.startswith("mixtral"):
        # The gate of each layer, and the residuals of attention and of the layer.
        assert installed.report.replaced["mm", "gemm_fp32_rcr_silu_mul"] == SIZES["num_hidden_layers"]
        assert installed.report.replaced["mm", "gemm_fp32_rcr_add"] == 2 * int(SIZES["num_hidden_layers"])
        assert not installed.report.kept, str(installed)


@pytest.fixture
def placeless(monkeypatch):
    """Tiles without BLAS: on some processors its bits depend on a row's place in the tile, unlike those of a GPU."""
    monkeypatch.setattr(np, "matmul", lambda a, b, **options: np.einsum("...mk,...kn->...mn", a, b, **options))


@pytest.mark.usefixtures("placeless")
@torch.no_grad()
def test_a_sequence_has_the_same_bits_in_every_batch(alike, model):
    """All products of the model are the family's; what torch computes itself, such as a softmax, is one row's.

    On a CPU torch computes the last elements of a tensor in another way, if they do not fill a vector: 16 tokens do.
    """
    many = tokens(7)
    with alike.override_aten() as override:
        whole = model(many, use_cache=False).logits
        for count in (1, 2, 5):
            assert torch.equal(model(many[:count], use_cache=False).logits, whole[:count]), count
    left = {operator for operator, _ in override.report.kept}
    assert sum(override.report.replaced.values()) > 4 * 7 * 2 and not left, str(override)


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "Qwen2Moe", "Olmoe"])
def test_results_and_gradients_are_those_of_the_model(experts, name):
    theirs = made(name).train()
    ours = copy.deepcopy(theirs)
    replaced = experts.nn.replace_experts(ours)
    assert len(replaced) == SIZES["num_hidden_layers"] and not replaced.left
    assert all(place.endswith("experts") for place in replaced)
    tokens = torch.randint(64, (2, 7), generator=torch.Generator().manual_seed(1))
    losses = []
    for each in (theirs, ours):
        found = each(tokens, labels=tokens, use_cache=False)
        found.loss.backward()
        losses.append(found)
    torch.testing.assert_close(losses[1].logits, losses[0].logits, rtol=1e-4, atol=1e-5)
    for (place, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6, msg=place)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
