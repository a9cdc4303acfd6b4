"""The GPU of this process; run as a module, it prints the GPU's name and architecture as JSON."""

from __future__ import annotations

import json

import torch


def architecture() -> str:
    """The architecture of the current device as a target's name: `sm90`, `gfx942`."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm{properties.major}{properties.minor}"


if __name__ == "__main__":
    found = torch.cuda.is_available()
    print(json.dumps([torch.cuda.get_device_name(), architecture()] if found else [None, None]))
