"""A call of tune in a process of its own, on a fake device: `python -m tests.helpers.tune.interpreted ARGUMENT...`.

The kernels are the rendered ones, interpreted, for which TRITON_INTERPRET must be set before triton is imported.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from generator.commands.tune import parse
from generator.tune import trial_worker
from generator.tune.tuning_call import tune

if __name__ == "__main__":
    # An interpreted kernel is the same in every round.
    for name in ("QUICK", "AGAIN", "CONFIRM"):
        setattr(trial_worker, name, replace(getattr(trial_worker, name), rounds=1, warm=0))
    call = parse(sys.argv[1:])
    call.factory = "tests.helpers.tune.fake_gpu:Slow"
    sys.exit(tune(call))
