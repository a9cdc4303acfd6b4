"""One job of the bounds level: prove every access of a kernel inside its operand, or find sizes that break it."""

from __future__ import annotations

import time

from generator.bounds import NEVER_REACHED, Access, NotUnderstood, prove
from generator.verify.jobs import Failure, Job, JobResult, subject


def run(job: Job) -> JobResult:
    """Run the proof for the kernel of `job`. A refuted access is a failure; one not understood is not proved."""
    started = time.monotonic()
    failures: list[Failure] = []
    not_proved: list[tuple[str, str]] = []
    counts = {"proved": 0, "hardware": 0}
    cases = 0
    try:
        proof = prove(job.file)
    except (NotUnderstood, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        failures.append(Failure("import", "the file holds a kernel and its launcher", str(error)))
    else:
        for access in proof.accesses:
            cases += access.state != "not proved"
            if access.state in counts:
                counts[access.state] += 1
            if access.state == "refuted":
                failures.append(Failure(_name(access), "no access leaves its operand, for all sizes", access.detail))
            elif access.detail == NEVER_REACHED:
                failures.append(Failure(_name(access), "every access is executed for some size", access.detail))
            elif access.state == "not proved":
                not_proved.append((_name(access), access.detail))
        if not proof.accesses:
            not_proved.append(("accesses", "no load or store was found in the kernel"))
        if proof.order.state == "refuted":
            cases += 1
            failures.append(Failure("order", "every tile is computed by exactly one program", proof.order.detail))
        elif proof.order.state == "not proved":
            not_proved.append(("order", proof.order.detail))
        else:
            cases += 1
    return JobResult(
        job,
        cases,
        tuple(failures),
        tuple(dict.fromkeys(not_proved)),
        subject=subject(job),
        seconds=time.monotonic() - started,
        measured=(("accesses", tuple(counts.items())),),
    )


def _name(access: Access) -> str:
    configuration = "" if access.row is None else f", row {access.row}"
    return f"line {access.line}: {access.kind} of {access.operand}{configuration}"
