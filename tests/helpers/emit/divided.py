"""Products of operands that a mesh of two processes divides, beside torch's; run by torchrun with a family's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from generator.emit.loading import load_family

M, N, K = 8, 12, 16
#: The placements of A, of B as the layer stores it, (N, K), and of a vector of columns.
PLACEMENTS = {
    "rows": (Shard(0), Replicate(), Replicate()),
    "columns": (Replicate(), Shard(0), Shard(0)),
    "K": (Shard(1), Shard(1), Replicate()),
    "nothing": (Replicate(), Replicate(), Replicate()),
    "rows and columns": (Shard(0), Shard(0), Shard(0)),
    "K of A and columns": (Shard(1), Shard(0), Replicate()),
}


def gated(y: Tensor) -> Tensor:
    return functional.silu(y[..., : N // 2]) * y[..., N // 2 :]


#: What torch computes of a product and a vector, by the chain of a contract.
CHAINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda y, b: y,
    "bias": lambda y, b: y + b,
    "bias_gelu": lambda y, b: functional.gelu(y + b),
    "scale_bias": lambda y, b: 2 * y + b,
    "bias_swiglu": lambda y, b: gated(y + b),
}


def called(family: Any, chain: str, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    given: dict[str, Any] = {"bias": b} if "bias" in chain else {}
    given |= {"scale": 2.0} if "scale" in chain else {}
    found: Tensor = getattr(family, f"gemm_fp32_rcr_{chain}")(x, w.t(), **given)
    return found


def compared(family: Any, chain: str, placements: Any, mesh: Any) -> str:
    """The placements of the result and of the gradients; fails where a value is not torch's."""
    values = [torch.randn(size, generator=torch.Generator().manual_seed(3)) for size in ((M, K), (N, K), (N,))]
    leaves = [value.clone().requires_grad_() for value in values]
    expected = CHAINS[chain](functional.linear(*leaves[:2]), leaves[2])
    gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    wanted = torch.autograd.grad(expected, leaves, gradient, allow_unused=True)
    divided = [distribute_tensor(value, mesh, [place]).requires_grad_() for value, place in zip(values, placements)]
    found: Any = called(family, chain, *divided)
    torch.testing.assert_close(found.full_tensor(), expected)
    (place,) = found.placements
    incoming = distribute_tensor(gradient, mesh, [Replicate() if isinstance(place, Partial) else place])
    made: Any = torch.autograd.grad(found, divided, incoming, allow_unused=True)
    for mine, other in zip(made, wanted):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine.full_tensor(), other)
    return " ".join(str(x.placements[0]) if isinstance(x, DTensor) else "-" for x in (found, *made))


def parallel(family: Any, mesh: Any) -> None:
    """Layers that were replaced, divided by columns and by rows, are torch's."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.ReLU(), torch.nn.Linear(N, K))
    expected = plain(torch.ones(M, K))
    assert family.nn.replace_linear(plain) == ["0", "2"]
    parallelize_module(plain, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    found = plain(torch.ones(M, K))
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    activated = family.nn.Linear(K, N, contract="gemm_fp32_rcr_bias_gelu")
    expected = activated(torch.ones(M, K))
    parallelize_module(activated, mesh, ColwiseParallel(output_layouts=Replicate()))
    torch.testing.assert_close(activated(torch.ones(M, K)), expected)


def main(folder: str) -> None:
    """Print a line for each contract and way to divide its operands."""
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    family = load_family(Path(folder))
    for chain in CHAINS:
        for how, placements in PLACEMENTS.items():
            said = compared(family, chain, placements, mesh)
            if torch.distributed.get_rank() == 0:
                print(f"{chain} by {how}: {said}", flush=True)
    parallel(family, mesh)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
