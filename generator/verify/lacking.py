"""What a record of proofs lacks, so that a run proves it alone: a new kernel, or a new configuration of one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from generator.emit.manifest_reader import Rendered
from generator.plan.kernels import Kernel
from generator.verify.cases import smallest_row
from generator.verify.jobs import Job, Recorded, subject
from generator.verify.launches import launches
from generator.verify.manifest_configurations import labels_of
from generator.verify.proof_records import Figures, ProofRecord, complete


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
        own = None if job in aside else subject(job)
        if own is None:
            left.append(job)
            continue
        kernel = kernels[job.folder, job.name]
        if not _whole(job, kernel, record.proved.get(own, {}).get(job.label)):
            found = alike.get((own.kernel, own.code, own.host, job.label), [])
            left.append(replace(job, recorded=_recorded(kernel, found)))
    return left


def _whole(job: Job, kernel: Kernel, figures: Figures | None) -> bool:
    """Whether the record of a kernel at a level has all cases; at the level compile it may have some launches alone."""
    if figures is None or not complete(figures):
        return False
    return job.target is None or figures["cases"] >= len(job.chosen or launches(kernel, job.target))


def _recorded(kernel: Kernel, alike: Sequence[Figures]) -> Recorded | None:
    """What the records of other tables have of a kernel's configurations; None if the full list has to run."""
    labels = labels_of(kernel)
    full = labels[smallest_row(kernel)]
    fitting = [figures for figures in alike if figures.get("full") == full]
    rows = {label: count for figures in fitting for label, count in figures["rows"].items() if label in labels}
    if not rows:
        return None
    worst = max(figures["worst_error"] for figures in fitting)
    return Recorded(tuple(sorted(rows.items())), worst)
