"""What is wrong with the text of one rendered file: its encoding, characters, digests, syntax, imports and tables."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from generator.emit.kernel_names import ROLES, by_role
from generator.emit.manifest_reader import Rendered
from generator.emit.render import stated_and_actual_digest
from generator.files.reading import FileError, read_bytes, with_unix_lines
from generator.plan.claims import waits
from generator.plan.kernels import Kernel
from generator.verify.jobs import Failure
from generator.verify.manifest_configurations import tables

#: The packages that a rendered file may import besides Python's standard library.
_PACKAGES = frozenset({"torch", "triton"})
#: What a module of the library imports besides, which the rest of a family does without.
_MORE = {"torchao_weights.py": {"torchao"}}
#: The modules of Python's standard library.
_STANDARD = sys.stdlib_module_names
#: Controls, bidirectional marks and other characters that have no glyph, parts of pairs, and Unicode's line endings.
#: A carriage return alone ends a line for Python, but not in all editors.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_READ = "a kernel reads every operand and its strides"
_WAITED = "a step waits for its product where the matrix unit reads registers"
_RENDERED, _LISTED = "the file is as it was rendered", "the file is as the manifest lists it"
_EDITED = "was edited since it was rendered; keep the edit elsewhere, then render the family again with --force"
_REFUSED = "no character is hidden or reorders a line"


@dataclass(frozen=True)
class Text:
    """What is wrong with the text of a file, and whether it is Python."""

    failures: tuple[Failure, ...]
    parsed: bool = False
    #: Whether it has the layout of its template: nobody has edited or formatted it.
    rendered: bool = False


def check(file: Path, family: Rendered | None = None) -> Text:
    """What is wrong with a file of `family`, which its manifest lists; None if there is no manifest."""
    try:
        data = with_unix_lines(read_bytes(file))
    except FileNotFoundError:
        again = "does not exist, but the family's manifest lists it; render the family again"
        return Text((Failure("manifest", "every file that the manifest lists is there", f"{file} {again}"),))
    except FileError as error:
        return Text((Failure("manifest", "every file that the manifest lists can be read", str(error)),))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Text((Failure("encoding", "the file is UTF-8 text", f"line {line} is not UTF-8"),))
    failures = tuple(Failure(*words) for words in _failures(file, data, text, family))
    stated, actual = stated_and_actual_digest(text)
    return Text(failures, parsed=not any(failure.case == "parse" for failure in failures), rendered=stated == actual)


def _failures(file: Path, data: bytes, text: str, family: Rendered | None) -> Iterator[tuple[str, str, str]]:
    kernel = None if family is None else family.by_name.get(file.stem)
    yield from _hidden(text)
    if family is None or not family.recorded.has(file.relative_to(family.folder).as_posix(), text):
        yield from _edited(text, family, kernel)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield "parse", "the file is Python", str(error) or type(error).__name__
        return
    yield from _encoding(data)
    if not text.isascii():
        yield from _not_ascii(text, tree)
    others = sorted(_imports(tree) - _PACKAGES - _STANDARD - _MORE.get(file.name, set()))
    if others:
        yield "imports", "the file needs only torch, triton and Python", f"it imports {', '.join(others)}"
    if family is not None and kernel is not None:
        yield from _tables(tree, tables(kernel, alone=family.package == "files"))
        yield from unread(tree)
        yield from not_waited(tree) if waits(kernel.variant) else ()


def _edited(text: str, family: Rendered | None, kernel: Kernel | None) -> Iterator[tuple[str, str, str]]:
    """A failure if the text is not as it was rendered: what its own digest shows, or else those of the manifest."""
    stated, actual = stated_and_actual_digest(text)
    if stated is None:
        yield "digest", _RENDERED, "it does not state the digest of its text, as every rendered file does"
    elif stated != actual:
        yield "digest", _RENDERED, f"the text below the digest that the file states {_EDITED}"
    elif family is not None and kernel is not None and actual != family.digests[kernel.name]:
        yield "manifest", _LISTED, f"it does not list this text, which, with its digest, {_EDITED}"
    elif family is not None:
        yield "manifest", _LISTED, f"a line above its digest, or the digest itself, {_EDITED}"


def _hidden(text: str) -> Iterator[tuple[str, str, str]]:
    """A failure if a character is a control, or has no glyph: it could make code look like other code."""
    hidden = (position for position, c in enumerate(text) if c not in "\n\t" and unicodedata.category(c) in _HIDDEN)
    position = None if text.replace("\n", "").replace("\t", "").isprintable() else next(hidden, None)
    if position is not None:
        line = text.count("\n", 0, position) + 1
        yield "characters", _REFUSED, f"line {line} has the control character U+{ord(text[position]):04X}"


def _encoding(data: bytes) -> Iterator[tuple[str, str, str]]:
    """A failure if the first lines name an encoding by which Python would read another text."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:
        encoding = str(error)
    if encoding != "utf-8":
        yield "encoding", "the file is UTF-8 text", f"its first lines name another encoding: {encoding}"


def _not_ascii(text: str, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """A failure if a character outside comments and docstrings is not ASCII."""
    documented = {(node.lineno, node.col_offset) for node in _docstrings(tree)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.isascii() or token.type == tokenize.COMMENT or token.start in documented:
            continue
        reason = "only comments and docstrings have characters that are not ASCII"
        yield "ascii", reason, f"line {token.start[0]} is not ASCII"
        return


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            match node.body:
                case [ast.Expr(ast.Constant(str()) as constant), *_]:
                    yield constant


def _imports(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports, without relative imports."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.partition(".")[0])
    return modules


def _tables(tree: ast.Module, listed: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """A failure for each table of the file that differs from the manifest."""
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in listed
    }
    for name, table in listed.items():
        text = ast.unparse(assigned[name]) if name in assigned else None
        if text != repr(table):
            yield "manifest", "the file's tables match the manifest", f"{name} is {text}, not {table!r}"


def unread(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """A failure for each operand, or stride of one, that a kernel has as a parameter and does not read.

    Sizes, which have capital letters, and constants matter only to kernels with masks.
    """
    for kernel in _kernels(tree):
        read = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for parameter in kernel.args.args:
            constant = parameter.annotation is not None or parameter.arg.isupper()
            if not constant and parameter.arg not in read:
                yield "operands", _READ, f"{kernel.name} does not read {parameter.arg}"


def not_waited(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """A failure for each loop with a product whose sum no later statement of the step uses.

    Where an asynchronous product of Hopper reads its rows from registers, the use makes the step wait for it.
    """
    for kernel in _kernels(tree):
        for loop in ast.walk(kernel):
            if isinstance(loop, (ast.For, ast.While)):
                for number, statement in enumerate(loop.body):
                    acc = _accumulator(statement)
                    if acc is not None and not _reads(loop.body[number + 1 :], acc):
                        message = f"line {statement.lineno}: no later statement of the step uses {acc}"
                        yield "waits", _WAITED, message


def _kernels(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions that are launched, named by what they do."""
    by_role(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ROLES:
            yield node


def _accumulator(statement: ast.stmt) -> str | None:
    """The sum that a statement adds a product of the matrix unit to, and does nothing else with; or None."""
    match statement:
        case ast.Assign([ast.Name(acc)], ast.Call(ast.Attribute(ast.Name("tl"), "dot"))):
            return acc
    return None


def _reads(statements: Sequence[ast.stmt], name: str) -> bool:
    nodes = (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)
