"""The GPU of this process; run as a module, it prints the GPU's name and architecture, and versions, as JSON."""

from __future__ import annotations

import json
import platform

import torch
import triton


def architecture() -> str:
    """The architecture of the current device as a target's name: `sm90`, `gfx942`."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm{properties.major}{properties.minor}"


def versions() -> dict[str, str]:
    """The versions of what runs a kernel."""
    return {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}


if __name__ == "__main__":
    own = [torch.cuda.get_device_name(), architecture()] if torch.cuda.is_available() else [None, None]
    print(json.dumps([*own, versions()]))
