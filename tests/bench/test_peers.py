"""The other side: the library's own product, and what torch.compile makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from generator.bench.measure import Options
from generator.bench.problem import Shape
from generator.epilogue import Epilogue

from .test_measure import contestant, measured, problem


@pytest.mark.parametrize("word", ["bias", "bias+relu", "bias_m+gelu", "scale+add+silu", "gelu_tanh", "sigmoid+tanh"])
@pytest.mark.parametrize("layout", ["rcr", "rcc"])
def test_the_peer_computes_the_epilogue(tmp_path: Path, word: str, layout: str) -> None:
    of = problem("fp16", Epilogue.of(tuple(word.split("+"))), layout)
    body = "from generator.bench import eager; raise ValueError('not today')"
    peer = measured(contestant(tmp_path, "none", body), of=of).sides[-1]
    assert peer.failure is None and peer.error is not None and peer.error > 0


def test_a_peer_that_does_not_compute_it_refuses(tmp_path: Path) -> None:
    record = measured(contestant(tmp_path, "one", "raise ValueError('x')"), of=problem("fp8e5m2"))
    peer = record.sides[-1]
    assert peer.refused and peer.failure == "torch._scaled_mm takes no two operands of fp8e5m2"


def compiled(monkeypatch: pytest.MonkeyPatch, backend: Callable[..., Any]) -> None:
    """torch.compile with a backend that needs no compiler."""
    real = torch.compile

    def compile(model: Any, *, mode: str, dynamic: bool) -> Any:
        assert (mode, dynamic) == ("max-autotune-no-cudagraphs", False)
        return real(model, backend=backend, dynamic=dynamic, fullgraph=True)

    monkeypatch.setattr(torch, "compile", compile)


@pytest.mark.parametrize(
    ("dtype", "word"), [("fp16", ""), ("bf16", "bias+gelu"), ("tf32", "bias_m+tanh"), ("fp8e4m3", "")]
)
def test_the_compiled_peer_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, word: str
) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled(monkeypatch, backend)
    of = replace(problem(dtype, Epilogue.of(tuple(filter(None, word.split("+"))))), shape=Shape(32, 48, 32))
    options = Options(rounds=2, peers=("cublas", "inductor"))
    record = measured(contestant(tmp_path, "none", "raise ValueError('not today')"), of=of, options=options)
    assert list(record.peers) == ["cublas", "inductor"]
    library, own = record.peers.values()
    assert own.failure is None and own.gpu is not None
    assert own.name == f"torch.compile({library.name})"
    (graph,) = graphs
    assert "ones" not in graph.code, "scales are given, as to the library"


def test_a_peer_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(graph: object, inputs: object) -> Any:
        raise RuntimeError("no compiler here")

    compiled(monkeypatch, backend)
    record = measured(contestant(tmp_path, "one"), options=Options(rounds=2, peers=("inductor",)))
    (fault,) = record.faults
    assert fault.failure is not None and "no compiler here" in fault.failure
    assert record.sides[0].gpu is not None
