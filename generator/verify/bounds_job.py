"""One job of the bounds level: prove every access of a kernel inside its operand, or find sizes that break it."""

from __future__ import annotations

from generator.bounds import NEVER_REACHED, Access, NotUnderstood, prove
from generator.verify.jobs import Failure, Job, JobResult


def run(job: Job) -> JobResult:
    """Run the proof for the kernel of `job`. A refuted access is a failure; one not understood is not proved."""
    failures: list[Failure] = []
    not_proved: list[tuple[str, str]] = []
    counts = {"proved": 0, "hardware": 0}
    cases = 0
    try:
        proof = prove(job.file)
    except (NotUnderstood, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        failures.append(Failure("import", "the file holds a kernel and its launcher", str(error)))
    else:
        parts = [
            (_name(each), each.state, each.detail, "no access leaves its operand, for all sizes")
            for each in proof.accesses
        ]
        if not parts:
            not_proved.append(("accesses", "no load or store was found in the kernel"))
        parts.append(("order", proof.order.state, proof.order.detail, "every tile is computed by exactly one program"))
        for name, state, detail, reason in parts:
            cases += state != "not proved"
            if state == "refuted":
                failures.append(Failure(name, reason, detail))
            elif detail == NEVER_REACHED:
                failures.append(Failure(name, "every access is executed for some size", detail))
            elif state == "not proved":
                not_proved.append((name, detail))
        counts = {state: sum(access.state == state for access in proof.accesses) for state in counts}
    return JobResult(
        job,
        cases,
        tuple(failures),
        tuple(dict.fromkeys(not_proved)),
        measured=(("accesses", tuple(counts.items())),),
    )


def _name(access: Access) -> str:
    configuration = "" if access.row is None else f", row {access.row}"
    return f"line {access.line}: {access.kind} of {access.operand}{configuration}"
