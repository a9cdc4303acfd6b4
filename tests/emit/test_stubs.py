"""The types of a family's functions, as a type checker of their user sees them."""

import pytest

from tests.helpers.support import python, render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: fp16; with: prepare; "
    "epilogue: [none, bias, accumulate, scale+scale_m, [bias, {save: pre}, gelu]]"
)
CLIENT = """\
import torch
import typed
from typed import gemm_fp16_rcr_bias, gemm_fp16_rcr_bais
from typed import gemm_fp16_rcr_accumulate as accumulated, gemm_fp16_rcr_scale_scalem as scaled

x = torch.empty(1)
reveal_type(gemm_fp16_rcr_bias(x, x, bias=x))
reveal_type(typed.gemm_fp16_rcr_bias_save_1pre_gelu(x, x, bias=x))
reveal_type(gemm_fp16_rcr_bias.which(x, x, bias=x))
gemm_fp16_rcr_bias(x, x, bais=x)
gemm_fp16_rcr_bias(x, x)
gemm_fp16_rcr_bias.prepare(4, 4)
gemm_fp16_rcr_bias.prepare(4, 4, M=range(3), unaligned=())
accumulated(x, x, beta=x)
accumulated.which(x, x, beta=x)
accumulated(x, x, beta=x, out=None)
accumulated(x, x, beta=x, out=x, config=0)
accumulated.which(x, x, beta=x, out=x)
gemm_fp16_rcr_bias.which(x, x)
gemm_fp16_rcr_bias.which(x, x, bias=x, config=0)
gemm_fp16_rcr_bias.which(x, x, bias=1.0)
gemm_fp16_rcr_bias.which(x, x, bias=x, out=x)
scaled(x, x, scale=1.0, scale_m=x)
scaled.which(x, x, scale=x, scale_m=x)
"""
WANTED = {
    3: 'Module "typed" has no attribute "gemm_fp16_rcr_bais"',
    7: 'Revealed type is "torch._tensor.Tensor"',
    8: 'Revealed type is "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"',
    9: 'Revealed type is "tuple[str, dict[str, int]]"',
    10: 'Unexpected keyword argument "bais"',
    11: 'Missing named argument "bias"',
    12: 'Missing named argument "M"',
    14: 'Missing named argument "out"',
    15: 'Missing named argument "out"',
    16: 'Argument "out" to "__call__" of "_Function3" has incompatible type "None"',
    19: 'Missing named argument "bias"',
    20: 'Unexpected keyword argument "config"',
    21: 'Argument "bias" to "which" of "_Function2" has incompatible type "float"',
}
#: A family of `package: plain` has no `prepare`.
UNPREPARED = dict.fromkeys((12, 13), '"_Function2" has no attribute "prepare"')


@pytest.mark.parametrize("package", ["torch", "plain"])
def test_a_typo_is_an_error_and_a_result_a_tensor(tmp_path, package):
    spec = SPEC if package == "torch" else SPEC.replace("with: prepare\n", "")
    render_spec(tmp_path, "typed", f"{spec}package: {package}\n")
    (tmp_path / "client.py").write_text(CLIENT)
    done = python("-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "client.py", cwd=tmp_path)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("client.py:") and "defined in" not in line:
            number, _, message = line.removeprefix("client.py:").partition(": ")
            found[int(number)] = message
    wanted = WANTED if package == "torch" else WANTED | UNPREPARED
    assert found.keys() == wanted.keys(), done.stdout + done.stderr
    assert all(message in found[line] for line, message in wanted.items()), done.stdout
    # What is vendored brings no errors of its own, but for Triton, which has no types.
    others = [line for line in done.stdout.splitlines() if not line.startswith(("client.py:", "Found"))]
    assert not [line for line in others if "error" in line and "triton" not in line], done.stdout
