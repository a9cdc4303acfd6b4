"""Errors of products of fp32 operands against float64: `python measured/scripts/fp32_errors.py FILE`.

Operands have the standard normal distribution. An error is that of the whole result, |C - AB| / |AB| in the Frobenius
norm, and `worst` is the largest of one element over the root mean square of AB. FILE receives JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton

from generator.emit.loading import load_family

SIZES = ((512, 4096, 1024), (512, 4096, 4096), (512, 4096, 16384), (4096, 4096, 4096))
#: The products by their names in FILE: a family of `generated/` and its function.
OURS = {
    "fp32": ("fp32", "gemm_fp32_rcr_none"),
    "tf32x3": ("tf32x3", "gemm_tf32x3_rcr_none"),
    "tf32": ("tf32", "gemm_tf32_rcr_none"),
}


def products() -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    """Those of the families, and torch's in full precision."""
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    functions = {name: getattr(load_family(Path("generated") / family), word) for name, (family, word) in OURS.items()}
    return {"torch fp32": torch.matmul} | functions


def main(file: Path) -> None:
    device = torch.cuda.get_device_name()
    compared, rows = products(), []
    for m, n, k in SIZES:
        torch.manual_seed(0)
        a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda").T
        exact = a.double() @ b.double()
        typical = exact.square().mean().sqrt()
        for name, product in compared.items():
            apart = product(a, b).double() - exact
            error = float(apart.norm() / exact.norm())
            worst = float(apart.abs().max() / typical)
            rows.append({"product": name, "m": m, "n": n, "k": k, "error": error, "worst": worst})
            print(f"{name:12} {m}x{n}x{k}: {error:.2e}, worst {worst:.2e}")
    place = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    file.write_text(json.dumps({"place": place, "errors": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
