"""What the language says for names that others give operations, types, keys and GPUs: what means the same."""

import re
from functools import partial

import fastjsonschema
import pytest
import torch
import yaml
from torch.nn import functional

from generator.commands import explain, tune
from generator.language import gpus
from generator.language.built_in import BUILT_IN
from generator.language.dtypes import DTYPE_SHORTHANDS, WEIGHTS
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.gpus import gpu_of
from generator.language.other_names import mapping_of, nearest_operation, type_of
from generator.language.schema import schema
from generator.language.targets import TARGETS
from generator.plan.devices import DEVICES, named
from generator.problem import torch_functions
from tests.helpers.support import BASE, mistakes_of, read_text

X = torch.linspace(-9, 9, 4001, dtype=torch.float64)
#: Functions of torch, each by names that others give it.
FUNCTIONS = {
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


def suggested(told):
    """The keys of a spec that has what the end of a message says, and nothing else."""
    if found := re.match(r"define it under ops, as in (ops: \{(\w+): .*\}); legal: ", told):
        return f"{found[1]}\nepilogue: {found[2]}\n"
    found = re.match(r"did you mean '(\w+)'\? legal: |write (\[\[.*\]\]); legal: ", told)
    assert found is not None, told
    return f"epilogue: {found[1] or found[2]}\n"


@pytest.mark.parametrize(("name", "function"), CASES, ids=[name for name, _ in CASES])
def test_what_is_suggested_for_an_operation_computes_it(name, function):
    (told,) = mistakes_of(f"{BASE}epilogue: {name}\n")
    (epilogue,) = read_text(BASE + suggested(told.partition("; ")[2])).axes["epilogue"]
    found = torch_functions.apply(epilogue, X, {})
    torch.testing.assert_close(found, function(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "word"), [("silu_and_mul", "swiglu"), ("glu", ""), ("prelu", ""), ("residual", "add")]
)
def test_what_has_operands_or_a_gate_is_told_too(name, word):
    told = nearest_operation(name, BUILT_IN)
    assert told.startswith(f"did you mean '{word}'? " if word else f"define it under ops, as in ops: {{{name}: ")
    read_text(BASE + suggested(told))


def test_spaces_beside_a_plus_do_not_count():
    chains = "bias+gelu_tanh; bias + gelu_tanh; bias +gelu_tanh ; [[ bias+ gelu_tanh]]; [[bias , ' gelu_tanh']]"
    texts = [f"{BASE}epilogue: {chain}\n" for chain in chains.split("; ")]
    assert len({read_text(text).axes["epilogue"] for text in texts}) == 1
    for text in texts:
        fastjsonschema.validate(schema(), yaml.safe_load(text))


NAMES = {
    "fp16": "float16 half torch.float16 torch.half tl.float16 np.float16 FP16 f16 Float16 Half",
    "bf16": "bfloat16 torch.bfloat16 tl.bfloat16 BF16 bfloat",
    "fp32": "float32 float torch.float torch.float32 single f32 FP32",
    "tf32": "TF32 tfloat32",
    "int8": "torch.int8 i8 s8 INT8",
    "fp8e4m3": "float8_e4m3fn torch.float8_e4m3fn fp8 fp8_e4m3 e4m3 float8e4nv tl.float8e4nv FP8",
    "fp8e5m2": "float8_e5m2 torch.float8_e5m2 e5m2 float8e5 fp8_e5m2",
}
STORED = {"int4": "int4 torch.int4 i4", "uint4": "uint4 u4", "mxfp4": "mxfp4", "mxfp8e4m3": "mxfp8 mxfp8_e4m3"}


@pytest.mark.parametrize(("word", "names"), NAMES.items())
def test_a_name_of_a_library_leads_to_the_word(word, names):
    for name in names.split():
        (told,) = mistakes_of(BASE.replace("fp16", name))
        assert f"dtype: unknown value '{name}'; did you mean {word!r}? legal: fp16, bf16" in told
        if word != "tf32":
            (told,) = mistakes_of(BASE.replace("fp16", f"{{a: {name}}}"))
            assert f"dtype.a: unknown value '{name}'; did you mean {word!r}? legal: " in told


@pytest.mark.parametrize(("word", "names"), STORED.items())
def test_a_type_of_stored_operands_is_shown_in_its_mapping(word, names):
    mapping = mapping_of(word)
    assert mapping is not None
    assert read_text(BASE.replace("dtype: fp16", f"dtype: {mapping}"))
    for name in names.split():
        (told,) = mistakes_of(BASE.replace("fp16", name))
        assert f"; {word} is a type of operands as they are stored: {mapping}; legal: fp16, " in told


def test_a_type_of_b_is_no_type_of_a():
    (told,) = mistakes_of(BASE.replace("fp16", "{a: int4}"))
    assert "'int4'; a B is stored so, and a has the type that it is multiplied in; legal: fp32, " in told
    (told,) = mistakes_of(BASE.replace("fp16", "{a: bf16, b: torch.int4, scales: {b: [128, 1]}}"))
    assert "dtype.b: unknown value 'torch.int4'; did you mean 'int4'? legal: " in told
    told, other = mistakes_of(BASE.replace("fp16", "{a: fp16, acc: float32, out: half}"))
    assert "dtype.acc: unknown value 'float32'; did you mean 'fp32'? " in told
    assert "dtype.out: unknown value 'half'; did you mean 'fp16'? " in other


def test_every_word_of_the_project_stands_for_itself():
    for word in (*DTYPE_SHORTHANDS, *WEIGHTS, *ELEMENTS, *FORMATS):
        assert type_of(word) == word
    assert type_of("fp16x") is None and type_of("") is None


#: Names of GPUs as drivers, shops and users write them, by their targets; no kernel is made for the last four.
GPUS = {
    "sm90": "h100, H100, NVIDIA H100 80GB HBM3, h100-pcie, nvidia_h200, GH200",
    "sm80": "a100, NVIDIA A100-SXM4-80GB, a30",
    "sm86": "a10, A10G, a40, NVIDIA RTX A6000, rtx 3090",
    "sm89": "l4, L40, l40s, NVIDIA GeForce RTX 4090, rtx_4090, RTX-4090, NVIDIA GeForce RTX 4090 Laptop GPU, "
    "NVIDIA RTX 6000 Ada Generation",
    "sm100": "b100, b200, gb200",
    "sm120": "rtx5090, NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "gfx90a": "mi200, mi250",
    "gfx942": "AMD Instinct MI300X, mi325x",
    "gfx950": "MI355X",
    "gfx1100": "AMD Radeon RX 7900 XTX, rx7900xtx",
    "gfx1201": "rx-9070-xt",
    "sm75": "t4",
    "sm70": "Tesla V100-SXM2-16GB",
    "sm121": "gb10",
    "sm103": "b300",
}


@pytest.mark.parametrize("target", GPUS)
def test_a_name_is_known(target):
    for name in GPUS[target].split(", "):
        gpu = gpu_of(name)
        assert gpu is not None and gpu.architecture == target and gpu.supported == (target in TARGETS), name


@pytest.mark.parametrize("name", ["", "h1000", "sm90", "gfx942", "banana", "nvidia", "100", "rtx", "a"])
def test_other_words_are_no_gpus(name):
    assert gpu_of(name) is None


def test_each_name_has_one_architecture_that_exists():
    listed = [name for names in gpus._OF_ARCHITECTURE.values() for name in names.split()]
    assert len(listed) == len(set(listed)) and all(re.fullmatch("[a-z0-9]+", name) for name in listed)
    assert set(TARGETS) <= set(gpus._OF_ARCHITECTURE)
    for device in DEVICES.values():
        gpu = gpu_of(device.name)
        assert gpu is not None and gpu.architecture == device.target and named(device.name) is device


def test_gpu_gives_the_device():
    assert explain.parser().parse_args(["x", "--gpu", "h100"]).device == "nvidia_h100_80gb_hbm3"
    assert explain.parser().parse_args(["x"]).device == "nvidia_h200"
    assert tune.parse(["x.yaml", "--again", "--gpu", "A100"]).device == "nvidia_a100_sxm4_80gb"
    assert tune.parse(["x.yaml"]).device is None
