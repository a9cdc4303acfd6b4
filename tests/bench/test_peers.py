"""The other side: the library's own product, what torch.compile makes of it, and gates on both sides."""

import math
from dataclasses import replace

import pytest
import torch

from generator.bench import check, eager, peers, random_operands
from generator.bench.measure import Options
from generator.bench.peers import PEERS as BY_WORD
from generator.bench.random_operands import make_sets, shadow
from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.epilogue.chain import Epilogue
from generator.epilogue.gated_units import INTERLEAVED, ORDER
from generator.language.built_in import OPERATIONS, chain_of
from generator.language.model import Dtype, Layout
from generator.problem import torch_functions
from generator.problem.accumulation_bounds import tolerance
from generator.problem.product import Problem, Shape

from .test_measure import contestant, measured, problem


def test_a_peer_that_does_not_compute_it_refuses(tmp_path):
    record = measured(contestant(tmp_path, "one", "raise ValueError('x')"), of=problem("fp8e5m2"))
    peer = record.sides[-1]
    assert peer.refused and peer.failure == "torch._scaled_mm does not multiply fp8e5m2 by fp8e5m2"


#: What is told of torch's calls, one after the other and all that it fuses.
PEERS = {
    ("bf16", "bias+relu"): ("torch.matmul + bias + relu", "torch._addmm_activation(relu)"),
    ("bf16", "bias+gelu_tanh"): ("torch.matmul + bias + gelu_tanh", "torch._addmm_activation(gelu_tanh)"),
    ("bf16", "silu"): ("torch.matmul + silu", None),
    ("bf16", "bias+geglu+mul"): ("torch.matmul + bias + geglu + mul", "torch.addmm + geglu + mul"),
    ("int8>bf16", "scale_m+scale_n+swiglu"): ("torch._int_mm + scale_m + scale_n + swiglu", None),
    ("fp8e4m3", "scale_n+scale_m+silu"): (
        *("torch._scaled_mm + scale_n + scale_m + silu", "torch._scaled_mm by rows and columns + silu"),
    ),
    ("fp8e4m3", "scale+bias"): ("torch._scaled_mm + scale + bias", None),
    # Nothing in between is rounded to the result's type.
    ("bf16>int8", ""): ("torch.matmul, then int8", None),
    ("bf16>int8", "bias+relu+scale"): (
        *("torch.matmul + bias + relu + scale, then int8", "torch._addmm_activation(relu) + scale, then int8"),
    ),
    ("fp8e4m3>fp8e4m3", "scale_m+scale_n"): (
        *("torch._scaled_mm + scale_m + scale_n, then fp8e4m3", "torch._scaled_mm by rows and columns, then fp8e4m3"),
    ),
    ("int8>fp8e4m3", "scale_m"): ("torch._int_mm + scale_m, then fp8e4m3", None),
}


@pytest.mark.parametrize(("dtype", "word"), PEERS)
def test_nothing_fused_and_all_that_the_library_fuses(tmp_path, dtype, word):
    a, _, out = dtype.partition(">")
    found = Dtype.of(a)
    of = replace(
        problem(a, chain_of(tuple(filter(None, word.split("+"))))),
        shape=Shape(32, 48, 32),
        dtype=replace(found, out=out) if out else found,
    )
    given = {"of": of, "options": Options(rounds=2), "peers": ("eager", "fused")}
    record = measured(contestant(tmp_path, "none", "raise ValueError('not today')"), **given)
    plain, fused = record.peers.values()
    wanted, together = PEERS[dtype, word]
    assert plain.failure is None and plain.name == wanted
    if together is None:
        assert fused.refused and fused.failure is not None and "torch has no call that fuses" in fused.failure
    else:
        assert fused.failure is None and fused.name == together


@pytest.mark.parametrize("out", ["int8", "fp8e4m3", "fp8e5m2"])
def test_a_quantised_result_is_checked_as_it_is_quantised(tmp_path, out):
    of = replace(problem("bf16"), dtype=Dtype("bf16", "bf16", "fp32", out, None), shape=Shape(24, 40, 64))

    def side(label, factor):
        made = f"from generator.problem.element_types import quantise, torch_type; kind = torch_type({out!r})"
        product = f"quantise({factor} * (a.double() @ b.double()), kind).to(kind)"
        return contestant(
            tmp_path, label, f"{made}; made = {product}; out = made if out.dtype != kind else out.copy_(made)"
        )

    record = measured(side("right", 1.0), side("wrong", 1.1), of=of)
    right, wrong, peer = record.sides
    assert right.failure is None and peer.failure is None
    assert wrong.failure is not None and wrong.failure.startswith("wrong result")


@pytest.mark.parametrize("word", sorted(eager.NATIVE))
def test_torchs_function_is_the_operation(word):
    chains = [chain_of((word,))] if word != "clamp" else []
    settings = {
        "clamp": [(("min", 0), ("max", 6)), (("max", 1.5),)],
        "leaky_relu": [(("negative_slope", 0.2),)],
        "softplus": [(("beta", 2), ("threshold", 4))],
    }
    chains += [Epilogue.chain([(word, OPERATIONS[word], each)]) for each in settings.get(word, [])]
    settings |= {name: [((ORDER, INTERLEAVED),)] for name, each in OPERATIONS.items() if each.gated}
    line = torch.linspace(-30, 30, 901, dtype=torch.float64)
    x = torch.cat((line, line.roll(7)))[None]
    for chain in chains:
        torch.testing.assert_close(
            eager.apply(chain, x, {}), torch_functions.apply(chain, x, {}), rtol=1e-9, atol=1e-12
        )


def compiled_graphs(monkeypatch, failure=""):
    """The graphs that torch.compile passes to its backend from here on, which runs them as they are or fails."""
    graphs = []
    real = torch.compile

    def backend(graph, inputs):
        graphs.append(graph)
        if failure:
            raise RuntimeError(failure)
        return graph.forward

    def compile(model, *, mode, dynamic):
        assert (mode, dynamic) == ("max-autotune-no-cudagraphs", False)
        return real(model, backend=backend, dynamic=dynamic, fullgraph=True)

    monkeypatch.setattr(torch, "compile", compile)
    return graphs


@pytest.mark.parametrize(
    ("dtype", "word"),
    [("fp16", ""), ("bf16", "bias+gelu"), ("tf32", "bias_m+tanh"), ("fp8e4m3", ""), ("bf16", "bias+silu+mul")],
)
def test_the_compiled_peer_computes_the_same(tmp_path, monkeypatch, dtype, word):
    graphs = compiled_graphs(monkeypatch)
    of = replace(problem(dtype, chain_of(tuple(filter(None, word.split("+"))))), shape=Shape(32, 48, 32))
    given = {"of": of, "options": Options(rounds=2), "peers": ("cublas", "inductor")}
    record = measured(contestant(tmp_path, "none", "raise ValueError('not today')"), **given)
    assert list(record.peers) == ["cublas", "inductor"]
    library, own = record.peers.values()
    assert own.failure is None and own.gpu is not None
    assert own.name == f"torch.compile({library.name})"
    (graph,) = graphs
    assert "ones" not in graph.code, "scales are given, as to the library"


CHAINS = ["save+relu", "bias+save+gelu+row_sum+col_sum", "row_amax", "bias+swiglu+save+row_amax+mul"]


@pytest.mark.parametrize("out", ["bf16", "int8"])
@pytest.mark.parametrize("word", CHAINS)
def test_the_compiled_graph_returns_what_is_written_beside(monkeypatch, word, out):
    graphs = compiled_graphs(monkeypatch)
    of = problem("bf16", chain_of(tuple(word.split("+"))))
    of = replace(of, dtype=replace(of.dtype, out=out))
    (one,) = make_sets(of, "cpu", 1, seed=0)
    returned = BY_WORD["inductor"](of).launch(one, None)
    (graph,) = graphs
    kept = graph.graph.output_node().args[0]
    assert len(returned) == len(kept) == 1 + len(of.epilogue.outputs)
    eager_ones = BY_WORD["eager"](of).launch(one, one.out)
    assert eager_ones[0] is one.out
    for found, expected in zip(returned, eager_ones, strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2 if out == "bf16" else 1)
    sizes = {"M": (24,), "N": (40,), "MN": (24, 40)}
    assert [tuple(found.shape) for found in returned[1:]] == [sizes[each.shape] for each in of.epilogue.outputs]
    saved = [found for found, each in zip(returned[1:], of.epilogue.outputs) if not each.reduced]
    assert all(found.dtype == one.out.dtype for found in saved)


def test_a_peer_that_fails_is_told(tmp_path, monkeypatch):
    compiled_graphs(monkeypatch, "no compiler here")
    record = measured(contestant(tmp_path, "one"), options=Options(rounds=2), peers=("inductor",))
    (fault,) = record.faults
    assert fault.failure is not None and "no compiler here" in fault.failure
    assert record.sides[0].gpu is not None


@pytest.mark.parametrize("shape", [Shape(24, 40, 32), Shape(24, 40, 32, 3), Shape(24, 40, 32, batch=2)], ids=str)
def test_a_gate_has_two_columns_of_b_for_each_of_the_result(shape):
    of = replace(problem("bf16", chain_of(("bias", "swiglu", "add"))), shape=shape)
    (one,) = random_operands.make_sets(of, "cpu", 1, seed=0)
    front = (shape.batch,) if shape.batch else ()
    assert one.b.shape == (*front, 32, 80) and one.out.shape == (*front, 24, 40)
    assert {name: tuple(x.shape[-2:]) for name, x in one.epilogue.items()} == {"bias": (80,), "add": (24, 40)}
    products = shape.batch or 1
    assert of.flops == 2 * 24 * 80 * 32 * products
    assert of.bytes == 2 * (products * (24 * 32 + 32 * 80 + 2 * 24 * 40) + 80)


def test_an_error_of_one_half_counts_by_the_other():
    """Sums that are as far off as their type allows may be, whose product is small where one of them is."""
    of = replace(problem("fp8e4m3", chain_of(("swiglu",))), shape=Shape(128, 128, 512))
    (one,) = random_operands.make_sets(of, "cpu", 1, seed=0)
    (expected,) = check.expect(of, one, torch.Generator())
    product = one.a.double() @ one.b.double()
    noise = torch.randn(product.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    off = product + 0.2 * tolerance(of.dtype, 512) * math.sqrt(512) * noise
    out = (torch.nn.functional.silu(off[:, :128]) * off[:, 128:]).bfloat16()
    assert check.judge(of, out, expected).fault is None
    out[3, 5] += float(expected.parts[0].value.norm()) / 128
    fault = check.judge(of, out, expected).fault
    assert fault is not None and "one element" in fault


def gated(order, *before):
    gate = ("swiglu", OPERATIONS["swiglu"], () if order == "concatenated" else (("order", order),))
    return Epilogue.chain([*((name, {**OPERATIONS, **AUXILIARY}[name], ()) for name in before), gate])


@pytest.mark.parametrize("order", ["concatenated", "interleaved"])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_benchmark_knows_both_orders(order, sampled, monkeypatch):
    """The product of two halves, whole and in the rows and columns that a large one is looked at in."""
    if sampled:
        monkeypatch.setattr(check, "_WHOLE", 0)
        monkeypatch.setattr(check, "_SAMPLED", 7)
    of = Problem(Shape(20, 24, 16), Dtype.of("fp32"), Layout.of("rcr"), gated(order, "bias", "save"))
    (one,) = make_sets(of, "cpu", 1, 3)
    assert one.b.shape == (16, 48) and of.flops == 2 * 20 * 48 * 16
    bias = one.epilogue["bias"]
    assert isinstance(bias, torch.Tensor) and bias.shape == (48,)
    x = one.a.double() @ one.b.double() + bias.double()
    gate, up = x.chunk(2, -1) if order == "concatenated" else (x[:, 0::2], x[:, 1::2])
    result = torch.nn.functional.silu(gate) * up
    expected, saved = check.expect(of, one, torch.Generator().manual_seed(1))
    assert check.judge(of, result.float(), expected).fault is None
    assert check.judge(of, x.float(), saved).fault is None
    assert check.judge(of, torch.cat((x[:, 24:], x[:, :24]), -1).float(), saved).fault is not None
    assert check.judge(of, (torch.nn.functional.silu(up) * gate).float(), expected).fault is not None


INT4 = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]})
ZEROS = Dtype("fp16", "uint4", "fp32", "fp16", None).scaled_by({"b": [64, 2]}, zeros=True)
INT8 = Dtype("int8", "int8", "int32", "bf16", None).scaled_by({"a": [1, 0], "b": [0, 1]})
UNSCALED = Dtype("fp16", "int8", "fp32", "fp16", None)
FP8 = Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]})


def stored(dtype, layout="rcr", k=256):
    return Problem(Shape(20, 64, k), dtype, Layout.of(layout), Epilogue())


@pytest.mark.parametrize("dtype", [INT4, ZEROS, INT8, UNSCALED], ids=lambda d: d.word)
def test_a_peer_multiplies_the_numbers(dtype):
    given = stored(dtype)
    (one,) = make_sets(given, "cpu", 1, 3)
    peer = peers.cublas(given)
    assert peer.name.startswith("torch.matmul in")
    (expected,) = check.expect(given, one, torch.Generator().manual_seed(1))
    result = peer.launch(one, None)
    assert check.judge(given, result, expected).fault is None
    assert check.judge(given, result + 0.1 * result.float().std(), expected).fault is not None


def test_fp8_is_multiplied_under_the_same_scales():
    assert peers.cublas(stored(FP8, k=1024)).name == "torch._scaled_mm by blocks"
    assert peers.cublas(stored(FP8)).name == "torch.matmul in bf16", "two scales along K are not four"
    rows = Dtype.of("fp8e4m3").scaled_by({"a": [1, 0], "b": [0, 1]})
    assert peers.cublas(stored(rows)).name == "torch._scaled_mm by rows and columns"
    assert peers.cublas(stored(FP8, "rrr")).name == "torch.matmul in bf16"
    with pytest.raises(peers.NoPeer):
        peers.inductor(stored(FP8))


def test_operands_have_the_shapes_of_the_call():
    one = shadow(stored(ZEROS))
    assert one.b.shape == (128, 64) and one.b.dtype == torch.uint8 and one.b.stride(0) == 1
    assert {name: tuple(x.shape) for name, x in one.keywords.items()} == {"b_scale": (4, 32), "b_zero": (4, 32)}
    # Scales of a step lie next to each other.
    assert shadow(stored(FP8)).keywords["a_scale"].stride() == (1, 20)
    assert stored(INT4).bytes == (20 * 256 * 16 + 256 * 64 * 4 + 20 * 64 * 16 + 2 * 64 * 32) // 8
