"""Mixtures of `transformers`, random and tiny, whose experts are a family's."""

import copy
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.ecosystem

SPEC = """\
summary: The experts of a model.
layout: rcr
dtype: fp32
batch: grouped
epilogue: [none, swiglu, geglu_tanh]
load: pointer
with: experts
tile: [{m: 16, n: 16, k: 32, warps: 1}]
backward: kernels
"""
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "head_dim": 16,
}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def model(name: str, **more: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **EXPERTS, **more})
    config._attn_implementation = "eager"
    return getattr(transformers, f"{name}ForCausalLM")(config)


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "Qwen2Moe", "Olmoe"])
def test_results_and_gradients_are_those_of_the_model(family, name):
    theirs = model(name).train()
    ours = copy.deepcopy(theirs)
    replaced = family.nn.replace_experts(ours)
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


def test_experts_of_another_form_are_left(family):
    more = {"num_local_experts": 4, "layer_types": ["full_attention"] * 2}
    gated = model("GptOss", **more)
    replaced = family.nn.replace_experts(gated)
    assert replaced == [] and len(replaced.left) == SIZES["num_hidden_layers"]
    assert all("transposed" in why for why in replaced.left.values())
