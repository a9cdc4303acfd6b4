"""`torch.library.opcheck` on a GPU, of a contract of each kind: `python measured/scripts/operators.py FILE`.

Each contract of the committed families is called once, and every operator that the call and its backward pass run goes
through opcheck. FILE receives JSON: the operators that passed for each contract; the exit status is 1 if one failed.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import triton

from tests.helpers.emit.opchecks import checked

#: Kind -> family and contract.
KINDS = {
    "plain": ("gemm16", "gemm_bf16_rcr_none"),
    "vector": ("training", "gemm_bf16_rcr_bias"),
    "gated": ("gated", "gemm_bf16_rcr_bias_swiglu"),
    "output": ("outputs", "gemm_fp16_rcr_bias_save_gelu"),
    "K divided": ("split_k", "gemm_fp16_rcr_bias_silu"),
    "batch": ("batched", "bmm_bf16_rcr_none"),
    "fp8": ("fp8e4m3_rcr", "gemm_fp8e4m3_rcr_scale"),
}
SIZES = {"B": 3, "M": 48, "N": 64, "K": 96}


def main(path: Path) -> int:
    """Check every kind, and write what passed."""
    results: dict[str, Any] = {}
    for kind, (name, contract) in KINDS.items():
        try:
            family = importlib.import_module(f"generated.{name}")
            result: dict[str, Any] = {"operators": checked(family, contract, SIZES, device="cuda")}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"[:400]}
        results[kind] = {"contract": contract, **result}
        print(kind, json.dumps(results[kind]), flush=True)
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    path.write_text(json.dumps({**place, "kinds": results}, indent=1) + "\n")
    return int(any("error" in each for each in results.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
