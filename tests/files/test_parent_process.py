"""Workers end with the process that started them, whatever ends it, also within a call that returns to no Python."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.support import LONGEST, ROOT, python

#: A parent of a worker: it prints the worker's id when that is at work, and waits.
_PARENT = """
import ctypes, os, sys, time

def sleep(seconds):
    time.sleep(seconds)

def hold_the_lock(seconds):
    ctypes.PyDLL(None).sleep(seconds)

if __name__ == "__main__":
    pools, what = sys.argv[1:]
    if pools == "verify":
        from generator.verify.worker_pool import Pool
        executor = Pool("bounds", 1)._executor
    elif pools == "tune":
        from generator.bench.workers import one_for_each
        executor = one_for_each(1)
    else:
        from generator.bench.workers import processes
        executor = processes(1)
    worker = executor.submit(os.getpid).result()
    executor.submit(globals()[what], 7200)
    time.sleep(0.5)
    print(worker, flush=True)
    time.sleep(7200)
"""


def runs(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    # Less than a worker sleeps.
    deadline = time.monotonic() + LONGEST
    while runs(pid):
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("pools", "what"), [("verify", "sleep"), ("verify", "hold_the_lock"), ("tune", "sleep"), ("fit", "hold_the_lock")]
)
def test_a_worker_ends_with_its_parent(tmp_path, pools, what):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = [sys.executable, str(script), pools, what]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables) as parent:
        worker = int(parent.stdout.readline())
        assert runs(worker)
        parent.kill()
        parent.wait(LONGEST)
        assert ends(worker)
        # Nothing holds the pipe open, so that a reader such as `tee` ends too.
        assert parent.stdout.read() == b""


def test_a_process_without_a_parent_goes_on():
    code = "from generator.files.parent_process import end_with_parent; end_with_parent(); print('here')"
    assert python("-c", code).stdout == "here\n"
