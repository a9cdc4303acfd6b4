"""A decoder like Qwen3's with a family that its code does not name.

python measured/scripts/whole_models.py FILE [alike] [cost] [compiled] [--seconds 150]

- `alike`: a forward pass in eager mode with `override_aten()` of a family with `invariant: rows`. Its logits must have
  the same bits in batches of 1, 7 and 64, of one token and of several, and no product may be left to torch.
- `cost`: what that costs, in a table.
- `compiled`: a forward pass under `torch.compile`, plain and with `inductor.install()`, of a family without chains and
  of one that has those of the model.

Without a name all parts run, in this order. The models take turns in every round; a ratio is torch's time by the
family's, the median over rounds, with the quartiles. FILE receives JSON after every size; what would begin after so
many seconds is skipped, and said so. The exit status is 1 if a bit differs, if a product is left to torch, or if a part
fails. Needs a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
import triton
from rounds import in_turns, ratio, until_done
from torch import Tensor, nn
from torch.nn import functional

from generator.commands.command_line import main as render

#: Sizes of Qwen3 8B, of which there are fewer layers.
HIDDEN, INNER, HEADS, GROUPS, WIDTH, LAYERS, WORDS = 4096, 12288, 32, 8, 128, 2, 32768
#: Sequences and their length: of one token each, as in decoding, and of a prompt.
COMPILED = ((16, 1), (1, 512))
BATCHES, LENGTH = (1, 7, 64), 33
ROUNDS = 10

BEGUN = time.perf_counter()

PLAIN = "summary: Products.\nlayout: [rcr, rrr]\ndtype: bf16\nbatch: [none, strided]\n"
SPECS = {
    "plain": PLAIN + "select: fastest\nwith: inductor\n",
    "chains": PLAIN
    + "epilogue: [none, add, silu+mul]\nselect: fastest\nwith: inductor\nexclude:\n"
    + '  - {batch: strided, epilogue: [add, silu+mul], because: "attention has none of them"}\n',
    "alike": PLAIN + "select: fastest\nwith: aten\ninvariant: rows\n",
}


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled: Tensor = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * scaled.to(x.dtype)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(HIDDEN, heads * WIDTH, bias=False) for heads in (HEADS, GROUPS, GROUPS))
        self.o = nn.Linear(HEADS * WIDTH, HIDDEN, bias=False)
        self.q_norm, self.k_norm = Norm(WIDTH), Norm(WIDTH)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        def turned(x: Tensor) -> Tensor:
            first, second = x.chunk(2, -1)
            return x * cosine + torch.cat((-second, first), -1) * sine

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, WIDTH)).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        q, k = turned(self.q_norm(q)), turned(self.k_norm(k))
        k, v = (each.repeat_interleave(HEADS // GROUPS, 1) for each in (k, v))
        # Written out: the products of attention are replaced too, and each row is computed alike.
        scores = torch.matmul(q, k.transpose(2, 3)) * WIDTH**-0.5
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1, dtype=torch.float32).to(x.dtype) @ v
        result: Tensor = self.o(weights.transpose(1, 2).flatten(2))
        return result


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.before, self.behind = Attention(), Norm(HIDDEN), Norm(HIDDEN)
        self.gate, self.up = (nn.Linear(HIDDEN, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.before(x), cosine, sine)
        y = self.behind(x)
        result: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return result


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, HIDDEN), Norm(HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        place = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        rates = 1e6 ** -(torch.arange(0, WIDTH, 2, device=tokens.device) / WIDTH)
        angles = torch.outer(place, rates).repeat(1, 2)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        result: Tensor = self.head(self.norm(x))
        return result


def families(folder: Path, names: Iterable[str]) -> dict[str, ModuleType]:
    """The families of specs, rendered into a folder."""
    loaded = {}
    sys.path.insert(0, str(folder))
    for name in names:
        text = SPECS[name]
        (folder / f"{name}.yaml").write_text(text)
        if render([str(folder / f"{name}.yaml"), "--out", str(folder)]):
            raise SystemExit(f"{name}.yaml cannot be rendered")
        loaded[name] = importlib.import_module(name)
    return loaded


def ratios(calls: dict[str, Callable[[], object]]) -> dict[str, Any]:
    """Milliseconds of each call, and torch's by each, by rounds in which each call has a turn."""
    times = in_turns({name: partial(until_done, call) for name, call in calls.items()}, ROUNDS, warm=1)
    ratios_of: dict[str, Any] = {}
    for name, own in times.items():
        compared = ratio(times["torch"], own)
        low, high = compared["quartiles"]
        ratios_of[name] = {"ms": round(1e3 * statistics.median(own), 4), "ratio": [low, compared["median"], high]}
    return ratios_of


def tokens(*shape: int) -> Tensor:
    return torch.randint(WORDS, shape, device="cuda")


def milliseconds(model: Decoder, x: Tensor) -> float:
    """The median time of a call in eager mode, with that of the host."""
    taken = []
    for number in range(ROUNDS + 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        model(x)
        torch.cuda.synchronize()
        # The first two warm up.
        taken += [1e3 * (time.perf_counter() - begun)] * (number > 1)
    return round(statistics.median(taken), 4)


def captured(call: Callable[[Tensor], Tensor], x: Tensor) -> torch.cuda.CUDAGraph:
    """A graph of one call, so that the host's time is in none."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(2):
            call(x)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            call(x)
    return graph


#: A part: for each size in turn, its name and what was found.
Part = Iterator[tuple[str, dict[str, Any]]]


def alike(model: Decoder, family_of: dict[str, ModuleType]) -> Part:
    """Whether the logits of a sequence have the same bits in batches of each size, with the override and without."""
    for length in (1, LENGTH):
        x = tokens(max(BATCHES), length)

        def differing(x: Tensor = x) -> list[int]:
            whole = model(x).view(torch.int16)
            return [count for count in BATCHES if not torch.equal(model(x[:count]).view(torch.int16), whole[:count])]

        without, exact = differing(), model(x).float()
        with family_of["alike"].override_aten() as override:
            own = differing()
            apart = ((model(x).float() - exact).norm() / exact.norm()).item()
        left = {f"{operator}: {why}": count for (operator, why), count in override.report.kept.items()}
        replaced = {f"{operator}: {name}": count for (operator, name), count in override.report.replaced.items()}
        record = {
            "differing": own,
            "differing_without": without,
            "from_torch": apart,
            "left": left,
            "replaced": replaced,
        }
        yield f"{length} tokens", record


def cost(model: Decoder, family_of: dict[str, ModuleType]) -> Part:
    """Times of a forward pass in eager mode, of sequences of one token and of LENGTH, with the override and without."""
    for length in (1, LENGTH):
        for count in BATCHES:
            x = tokens(count, length)
            replayed: dict[str, Callable[[], object]] = {"torch": captured(model, x).replay}
            eager = {"torch": milliseconds(model, x)}
            with family_of["alike"].override_aten():
                replayed["rows"] = captured(model, x).replay
                eager["rows"] = milliseconds(model, x)
            yield f"{count}x{length}", {"device": ratios(replayed), "eager ms": eager}


def compiled(model: Decoder, family_of: dict[str, ModuleType]) -> Part:
    """Times of graphs of each size, plain and with each family's pass; errors against fp32 and reports."""
    for sizes in COMPILED:
        x, calls, record = tokens(*sizes), dict[str, Callable[[], object]](), dict[str, Any]()
        exact = model.float()(x)
        model.bfloat16()
        for name, family in {"torch": None, "plain": family_of["plain"], "chains": family_of["chains"]}.items():
            begun = time.perf_counter()
            torch._dynamo.reset()
            installed = None if family is None else family.inductor.install()
            try:
                call = torch.compile(model, dynamic=False)
                error = ((call(x).float() - exact).norm() / exact.norm()).item()
                calls[name] = captured(call, x).replay
            finally:
                if installed is not None:
                    installed.remove()
            report = None if installed is None else str(installed).splitlines()
            record[name] = {"error": error, "seconds": round(time.perf_counter() - begun, 1), "report": report}
        yield "x".join(map(str, sizes)), {"times": ratios(calls), **record}


#: Each part with the families that it needs.
PARTS: dict[str, tuple[Callable[[Decoder, dict[str, ModuleType]], Part], tuple[str, ...]]] = {
    "alike": (alike, ("alike",)),
    "cost": (cost, ("alike",)),
    "compiled": (compiled, ("plain", "chains")),
}


def table(costs: dict[str, Any]) -> str:
    """The costs as a table of Markdown."""
    lines = [
        "| sequences x tokens | torch, ms | rows, ms | torch / rows | eager torch, ms | eager rows, ms |",
        "|---" * 6 + "|",
    ]
    for name, each in costs.items():
        if "device" in each:
            device, eager = each["device"], each["eager ms"]
            ratio = device["rows"]["ratio"][1]
            shown = [name, device["torch"]["ms"], device["rows"]["ms"], f"{ratio:.2f}", eager["torch"], eager["rows"]]
            lines.append(f"| {' | '.join(map(str, shown))} |")
    return "\n".join(lines)


@torch.no_grad()
def main(path: Path, parts: list[str], limit: float) -> int:
    """Measure the parts, and write what was found after each size."""
    torch.manual_seed(0)
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    results: dict[str, Any] = {**place, "layers": LAYERS, "hidden": HIDDEN, "inner": INNER}
    wrong = False
    with TemporaryDirectory() as folder:
        family_of = families(Path(folder), dict.fromkeys(name for part in parts for name in PARTS[part][1]))
        model = Decoder().cuda().bfloat16()
        for part in parts:
            own: dict[str, Any] = {}
            results[part] = own
            steps = PARTS[part][0](model, family_of)
            while True:
                elapsed = time.perf_counter() - BEGUN
                if elapsed > limit:
                    own["skipped"] = f"what is left, after {elapsed:.0f} s"
                    break
                try:
                    name, each = next(steps)
                except StopIteration:
                    break
                except Exception as error:
                    own["error"], wrong = f"{type(error).__name__}: {error}"[:400], True
                    break
                each["taken_s"] = round(time.perf_counter() - BEGUN - elapsed, 1)
                wrong |= bool(each.get("differing") or each.get("left"))
                own[name] = each
                print(part, name, json.dumps(each), flush=True)
                path.write_text(json.dumps(results, indent=1) + "\n")
            print(part, own.get("error", own.get("skipped", "done")), flush=True)
        results["seconds"] = round(time.perf_counter() - BEGUN, 1)
        path.write_text(json.dumps(results, indent=1) + "\n")
        if "cost" in results:
            print(table(results["cost"]))
    print(f"{results['seconds']} s; {'WRONG' if wrong else 'right'}")
    return int(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=150)
    given = parser.parse_args()
    if unknown := {*given.parts} - {*PARTS}:
        parser.error(f"no part {unknown.pop()!r}; there are {', '.join(PARTS)}")
    sys.exit(main(given.file, given.parts or [*PARTS], given.seconds))
