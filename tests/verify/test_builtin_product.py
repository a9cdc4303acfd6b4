"""Every built-in operation, of every type of operands, by every schedule: there or left out with a reason, and proved.

`python -m pytest -m product` takes them all through every level that this machine has; `-k "interpret and swiglu-fp16"`
and the like a part.
"""

import math
from dataclasses import replace
from itertools import product

import pytest

from generator.emit.job import RenderingJob as Rendering
from generator.emit.job import render
from generator.emit.manifest_reader import read
from generator.language.built_in import BUILT_IN
from generator.language.vocabulary import SCHEDULE
from generator.pytest_plugin import Outcomes
from generator.verify.job_selection import plan
from generator.verify.jobs import LEVELS, JobState
from generator.verify.run_report import whole_text
from generator.verify.verification_run import default_levels, gpu
from tests.helpers.support import family_of

#: The product alone is among the operations: a schedule may have no other epilogue.
#: `quantize` needs a type: tests/verify/test_quantised_blocks.py.
OPERATIONS = ("none", *(word for word in BUILT_IN if word != "quantize"))
TYPES = ("fp16", "bf16", "fp32", "int8")
#: No operand here is stored other than it is multiplied, so that none is decoded.
#: The forms of `paired` with other blocks, and those that divide K, are in tests/plan/test_paired.py.
SCHEDULES = tuple(
    word for word, entry in SCHEDULE.items() if not entry.decodes and (word == "paired" or not entry.pairs)
)
#: The target that is compiled for.
PRIMARY = "sm90"


def written(name):
    """An operation as a spec writes it, with every bound of which it needs one."""
    operation = BUILT_IN.get(name)
    if operation is None or not operation.bounds:
        return name
    bounds = (f"{bound}: {math.copysign(1, operation.scalars[bound] or 0):g}" for bound in operation.bounds)
    return f"[{{{name}: {{{', '.join(bounds)}}}}}]"


# Small tiles, of which the interpreter makes many; 64 rows and 4 warps are what the target's matrix unit takes. The
# second is of two widths, for the schedule whose tiles are.
SPEC = f"""\
summary: Every built-in operation.
layout: rcr
# int8 sums where an operation keeps them; behind it, where none is left, what it computes from them.
dtype: [{", ".join(TYPES)}, {{a: int8, out: fp32}}]
epilogue: [{", ".join(map(written, OPERATIONS))}]
schedule: [{", ".join(SCHEDULES)}]
load: [pointer, descriptor]
store: [as_load, pointer]
select: fixed
targets: [{PRIMARY}]
tile: [{{m: 64, n: 32, k: 32, group: 2, warps: 4, split: 2}}, {{m: 64, n: 48, k: 32, group: 2, warps: 4}}]
"""


def combination(variant):
    steps = variant.epilogue.steps
    return steps[0].operation if steps else "none", variant.dtype.a, variant.schedule


def family():
    """Of each combination, by each load, the first kernel: int8 sums stay int32 where they can, stores are as loads."""
    whole = family_of(SPEC, "product.yaml")
    first = {(combination(kernel.variant), kernel.variant.load): kernel.name for kernel in reversed(whole.kernels)}
    chosen = set(first.values())
    return replace(whole, kernels=tuple(kernel for kernel in whole.kernels if kernel.name in chosen))


FAMILY = family()
#: Of each kernel, by its name.
COMBINATIONS = {kernel.name: combination(kernel.variant) for kernel in FAMILY.kernels}


def points():
    """Each level that this machine has, in their order, with each combination."""
    levels = sorted({*default_levels(gpu()), "compile"}, key=LEVELS.index)
    return [*product(levels, dict.fromkeys(COMBINATIONS.values()))]


def label(point):
    level, each = point
    return "-".join([level, *each])


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("product")
    assert render([Rendering(FAMILY, folder)])
    return read(folder / FAMILY.spec.name)


@pytest.fixture(scope="module")
def proved(request, rendered):
    """The results of a point's jobs, those of all points that were selected worked out side by side."""
    jobs = {}
    # Of each kernel one launch.
    compiled = plan([rendered], ("compile",), case="*-aligned", targets=(PRIMARY,))
    for each in [*plan([rendered], [level for level in LEVELS if level != "compile"]), *compiled]:
        if not each.contract:
            jobs.setdefault((each.level, COMBINATIONS[each.name]), []).append(each)
    asked = [item.callspec.params.get("point") for item in request.session.items if hasattr(item, "callspec")]
    # With `--dist loadfile` one process runs all of a file.
    outcomes = Outcomes([each for point in asked if point in jobs for each in jobs[point]], together=True)
    yield lambda point: [outcomes(each) for each in jobs[point]]
    outcomes.close()


@pytest.mark.product
@pytest.mark.parametrize("point", points(), ids=label)
def test_proved(point, proved):
    results = proved(point)
    assert results
    for result in results:
        assert result.state is JobState.PASSED, whole_text(result) or result
