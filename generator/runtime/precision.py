"""How torch multiplies fp32."""

from __future__ import annotations

from typing import Any

import torch


def fp32_precision() -> str:
    """How torch multiplies fp32 on a GPU now: "ieee", or "tf32"."""
    backends: Any = torch.backends
    words = backends.cuda.matmul.fp32_precision, backends.fp32_precision
    return "tf32" if next((word for word in words if word != "none"), "") == "tf32" else "ieee"
