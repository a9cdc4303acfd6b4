"""Whole mixture layers by `nn.Experts` and by torch's grouped products.

`PYTHONPATH=. python measured/scripts/experts.py FILE [PART ...]`: a PART is `mixtral` or `qwen3`, a layer with router
and experts of that model's sizes and random weights; behind a colon, as in `mixtral:training`, how the names of the
steps begin that are run, by default all. torch's side is the forward pass of `grouped_mm_experts_forward` of
`transformers` 5.24, written here with torch alone, so that `transformers` need not be there. The family is
`docs/examples/experts.yaml` in bf16; `named` is its layer with the rows of tokens named at any size, and `copied` with
copies of them.

FILE receives, as JSON, after each step: errors of results and gradients against float64; whether results and gradients
have the same bits in REPEATS runs; microseconds of a forward pass, eager and as replays of a CUDA graph, and of a
training step. The sides take turns in every round; a ratio is the time of torch's side by another's, the median over
rounds, with the quartiles. A step that fails is an error's text in FILE, and what FILE has of other steps stays.
Without a GPU, in Triton's interpreter, sizes are small and times mean nothing.
"""

from __future__ import annotations

import importlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from rounds import in_turns, ratio, synchronize, until_done
from torch import Tensor, nn

from generator.commands.command_line import main as render
from generator.emit.loading import load_family

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", "bf16") if GPU else ("cpu", "fp16")
NUMBER = torch.bfloat16 if GPU else torch.float16
SPEC = Path(__file__).resolve().parents[2] / "docs" / "examples" / "experts.yaml"
#: Experts, experts of a token, hidden and intermediate size.
MODELS = {"mixtral": (8, 2, 4096, 14336), "qwen3": (128, 8, 2048, 768)} if GPU else {"mixtral": (4, 2, 64, 48)}
TOKENS = (16, 512, 4096) if GPU else (5,)
CHECKED, REPEATS, ROUNDS = (128, 5, 30) if GPU else (5, 2, 2)
#: The least seconds of a sample, about.
LONG = 2e-3

Experts = Callable[[Tensor, Tensor, Tensor], Tensor]


def grouped_mm(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """The product of groups as `transformers` calls it; on the CPU, a product for each group."""
    if not GPU:
        ends = [0, *offsets.tolist()]
        return torch.cat([x[a:b] @ weight[i] for i, (a, b) in enumerate(itertools.pairwise(ends))])
    if hasattr(nn.functional, "grouped_mm"):
        return nn.functional.grouped_mm(x, weight, offs=offsets)
    return torch._grouped_mm(x, weight, offs=offsets)


class ByTorch(nn.Module):
    """Experts as `grouped_mm_experts_forward` of `transformers` computes them."""

    def __init__(self, gate_up_proj: nn.Parameter, down_proj: nn.Parameter) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj, self.num_experts = gate_up_proj, down_proj, len(down_proj)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        k, tokens, size = top_k_index.size(-1), *hidden_states.shape
        expert_ids, perm = torch.sort(top_k_index.reshape(-1))
        selected = hidden_states[perm // k]
        weights = top_k_weights.reshape(-1)[perm]
        counted = expert_ids.int() if GPU else expert_ids.float()
        per_expert = torch.histc(counted, bins=self.num_experts, min=0, max=self.num_experts - 1)
        offsets = torch.cumsum(per_expert, dim=0, dtype=torch.int32)
        gate, up = grouped_mm(selected, self.gate_up_proj.transpose(-2, -1), offsets).chunk(2, dim=-1)
        down = grouped_mm(nn.functional.silu(gate) * up, self.down_proj.transpose(-2, -1), offsets)
        weighted = down * weights.unsqueeze(-1)
        inverse = torch.empty_like(perm)
        inverse[perm] = torch.arange(perm.size(0), device=perm.device)
        return weighted[inverse].view(tokens, k, size).sum(dim=1).to(hidden_states.dtype)


class Block(nn.Module):
    """Router and experts, as `MixtralSparseMoeBlock` has them."""

    def __init__(self, router: nn.Parameter, k: int, experts: nn.Module) -> None:
        super().__init__()
        self.router, self.k, self.experts = router, k, experts

    def routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token, and their weights."""
        likely = torch.softmax(nn.functional.linear(x, self.router).float(), dim=-1)
        weights, index = torch.topk(likely, self.k, dim=-1)
        return index, weights / weights.sum(dim=-1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.experts(x, *self.routed(x))
        return result


def blocks(family: ModuleType, name: str) -> dict[str, Block]:
    """The same layer by each side, with the same parameters."""
    count, k, hidden, inner = MODELS[name]
    torch.manual_seed(0)
    ours = family.nn.Experts(count, hidden, inner, device=DEVICE, dtype=NUMBER)
    for x in ours.parameters():
        nn.init.normal_(x, std=0.02 if GPU else 0.2)
    router = nn.Parameter(torch.randn(count, hidden, device=DEVICE, dtype=NUMBER) / hidden**0.5)
    sides: dict[str, nn.Module] = {"torch": ByTorch(ours.gate_up_proj, ours.down_proj), "family": ours}
    module: Any = importlib.import_module(f"{family.__name__}._runtime.experts")
    for word, least in (("named", 1 << 40), ("copied", 0)):
        sides[word] = Copying(ours, module, least)
    return {word: Block(router, k, experts) for word, experts in sides.items()}


class Copying(nn.Module):
    """The family's layer that copies rows from another number of pairs on."""

    def __init__(self, experts: nn.Module, module: Any, least: int) -> None:
        super().__init__()
        self.own, self.module, self.least = experts, module, least

    def forward(self, *given: Tensor) -> Tensor:
        before, self.module.COPIED = self.module.COPIED, self.least
        try:
            result: Tensor = self.own(*given)
        finally:
            self.module.COPIED = before
        return result


def step(block: Block, x: Tensor, upstream: Tensor) -> list[Tensor]:
    """The result of a training step, and the gradients of the tokens and of all parameters."""
    leaf = x.detach().clone().requires_grad_()
    parameters = [*block.parameters()]
    result = block(leaf)
    return [result.detach(), *torch.autograd.grad(result, [leaf, *parameters], upstream)]


def exact(block: Block, x: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    """The experts' result and gradients in float64, with the routing of the layer, which is not differentiated."""
    index, weights = block.routed(x)
    own: Any = block.experts
    double = x.double().requires_grad_()
    factors = weights.detach().double().requires_grad_()
    result = torch.zeros_like(double)
    gradients: dict[str, Tensor] = {
        "gate_up": torch.zeros_like(own.gate_up_proj),
        "down": torch.zeros_like(own.down_proj),
    }
    of_x, of_weights = torch.zeros_like(double), torch.zeros_like(factors)
    for e in range(own.num_experts):
        # One expert at a time, because its weights take four times their memory.
        token, place = torch.where(index == e)
        up, down = (each[e].detach().double().requires_grad_() for each in (own.gate_up_proj, own.down_proj))
        gate, value = (double[token] @ up.T).chunk(2, -1)
        part = factors[token, place, None] * ((nn.functional.silu(gate) * value) @ down.T)
        result = result.index_add(0, token, part.detach())
        grads = torch.autograd.grad(part, [double, factors, up, down], upstream[token].double())
        of_x, of_weights = of_x + grads[0], of_weights + grads[1]
        gradients["gate_up"][e], gradients["down"][e] = grads[2].to(x.dtype), grads[3].to(x.dtype)
    return {"result": result, "tokens": of_x, "weights": of_weights, **gradients}


def errors(sides: Mapping[str, Block]) -> dict[str, dict[str, float]]:
    """The root mean square errors of result and gradients against float64, relative to their root mean squares."""
    block = sides["torch"]
    x = torch.randn(CHECKED, block.router.shape[1], device=DEVICE, dtype=NUMBER)
    upstream = torch.randn_like(x)
    wanted = exact(block, x, upstream)
    index, weights = (each.detach() for each in block.routed(x))
    errors_of: dict[str, dict[str, float]] = {}
    for word, side in sides.items():
        leaves = x.clone().requires_grad_(), weights.clone().requires_grad_()
        result = side.experts(leaves[0], index, leaves[1])
        experts: Any = block.experts
        learned = experts.gate_up_proj, experts.down_proj
        grads = torch.autograd.grad(result, [*leaves, *learned], upstream)
        values = dict(zip(("result", "tokens", "weights", "gate_up", "down"), (result.detach(), *grads), strict=True))
        errors_of[word] = {
            name: float((value.double() - wanted[name].double()).norm() / wanted[name].double().norm())
            for name, value in values.items()
        }
    return errors_of


def repeated(sides: Mapping[str, Block]) -> dict[str, dict[str, bool]]:
    """Whether result and gradients have the same bits in every run, at the largest number of tokens."""
    alike: dict[str, dict[str, bool]] = {}
    for word in ("torch", "family"):
        block = sides[word]
        x = torch.randn(TOKENS[-1], block.router.shape[1], device=DEVICE, dtype=NUMBER)
        upstream = torch.randn_like(x)
        first = step(block, x, upstream)
        names = ["result", "tokens", *(name for name, _ in block.named_parameters())]
        same = dict.fromkeys(names, True)
        for _ in range(REPEATS):
            for name, one, other in zip(names, first, step(block, x, upstream), strict=True):
                same[name] = same[name] and torch.equal(one, other)
        alike[word] = same
    return alike


class Timed:
    """A call that is timed by several calls at once, or by replays of a graph of it."""

    def __init__(self, call: Callable[[], object], *, graph: bool) -> None:
        for _ in range(3):
            call()
        self.call = call
        if graph:
            synchronize()
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                call()
            self.call = captured.replay
        self.count = 1
        self.count = max(1, min(50, round(LONG / self.sample())))

    def sample(self) -> float:
        """Seconds of a call, of the host or of the GPU, whichever takes longer."""
        return until_done(self.call, self.count)


def turns(calls: Mapping[str, Callable[[], object]], *, graph: bool = False) -> dict[str, Any]:
    """Microseconds of each call, and the ratio of the first one's time to each other's, by rounds of one turn each."""
    times = in_turns({name: Timed(call, graph=graph).sample for name, call in calls.items()}, ROUNDS)
    first, *others = times
    medians: dict[str, Any] = {name: round(1e6 * statistics.median(taken), 2) for name, taken in times.items()}
    return medians | {f"ratio of {name}": ratio(times[first], times[name]) for name in others}


def inference(sides: Mapping[str, Block], count: int, *, graph: bool) -> dict[str, Any]:
    """Times of a forward pass of the layer over `count` tokens."""
    x = torch.randn(count, sides["torch"].router.shape[1], device=DEVICE, dtype=NUMBER)

    def call(block: Block) -> Callable[[], object]:
        def run() -> None:
            with torch.no_grad():
                block(x)

        return run

    return turns({word: call(block) for word, block in sides.items()}, graph=graph)


def training(sides: Mapping[str, Block], count: int) -> dict[str, Any]:
    """Times of a forward and a backward pass of the layer over `count` tokens."""
    x = torch.randn(count, sides["torch"].router.shape[1], device=DEVICE, dtype=NUMBER)
    upstream = torch.randn_like(x)
    return turns({word: lambda block=sides[word]: step(block, x, upstream) for word in ("torch", "family")})


def main(path: Path, names: list[str]) -> None:
    """Measure each layer, and write what is known after each step."""
    device = torch.cuda.get_device_name() if GPU else "cpu"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    results |= {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / SPEC.name
        spec.write_text(SPEC.read_text().replace("dtype: fp16", f"dtype: {DTYPE}"))
        if render([str(spec), "--out", folder]) != 0:
            raise SystemExit(1)
        family = load_family(Path(folder) / SPEC.stem)
        for part in names:
            name, _, begin = part.partition(":")
            sides = blocks(family, name)
            steps: dict[str, Callable[[], Any]] = {"errors": lambda sides=sides: errors(sides)}
            for count in TOKENS:
                for word, graph in (("eager", False), ("graph", True)) if GPU else (("eager", False),):
                    steps[f"inference {word} {count}"] = lambda sides=sides, count=count, graph=graph: inference(
                        sides, count, graph=graph
                    )
            for count in TOKENS:
                steps[f"training {count}"] = lambda sides=sides, count=count: training(sides, count)
            steps["same bits"] = lambda sides=sides: repeated(sides)
            results.setdefault(name, {})
            for word, run in steps.items():
                if not word.startswith(begin):
                    continue
                begun = time.perf_counter()
                try:
                    results[name][word] = run()
                except Exception as error:
                    results[name][word] = {"error": f"{type(error).__name__}: {error}"[:400]}
                print(name, word, json.dumps(results[name][word]), f"{time.perf_counter() - begun:.1f} s", flush=True)
                path.write_text(json.dumps(results, indent=1) + "\n")
            del sides, steps
            if GPU:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*MODELS])
