"""Reading YAML: the scalars of the 1.2 core schema, positions, and files that are no spec at all."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import yaml.nodes

from generator.language import document
from generator.language.document import compose, plain, rounded_away, scalar
from generator.language.errors import SpecError
from generator.language.spec import read
from tests.helpers.support import BASE, mistakes_of, read_text


def node(text: str) -> yaml.nodes.Node:
    return compose(Path("spec.yaml"), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Booleans of YAML 1.1 that are text in 1.2.
        ("off", "off"),
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("y", "y"),
        ("tRuE", "tRuE"),
        # The booleans and nulls of the core schema.
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("NULL", None),
        # A leading zero is no octal; octal is written 0o.
        ("010", 10),
        ("-07", -7),
        ("+12", 12),
        ("0o17", 15),
        ("0xff", 255),
        ("0b11", "0b11"),
        ("-0x1", "-0x1"),
        # No separators, no base 60, no dates.
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2001-12-14", "2001-12-14"),
        # Floats, among them one that YAML 1.1 reads as text.
        ("1e-3", 1e-3),
        ("1E3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        (".", "."),
        ("e3", "e3"),
        ("1e", "1e"),
        # What is quoted or folded is text.
        ("'010'", "010"),
        ('"true"', "true"),
        ("|\n  12", "12"),
        # Other digits of Unicode are no numbers.
        ("\u0661\u0662", "\u0661\u0662"),
        # int() would refuse to read, or take forever; no key takes such a number.
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalar(text: str, value: object) -> None:
    found = node(text)
    assert isinstance(found, yaml.nodes.ScalarNode)
    assert scalar(found) == value and type(scalar(found)) is type(value)


def test_nan_is_a_float() -> None:
    assert math.isnan(plain(node(".NaN")))  # type: ignore[arg-type]


def test_an_absent_value_is_null() -> None:
    (pair,) = node("key:").value
    assert plain(pair[1]) is None


TOO_DEEP = "not a spec: nested too deeply"
NOT_A_MAPPING = (
    "spec: expected a mapping with the keys summary, name, layout, dtype, batch, epilogue, masking, swizzle, schedule, "
    "load, store, product, rounding, math, result, tile, select, backward, invariant, package, with, backends, tuned, "
    "targets, triton, ops, exclude, header, found "
)


COLUMNS = "begin the keys of a mapping, and the entries of a list, in one column"
KEY = "write 'key: value', with a space after the colon"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", "1:1: the file is empty; a spec needs summary, layout and dtype", id="empty"),
        pytest.param(b" \n\n", "1:1: the file is empty; a spec needs summary, layout and dtype", id="blank"),
        pytest.param(b"# x\n", "1:1: the file is empty; a spec needs summary, layout and dtype", id="comment"),
        pytest.param(b"null\n", f"1:1: {NOT_A_MAPPING}null", id="null"),
        pytest.param(b"some words\n", f"1:1: {NOT_A_MAPPING}'some words'", id="text"),
        pytest.param(b"\xff\xfes\0", "1:1: not UTF-8 text", id="UTF-16"),
        pytest.param(b"a: b\nc: caf\xe9\n", "2:1: not UTF-8 text", id="latin-1"),
        pytest.param(b"a: \xed\xa0\x80\n", "1:1: not UTF-8 text", id="lone surrogate"),
        pytest.param(b"a: b\nc: d\0e\n", "2:5: the character U+0000 is not allowed in YAML", id="NUL"),
        pytest.param(b"a: b\n\nc: \x07\n", "3:4: the character U+0007 is not allowed in YAML", id="bell"),
        pytest.param(b"a: \x7f\n", "1:4: the character U+007F is not allowed in YAML", id="delete"),
        pytest.param("a: \U0001f600 \x01\n".encode(), "1:6: the character U+0001 is not allowed in YAML", id="astral"),
        pytest.param(
            b"a: b\n---\nc: d\n",
            "2:1: not YAML: expected a single document in the stream but found another document",
            id="two documents",
        ),
        pytest.param(
            b"---\n---\na: b\n",
            "2:1: not YAML: expected a single document in the stream but found another document",
            id="an empty document first",
        ),
        pytest.param(
            b"a: b: c\n",
            "1:5: not YAML: mapping values are not allowed here; quote a text that has ': ' in it",
            id="colon in a value",
        ),
        pytest.param(
            b"a: [1\n",
            "2:1: not YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'; "
            "the '[' that line 1 opens is not closed by ']'",
            id="open list",
        ),
        pytest.param(
            b'a: "x\n',
            "2:1: not YAML: while scanning a quoted scalar found unexpected end of stream; "
            "the quote that line 1 opens is not closed",
            id="open quote",
        ),
        pytest.param(
            b"a: 1\n\tb: 2\n",
            "2:1: not YAML: while scanning for the next token found character '\\t' that cannot start any token; "
            "indent with spaces, not with tabs",
            id="tab",
        ),
        pytest.param(
            b"%YAML 2.0\n---\na: b\n",
            "1:1: not YAML: found incompatible YAML document (version 1.* is required)",
            id="YAML 2",
        ),
        pytest.param(
            b"a: 1\nb: *y\n",
            "2:4: not YAML: found undefined alias 'y'; quote a text that begins with '*'",
            id="no such anchor",
        ),
        pytest.param(
            b"summary: !!python/object/apply:os.system [id]\n",
            "1:10: tags are not part of the spec language, found '!!python/object/apply:os.system'",
            id="a tag that makes an object",
        ),
        pytest.param(
            b"a: b\nc: !mine d\n", "2:4: tags are not part of the spec language, found '!mine'", id="a tag of its own"
        ),
        pytest.param(b"ops: " + b"[" * 17 + b"]" * 17, f"1:22: {TOO_DEEP}", id="17 lists"),
        pytest.param(b"ops: " + b"[" * 5000 + b"]" * 5000, f"1:1: {TOO_DEEP}", id="5000 lists"),
        pytest.param(b"".join(b" " * i + b"a:\n" for i in range(2000)), f"1:1: {TOO_DEEP}", id="2000 mappings"),
    ],
)
def test_no_spec_at_all(data: bytes, expected: str) -> None:
    assert mistakes_of(data) == [f"family.yaml:{expected}"]


def test_every_tag_is_a_mistake() -> None:
    found = mistakes_of(b"summary: !!python/name:x s\nlayout: !!set {rcr}\ndtype: !foo fp16\n")
    told = "tags are not part of the spec language, found"
    assert found == [
        f"family.yaml:1:10: {told} '!!python/name:x'",
        f"family.yaml:2:9: {told} '!!set'",
        f"family.yaml:3:8: {told} '!foo'",
    ]


REST = "layout: rcr\ndtype: fp16\n"


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("exclude:\n\t- {a: b}\n", "2:1", "indent with spaces, not with tabs"),
        ("layout: rcr\n\tdtype: fp16\n", "2:1", "indent with spaces, not with tabs"),
        ("ops:\n  f:\n\t  formula: x\n", "3:1", "indent with spaces, not with tabs"),
        ("layout:\trcr\n", "1:8", "separate by spaces, not by tabs"),
        (f"summary: x: y\n{REST}", "1:11", "quote a text that has ': ' in it"),
        ("summary: fast:\n", "1:14", "quote a text that has ': ' in it"),
        ("ops:\n  f: {formula: x > 0: y}\n", "2:21", "quote a text that has ': ' in it"),
        *(
            (f"summary: {text}\n", f"1:{column}", f"quote a text that begins with {text[0]!r}")
            for text, column in [
                *(("@x", 10), ("`x` y", 10), ("%x", 10), ("*x", 10), ("& x", 11), ("|x", 11), ("> 3", 12), ("- x", 10)),
                *((", x", 10), ("] x", 10), ("} x", 10), ("? x", 10), ("[a] b", 14), ("{a} b", 14)),
            ]
        ),
        (f"summary: 'x\n{REST}", "4:1", "the quote that line 1 opens is not closed"),
        ('a: 1\nb:\n  c: "x\n', "4:1", "the quote that line 3 opens is not closed"),
        ("summary: 'it's fine'\n", "1:14", "quote the whole text, with double quotes if it has ' in it"),
        ('summary: "a "b" c"\n', "1:14", 'quote the whole text, with single quotes if it has " in it'),
        ('header: "C:\\dir"\n', "1:13", r"write a backslash as \\, or put the text in single quotes"),
        ("layout: [rcr, rrr\ndtype: fp16\n", "2:6", "the '[' that line 1 opens is not closed by ']'"),
        ("dtype: {a: fp16\nlayout: rcr\n", "2:7", "the '{' that line 1 opens is not closed by '}'"),
        ("dtype: {a: fp16]\n", "1:16", "the '{' that line 1 opens is not closed by '}'"),
        (
            "epilogue: [[{clamp: {min: 0 max: 6}}]]\n",
            "1:32",
            "a comma is missing before 'max', or quote a text that has ': ' in it",
        ),
        ("layout: rcr\n  dtype: fp16\n", "2:8", f"{COLUMNS}, and {KEY}"),
        ("layout:rcr\ndtype: fp16\n", "2:6", f"{COLUMNS}, and {KEY}"),
        ("layout: rcr\ndtype:fp16\n", "3:1", f"line 2: {KEY}"),
        ("layout: rcr\ndtype fp16\nmasking: mnk\n", "3:1", f"line 2: {KEY}"),
        ("dtype:\n    a: fp16\n  b: fp16\n", "3:3", COLUMNS),
        ("tile:\n  - {m: 1}\n - {m: 2}\n", "3:2", COLUMNS),
        ("<<<<<<< HEAD\nlayout: rcr\n=======\n", "2:7", "the file has the marks of a merge that was not ended"),
    ],
)
def test_a_frequent_mistake_in_yaml_has_a_hint(text: str, place: str, hint: str) -> None:
    (told,) = mistakes_of(text)
    assert told.startswith(f"family.yaml:{place}: not YAML: ") and told.endswith(f"; {hint}"), told


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", "is a folder, not a file"), ("absent.yaml", "cannot be read: No such file or directory")],
)
def test_no_file(tmp_path: Path, path: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path / path)
    assert str(caught.value) == f"{tmp_path / path}:1:1: {expected}"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xef\xbb\xbf" + BASE.encode(), id="byte order mark"),
        pytest.param(BASE.replace("\n", "\r\n").encode(), id="CR LF"),
        pytest.param(b"---\n" + BASE.encode() + b"...\n", id="document markers"),
        pytest.param(b"{summary: A product., layout: rcr, dtype: fp16}", id="flow style"),
    ],
)
def test_other_spellings_of_one_spec(data: bytes) -> None:
    plain_spec = read_text(BASE)
    assert read_text(data).axes == plain_spec.axes and read_text(data).summary == plain_spec.summary


def test_places_count_lines_of_a_file_with_crlf() -> None:
    assert mistakes_of(BASE.replace("\n", "\r\n") + "name: 5\r\n")[0].startswith("family.yaml:4:7:")


def test_an_alias_stands_for_its_anchor() -> None:
    spec = read_text("summary: &text A product.\nlayout: rcr\ndtype: fp16\nheader: *text\n")
    assert spec.header == ("A product.",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dtype: &d {a: *d}", "3:15"),
        ("dtype: fp16\nepilogue: &e [bias, *e]", "4:21"),
        ("dtype: fp16\nexclude: &e [{masking: auto, because: *e}]", "4:39"),
        ("dtype: fp16\nops: &o {o: *o}", "4:13"),
        ("dtype: fp16\nops: &o {? *o : 1}", "4:12"),
    ],
)
def test_a_cycle_of_aliases_is_refused(text: str, expected: str) -> None:
    message = "not a spec: an alias stands for a node that it is part of"
    assert mistakes_of(f"summary: x\nlayout: rcr\n{text}\n") == [f"family.yaml:{expected}: {message}"]


def laughs(count: int, times: int) -> str:
    """Lists of which each has the one before it so many times."""
    return "&l0 [ha]\n" + "".join(f"  - &l{i} [{', '.join([f'*l{i - 1}'] * times)}]\n" for i in range(1, count))


def test_an_alias_counts_as_what_it_stands_for() -> None:
    """By the number of nodes, so that a short file takes no longer than a long one."""
    (line,) = mistakes_of(f"{BASE}exclude:\n  - {laughs(500, 9)}")
    place, _, message = line.partition(": ")
    assert message == "not a spec: more than 100,000 nodes, where an alias counts as what it stands for"
    # 2 * 9**5 nodes are more than that, 2 * 9**4 are not.
    assert place.startswith("family.yaml:10:")
    lines = mistakes_of(f"{BASE}exclude:\n  - {laughs(4, 9)}")
    assert len(lines) == 4 and all(": exclude: expected a mapping with the keys " in line for line in lines)


def test_a_tree_is_read_no_further_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "LARGEST_TREE", 20)
    loaders = []

    class Counting(document._Loader):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            loaders.append(self)

    monkeypatch.setattr(document, "_Loader", Counting)
    with pytest.raises(SpecError, match="more than 20 nodes"):
        node("[" + "x, " * 10_000 + "]")
    assert loaders[0].count == 21


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'summary: "\U00110000"', "1:13: not YAML: an escape or a number that stands for nothing"),
        (r'summary: "\UFFFFFFFF"', "1:13: not YAML: an escape or a number that stands for nothing"),
        (f"%YAML 1.{'9' * 5000}\n---\na: b", "1:9: not YAML: an escape or a number that stands for nothing"),
        (r'summary: "\ud800"', "1:10: the character U+D800 is not allowed in YAML"),
        ('a: b\n"\\udfff": c', "2:1: the character U+DFFF is not allowed in YAML"),
    ],
)
def test_an_escape_of_no_character(text: str, expected: str) -> None:
    assert mistakes_of(text) == [f"family.yaml:{expected}"]


@pytest.mark.parametrize("text", ["1e999", "-1e400", "1e-400", "-2.5E-400", ".1e-999"])
def test_a_number_that_no_float_has_is_found(text: str) -> None:
    assert rounded_away(node(text))


@pytest.mark.parametrize(
    "text", ["0", "0e5", "0.0e-999", ".inf", "-.inf", ".nan", "1e-300", "'1e999'", "[]", "1e", "5"]
)
def test_a_number_that_a_float_has_is_taken(text: str) -> None:
    assert not rounded_away(node(text))


def test_files_that_are_no_specs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with (tmp_path / "large.yaml").open("wb") as file:
        # No block of the disk is used for it.
        file.truncate(5 << 30)
    (tmp_path / "folder.yaml").mkdir()
    for path, reason in [
        (tmp_path / "pipe.yaml", "is a device or a pipe, not a file"),
        (tmp_path / "folder.yaml", "is a folder, not a file"),
        (Path("/dev/zero"), "is a device or a pipe, not a file"),
        (tmp_path / "large.yaml", "has more than 4,194,304 bytes, and at most so many are read"),
    ]:
        with pytest.raises(SpecError) as caught:
            read(path)
        assert str(caught.value) == f"{path}:1:1: {reason}"
        spec = f"{BASE}select: table\ntuned: {path}\n"
        if path.name != "large.yaml":
            (line,) = mistakes_of(spec)
            assert line.startswith("family.yaml:5:8: tuned: ")
            assert line.endswith(f", relative to the spec, cannot be read: {reason}")


@pytest.mark.parametrize("name", ["a\nb.yaml", "a\x1b[31m.yaml", "a\udcff.yaml", "a\u2028.yaml", "a\0.yaml"])
def test_a_mistake_is_one_line_whatever_the_files_name(tmp_path: Path, name: str) -> None:
    if "\0" not in name:
        (tmp_path / name).write_text("x")
    with pytest.raises(SpecError) as caught:
        read(tmp_path / name)
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.mistakes) and all(line.isprintable() for line in lines)
    assert str(caught.value).encode()
