"""The wheel: built offline, it renders in a foreign folder, without torch and without triton."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from generator.cli import main
from tests.helpers.support import GENERATED, ROOT, SPECS, contents

#: What rendering may import beside the standard library, by module; markupsafe is jinja2's.
NEEDED = ("fastjsonschema", "jinja2", "markupsafe", "yaml", "packaging", "tqdm")


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source distribution of the checkout."""
    out = tmp_path_factory.mktemp("dist")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules: the wheel's, and links to what rendering needs; nothing else can be imported."""
    site = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    ran = run(*pip, cwd=site)
    assert ran.returncode == 0, ran.stderr
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        (site / name).symlink_to(Path(spec.origin).parent)
    return site


def test_the_wheel_carries_templates_and_measurements_and_nothing_of_the_checkout(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*.j2")}
    measured = {path.relative_to(ROOT / "specs").as_posix() for path in (ROOT / "specs" / "tuned").rglob("*.json")}
    assert measured and {f"generator/{name}" for name in templates | measured} <= set(names)
    beside = {path.relative_to(ROOT).as_posix() for path in (ROOT / "generator").rglob("*.j2")}
    assert beside and beside <= set(names)
    roots = {name.partition("/")[0] for name in names}
    assert len(roots) == 2 and "generator" in roots and not any("__pycache__" in name for name in names)


#: A spec of one's own, which needs the measurements that the package ships.
OWN = "summary: x\nlayout: rcr\ndtype: bf16\nepilogue: bias+silu\nselect: fastest\n"


@pytest.mark.parametrize("spec", ["bf16_rrr", "own"])
def test_it_renders_in_a_foreign_folder(installed: Path, tmp_path: Path, spec: str) -> None:
    text = OWN if spec == "own" else (ROOT / "specs" / f"{spec}.yaml").read_text()
    (tmp_path / f"{spec}.yaml").write_text(text)
    expected = tmp_path / "expected"
    assert main([str(tmp_path / f"{spec}.yaml"), "--out", str(expected)]) == 0
    assert (expected / spec / "_tuned.py").is_file() == (spec == "own")
    # -S leaves site-packages out: torch and triton cannot be found, whatever is installed.
    alone = (sys.executable, "-S", "-c")
    for name in ("torch", "triton"):
        assert run(*alone, f"import {name}", cwd=tmp_path, PYTHONPATH=str(installed)).returncode != 0
    code = (
        "import sys, generator; from generator.cli import main; status = main(sys.argv[1:]); "
        "print(generator.__file__); sys.exit(status)"
    )
    ran = run(*alone, code, f"{spec}.yaml", cwd=tmp_path, PYTHONPATH=str(installed))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert Path(ran.stdout.splitlines()[-1]).parent.parent == installed
    assert contents(tmp_path / "generated" / spec) == contents(expected / spec)


def test_a_first_family_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    """From nothing to a package, each command as a new user gives it, without torch and without triton."""

    def generator(*arguments: object) -> str:
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


def test_what_needs_the_gpu_stack_says_so(installed: Path, tmp_path: Path) -> None:
    call = [sys.executable, "-S", "-m", "generator", "verify", SPECS[0], "--out", GENERATED]
    ran = run(*call, cwd=tmp_path, PYTHONPATH=str(installed))
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert "install the extra: pip install 'gemm-generator[verify]'" in ran.stderr
