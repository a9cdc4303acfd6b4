"""Reading within limits, writing whole, one writer at a time, JSON that a schema describes; reports."""

import os
import resource
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from generator.files.checked_json import Schema, Wrong
from generator.files.output_files import check, clash, put
from generator.files.reading import FileError, read_bytes, read_text
from generator.files.updating import update
from generator.files.writing import is_temporary, write
from generator.verify.result_cache import user_cache
from tests.helpers.support import python, side_by_side

TIMES = Schema(
    {
        "type": "object",
        "properties": {
            "format": {"enum": [2]},
            "times": {"type": "array", "items": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
            "sizes": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
        },
        "required": ["format", "times"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"format": 2,\n "times": [1.5,\n -1]}', 3, "times.1 must be bigger than 0, found -1"),
        ('{"format": 2,\n "times": [1, NaN]}', 2, "NaN is not a finite number"),
        ('{"format": 2,\n "times": [-Infinity]}', 2, "-Infinity is not a finite number"),
        ('{"format": 2, "times": [1],\n "sizes":\n {"m": 1e999}}', 3, "1e999 is not a finite number"),
        ('{"format": 2, "times": [1],\n "sizes":\n {"n": 1,\n "m": 1.0}}', 4, "sizes.m must be integer, found 1.0"),
        ('{"format": 2, "times": [1], "sizes": {"m": true}}', 1, "sizes.m must be integer, found true"),
        ('{"format": 3, "times": []}', 1, "format must be one of [2], found 3"),
        ('{"format": 2,\n "times": [],\n "times": []}', 2, "the key 'times' appears twice"),
        ('{"format": 2,\n "times": [}', 2, "is not JSON"),
        ("", 1, "is not JSON"),
        ("[" * 100_000, 1, "is nested too deeply"),
        ('{"format": 2, "times": [' + "9" * 5000 + "]}", 1, "Exceeds the limit"),
        ("[]", 1, "the value must be object, found []"),
    ],
)
def test_what_a_schema_refuses_with_its_line(text, line, words):
    with pytest.raises(Wrong) as error:
        TIMES.parse(text)
    assert (error.value.line, words in error.value.reason) == (line, True), error.value


def test_what_a_schema_accepts():
    assert TIMES.parse('{"format": 2, "times": [1, 2.5], "sizes": {"m": 3}}')["times"] == [1, 2.5]
    with pytest.raises(Wrong, match=r"line 7: times\.0"):
        TIMES.parse('{"format": 2, "times": [0]}', first=7)


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path):
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.write_bytes("\ufeffé".encode())
    assert read_text(file) == "é"
    os.mkfifo(pipe)
    for path, words in ((Path("/dev/zero"), "device"), (pipe, "a pipe"), (tmp_path, "is a folder")):
        with pytest.raises(FileError, match=words):
            read_bytes(path)
    with pytest.raises(FileError, match="more than 2 bytes"):
        read_bytes(file, 2)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")
    file.write_bytes(b"a\nb\n\xff")
    with pytest.raises(FileError, match=f"{file}:3: is not UTF-8 text"):
        read_text(file)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write(path, "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, limit[1]))
    try:
        with pytest.raises(FileError, match="cannot be written: File too large"):
            write(path, "newer")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]
    write(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(FileError, match="cannot be written"):
        write(tmp_path / "none" / "file", "")
    assert is_temporary(".file.0123456789ab.new") and not is_temporary("file.new")


def _add(path, times):
    for _ in range(times):
        update(path, lambda: str(int(path.read_text()) + 1))


def test_processes_that_name_a_file_by_a_link_wait_for_each_other(tmp_path):
    real, link = tmp_path / "real" / "count", tmp_path / "count"
    real.parent.mkdir()
    real.write_text("0")
    link.symlink_to(real)
    assert side_by_side(_add, (real, 20), (link, 20)) == [0, 0]
    assert real.read_text() == "40" and link.is_symlink()


def test_what_is_no_file_is_not_replaced(tmp_path):
    with pytest.raises(FileError, match="is a folder, not a file"):
        update(tmp_path, lambda: "")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder has another place")
def test_the_cache_folder_is_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert user_cache() == tmp_path / "cache" / "gemm-generator"
    monkeypatch.setenv("HOME", str(tmp_path))
    # A relative one would be in the checkout.
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert user_cache() == tmp_path / ".cache" / "gemm-generator"
    monkeypatch.setenv("HOME", "home")
    with pytest.raises(FileError, match="not an absolute path"):
        user_cache()


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
