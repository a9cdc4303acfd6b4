"""What was proved, and on what: a file of its own beside the manifest, keyed by the digest of each kernel's body."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from generator.errors import CallError
from generator.verify.jobs import Result, State

Record = dict[str, Any]


def _record(recorded: Iterable[Result]) -> Record:
    """What passed in one run: the machine and its versions, then each kernel's levels. No date, no path."""
    place: dict[str, str] = {}
    kernels: dict[str, Record] = {}
    for result in recorded:
        place |= {key: value for key, value in result.place if place.get(key) in (None, "interpreter")}
        kernels.setdefault(result.digest, {"kernel": result.job.name})[result.job.label] = _entry(result)
    return {"place": dict(sorted(place.items())), "kernels": kernels}


def _recorded(results: Iterable[Result]) -> list[Result]:
    """The results that are recorded, one of a digest and level: cases of kernels that passed, none chosen by name."""
    found: dict[tuple[str, str], Result] = {}
    for result in results:
        job, key = result.job, (result.digest, result.job.label)
        if result.failures or not result.cases or job.contract or job.case is not None:
            continue
        # Two families may have the same kernel.
        if not (key in found and _fewer(result, found[key].cases)):
            found[key] = result
    return list(found.values())


def _fewer(result: Result, cases: int) -> bool:
    """Whether a result must not take the place of one of so many cases: a whole run may, whatever it comes to."""
    return result.partial and result.cases < cases


def _entry(result: Result) -> Record:
    job = result.job
    entry: Record = {"cases": result.cases}
    if job.level in ("interpret", "gpu"):
        entry["worst_error"] = round(result.worst_error, 4)
        if result.vendor_error is not None:
            entry["vendor_error"] = round(result.vendor_error, 4)
    if job.level == "compile":
        entry |= _worst(result)
    if job.level == "bounds":
        entry |= {state: count for _, figures in result.measured for state, count in figures}
    if result.not_proved:
        entry["not_proved"] = dict(result.not_proved)
    return entry


def _worst(result: Result) -> dict[str, int]:
    """The most of each resource that a launch of the kernel takes, those that must not fit left out."""
    offered = [dict(figures) for name, figures in result.measured if not name.endswith("-refused")]
    keys = ("shared", "tensor_memory", "registers", "spilled")
    return {key: max(figures[key] for figures in offered) for key in keys if any(f[key] for f in offered)}


def write(path: Path, results: Sequence[Result]) -> list[str]:
    """Write what passed to `path`, with what an earlier run on the same machine and versions left there.

    Part of a kernel's cases does not take the place of more of them. Returns what is told of that, a line a level, and
    of what is not recorded at all.
    """
    recorded, told = _recorded(results), []
    found = _record(recorded)
    if path.exists():
        before = read(path)
        machine = _machine(before["place"])
        if any(machine.get(key, value) != value for key, value in _machine(found["place"]).items()):
            raise CallError(f"{path} holds results of {before['place']}, and these are of {found['place']}")
        fuller = _fuller(before, recorded)
        for result in fuller:
            del found["kernels"][result.digest][result.job.label]
        told = _told_of(path, fuller, before)
        for digest, entry in before["kernels"].items():
            found["kernels"][digest] = entry | found["kernels"].get(digest, {})
        found["place"] = before["place"] | found["place"] | machine
    told += _of_nothing(path, results)
    if any(result.job.case is not None for result in results):
        told.append(f"{path}: nothing of what ran is recorded, for --case takes some of the cases alone")
    path.write_text(_text(found))
    return told


def renew(path: Path, fresh: Path) -> None:
    """Put the record of a run over all kernels, `fresh`, in the place of `path`.

    What `path` holds besides stays where it is of a kernel that was proved again, on the same machine and versions.
    """
    found = read(fresh)
    before = read(path) if path.exists() else found
    if _machine(before["place"]) == _machine(found["place"]):
        known = before["kernels"]
        found["kernels"] = {digest: known.get(digest, {}) | entry for digest, entry in found["kernels"].items()}
    path.write_text(_text(found))


def _fuller(before: Record, recorded: Iterable[Result]) -> list[Result]:
    """The results that have part of the cases of a kernel, where more are recorded."""
    known = before["kernels"]
    return [
        result
        for result in recorded
        if _fewer(result, known.get(result.digest, {}).get(result.job.label, {}).get("cases", 0))
    ]


def _told_of(path: Path, fuller: Sequence[Result], before: Record) -> list[str]:
    lines = []
    for label, count in Counter(result.job.label for result in fuller).items():
        first = next(result for result in fuller if result.job.label == label)
        cases = before["kernels"][first.digest][label]["cases"]
        kernels = "1 kernel stays" if count == 1 else f"{count} kernels stay"
        more = "" if count == 1 else ", and others"
        lines.append(
            f"{path}: {label} of {kernels} as recorded, where more cases ran: {first.job.name} ({cases}, here "
            f"{first.cases}){more}"
        )
    return lines


def _of_nothing(path: Path, results: Iterable[Result]) -> list[str]:
    """What is told of kernels of which no case is proved."""
    found: dict[str, list[str]] = {}
    for result in results:
        if result.state is State.NOT_PROVED and not result.cases and not result.job.contract:
            found.setdefault(result.job.label, []).append(result.job.name)
    return [
        f"{path}: {label} of {len(names)} {'kernel' if len(names) == 1 else 'kernels'} is not recorded, for no case is "
        f"proved: {names[0]}{', and others' * (len(names) > 1)}"
        for label, names in found.items()
    ]


def stands(entry: Record) -> bool:
    """Whether what is recorded of a kernel at a level proves it: cases, and none beside them that is not proved."""
    return entry["cases"] > 0 and "not_proved" not in entry


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

    Results of a kernel whose text has changed since are not counted, nor those with a case that is not proved.
    """
    rows: dict[tuple[str, str, str, str], Counter[str]] = {}
    for path in files:
        found = read(path)
        place = found["place"]
        for digest, entry in found["kernels"].items():
            for label, proved in entry.items():
                if label != "kernel" and digest in current and stands(proved):
                    level, _, target = label.partition(" ")
                    where = place.get("device", "interpreter") if level == "gpu" else "no GPU"
                    key = (level, target or where, place.get("triton", ""), place.get("torch", ""))
                    rows.setdefault(key, Counter()).update(kernels=1, cases=proved["cases"])
    lines = ["| level | for | Triton | torch | kernels | cases |", "| --- | --- | --- | --- | ---: | ---: |"]
    for (level, where, triton, torch), counts in sorted(rows.items()):
        lines.append(f"| {level} | {where} | {triton} | {torch} | {counts['kernels']} | {counts['cases']:,} |")
    return "\n".join(lines)
