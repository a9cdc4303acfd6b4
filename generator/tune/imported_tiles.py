"""Tiles that somebody else tuned, by M: the JSON of vLLM's fused experts and of its fp8 products with scaled blocks.

A row of such a file is a candidate beside those of the cost model; only `--trust` makes it a winner unmeasured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator.files.checked_json import Schema
from generator.language import measured_values as values
from generator.language.errors import CallError, nearest
from generator.problem.product import Shape
from generator.tune.outcome import ConfirmedWinner, plain_winner
from generator.tune.trial_selection import Candidate, Trial

#: The kinds of files that are read.
KINDS = ("vllm",)
#: vLLM's names, each with that of an entry of CONFIGS, and that of a spec's `tile`.
_NAMES = {
    "BLOCK_SIZE_M": ("BLOCK_M", "m"),
    "BLOCK_SIZE_N": ("BLOCK_N", "n"),
    "BLOCK_SIZE_K": ("BLOCK_K", "k"),
    "GROUP_SIZE_M": ("GROUP_M", "group"),
    "num_warps": ("num_warps", "warps"),
    "num_stages": ("num_stages", "stages"),
}
_TILE = {"type": "object", "additionalProperties": {"type": "integer"}, "required": ["BLOCK_SIZE_M", "num_warps"]}
_SCHEMA = Schema(
    {
        "type": "object",
        "properties": {"triton_version": values.TEXT},
        "patternProperties": {"^[1-9][0-9]{0,8}$": _TILE},
        "additionalProperties": False,
        "minProperties": 1,
    }
)
#: The sizes in the name of a file; that of fused experts has no K.
_SIZES = re.compile(r"^N=(\d+),K=(\d+),")


@dataclass(frozen=True)
class ImportedTiles:
    """The rows of a file by M."""

    path: Path
    rows: Mapping[int, Mapping[str, int]]

    @property
    def shapes(self) -> list[str]:
        """The sizes that the file is for; raises `CallError` if its name has not all of them."""
        sizes = _SIZES.match(self.path.name)
        if sizes is None:
            raise CallError(f"--import: the name of {self.path} has no N and K: give the sizes with --shapes")
        return [f"{m}x{sizes[1]}x{sizes[2]}" for m in self.rows]

    def row(self, shape: Shape) -> Mapping[str, int]:
        """The row for a size: as vLLM chooses, that of the nearest M."""
        return self.rows[min(self.rows, key=lambda m: abs(m - shape.m))]

    def takes(self, shape: Shape, config: Mapping[str, int]) -> bool:
        """Whether a configuration is the row for a size; without bands GROUP_M is 1."""
        own = {_NAMES.get(name, (name,))[0]: value for name, value in self.row(shape).items()}
        return {"GROUP_M": 1, **config} == {"GROUP_M": 1, **own}

    def chosen(self, trial: Trial) -> Candidate | None:
        """The candidate of a trial that has the row for its size, of several the best by the model."""
        return next((each for each in trial.candidates if self.takes(trial.problem.shape, each.config)), None)

    def unmapped(self, trials: Iterable[Trial]) -> list[str]:
        """What could not be mapped, a line for each contract and row."""
        lines = {}
        for trial in trials:
            if self.chosen(trial) is None:
                shape = trial.problem.shape
                row = self.row(shape).items()
                tile = ", ".join(f"{_NAMES.get(name, (name, name))[1]}: {value}" for name, value in row)
                lines[trial.contract, tile] = f"{trial.contract} at {shape}: no kernel has {{{tile}}}"
        return [f"--import: {line}; where it is legal, add it to `tile`" for line in lines.values()]

    def winners(self, trials: Iterable[Trial]) -> list[dict[str, Any]]:
        """The entries of a file of winners, without the times that nobody measured."""
        entries = []
        for trial in trials:
            if (best := self.chosen(trial)) is not None:
                how = best.contestant.kernel, best.config, 0.0
                entry = plain_winner(ConfirmedWinner(trial.contract, trial.problem.shape, *how))
                unknown = ("seconds", "library_seconds", "runner_up")
                entries.append({name: value for name, value in entry.items() if name not in unknown})
        return entries


def read(kind: str, path: str) -> ImportedTiles:
    """The tiles of a file of somebody else; raises `CallError` if it is none."""
    if kind not in KINDS:
        raise CallError(f"--import: unknown kind of file {kind!r}; {nearest(kind, KINDS)}")

    def build(data: Any) -> ImportedTiles:
        tiles = {int(m): row for m, row in data.items() if m != "triton_version"}
        # One part of K is no division.
        rows = {m: {x: y for x, y in row.items() if (x, y) != ("SPLIT_K", 1)} for m, row in tiles.items()}
        return ImportedTiles(Path(path), rows)

    try:
        return values.read(Path(path), _SCHEMA, build, "a file of tiles of vLLM", "--import")
    except FileNotFoundError:
        raise CallError(f"--import: there is no file {path}") from None
