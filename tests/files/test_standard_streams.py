"""Streams that are closed, full, or without a reader: a process goes on; and text that XML and HTML can hold."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from generator.files.plain_text import representable
from tests.helpers.support import ROOT, python

PRINTS = """\
import sys
from generator.files import standard_streams
with standard_streams.Streams() as streams:
    for stream in (sys.stdout, sys.stderr):
        for number in range(20_000):
            print(number, file=stream)
        stream.flush()
    reason = streams.lost()
open("reason", "w").write(repr(reason))
"""
#: Runs the code of its second argument without the descriptors of its first.
CLOSES = (
    "import os, sys; [os.close(int(number)) for number in sys.argv[1].split(',')]; "
    "os.execv(sys.executable, [sys.executable, '-c', sys.argv[2]])"
)


def reason(folder):
    return (folder / "reason").read_text()


def test_what_is_written_is_what_was_printed():
    code = "import sys\nfrom generator.files import standard_streams\nprint('a')\nbefore = sys.stdout\n"
    code += "with standard_streams.Streams():\n    print('é', sys.stdout.isatty(), sys.stdout.fileno())\n"
    code += "    sys.stdout.buffer.write(b'raw\\n')\nprint('b', sys.stdout is before)\n"
    ran = python("-c", code, env={"PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "a\n\\xe9 False 1\nraw\nb True\n", "")


@pytest.mark.parametrize("closed", ["0,1,2", "1", "2"])
def test_a_closed_stream_is_no_reason_and_no_file_gets_its_number(tmp_path, closed):
    # The number of a file that is opened within.
    code = PRINTS.replace("    reason =", "    open('first', 'w').write(str(os.open('.', os.O_RDONLY)))\n    reason =")
    ran = python("-c", CLOSES, closed, "import os\n" + code, cwd=tmp_path)
    assert (ran.returncode, reason(tmp_path)) == (0, "None")
    assert int((tmp_path / "first").read_text()) > 2


def test_a_pipe_that_does_not_block_is_waited_for(tmp_path):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    call = [sys.executable, "-c", PRINTS.replace("sys.stdout, sys.stderr", "sys.stdout,")]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(call, cwd=tmp_path, env=variables, stdout=writing) as process, open(reading, "rb") as pipe:
        os.close(writing)
        # More than a pipe holds.
        assert pipe.read().splitlines() == [str(number).encode() for number in range(20_000)]
        assert process.wait(60) == 0
    assert reason(tmp_path) == "None"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("größer\t\n\r ∑ \U0001f600 \ufffd", "größer\t\n\r ∑ \U0001f600 \ufffd"),
        ("\x00\x1b\x7f", "\\x00\\x1b\\x7f"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
        ("\ud800 \udcff", "\\ud800 \\udcff"),
    ],
)
def test_what_cannot_be_represented_is_escaped(text, expected):
    assert representable(text) == expected


def test_every_character_can_be_read_back():
    root = ET.Element("root")
    root.text = representable("".join(map(chr, range(0x11000))).replace("\r", ""))
    assert ET.fromstring(ET.tostring(root, encoding="utf-8")).text == root.text
