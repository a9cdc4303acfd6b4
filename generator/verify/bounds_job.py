"""One job of the bounds level: prove every access of a kernel inside its operand, or find sizes that break it."""

from __future__ import annotations

from generator.bounds import NEVER_REACHED, Access, NotUnderstood, prove
from generator.verify.jobs import Failure, Job, JobResult


def run(job: Job) -> JobResult:
    """Run the proof for the kernel of `job`. A refuted access is a failure; one not understood is not proved."""
    try:
        proof = prove(job.file)
    except (NotUnderstood, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return JobResult(job, failures=(Failure("import", "the file holds a kernel and its launcher", str(error)),))
    inside, once = "no access leaves its operand, for all sizes", "every tile is computed by exactly one program"
    parts = [(_name(each), each.state, each.detail, inside) for each in proof.accesses]
    parts.append(("order", proof.order.state, proof.order.detail, once))
    failures = []
    not_proved = [] if proof.accesses else [("accesses", "no load or store was found in the kernel")]
    for name, state, detail, reason in parts:
        if state == "refuted":
            failures.append(Failure(name, reason, detail))
        elif detail == NEVER_REACHED:
            failures.append(Failure(name, "every access is executed for some size", detail))
        elif state == "not proved":
            not_proved.append((name, detail))
    states = [each.state for each in proof.accesses]
    return JobResult(
        job,
        sum(state != "not proved" for _, state, *_ in parts),
        tuple(failures),
        tuple(dict.fromkeys(not_proved)),
        measured=(("accesses", tuple((state, states.count(state)) for state in ("proved", "hardware"))),),
    )


def _name(access: Access) -> str:
    configuration = "" if access.row is None else f", row {access.row}"
    return f"line {access.line}: {access.kind} of {access.operand}{configuration}"
