"""A family's `_prepare.py`: what calls run, and that after `prepare` they compile nothing.

Where it matters what Triton compiles, Triton's own launch path decides that, for a GPU that is only claimed.
"""

import importlib
import random
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from triton.runtime.jit import JITFunction

from generator.emit.loading import library_module, load_family
from generator.plan.devices import DEVICES
from generator.runtime.call import extents as extents_of
from generator.runtime.prepare import in_threads
from generator.verify.ahead_of_time import standing_in_for
from tests.helpers import shipped
from tests.helpers.support import BASE, forget, render_spec, spec

CUDA = torch.device("cuda", 0)


class Compiled:
    """A compiled kernel, which is loaded when it is first asked what runs it."""

    loaded = False

    @property
    def run(self):
        self.loaded = True


class Compilations(set[tuple[str, str]]):
    """The kernel and the key of all that Triton would have compiled."""

    def keep(self, function, key, *_):
        self.add((function.module, key))
        return Compiled()


@pytest.fixture
def compilations(monkeypatch):
    """Claims an H200, and keeps what is compiled for it."""
    found = Compilations()
    monkeypatch.setattr(JITFunction, "_do_compile", lambda self, key, *rest: found.keep(self, key))
    with standing_in_for(DEVICES["nvidia_h200"]):
        yield found


@pytest.fixture
def load(monkeypatch):
    """A family, of the shipped ones by default, and its `_prepare`; what is compiled cannot be launched."""
    names = []

    def family(name, folder=None):
        names.append(name)
        package = load_family(shipped.folder(name) if folder is None else folder / name)
        ahead = library_module(package, "prepare")
        monkeypatch.setattr(ahead, "Repeat", lambda *plan: None)
        return package, ahead

    yield family
    for name in names:
        forget(name)


def some_call(ahead, contract, sizes, draw):
    """Operands of a call of these sizes, at any address and with any leading dimension."""
    call = getattr(importlib.import_module(ahead.__package__.rpartition(".")[0]), contract).table
    table = {x.name: x for x in (*call.operands, *call.results) if x.name not in [each.name for each in call.reduced]}
    state = ahead.State({}, sizes, CUDA, "a")
    given = {}
    for name, x in table.items():
        dtype, unit, extents = x.dtype, x.unit, extents_of(x.shape)(state.numbers)
        if (x.absent is not None or (x in call.results and not x.read)) and draw.random() < 0.5:
            given[name] = None
        elif not extents:
            given[name] = draw.choice([1.0, 0.37, -2.5])
        else:
            quantised = 1 in (table["a"].dtype.itemsize, table["out"].dtype.itemsize)
            kind = dtype or (torch.float32 if quantised else table["out"].dtype)
            memory = torch.empty(0, dtype=kind, device=CUDA)
            strides = (1,)
            if len(extents) > 1:
                inner = unit - len(extents)
                lead = max(extents[inner], 1) + draw.choice([0, 0, 0, 1, 2, 4, 7, 8, 16, 24, 32, 64, 128, 4096])
                apart = lead * extents[-3 - inner] + draw.choice([0, 0, 1, 8, 16, 64])
                strides = (*[apart] * (len(extents) - 2), *((lead, 1) if inner == -1 else (1, lead)))
            given[name] = memory.as_strided(extents, strides, draw.choice([0, 0, 0, 1, 2, 3, 4, 8, 16]))
    return given


@pytest.mark.parametrize(
    ("family", "contract", "n", "k", "m"),
    [
        # Measured sizes of few rows, of which 1 is a constant to Triton, and from 17 on unaligned operands are copied.
        ("gemm16", "gemm_fp16_rcr_none", 4096, 4096, range(1, 34)),
        # A vector that lies as a column, copies to another layout, and no size a multiple of 16.
        ("gemm16", "gemm_bf16_ccr_none", 1001, 1000, range(1, 6)),
        ("gemm16", "gemm_bf16_rrr_none", 1, 4096, [1, 16, 50]),
        ("tf32", "gemm_tf32_ccr_none", 512, 1024, [512, 1031]),
        # Vectors along N of another type, and two columns of b for one of the result.
        ("fused", "gemm_fp8e4m3_rcr_scalem_scalen", 256, 512, [2, 48]),
        ("fused", "gemm_bf16_rcr_swiglu", 1000, 1024, [3]),
        # Partial sums, a result that is read, auxiliary outputs, a batch, and a tuner.
        ("split_k", "gemm_fp16_rcr_bias_silu", 100, 1000, [1, 128]),
        ("split_k", "gemm_fp16_rcr_none", 256, 8192, [1, 16, 64, 256, 512, 1024, 2048]),
        ("outputs", "gemm_fp16_rcr_accumulate", 128, 64, [2]),
        ("outputs", "gemm_bf16_rcr_bias_save_gelu", 128, 64, [2]),
        ("batched", "bmm_fp16_rcr_none", 64, 100, [3]),
        ("autotune", "gemm_bf16_rcr_none", 100, 1000, [4]),
    ],
)
def test_prepared_calls_compile_nothing(compilations, load, family, contract, n, k, m):
    package, ahead = load(family)
    function, draw = getattr(package, contract), random.Random(7)
    configurations = function.prepare(n, k, M=m, device=CUDA, **({"B": 2} if family == "batched" else {}))
    prepared = len(compilations)
    assert prepared >= configurations > 0
    launched = set()
    with ahead.memoryless():
        for _ in range(400):
            sizes = {"B": 2, "M": draw.choice(m), "N": n, "K": k}
            call = some_call(ahead, contract, sizes, draw)
            try:
                copying, kernel, row, given = function.followed(call)
                copies = [ahead._Launch("copies", None, *each) for each in copying]
            except ValueError:
                # Only kernels with descriptors are in the family.
                continue
            for launch in (*copies, *ahead._launches(kernel, row, given)):
                launch.compiled(CUDA)
                launched.add(launch.name)
    assert launched and len(compilations) == prepared


def test_operands_that_are_always_aligned_and_scalars_of_some_types(compilations, load):
    function, counts = load("gemm16")[0].gemm_fp16_rcr_none, []
    for unaligned in ((), ("a",), ("a", "out"), None):
        function.prepare(4096, 4096, M=[2], device=CUDA, unaligned=unaligned)
        counts.append(len(compilations))
    assert counts[0] == 1 and counts == sorted(set(counts))
    function, counts = load("outputs")[0].gemm_fp16_rcr_accumulate, []
    for dtypes in (None, {"beta": float}, {"beta": torch.float32}, {"beta": (float, torch.float32, torch.bfloat16)}):
        function.prepare(128, 64, M=2, device=CUDA, unaligned=(), dtypes=dtypes)
        counts.append(len(compilations))
    assert counts[0] == counts[1] < counts[2] < counts[3]


def test_both_kernels_of_a_split_product_are_prepared(compilations, load):
    package, ahead = load("split_k")
    function = package.gemm_fp16_rcr_bias_silu
    found = ahead.launches(function, 256, 8192, M=(1, 512, 2048), B=1, device=CUDA)
    planned = [package._kernel(name).CALL.launches for name in package._KERNELS["gemm_fp16_rcr_bias_silu"]]
    firsts, seconds = ([x for x in found if x.kernel in [own[place].kernel for own in planned]] for place in (0, 1))
    assert len(found) == len(firsts) + len(seconds)
    constants = {(launch.name, launch.arguments["BLOCK_N"], launch.arguments["SPLIT"]) for launch in seconds}
    rows = {(launch.name, launch.row) for launch in firsts}
    assert constants == {(name, dict(row)["BLOCK_N"], dict(row)["SPLIT"]) for name, row in rows} and len(constants) > 2
    # Whether the bias is aligned is nothing to the first, which does not read it; the second is no configuration.
    assert {bool(launch.arguments["bias_ptr"].data_ptr() % 16) for launch in seconds} == {False, True}
    assert {launch.row for launch in seconds} == {None}
    assert function.prepare(256, 8192, M=(1, 512, 2048), device=CUDA) == len(rows)


def test_every_configuration_that_the_tuner_tries(compilations, load):
    package, _ = load("autotune")
    (first, *_) = package._KERNELS["gemm_bf16_rcr_none"]
    found = package.gemm_bf16_rcr_none.prepare(4096, 4096, M=4096, device=CUDA, unaligned=())
    assert found == len(package._kernel(first).CONFIGS) == len(compilations) > 1


INTEGERS = "N, K, B and each M must be integers that are not negative, got N=64"


@pytest.mark.parametrize(
    ("keys", "given", "told"),
    [
        ("result: symmetric", {"M": 48}, "M is 48 and N is 64: they must be equal; C is symmetric, so N is M"),
        ("result: symmetric", {"M": 64, "B": 3}, "B is 3, and the contract has neither a batch nor groups"),
        ("batch: none", {"M": []}, rf"{INTEGERS}, K=48, B=1, M=\[\]$"),
        ("batch: none", {"M": [3, -1]}, INTEGERS),
        ("batch: grouped", {"M": 64, "B": 1.5}, INTEGERS),
        ("batch: grouped_k", {"M": 64, "B": True}, "N, K, B and each M must be integers .* got .*, B=True, M=64"),
        ("batch: grouped", {"M": 2**31, "B": 4}, r"R is 2147483648: a size must be at most 2\*\*31 - 2\*\*16"),
        ("batch: grouped", {"M": 64, "B": 4, "unaligned": "row"}, "it has no operand 'row'; its operands are a, b, of"),
        ("batch: none", {"M": 3, "dtypes": {"a": torch.float32}}, "the dtype of a is torch.float16, got torch.float32"),
        ("epilogue: bias", {"M": 3, "dtypes": {"bias": torch.int32}}, "bias must be of a floating type.*torch.int32"),
        ("masking: none", {"M": 3}, r"no kernel accepts the operands:\n.*M: BLOCK_M needs multiples of 16, got 3"),
    ],
)
def test_calls_of_prepare_that_no_call_of_the_contract_is(compilations, load, tmp_path, keys, given, told):
    text = f"{BASE}load: pointer\ntile: [{{m: 16, n: 16, k: 16, warps: 1}}]\n{keys}\n"
    render_spec(tmp_path, "several", text)
    package, _ = load("several", tmp_path)
    (name,) = package._KERNELS
    with pytest.raises((TypeError, ValueError), match=rf"^{name}:? {told}"):
        getattr(package, name).prepare(64, 48, device=CUDA, **given)
    assert not compilations
    if keys == "masking: none":
        # Of a range, the sizes that some kernel accepts are prepared.
        assert getattr(package, name).prepare(64, 48, M=range(1, 40), device=CUDA, unaligned=()) == 1


def test_sizes_of_other_libraries_and_a_name_alone(compilations, load):
    function = load("fp16_rcr")[0].gemm_fp16_rcr_none
    assert function.prepare(0, 64, M=3, device=CUDA) == 0 and not compilations, "an empty result needs no kernel"
    assert function.prepare(*np.array([64, 48]), M=np.arange(1, 3), device=CUDA, unaligned="out") > 0
    prepared = len(compilations)
    assert function.prepare(64, 48, M=(1, 2), device=CUDA, unaligned=("out",)) > 0
    assert len(compilations) == prepared


SPEC = spec(
    "layout: [rcr, rrr]; dtype: fp16; epilogue: [none, scale+bias]; schedule: [persistent, tiled]; "
    "load: [descriptor, pointer]; exclude: [{schedule: persistent, load: pointer, because: not here}]"
)


@pytest.mark.parametrize(
    ("m", "n", "k", "ld"),
    [
        (64, 48, 32, 32),
        # No descriptor can address A; then an N of which the same is true of C; then operands that are copied.
        (16, 48, 33, 33),
        (16, 49, 32, 32),
        (401, 408, 33, 40),
        # A vector, which the contract for the other layout of B computes.
        (64, 1, 32, 32),
    ],
)
@pytest.mark.parametrize("contract", ["gemm_fp16_rcr_none", "gemm_fp16_rrr_none", "gemm_fp16_rcr_scale_bias"])
def test_which_is_what_a_call_runs(rendered, contract, m, n, k, ld):
    package = rendered(SPEC)
    a, b = torch.randn(m, ld).half()[:, :k], torch.randn(n, ld).half()[:, :k].T
    if "rrr" in contract:
        b = b.contiguous()
    operands = {"scale": 2.0, "bias": torch.randn(n)} if "bias" in contract else {}
    function = getattr(package, contract)
    name, row = function.which(a, b, **operands)
    modules = {name: package._kernel(name) for names in package._KERNELS.values() for name in names}
    assert not any(module.gemm_kernel.launches for module in modules.values())
    function(a, b, **operands)
    (launched,) = [name for name, module in modules.items() if module.gemm_kernel.launches]
    ((_, _, arguments),) = modules[launched].gemm_kernel.launches
    assert name == launched and row in modules[name].CONFIGS and row.items() <= arguments.items()
    row["BLOCK_M"] = 0
    assert function.which(a, b, **operands)[1]["BLOCK_M"], "the caller has a copy"


def test_which_configuration_is_not_known_before(rendered, monkeypatch):
    package = rendered("summary: Tuned.\nlayout: rcr\ndtype: fp16\nselect: autotune\nload: pointer\n")
    ((contract, (name,)),) = package._KERNELS.items()
    kernel = package._kernel(name)
    kernel.CALL.tuner.kernel = lambda call: kernel.gemm_kernel
    # As on a GPU.
    monkeypatch.setattr(type(kernel.CALL), "tunes", True)
    a, b = torch.randn(4, 8).half(), torch.randn(16, 8).half().T
    assert getattr(package, contract).which(a, b) == (name, {})
    assert getattr(package, contract).which(a[:0], b) == (name, {})


def test_a_source_that_the_parser_gives_up_is_compiled_once_more_when_no_thread_runs():
    """CPython's parser, before 3.11.8, fails by chance if threads parse; Triton wraps the error or hands it on."""
    launches = [SimpleNamespace(number=number, kernel=SimpleNamespace(fn=Mock())) for number in range(3)]

    def compiled(launch):
        if launch.number and threading.current_thread() is not threading.main_thread():
            given_up = SystemError("AST constructor recursion depth mismatch")
            if launch.number == 1:
                raise given_up
            raise RuntimeError("tl.cdiv(M, BLOCK_M)") from given_up
        return int(launch.number)

    assert in_threads(launches, compiled) == [0, 1, 2]
    with pytest.raises(ValueError, match="its own"):
        in_threads(launches, Mock(side_effect=ValueError("its own")))
    with pytest.raises(SystemError, match="always"):
        in_threads(launches, Mock(side_effect=SystemError("always")))
