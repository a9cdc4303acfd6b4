"""The two kernels of split_k: launched in order by every call, on partial sums that the call allocates."""

import sys

import pytest
import torch

from tests.helpers.stand_ins import Compiled, operands
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: fp16; schedule: split_k; load: {load}; epilogue: [none, bias]; "
    "tile: [{{m: 32, n: 32, k: 32, group: 2, warps: 4, split: 3}}]"
)


@pytest.fixture(params=["pointer", "descriptor"])
def split(request, rendered):
    return rendered(SPEC.format(load=request.param))


def kernels(package, contract):
    """The stand-ins for both kernels of a contract that has one file."""
    (name,) = package._KERNELS[contract]
    module = package._kernel(name)
    return module.gemm_kernel, module.sum_kernel


def test_a_cached_call_launches_both_in_order_with_its_own_operands(split, monkeypatch):
    order = []
    run = Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda self, *given: order.append(self) or run(self, *given))
    function = split.gemm_fp16_rcr_bias
    for _ in range(3):
        (a, b), bias = operands(), torch.randn(48)
        result = function(a, b, bias=bias)
    first, second = kernels(split, "gemm_fp16_rcr_bias")
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
def test_every_call_allocates_its_sums(split, monkeypatch, capturing):
    """Torch's allocator keeps them apart: on other streams, in CUDA graphs, and while another call is under way."""
    function, out = split.gemm_fp16_rcr_none, torch.empty(64, 48, dtype=torch.float16)
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
    first, second = kernels(split, "gemm_fp16_rcr_none")
    for sums, run, then in zip(made, first.compiled.runs, second.compiled.runs, strict=True):
        assert sums.data_ptr() in run[9:] and sums.data_ptr() in then[9:]
    assert "again._runtime.workspaces" not in sys.modules, "no memory is shared by calls"
