"""A stand-in for the Hub that serves one repository of a publisher that it does not mark as trusted.

    python hub_stand_in.py REPOSITORY REPO_ID PAGE

runs the blocks of Python of PAGE that name `kernels`. Only what asks the Hub or a GPU is replaced.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import kernels
import torch
from huggingface_hub.hf_api import GitRefInfo, RepoFolder
from kernels import variants

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class StandIn:
    """What `kernels` asks of `huggingface_hub.HfApi`, answered from a folder; `asked` has the names of the methods."""

    def __init__(self, root: Path, repo_id: str) -> None:
        self.root, self.repo_id, self.asked = root, repo_id, list[str]()
        listed = "get_organization_overview list_repo_refs list_repo_tree hf_hub_download snapshot_download"
        for name in listed.split():
            setattr(huggingface_hub.HfApi, name, self._noting(name))

    def _noting(self, name: str) -> Any:
        def method(_: object, repo_id: str = "", *args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            assert (repo_id or kwargs.pop("repo_id")) in (self.repo_id, self.repo_id.split("/")[0])
            return getattr(self, name)(*args, **kwargs)

        return method

    def get_organization_overview(self) -> Any:
        return SimpleNamespace(trustedKernelPublisher=False)

    def list_repo_refs(self, **_: object) -> Any:
        return SimpleNamespace(branches=[GitRefInfo(name="v1", ref="refs/heads/v1", target_commit=COMMIT)])

    def list_repo_tree(self, *, path_in_repo: str, revision: str, **_: object) -> list[RepoFolder]:
        assert revision in (COMMIT, "COMMIT")
        folders = (self.root / path_in_repo).iterdir()
        return [RepoFolder(path=f"{path_in_repo}/{each.name}", oid="") for each in folders]

    def hf_hub_download(self, *, filename: str, **_: object) -> str:
        return str(self.root / filename)

    def snapshot_download(self, **_: object) -> str:
        return str(self.root)


def blocks(page: str) -> list[str]:
    """The blocks of a page in which the Hub is asked."""
    found = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    return [block for block in found if "get_kernel" in block or "LayerRepository" in block]


def names() -> dict[str, Any]:
    """What a reader of the page has: a model, and operands."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).half()
    weight = model[0].weight.detach()
    x = torch.randn(8, 64).half()
    return {"model": model, "x": x, "a": x, "weight": weight, "b": weight.T, "bias": torch.randn(128).half()}


def main() -> None:
    hub = StandIn(Path(sys.argv[1]), sys.argv[2])
    # The build of torch and the model are of the CPU, and the kernels run in Triton's interpreter.
    cuda = kernels.backends.CUDA(version=variants.Version("12.8"))
    vars(variants)["_select_backend"] = lambda _: cuda
    vars(importlib.import_module("kernels.layer.kernelize"))["_find_device"] = lambda _: kernels.Device(type="cuda")
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    found = blocks(Path(sys.argv[3]).read_text(encoding="utf-8"))
    assert found
    for block in found:
        given = names()
        with torch.no_grad():
            expected = given["model"](given["x"])
            exec(block, given)
            if "LayerRepository" in block:
                torch.testing.assert_close(given["model"](given["x"]), expected)
                assert "_linear" in given["model"][0].forward.__func__.__code__.co_names
            elif "y" in given:
                assert given["y"].shape == (8, 128) and given["y"].isfinite().all()
    assert "snapshot_download" in hub.asked
    print("ran", len(found))


if __name__ == "__main__":
    main()
