"""A new spec with a comment for each key, and the schema for editors beside it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.emit.advice import argument
from generator.emit.apply import Refused, text_of
from generator.files.program import program
from generator.language import schema
from generator.language.errors import CallError, SpecError, shown
from generator.language.keys import KEYS
from generator.language.model import Layout, Spec, word_of
from generator.language.spec import decoded
from generator.language.targets import DEFAULT_TARGETS
from generator.language.traced_formula import imported_operation
from generator.language.vocabulary import CHOICES, DEFAULTS, LAYOUT_LETTERS, OPEN_AXES, WORDS
from generator.plan.families import families

#: The options of the command that are keys of the spec, in its order, with their defaults.
GIVEN = {
    "layout": "rcr",
    "dtype": "bf16",
    "epilogue": DEFAULTS["epilogue"],
    "select": DEFAULTS["select"],
    "targets": f"[{', '.join(DEFAULT_TARGETS)}]",
}
#: A Python function in an epilogue; YAML has a space behind a colon.
_FUNCTION = re.compile(r"\b([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def create(name: str, given: dict[str, str], summary: str | None) -> None:
    """Write the spec and the schema, and print what was written.

    `given` has a value for each key in `GIVEN`. Raises `CallError` for a wrong value, `Refused` for a file in the way.
    """
    if not name.isprintable():
        raise CallError(f"new: {shown(name)} has a character that cannot be printed; choose another name")
    path = Path(name if name.endswith(".yaml") else f"{name}.yaml")
    if path.exists():
        raise Refused(f"{path}: is there already, and is never overwritten; choose another name")
    if imported := {name: imported_operation(module, name) for module, name in _FUNCTION.findall(given["epilogue"])}:
        # JSON is YAML, but for an infinity.
        ops = json.dumps(imported).replace("Infinity", ".inf")
        given = {**given, "epilogue": _FUNCTION.sub(r"\2", given["epilogue"]), "ops": ops}
    text = _checked(path, given, summary)
    _create(path, text)
    print(f"{path}: created")
    beside = path.with_name(schema.FILE)
    if not beside.exists():
        _create(beside, schema.text())
        print(f"{beside}: created, for editors")
    elif text_of(beside) != schema.text():
        command = f"{program()} schema > {shlex.quote(str(beside))}"
        print(f"{beside}: kept; to renew it: {command}", file=sys.stderr)
    named = shlex.quote(argument(path))
    print(f"\nNext:\n  {program()} {named}\n  {program()} verify {named}")


def _checked(path: Path, given: dict[str, str], summary: str | None) -> str:
    """The text of the spec; raises `CallError` with all mistakes if it would not be rendered."""
    summary = None if summary is None else decoded(summary)
    for key, value in (*given.items(), ("summary", summary or "")):
        if not value.isprintable():
            raise CallError(f"new: --{key}: expected one line without control characters, found {value!r}")
    with TemporaryDirectory() as folder:
        draft = Path(folder) / path.name
        try:
            # The summary names what was read, so it is written after a first reading.
            draft.write_text(_text(given, "Draft."), encoding="utf-8")
            (family,) = families([draft])
            text = _text(given, summary if summary is not None else _summary(family.spec))
            draft.write_text(text, encoding="utf-8")
            families([draft])
        except SpecError as error:
            raise CallError("\n".join(f"new: {mistake.message}" for mistake in error.mistakes)) from None
    return text


def _summary(spec: Spec) -> str:
    """One line that names the product."""
    layout, *others = spec.axes["layout"]
    assert isinstance(layout, Layout)
    sides = zip("ABC", (layout.a, layout.b, layout.c))
    sides_text = [f"{name} {side}{'' if side == 'strided' else '-major'}" for name, side in sides]
    where = "in several layouts" if others else ", ".join(sides_text)
    types, chains = (" or ".join(map(word_of, spec.axes[axis])) for axis in ("dtype", "epilogue"))
    return f"{types} GEMM, {where}{'' if chains == DEFAULTS['epilogue'] else f', with epilogue {chains}'}."


def _text(given: dict[str, str], summary: str) -> str:
    """The spec: what was given, and every other key as a comment with its default."""
    lines = [
        schema.MODELINE,
        "# A family of GEMM kernels: a scalar fixes an axis, a list varies it; the family is the product of all axes.",
        f"summary: {json.dumps(summary, ensure_ascii=False)}",
    ]
    letters = ", ".join(f"{letter} {word}" for letter, word in LAYOUT_LETTERS.items())
    for key, value in given.items():
        comment = f"{KEYS[key].meaning}: {letters}" if key == "layout" else _comment(key)
        lines += ["", f"# {comment}", f"{key}: {value}"]
    lines += ["", "# Keys that may follow, with their defaults:"]
    measured = given["select"] == "fastest"
    for key in KEYS:
        if key in DEFAULTS and key not in given:
            comment = "; by measurements unless it is given" if measured and key in OPEN_AXES else ""
            lines += ["#", f"# {_comment(key)}{comment}", f"# {key}: {DEFAULTS[key]}"]
    return "\n".join([*lines, ""])


def _comment(key: str) -> str:
    """The meaning of a key, with its words."""
    words = {**WORDS, **CHOICES}.get(key, {})
    return f"{KEYS[key].meaning}{': ' if words else ''}{', '.join(words)}"


def _create(path: Path, text: str) -> None:
    """Write a new file; raises `Refused` if there is one, or if it cannot be written, and nothing is left then."""
    try:
        with path.open("xb") as file:
            try:
                file.write(text.encode())
                file.flush()
            except BaseException:
                path.unlink()
                raise
    except FileExistsError:
        raise Refused(f"{path}: is there already, and is never overwritten; choose another name") from None
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None
