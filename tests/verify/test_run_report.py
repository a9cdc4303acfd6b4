"""The results of a run as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from generator.files.reading import FileError
from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.run_report import write_junit

#: Characters that a folder's name or a message may have, and XML may not: of a path that is not UTF-8, too.
STRANGE = "\ufffe\uffff\ud800\udcff\x01\x1b"
ESCAPED = "\\ufffe\\uffff\\ud800\\udcff\\x01\\x1b"


def junit(path: Path, *results: JobResult) -> list[ET.Element]:
    write_junit(path, results)
    return list(ET.parse(path).getroot().iter("testcase"))


def test_any_character_makes_xml(tmp_path: Path) -> None:
    failure = Failure(f"case{STRANGE}", STRANGE, f"é{STRANGE}")
    result = JobResult(Job("static", Path(f"a/x{STRANGE}"), f"k{STRANGE}"), failures=(failure,))
    (case,) = junit(tmp_path / "j.xml", result)
    assert (case.get("classname"), case.get("name")) == (f"x{ESCAPED}.static", f"k{ESCAPED}")
    assert case[0].get("message") == f"case{ESCAPED}: é{ESCAPED}"
    assert f"wrong:  é{ESCAPED}" in str(case[0].text)


def test_no_two_test_cases_share_an_id(tmp_path: Path) -> None:
    folders = ("a/ladder", "b/ladder", "b/split_k")
    results = [JobResult(Job("static", Path(folder), "kernel"), cases=1) for folder in folders]
    cases = junit(tmp_path / "j.xml", *results)
    assert [case.get("classname") for case in cases] == ["a/ladder.static", "b/ladder.static", "split_k.static"]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.xml"
    path.write_text("before")

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(FileError, match=r"j\.xml: cannot be written: No space left on device"):
        write_junit(path, [JobResult(Job("static", Path("a"), "kernel"), cases=1)])
    monkeypatch.undo()
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
