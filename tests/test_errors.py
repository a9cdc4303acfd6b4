"""Every message of the reader and of launchers has an entry in docs/errors.yaml, and every entry is of a message."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from generator.emit.job import RenderingJob
from generator.lowering.runtime_values import EXPORTS
from generator.plan.families import families
from tests.helpers.support import GENERATED, ROOT, pages

ERRORS: dict[str, list[dict[str, Any]]] = pages().ERRORS
EXAMPLES = [ROOT / "docs" / "examples" / f"{name}.yaml" for name in ("stored",)]
#: What a reader of specs calls with a message.
_CALLS = {"wrong", "Mistake", "FormulaError"}
#: The methods of rendered files that return the reason of a refusal.
_REASONS = {"reason", "misfit"}
#: Texts that another message of the list is put into, and that say nothing by themselves.
_FRAMES = {"…: …", "… …"}


def text(node: ast.AST) -> str:
    """A string as the code writes it, with `…` for what is put into it."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return re.sub("…+", "…", "".join(text(value) for value in values))
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text(left) + text(right)
    return "…"


def of_reader() -> Iterator[str]:
    """The messages about a spec: of its reading, its formulas and its expansion."""
    for package in ("language", "epilogue", "plan"):
        for path in sorted((ROOT / "generator" / package).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _CALLS:
                    yield from (text(each) for each in node.args)


@functools.cache
def of_launchers() -> frozenset[str]:
    """The messages that rendered files raise, or return as the reason of a refusal."""
    found = set()
    # The families of docs/examples have what no shipped family has.
    paths = [*GENERATED.glob("*/*.py"), *(ROOT / "generator" / "runtime").glob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    rendered = (RenderingJob(families([spec])[0], GENERATED).files({}) for spec in EXAMPLES)
    texts += [text for files in rendered for name, text in files if name.endswith(".py")]
    for source in texts:
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=[told, *_])) if name.endswith("Error"):
                    found.add(text(told))
                case ast.FunctionDef(name=name) if name in _REASONS:
                    returns = (each for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
                    found |= {text(each.value) for each in returns if each.value is not None}
    return frozenset(found)


def messages(entry: dict[str, Any]) -> list[str]:
    """The messages that an entry is about, as patterns with `…`."""
    found: list[str] = entry["match"] if "match" in entry else [entry["message"], *entry.get("also", ())]
    return found


def covers(pattern: str, message: str) -> bool:
    """Whether the parts of the pattern are in the message, in this order."""
    return re.search(".*".join(map(re.escape, pattern.strip("…").split("…"))), message, re.S) is not None


def told(message: str) -> bool:
    """Whether a text is a message by itself, and not a frame of others."""
    return message not in _FRAMES and len(re.sub(r"[\W_]", "", message)) > 3


@pytest.mark.parametrize("message", sorted({m for m in of_reader() if told(m)}))
def test_a_message_about_a_spec_has_an_entry(message: str) -> None:
    assert any(covers(pattern, message) for entry in ERRORS["spec"] for pattern in messages(entry))


def test_a_message_of_a_launcher_has_an_entry() -> None:
    entries = [*ERRORS["call"], *ERRORS["torch"]]
    patterns = [pattern for entry in entries for pattern in messages(entry)]
    left = [m for m in of_launchers() if told(m) and not any(covers(pattern, m) for pattern in patterns)]
    # Of a module without such an attribute, which the library asks for too, and of tensors of the family's own: no
    # caller meets them.
    own = ("module … has no attribute …", "make_tensordesc_arg", "… needs memory, which a stand-in does not have")
    assert sorted(set(left) - set(own)) == []


def test_a_condition_of_a_kernel_is_in_an_entry() -> None:
    """What the table of a call says of a condition becomes a part of the message."""
    parts = set()
    for path in GENERATED.glob("*/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in EXPORTS["limits"]:
                parts |= {word for each in node.args if " " in (word := text(each))}
    assert len(parts) > 8
    patterns = [pattern for entry in ERRORS["call"] for pattern in messages(entry)]
    left = [part for part in parts if not any(part in pattern or covers(pattern, part) for pattern in patterns)]
    assert sorted(left) == []


@functools.cache
def everything() -> str:
    """All texts of the generator and its templates."""
    found = []
    for path in sorted((ROOT / "generator").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [text(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)]
    found += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "templates").rglob("*.j2"))]
    return "\n".join(found)


@pytest.mark.parametrize("section", ERRORS)
def test_an_entry_is_of_a_message(section: str) -> None:
    for entry in ERRORS[section]:
        assert {"message", "cause", "do"} <= entry.keys() <= {"message", "also", "match", "exception", "cause", "do"}
        for pattern in messages(entry):
            parts = [part for part in pattern.split("…") if len(part.strip()) > 3]
            assert all(part in everything() or part in "\n".join(of_launchers()) for part in parts), pattern


def test_the_page_has_every_section() -> None:
    page = (Path(ROOT) / "docs" / "errors.md").read_text(encoding="utf-8")
    assert all(f"<!-- table: errors_{section} -->" in page for section in ERRORS)
