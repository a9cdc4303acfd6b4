"""A rendered family whose launches are kept instead of made, and one as a repository of the Hub."""

import importlib
from types import SimpleNamespace

import pytest
import torch
import triton

from tests.helpers.family_folder import render_family
from tests.helpers.stand_ins import Kernel, copied
from tests.helpers.support import GENERATED, forget, render_spec


@pytest.fixture
def rendered(tmp_path, monkeypatch):
    """Renders a spec as a family whose launches stand-ins keep."""

    def family(text):
        # What Triton does not document, and copies, come with a choice.
        render_spec(tmp_path, "again", text if "select:" in text else f"{text}select: fastest\n")
        monkeypatch.syspath_prepend(tmp_path)
        package = importlib.import_module("again")
        # No GPU is known: the first kernel that accepts the operands chooses its own configuration. Nothing is
        # interpreted, so the interpreter's products need not be right.
        active = SimpleNamespace(get_current_stream=lambda index: ("stream", index), get_current_device=lambda: None)
        changed = {
            "launch": {"on_gpu": lambda x: True},
            "ranking": {"on_gpu": lambda x: True, "Ranking.best": lambda *call: None},
            "fast": {"KNOWN": True, "_driver": lambda: active},
            "copies": {"_launch": copied},
            "interpreted_bf16": {"check": lambda a, b: None},
        }
        for module in [x for x in changed if (tmp_path / "again" / "_runtime" / f"{x}.py").exists()]:
            for name, value in changed[module].items():
                monkeypatch.setattr(f"again._runtime.{module}.{name}", value)
        monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=("stream", index)))
        for name in [name for names in package._KERNELS.values() for name in names]:
            module = package._kernel(name)
            for launch in module.CALL.launches:
                own = launch.kernel
                stand_in = Kernel(own.arg_names)
                object.__setattr__(launch, "kernel", stand_in)
                end = next((x for x in ("sum", "decode") if vars(module).get(f"{name}_{x}") is own), "gemm")
                setattr(module, f"{end}_kernel", stand_in)
        return package

    yield family
    forget("again")


@pytest.fixture
def repository(cli, tmp_path):
    """A family as a repository of the Hub."""
    options = ("--format", "kernels", "--out", "hub", "--license", "mit", "--repo-id", "me/fp16-rcr")
    said = cli("package", GENERATED / "fp16_rcr", *options)
    assert said.status == 0, said.err
    assert "layers: Linear, LinearGelutanh, LinearRelu, LinearSilu" in said.out
    return tmp_path / "hub"


@pytest.fixture
def rerender(cli):
    """The command line in a folder where family.yaml, of four kernels, was rendered."""
    return render_family(cli)
