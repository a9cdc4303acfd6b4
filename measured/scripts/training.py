"""Training in eager mode and compiled, by torch and by a family: `python measured/scripts/training.py FILE FAMILY`.

FAMILY is a folder of such contracts as those of `docs/examples/trained.yaml`. Torch and the family take turns in every
round. FILE receives, as JSON: microseconds of host time of a forward
pass, of one for which gradients are recorded, and of both passes; milliseconds of both passes of a layer against
torch.compile; and milliseconds of a training step of a model with the layers of Qwen3, eager, with checkpoints and
compiled; and milliseconds of its forward pass alone, eager, compiled and by CUDA graphs, also of a copy of torch's
model, whose ratio shows what the measurement cannot tell apart. While the family's model is compiled,
`inductor.install()` is on, if the family has it. Ratios are torch's time by the family's, the median over rounds, with
the quartiles.

`torchrun --nproc-per-node 2 measured/scripts/training.py FILE FAMILY` times steps by DDP, by FSDP2 and by tensor
parallelism on two GPUs instead.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import triton
from rounds import in_turns, ratio, until_done, until_returned
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Calls = dict[str, Callable[[], object]]

#: M, N and K of the calls whose host time is measured: the GPU is faster than the host.
HOST = (320, 7680, 5120)
#: M, N and K of layers.
LAYERS = ((320, 7680, 5120), (777, 5120, 1280), (1536, 5120, 5120), (3000, 10240, 2560), (8192, 17920, 5120))
#: Batch and length of the tokens of a step, and of forward passes: of a prompt, and of one token of each sequence.
TOKENS = (2, 777)
PASSES = (
    *(("eager", size) for size in ((4, 2048), (1, 512), (16, 1))),
    *(("compiled", size) for size in ((4, 1024), (16, 1))),
    *(("reduce-overhead", size) for size in ((1, 512), (16, 1))),
)
HIDDEN, INNER, HEADS, GROUPS, HEAD, BLOCKS, VOCABULARY = 2560, 9728, 32, 8, 128, 8, 32000


def family(folder: Path) -> Any:
    sys.path.insert(0, str(folder.resolve().parent))
    return importlib.import_module(folder.name)


def random(*size: int) -> Tensor:
    return torch.randn(size, device="cuda", dtype=torch.bfloat16)


def interleaved(calls: Calls, rounds: int, at_once: int, *, host: bool) -> dict[str, Any]:
    """Seconds of each call by rounds in which each has a turn of several calls; `host`: until the last one returns."""
    sample = until_returned if host else until_done
    for call in calls.values():
        sample(call, 3)
    times = in_turns({name: functools.partial(sample, call, at_once) for name, call in calls.items()}, rounds)
    unit = 1e6 if host else 1e3
    medians: dict[str, Any] = {name: round(unit * statistics.median(taken), 3) for name, taken in times.items()}
    for name, word in (("family", ""), ("copy", "copy's ")):
        if name in times:
            compared = ratio(times["torch"], times[name], 3)
            medians |= {f"{word}ratio": compared["median"], f"{word}quartiles": compared["quartiles"]}
    return medians


def host_times(ours: Any) -> dict[str, Any]:
    """Microseconds of host time, for a plain product and one with a bias and an activation."""
    m, n, k = HOST
    x, w, bias, grad = random(m, k), random(n, k) * k**-0.5, random(n), random(m, n)

    def none(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return ours.gemm_bf16_rcr_none(x, w.t())  # type: ignore[no-any-return]

    def activated(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return ours.gemm_bf16_rcr_bias_gelutanh(x, w.t(), bias=bias)  # type: ignore[no-any-return]

    pairs: dict[str, dict[str, Callable[..., Tensor]]] = {
        "none": {"torch": lambda x, w, bias: functional.linear(x, w), "family": none},
        "bias+gelu_tanh": {
            "torch": lambda x, w, bias: functional.gelu(functional.linear(x, w, bias), approximate="tanh"),
            "family": activated,
        },
    }
    leaves = [each.clone().requires_grad_() for each in (x, w, bias)]

    def trained(f: Callable[..., Tensor]) -> Any:
        return f(*leaves).backward(grad)  # type: ignore[no-untyped-call]

    by_chain = {}
    for chain, functions in pairs.items():
        plain: Calls = {name: functools.partial(f, x, w, bias) for name, f in functions.items()}
        recorded: Calls = {name: functools.partial(f, *leaves) for name, f in functions.items()}
        both: Calls = {name: functools.partial(trained, f) for name, f in functions.items()}
        by_chain[chain] = {
            "forward": interleaved(plain, 31, 20, host=True),
            "forward, recorded": interleaved(recorded, 31, 20, host=True),
            "forward and backward": interleaved(both, 31, 20, host=True),
        }
        print(chain, json.dumps(by_chain[chain]), flush=True)
    return by_chain


def layers(ours: Any) -> dict[str, Any]:
    """Milliseconds of both passes of a layer with a bias and an activation, against torch.compile."""

    def theirs(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return functional.gelu(functional.linear(x, w, bias), approximate="tanh")

    def mine(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return ours.gemm_bf16_rcr_bias_gelutanh(x, w.t(), bias=bias)  # type: ignore[no-any-return]

    by_size = {}
    for m, n, k in LAYERS:
        torch._dynamo.reset()
        leaves = [each.requires_grad_() for each in (random(m, k), (random(n, k) * k**-0.5).detach(), random(n))]
        grad = random(m, n)

        def both(f: Callable[..., Tensor], leaves: list[Tensor] = leaves, grad: Tensor = grad) -> Callable[[], object]:
            return lambda: torch.autograd.grad(f(*leaves), leaves, grad)

        calls = {"torch": both(torch.compile(theirs)), "family": both(mine), "compiled": both(torch.compile(mine))}
        by_size[f"{m}x{n}x{k}"] = interleaved(calls, 21, 4, host=False)
        print(m, n, k, json.dumps(by_size[f"{m}x{n}x{k}"]), flush=True)
    return by_size


class Block(nn.Module):
    """A block of Qwen3: attention with norms of queries and keys, and a gated multilayer perceptron."""

    def __init__(self) -> None:
        super().__init__()
        plain = {"bias": False}
        self.before, self.between = nn.RMSNorm(HIDDEN, 1e-6), nn.RMSNorm(HIDDEN, 1e-6)
        self.of_query, self.of_key = nn.RMSNorm(HEAD, 1e-6), nn.RMSNorm(HEAD, 1e-6)
        self.query = nn.Linear(HIDDEN, HEADS * HEAD, **plain)
        self.key, self.value = nn.Linear(HIDDEN, GROUPS * HEAD, **plain), nn.Linear(HIDDEN, GROUPS * HEAD, **plain)
        self.attended = nn.Linear(HEADS * HEAD, HIDDEN, **plain)
        self.gate, self.up = nn.Linear(HIDDEN, INNER, **plain), nn.Linear(HIDDEN, INNER, **plain)
        self.down = nn.Linear(INNER, HIDDEN, **plain)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        query, key, value = (
            each(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        query, key = self.of_query(query), self.of_key(key)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.attended(y.transpose(1, 2).flatten(-2))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))  # type: ignore[no-any-return]


class Model(nn.Module):
    """Blocks of Qwen3 between an embedding and the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, HIDDEN), nn.RMSNorm(HIDDEN, 1e-6)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.checkpointed = False

    def logits(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.logits(tokens)[:, :-1].flatten(0, 1).float()
        return functional.cross_entropy(logits, tokens[:, 1:].flatten())


def models(ours: Any) -> dict[str, Model]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        theirs = Model().bfloat16()
    mine = copy.deepcopy(theirs)
    print(f"{len(ours.nn.replace_linear(mine))} linear layers replaced", flush=True)
    return {"torch": theirs, "family": mine}


def step(model: nn.Module, tokens: Tensor, optimizer: torch.optim.Optimizer | None = None) -> Callable[[], float]:
    def call() -> float:
        loss = model(tokens)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        return loss  # type: ignore[no-any-return]

    return call


def steps(ours: Any) -> dict[str, Any]:
    """Milliseconds of a training step without an optimizer, which is torch's; and the losses of both models."""
    both = models(ours)
    tokens = torch.randint(VOCABULARY, TOKENS, device="cuda")
    results: dict[str, Any] = {"loss": {name: float(step(model, tokens)()) for name, model in both.items()}}
    print(results, flush=True)
    for how in ("eager", "checkpointed", "compiled"):
        torch._dynamo.reset()
        for model in both.values():
            model.checkpointed = how == "checkpointed"
        called = {name: torch.compile(model) if how == "compiled" else model for name, model in both.items()}
        calls: Calls = {name: step(m, tokens) for name, m in called.items()}
        if how == "compiled":
            compiled(ours, calls)
        results[how] = interleaved(calls, 21, 3, host=False)
        print(how, json.dumps(results[how]), flush=True)
    return results


def compiled(ours: Any, calls: Calls) -> None:
    """Call each side's compiled function for the first time, the family's with its pass over Inductor's graphs."""
    for name, call in calls.items():
        pass_of = f"{ours.__name__}.inductor" if name == "family" else ""
        if pass_of and importlib.util.find_spec(pass_of):
            installed = importlib.import_module(pass_of).install()
            call()
            print(installed, flush=True)
            installed.remove()
        else:
            call()


@torch.no_grad()
def passes(ours: Any) -> dict[str, Any]:
    """Milliseconds of a forward pass of the model, until its result is there; and of a copy of torch's model."""
    both = models(ours)
    both["copy"] = copy.deepcopy(both["torch"])
    results: dict[str, Any] = {}
    for how, size in PASSES:
        torch._dynamo.reset()
        tokens = torch.randint(VOCABULARY, size, device="cuda")
        mode = None if how == "compiled" else how
        functions = {
            name: model.logits if how == "eager" else torch.compile(model.logits, mode=mode, dynamic=False)
            for name, model in both.items()
        }
        calls: Calls = {name: functools.partial(f, tokens) for name, f in functions.items()}
        if how != "eager":
            compiled(ours, calls)
        label = f"{how} {size[0]}x{size[1]}"
        # Short passes are limited by the host, whose time varies most.
        results[label] = interleaved(calls, 101 if math.prod(size) <= 512 else 21, 3, host=False)
        print(label, json.dumps(results[label]), flush=True)
    return results


def two_gpus(ours: Any) -> Iterator[tuple[str, Any]]:
    """Milliseconds of a step of a perceptron by DDP, and of the model by FSDP2 and by tensor parallelism."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    torch.manual_seed(0)
    x = random(512, 2048)
    with torch.device("cuda"):
        plain = nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(24))).bfloat16()
    replaced = copy.deepcopy(plain)
    ours.nn.replace_linear(replaced)

    def parallel(model: nn.Module) -> Callable[[], object]:
        wrapped = nn.parallel.DistributedDataParallel(model)
        return lambda: wrapped(x).square().mean().backward()

    yield "DDP", interleaved({"torch": parallel(plain), "family": parallel(replaced)}, 21, 3, host=False)
    tokens = torch.randint(VOCABULARY, TOKENS, device="cuda")
    both = models(ours)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for model in both.values():
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    yield "FSDP2", interleaved({name: step(m, tokens) for name, m in both.items()}, 21, 3, host=False)
    for model in both.values():
        for block in model.blocks:
            block.compile()
    yield "FSDP2, compiled", interleaved({name: step(m, tokens) for name, m in both.items()}, 21, 3, host=False)
    divided = models(ours)
    for model in divided.values():
        tensor_parallel(model, mesh)
    yield "losses of tensor parallelism", {name: float(step(m, tokens)()) for name, m in divided.items()}
    yield "tensor parallelism", interleaved({name: step(m, tokens) for name, m in divided.items()}, 21, 3, host=False)


def tensor_parallel(model: Model, mesh: DeviceMesh) -> None:
    """Divide the attention's heads and the perceptron's columns over the GPUs."""
    styles: dict[str, ParallelStyle] = {
        **{name: ColwiseParallel() for name in ("query", "key", "value", "gate", "up")},
        **{name: RowwiseParallel() for name in ("attended", "down")},
    }
    for block in model.blocks:
        parallelize_module(block, mesh, styles)


def main(path: Path, folder: Path) -> None:
    """Measure what the docstring of this file says."""
    ours = family(folder)
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    if "LOCAL_RANK" in os.environ:
        timed: dict[str, Any] = {}
        for name, value in two_gpus(ours):
            timed[name] = value
            if torch.distributed.get_rank() == 0:
                print(name, json.dumps(value), flush=True)
                path.write_text(json.dumps({**place, "steps": timed}, indent=1) + "\n")
        torch.distributed.destroy_process_group()
        return
    results: dict[str, Any] = dict(place)
    for name, part in (("host", host_times), ("layers", layers), ("steps", steps), ("passes", passes)):
        # After each part, because a machine may be taken back.
        results[name] = part(ours)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
