"""The results of a run as JUnit XML, and the names that tell its folders apart."""

import xml.etree.ElementTree as ET
from pathlib import Path

from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.run_report import folder_names, write_junit

#: Characters that a folder's name or a message may have, and XML may not: of a path that is not UTF-8, too.
STRANGE = "\ufffe\uffff\ud800\udcff\x01\x1b"
ESCAPED = "\\ufffe\\uffff\\ud800\\udcff\\x01\\x1b"


def junit(path, *results):
    write_junit(path, results)
    return list(ET.parse(path).getroot().iter("testcase"))


def test_any_character_makes_xml(tmp_path):
    failure = Failure(f"case{STRANGE}", STRANGE, f"é{STRANGE}")
    result = JobResult(Job("static", Path(f"a/x{STRANGE}"), f"k{STRANGE}"), failures=(failure,))
    (case,) = junit(tmp_path / "j.xml", result)
    assert (case.get("classname"), case.get("name")) == (f"x{ESCAPED}.static", f"k{ESCAPED}")
    assert case[0].get("message") == f"case{ESCAPED}: é{ESCAPED}"
    assert f"wrong:  é{ESCAPED}" in str(case[0].text)


def named(*folders):
    return {str(folder): name for folder, name in folder_names(map(Path, folders)).items()}


def test_the_shortest_end_that_no_other_path_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named() == {}
    assert named("a/ladder", "b/split_k") == {"a/ladder": "ladder", "b/split_k": "split_k"}
    assert named("a/ladder", "b/ladder", "c/x") == {"a/ladder": "a/ladder", "b/ladder": "b/ladder", "c/x": "x"}
    assert named("x/a/l", "y/a/l", "b/l") == {"x/a/l": "x/a/l", "y/a/l": "y/a/l", "b/l": "b/l"}
    assert named("ladder", "a/ladder") == {"ladder": f"{tmp_path.name}/ladder", "a/ladder": "a/ladder"}
    assert named(".") == {".": tmp_path.name}
    other = str(tmp_path / "ladder")
    assert named("ladder", other) == {"ladder": "ladder", other: other}, "two spellings of one folder"
