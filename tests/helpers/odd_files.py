"""Files with odd values: every mutation of a small valid file of JSON, or of the last line of one of JSON Lines."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from typing import Any

#: What each value is replaced by, as the file spells it.
VALUES = {
    "NaN": "NaN",
    "infinity": "-Infinity",
    "1e999": "1e999",
    "0": "0",
    "-1": "-1",
    "half": "0.5",
    "1.0": "1.0",
    "true": "true",
    "text": '"x"',
    "a quote": '"\\"\\\\\\n"',
    "a surrogate": '"\\udc80"',
    "null": "null",
    "a list": "[]",
    "a mapping": "{}",
    "10**30": "1" + "0" * 30,
    "thousands of digits": "9" * 5000,
    "nested": "[" * 5000 + "]" * 5000,
}
_RAW, _TWICE = "@raw@", "@twice@"


def mutated(text: str, *, lines: bool = False, values: Iterable[str] = tuple(VALUES)) -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of every mutation of a file; with `lines`, of its last line."""
    *before, last = text.splitlines() if lines else [text]
    front = "".join(f"{line}\n" for line in before)
    found = json.loads(last)

    def spelled(value: Any) -> str:
        if lines:
            return front + json.dumps(value, ensure_ascii=False) + "\n"
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    for steps in list(_steps(found)):
        name = ".".join(map(str, steps)) or "all"
        for word in values:
            changed = _set(found, steps, _RAW)
            yield f"{name} is {word}", spelled(changed).replace(f'"{_RAW}"', VALUES[word]).encode()
        if steps:
            *above, key = steps
            holder = copy.deepcopy(found)
            parent = _at(holder, above)
            value = parent[key]
            if isinstance(parent, dict):
                parent[f"{_TWICE}{key}"] = value
                yield f"{name} twice", spelled(holder).replace(_TWICE, "").encode()
                del parent[f"{_TWICE}{key}"]
                parent[f"{key}_"] = value
                del parent[key]
                yield f"{name} renamed", spelled(holder).encode()
                del parent[f"{key}_"]
            else:
                parent.insert(key, value)
                yield f"{name} twice", spelled(holder).encode()
                del parent[key : key + 2]
            yield f"{name} deleted", spelled(holder).encode()
    whole = spelled(found).encode()
    for part in range(16):
        yield f"cut after {part} parts of 16", whole[: len(whole) * part // 16]
    yield "a byte less", whole[:-1]
    yield "two bytes less", whole[:-2]
    yield "a byte-order mark", b"\xef\xbb\xbf" + whole
    yield "two byte-order marks", b"\xef\xbb\xbf\xef\xbb\xbf" + whole
    yield "CRLF", whole.replace(b"\n", b"\r\n")
    yield "UTF-16", whole.decode().encode("utf-16")
    yield "binary", bytes(range(256))
    yield "Latin-1", whole.replace(b"e", "é".encode("latin-1"), 1)
    yield "Latin-1 at the end", whole + b"\xe9\n"
    yield "more after the end", whole + b"]\n"
    yield "NUL", whole.replace(b",", b"\0", 1)


def _steps(value: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value, the whole first."""
    yield before
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in entries:
        yield from _steps(below, (*before, key))


def _at(value: Any, steps: list[str | int] | tuple[str | int, ...]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _set(value: Any, steps: tuple[str | int, ...], new: Any) -> Any:
    if not steps:
        return new
    changed = copy.deepcopy(value)
    _at(changed, steps[:-1])[steps[-1]] = new
    return changed
