"""The wheel: built offline, it renders in a foreign folder, without torch and without triton."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from generator.commands.command_line import main
from tests.helpers.support import GENERATED, LONGEST, ROOT, SPECS, contents

#: What rendering may import beside the standard library, by module; markupsafe is jinja2's.
NEEDED = ("fastjsonschema", "filelock", "jinja2", "markupsafe", "yaml", "packaging", "tqdm")


def run(*command, cwd, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LONGEST)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, made from the source distribution of the checkout."""
    out = tmp_path_factory.mktemp("dist")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder of modules: the wheel's, and links to what rendering needs; nothing else can be imported."""
    site = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    ran = run(*pip, cwd=site)
    assert ran.returncode == 0, ran.stderr
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        (site / name).symlink_to(Path(spec.origin).parent)
    return site


def test_the_wheel_carries_templates_and_measurements_and_nothing_of_the_checkout(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*.j2")}
    measured = {path.relative_to(ROOT / "specs").as_posix() for path in (ROOT / "specs" / "tuned").rglob("*.json")}
    assert measured and {f"generator/{name}" for name in templates | measured} <= set(names)
    beside = {path.relative_to(ROOT).as_posix() for path in (ROOT / "generator").rglob("*.j2")}
    assert beside and beside <= set(names)
    # What type checkers of other projects read.
    assert {"generator/py.typed", "generator/__init__.pyi"} <= set(names)
    roots = {name.partition("/")[0] for name in names}
    assert {name for name in roots if not name.endswith(".dist-info")} == {"generator", "gemm_generator_pytest.py"}
    assert len(roots) == 3 and not any("__pycache__" in name for name in names)


#: A project's own module or package `generator`, and where its tests are.
PROJECTS = {
    "a module": ("generator.py", "test_own.py"),
    "a package": ("generator/__init__.py", "test_own.py"),
    "in a folder of tests": ("tests/generator.py", "tests/test_own.py"),
    "beside a conftest": ("tests/generator.py", "tests/test_own.py", "tests/conftest.py"),
}
#: What pytest imports beside the standard library.
PYTEST = ("_pytest", "pytest", "py", "pluggy", "iniconfig", "pygments", "exceptiongroup", "tomli")


@pytest.fixture(scope="module")
def with_pytest(installed, tmp_path_factory):
    """A folder of modules: the installed ones, and pytest's; it has no other plugin."""
    site = tmp_path_factory.mktemp("with_pytest")
    found = [spec.origin for name in PYTEST if (spec := importlib.util.find_spec(name)) and spec.origin]
    modules = [path.parent if path.name == "__init__.py" else path for path in map(Path, found)]
    # pytest prints the version of pluggy, which its metadata has.
    (pluggy,) = modules[PYTEST.index("pluggy")].parent.glob("pluggy-*.dist-info")
    for path in (*installed.iterdir(), *modules, pluggy):
        (site / path.name).symlink_to(path)
    return site


@pytest.mark.parametrize("command", ["module", "program"])
@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_with_a_generator_of_its_own_keeps_pytest(with_pytest, tmp_path, project, command):
    own, test, *others = PROJECTS[project]
    texts = {own: "MINE = 1\n", test: "from generator import MINE\n\ndef test_mine():\n    assert MINE\n"}
    for path, text in {**texts, **dict.fromkeys(others, "")}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    # As the program `pytest`, which does not add the current folder.
    program = "import sys; sys.path.remove(''); from pytest import main; sys.exit(main(sys.argv[1:]))"
    start = ("-m", "pytest") if command == "module" else ("-c", program)
    call = (sys.executable, "-S", *start, "-p", "no:cacheprovider", "--rootdir", tmp_path, "--import-mode", "prepend")
    for options in ((), ("-W", "error")):
        done = run(*call, *options, cwd=tmp_path, PYTHONPATH=str(with_pytest))
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
        assert done.stdout.count("whose plugin stands aside") == (not options)
    done = run(*call, "--gemm-family", "kernels", cwd=tmp_path, PYTHONPATH=str(with_pytest))
    assert done.returncode == 4 and "not the package of that name" in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_plugin_of_the_wheel_proves_a_family(with_pytest, tmp_path):
    call = (sys.executable, "-S", "-m", "pytest", "-p", "no:cacheprovider")
    assert "--gemm-family=DIR" in run(*call, "--help", cwd=tmp_path, PYTHONPATH=str(with_pytest)).stdout
    shutil.copytree(GENERATED / "ladder", tmp_path / "ladder")
    options = ("--gemm-family", "ladder", "--gemm-level", "static", "--collect-only", "-q")
    done = run(*call, *options, cwd=tmp_path, PYTHONPATH=str(with_pytest))
    assert done.returncode == 0 and done.stdout.count("ladder::static::") == 4, done.stdout + done.stderr
    assert "stands aside" not in done.stdout


#: A spec of one's own, which needs the measurements that the package ships.
OWN = "summary: x\nlayout: rcr\ndtype: bf16\nepilogue: bias+silu\nselect: fastest\n"


@pytest.mark.parametrize("spec", ["bf16_rrr", "own"])
def test_it_renders_in_a_foreign_folder(installed, tmp_path, spec):
    text = OWN if spec == "own" else (ROOT / "specs" / f"{spec}.yaml").read_text()
    (tmp_path / f"{spec}.yaml").write_text(text)
    expected = tmp_path / "expected"
    assert main([str(tmp_path / f"{spec}.yaml"), "--out", str(expected)]) == 0
    assert (expected / spec / "_tuned.py").is_file() == (spec == "own")
    # -S leaves site-packages out: torch and triton cannot be found, whatever is installed.
    for name in ("torch", "triton"):
        assert run(sys.executable, "-S", "-c", f"import {name}", cwd=tmp_path, PYTHONPATH=str(installed)).returncode
    ran = run(sys.executable, "-S", "-m", "generator", f"{spec}.yaml", cwd=tmp_path, PYTHONPATH=str(installed))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert contents(tmp_path / "generated" / spec) == contents(expected / spec)


def test_a_first_family_without_the_checkout(installed, tmp_path):
    """From nothing to a package, each command as a new user gives it, without torch and without triton."""

    def generator(*arguments):
        ran = run(sys.executable, "-S", "-m", "generator", *arguments, cwd=tmp_path, PYTHONPATH=str(installed))
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    generator("new", "linear", "--epilogue", "bias+gelu", "--select", "fastest")
    assert generator("schema") == (tmp_path / "gemm.schema.json").read_text()
    assert "measured on NVIDIA H200: the fastest at" in generator("explain", "linear.yaml")
    assert generator("linear.yaml").startswith("generated/linear: ")
    generator("linear.yaml", "--check")
    generator("package", "generated/linear", "--format", "kernels", "--out", "hub")
    generator("package", "generated/linear", "--format", "wheel", "--out", "dist")
    assert (tmp_path / "hub" / "build" / "torch-cuda" / "metadata.json").is_file()


def test_what_needs_the_gpu_stack_says_so(installed, tmp_path):
    call = [sys.executable, "-S", "-m", "generator", "verify", SPECS[0], "--out", GENERATED]
    ran = run(*call, cwd=tmp_path, PYTHONPATH=str(installed))
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert "verify needs torch; install the extra: pip install '.[verify]' in a checkout of the " in ran.stderr
