"""Experts of `transformers`, by its grouped path and by a family's: `python measured/scripts/moe.py FILE`.

The blocks of Qwen3 30B-A3B and Mixtral 8x7B, with random weights. The family is `docs/examples/experts.yaml`, in bf16,
whose forward and backward kernels are chosen by measurements and the cost model (`select: fastest`); `rows` is the same
with the rows of tokens named, where `family` copies them. FILE receives, as JSON: errors of results and gradients
against the experts in fp32, and milliseconds of a forward pass and of a training step, eager and compiled in one graph.
The sides take turns in every round; a ratio is the time of `transformers`' own path by a side's, the median over
rounds, with the quartiles. A part that fails is an error's text in FILE. Needs `transformers` from 5.0 on; without a
GPU, in Triton's interpreter, the sizes are small and the times mean nothing.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers
import triton
from rounds import in_turns, ratio, until_done
from transformers import MixtralConfig, Qwen3MoeConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from generator.commands.command_line import main as render
from generator.emit.loading import load_family

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", "bf16") if GPU else ("cpu", "fp16")
NUMBER = {"bf16": torch.bfloat16, "fp16": torch.float16}[DTYPE]
SPEC = Path(__file__).resolve().parents[2] / "docs" / "examples" / "experts.yaml"
PATHS = ("grouped_mm", "family", "rows")
TOKENS, ROUNDS = ((256, 4096), 20) if GPU else ((20,), 2)
#: Each block with its configuration.
QWEN3 = {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8}
MIXTRAL = {"hidden_size": 4096, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 48,
    "moe_intermediate_size": 48,
    "num_experts": 4,
    "num_local_experts": 4,
}
BLOCKS: dict[str, tuple[Any, Any]] = {
    "qwen3": (
        Qwen3MoeSparseMoeBlock,
        Qwen3MoeConfig(**(QWEN3 if GPU else {**QWEN3, **SMALL, "num_experts_per_tok": 2})),
    ),
    "mixtral": (MixtralSparseMoeBlock, MixtralConfig(**(MIXTRAL if GPU else {**MIXTRAL, **SMALL}))),
}


def experts_by(family: ModuleType, *, named: bool) -> Callable[..., torch.Tensor]:
    """The forward pass of experts by the family's products; `named` says whether they find the rows of tokens."""
    up, down = (getattr(family, f"gmm_{DTYPE}_rcr_{word}") for word in ("swiglu", "scalem"))

    def forward(self: Any, tokens: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ordered, order = index.flatten().sort(stable=True)
        ends = torch.arange(self.num_experts, device=tokens.device)
        offsets = torch.searchsorted(ordered, ends, right=True).int()
        rows = (order // index.shape[1]).int()
        # The kernels read the router's weights in the type of the tokens.
        scale = weights.flatten()[order].to(tokens.dtype)
        if named:
            h = up(tokens, self.gate_up_proj.mT, offsets, rows=rows)
        else:
            h = up(tokens[rows], self.gate_up_proj.mT, offsets)
        y = down(h, self.down_proj.mT, offsets, scale_m=scale)
        return y[order.argsort()].view(*index.shape, -1).sum(1)

    return forward


def blocks(name: str) -> dict[str, Any]:
    """The same block by each path, and in fp32 with a loop over its experts."""
    torch.manual_seed(0)
    cls, config = BLOCKS[name]
    block = cls(config).to(DEVICE, NUMBER)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    by_path = {}
    for path in (*PATHS, "eager"):
        by_path[path] = copy.deepcopy(block).to(torch.float32 if path == "eager" else NUMBER)
        by_path[path].experts.config._experts_implementation = path
    return by_path


def tokens(block: Any, count: int) -> torch.Tensor:
    """So many tokens, of which a gradient is taken."""
    return torch.randn(1, count, block.gate.hidden_dim, device=DEVICE, dtype=NUMBER, requires_grad=True)


def errors(by_path: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The root mean square errors of result and gradients against fp32, relative to their root mean squares.

    All paths have the same routing, since a token whose best experts are close would else go to others in fp32.
    """
    x = tokens(by_path["eager"], TOKENS[-1] // 4)[0].detach()
    _, weights, index = by_path["grouped_mm"].gate(x)
    weights = weights.detach()
    upstream = torch.randn_like(x)
    values: dict[str, dict[str, torch.Tensor]] = {}
    for path, block in by_path.items():
        own = block.experts
        given = {"tokens": x.to(own.down_proj.dtype), "weights": weights.to(own.down_proj.dtype)}
        given = {name: value.clone().requires_grad_() for name, value in given.items()}
        result = own(given["tokens"], index, given["weights"])
        result.backward(upstream.to(result.dtype))
        learned = {"gate_up": own.gate_up_proj, "down": own.down_proj}
        gradients = {name: value.grad for name, value in {**given, **learned}.items()}
        values[path] = {"result": result.detach(), **{f"gradient of {name}": x for name, x in gradients.items()}}
        block.zero_grad(set_to_none=True)
    exact = values.pop("eager")
    return {
        path: {name: ((x.float() - exact[name]).norm() / exact[name].norm()).item() for name, x in each.items()}
        for path, each in values.items()
    }


def ratios(calls: dict[str, Callable[[], object]]) -> dict[str, Any]:
    """Milliseconds of each call, and its ratio to the first one, by rounds in which each call has a turn."""
    for call in calls.values():
        until_done(call, 3)
    times = in_turns({name: partial(until_done, call) for name, call in calls.items()}, ROUNDS)
    first, *others = calls
    medians: dict[str, Any] = {name: round(1e3 * statistics.median(taken), 4) for name, taken in times.items()}
    return medians | {f"ratio of {name}": ratio(times[first], times[name]) for name in others}


def forward(by_path: dict[str, Any], count: int, *, compiled: bool) -> dict[str, Any]:
    """Times of a forward pass over `count` tokens."""
    x = tokens(by_path["eager"], count).detach()
    calls = {}
    for path in PATHS:
        call = torch.compile(by_path[path], fullgraph=True) if compiled else by_path[path]

        def run(call: Any = call) -> None:
            with torch.no_grad():
                call(x)

        calls[path] = run
    return ratios(calls)


def train(by_path: dict[str, Any], count: int, *, compiled: bool) -> dict[str, Any]:
    """Times of a forward and a backward pass over `count` tokens."""
    x = tokens(by_path["eager"], count)
    upstream = torch.randn_like(x)
    calls = {}
    for path in PATHS:
        block = by_path[path]
        call = torch.compile(block, fullgraph=True) if compiled else block

        def run(call: Any = call, block: Any = block) -> None:
            call(x).backward(upstream)
            block.zero_grad(set_to_none=True)
            x.grad = None

        calls[path] = run
    return ratios(calls)


def measured(name: str) -> dict[str, Any]:
    """All that is measured of a block."""
    by_path = blocks(name)
    parts: dict[str, Callable[[], Any]] = {"errors": lambda: errors(by_path)}
    for way, time_of in (("forward", forward), ("train", train)):
        for count in TOKENS:
            parts[f"{way} eager {count}"] = lambda time_of=time_of, count=count: time_of(by_path, count, compiled=False)
        # Compiling takes longer than all the rest.
        if name == "qwen3":
            parts[f"{way} compiled"] = lambda time_of=time_of: time_of(by_path, TOKENS[-1], compiled=True)
    results = {}
    for part, run in parts.items():
        begun = time.perf_counter()
        torch._dynamo.reset()
        try:
            results[part] = run()
        except Exception as error:
            results[part] = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(name, part, json.dumps(results[part]), f"{time.perf_counter() - begun:.0f} s", flush=True)
    return results


def main(path: Path) -> None:
    """Measure both blocks, and write it after each."""
    torch.backends.cuda.matmul.allow_tf32 = False
    place = {"device": torch.cuda.get_device_name() if GPU else "cpu", "torch": torch.__version__}
    results: dict[str, Any] = {**place, "triton": triton.__version__, "transformers": transformers.__version__}
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / SPEC.name
        spec.write_text(SPEC.read_text().replace("dtype: fp16", f"dtype: {DTYPE}"))
        if render([str(spec), "--out", folder]) != 0:
            raise SystemExit(1)
        family = load_family(Path(folder) / SPEC.stem)
        for word, named in (("family", False), ("rows", True)):
            ALL_EXPERTS_FUNCTIONS.register(word, experts_by(family, named=named))
        for name in BLOCKS:
            results[name] = measured(name)
            path.write_text(json.dumps(results, indent=1) + "\n")
            if GPU:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
