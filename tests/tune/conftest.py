"""A family with stand-ins for kernels, and calls of the command on a fake device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from generator.bench import workers
from generator.commands import command_line
from generator.commands.tune import parse
from generator.tune import tuning_call
from tests.helpers.support import ROOT
from tests.helpers.tune import fake_gpu as fakes

SHAPES = ("32x32x32", "16x64x32")


@dataclass
class Bench:
    """A folder with the family `tiny` and what a call of the command leaves there."""

    folder: Path

    def kernel(self, layout: str, swizzle: str) -> Path:
        """The file of one of the four kernels."""
        return self.folder / "generated" / "tiny" / f"gemm_fp16_{layout}_none__tiled_pointer_auto_{swizzle}.py"

    @property
    def winners(self) -> Path:
        return self.folder / "specs" / "tuned" / "nvidia_h200" / "tiny.json"

    @property
    def journal(self) -> Path:
        return self.folder / ".tune_cache" / "nvidia_h200.jsonl"

    def tune(self, *arguments: str, factory: str = "tests.helpers.tune.fake_gpu:Device") -> int:
        """A call of the command on the fake device; raises what `main` would answer with exit status 2."""
        call = parse(["specs/tiny.yaml", "--shapes", "shapes.yaml", "--workers", "0", *arguments])
        return tuning_call.tune(call, factory)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """The family rendered, its kernels replaced: linear ones take 5, 4 and 6 ms, grouped ones 3, 2 and 8."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "tiny.yaml").write_text(fakes.SPEC)
    (tmp_path / "shapes.yaml").write_text(f"[{', '.join(SHAPES)}]")
    assert command_line.main(["specs/tiny.yaml"]) == 0
    made = Bench(tmp_path)
    for layout in ("rcr", "rrr"):
        fakes.write(made.kernel(layout, "linear"), "5e-3, 4e-3, 6e-3")
        fakes.write(made.kernel(layout, "grouped"), "3e-3, 2e-3, 8e-3")
    capsys.readouterr()
    return made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., fakes.AtOnce]:
    """Makes every later call work in this process: `at_once()` gives the executor of the next one."""

    def use(stop_after: int = 1000) -> fakes.AtOnce:
        executor = fakes.AtOnce()
        executor.stop_after = stop_after
        monkeypatch.setattr(workers, "executor", lambda word, gpus: executor)
        return executor

    return use
