"""What was proved, and on what: a file of its own beside the manifest, keyed by the meaning of each kernel's code.

A record says of a kernel's device code what was compiled, and beside each host code of it what ran. It stands for
whatever file has that code, in whichever family, so that a comment or a docstring makes nothing fall. The static level
is about the text, and takes seconds: it is not recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator.emit import code_parts
from generator.emit.manifest_reader import Rendered
from generator.language.errors import CallError
from generator.verify.jobs import Result, State, Subject

#: What a level found of a kernel: counts, and the worst that there was.
Figures = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """What passed on one machine: of each kernel's code the levels, by their labels."""

    #: The machine and its versions. No date, no path.
    place: dict[str, str]
    proved: dict[Subject, dict[str, Figures]]

    def cases(self, subject: Subject, label: str) -> int:
        """How many cases of a kernel passed at a level."""
        return int(self.proved.get(subject, {}).get(label, {}).get("cases", 0))


def current(families: Iterable[Rendered]) -> set[Subject]:
    """What there is to prove of the kernels of families, as their files lie, at whichever level."""
    found: set[Subject] = set()
    for family in families:
        for name in family.by_name:
            own = code_parts.of_file(family.file(name))
            found |= {Subject(name, own.device), Subject(name, own.device, own.host)}
    return found


def _subject(result: Result) -> Subject:
    assert result.subject is not None, result.job
    return result.subject


def _record(recorded: Iterable[Result]) -> Record:
    found = Record({}, {})
    for result in recorded:
        fresh = {key: value for key, value in result.place if found.place.get(key) in (None, "interpreter")}
        found.place.update(fresh)
        found.proved.setdefault(_subject(result), {})[result.job.label] = _figures(result)
    return found


def _recorded(results: Iterable[Result]) -> list[Result]:
    """The results that are recorded, one of a subject and level: cases of kernels that passed, none chosen by name."""
    found: dict[tuple[Subject, str], Result] = {}
    for result in results:
        job = result.job
        if result.failures or not result.cases or job.contract or job.level == "static" or job.case is not None:
            continue
        key = (_subject(result), job.label)
        # Two families may have the same kernel.
        if not (key in found and _fewer(result, found[key].cases)):
            found[key] = result
    return list(found.values())


def _fewer(result: Result, cases: int) -> bool:
    """Whether a result must not take the place of one of so many cases: a whole run may, whatever it comes to."""
    return result.partial and result.cases < cases


def _figures(result: Result) -> Figures:
    job = result.job
    found: Figures = {"cases": result.cases}
    if job.level in ("interpret", "gpu"):
        found["worst_error"] = round(result.worst_error, 4)
        if result.vendor_error is not None:
            found["vendor_error"] = round(result.vendor_error, 4)
    if job.level == "compile":
        found |= _worst(result)
    if job.level == "bounds":
        found |= {state: count for _, figures in result.measured for state, count in figures}
    if result.not_proved:
        found["not_proved"] = dict(result.not_proved)
    return found


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
        machine = _machine(before.place)
        if any(machine.get(key, value) != value for key, value in _machine(found.place).items()):
            raise CallError(f"{path} holds results of {before.place}, and these are of {found.place}")
        fuller = [result for result in recorded if _fewer(result, before.cases(_subject(result), result.job.label))]
        for result in fuller:
            del found.proved[_subject(result)][result.job.label]
        told = _told_of(path, fuller, before)
        found = Record(before.place | found.place | machine, _joined(before.proved, found.proved))
    told += _of_nothing(path, results)
    if any(result.job.case is not None for result in results):
        told.append(f"{path}: nothing of what ran is recorded, for --case takes some of the cases alone")
    path.write_text(_text(found))
    return told


def renew(path: Path, fresh: Path) -> None:
    """Put the record of a run over all kernels, `fresh`, in the place of `path`.

    What `path` holds besides stays where it is of code that was proved again, on the same machine and versions.
    """
    found = read(fresh)
    before = read(path) if path.exists() else found
    if _machine(before.place) == _machine(found.place):
        device = {(subject.kernel, subject.device) for subject in found.proved}
        again = {
            subject: levels
            for subject, levels in before.proved.items()
            if subject in found.proved or (not subject.host and (subject.kernel, subject.device) in device)
        }
        found = Record(found.place, _joined(again, found.proved))
    path.write_text(_text(found))


def _joined(
    before: Mapping[Subject, dict[str, Figures]], found: Mapping[Subject, dict[str, Figures]]
) -> dict[Subject, dict[str, Figures]]:
    """What both hold of each subject, where both have a level what is found now."""
    return {subject: before.get(subject, {}) | found.get(subject, {}) for subject in {**before, **found}}


def _told_of(path: Path, fuller: Sequence[Result], before: Record) -> list[str]:
    lines = []
    for label, count in Counter(result.job.label for result in fuller).items():
        first = next(result for result in fuller if result.job.label == label)
        cases = before.cases(_subject(first), label)
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


def stands(found: Figures) -> bool:
    """Whether what is recorded of a kernel at a level proves it: cases, and none beside them that is not proved."""
    return found["cases"] > 0 and "not_proved" not in found


def _machine(place: Mapping[str, str]) -> dict[str, str]:
    """The machine and versions; the interpreter runs on any, beside a GPU or none."""
    return {key: value for key, value in place.items() if value != "interpreter"}


def _text(found: Record) -> str:
    """JSON with a line a kernel's device code, so that a difference reads kernel by kernel."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for subject, levels in sorted(found.proved.items()):
        line = lines.setdefault((subject.kernel, subject.device), {"kernel": subject.kernel, "device": subject.device})
        own = dict(sorted(levels.items()))
        line |= {"hosts": line.get("hosts", {}) | {subject.host: own}} if subject.host else own
    place = json.dumps(dict(sorted(found.place.items())))
    kernels = ",\n".join(f"  {json.dumps(line)}" for line in lines.values())
    return f'{{\n "place": {place},\n "kernels": [\n{kernels}\n ]\n}}\n'


def read(path: Path) -> Record:
    """The results in `path`; raise `CallError` where it holds none."""
    try:
        found = json.loads(path.read_text())
        if not (isinstance(found["place"], dict) and isinstance(found["kernels"], list)):
            raise TypeError("place must be a mapping and kernels a list")
        proved: dict[Subject, dict[str, Figures]] = {}
        for line in found["kernels"]:
            kernel, device, hosts = line.pop("kernel"), line.pop("device"), line.pop("hosts", {})
            levels = {Subject(kernel, device): line} if line else {}
            proved |= levels | {Subject(kernel, device, host): own for host, own in hosts.items()}
        return Record(found["place"], proved)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CallError(f"{path} holds no results of verify: {error}") from None


def table(files: Sequence[Path], current: set[Subject]) -> str:
    """What `files` prove of `current`, as a table in Markdown.

    Results of a kernel whose code has changed since are not counted, nor those with a case that is not proved; those of
    one that two families have count once.
    """
    rows: dict[tuple[str, str, str, str], Counter[str]] = {}
    for path in files:
        found = read(path)
        place = found.place
        for subject, levels in found.proved.items():
            for label, proved in levels.items() if subject in current else ():
                if stands(proved):
                    level, _, target = label.partition(" ")
                    where = place.get("device", "interpreter") if level == "gpu" else "no GPU"
                    key = (level, target or where, place.get("triton", ""), place.get("torch", ""))
                    rows.setdefault(key, Counter()).update(kernels=1, cases=proved["cases"])
    lines = ["| level | for | Triton | torch | kernels | cases |", "| --- | --- | --- | --- | ---: | ---: |"]
    for (level, where, triton, torch), counts in sorted(rows.items()):
        lines.append(f"| {level} | {where} | {triton} | {torch} | {counts['kernels']} | {counts['cases']:,} |")
    return "\n".join(lines)
