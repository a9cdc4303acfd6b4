"""What to write instead, for the mistakes that are frequent in YAML; the parser's own words name none of them."""

from __future__ import annotations

import re

import yaml

_COLUMNS = "begin the keys of a mapping, and the entries of a list, in one column"
_KEY = "write 'key: value', with a space after the colon"
#: A key, and what comes before its value.
_HEAD = re.compile(r"\s*(?:- +)*[^\s:#][^:#]*:\s+")


def hint(error: yaml.MarkedYAMLError, text: str) -> str:
    """What to do about a mistake that PyYAML has found in `text`; empty for one that is not frequent."""
    lines = text.splitlines()
    if any(re.match(r"(<{7}|>{7}) |={7}$", line) for line in lines):
        return "the file has the marks of a merge that was not ended"
    mark, problem = error.problem_mark, error.problem or ""
    if mark is None or "document" in problem:
        return ""
    line = lines[mark.line] if mark.line < len(lines) else ""
    before, character = line[: mark.column], line[mark.column : mark.column + 1]
    begun = "" if error.context_mark is None else f"line {error.context_mark.line + 1}"
    if "\t" in (character, before[:1]) or line[: len(line) - len(line.lstrip())].count("\t"):
        return "separate by spaces, not by tabs" if before.strip() else "indent with spaces, not with tabs"
    if problem.startswith("mapping values are not allowed"):
        return "quote a text that has ': ' in it" if _HEAD.match(before) else f"{_COLUMNS}, and {_KEY}"
    if "end of stream" in problem and "quoted scalar" in (error.context or ""):
        return f"the quote that {begun} opens is not closed"
    if problem.startswith("expected ',' or"):
        return _in_brackets(error, before, character, begun)
    if problem.startswith("expected <block end>"):
        return _after_value(before) or _COLUMNS
    if "could not find expected ':'" in problem:
        return f"{begun}: {_KEY}"
    if "unknown escape character" in problem:
        return r"write a backslash as \\, or put the text in single quotes"
    # What stands at the beginning of a value, and means something else than text there.
    value = line[head.end() :] if (head := _HEAD.match(line)) else line.lstrip()
    if value[:1] in set("@`%*&|>-?,]}!") and value:
        return f"quote a text that begins with {value[0]!r}"
    return ""


def _in_brackets(error: yaml.MarkedYAMLError, before: str, character: str, begun: str) -> str:
    """What to do where a list or a mapping in brackets does not go on."""
    mark = error.problem_mark
    assert mark is not None
    opened = "[" if "sequence" in (error.context or "") else "{"
    # `min: 0 max: 6` is read as a text that has ': ' in it.
    key = re.search(r"(?:^\s+|[\w'\"\]}]\s+)([A-Za-z_]\w*)\s*$", before)
    if character == ":" and key is not None:
        return f"a comma is missing before {key[1]!r}, or quote a text that has ': ' in it"
    if character in set("{['\"") and character:
        return "a comma is missing here"
    if character == ":" and error.context_mark is not None and error.context_mark.line == mark.line:
        return "quote a text that has ': ' in it"
    return f"the {opened!r} that {begun} opens is not closed by {']' if opened == '[' else '}'!r}"


def _after_value(before: str) -> str:
    """What to do about text behind a value that has ended; empty if nothing ended there."""
    last = before.rstrip()[-1:]
    if last in ("'", '"'):
        other = "double" if last == "'" else "single"
        return f"quote the whole text, with {other} quotes if it has {last} in it"
    if last in ("]", "}"):
        return f"quote a text that begins with {'[' if last == ']' else '{'!r}"
    return ""
