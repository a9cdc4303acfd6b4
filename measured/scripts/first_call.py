"""Time the first call of a family's function in a process, beyond importing torch and triton.

python measured/scripts/first_call.py FAMILY, with a GPU: run it twice, the second time Triton's cache is warm. What
Triton hashes of itself before it looks into its cache is timed apart: every process that launches a kernel does it.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import torch
from triton.runtime.cache import triton_key

SIZE = 1024


def main(folder: Path) -> None:
    """Print seconds: of the key, and of the rest of the first call."""
    a, b = torch.randn(2, SIZE, SIZE, device="cuda", dtype=torch.float16)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    # Kept for the rest of the process.
    triton_key()
    keyed = time.perf_counter()
    sys.path.insert(0, str(folder.resolve().parent))
    family = importlib.import_module(folder.name)
    family.gemm_fp16_rcr_none(a, b.T)
    torch.cuda.synchronize()
    ended = time.perf_counter()
    print(f"Triton's key {keyed - begun:.3f} s, the rest {ended - keyed:.3f} s, together {ended - begun:.3f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
