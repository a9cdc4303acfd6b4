"""Errors that name the contract that was called."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

#: The words for types in the names of contracts.
_WORDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
#: What to do where a family lacks what a word of the key `with` brings.
MISSING = "add {!r} to the key `with` of the spec"


def name_contract(error: Exception, name: str, *product: Any) -> None:
    """Make the text of a TypeError, ValueError or RuntimeError begin with the name of the contract that was called.

    `product`: its `a` and `b`; if another contract of the family takes their type, a TypeError names it. The error gets
    an attribute `unnamed`, its text without a name. Errors of their subclasses stay as they are.
    """
    if type(error) in (TypeError, ValueError, RuntimeError):
        # The error may come from another contract that this one called, and name it.
        marked: Any = error
        marked.unnamed = getattr(error, "unnamed", str(error))
        other = _of_type(name, {getattr(x, "dtype", None) for x in product}) if type(error) is TypeError else ""
        error.args = (f"{name}: {marked.unnamed}{other}",)


def _of_type(name: str, types: Collection[Any]) -> str:
    """The end of a message on a type: the contract of the same chain for operands of that type, if there is one."""
    parts, word = re.fullmatch(r"([a-z]+_)\w+?(_[rcs]{3}_\w+)", name), _WORDS.get(*types) if len(types) == 1 else None
    other = f"{parts[1]}{word}{parts[2]}" if parts and word else name
    family = sys.modules.get(__name__.rsplit(".", 2)[0])
    return f", or call {other}" if other != name and other in getattr(family, "_KERNELS", ()) else ""


def by_keyword(name: str, count: int, names: Iterable[str]) -> TypeError:
    """The error of a call of a contract with more than `count` operands without a keyword; `names` need one."""
    first = "a, b and offsets" if count > 2 else "a and b"
    return TypeError(f"{name}() takes {first} without a keyword, all others with one: {'=, '.join([*names, 'out'])}=")


def no_attribute(
    family: str, name: str, contracts: Collection[str], words: Mapping[str, str] | None = None
) -> Exception:
    """The error of a module that has no function `name`, which is what a similar one is misspelt as.

    `words`: what the family has where the key `with` of its spec has a word, by the name of the attribute.
    """
    own = next((each for each in contracts if _spelled(each) == _spelled(name)), None)
    own = own or next((each for each in contracts if _letters(each) == _letters(name)), None)
    # A name that is only similar computes something else.
    others = ", ".join(difflib.get_close_matches(name, contracts, 3, 0.8)) if "__" not in name else ""
    hint = f"; did you mean {own!r}?" if own else f"; it has {others}" * bool(others)
    hint = f"; {MISSING.format(words[name])}" if words and name in words else hint
    # An import replaces the text of an AttributeError by its own.
    if hint and sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap":
        return ImportError(f"cannot import name {name!r} from {family!r}{hint}", name=family)
    return AttributeError(f"module {family!r} has no attribute {name!r}{hint}")


def _spelled(name: str) -> str:
    """A name of a contract without underscores, which it has none of where a spec's word has."""
    return name.replace("_", "")


def _letters(name: str) -> list[str]:
    """The parts of a name, each with its letters in order but for a layout, so that letters in another order count."""
    return [part if re.fullmatch("[rcs]{3}", part) else "".join(sorted(part)) for part in name.split("_")]


#: Why a transform of torch.func has no derivative.
NO_TRANSFORM = "torch.func.grad, vjp and jacrev do not reach operators of torch; use torch.autograd"

#: Why torch.func.functionalize refuses a call.
NOT_FUNCTIONAL = "torch.func.functionalize takes no operator that fills a tensor it is given: call it without `out`"


def of_transform(error: Exception) -> bool:
    """Whether it is torch's error that transforms of torch.func do not reach an operator's gradients."""
    return isinstance(error, RuntimeError) and "functorch transforms" in str(error)
