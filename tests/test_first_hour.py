"""The first hour: what is measured is of the commands that stand in docs/first_hour.md, and they work."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.support import ROOT, module, python

SCRIPT = ROOT / "measured" / "scripts" / "first_hour.py"
MEASURED = json.loads((ROOT / "measured" / "first_hour.json").read_text(encoding="utf-8"))

#: What a step without a GPU must print.
PRINTED = {
    "wheel": r"^gemm_generator-[\d.]+-py3-none-any\.whl$",
    "install": r"^torch +2\.",
    "new": r"(?s)linear.yaml: created.*gemm_fp16_rcr_bias_gelutanh: C = gelu_tanh\(A @ B \+ bias\); 1 kernel$",
    "render": r"^rendered/linear: 2 kernels; \d+ created$",
    "read": r"^ +acc = tl\.dot\(a, b, acc\)$",
    "verify": r"(?s)^interpret +2 +2 .*^all 8 passed in .*^compile sm90 +2 +0 +2 +0 .*^all 2 passed in ",
    "vendor": r"^block\.py$",
    "call": r"^\(64, 128\) on cpu: as torch's own$",
    "package": r"^hub: \d+ files; layers: Linear, LinearGelutanh$",
    "load": r"^gemm_fp16_rcr_bias_gelutanh gemm_fp16_rcr_none layers ",
}


def script():
    """The script that runs the steps."""
    return module(SCRIPT)


def steps(mode):
    """The commands of the page."""
    found = script().steps((ROOT / "docs" / "first_hour.md").read_text(encoding="utf-8"), mode)
    return found


def assert_done(found):
    """Every step without a GPU printed what it must."""
    assert found.keys() == PRINTED.keys()
    for name, printed in found.items():
        assert re.search(PRINTED[name], printed, re.M), (name, printed)


@pytest.mark.parametrize("mode", MEASURED)
def test_what_is_measured_is_of_the_commands_of_the_page(mode):
    measured = {step["step"]: step["command"] for step in MEASURED[mode]["steps"]}
    assert measured == steps(mode), "run measured/scripts/first_hour.py again"


def test_the_transcript_is_of_steps_that_did_what_they_should():
    assert_done({step["step"]: step["printed"] for step in MEASURED["cpu"]["steps"]})


def test_what_is_measured_printed_what_the_commands_print_now(tmp_path):
    """Of the steps without times that need nothing installed: names of files, words and counts are those of today."""
    names = ("new", "render", "read", "vendor", "package")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    measured = {step["step"]: step["printed"] for step in MEASURED["cpu"]["steps"]}
    printed = {}
    for name in names:
        call = ["bash", "-euo", "pipefail", "-c", steps("cpu")[name]]
        done = subprocess.run(call, cwd=tmp_path, env=variables, text=True, capture_output=True, check=True)
        printed[name] = done.stdout
    assert printed == {name: measured[name] for name in names}, "run measured/scripts/first_hour.py again"


def test_every_block_that_is_run_is_a_step():
    """A marker that is misspelt would leave its block out."""
    text = (ROOT / "docs" / "first_hour.md").read_text(encoding="utf-8")
    assert text.count("```bash\n") == 1 + len(steps("cpu")) + len(steps("gpu"))


@pytest.mark.install
def test_the_steps_work_as_they_are_written(tmp_path):
    results = tmp_path / "hour.json"
    done = python(SCRIPT, "--json", results)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_done({step["step"]: step["printed"] for step in json.loads(results.read_text())["cpu"]["steps"]})
