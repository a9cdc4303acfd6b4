"""The results of a run as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

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
