"""What the language says for names that others give operations, types and keys: what means the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import fastjsonschema
import pytest
import torch
import yaml
from torch.nn import functional

from generator.language.built_in import BUILT_IN
from generator.language.other_names import nearest_key, nearest_operation
from generator.language.schema import schema
from generator.problem import torch_functions
from tests.helpers.support import BASE, mistakes_of, read_text

X = torch.linspace(-9, 9, 4001, dtype=torch.float64)
#: Functions of torch, each by names that others give it.
FUNCTIONS: dict[Callable[[torch.Tensor], Any], str] = {
    functional.silu: "swish nn.SiLU SILU",
    partial(functional.gelu, approximate="tanh"): "fast_gelu gelu_fast gelu_new GeluTanh gelu_pytorch_tanh gelu_taylor",
    functional.gelu: "F.gelu gelu_erf gelu_python",
    functional.relu6: "relu6 torch.nn.ReLU6",
    functional.hardtanh: "hardtanh",
    functional.hardsigmoid: "hardsigmoid hard_sigmoid",
    functional.hardswish: "hard_swish Hardswish hard_silu",
    **{getattr(functional, x): x for x in ["elu", "celu", "selu", "mish", "softshrink", "hardshrink", "tanhshrink"]},
    functional.logsigmoid: "logsigmoid log_sigmoid",
    functional.softsign: "softsign soft_sign",
    lambda x: 30 * torch.tanh(x / 30): "softcap soft_cap logit_cap tanh_softcap",
    lambda x: (x + torch.sqrt(x * x + 4)) / 2: "squareplus",
    lambda x: functional.leaky_relu(x, 0.01): "LeakyReLU lrelu",
    torch.sigmoid: "logistic",
    lambda x: torch.relu(x) ** 2: "relu_squared squared_relu",
    lambda x: functional.threshold(x, 0, 0): "threshold",
    **{getattr(torch, name): name for name in ("square", "abs", "exp", "neg")},
}
CASES = [(name, function) for function, names in FUNCTIONS.items() for name in names.split()]


def suggested(told: str) -> str:
    """The keys of a spec that has what the end of a message says, and nothing else."""
    if found := re.match(r"define it under ops, as in (ops: \{(\w+): .*\}); legal: ", told):
        return f"{found[1]}\nepilogue: {found[2]}\n"
    found = re.match(r"did you mean '(\w+)'\? legal: |write (\[\[.*\]\]); legal: ", told)
    assert found is not None, told
    return f"epilogue: {found[1] or found[2]}\n"


@pytest.mark.parametrize(("name", "function"), CASES, ids=[name for name, _ in CASES])
def test_what_is_suggested_for_an_operation_computes_it(
    name: str, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    (told,) = mistakes_of(f"{BASE}epilogue: {name}\n")
    (epilogue,) = read_text(BASE + suggested(told.partition("; ")[2])).axes["epilogue"]
    found = torch_functions.apply(epilogue, X, {})
    torch.testing.assert_close(found, function(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "word"), [("silu_and_mul", "swiglu"), ("glu", ""), ("prelu", ""), ("residual", "add")]
)
def test_what_has_operands_or_a_gate_is_told_too(name: str, word: str) -> None:
    told = nearest_operation(name, BUILT_IN)
    assert told.startswith(f"did you mean '{word}'? " if word else f"define it under ops, as in ops: {{{name}: ")
    read_text(BASE + suggested(told))


@pytest.mark.parametrize("name", ["softmax", "RMSNorm", "layer_norm"])
def test_what_needs_whole_rows_is_no_operation(name: str) -> None:
    assert nearest_operation(name, BUILT_IN).startswith("it needs whole rows, and ")


@pytest.mark.parametrize(
    ("key", "legal", "told"),
    [
        ("sparsity", "dtype", 'it is a key of dtype, as in dtype: {a: …, sparsity: {"b": "2:4"}}'),
        ("scales", "dtype", 'it is a key of dtype, as in dtype: {a: …, scales: {"b": [128, 1]}}'),
        (
            "group_size",
            "dtype",
            "did you mean 'scales'? it is a key of dtype, as in dtype: {a: …, scales: {\"b\": [128, 1]}}",
        ),
        ("warps", "dtype", "it is a key of an entry of tile, as in tile: [{m: …, warps: …}]"),
        ("BLOCK_SIZE_M", "m, n", "did you mean 'm'?"),
        ("num_warps", "m, warps", "did you mean 'warps'?"),
        ("epilogue", "m", 'it is a key of the spec, as in epilogue: "bias+gelu"'),
        ("formula", "m", 'it is a key of an entry of ops, as in ops: {name: {formula: "x * sigmoid(x)"}}'),
        ("nothing", "m", ""),
    ],
)
def test_where_a_key_belongs(key: str, legal: str, told: str) -> None:
    assert nearest_key(
        key, legal.split(", ")
    ) == f"{told}{'' if told[-1:] == '?' else ';'} legal: {legal}".removeprefix("; ")


def test_spaces_beside_a_plus_do_not_count() -> None:
    chains = (
        "bias+gelu_tanh",
        "bias + gelu_tanh",
        "bias +gelu_tanh ",
        "[[ bias+ gelu_tanh]]",
        "[[bias , ' gelu_tanh']]",
    )
    texts = [f"{BASE}epilogue: {chain}\n" for chain in chains]
    assert len({read_text(text).axes["epilogue"] for text in texts}) == 1
    for text in texts:
        fastjsonschema.validate(schema(), yaml.safe_load(text))
