"""Products of bf16 in Triton's own interpreter, which multiplies their bits as integers: a function says so."""

from generator.commands.command_line import main
from tests.helpers.support import ROOT, python

_CALLS = """
import torch
from generated.gemm16 import gemm_bf16_rrr_none as f

a = torch.eye(32).bfloat16()
for config in (None, 0):
    try:
        f(a, a, config=config)
    except RuntimeError as error:
        print(error)

from generator.verify import interpreter

interpreter.install()
print(torch.equal(f(a, a), a))
"""


_PLAIN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import plain

a = torch.eye(32).bfloat16()
try:
    plain.gemm_bf16_rrr_none(a, a)
except RuntimeError as error:
    print(error)
"""


def test_so_does_one_with_less_host_code(tmp_path):
    (tmp_path / "plain.yaml").write_text("summary: Plain.\nlayout: rrr\ndtype: bf16\npackage: plain\n")
    assert main([str(tmp_path / "plain.yaml"), "--out", str(tmp_path)]) == 0
    done = python("-c", _PLAIN, str(tmp_path), env={"TRITON_INTERPRET": "1"}, cwd="/")
    assert done.stdout.startswith("Triton's interpreter multiplies the bits of bf16"), done.stderr


def test_a_function_of_bf16_refuses_the_interpreter_until_it_is_corrected():
    done = python("-c", _CALLS, env={"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}, cwd=ROOT)
    first, second, right = done.stdout.splitlines()
    assert first == second and "bits of bf16" in first and "generator.verify.interpreter.install()" in first
    assert right == "True", done.stderr
