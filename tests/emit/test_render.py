"""Rendered text: the same bytes everywhere, formatted, and no text of a spec ever code."""

import ast
import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generator.emit.divided_text import divided_digest
from generator.emit.file_digests import unformatted_digest
from generator.emit.package_files import package_names, package_source
from generator.emit.render import body_digest, environment, kernel_source
from generator.language.errors import SpecError
from generator.language.spec import read
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.support import (
    BASE,
    LIMITED,
    SPECS,
    assert_formatted,
    contents,
    family_of,
    mistakes_of,
    python,
    ruff,
    without_docstring,
)

#: One kernel of each kind of text: an epilogue, descriptors, a kernel of one element.
KINDS = "epilogue: [none, bias+add]\nload: [pointer, descriptor]\nschedule: [tiled, elementwise]\ntargets: [sm90]\n"
KINDS += "exclude:\n  - {schedule: elementwise, load: descriptor, because: impossible}\n"


def sources(family):
    names = [f"{kernel.name}.py" for kernel in family.kernels]
    texts = dict(zip(names, (kernel_source(family.spec, x) for x in family.kernels), strict=True))
    modules = [name for name in package_names(family) if name.endswith((".py", ".pyi"))]
    return {**texts, **{name: package_source(family, name) for name in modules}}


def quoted(text):
    """Any text as a YAML scalar in double quotes."""
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


# The same bytes everywhere.


def test_generated_is_what_the_specs_render():
    ran = python("-m", "generator", "--all", "--check")
    assert ran.returncode == 0, ran.stderr


def test_the_surroundings_leave_no_trace(tmp_path):
    surroundings = (
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "America/St_Johns"},
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8", "COLUMNS": "20"},
    )
    family = tmp_path / "family.yaml"
    family.write_bytes((BASE.replace("A product.", "Eine Übung, ∑.") + KINDS + "header: Ö\n").encode())
    found = []
    for number, variables in enumerate(surroundings):
        cwd = tmp_path / str(number)
        cwd.mkdir()
        spec = family if number % 2 else Path("..", "family.yaml")
        ran = python("-m", "generator", spec, "--out", "out", cwd=cwd, env=variables)
        assert ran.returncode == 0, ran.stderr
        found.append(contents(cwd / "out"))
    # One file more is for descriptors.
    assert len(found[0]) == 6 + LIMITED + 1 and all(other == found[0] for other in found[1:])


def test_no_machine_and_no_day_is_named():
    pattern = re.compile(rb"/work/|/home/|/tmp/|/usr/|\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b")
    texts = (each for folder in shipped.folders() for each in contents(folder).items())
    assert not [name for name, data in texts if pattern.search(data)]


# The text.


def test_every_file_is_formatted_and_clean():
    assert_formatted(*shipped.folders())
    options = ("--no-cache", "--isolated", "--select", "E,F,W,I", "--line-length", "120", "--ignore", "E501")
    checked = ruff("check", *options, *shipped.folders())
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_kernel_says_what_it_computes(path):
    family = expand(read(path))
    for kernel in family.kernels:
        # What is committed is what the spec renders, which the test above proves.
        head = (shipped.folder(path.stem) / f"{kernel.name}.py").read_text(encoding="utf-8").split('"""', 2)[:2]
        lines = (ast.get_docstring(ast.parse('"""'.join([*head, ""]))) or "").splitlines()
        assert lines[0] == f"C = {kernel.variant.epilogue.text}"
        summary = " ".join(family.spec.summary.split())
        assert summary in " ".join(lines)


def test_an_undefined_name_in_a_template_raises():
    made = environment()
    assert (made.trim_blocks, made.lstrip_blocks, made.keep_trailing_newline) == (True, True, True)
    for text in ("{{ nothing }}", "{% if k.nothing %}{% endif %}"):
        with pytest.raises(jinja2.UndefinedError):
            made.from_string(text).render(k=object())


# No text of a spec is code.

INNOCUOUS = sources(family_of(BASE + KINDS))
TREES = {name: without_docstring(text) for name, text in INNOCUOUS.items()}

#: Texts that a careless template would let out of its docstring or comment, each for its own reason.
HOSTILE = [
    *('x""" + __import__("os").getcwd() + """y', "x''' + y + '''", 'said "so"', 'said ""', 'said """', '"""said'),
    *("a path\\", "a path\\\\", 'a \\" b \\\\" c', "\\x22\\x22\\x22 \\N{QUOTATION MARK} \\u0022 \\r\\n"),
    *("# x", "{{ 7 * 7 }}{% raw %}{# x #}", "{0.__class__} %s %(x)s $x", "x" * 300, "seven words in a line, " * 20),
    # Spaces that are none of ASCII, and other scripts.
    *("a\u00a0b", "a\u3000b", "∑ Ünïcödé 😀 行列"),
    # What tools read in comments.
    *("fmt: off", "!/bin/sh", "type: ignore", "sha256 of the text below: 00", "noqa: E501 ruff: noqa", "/// script"),
]


@pytest.mark.parametrize(
    "file", ["x coding:latin-1.yaml", "coding=utf-7.yaml", "a\nimport os.yaml", "a\rimport os.yaml", "\u202e.yaml"]
)
def test_a_hostile_file_name_is_refused(file):
    lines = mistakes_of(f"{BASE}name: ok\n", file)
    assert len(lines) == 1 and f"{file}:1:1: the file's name" in lines[0]


@pytest.mark.parametrize(
    "file", ["a'b`; rm -rf $x.yaml", 'a"""b.yaml', "a\\.yaml", "# a.yaml", "{{ 7 }}.yaml", "ü.yaml"]
)
def test_an_odd_file_name_is_no_code(file):
    found = sources(family_of(f"{BASE}name: family\n{KINDS}", file))
    assert {name: without_docstring(text) for name, text in found.items()} == TREES
    assert all(text.startswith("# Generated by `python -m generator ") for text in found.values())


def assert_no_code(family):
    """Every file parses, is that of an innocuous spec but for its docstring, and says the summary where it has one."""
    found = sources(family)
    summary = " ".join(family.spec.summary.split(" "))
    for name, text in found.items():
        assert without_docstring(text) == TREES[name]
        docstring = ast.get_docstring(ast.parse(text), clean=False) or ""
        if name in ("nn.py", "inductor.py", "__init__.pyi") or re.match("_[a-z]", name):
            assert docstring == ast.get_docstring(ast.parse(INNOCUOUS[name]), clean=False)
        else:
            assert re.sub(" +", " ", summary) in re.sub("[ \n]+", " ", docstring)
        assert body_digest(text) is not None
        assert divided_digest(text, name.removesuffix(".py")) in (None, unformatted_digest(text))
        assert text.splitlines() == text.split("\n")[:-1]
        head = text.split("\n")[: len(family.spec.header)]
        assert head == [f"# {line}".rstrip() for line in family.spec.header]
    return found


def worded(summary, header):
    """A spec whose header, if there is one, is on line 10."""
    text = BASE.replace("A product.", quoted(summary)) + KINDS
    return text + f"header: {quoted(header)}\n" * bool(header)


# Half of what is tried is made of the pieces that break templates, half is any text at all.
PIECES = st.sampled_from(
    ['"', '"""', "'''", "\\", "#", "{{", "}}", "{%", "coding: x", "\n", " ", "a b", "\r", "\x85", "\u2028", "é"]
)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=12).map("".join), st.text(st.characters(exclude_categories=("Cs",)), max_size=80)
)


@pytest.mark.parametrize("examples", [60, pytest.param(600, marks=pytest.mark.drawn)])
def test_any_text_is_refused_or_no_code(examples, tmp_path):
    """What is rendered of it is formatted, too."""
    rendered = []

    def check(summary, header):
        try:
            family = family_of(worded(summary, header))
        except SpecError as error:
            assert {(m.line, m.column) for m in error.mistakes} <= {(1, 10), (10, 9)}
            assert all(m.message.startswith(("summary: ", "header: ")) for m in error.mistakes)
            return
        rendered.append(summary)
        for name, source in assert_no_code(family).items():
            path = tmp_path / str(len(rendered)) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.encode())

    for text in HOSTILE:
        check(text, "")
        check("A product.", text)
    assert len(rendered) == 2 * len(HOSTILE)
    settled = settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    settled(given(summary=TEXTS, header=TEXTS)(check))()
    assert len(rendered) > 2 * len(HOSTILE) + 10
    assert_formatted(tmp_path)


@pytest.mark.parametrize("package", ["torch", "plain", "files"])
def test_specs_may_define_operations_of_the_same_name(package, tmp_path):
    """Each is rendered as it would be alone, whichever comes first."""
    meanings = {"first": ("x + s", "N"), "second": ("x * s", "M"), "third": ("x - s", "N")}
    for name, (formula, size) in meanings.items():
        own = f'ops: {{shift: {{formula: "{formula}", operands: {{s: [{size}]}}}}}}\nepilogue: shift\n'
        (tmp_path / f"{name}.yaml").write_text(f"{BASE}package: {package}\nload: pointer\n{own}")
    for names in ("first second third", "third second first"):
        done = python("-m", "generator", *(f"{name}.yaml" for name in names.split()), "--out", names[:5], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for name in meanings:
        assert python("-m", "generator", f"{name}.yaml", "--out", "alone", cwd=tmp_path).returncode == 0
        for together in ("first", "third"):
            assert contents(tmp_path / together / name) == contents(tmp_path / "alone" / name)
