"""The options of a call of `tune`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from generator.bench.workers import PROCESSES

#: Candidates to measure by default, except for regret.
CANDIDATES = 12


@dataclass
class TuningOptions:
    """The options of one call."""

    specs: list[Path] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    out: Path = Path("generated")
    only: str | None = None
    candidates: int | None = None
    budget: float = float("inf")
    gpus: int = 1
    executor: str = PROCESSES
    tuned: Path | None = None
    journal: Path | None = None
    dry_run: bool = False
    report: bool = False
    html: Path | None = None
    again: bool = False
    smallest: bool = False
    also: list[Path] = field(default_factory=list)
    refine: bool = False
    device: str | None = None
    workers: int = 0
    regret: Path | None = None

    @property
    def most(self) -> int | None:
        """How many candidates to measure; None for all."""
        return CANDIDATES if self.candidates is None and self.regret is None else self.candidates
