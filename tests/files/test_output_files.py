"""The files that a command writes at its end, each known by whatever path."""

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from generator.files.output_files import check, clash, put
from generator.files.reading import FileError
from tests.helpers.support import python


def test_one_file_for_two_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("a")
    assert clash({"--junit": Path("a"), "--html": Path("b")}) is None
    for other in ("a", "./a", "folder/../a", str(tmp_path / "a"), "link"):
        wrong = clash({"--junit": Path("a"), "--html": Path(other)})
        assert wrong == f"--junit and --html name the same file, {Path(other)}; name two files"
    assert clash({"--junit": Path("/dev/null"), "--html": Path("/dev/null")}) is None


def test_a_check_makes_the_folder_and_leaves_nothing_in_it(tmp_path):
    check(tmp_path / "a" / "b" / "file")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("before")
    check(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "before"


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path, reason in (
        (tmp_path / "file" / "x", "a part of its path is a file, where a folder must be"),
        (tmp_path / "folder", "it is a folder; name a file"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "folder" / ".." / "file" / "..", "it is a folder|a part of its path is a file"),
    ):
        for function in (check, partial(put, data="")):
            with pytest.raises(FileError, match=f"cannot be written: .*({reason}|Is a directory)") as caught:
                function(path)
            assert caught.value.path == path


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything may be written by this user")
def test_a_folder_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="cannot be written: Permission denied"):
        check(tmp_path / "file")


def test_text_that_utf_8_lacks_and_a_link(tmp_path):
    with pytest.raises(FileError, match=r"cannot be written: .*surrogates not allowed"):
        put(tmp_path / "file", "\udc80")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link").symlink_to("target")
    for text in ("new", "newer"):
        put(tmp_path / "link", text)
        assert (tmp_path / "target").read_text() == text and (tmp_path / "link").is_symlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_in_place(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    check(path)
    put(path, b"report")
    reader.join(10)
    assert got == [b"report"] and list(tmp_path.iterdir()) == [path] and path.is_fifo()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system has no /dev/stdout")
def test_the_standard_output_keeps_what_was_printed(tmp_path):
    code = "import pathlib\nfrom generator.files.output_files import check, put\nprint('first')\n"
    code += "check(pathlib.Path('/dev/stdout'))\nput(pathlib.Path('/dev/stdout'), 'report')"
    assert python("-c", code).stdout == "first\nreport"
    into = "import os, sys; os.dup2(os.open('out', os.O_WRONLY | os.O_CREAT), 1); "
    python("-c", into + "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])", code, cwd=tmp_path)
    assert (tmp_path / "out").read_text() == "first\nreport"
