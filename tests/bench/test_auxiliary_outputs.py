"""Outputs beside C and quantised results, judged as C is: what is wrong, left out, or of another shape is no result."""

from dataclasses import replace

import pytest
import torch

from generator.bench import check, random_operands
from generator.bench.measure import Options
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape

from .test_measure import contestant, measured, problem

#: C, what it was before relu, and three reductions of that.
WORD = "save+row_sum+col_sum+row_amax+relu"
RIGHT = """x = a.double() @ b.double()
    outputs = [x.to(out.dtype), x.sum(-1).float(), x.sum(-2).float(), x.abs().amax(-1).float()]
    out.copy_(x.relu())
    CHANGE
    return out, *outputs
"""
NAMES = ("preact", "row_sum", "col_sum", "row_amax")


def of(word=WORD, dtype="fp16"):
    return problem(dtype, chain_of(tuple(word.split("+"))))


def body(change="pass"):
    return RIGHT.replace("CHANGE", change)


@pytest.mark.parametrize("shape", [Shape(24, 40, 32), Shape(1, 40, 32), Shape(24, 40, 32, batch=3)], ids=str)
def test_right_outputs_are_timed(tmp_path, shape):
    given = {"of": replace(of(), shape=shape), "options": Options(rounds=2), "peers": ("cublas", "eager")}
    record = measured(contestant(tmp_path, "right", body()), **given)
    assert all(side.failure is None and side.gpu is not None for side in record.sides)
    assert record.sides[0].error is not None and record.sides[0].tolerance is not None
    assert 0 < record.sides[0].error < record.sides[0].tolerance


@pytest.mark.parametrize("index", range(4), ids=NAMES)
@pytest.mark.parametrize("change", ["outputs[{}] *= 1.02", "outputs[{}][3] += 30", "outputs[{}][3] = float('nan')"])
def test_a_wrong_output_is_a_wrong_side(tmp_path, change, index):
    wrong = contestant(tmp_path, "wrong", body(change.format(index)))
    record = measured(wrong, contestant(tmp_path, "right", body()), of=of())
    side, right, peer = record.sides
    assert side.failure is not None and side.failure.startswith(f"wrong {NAMES[index]}: ")
    assert side.gpu is None and not side.refused and record.faults == (side,)
    assert right.gpu is not None and peer.gpu is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("outputs.pop()", "a tuple of 4, expected"),
        ("return out", "Tensor, expected"),
        ("outputs[1] = 7.0", "float, not a tensor"),
        ("outputs[1] = outputs[1][:, None]", "row_sum is (24, 1), expected (24,)"),
    ],
)
def test_outputs_of_another_form_are_told(tmp_path, change, message):
    side, _ = measured(contestant(tmp_path, "wrong", body(change)), of=of()).sides
    assert side.failure is not None and message in side.failure and not side.refused


def test_an_output_that_is_no_longer_written_is_seen(tmp_path):
    """The timed calls hand out the first call's sums again, which the check has spoilt meanwhile."""
    change = "kept.setdefault(a.data_ptr(), outputs[1]); outputs[1] = kept[a.data_ptr()]"
    path = contestant(tmp_path, "late", body(change))
    path.file.write_text("kept = {}\n" + path.file.read_text())
    side, _ = measured(path, of=of()).sides
    assert side.failure == f"wrong row_sum: relative error inf, at most {side.tolerance} is right"


@pytest.mark.parametrize("out", ["fp16", "int8"])
def test_narrow_results_and_whole_numbers_have_their_sums(out):
    """Of int8 every C is exact, and a sum in fp32 is not."""
    whole = of(WORD.replace("+relu", ""), "int8") if out == "int8" else of()
    (one,) = random_operands.make_sets(whole, "cpu", 1, seed=0)
    expected = check.expect(whole, one, torch.Generator())
    x = one.a.double() @ one.b.double()
    for found, each in zip((x.float().sum(-1), x.float().sum(-2), x.float().abs().amax(-1)), expected[2:], strict=True):
        assert check.judge(whole, found, each).fault is None
        found[5] += 1 + 0.01 * found.abs().max()
        assert check.judge(whole, found, each).fault is not None


def test_sums_that_cancel_are_judged_by_their_terms():
    """Rounding of the terms is all of what is left of a sum that comes to nothing; a term too many is still seen."""
    large = Problem(Shape(1, 1024, 16), Dtype.of("bf16"), Layout.of("rrr"), chain_of(("row_sum",)))
    (one,) = random_operands.make_sets(large, "cpu", 1, seed=0)
    columns = one.b.double()
    one.b.copy_(torch.cat((columns[:, :512], -columns[:, :512]), 1))
    _, expected = check.expect(large, one, torch.Generator())
    assert float(expected.parts[0].value.abs().max()) < 1e-9
    x = one.a.double() @ one.b.double()
    noise = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = (x * (1 + 2**-9 * noise)).float().sum(-1)
    assert check.judge(large, found, expected).fault is None
    assert check.judge(large, found + x.float().amax(-1), expected).fault is not None


#: By the rule, a block of 32 columns at a time.
QUANTISED = """from generator.runtime import pack
    x = (a.double() @ b.double()).float()
    given = pack.quantize_rows(x, pack.Stored("WORD", "row", (1, 32)))
    fits = out.shape == given["a"].shape and out.dtype == given["a"].dtype
    found, scale = out.copy_(given["a"]) if fits else given["a"], given["a_scale"]
    CHANGE
    return found, scale
"""
BLOCK = {"fp8e4m3": {"block": 32}, "int8": {"block": 32}}


def quantised(word):
    return problem("fp16", chain_of([{"operation": "quantize", "to": word, **BLOCK.get(word, {})}]))


@pytest.mark.parametrize("word", ["fp8e4m3", "int8", "mxfp8e5m2", "mxfp4"])
def test_right_elements_and_scales_are_timed(tmp_path, word):
    text = QUANTISED.replace("WORD", word).replace("CHANGE", "pass")
    record = measured(contestant(tmp_path, "right", text), of=quantised(word), options=Options(rounds=2))
    side = record.sides[0]
    assert side.failure is None and side.gpu is not None and side.tolerance is not None and side.error is not None
    assert 0 < side.error < side.tolerance


@pytest.mark.parametrize("change", ["scale = scale.roll(1, -1)", "scale = scale * 1.5", "found.zero_()"])
def test_scales_of_others_and_missing_elements_are_wrong(tmp_path, change):
    text = QUANTISED.replace("WORD", "fp8e4m3").replace("CHANGE", change)
    side = measured(contestant(tmp_path, "wrong", text), of=quantised("fp8e4m3"), options=Options(rounds=2)).sides[0]
    assert side.failure is not None and side.failure.startswith("wrong result: ")


def test_the_bytes_of_elements_and_scales_are_counted():
    found = quantised("mxfp4")
    m, n, k = found.shape.m, found.shape.n, found.shape.k
    assert found.bytes == 2 * (m * k + k * n) + m * n // 2 + m * -(-n // 32)


def test_a_sum_of_one_term_is_off_as_that_is():
    """The product of a single row is small here and there, where its rounding is not."""
    line = Problem(Shape(1, 4096, 512), Dtype.of("fp32"), Layout.of("rrr"), chain_of(("col_sum",)))
    (one,) = random_operands.make_sets(line, "cpu", 1, seed=0)
    _, expected = check.expect(line, one, torch.Generator())
    assert check.judge(line, (one.a @ one.b).sum(0), expected).fault is None
