"""`torch.library.opcheck` on a GPU, of a contract of each kind: `python measured/scripts/operators.py FILE`.

Each contract of the committed families is called once, and every operator that the call and its backward pass run goes
through opcheck. FILE receives JSON: the operators that passed for each contract; the exit status is 1 if one failed.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

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
SIZES = {"1": 1, "B": 3, "M": 48, "N": 64, "2 * N": 128, "K": 96}
#: What opcheck does, the check of the schema first: torch compares no numbers of 8 bits, which that needs.
UTILITIES = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Seen(TorchDispatchMode):
    """Within, the calls of a family's operators with their arguments, in order."""

    def __init__(self, family: ModuleType) -> None:
        super().__init__()
        self.namespace = family.__name__.replace(".", "__")
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == self.namespace:
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def operands(family: ModuleType, contract: str) -> dict[str, torch.Tensor]:
    """Random operands of a contract, laid out as it wants them."""
    table = importlib.import_module(f"{family.__name__}._prepare")._OPERANDS[contract]
    made = {}
    for name, (dtype, shape, unit, optional) in table.items():
        if optional:
            continue
        extents = [SIZES[size] for size in shape]
        turned = unit is not None and len(extents) > 1 and unit != len(extents) - 1
        x = torch.randn(extents[:-2] + extents[:-3:-1] if turned else extents, device=DEVICE) / 4
        kinds = dtype if isinstance(dtype, tuple) else (dtype,)
        made[name] = (x.mT if turned else x).to(kinds[0] if isinstance(kinds[0], torch.dtype) else torch.float32)
    return made


def checked(family: ModuleType, contract: str) -> list[str]:
    """The operators of a call and its backward pass, all of which opcheck accepts."""
    given = operands(family, contract)
    recorded = contract in getattr(family, "_GRADIENTS", {})
    given = {name: x.requires_grad_(recorded) for name, x in given.items()}
    with Seen(family) as seen:
        found = getattr(family, contract)(**given)
        if recorded:
            found = found if isinstance(found, tuple) else (found,)
            sum(x.float().sum() for x in found if x.requires_grad).backward()
    for number, (operator, arguments) in enumerate(seen.calls):
        # The products of a backward pass have no gradients themselves.
        tensors = [isinstance(x, torch.Tensor) for x in arguments]
        leaves = [
            x.detach().requires_grad_(x.requires_grad and number == 0) if tensor else x
            for x, tensor in zip(arguments, tensors)
        ]
        narrow = any(tensor and x.is_floating_point() and x.itemsize == 1 for x, tensor in zip(leaves, tensors))
        opcheck(operator, tuple(leaves), test_utils=UTILITIES[narrow:])
    return [operator.name().partition("::")[2] for operator, _ in seen.calls]


def main(path: Path) -> int:
    """Check every kind, and write what passed."""
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    failed = False
    for kind, (name, contract) in KINDS.items():
        try:
            results[kind] = {
                "contract": contract,
                "operators": checked(importlib.import_module(f"generated.{name}"), contract),
            }
            failed |= not results[kind]["operators"]
        except Exception as error:
            results[kind], failed = {"contract": contract, "error": f"{type(error).__name__}: {error}"[:400]}, True
        print(kind, json.dumps(results[kind]), flush=True)
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "interpreter"
    place = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    path.write_text(json.dumps({**place, "kinds": results}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
