"""Call families that lack private names of torch and Triton: `python without_names.py FOLDER MODULE:NAME...`

FOLDER has a family `f0`, which is copied for each name, since the operators of a family stay registered. Prints a line
for each name that a family does without.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode


class Missing:
    """An attribute of a class that hides an inherited one."""

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError


def imported_without(name: str, owner: Any, attribute: str) -> Any:
    """The family `name`, whose `_runtime.private` is imported while an object has no such attribute."""
    own = vars(owner).get(attribute)
    if own is None:
        setattr(owner, attribute, Missing())
    else:
        delattr(owner, attribute)
    assert not hasattr(owner, attribute)
    try:
        for module in ("private", "prepare"):
            importlib.import_module(f"{name}._runtime.{module}")
    finally:
        if own is None:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, own)
    return importlib.import_module(name)


def check(family: Any) -> None:
    """Raise an AssertionError unless the family computes, is described, prepared, faked and compiled."""
    a, b, bias = torch.randn(8, 32).half(), torch.randn(16, 32).half().T, torch.randn(16).half()
    expected = a.float() @ b.float()
    function = family.gemm_fp16_rcr_none
    assert torch.allclose(function(a, b).float(), expected, atol=0.1)
    out = torch.empty(8, 16).half()
    assert function(a, b, out=out) is out and torch.allclose(out.float(), expected, atol=0.1)
    assert torch.allclose(family.gemm_fp16_rcr_bias(a, b, bias=bias).float(), expected + bias, atol=0.1)
    name, row = function.which(a, b)
    assert name.startswith("gemm_fp16_rcr_none__") and row
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert function.prepare(16, 32, M=8, unaligned=()) == 1
    with FakeTensorMode():
        fake = function(torch.empty(8, 32, dtype=torch.float16), torch.empty(16, 32, dtype=torch.float16).T)
        assert fake.shape == (8, 16)
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: function(a, b) + 1, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(a, b).float(), expected + 1, atol=0.1)


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    for index, named in enumerate(sys.argv[2:], 1):
        shutil.copytree(folder / "f0", folder / f"f{index}")
        module, _, name = named.partition(":")
        *path, attribute = name.split(".")
        owner = functools.reduce(getattr, path, importlib.import_module(module))
        family = imported_without(f"f{index}", owner, attribute)
        check(family)
        print(named)


if __name__ == "__main__":
    main()
