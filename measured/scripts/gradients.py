"""Errors of gradients beside eager torch's, and `opcheck`, on a GPU: `python measured/scripts/gradients.py FILE`.

Each contract of `specs/training.yaml` is called with random operands. The gradient of its result is random, and those
of all operands are compared with float64 autograd: the root mean square error relative to the root mean square. Eager
torch computes the same in bf16, an operation at a time. FILE receives JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import triton

from generator.bench import eager
from generator.language.model import Variant
from generator.language.spec import read
from generator.plan.contract_call import Argument, call
from generator.plan.expand import expand

SPEC, SIZES = Path("specs/training.yaml"), {"B": 1, "M": 1000, "N": 768, "K": 512}


def operand(x: Argument) -> torch.Tensor:
    """A random operand that requires a gradient; B is small, so that sums have the size of 1."""
    shape = x.sizes(SIZES) or ()
    tensor = torch.randn(shape[::-1] if x.layout == "column" else shape, device="cuda")
    tensor = tensor.T if x.layout == "column" else tensor
    return (tensor * (SIZES["K"] ** -0.5 if x.name == "b" else 1)).bfloat16().detach().requires_grad_()


def gradients(v: Variant, operands: dict[str, torch.Tensor], weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients that torch's autograd computes of the formulas."""
    of = {name: x.detach().to(weight.dtype).requires_grad_() for name, x in operands.items()}
    rest = {name: x for name, x in of.items() if name not in ("a", "b")}
    eager.apply(v.epilogue, of["a"] @ of["b"], rest).backward(weight)
    return {name: x.grad for name, x in of.items() if x.grad is not None}


def error(x: torch.Tensor, exact: torch.Tensor) -> float:
    return float(f"{((x.double() - exact).norm() / exact.norm()).item():.3g}")


def main(path: Path) -> None:
    """Measure every contract that has gradients of its own."""
    family, spec = importlib.import_module("generated.training"), expand(read(SPEC))
    variants = {kernel.variant.contract: kernel.variant for kernel in spec.kernels}
    results: dict[str, Any] = {}
    for gradient in spec.gradients:
        v = variants[gradient.contract]
        if v.epilogue.outputs:
            continue
        torch.manual_seed(0)
        described = call(v)
        operands = {x.name: operand(x) for x in (described.a, described.b, *described.operands)}
        weight = torch.randn(SIZES["M"], SIZES["N"], device="cuda", dtype=torch.bfloat16)
        getattr(family, gradient.contract)(**operands).backward(weight)
        exact, low = gradients(v, operands, weight.double()), gradients(v, operands, weight)
        results[gradient.contract] = {
            name: {"family": error(x.grad, exact[name]), "torch": error(low[name], exact[name])}
            for name, x in operands.items()
            if x.grad is not None
        }
        name = gradient.saving or gradient.contract
        getattr(family, name).register()
        operator = importlib.import_module("generated.training._runtime.operators").operator(name)
        results[gradient.contract]["opcheck"] = torch.library.opcheck(operator, (*operands.values(), None))
        print(gradient.contract, json.dumps(results[gradient.contract]), flush=True)
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    path.write_text(json.dumps({**place, "sizes": SIZES, "gradients": results}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
