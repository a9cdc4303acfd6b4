"""The memory that launches of stream_k need: kept for each stream, bounded, cleared, and given back."""

import importlib

import pytest
import torch

from tests.helpers.stand_ins import failing_launches, launched, operands
from tests.helpers.support import spec

SPLIT = spec("layout: rcr; dtype: {dtype}; schedule: {schedule}; load: pointer")


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
