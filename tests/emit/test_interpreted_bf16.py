"""Products of bf16 in Triton's own interpreter, which multiplies their bits as integers: a function says so."""

from tests.helpers.support import ROOT, python, render_spec

_CALLS = """
import torch
import less
from generated.gemm16 import gemm_bf16_rrr_none as f

a = torch.eye(32).bfloat16()
for call in (f, lambda a, b: f(a, b, config=0), less.gemm_bf16_rrr_none):
    try:
        call(a, a)
    except RuntimeError as error:
        print(error)

from generator.verify import interpreter

interpreter.install()
print(torch.equal(f(a, a), a))
"""


def test_a_function_of_bf16_refuses_the_interpreter_until_it_is_corrected(tmp_path):
    render_spec(tmp_path, "less", "summary: Plain.\nlayout: rrr\ndtype: bf16\npackage: plain\n")
    env = {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = python("-c", _CALLS, env=env, cwd=ROOT)
    first, second, third, right = done.stdout.splitlines()
    assert first == second and third.startswith("Triton's interpreter multiplies the bits of bf16")
    assert "bits of bf16" in first and "generator.verify.interpreter.install()" in first
    assert right == "True", done.stderr
