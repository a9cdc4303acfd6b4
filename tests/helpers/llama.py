"""A Llama-style transformer block in torch alone, run once with torch's linear layers and once with a family's.

    python tests/helpers/llama.py FAMILY [--tokens 512] [--hidden 2048]

Prints one line of JSON: the relative errors of both against the block in float64, and how many linear layers were
replaced. On a machine without a GPU run it with TRITON_INTERPRET=1 and small sizes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F

Linear = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Block:
    """Weights of one block: grouped-query attention with rotary positions, and a SwiGLU feed-forward.

    Weights are (features out, features in), as torch.nn.Linear keeps them.
    """

    heads: int
    kv_heads: int
    norms: tuple[torch.Tensor, torch.Tensor]
    weights: dict[str, torch.Tensor]

    @classmethod
    def random(cls, hidden: int, heads: int, device: str, dtype: torch.dtype) -> Block:
        """A block of random weights, scaled as a trained one's are."""
        generator = torch.Generator().manual_seed(hidden)
        kv_heads, inner = heads // 4, 11 * hidden // 4
        width = hidden // heads

        def weight(rows: int, columns: int) -> torch.Tensor:
            return (torch.randn(rows, columns, generator=generator) / math.sqrt(columns)).to(device, dtype)

        shapes = {
            "q": (hidden, hidden),
            "k": (kv_heads * width, hidden),
            "v": (kv_heads * width, hidden),
            "o": (hidden, hidden),
            "gate": (inner, hidden),
            "up": (inner, hidden),
            "down": (hidden, inner),
        }
        norms = tuple((1 + 0.1 * torch.randn(hidden, generator=generator)).to(device, dtype) for _ in range(2))
        return cls(heads, kv_heads, (norms[0], norms[1]), {name: weight(*shape) for name, shape in shapes.items()})

    def double(self) -> Block:
        """The same weights in float64."""
        norms = (self.norms[0].double(), self.norms[1].double())
        return Block(self.heads, self.kv_heads, norms, {name: w.double() for name, w in self.weights.items()})

    def __call__(self, x: torch.Tensor, linear: Linear) -> torch.Tensor:
        """The block's output (tokens, hidden) for `x` of that shape; `linear(x, weight)` is x @ weight.T."""
        w = self.weights
        normed = rms_norm(x, self.norms[0])
        q, k, v = (linear(normed, w[name]) for name in "qkv")
        x = x + linear(self.attend(q, k, v), w["o"])
        normed = rms_norm(x, self.norms[1])
        return x + linear(F.silu(linear(normed, w["gate"])) * linear(normed, w["up"]), w["down"])

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention of (tokens, heads * width) queries over (tokens, kv_heads * width) keys and values."""
        tokens = q.shape[0]
        q = rotate(q.view(tokens, self.heads, -1).transpose(0, 1))
        k = rotate(k.view(tokens, self.kv_heads, -1).transpose(0, 1))
        v = v.view(tokens, self.kv_heads, -1).transpose(0, 1)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[2])
        mask = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
        attended = scores.masked_fill(mask, -math.inf).softmax(dim=-1) @ v
        return attended.transpose(0, 1).reshape(tokens, -1)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions for (heads, tokens, width)."""
    half = x.shape[2] // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def load(folder: Path) -> ModuleType:
    """A vendored family, imported from its folder as another repository would."""
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    spec.loader.exec_module(module)
    return module


def compare(family: ModuleType, tokens: int, hidden: int, device: str) -> dict[str, float]:
    """Relative errors (Frobenius) of torch's and the family's block in fp16 against float64, and between the two."""
    block = Block.random(hidden, max(4, hidden // 128), device, torch.float16)
    x = torch.randn(tokens, hidden, generator=torch.Generator().manual_seed(tokens)).to(device, torch.float16)
    calls = 0

    def ours(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        product: torch.Tensor = family.gemm_fp16_rcr_none(x, weight.T)
        return product

    reference = block.double()(x.double(), F.linear)
    theirs, replaced = block(x, F.linear).double(), block(x, ours).double()
    return {
        "torch": float((theirs - reference).norm() / reference.norm()),
        "family": float((replaced - reference).norm() / reference.norm()),
        "between": float((replaced - theirs).norm() / theirs.norm()),
        "linear_layers": calls,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("family", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=2048)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(json.dumps(compare(load(options.family), options.tokens, options.hidden, device)))


if __name__ == "__main__":
    main()
