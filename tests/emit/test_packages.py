"""How much host code comes with kernels (`package`), and that it works where only torch and triton are."""

import ast
import sys
from pathlib import Path

from generator.commands.command_line import main
from tests.helpers.support import ROOT, python, render_spec, spec

SPEC = spec("layout: rcr; dtype: fp16; epilogue: [none, bias+relu]")
#: What a file that stands alone may import beside the standard library.
FRAMEWORKS = {"torch", "triton"}

#: Calls every kernel's `gemm` in Triton's interpreter, each file loaded by its path, and compares with float64.
CALLED = """
import importlib.util, sys, torch
from pathlib import Path

a, b, bias = torch.randn(33, 40).half(), torch.randn(50, 40).half().T, torch.randn(50)
for path in sorted(Path(sys.argv[1]).glob("gemm_*.py")):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = {"bias": bias} if "bias" in path.stem else {}
    wanted = a.double() @ b.double()
    wanted = torch.relu(wanted + bias.double()) if given else wanted
    assert (module.gemm(a, b, **given).double() - wanted).abs().max() < 0.05, path
    try:
        module.gemm(a, b[:-1], **given)
    except ValueError as error:
        print(error)
"""

#: The same of a family's functions.
FUNCTIONS = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import packaged

a, b, bias = torch.randn(33, 40).half(), torch.randn(50, 40).half().T, torch.randn(50)
wanted = torch.relu(a.double() @ b.double() + bias.double())
f, out = packaged.gemm_fp16_rcr_bias_relu, torch.empty(33, 50).half()
for more in ({}, {}, {"out": out, "config": 0}):
    assert (f(a, b, bias=bias, **more).double() - wanted).abs().max() < 0.05
for wrong in ({}, {"bias": bias, "more": 1}, {"bias": bias[1:]}):
    try:
        f(a, b, **wrong)
    except (TypeError, ValueError) as error:
        print(error)
print(dir(packaged), {name for name in sys.modules if name.startswith("generator")})
"""


def rendered(folder, package, spec=SPEC):
    path = folder / "packaged.yaml"
    path.write_text(f"{spec}package: {package}\n")
    assert main([str(path), "--out", str(folder)]) == 0
    return folder / "packaged"


def imports(path):
    """The modules that a file imports, with a dot in front of those of its folder."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def test_files_stand_alone(tmp_path):
    folder = rendered(tmp_path, "files")
    names = sorted(path.name for path in folder.iterdir())
    assert names[:2] == [".gitattributes", "gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped.py"]
    assert [name for name in names if not name.startswith("gemm_")] == [".gitattributes", "manifest.json"]
    for path in folder.glob("*.py"):
        roots = {name.partition(".")[0] for name in imports(path)}
        assert roots <= FRAMEWORKS | sys.stdlib_module_names, path
        assert len(path.read_text().splitlines()) <= 320
    ran = python("-c", CALLED, str(folder), cwd="/", env={"TRITON_INTERPRET": "1"})
    assert ran.returncode == 0, ran.stderr
    wrong = ["K is 40 in a and 39 in b: they must be equal"]
    assert ran.stdout.splitlines() == wrong * len(list(folder.glob("*.py")))


def test_plain_functions_use_public_interfaces_alone(tmp_path):
    folder = rendered(tmp_path, "plain")
    for path in [*folder.glob("*.py"), *folder.glob("_runtime/*.py")]:
        for name in imports(path):
            inside = name.startswith(".")
            parts = name.lstrip(".").split(".")
            assert inside or parts[0] in FRAMEWORKS | sys.stdlib_module_names | {"__future__"}, (path, name)
            assert inside or not any(part.startswith("_") and part != "__future__" for part in parts), (path, name)
            # Drivers, compilers and caches of Triton are no interface of its users.
            assert not name.startswith(("triton.runtime", "triton.compiler", "triton.backends")), (path, name)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node).partition(".")[0] in FRAMEWORKS:
                assert "._" not in ast.unparse(node), (path, ast.unparse(node))
    ran = python("-c", FUNCTIONS, str(tmp_path), cwd="/", env={"TRITON_INTERPRET": "1"})
    assert ran.returncode == 0, ran.stderr
    missing, unexpected, shape, listed = ran.stdout.splitlines()
    assert missing == "gemm_fp16_rcr_bias_relu() got wrong keyword arguments: missing bias"
    assert unexpected.endswith("unexpected more")
    assert shape == "gemm_fp16_rcr_bias_relu: bias must have shape (50,), got (49,)"
    assert "gemm_fp16_rcr_none" in listed and listed.endswith("set()")


def test_files_without_functions_make_no_repository_of_the_hub(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("packaged.yaml").write_text(SPEC)
    assert main(["packaged.yaml", "--package", "files"]) == 0
    assert main(["package", "generated/packaged", "--format", "kernels", "--out", "hub"]) == 2
    assert "packaged has no functions, which the Hub's loader needs" in capsys.readouterr().err
    assert not Path("hub").exists()


#: Products of bf16 in Triton's own interpreter, which multiplies their bits as integers.
BF16 = """
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
    done = python("-c", BF16, env=env, cwd=ROOT)
    first, second, third, right = done.stdout.splitlines()
    assert first == second and third.startswith("Triton's interpreter multiplies the bits of bf16")
    assert "bits of bf16" in first and "generator.verify.interpreter.install()" in first
    assert right == "True", done.stderr
