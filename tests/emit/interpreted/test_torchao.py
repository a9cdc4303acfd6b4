"""`torchao.quantize_` with a family's `ao.Config`, and what transformers, accelerate and peft do with the result."""

import copy
import importlib
import io
import warnings
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchao")
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict, unflatten_tensor_state_dict
from torchao.quantization import quantize_

from tests.helpers.support import spec

pytestmark = pytest.mark.ecosystem

SPEC = spec(
    "layout: [rcr, rrr]; dtype: [{a: fp16, b: int4, scales: {b: [32, 1]}}, {a: bf16, b: int4, scales: {b: [32, 1]}}, "
    "{a: fp16, b: uint4, scales: {b: [32, 1]}, zeros: {b: true}}, {a: fp16, b: int8, scales: {b: [0, 1]}}, "
    "{a: fp16, b: int4}, {a: bf16, b: fp8e4m3, scales: {b: [64, 16]}}, {a: bf16, b: fp8e5m2}, {a: bf16, b: mxfp4}, "
    '{a: fp16, b: nvfp4}, {a: fp16, sparsity: {b: "2:4"}}, {a: int8, scales: {a: [1, 0], b: [0, 1]}}, '
    "{a: fp8e4m3, b: fp8e4m3, scales: {a: [1, 32], b: [32, 32]}}, {a: mxfp8e4m3, b: mxfp8e5m2}, {a: fp16}]; "
    "epilogue: [none, bias, bias+relu]; tile: [{m: 16, n: 16, k: 32, warps: 1}, {m: 16, n: 16, k: 16, warps: 1}]; "
    "load: pointer; with: torchao"
)
#: One way to store a weight.
INT4_ALONE = "summary: One way.\nlayout: rcr\ndtype: {a: fp16, b: int4, scales: {b: [32, 1]}}\nwith: torchao\n"
INT4 = "gemm_fp16xint4_fp32_fp16_b32x1_rcr_none"


def model(dtype=torch.float16):
    """Two linear layers, with and without a bias, and what has no matrix."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 48), torch.nn.LayerNorm(48), torch.nn.Linear(48, 24, bias=False)]
    return torch.nn.Sequential(*layers).to(dtype).requires_grad_(False)


def quantized(family, contract=INT4, dtype=torch.float16, **how):
    made = model(dtype)
    quantize_(made, family.ao.Config(contract, **how))
    return made


def dense(layers):
    """The model with the weights that the packed ones stand for."""
    found = model(layers[0].weight.dtype)
    for own, packed in zip(found, layers):
        if isinstance(own, torch.nn.Linear):
            own.weight.copy_(packed.weight.dequantize())
    return found


def inputs(dtype=torch.float16, rows=5):
    torch.manual_seed(rows)
    return torch.randn(rows, 64).to(dtype)


def error(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def test_every_way_to_store_a_weight_is_multiplied_and_saved(family, launches, tmp_path):
    rounded = 0
    for layer in family.ao.LAYERS:
        launches.clear()
        found = quantized(family, layer.name, layer.dtype)
        x, expected = inputs(layer.dtype), model(layer.dtype)
        y = found(x)
        assert launches.count("gemm_kernel") == 2
        assert (y.dtype, y.shape) == (layer.dtype, (5, 24))
        # An input that is rounded to 8 bits is off by half a step of it.
        assert error(y, dense(found)(x)) < (2**-7 if layer.rows is None else 2**-4), layer
        assert error(y, expected(x)) < (0.7 if "sparse" in layer.name else 0.3), layer
        rounded += layer.rows is not None
        parts = [getattr(found[0].weight, part) for part in ("qdata", "scale", "zero_point", "positions")]
        assert all(part.is_contiguous() for part in parts if part is not None)
        tensors, metadata = flatten_tensor_state_dict(found.state_dict())
        save_file(tensors, tmp_path / "model.safetensors", metadata)
        with safe_open(tmp_path / "model.safetensors", "pt") as file:
            metadata = file.metadata()
        state, rest = unflatten_tensor_state_dict(load_file(tmp_path / "model.safetensors"), metadata)
        expected.load_state_dict(state, assign=True)
        assert rest == {} and torch.equal(expected(x), y), layer
    assert (rounded, len(family.ao.LAYERS)) == (6, 24)


def test_names_of_both_contracts_mean_one_way_and_a_bias_is_added(family, render):
    by_bias = quantized(family, INT4.replace("none", "bias"))
    assert by_bias[0].weight.contract == quantized(family)[0].weight.contract == INT4
    plain, biased = (render(f"with_{x}", f"{INT4_ALONE}epilogue: {x}\n") for x in ("none", "bias"))
    torch.testing.assert_close(quantized(plain)(inputs()), quantized(family)(inputs()), rtol=2e-2, atol=2e-3)
    with pytest.warns(UserWarning, match=r"its weight is of torch.float16 without bias; what fits has .* with bias"):
        found = quantized(biased, INT4.replace("none", "bias"))
    assert [isinstance(found[number].weight, biased.ao.PackedWeight) for number in (0, 2)] == [True, False]
    found[0].bias = None
    with pytest.raises(ValueError, match="_rcr_bias adds a bias, and the layer has none"):
        found(inputs())


def test_the_configuration_is_checked(family):
    with pytest.raises(ValueError, match=f"gemm is no contract of a linear layer .* of this family: {INT4}, "):
        family.ao.Config("gemm")
    with pytest.raises(ValueError, match="is no contract of a linear layer with a stored weight"):
        family.ao.Config(INT4.replace("none", "bias_relu"))
    with pytest.raises(TypeError, match=r"scale_dtype must be torch.float32 or .*, got torch.int8"):
        family.ao.Config(scale_dtype=torch.int8)
    with pytest.raises(ValueError, match=rf"several contracts fit a weight of torch.float16: name one .*: {INT4}, "):
        quantized(family, None)
    assert quantized(family, INT4, scale_dtype=torch.bfloat16)[0].weight.scale.dtype == torch.bfloat16


def test_what_does_not_fit_is_left_with_a_warning(family):
    def left(module, reason):
        before = [*module.parameters()]
        with pytest.warns(UserWarning, match=f"is not quantized: .*{reason}"):
            quantize_(module, family.ao.Config(INT4), filter_fn=lambda module, name: not name and True)
        assert [*map(id, module.parameters())] == [*map(id, before)]

    left(torch.nn.Linear(33, 8).half(), f"K must be a multiple of 2 for {INT4}, got 33")
    left(torch.nn.Linear(64, 8), "its weight is of torch.float32 with bias; what fits has a weight of torch.float16")
    left(torch.nn.Embedding(8, 8).half(), "only the weight of a torch.nn.Linear is")
    left(quantized(family)[0], "its weight is a ")
    left(torch.nn.Linear(64, 8, device="meta", dtype=torch.half), "it is on the device meta")
    with pytest.raises(ValueError, match="weight must be finite"):
        layer = torch.nn.Linear(64, 8).half().requires_grad_(False)
        layer.weight[0, 0] = torch.inf
        quantize_(layer, family.ao.Config(INT4))


def test_it_is_copied_and_moved(family):
    found, x = quantized(family), inputs()
    copied = copy.deepcopy(found)
    assert torch.equal(copied(x), found(x))
    assert copied[0].weight.qdata.data_ptr() != found[0].weight.qdata.data_ptr()
    assert copied.extra_repr is not found.extra_repr
    whole = io.BytesIO()
    torch.save(found, whole)
    whole.seek(0)
    assert torch.equal(torch.load(whole, weights_only=False)(x), found(x))
    copied[0].weight = torch.nn.Parameter(quantized(family, INT4.replace("rcr", "rrr"))[0].weight)
    assert "rrr" in repr(copied) and "rrr" not in repr(found)
    meta = copy.deepcopy(found).to("meta")
    assert meta[0].weight.scale.is_meta and meta(x.to("meta")).is_meta
    assert torch.equal(found.to("cpu", torch.float16)(x), copied.cpu()(x))


def test_inputs_of_eight_bits_have_the_type_of_the_result(family):
    """A sum that fp16 holds is not stored in a type that the caller did not take it for."""
    layer = next(layer for layer in family.ao.LAYERS if layer.rows is not None and "int8" in layer.name)
    for other in {torch.float16, torch.bfloat16, torch.float32} - {layer.dtype}:
        found = model(layer.dtype)
        quantize_(found, family.ao.Config(layer.name))
        assert type(found[0].weight) is not torch.nn.Parameter and found(inputs(layer.dtype)).dtype == layer.dtype
        found.to(other)
        try:
            assert found(inputs(other) * 1e5).dtype == other
        except TypeError as error:
            assert str(layer.dtype) in str(error) and str(other) in str(error)


def test_a_dtype_that_the_family_has_alike_is_taken(family):
    found, x = quantized(family), inputs(torch.bfloat16)
    wide = copy.deepcopy(found).to(torch.bfloat16)
    assert wide[0].weight.contract == INT4.replace("fp16", "bf16") and wide[0].weight.dtype == torch.bfloat16
    assert torch.equal(wide[0].weight.qdata, found[0].weight.qdata)
    assert error(wide(x), dense(found)(x.half())) < 2**-6
    single = copy.deepcopy(found).float()
    assert (single[0].weight.dtype, single[0].bias.dtype) == (torch.float16, torch.float32)
    with pytest.raises(TypeError, match=r"a must be torch.float16, got torch.float32"):
        single(x.float())


@pytest.mark.parametrize("contract", [INT4, "gemm_fp8e4m3_a1x32_b32x32_rcr_none", "gemm_fp16_sparse24_rcr_none"])
def test_it_is_compiled(family, contract):
    (layer,) = [layer for layer in family.ao.LAYERS if layer.plain == contract]
    found, x = quantized(family, contract, layer.dtype), inputs(layer.dtype)
    compiled = torch.compile(found, fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), found(x), rtol=2e-2, atol=2e-2)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiled(inputs(layer.dtype, 9)).shape == (9, 24)
    program = torch.export.export(found, (x,)).module()
    torch.testing.assert_close(program(x), found(x), rtol=2e-2, atol=2e-2)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), found(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("K", [64, 48])
def test_inductor_rounds_an_input_as_torch_does(family, K):
    """Also where the last block is short."""
    pack = importlib.import_module(f"{family.__name__}._runtime.pack")
    stored, x = pack.Stored("fp8e4m3", "row", (1, 32)), inputs(torch.bfloat16)[:, :K]
    found = torch.compile(pack.quantize_rows, fullgraph=True)(x, stored)
    for keyword, expected in pack.quantize_rows(x, stored).items():
        torch.testing.assert_close(found[keyword].float(), expected.float(), rtol=0, atol=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_input_and_the_bias_have_gradients(family, compiled):
    found = quantized(family)
    expected = dense(found)
    gradients = []
    for each in (found, expected):
        x = inputs().requires_grad_()
        each[0].bias.requires_grad_()
        call = torch.compile(each, fullgraph=True, backend="aot_eager") if compiled else each
        call(x).float().square().sum().backward()
        gradients.append((x.grad, each[0].bias.grad))
    for own, other in zip(*gradients):
        torch.testing.assert_close(own, other, rtol=2e-2, atol=2e-2)


def test_a_compiled_graph_is_of_the_code_that_made_it(family):
    """Torch caches it by what a weight says of itself: in its graph there is only a linear layer with such a weight."""
    first, other = (quantized(family, name)[0].weight for name in (INT4, INT4.replace("rcr", "rrr")))
    assert first._stable_hash_for_caching() == quantized(family)[0].weight._stable_hash_for_caching()
    assert first._stable_hash_for_caching() != other._stable_hash_for_caching()
    library = importlib.import_module(type(first).__module__)
    changed, before = Path(library.__file__).with_name("rows.py"), first._stable_hash_for_caching()
    text = changed.read_text()
    try:
        changed.write_text(f"{text}\n# Another version.\n")
        library._library_digest.cache_clear()
        assert first._stable_hash_for_caching() != before
    finally:
        changed.write_text(text)
        library._library_digest.cache_clear()


def test_what_no_contract_computes_is_refused(family):
    found, x = quantized(family), inputs()
    with pytest.raises(NotImplementedError, match="attempting to run unimplemented operator"):
        x @ found[0].weight.T
    with pytest.raises(TypeError, match="weight must be a PackedWeight_of_torchao if another operand is one"):
        torch.nn.functional.linear(found[0].weight, x)
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(found(x.float()), found(x))


def test_transformers_loads_saves_and_trains_adapters(family, tmp_path):
    from accelerate import cpu_offload
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM, TorchAoConfig

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 128}
    torch.manual_seed(0)
    given = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).half().eval()
    given.save_pretrained(tmp_path / "dense")
    how = TorchAoConfig(family.ao.Config(INT4))
    found = LlamaForCausalLM.from_pretrained(tmp_path / "dense", dtype=torch.float16, quantization_config=how)
    packed = [name for name, x in found.named_parameters() if isinstance(x, family.ao.PackedWeight)]
    assert len(packed) == 7 and "lm_head.weight" not in packed
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        expected = found(tokens).logits
        assert error(expected, given(tokens).logits) < 0.3
    found.save_pretrained(tmp_path / "packed")
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "packed", dtype=torch.float16)
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, expected)
        offloaded = cpu_offload(copy.deepcopy(loaded), execution_device="cpu")
        assert torch.equal(offloaded(tokens).logits, expected)
    adapted = get_peft_model(loaded, LoraConfig(target_modules=["q_proj", "down_proj"], r=2))
    adapted(tokens, labels=tokens).loss.backward()
    trained = {name.rsplit(".", 3)[-3] for name, x in adapted.named_parameters() if x.grad is not None}
    assert trained == {"lora_A", "lora_B"}
    merged = adapted.merge_and_unload()
    with torch.no_grad(), warnings.catch_warnings():
        assert error(merged(tokens).logits, expected) < 0.1
