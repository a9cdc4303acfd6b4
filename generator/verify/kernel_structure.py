"""What a kernel's text must have, however it computes: every operand is read, and a step waits where it has to.

A kernel that does not read an operand's scales, its second tile or the size that masks it computes something else than
its contract, and one that does not wait may be right in every run but one. Both show in the syntax tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from generator.emit.kernel_names import ROLES, by_role

_READ = "a kernel reads every operand and its strides"
_WAITED = "a step waits for its product where the matrix unit reads registers"


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
    found = (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Load) for node in found)
