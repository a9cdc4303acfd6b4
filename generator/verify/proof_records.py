"""Records of proofs: JSON files that list, for the code of each kernel, the levels that passed and where they ran.

Kernels are identified by digests of syntax trees: of the device code for the compile level, of device and host code for
the other levels. A record is valid for every file with that code, in any family: changes to comments and docstrings
invalidate nothing. The static level checks the text in seconds and is not recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from generator.emit import code_parts
from generator.emit.job import counted
from generator.emit.manifest_reader import Rendered
from generator.files.checked_json import Schema
from generator.files.updating import update
from generator.language import measured_values as values
from generator.language.errors import CallError
from generator.language.measured_values import Unfit
from generator.plan.kernels import Kernel
from generator.verify.cases import smallest_row
from generator.verify.jobs import LEVELS, Job, JobResult, JobState, Recorded, Subject
from generator.verify.jobs import subject as subject_of
from generator.verify.launches import launches
from generator.verify.manifest_configurations import labels_of
from generator.verify.run_report import by_label

#: The result of a level for a kernel: counts, and the largest of each figure.
Figures = dict[str, Any]


@dataclass(frozen=True)
class ProofRecord:
    """The levels that passed on one machine, by their labels, for each kernel's code."""

    #: The device and versions, without dates and paths.
    place: dict[str, str]
    proved: dict[Subject, dict[str, Figures]]


_FIGURES = {
    "type": "object",
    "properties": {
        "cases": values.COUNT,
        # Earlier records have the error beside that of torch's product, too.
        **dict.fromkeys(("worst_error", "vendor_error"), values.ERROR),
        "not_proved": {"type": "object", "additionalProperties": values.TEXT, "minProperties": 1},
        "rows": {"type": "object", "additionalProperties": values.COUNT},
        "full": values.TEXT,
    },
    "required": ["cases"],
    "additionalProperties": values.COUNT,
}
_LEVEL = {f"^({'|'.join(LEVELS)})( [a-z0-9]+)?$": _FIGURES}
_HOSTS = {"type": "object", "patternProperties": _LEVEL, "additionalProperties": False}
SCHEMA = Schema(
    values.mapping(
        {
            "place": {"type": "object", "additionalProperties": values.TEXT},
            "kernels": values.entries(
                {
                    "type": "object",
                    "properties": {
                        "kernel": values.NAME,
                        "device": values.NAME,
                        "code": values.NAME,
                        "hosts": {
                            "type": "object",
                            "patternProperties": {values.NAME["pattern"]: _HOSTS},
                            "additionalProperties": False,
                        },
                    },
                    "required": ["kernel", "device"],
                    "patternProperties": _LEVEL,
                    "additionalProperties": False,
                }
            ),
        }
    )
)


def current(families: Iterable[Rendered]) -> set[Subject]:
    """The code of all kernels of the families, as their files are now: one subject for each part that levels use."""
    subjects: set[Subject] = set()
    for family in families:
        for name in family.by_name:
            own = code_parts.of_file(family.file(name))
            subjects |= {Subject(name, own.device, host, own.timed) for host in ("", own.host)}
    return subjects


def _recordable(result: JobResult) -> bool:
    """Whether a result is one of a kernel without failures, from a run without --case."""
    job = result.job
    return bool(result.cases) and not (result.failures or job.contract or job.level == "static" or job.case is not None)


def _figures(result: JobResult) -> Figures:
    fields: Figures = {"cases": result.cases}
    if result.job.level in ("interpret", "gpu"):
        # Joined with those of the configurations that the record had, of which no case ran.
        before = result.job.recorded or Recorded(())
        fields["worst_error"] = round(max(result.worst_error, before.worst_error), 4)
        if result.rows:
            rows = dict(result.rows) | dict(before.rows)
            fields |= {"cases": sum(rows.values()), "rows": rows, "full": result.full}
    elif result.job.level == "compile":
        # The largest use of each resource among the launches, without those that must not fit.
        offered = [dict(figures) for name, figures in result.measured if not name.endswith("-refused")]
        keys = ("shared", "tensor_memory", "registers", "spilled")
        fields |= {key: max(figures[key] for figures in offered) for key in keys if any(f[key] for f in offered)}
    elif result.job.level == "bounds":
        fields |= {state: count for _, figures in result.measured for state, count in figures}
    if result.not_proved:
        fields["not_proved"] = dict(result.not_proved)
    return fields


def write(path: Path, results: Sequence[JobResult]) -> list[str]:
    """Add what passed to the record in `path`, which must be of the same machine and versions.

    A partial result does not replace a record of more cases. Returns messages about such results, one per level, and
    about results that are not recorded. Raises `CallError` if the record is of another machine, and `FileError` if the
    file cannot be written.
    """
    fuller: dict[str, list[tuple[JobResult, int]]] = {}

    def joined() -> str:
        before = read(path) if path.exists() else ProofRecord({}, {})
        place: dict[str, str] = {}
        unique: dict[tuple[Subject, str], JobResult] = {}
        for result in filter(_recordable, results):
            assert result.subject is not None, result.job
            place |= {key: value for key, value in result.place if place.get(key) in (None, "interpreter")}
            key = result.subject, result.job.label
            # Two families may contain the same kernel.
            if not (key in unique and result.partial and result.cases < unique[key].cases):
                unique[key] = result
        fuller.clear()
        proved: dict[Subject, dict[str, Figures]] = {}
        for (subject, label), result in unique.items():
            recorded = before.proved.get(subject, {}).get(label, {}).get("cases", 0)
            if result.partial and result.cases < recorded:
                fuller.setdefault(label, []).append((result, recorded))
            else:
                proved.setdefault(subject, {})[label] = _figures(result)
        require_same_machine(path, before, place)
        return text_of(ProofRecord(before.place | place | _machine(before.place), _joined(before.proved, proved)), path)

    update(path, joined)
    messages = []
    for label, members in fuller.items():
        stay = "record of 1 kernel stays" if len(members) == 1 else f"records of {len(members)} kernels stay"
        first, cases = members[0]
        what = f"{path}: the {label} {stay}, with more cases than this run: {first.job.name}"
        messages.append(f"{what} ({cases} cases, here {first.cases}){', and others' * (len(members) > 1)}")
    none = [each for each in results if each.state is JobState.NOT_PROVED and not each.cases and not each.job.contract]
    for label, open_ in by_label(none).items():
        what = f"{path}: {label} of {counted(len(open_), 'kernel')} is not recorded, since no case is proved"
        messages.append(f"{what}: {open_[0].job.name}{', and others' * (len(open_) > 1)}")
    if any(result.job.case is not None for result in results):
        messages.append(f"{path}: no result is recorded, because --case runs only some of the cases")
    return messages


def renew(path: Path, fresh: Path) -> None:
    """Replace the record in `path` with `fresh`, the record of a run over all kernels.

    If machine and versions are the same, other levels in `path` stay for code that `fresh` proves again.
    """

    def joined() -> str:
        fresh_record = read(fresh)
        before = read(path) if path.exists() else fresh_record
        if _machine(before.place) == _machine(fresh_record.place):
            device = {(subject.kernel, subject.device) for subject in fresh_record.proved}
            again = {
                subject: levels
                for subject, levels in before.proved.items()
                if subject in fresh_record.proved or (not subject.host and (subject.kernel, subject.device) in device)
            }
            fresh_record = ProofRecord(fresh_record.place, _joined(again, fresh_record.proved))
        return text_of(fresh_record, path)

    update(path, joined)


def _joined(
    before: Mapping[Subject, dict[str, Figures]], fresh: Mapping[Subject, dict[str, Figures]]
) -> dict[Subject, dict[str, Figures]]:
    """The levels of both for each subject; where both have a level, that of `fresh`."""
    # Of equal subjects that of `fresh`, which knows the code without its configurations.
    return {subject: before.get(subject, {}) | fresh.get(subject, {}) for subject in {**fresh, **before}}


def complete(figures: Figures) -> bool:
    """Whether the record of a kernel at a level has cases, and none that is not proved."""
    return figures["cases"] > 0 and "not_proved" not in figures


def require_same_machine(path: Path, record: ProofRecord, environment: Mapping[str, str]) -> None:
    """Raise `CallError` if the record in `path` is of another device or of other versions than `environment`."""
    machine = _machine(record.place)
    if any(machine.get(key, value) != value for key, value in _machine(environment).items()):
        raise CallError(f"{path} has results of {record.place}, but these are of {dict(environment)}; use another file")


def _machine(environment: Mapping[str, str]) -> dict[str, str]:
    """The machine and versions; "interpreter" is dropped, since it runs with and without a GPU."""
    return {key: value for key, value in environment.items() if value != "interpreter"}


def text_of(record: ProofRecord, path: Path) -> str:
    """JSON with one line per device code of a kernel, so that a diff lists kernels.

    Raises `FileError` if no reader would accept it.
    """
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for subject, levels in sorted(record.proved.items()):
        line = lines.setdefault((subject.kernel, subject.device), {"kernel": subject.kernel, "device": subject.device})
        line |= {"code": subject.code} if subject.code else {}
        own = dict(sorted(levels.items()))
        line |= {"hosts": line.get("hosts", {}) | {subject.host: own}} if subject.host else own
    environment = json.dumps(dict(sorted(record.place.items())))
    kernels = ",\n".join(f"  {json.dumps(line)}" for line in lines.values())
    return values.checked(f'{{\n "place": {environment},\n "kernels": [\n{kernels}\n ]\n}}\n', SCHEMA, _record_of, path)


def read(path: Path) -> ProofRecord:
    """The record in `path`; raise `CallError` if it is not one."""
    try:
        return values.read(path, SCHEMA, _record_of, "a file that verify --results wrote")
    except FileNotFoundError:
        raise CallError(f"there is no file {path}") from None


def _record_of(data: Any) -> ProofRecord:
    """The contents of a file with the schema; raises `Unfit` for values that no file has."""
    proved: dict[Subject, dict[str, Figures]] = {}
    for index, line in enumerate(data["kernels"]):
        kernel, device, hosts = line.pop("kernel"), line.pop("device"), line.pop("hosts", {})
        code = line.pop("code", "")
        levels = {Subject(kernel, device, "", code): line} if line else {}
        levels |= {Subject(kernel, device, host, code): own for host, own in hosts.items()}
        if not levels or not all(levels.values()):
            raise Unfit("no level is proved", "kernels", index)
        if proved.keys() & levels.keys():
            raise Unfit("the code of this kernel has two entries", "kernels", index)
        proved |= levels
    return ProofRecord(data["place"], proved)


def table(files: Sequence[Path], current: set[Subject]) -> tuple[str, str | None]:
    """The proofs in `files` of the code in `current`, as a table in Markdown, and why it has no row, or None.

    Records of code that is not in `current`, and records with a case that is not proved, are not counted. A kernel in
    two families counts once. Raises `CallError` for a file that is no record.
    """
    rows: dict[tuple[str, str, str, str], Counter[str]] = {}
    recorded = [
        (subject, label, proved, record.place)
        for record in map(read, files)
        for subject, levels in record.proved.items()
        for label, proved in levels.items()
    ]
    here = [(label, proved, environment) for subject, label, proved, environment in recorded if subject in current]
    for label, proved, environment in here:
        if complete(proved):
            level, _, target = label.partition(" ")
            where = environment.get("device", "interpreter") if level == "gpu" else "no GPU"
            key = (level, target or where, environment.get("triton", ""), environment.get("torch", ""))
            rows.setdefault(key, Counter()).update(kernels=1, cases=proved["cases"])
    lines = ["| level | for | Triton | torch | kernels | cases |", "| --- | --- | --- | --- | ---: | ---: |"]
    for (level, where, triton, torch), counts in sorted(rows.items()):
        lines.append(f"| {level} | {where} | {triton} | {torch} | {counts['kernels']} | {counts['cases']:,} |")
    reason = "no proof is recorded"
    if recorded:
        reason = (
            f"none of {len(recorded)} recorded proofs counts: {len(recorded) - len(here)} are of code that these "
            f"families do not have now, and {len(here)} have cases that are not proved"
        )
    return "\n".join(lines), None if rows else f"--table: {', '.join(map(str, files))}: {reason}"


def lacking(
    jobs: Sequence[Job], families: Sequence[Rendered], record: ProofRecord, aside: Collection[Job] = ()
) -> list[Job]:
    """The jobs without a whole record, in their order; those of a run leave out the configurations that have one.

    A configuration is proved once for all tables that it stands in, if the kernel, what a call launches and the host's
    code are the same, and if the smallest configuration, which has the full list of cases, is. Jobs that no record
    holds, as those of the static level and of contracts, are lacking always, and those in `aside` stay as they are.
    """
    kernels = {(family.folder, kernel.name): kernel for family in families for kernel in family.kernels}
    alike: dict[tuple[str, str, str, str], list[Figures]] = {}
    for proved, levels in record.proved.items():
        for label, figures in levels.items():
            if proved.code and complete(figures):
                alike.setdefault((proved.kernel, proved.code, proved.host, label), []).append(figures)
    left = []
    for job in jobs:
        own = None if job in aside else subject_of(job)
        if own is None:
            left.append(job)
            continue
        kernel = kernels[job.folder, job.name]
        if not _whole(job, kernel, record.proved.get(own, {}).get(job.label)):
            records = alike.get((own.kernel, own.code, own.host, job.label), [])
            left.append(replace(job, recorded=_recorded_rows(kernel, records)))
    return left


def _whole(job: Job, kernel: Kernel, figures: Figures | None) -> bool:
    """Whether the record of a kernel at a level has all cases; at the level compile it may have some launches alone."""
    if figures is None or not complete(figures):
        return False
    return job.target is None or figures["cases"] >= len(job.chosen or launches(kernel, job.target))


def _recorded_rows(kernel: Kernel, alike: Sequence[Figures]) -> Recorded | None:
    """What the records of other tables have of a kernel's configurations; None if the full list has to run."""
    labels = labels_of(kernel)
    full = labels[smallest_row(kernel)]
    fitting = [figures for figures in alike if figures.get("full") == full]
    rows = {label: count for figures in fitting for label, count in figures["rows"].items() if label in labels}
    if not rows:
        return None
    worst = max(figures["worst_error"] for figures in fitting)
    return Recorded(tuple(sorted(rows.items())), worst)
