"""A bench call in a process of its own, on a fake device: `python -m tests.helpers.bench.interpreted ARGUMENT...`.

The kernels are interpreted, for which TRITON_INTERPRET must be set before triton is imported.
"""

from __future__ import annotations

import sys

from generator.bench import measure
from generator.bench.benchmark_run import plan_of, run
from generator.commands.bench import parse
from tests.helpers.bench.fake_device import FakeDevice

if __name__ == "__main__":
    # An interpreted kernel has nothing to warm up.
    measure._WARM_ROUNDS = 0
    call = parse(sys.argv[1:])
    sys.exit(run(call, plan_of(call), FakeDevice(), scale=1024))
