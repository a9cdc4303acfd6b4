"""A rendered folder in somebody else's repository: what linters and type checkers find, and that it works alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from generator.commands.command_line import main
from generator.emit.render import is_alike
from tests.helpers.support import ROOT, assert_formatted, python, render_spec, spec

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
#: A module with what mypy says of a line behind it.
CLIENT = """\
import torch
from typed import gemm_fp16_rcr_bias_save_1pre_gelu as saved
from typed import gemm_fp16_rcr_bias, gemm_fp16_rcr_bais  # Module "typed" has no attribute "gemm_fp16_rcr_bais"
from typed import gemm_fp16_rcr_accumulate as accumulated, gemm_fp16_rcr_scale_scalem as scaled

x = torch.empty(1)
reveal_type(gemm_fp16_rcr_bias(x, x, bias=x))  # Revealed type is "torch._tensor.Tensor"
reveal_type(saved(x, x, bias=x))  # Revealed type is "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
reveal_type(gemm_fp16_rcr_bias.which(x, x, bias=x))  # Revealed type is "tuple[str, dict[str, int]]"
gemm_fp16_rcr_bias(x, x, bais=x)  # Unexpected keyword argument "bais"
gemm_fp16_rcr_bias(x, x)  # Missing named argument "bias"
gemm_fp16_rcr_bias.prepare(4, 4)  # Missing named argument "M"
gemm_fp16_rcr_bias.prepare(4, 4, M=range(3), unaligned=())
accumulated(x, x, beta=x)  # Missing named argument "out"
accumulated.which(x, x, beta=x)  # Missing named argument "out"
accumulated(x, x, beta=x, out=None)  # Argument "out" to "__call__" of "_Function3" has incompatible type "None"
accumulated(x, x, beta=x, out=x, config=0)
accumulated.which(x, x, beta=x, out=x)
gemm_fp16_rcr_bias.which(x, x)  # Missing named argument "bias"
gemm_fp16_rcr_bias.which(x, x, bias=x, config=0)  # Unexpected keyword argument "config"
gemm_fp16_rcr_bias.which(x, x, bias=1.0)  # Argument "bias" to "which" of "_Function2" has incompatible type "float"
gemm_fp16_rcr_bias.which(x, x, bias=x, out=x)
scaled(x, x, scale=1.0, scale_m=x)
scaled.which(x, x, scale=x, scale_m=x)
"""
WANTED = {at: line.partition("  # ")[2] for at, line in enumerate(CLIENT.splitlines(), 1) if "  # " in line}
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


PACKAGED = spec("layout: rcr; dtype: fp16; epilogue: [none, bias+relu]")
#: What a file that stands alone may import beside the standard library.
FRAMEWORKS = {"torch", "triton"}


def rendered(folder, package, spec=PACKAGED):
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


def test_files_without_functions_make_no_repository_of_the_hub(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("packaged.yaml").write_text(PACKAGED)
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
