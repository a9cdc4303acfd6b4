"""The shape of a family's manifest, as a JSON Schema: what `generator.emit.manifest` writes, and nothing else.

What the values mean together is checked by `manifest_reader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, HALVES, MATRIX, OUT, ROWS, SCALAR
from generator.epilogue.quantisation import PER_BLOCK
from generator.files.checked_json import Schema
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.family_names import LONGEST_NAME, NAME
from generator.language.model import Tile
from generator.language.reader import LARGEST_NUMBER
from generator.language.targets import TARGETS
from generator.language.vocabulary import INVARIANT, PACKAGE, SELECT

#: The version of the manifest's format; others are refused.
VERSION = 1

_Schema = dict[str, Any]

_NAME = rf"^{NAME}$"
#: Text of one line, of which `manifest_reader` checks that it can be printed.
_LINE: _Schema = {"type": "string", "maxLength": 4000}
_SIZE: _Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST_NUMBER}
_COUNT: _Schema = {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER}
_MODULE = r"(_runtime/)?[A-Za-z_][A-Za-z0-9_]{0,245}\.pyi?"
_SHA256: _Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _one_of(words: Iterable[object]) -> _Schema:
    return {"enum": list(dict.fromkeys(words))}


def _object(properties: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None) -> _Schema:
    """A mapping with all of `properties`, perhaps some of `optional`, and nothing else."""
    every = {**properties, **(optional or {})}
    needed = {"required": list(properties)} if properties else {}
    return {"type": "object", "properties": every, "additionalProperties": False, **needed}


def _table(keys: str, value: _Schema, least: int = 0) -> _Schema:
    """A mapping whose keys match the pattern `keys`, which ends with `$`."""
    # Python's `$` is also in front of a last line end.
    keys = rf"{keys}(?!\n)"
    return {
        "type": "object",
        "patternProperties": {keys: value},
        "additionalProperties": False,
        "minProperties": least,
    }


def _list(item: _Schema, least: int = 0, *, distinct: bool = True) -> _Schema:
    return {"type": "array", "items": item, "minItems": least, "uniqueItems": distinct}


_SHAPE = _one_of((SCALAR, ELEMENT, ROWS, COLUMNS, MATRIX, HALVES, BOTH, OUT))
_TYPES = (*ELEMENTS, *FORMATS)
_TILE = _object(
    dict.fromkeys(("m", "n", "k", "warps"), _SIZE),
    {field.name: _SIZE for field in fields(Tile) if field.name not in ("m", "n", "k", "warps")},
)
#: What its axes are is compared with what the generator writes for them.
_KERNEL = _object(
    {
        "contract": {"type": "string", "pattern": "^[a-z0-9_]+$"},
        "formula": _LINE,
        "sha256": _SHA256,
        "axes": {"type": "object"},
        "targets": _list(_one_of(TARGETS), 1),
        "triton": {"type": "string", "pattern": "^[0-9a-z.,<>=!~*+ -]{1,200}$"},
        "select": _one_of(SELECT),
        "tiles": {**_list(_TILE, distinct=False), "minItems": 1},
    },
    {
        "outputs": _list(
            _object(
                {
                    "name": {"type": "string", "pattern": _NAME},
                    "shape": _one_of((*_SHAPE["enum"], PER_BLOCK)),
                    "dtype": _one_of(_TYPES),
                }
            )
        ),
        "invariant": _one_of(INVARIANT),
        "not_offered": {**_object({}, {target: _list(_COUNT, 1) for target in TARGETS}), "minProperties": 1},
    },
)
_NEVER_CHOSEN = _object({"name": _LINE, "reason": _LINE})
_LEFT_OUT = _object({"name": _LINE, "reason": _LINE}, {"target": _one_of(TARGETS)})

#: The manifest; a file has a plain name, in `_runtime/` too, so that none leads out of the family's folder.
SCHEMA = Schema(
    _object(
        {
            "manifest": {"enum": [VERSION]},
            "generator": {"type": "string", "pattern": "^[0-9A-Za-z.+!-]{1,64}$"},
            "name": {"type": "string", "pattern": _NAME, "maxLength": LONGEST_NAME},
            "operations": _table(rf"^({'|'.join(AUXILIARY)}|{NAME}|grad\({NAME}\))$", {"type": "object"}),
            "kernels": _table("^[a-z0-9_]{1,240}$", _KERNEL, 1),
            "left_out": _list(_LEFT_OUT, distinct=False),
            "files": _table(rf"^(\.gitattributes|py\.typed|{_MODULE})$", _SHA256, 1),
        },
        {
            "spec": _object({"file": {"type": "string", "pattern": "^[^/]{1,1000}$"}, "sha256": _SHA256}),
            "package": _one_of(PACKAGE),
            "never_chosen": _list(_NEVER_CHOSEN, 1, distinct=False),
            # Manifests of earlier versions have it.
            "templates": _SHA256,
            # They have none.
            "unformatted": _table(rf"^{_MODULE}$", _SHA256),
            "summary": _LINE,
        },
    )
)
