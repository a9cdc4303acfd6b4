"""Kernels pass a level as they are, and with a mistake they do not: planted.txt.

A section is of the family of the spec that it begins with, or of committed kernels. A case is a kernel, what of it is
replaced, and what comes of it: `level case: passes`, `fails`, `says` words of a message, or `leaves out` for a reason.
At the compile level the case is a target and a launch, and what passes may do so `with` instructions, all that it has.
Without a name it is of the kernel before it; `*` is every kernel, or where they are interpreted those that have every
pair of words, with the functions, which `functions` are alone.
"""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from generator.verify.coverage import Coverage
from generator.verify.job_selection import covered, plan
from generator.verify.jobs import Job, JobState
from tests.helpers import shipped
from tests.helpers.changes import sections
from tests.helpers.verify.rendered import changed, rendered

SECTIONS = sections(Path(__file__).with_name("planted.txt"))
#: Figures of a compilation that are no instructions.
FIGURES = {"shared", "tensor_memory", "registers", "spilled", "plain max"}


def jobs_of(family, folder, name, level, case=""):
    """The jobs of one line of a case."""
    if level == "compile":
        target, _, launch = case.partition(" ")
        yield Job(level, folder, name, target=target, chosen=(launch,))
    elif "*" not in name and name != "functions":
        yield Job(level, folder, name, case=case or None)
    else:
        jobs = plan([family], (level,), case=case or None)
        if name == "*" and level == "interpret":
            jobs, _ = covered(jobs, [family], Coverage("kernels"))
        yield from (job for job in jobs if (job.contract if name == "functions" else fnmatchcase(job.name, name)))


def assert_told(verdict, result, *, any_case):
    word, _, rest = verdict.partition(" ")
    said = "\n".join(failure.message for failure in result.failures)
    if word == "leaves":
        assert rest.removeprefix("out ") in (result.left_out or "")
    elif word != "passes":
        assert result.cases and result.failures and rest in said, (verdict, result)
    elif result.cases or not any_case:
        assert result.state is JobState.PASSED, (verdict, result)
    if rest.startswith("with "):
        ((_, measured),) = result.measured
        figures = dict(measured)
        found = ", ".join(sorted(figures.keys() - FIGURES)) or "nothing"
        assert found == rest.removeprefix("with ")
        # What does not fit is compiled until that is seen, no further.
        assert figures["shared"] > 0 and (figures.get("registers", 0) > 0) == (found != "nothing")
        assert (figures["tensor_memory"] > 0) == ("tcgen05" in found)


@pytest.mark.parametrize(
    "section", [pytest.param(x, marks=[pytest.mark.product] * x.startswith("on demand")) for x in SECTIONS]
)
def test_planted(section, tmp_path, pools):
    spec, cases = SECTIONS[section].preface, SECTIONS[section].cases
    own = rendered(tmp_path, "planted", spec) if spec else None
    waiting, title = [], ""
    for number, case in enumerate(cases):
        title = case.title or title
        family = own or read(shipped.folder(title.partition("/")[0]))
        name, folder = title.rpartition("/")[2], family.folder
        for old, new in case.replacements:
            folder = changed(family, tmp_path / str(number) / folder.name, name, old, new)
        for line in case.said:
            place, verdict = line.split(": ", 1)
            for job in jobs_of(family, folder, name, *place.split(" ", 1)):
                waiting.append((verdict, name, pools(job.level).submit(job)))
    for verdict, name, future in waiting:
        # Not every kernel has each case.
        assert_told(verdict, future.result(), any_case="*" in name)
