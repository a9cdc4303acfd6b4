"""A Llama of `transformers`, by torch's linear layers and by a family's: `python measured/scripts/llama.py FILE`.

The weights are random. FILE receives, as JSON: errors of the logits, losses of training and generated tokens, beside a
model in fp32; and times of prefill, decoding, `generate` and training, eager and compiled. The two models take turns in
every round; a ratio is torch's time by the family's, the median over rounds, with the quartiles. A part that fails is
an error's text in FILE. Needs a GPU and `transformers`.
"""

from __future__ import annotations

import copy
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
import triton
from rounds import in_turns, ratio, until_done
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM, StaticCache

FAMILY = "generated.gemm16"
CONFIG = LlamaConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=4,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    use_cache=False,
)
PREFILL, ROUNDS, STEPS, TRAINED = (1024, 4096), 20, 30, (2, 2048)
# The length of a prompt, the tokens that are generated behind it, and how many prompts are compared with fp32.
PROMPT, NEW, PROMPTS = 64, 32, 8
# The options of torch.compile in the parts that are compiled.
GRAPH = {"fullgraph": True}
TUNED = {**GRAPH, "mode": "max-autotune", "dynamic": False}
REPLAYED = {**GRAPH, "mode": "reduce-overhead"}


def models() -> dict[str, Any]:
    """The same model three times: in fp32, in bf16 by torch, in bf16 by the family."""
    torch.manual_seed(0)
    exact = LlamaForCausalLM(CONFIG).cuda()
    plain = copy.deepcopy(exact).to(torch.bfloat16)
    # The angles of positions stay in fp32.
    plain.model.rotary_emb.inv_freq = exact.model.rotary_emb.inv_freq
    ours = copy.deepcopy(plain)
    replaced = importlib.import_module(f"{FAMILY}.nn").replace_linear(ours)
    print(f"{len(replaced)} linear layers replaced", flush=True)
    return {"fp32": exact, "torch": plain, "family": ours}


def ratios(calls: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, Any]:
    """Milliseconds of each call, and their ratio, by rounds in which each call has a turn."""
    for call in calls.values():
        until_done(call, 3)
    times = in_turns({name: partial(until_done, call) for name, call in calls.items()}, rounds)
    medians = {name: round(1e3 * statistics.median(taken), 4) for name, taken in times.items()}
    compared = ratio(times["torch"], times["family"])
    return {**medians, "ratio": compared["median"], "quartiles": compared["quartiles"]}


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(CONFIG.vocab_size, shape, device="cuda")


@torch.no_grad()
def logits(by_name: dict[str, Any]) -> dict[str, float]:
    """The root mean square error of the logits against fp32's, relative to their root mean square."""
    x = tokens(1, 512)
    exact = by_name["fp32"](x).logits
    return {n: ((by_name[n](x).logits.float() - exact).norm() / exact.norm()).item() for n in ("torch", "family")}


def losses(by_name: dict[str, Any]) -> dict[str, list[float]]:
    """The loss at each of STEPS steps of AdamW on the same batches."""
    torch.manual_seed(1)
    batches = [tokens(1, 512) for _ in range(4)]
    curves = {}
    for name, model in by_name.items():
        trained = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-4)
        curve = []
        for step in range(STEPS):
            x = batches[step % len(batches)]
            loss = trained(x, labels=x).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(round(loss.item(), 5))
        curves[name] = curve
        del trained, optimizer
    return curves


@torch.no_grad()
def prefill(by_name: dict[str, Any], options: dict[str, Any] | None) -> dict[str, Any]:
    """Times of a forward pass over a prompt, compiled with `options`, or eager without."""
    torch._dynamo.reset()
    calls = {n: by_name[n] if options is None else torch.compile(by_name[n], **options) for n in ("torch", "family")}
    timed = {}
    for size in PREFILL:
        x = tokens(1, size)
        timed[str(size)] = ratios({name: lambda call=call, x=x: call(x) for name, call in calls.items()})
        print("prefill", options, size, timed[str(size)], flush=True)
    return timed


@torch.no_grad()
def recompilations(model: Any) -> int:
    """How often sizes after the second compile the model again."""
    torch._dynamo.reset()
    call = torch.compile(model, **GRAPH)
    for size in (512, 768):
        call(tokens(1, size))
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for size in (1024, 1040, 2048):
        call(tokens(1, size))
    return torch._dynamo.utils.counters["stats"]["unique_graphs"] - before


@torch.no_grad()
def decode(by_name: dict[str, Any], steps: int = 32) -> dict[str, Any]:
    """Times of `steps` tokens with a static cache, compiled with CUDA graphs; whether both give the same tokens."""
    calls, texts = {}, {}
    for name in ("torch", "family"):
        model = by_name[name]
        cache = StaticCache(config=CONFIG, max_cache_len=1024)
        step = torch.compile(model.forward, **REPLAYED)

        def run(model: Any = model, step: Any = step, cache: Any = cache, name: str = name) -> None:
            cache.reset()
            x = prompt
            position = torch.arange(x.shape[1], device="cuda")
            out = model(x, past_key_values=cache, cache_position=position, use_cache=True).logits[:, -1:].argmax(-1)
            text = []
            position = position[-1:] + 1
            for _ in range(steps):
                torch.compiler.cudagraph_mark_step_begin()
                out = step(out.clone(), past_key_values=cache, cache_position=position, use_cache=True).logits.argmax(
                    -1
                )
                position = position + 1
                text.append(out.clone())
            texts[name] = torch.cat(text, 1)

        calls[name] = run
    torch.manual_seed(2)
    prompt = tokens(1, PROMPT)
    timed = ratios(calls)
    timed["same tokens"] = (texts["torch"] == texts["family"]).float().mean().item()
    return timed


@torch.no_grad()
def generate(by_name: dict[str, Any], compiled: bool) -> dict[str, Any]:
    """Times of `generate` with a static cache for one prompt, eager, or with its decoding compiled with CUDA graphs.

    Also the rate of tokens that are equal to those of fp32 for each of the two, and, compiled, how many graphs were
    compiled and how many graph breaks there were for both together.
    """
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(2)
    prompts = tokens(PROMPTS, PROMPT).split(1)
    sizes = {"max_new_tokens": NEW, "min_new_tokens": NEW, "pad_token_id": 0}
    eager = {**sizes, "do_sample": False, "use_cache": True, "cache_implementation": "static", "disable_compile": True}
    how = {**eager, "disable_compile": False, "compile_config": CompileConfig(**REPLAYED)} if compiled else eager

    def text(name: str, prompt: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        # A copy, because `generate` sets the configuration's defaults in what it is given.
        given = copy.deepcopy(options)
        produced = by_name[name].generate(prompt, attention_mask=torch.ones_like(prompt), **given)
        return produced[:, prompt.shape[1] :]

    timed = ratios({n: lambda n=n: text(n, prompts[0], how) for n in ("torch", "family")}, rounds=ROUNDS // 2)
    exact = torch.cat([text("fp32", prompt, eager) for prompt in prompts])
    texts = {n: torch.cat([text(n, prompt, how) for prompt in prompts]) for n in ("torch", "family")}
    timed["tokens equal to fp32"] = {n: (text == exact).float().mean().item() for n, text in texts.items()}
    if compiled:
        counters = torch._dynamo.utils.counters
        timed["graphs"] = counters["stats"]["unique_graphs"]
        timed["graph breaks"] = sum(counters["graph_break"].values())
    return timed


def train(by_name: dict[str, Any], compiled: bool) -> dict[str, Any]:
    """Times of a step of training: forward, backward, AdamW."""
    calls = {}
    for name in ("torch", "family"):
        model = copy.deepcopy(by_name[name])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        call = torch.compile(model, **GRAPH) if compiled else model
        x = tokens(*TRAINED)

        def step(call: Any = call, optimizer: Any = optimizer, x: torch.Tensor = x) -> None:
            call(x, labels=x).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        calls[name] = step
    return ratios(calls, rounds=12)


def main(path: Path) -> None:
    """Measure everything, and write it after each part."""
    torch.backends.cuda.matmul.allow_tf32 = False
    by_name = models()
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    results: dict[str, Any] = {**place, "transformers": transformers.__version__, "config": CONFIG.to_diff_dict()}
    parts: dict[str, Callable[[], Any]] = {
        "logits": lambda: logits(by_name),
        "prefill eager": lambda: prefill(by_name, None),
        "train eager": lambda: train(by_name, False),
        "losses": lambda: losses(by_name),
        "prefill compiled": lambda: prefill(by_name, GRAPH),
        "recompilations": lambda: {name: recompilations(by_name[name]) for name in ("torch", "family")},
        "decode compiled": lambda: decode(by_name),
        "train compiled": lambda: train(by_name, True),
        # `generate` keeps a cache and a compiled call in the model, so nothing that copies the models may follow.
        # Autotuning takes minutes.
        "generate eager": lambda: generate(by_name, False),
        "generate compiled": lambda: generate(by_name, True),
        "prefill max-autotune": lambda: prefill(by_name, TUNED),
    }
    for name, part in parts.items():
        begun = time.perf_counter()
        try:
            results[name] = part()
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(name, json.dumps(results[name]), f"{time.perf_counter() - begun:.0f} s", flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
