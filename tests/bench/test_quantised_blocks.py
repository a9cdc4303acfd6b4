"""A quantised result is judged by the values that its elements and scales stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.bench.measure import Options
from generator.language.built_in import chain_of
from generator.problem.product import Problem

from .test_measure import contestant, measured, problem

#: By the rule, a block of 32 columns at a time.
RIGHT = """from generator.runtime import pack
    x = (a.double() @ b.double()).float()
    given = pack.quantize_rows(x, pack.Stored("WORD", "row", (1, 32)))
    fits = out.shape == given["a"].shape and out.dtype == given["a"].dtype
    found, scale = out.copy_(given["a"]) if fits else given["a"], given["a_scale"]
    CHANGE
    return found, scale
"""
BLOCK = {"fp8e4m3": {"block": 32}, "int8": {"block": 32}}


def of(word: str) -> Problem:
    return problem("fp16", chain_of([{"operation": "quantize", "to": word, **BLOCK.get(word, {})}]))


@pytest.mark.parametrize("word", ["fp8e4m3", "int8", "mxfp8e5m2", "mxfp4"])
def test_right_elements_and_scales_are_timed(tmp_path: Path, word: str) -> None:
    text = RIGHT.replace("WORD", word).replace("CHANGE", "pass")
    record = measured(contestant(tmp_path, "right", text), of=of(word), options=Options(rounds=2))
    side = record.sides[0]
    assert side.failure is None and side.gpu is not None and side.tolerance is not None and side.error is not None
    assert 0 < side.error < side.tolerance


@pytest.mark.parametrize("change", ["scale = scale.roll(1, -1)", "scale = scale * 1.5", "found.zero_()"])
def test_scales_of_others_and_missing_elements_are_wrong(tmp_path: Path, change: str) -> None:
    text = RIGHT.replace("WORD", "fp8e4m3").replace("CHANGE", change)
    side = measured(contestant(tmp_path, "wrong", text), of=of("fp8e4m3"), options=Options(rounds=2)).sides[0]
    assert side.failure is not None and side.failure.startswith("wrong result: ")


def test_the_bytes_of_elements_and_scales_are_counted() -> None:
    found = of("mxfp4")
    m, n, k = found.shape.m, found.shape.n, found.shape.k
    assert found.bytes == 2 * (m * k + k * n) + m * n // 2 + m * -(-n // 32)
