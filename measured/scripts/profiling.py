"""One call of a family's function and one of torch at sizes where they differ, for a profiler to look at.

    ncu --clock-control none --profile-from-start off --section SpeedOfLight --section LaunchStats \
        python measured/scripts/profiling.py generated/gemm16 gemm_fp16_rcr_none

measured/nvidia_h200/profile.csv holds what it said.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

SIZES = [(128, 8192, 8192), (1024, 4608, 3584), (1536, 768, 3072), (4096, 4096, 4096)]


def main() -> None:
    folder, contract = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.path.insert(0, str(folder.parent))
    function = getattr(importlib.import_module(folder.name), contract)
    runtime = torch.cuda.cudart()
    for m, n, k in SIZES:
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        b = torch.randn(n, k, device="cuda", dtype=torch.float16).T
        for product in (function, torch.matmul):
            for _ in range(3):
                product(a, b)
            torch.cuda.synchronize()
            runtime.cudaProfilerStart()
            product(a, b)
            torch.cuda.synchronize()
            runtime.cudaProfilerStop()


if __name__ == "__main__":
    main()
