"""The memory that launches need: of stream_k kept for each stream, of several kernels allocated by every call."""

import importlib
import sys

import pytest
import torch

from generator.lowering.decoding import MOST_DECODED
from tests.helpers.stand_ins import Compiled, failing_launches, launched, operands
from tests.helpers.support import spec

SPLIT = spec("layout: rcr; dtype: {dtype}; schedule: {schedule}; load: pointer")
PARTS = spec(
    "layout: rcr; dtype: fp16; schedule: split_k; load: {load}; epilogue: [none, bias]; "
    "tile: [{{m: 32, n: 32, k: 32, group: 2, warps: 4, split: 3}}]"
)
DECODED = spec(
    "layout: [rcr, rrr]; dtype: {{a: bf16, b: int4, scales: {{b: [32, 1]}}}}; schedule: {schedule}; load: {load}; "
    "epilogue: [none, swiglu]; tile: [{{m: 32, n: 32, k: 32, group: 2, warps: 4}}]"
)
NAME = "gemm_bf16xint4_fp32_bf16_b32x1_rcr_none"


def test_a_result_that_is_added_to_is_cleared_for_every_call(rendered):
    package = rendered(SPLIT.format(dtype="{a: fp16, out: fp32}", schedule="split_k_atomic"))
    ((contract, _),) = package._KERNELS.items()
    for _ in range(3):
        out = torch.ones(64, 48)
        getattr(package, contract)(*operands(), out=out)
        assert not out.any()
    kernel = launched(package, contract)
    assert len(kernel.launches) == 1 and len(kernel.compiled.runs) == 2


@pytest.fixture
def split(rendered):
    return rendered(SPLIT.format(dtype="fp16", schedule="stream_k"))


def streams_of():
    """What has the current stream."""
    return importlib.import_module("again._runtime.fast")._driver()


def memory(kernel):
    """The addresses of partial sums and counters that the last launch was given."""
    own = dict(zip(kernel.arg_names, kernel.compiled.runs[-1][9:]))
    return own["work_ptr"], own["counters_ptr"]


def test_partial_sums_and_counters_have_one_place_for_each_stream(split, monkeypatch):
    cached, function = importlib.import_module("again._runtime.workspaces"), split.gemm_fp16_rcr_none
    stream = ["first"]
    monkeypatch.setattr(streams_of(), "get_current_stream", lambda index: stream[0])
    function(*operands())
    kernel = launched(split, "gemm_fp16_rcr_none")
    assert not cached._workspaces, "the first launch has memory of its own"
    function(*operands())
    first = memory(kernel)
    ((sums, counters),) = cached._workspaces.values()
    assert first == (sums.data_ptr(), counters.data_ptr()) and not counters.any()
    asked = kernel.launches[0][2]
    assert sums.numel() >= 4 * asked["work_ptr"].numel() and counters.numel() >= asked["counters_ptr"].numel()
    # Kernels set them back.
    counters.fill_(7)
    function(*operands())
    assert memory(kernel) == first and (counters == 7).all()
    stream[0] = "second"
    function(*operands())
    assert memory(kernel) != first and len(cached._workspaces) == 2
    # More tiles: the place of this stream grows, the other stays.
    for _ in range(2):
        function(*operands(1024, 1024))
    assert cached._workspaces[torch.device("cpu"), "first"] == (sums, counters)
    grown = cached._workspaces[torch.device("cpu"), "second"]
    assert grown[1].numel() > counters.numel() and memory(kernel) == tuple(x.data_ptr() for x in grown)
    function(*operands())
    assert memory(kernel) == tuple(x.data_ptr() for x in grown)
    split.free_workspaces()
    assert not cached._workspaces


def test_workspaces_are_bounded(split, monkeypatch):
    cached, function = importlib.import_module("again._runtime.workspaces"), split.gemm_fp16_rcr_none
    streams = iter(range(100))
    monkeypatch.setattr(streams_of(), "get_current_stream", lambda index: next(streams))
    for _ in range(12):
        function(*operands())
    assert [stream for _, stream in cached._workspaces] == [*range(3, 11)]
    split.free_workspaces()
    for limit in ("_BYTES", "_COUNTERS"):
        with monkeypatch.context() as patched:
            patched.setattr(cached, limit, 0)
            function(*operands())
        assert not cached._workspaces


def test_a_captured_call_has_a_workspace_of_its_own(split, monkeypatch):
    cached, function = importlib.import_module("again._runtime.workspaces"), split.gemm_fp16_rcr_none
    for _ in range(2):
        function(*operands())
    kernel, ((_, counters),) = launched(split, "gemm_fp16_rcr_none"), cached._workspaces.values()
    cleared = []
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, **o: cleared.append(zeros(*a, **o)) or cleared[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    function(*operands())
    assert [x.data_ptr() for x in cleared] == [memory(kernel)[1]] != [counters.data_ptr()]


def test_an_error_of_a_launch_throws_workspaces_away(split, monkeypatch):
    cached, function = importlib.import_module("again._runtime.workspaces"), split.gemm_fp16_rcr_none
    for _ in range(2):
        function(*operands())
    compiled = launched(split, "gemm_fp16_rcr_none").compiled
    assert cached._workspaces
    with failing_launches(), pytest.raises(RuntimeError, match="no launch"):
        function(*operands())
    assert not cached._workspaces
    function(*operands())
    ((_, counters),) = cached._workspaces.values()
    assert not counters.any() and len(compiled.runs) == 3


@pytest.fixture(params=["pointer", "descriptor"])
def parts(request, rendered):
    return rendered(PARTS.format(load=request.param))


def kernels(package, contract):
    """The stand-ins for both kernels of a contract that has one file."""
    module = package._kernel(*package._KERNELS[contract])
    return module.gemm_kernel, module.sum_kernel


def test_a_cached_call_launches_both_in_order_with_its_own_operands(parts, monkeypatch):
    order = []
    run = Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda self, *given: order.append(self) or run(self, *given))
    function = parts.gemm_fp16_rcr_bias
    for _ in range(3):
        (a, b), bias = operands(), torch.randn(48)
        result = function(a, b, bias=bias)
    first, second = kernels(parts, "gemm_fp16_rcr_bias")
    assert len(first.launches) == len(second.launches) == 1
    assert order == [first.compiled, second.compiled] * 2 and first.compiled is not second.compiled
    for own, then in zip(first.compiled.runs, second.compiled.runs, strict=True):
        assert own[:3] == (4, 3, 1) and then[:3] == (8, 1, 1) and own[3] == then[3]
    if {"a_ptr", "c_ptr"} <= {*first.arg_names, *second.arg_names}:
        given, behind = (dict(zip(x.arg_names, x.compiled.runs[-1][9:])) for x in (first, second))
        assert (given["a_ptr"], given["b_ptr"]) == (a.data_ptr(), b.data_ptr())
        assert (behind["c_ptr"], behind["bias_ptr"]) == (result.data_ptr(), bias.data_ptr())
        assert given["sums_ptr"] == behind["sums_ptr"] not in (a.data_ptr(), b.data_ptr(), result.data_ptr())


@pytest.mark.parametrize("capturing", [False, True])
def test_every_call_allocates_its_sums(parts, monkeypatch, capturing):
    """Torch's allocator keeps them apart: on other streams, in CUDA graphs, and while another call is under way."""
    function, out = parts.gemm_fp16_rcr_none, torch.empty(64, 48, dtype=torch.float16)
    function(*operands(), out=out)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    made = []
    empty = torch.empty_strided

    def keep(*given, **options):
        made.append(empty(*given, **options))
        return made[-1]

    monkeypatch.setattr(torch, "empty_strided", keep)
    for _ in range(2):
        function(*operands(), out=out)
    assert [(x.shape, x.dtype) for x in made] == [((3, 64, 48), torch.float32)] * 2
    first, second = kernels(parts, "gemm_fp16_rcr_none")
    for sums, run, then in zip(made, first.compiled.runs, second.compiled.runs, strict=True):
        assert sums.data_ptr() in run[9:] and sums.data_ptr() in then[9:]
    assert "again._runtime.workspaces" not in sys.modules, "no memory is shared by calls"


def large():
    """Operands whose dense B has more bytes than are allocated, in little memory."""
    k, n = 16384, MOST_DECODED // (2 * 16384) + 1
    b = torch.zeros(k // 2, 1, dtype=torch.uint8).expand(k // 2, n)
    return {"a": torch.zeros(1, k, dtype=torch.bfloat16), "b": b, "b_scale": torch.ones(1, 1).expand(512, n)}


def test_a_large_b_is_refused_or_a_siblings(rendered):
    package, given = rendered(DECODED.format(schedule="[tiled, decoded]", load="pointer")), large()
    assert getattr(package, NAME)(**given).shape == (1, 16385)
    tiled, decoded = (package._kernel(name) for name in package._KERNELS[NAME])
    assert len(tiled.gemm_kernel.launches) == 1 and not decoded.gemm_kernel.launches
    with pytest.raises(ValueError, match="the bytes of a decoded b are at most 536870912, got 536903680"):
        decoded.gemm(**given)
    decoded.gemm(**{name: x[:, :-1] if name != "a" else x for name, x in given.items()})
    assert len(decoded.gemm_kernel.launches) == 1
