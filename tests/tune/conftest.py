"""A family with stand-ins for kernels, and calls of the command on a fake device."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from generator.bench import workers
from generator.commands import command_line
from generator.commands.tune import parse
from generator.tune import tuning_call
from tests.helpers.support import ROOT, Spoken, called
from tests.helpers.tune import fake_gpu as fakes

SHAPES = ("32x32x32", "16x64x32")


@dataclass
class Bench:
    """A folder with the family `tiny`, what a call of the command leaves there, and who worked for it."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    #: One of each call, which works in this process, and after how many tasks the next one is interrupted.
    executors: list[fakes.AtOnce] = field(default_factory=list)
    stop_after: int = 1000

    @property
    def calls(self):
        """The tasks of the last call: one asks a worker for its device, each other one measures a problem."""
        return self.executors[-1].calls

    def said(self):
        """What was printed since this was last asked for."""
        found = self.capsys.readouterr()
        return Spoken(0, found.out, found.err)

    def cli(self, *arguments):
        return called(self.capsys, *arguments)

    def executor(self, *_):
        self.executors.append(fakes.AtOnce())
        self.executors[-1].stop_after, self.stop_after = self.stop_after, 1000
        return self.executors[-1]

    def kernel(self, layout, swizzle):
        """The file of one of the four kernels."""
        return self.folder / "generated" / "tiny" / f"gemm_fp16_{layout}_none__tiled_pointer_auto_{swizzle}.py"

    @property
    def winners(self):
        return self.folder / "specs" / "tuned" / "nvidia_h200" / "tiny.json"

    @property
    def journal(self):
        return self.folder / ".tune_cache" / "nvidia_h200.jsonl"

    def tune(self, *arguments, factory="tests.helpers.tune.fake_gpu:Device"):
        """A call of the command on the fake device; raises what `main` would answer with exit status 2."""
        call = parse(["specs/tiny.yaml", "--shapes", "shapes.yaml", "--workers", "0", *arguments])
        call.factory = factory
        return tuning_call.tune(call)


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """The family rendered, its kernels replaced: linear ones take 5, 4 and 6 ms, grouped ones 3, 2 and 8."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "tiny.yaml").write_text(fakes.SPEC)
    (tmp_path / "shapes.yaml").write_text(f"[{', '.join(SHAPES)}]")
    assert command_line.main(["specs/tiny.yaml"]) == 0
    made = Bench(tmp_path, capsys)
    for layout in ("rcr", "rrr"):
        fakes.write(made.kernel(layout, "linear"), "5e-3, 4e-3, 6e-3")
        fakes.write(made.kernel(layout, "grouped"), "3e-3, 2e-3, 8e-3")
    capsys.readouterr()
    monkeypatch.setattr(workers, "executor", made.executor)
    return made
