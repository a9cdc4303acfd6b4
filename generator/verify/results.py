"""What was proved, and on what: a file of its own beside the manifest, keyed by the digest of each kernel's body."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from generator.errors import CallError
from generator.verify.jobs import Result

Record = dict[str, Any]


def record(results: Iterable[Result]) -> Record:
    """What passed in one run: the machine and its versions, then each kernel's levels. No date, no path."""
    place: dict[str, str] = {}
    kernels: dict[str, Record] = {}
    for result in results:
        job = result.job
        if result.failures or result.left_out is not None or job.contract or job.case is not None:
            continue
        place |= {key: value for key, value in result.place if place.get(key) in (None, "interpreter")}
        entry: Record = {"cases": result.cases}
        if job.level in ("interpret", "gpu"):
            entry["worst_error"] = round(result.worst_error, 4)
            if result.vendor_error is not None:
                entry["vendor_error"] = round(result.vendor_error, 4)
        if job.level == "compile":
            entry |= _worst(result)
        if job.level == "bounds":
            entry |= {state: count for _, figures in result.measured for state, count in figures}
        if result.not_run:
            entry["not_run"] = dict(result.not_run)
        kernels.setdefault(result.digest, {"kernel": job.name})[job.label] = entry
    return {"place": dict(sorted(place.items())), "kernels": kernels}


def _worst(result: Result) -> dict[str, int]:
    """The most of each resource that a launch of the kernel takes, those that must not fit left out."""
    offered = [dict(figures) for name, figures in result.measured if not name.endswith("-refused")]
    keys = ("shared", "tensor_memory", "registers", "spilled")
    return {key: max(figures[key] for figures in offered) for key in keys if any(f[key] for f in offered)}


def write(path: Path, results: Iterable[Result]) -> None:
    """Write what passed to `path`, with what an earlier run on the same machine and versions left there."""
    found = record(results)
    if path.exists():
        before = read(path)
        machine = _machine(before["place"])
        if any(machine.get(key, value) != value for key, value in _machine(found["place"]).items()):
            raise CallError(f"{path} holds results of {before['place']}, and these are of {found['place']}")
        for digest, entry in before["kernels"].items():
            found["kernels"][digest] = entry | found["kernels"].get(digest, {})
        found["place"] = before["place"] | found["place"] | machine
    path.write_text(_text(found))


def _machine(place: Mapping[str, str]) -> dict[str, str]:
    """The machine and versions; the interpreter runs on any, beside a GPU or none."""
    return {key: value for key, value in place.items() if value != "interpreter"}


def _text(found: Record) -> str:
    """JSON with a line a kernel, so that a difference reads kernel by kernel."""
    kernels = sorted(found["kernels"].items(), key=lambda item: (item[1]["kernel"], item[0]))
    lines = [f"  {json.dumps(digest)}: {json.dumps(dict(sorted(entry.items())))}" for digest, entry in kernels]
    place = json.dumps(found["place"])
    return f'{{\n "place": {place},\n "kernels": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def read(path: Path) -> Record:
    """The results in `path`; raise `CallError` where it holds none."""
    try:
        found = json.loads(path.read_text())
        if not (isinstance(found["place"], dict) and isinstance(found["kernels"], dict)):
            raise TypeError("place and kernels must be mappings")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CallError(f"{path} holds no results of verify: {error}") from None
    return dict(found)


def table(files: Sequence[Path], current: Mapping[str, str]) -> str:
    """What `files` prove of the kernels of `current` (body digest -> name), as a table in Markdown.

    Results of a kernel whose text has changed since are not counted.
    """
    rows: dict[tuple[str, str, str, str], Counter[str]] = {}
    for path in files:
        found = read(path)
        place = found["place"]
        for digest, entry in found["kernels"].items():
            for label, proved in entry.items():
                if label != "kernel" and digest in current:
                    level, _, target = label.partition(" ")
                    where = place.get("device", "interpreter") if level == "gpu" else "no GPU"
                    key = (level, target or where, place.get("triton", ""), place.get("torch", ""))
                    rows.setdefault(key, Counter()).update(kernels=1, cases=proved["cases"])
    lines = ["| level | for | Triton | torch | kernels | cases |", "| --- | --- | --- | --- | ---: | ---: |"]
    for (level, where, triton, torch), counts in sorted(rows.items()):
        lines.append(f"| {level} | {where} | {triton} | {torch} | {counts['kernels']} | {counts['cases']:,} |")
    return "\n".join(lines)
