"""The data files of the package, in a checkout and in an archive, where they are no files; the program's name."""

import sys
import zipfile
from pathlib import Path

import pytest

from generator.commands import COMMANDS
from generator.files.package_data import NotInstalled, data, shared
from tests.helpers.support import BASE, GENERATED, ROOT, python


def test_what_is_there_and_what_is_not():
    assert data("epilogue", "operations.yaml").is_file() and shared("templates", "templates") == ROOT / "templates"
    with pytest.raises(NotInstalled, match=r"the package's nothing\.json is missing: install gemm-generator with pip"):
        data("nothing.json")
    with pytest.raises(NotInstalled, match="the package's nothing is missing"):
        shared("nothing", "nothing")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The package as a wheel has it."""
    path = tmp_path_factory.mktemp("wheel") / "gemm_generator.whl"
    with zipfile.ZipFile(path, "w") as made:
        for folder, name in (("generator", "generator"), ("templates", "generator/templates")):
            for file in (ROOT / folder).rglob("*"):
                if file.is_file() and file.suffix != ".pyc":
                    made.write(file, f"{name}/{file.relative_to(ROOT / folder).as_posix()}")
    return path


CALLS = {
    **{name: [name, "x"] for name in COMMANDS if name != "schema"},
    "schema": ["schema"],
    "bench": ["bench", "--json", "x", "--table"],
    "render": ["x.yaml"],
}


@pytest.mark.parametrize("command", CALLS)
def test_an_archive_is_one_sentence(archive, tmp_path, command):
    ran = python("-m", "generator", *CALLS[command], cwd=tmp_path, env={"PYTHONPATH": str(archive)})
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "gemm_generator.whl/generator: the package is in an archive; install it with pip: templates" in ran.stderr
    assert ran.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_an_archive_has_help_and_a_version(archive, tmp_path):
    for option in ("--help", "--version"):
        assert python("-m", "generator", option, cwd=tmp_path, env={"PYTHONPATH": str(archive)}).returncode == 0


def test_the_pytest_plugin_of_an_archive(archive, tmp_path):
    variables = {"PYTHONPATH": str(archive), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    call = ("-m", "pytest", "-p", "generator.pytest_plugin", "-p", "no:cacheprovider", "--gemm-family", tmp_path)
    ran = python(*call, cwd=tmp_path, env=variables)
    assert ran.returncode == 4 and "install it with pip" in ran.stderr and "Traceback" not in ran.stdout + ran.stderr


def test_a_package_that_is_needed_and_missing_is_named(tmp_path):
    # Without site-packages.
    ran = python("-S", "-m", "generator", "schema", cwd=tmp_path)
    how = "pip install . in a checkout of the generator"
    told = f"python -m generator: fastjsonschema is not installed; install it with: {how}\n"
    assert (ran.returncode, ran.stderr) == (2, told)


def test_hints_repeat_it(cli, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gemm-generator"])
    Path("family.yaml").write_text(BASE)
    said = [
        cli("family.yaml", "--check").err,
        cli("verify", "family.yaml").err,
        cli("new", "mine").out,
        cli("--json").err,
        cli("bench", "family.yaml", "--out", "nowhere").err,
        cli("verify", GENERATED / "ladder", "--level", "interpret", "--out", "nowhere", "--only", "nothing").err,
    ]
    assert "render with: gemm-generator family.yaml\n" in said[0] and "gemm-generator verify mine.yaml" in said[2]
    assert "render it first: gemm-generator family.yaml\n" in said[1] and said[3].startswith("gemm-generator: ")
    assert not any("python -m" in text for text in said)
    assert cli("verify").err.startswith("usage: gemm-generator verify ")
