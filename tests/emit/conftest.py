"""A rendered family whose launches are kept instead of made, and one as a repository of the Hub."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import triton

from generator.commands.command_line import main
from tests.helpers.stand_ins import Kernel, copied
from tests.helpers.support import GENERATED, Spoken, forget


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Renders a spec as a family whose launches stand-ins keep."""

    def family(text: str) -> ModuleType:
        # What launches repeated launches and copies comes with a choice.
        (tmp_path / "again.yaml").write_text(text if "select:" in text else f"{text}select: fastest\n")
        assert main([str(tmp_path / "again.yaml"), "--out", str(tmp_path)]) == 0
        monkeypatch.syspath_prepend(tmp_path)
        package = importlib.import_module("again")
        launch, fast = (importlib.import_module(f"again._runtime.{x}") for x in ("launch", "fast"))
        monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
        monkeypatch.setattr(fast, "KNOWN", True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(launch, "on_gpu", lambda x: True)
        if (tmp_path / "again" / "_runtime" / "ranking.py").exists():
            ranking, copies = (importlib.import_module(f"again._runtime.{x}") for x in ("ranking", "copies"))
            monkeypatch.setattr(ranking, "on_gpu", lambda x: True)
            # No GPU is known: the first kernel that accepts the operands chooses its own configuration.
            monkeypatch.setattr(ranking.Ranking, "best", lambda *call: None)
            monkeypatch.setattr(copies, "_launch", copied)
        if (tmp_path / "again" / "_runtime" / "interpreted_bf16.py").exists():
            # Nothing is interpreted, so the interpreter's products need not be right.
            monkeypatch.setattr(importlib.import_module("again._runtime.interpreted_bf16"), "check", lambda a, b: None)
        active = SimpleNamespace(get_current_stream=lambda index: ("stream", index), get_current_device=lambda: None)
        monkeypatch.setattr(fast, "_driver", lambda: active)
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
def repository(cli: Callable[..., Spoken], tmp_path: Path) -> Path:
    """A family as a repository of the Hub."""
    options = ("--format", "kernels", "--out", "hub", "--license", "mit", "--repo-id", "me/fp16-rcr")
    said = cli("package", GENERATED / "fp16_rcr", *options)
    assert said.status == 0, said.err
    assert "layers: Linear, LinearGelutanh, LinearRelu, LinearSilu" in said.out
    return tmp_path / "hub"
