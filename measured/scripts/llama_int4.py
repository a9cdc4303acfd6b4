"""A Llama of `transformers` with weights of 4 bits beside bf16: `python measured/scripts/llama_int4.py FILE`.

The weights are random. Every linear layer of the one model is torch's in bf16; of the other, the family's `quantize`
stores it as int4 with a scale for 128 elements along K. Both decode with a static cache, each step of one token a CUDA
graph. FILE receives, as JSON: errors of the logits, against the model of the dequantised weights; tokens a second of
`generate`, at several batch sizes, where the models take turns in every round; and the milliseconds of a step's graph
alone. A ratio is the family's rate by torch's, the median over rounds, with the quartiles. Needs a GPU and
`transformers`; on a CPU, under TRITON_INTERPRET=1, steps are not recorded.
"""

from __future__ import annotations

import copy
import functools
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
import triton
from rounds import in_turns, ratio, until_done
from transformers import AutoModelForCausalLM, LlamaConfig, StaticCache
from transformers.models.llama import modeling_llama

FAMILY, CONTRACT = "generated.int4_rcr", "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none"
# The sizes of Llama 3.1 8B.
CONFIG = LlamaConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCHES, ROUNDS = (1, 8), 5
# The length of a prompt, and the tokens that are generated behind it.
PROMPT, NEW = 64, 128

family = importlib.import_module(FAMILY)
pack = importlib.import_module(f"{FAMILY}._pack")


class Stored(torch.nn.Module):
    """A linear layer without bias whose weight is stored as CONTRACT has it."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        for name, x in pack.quantize(weight.T, CONTRACT).items():
            self.register_buffer(name, x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = getattr(family, CONTRACT)(x.reshape(-1, x.shape[-1]), **self._buffers)
        return result.reshape(*x.shape[:-1], result.shape[-1])

    def dense(self) -> torch.Tensor:
        """The weight of torch's linear layer that this one stands for, in bf16."""
        return pack.dequantize(CONTRACT, **self._buffers).T.to(torch.bfloat16)


class Replayed:
    """A model's forward pass that records its step of one token as a CUDA graph, for each cache, and replays it."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)
        self.forward = forward
        self.steps: dict[int, tuple[dict[str, torch.Tensor], Callable[[], Any]]] = {}

    def __call__(self, input_ids: torch.Tensor, past_key_values: Any = None, **given: Any) -> Any:
        if input_ids.shape[1] > 1 or past_key_values is None:
            return self.forward(input_ids=input_ids, past_key_values=past_key_values, **given)
        tensors = {"input_ids": input_ids, **{name: x for name, x in given.items() if isinstance(x, torch.Tensor)}}
        others = {name: x for name, x in given.items() if name not in tensors}
        if id(past_key_values) not in self.steps:
            held = {name: x.clone() for name, x in tensors.items()}
            step = functools.partial(self.forward, past_key_values=past_key_values, **held, **others)
            self.steps[id(past_key_values)] = held, recorded(step, past_key_values)
        held, replay = self.steps[id(past_key_values)]
        for name, x in held.items():
            if x.shape != tensors[name].shape:
                raise ValueError(f"{name} was {tuple(x.shape)} and is {tuple(tensors[name].shape)}")
            x.copy_(tensors[name])
        return replay()


def back(cache: StaticCache) -> None:
    """Forget the last token; the next one overwrites what is stored of it."""
    for layer in cache.layers:
        layer.cumulative_length.sub_(1)


def recorded(step: Callable[[], Any], cache: StaticCache) -> Callable[[], Any]:
    """What runs `step` again: its CUDA graph."""
    if DEVICE == "cpu":
        return step
    # Compilation, and the choice of kernels, is before the recording.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
            back(cache)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def fuse() -> None:
    """Compile what a layer computes element by element, which both models do alike."""
    torch._dynamo.config.recompile_limit = 32
    norm = modeling_llama.LlamaRMSNorm
    norm.forward = torch.compile(norm.forward, dynamic=False)
    modeling_llama.apply_rotary_pos_emb = torch.compile(modeling_llama.apply_rotary_pos_emb, dynamic=False)


def linear_layers(model: Any) -> list[tuple[Any, str, Any]]:
    """The linear layers of a model, stored or not, each behind its module and its name there."""
    kinds = (torch.nn.Linear, Stored)
    named = [(*name.rpartition(".")[::2], x) for name, x in model.named_modules() if isinstance(x, kinds)]
    return [(model.get_submodule(parent), name, x) for parent, name, x in named]


def models(config: LlamaConfig) -> dict[str, Any]:
    """The same model twice: in bf16 by torch, and stored by the family."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
    stored = copy.deepcopy(plain)
    for module, name, layer in linear_layers(stored):
        setattr(module, name, Stored(layer.weight))
    return {"torch": plain, "family": stored}


def tokens(*shape: int, config: LlamaConfig) -> torch.Tensor:
    return torch.randint(config.vocab_size, shape, device=DEVICE)


def logits(by_name: dict[str, Any], config: LlamaConfig) -> dict[str, float]:
    """Root mean square differences from the logits of the dequantised weights, relative to these.

    "torch" is the error of quantisation: the one of the weights before it.
    """
    x = tokens(1, PROMPT, config=config)
    logits = {name: model(x).logits.float() for name, model in by_name.items()}
    dense = copy.deepcopy(by_name["torch"])
    for (module, name, _), (_, _, layer) in zip(linear_layers(dense), linear_layers(by_name["family"]), strict=True):
        getattr(module, name).weight.copy_(layer.dense())
    exact = dense(x).logits.float()
    return {name: ((x - exact).norm() / exact.norm()).item() for name, x in logits.items()}


def generate(by_name: dict[str, Any], config: LlamaConfig, batch: int) -> dict[str, Any]:
    """Tokens a second of `generate`, and the milliseconds of a step's graph alone."""
    prompt = tokens(batch, PROMPT, config=config)
    given = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0, "do_sample": False, "disable_compile": True}
    caches = {name: StaticCache(config=config, max_cache_len=PROMPT + NEW) for name in by_name}

    def run(name: str, new: int = NEW) -> torch.Tensor:
        caches[name].reset()
        sizes = {"max_new_tokens": new, "min_new_tokens": new}
        return by_name[name].generate(prompt, past_key_values=caches[name], use_cache=True, **sizes, **given)

    few = min(NEW, 16)
    for model in by_name.values():
        model.__dict__.pop("forward", None)
    eager = {name: run(name, few) for name in by_name}
    steps = {name: Replayed(type(model).forward.__get__(model)) for name, model in by_name.items()}
    same = {}
    for name, model in by_name.items():
        model.forward = steps[name]
        same[name] = bool((run(name, few) == eager[name]).all())
        run(name)
    taken = in_turns({name: functools.partial(until_done, functools.partial(run, name)) for name in by_name}, ROUNDS)
    alone = {name: milliseconds(step, caches[name]) for name, step in steps.items()}
    compared = ratio(taken["torch"], taken["family"])
    rates = {name: round(batch * NEW / statistics.median(times), 1) for name, times in taken.items()}
    timed = {**rates, "ratio": compared["median"], "quartiles": compared["quartiles"], "step": alone}
    return {**timed, "step ratio": round(alone["torch"] / alone["family"], 4), "tokens as without graphs": same}


def milliseconds(replayed: Replayed, cache: StaticCache) -> float:
    """The median time of the step that was recorded for a cache."""
    _, replay = replayed.steps[id(cache)]
    times = []
    for _ in range(20):
        back(cache)
        times.append(until_done(replay))
    return round(1e3 * statistics.median(times), 4)


@torch.no_grad()
def main(path: Path, config: LlamaConfig = CONFIG) -> None:
    """Measure everything, and write it after each part."""
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else DEVICE
    results: dict[str, Any] = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    results |= {"transformers": transformers.__version__, "config": config.to_diff_dict(), "contract": CONTRACT}
    fuse()
    by_name = models(config)
    results["linear layers"] = len(linear_layers(by_name["family"]))
    parts: dict[str, Callable[[], Any]] = {"logits": lambda: logits(by_name, config)}
    parts |= {f"batch {batch}": functools.partial(generate, by_name, config, batch) for batch in BATCHES}
    for name, part in parts.items():
        begun = time.perf_counter()
        try:
            results[name] = part()
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(name, json.dumps(results[name]), f"{time.perf_counter() - begun:.0f} s", flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
