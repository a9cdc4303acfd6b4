"""The version of a package is that of the one that an import would take."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from generator.verify.installed import installed
from generator.verify.job_inputs import PACKAGES


@pytest.mark.parametrize("package", sorted({name for names in PACKAGES.values() for name in names}))
def test_an_installed_package_has_the_version_of_its_metadata(package: str) -> None:
    assert installed(package) == version(package)


@pytest.mark.parametrize(
    ("name", "text"), [("__init__.py", '__version__ = "9.9.1"\n'), ("version.py", '__version__: str = "9.9.1"\n')]
)
def test_a_folder_without_metadata_states_its_own_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('this is not imported')\n")
    with (package / name).open("a") as file:
        file.write(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert version("triton") != "9.9.1" and installed("triton") == "9.9.1"
    (package / name).write_text("")
    with pytest.raises(PackageNotFoundError):
        installed("triton")
