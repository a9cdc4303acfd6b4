"""What an autotuner would try is known without a GPU, on each target of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.verify.jobs import Job, JobState
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import changed, rendered

SPEC = """\
summary: Tuned over a row that one of the targets cannot hold.
layout: rcr
dtype: fp16
masking: [auto, none]
select: autotune
targets: [sm80, sm86, gfx942]
tile:
  - {m: 128, n: 128, k: 64, warps: 4, stages: 3}
  - {m: 64, n: 64, k: 64, warps: 4, stages: 3}
  - {m: 128, n: 256, k: 64, warps: 8, stages: 4}
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", None),
        (
            'call.offered(torch.device("cuda", torch.cuda.current_device()))',
            "call.configs",
            "on sm86 the autotuner tries",
        ),
        ("if row in legal", "if row in legal[1:]", "on sm80 the autotuner tries"),
    ],
)
def test_rows_that_a_target_lacks_are_not_tried_there(
    old: str, new: str, says: str | None, tmp_path: Path, pools: Callable[[str], Pool]
) -> None:
    family = rendered(tmp_path, "tuned", SPEC)
    assert len(family.kernels) == 2 and {target for target, _ in family.kernels[0].not_offered} == {"sm86", "gfx942"}
    for name in family.by_name:
        folder = changed(family, tmp_path / name, name, old, new) if old else family.folder
        result = pools("interpret").submit(Job("interpret", folder, name, case="tuner")).result()
        if says is None:
            assert result.state is JobState.PASSED and result.cases == 1
        else:
            assert says in result.failures[0].message
