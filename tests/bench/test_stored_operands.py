"""Stored operands in the benchmark: what they stand for, what a peer multiplies, and that a wrong result is found."""

import pytest
import torch

from generator.bench import check, peers
from generator.bench.random_operands import make_sets, shadow
from generator.epilogue.chain import Epilogue
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape

INT4 = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]})
ZEROS = Dtype("fp16", "uint4", "fp32", "fp16", None).scaled_by({"b": [64, 2]}, zeros=True)
INT8 = Dtype("int8", "int8", "int32", "bf16", None).scaled_by({"a": [1, 0], "b": [0, 1]})
UNSCALED = Dtype("fp16", "int8", "fp32", "fp16", None)
FP8 = Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]})


def problem(dtype, layout="rcr", k=256):
    return Problem(Shape(20, 64, k), dtype, Layout.of(layout), Epilogue())


@pytest.mark.parametrize("dtype", [INT4, ZEROS, INT8, UNSCALED], ids=lambda d: d.word)
def test_a_peer_multiplies_the_numbers(dtype):
    given = problem(dtype)
    (one,) = make_sets(given, "cpu", 1, 3)
    peer = peers.cublas(given)
    assert peer.name.startswith("torch.matmul in")
    (expected,) = check.expect(given, one, torch.Generator().manual_seed(1))
    result = peer.launch(one, None)
    assert check.judge(given, result, expected).fault is None
    assert check.judge(given, result + 0.1 * result.float().std(), expected).fault is not None


def test_fp8_is_multiplied_under_the_same_scales():
    assert peers.cublas(problem(FP8, k=1024)).name == "torch._scaled_mm by blocks"
    assert peers.cublas(problem(FP8)).name == "torch.matmul in bf16", "two scales along K are not four"
    rows = Dtype.of("fp8e4m3").scaled_by({"a": [1, 0], "b": [0, 1]})
    assert peers.cublas(problem(rows)).name == "torch._scaled_mm by rows and columns"
    assert peers.cublas(problem(FP8, "rrr")).name == "torch.matmul in bf16"
    with pytest.raises(peers.NoPeer):
        peers.inductor(problem(FP8))


def test_operands_have_the_shapes_of_the_call():
    one = shadow(problem(ZEROS))
    assert one.b.shape == (128, 64) and one.b.dtype == torch.uint8 and one.b.stride(0) == 1
    assert {name: tuple(x.shape) for name, x in one.keywords.items()} == {"b_scale": (4, 32), "b_zero": (4, 32)}
    # Scales of a step lie next to each other.
    assert shadow(problem(FP8)).keywords["a_scale"].stride() == (1, 20)
    assert problem(INT4).bytes == (20 * 256 * 16 + 256 * 64 * 4 + 20 * 64 * 16 + 2 * 64 * 32) // 8
