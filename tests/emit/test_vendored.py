"""A rendered folder in somebody else's repository: what their linters and type checkers find in it and in its calls."""

import subprocess
import sys

import pytest

from generator.commands.command_line import main
from generator.emit.render import is_alike
from tests.helpers.support import assert_formatted, python, render_spec, spec

SPECS = {
    # One kernel: most modules of the library are not there.
    "one": "layout: rcr\ndtype: bf16\nepilogue: bias\n",
    # Loops of scalars, roundings to int8 and imports of many names.
    "several": "layout: rcr\ndtype: {a: int8, out: int8}\nschedule: [elementwise, persistent]\n"
    "load: [pointer, descriptor]\n",
    # Weights, and a constant of the matrix unit that depends on a tile.
    "stored": "layout: rcr\ndtype: [fp8e4m3, {a: bf16, b: int4, scales: {b: [128, 1]}}]\n",
    # Layers that add gradients where they are kept.
    "kept": "layout: [rcr, crr]\ndtype: bf16\nepilogue: [none, [{accumulate: {beta: 1}}]]\n",
    "grouped": "layout: rcr\ndtype: bf16\nbatch: grouped\nschedule: persistent\n",
}
#: What a choice among files adds, and gradients.
FASTEST, GRADIENTS = "select: fastest\n", "backward: kernels\nselect: fastest\nbackends: [triton, aten]\n"
ALIKE = {"several": FASTEST, "one": f"{FASTEST}invariant: rows\n"}
FORMS = {"torch": {"one": GRADIENTS, "several": FASTEST}, "plain": ALIKE, "files": {}}


@pytest.fixture(scope="module", params=FORMS)
def folders(request, tmp_path_factory):
    """A folder with a family of each spec."""
    root = tmp_path_factory.mktemp(request.param)
    for name, text in SPECS.items():
        more = FORMS[request.param].get(name, "")
        (root / f"{name}.yaml").write_text(f"summary: A product.\npackage: {request.param}\n{text}{more}")
    assert main([*(str(root / f"{name}.yaml") for name in SPECS), "--out", str(root / "vendored")]) == 0
    return root / "vendored"


def run(*command, folder):
    ran = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_ruff_finds_nothing_by_its_defaults(folders):
    run("ruff", "check", "--isolated", "--no-cache", ".", folder=folders)
    assert_formatted(folders)


def test_mypy_finds_nothing_by_its_defaults(folders, tmp_path):
    # What torch has is Any here: to read it takes a minute.
    options = ("--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=skip")
    run("mypy", *options, *SPECS, folder=folders)


def test_equal_modules_are_equal_files(folders):
    found = {}
    for path in folders.rglob("*.py"):
        name = "/".join(path.relative_to(folders).parts[1:])
        if is_alike(name):
            found.setdefault(name, set()).add(path.read_bytes())
    assert bool(found) == (folders / "one" / "_runtime").is_dir()
    assert not [name for name, texts in found.items() if len(texts) > 1]


TYPED = spec(
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
    spec = TYPED if package == "torch" else TYPED.replace("with: prepare\n", "")
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
