"""Reading YAML: the scalars of the 1.2 core schema, positions, and files that are no spec at all."""

import math
from pathlib import Path

import pytest
import yaml.nodes

from generator.language.document import compose, plain, rounded_away, scalar
from generator.language.errors import SpecError
from generator.language.spec import read
from tests.helpers.support import BASE, mistakes_of, read_text


def node(text):
    return compose(Path("spec.yaml"), text)


#: Booleans, numbers and dates of YAML 1.1 that are text in 1.2, other digits of Unicode, and what is nearly a number.
TEXTS = ["off", "on", "no", "yes", "y", "tRuE", "0b11", "-0x1", "1_000", "1:30:45", "2001-12-14", ".", "e3", "1e", "١٢"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in TEXTS),
        *(("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("NULL", None)),
        # A leading zero is no octal; octal is written 0o.
        *(("010", 10), ("-07", -7), ("+12", 12), ("0o17", 15), ("0xff", 255)),
        # Among them one that YAML 1.1 reads as text.
        *(("1e-3", 1e-3), ("1E3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-.inf", -math.inf)),
        # What is quoted or folded is text.
        *(("'010'", "010"), ('"true"', "true"), ("|\n  12", "12")),
        # int() would refuse to read, or take forever; no key takes such a number.
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalar(text, value):
    found = node(text)
    assert isinstance(found, yaml.nodes.ScalarNode)
    assert scalar(found) == value and type(scalar(found)) is type(value)


def test_nan_is_a_float_and_an_absent_value_is_null():
    assert math.isnan(plain(node(".NaN")))
    assert plain(node("key:").value[0][1]) is None


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        *((data, "1:1", "the file is empty") for data in (b"", b" \n\n")),
        *((b"\xff\xfes\0", "1:1", "not UTF-8 text"), (b"a: b\nc: caf\xe9\n", "2:1", "not UTF-8 text")),
        *((b"a: \xed\xa0\x80\n", "1:1", "not UTF-8 text"), (b"a: b\nc: d\0e\n", "2:5", "U+0000")),
        *((b"a: b\n\nc: \x07\n", "3:4", "U+0007"), (b"a: \x7f\n", "1:4", "U+007F")),
        ("a: \U0001f600 \x01\n".encode(), "1:6", "U+0001"),
        (b"%YAML 1." + b"9" * 5000 + b"\n---\na: b", "1:9", "a number that stands for nothing"),
        (b"ops: " + b"[" * 5000 + b"]" * 5000, "1:22", "nested too deeply"),
        (b"".join(b" " * i + b"a:\n" for i in range(2000)), "17:17", "nested too deeply"),
        (BASE.encode() + b"epilogue:\n", "4:10", "expected none, operations joined by +"),
        (f"{BASE}epilogue: [[{', '.join(['relu'] * 500)}]]\n".encode(), "4:12", "at most 100"),
        (f"{BASE}exclude: [{'{because: x}, ' * 1001}]\n".encode(), "4:14011", "at most 1,000"),
        (f"{BASE}tile: [{'{m: 16, n: 16, k: 16, warps: 1}, ' * 1001}]\n".encode(), "4:33008", "at most 1,000"),
        (f"{BASE}exclude: [{{masking: none, because: {'x' * 1001}}}]\n".encode(), "4:36", "at most 1000"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_text_that_is_none_or_too_much(data, place, words):
    told = [line for line in mistakes_of(data) if line.startswith(f"family.yaml:{place}: ")]
    assert any(words in line for line in told), mistakes_of(data)[:3]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + BASE.encode(),
        BASE.replace("\n", "\r\n").encode(),
        b"---\n" + BASE.encode() + b"...\n",
        b"{summary: A product., layout: rcr, dtype: fp16}",
        b"summary: &text A product.\nlayout: rcr\ndtype: fp16\nheader: *text\n",
    ],
    ids=["byte order mark", "CR LF", "document markers", "flow style", "alias"],
)
def test_other_spellings_of_one_spec(data):
    found, plain_spec = read_text(data), read_text(BASE)
    assert found.axes == plain_spec.axes and found.summary == plain_spec.summary
    assert b"*text" not in data or found.header == (plain_spec.summary,)


def test_places_count_lines_of_a_file_with_crlf():
    assert mistakes_of(BASE.replace("\n", "\r\n") + "name: 5\r\n")[0].startswith("family.yaml:4:7:")


def laughs(count, times):
    """Lists of which each has the one before it so many times."""
    return "&l0 [ha]\n" + "".join(f"  - &l{i} [{', '.join([f'*l{i - 1}'] * times)}]\n" for i in range(1, count))


def test_an_alias_counts_as_what_it_stands_for():
    """By the number of nodes, so that a short file takes no longer than a long one."""
    (line,) = mistakes_of(f"{BASE}exclude:\n  - {laughs(500, 9)}")
    place, _, message = line.partition(": ")
    assert message == "not a spec: more than 100,000 nodes, where an alias counts as what it stands for"
    # 2 * 9**5 nodes are more than that, 2 * 9**4 are not.
    assert place.startswith("family.yaml:10:")
    lines = mistakes_of(f"{BASE}exclude:\n  - {laughs(4, 9)}")
    assert len(lines) == 4 and all(": exclude: expected a mapping with the keys " in line for line in lines)


@pytest.mark.parametrize(
    ("texts", "found"),
    [("1e999 -1e400 1e-400 -2.5E-400 .1e-999", True), ("0 0e5 0.0e-999 .inf -.inf .nan 1e-300 '1e999' [] 1e 5", False)],
)
def test_a_number_that_no_float_has_is_found(texts, found):
    assert {rounded_away(node(text)) for text in texts.split()} == {found}


def test_files_that_are_no_specs(tmp_path):
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        # No block of the disk is used for it.
        file.truncate(5 << 20)
    with pytest.raises(SpecError, match=f"{large}:1:1: has more than 4,194,304 bytes, and at most so many are read"):
        read(large)
    device = (Path("/dev/zero"), "is a device or a pipe, not a file")
    for path, reason in (device, (tmp_path, "is a folder, not a file")):
        with pytest.raises(SpecError) as caught:
            read(path)
        assert str(caught.value) == f"{path}:1:1: {reason}"
        (line,) = mistakes_of(f"{BASE}select: table\ntuned: {path}\n")
        assert line.startswith("family.yaml:5:8: tuned: ")
        assert line.endswith(f", relative to the spec, cannot be read: {reason}")


@pytest.mark.parametrize("name", ["a\nb.yaml", "a\x1b[31m.yaml", "a\udcff.yaml", "a\u2028.yaml", "a\0.yaml"])
def test_a_mistake_is_one_line_whatever_the_files_name(tmp_path, name):
    if "\0" not in name:
        (tmp_path / name).write_text("x")
    with pytest.raises(SpecError) as caught:
        read(tmp_path / name)
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.mistakes) and all(line.isprintable() for line in lines)
    assert str(caught.value).encode()
