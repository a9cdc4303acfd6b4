"""`python -m generator schema`: a JSON Schema of the spec language, for editors that run yaml-language-server.

It is made from the tables that the reader uses, and never refuses what the reader takes. Some mistakes cannot be
expressed in a schema, and only the reader finds them: docs/editor.md lists these.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from generator.epilogue import gated_units
from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.epilogue.gradient_operation import GRAD, gradient_name, why_no_gradient
from generator.epilogue.operations import SHAPES, EpilogueOperation
from generator.epilogue.quantisation import BLOCK, DEFAULT_BLOCK, FP32, QUANTIZE, SCALE, SCALES, TO
from generator.language import keys
from generator.language.axis_values import POWERS
from generator.language.built_in import BUILT_IN
from generator.language.dtype_reader import LARGEST_BLOCK
from generator.language.dtypes import ACCUMULATORS, DTYPE_SHORTHANDS, PACKINGS, PRECISIONS, RESULTS, SPARSITIES, WEIGHTS
from generator.language.family_names import LONGEST_NAME, NAME
from generator.language.keys import Key
from generator.language.model import Tile
from generator.language.quantised_results import BLOCKS, RESULT_TYPES
from generator.language.reader import LARGEST_NUMBER
from generator.language.targets import DEFAULT_TARGETS, TARGETS
from generator.language.vocabulary import (
    ADDITIONS,
    AXES,
    BACKENDS,
    CHOICES,
    DEFAULTS,
    LAYOUT_LETTERS,
    SINGLE_AXES,
    WORDS,
)
from generator.language.word_traits import Word

#: The name under which a schema lies beside specs, and the comment by which a spec names it.
FILE = "gemm.schema.json"
MODELINE = f"# yaml-language-server: $schema={FILE}"

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_LINE: Schema = {**_TEXT, "pattern": r"\S"}
_NUMBER: Schema = {"type": "number"}
_SIZE: Schema = {"type": "integer", "minimum": 0, "maximum": LARGEST_BLOCK}
_BLOCK: Schema = {"type": "array", "items": _SIZE, "minItems": 2, "maxItems": 2}
#: What measurements need.
_MEASURED: Schema = {"required": ["select"], "properties": {"select": {"enum": ["table", "fastest"]}}}
_NAME: Schema = {**_TEXT, "pattern": f"^{NAME}$", "maxLength": LONGEST_NAME}


@cache
def schema() -> Schema:
    """The schema of a spec file (JSON Schema, draft 7)."""
    values = {
        "summary": _LINE,
        "name": _NAME,
        **{axis: _value(axis) if axis in SINGLE_AXES else _listed(_value(axis)) for axis in AXES},
        "tile": _list(_tile()),
        **{key: _words(words) for key, words in CHOICES.items()},
        "with": {"anyOf": [_words(ADDITIONS), {**_list(_words(ADDITIONS)), "minItems": 0}], "default": []},
        "backends": {**_list(_words(BACKENDS)), "contains": {"const": "triton"}, "default": ["triton"]},
        "tuned": _listed(_TEXT),
        "targets": {**_list({"enum": list(TARGETS)}), "default": list(DEFAULT_TARGETS)},
        "triton": _TEXT,
        "ops": _operations(),
        "exclude": {"type": "array", "items": _exclusion(), "default": []},
        "header": _TEXT,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A family of GEMM kernels",
        "description": "A spec of gemm-generator: a scalar fixes an axis, a list varies it.",
        **_mapping(keys.KEYS, values, keys.REQUIRED),
        "allOf": [
            _if(_has("select", "table"), {"required": ["tuned"]}),
            _if({"required": ["tuned"]}, _MEASURED),
            _if(
                {"required": ["backends"], "properties": {"backends": {"contains": {"const": "aten"}}}},
                {**_MEASURED, "not": _has("invariant", "rows")},
            ),
            # Without operations of the spec's own, all names in a chain are known.
            {"if": {"required": ["ops"]}, "else": {"properties": {"epilogue": _listed(_chain(strict=True))}}},
        ],
        "definitions": {"layout": _layout(), "dtype": _dtype(), "epilogue": _chain()},
    }


def text() -> str:
    """The schema as the file that an editor reads."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _mapping(
    table: Mapping[str, Key],
    values: Mapping[str, Schema],
    required: Iterable[str] = (),
    defaults: Mapping[str, str] = DEFAULTS,
) -> Schema:
    """A mapping with the keys of `table`, each with its meaning, examples and default."""
    properties = {
        key: {
            "description": f"{entry.meaning}.",
            **({"default": defaults[key]} if key in defaults else {}),
            **({"examples": list(entry.examples)} if entry.examples else {}),
            **values[key],
        }
        for key, entry in table.items()
    }
    return _object(properties, required=list(required))


def _object(properties: Mapping[str, Any], **limits: Any) -> Schema:
    """A mapping with these keys alone."""
    return {"type": "object", "properties": dict(properties), **limits, "additionalProperties": False}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1, "uniqueItems": True}


def _listed(value: Schema) -> Schema:
    """A value, or a list of values."""
    return {"anyOf": [value, _list(value)]}


def _if(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}


def _has(key: str, word: str) -> Schema:
    return {"required": [key], "properties": {key: {"const": word}}}


def _words(words: Mapping[str, Word]) -> Schema:
    return {"enum": list(words), "enumDescriptions": [entry.meaning for entry in words.values()]}


def _value(axis: str) -> Schema:
    """One value of an axis; a chain may use operations that the schema does not know."""
    return _words(WORDS[axis]) if axis in WORDS else {"$ref": f"#/definitions/{axis}"}


def _layout() -> Schema:
    letters = ["".join(letters_of) for letters_of in itertools.product(LAYOUT_LETTERS, repeat=3)]
    words = {"enum": list(LAYOUT_LETTERS.values())}
    return {"anyOf": [{"enum": letters}, _mapping(keys.LAYOUT_KEYS, dict.fromkeys(keys.LAYOUT_KEYS, words), "abc")]}


def _dtype() -> Schema:
    precisions = list(dict.fromkeys(word for words in PRECISIONS.values() for word in words))
    values: dict[str, Schema] = {
        "a": {"enum": list(ACCUMULATORS)},
        "b": {"enum": list(dict.fromkeys((*ACCUMULATORS, *WEIGHTS)))},
        "acc": {"enum": list(dict.fromkeys(word for words in ACCUMULATORS.values() for word in words))},
        "out": {"enum": list(RESULTS)},
        "precision": {"enum": precisions},
        "scales": {**_object({"a": _BLOCK, "b": _BLOCK}), "minProperties": 1},
        "zeros": {**_object({"b": {"type": "boolean"}}), "required": ["b"]},
        "packing": {**_object({"b": {"enum": list(PACKINGS)}}), "required": ["b"]},
        "sparsity": {**_object({"b": {"enum": list(SPARSITIES)}}), "required": ["b"]},
    }
    rules = [
        _if(
            _has("a", a),
            {
                "properties": {
                    "acc": {"enum": list(words), "default": words[0]},
                    "precision": {"enum": list(PRECISIONS[a])} if a in PRECISIONS else False,
                }
            },
        )
        for a, words in ACCUMULATORS.items()
    ]
    return {"anyOf": [{"enum": list(DTYPE_SHORTHANDS)}, {**_mapping(keys.DTYPE_KEYS, values, ("a",)), "allOf": rules}]}


def _chain(*, strict: bool = False) -> Schema:
    """One chain: operations joined by +, or a list of them; where `strict`, built-in ones alone."""
    plain = {name: operation for name, operation in BUILT_IN.items() if not operation.bounds and name != QUANTIZE}
    gradients = [gradient_name(name) for name, operation in plain.items() if why_no_gradient(operation) is None]
    one = "|".join(map(re.escape, [*plain, *gradients]))
    joined: Schema = {
        **_TEXT,
        "pattern": f"^(none| *({one})( *\\+ *({one}))* *)$" if strict else r"^ *[^+\s]+( *\+ *[^+\s]+)* *$",
        "patternErrorMessage": f"Operations joined by +; built-in ones are {', '.join(plain)}.",
    }
    words = {
        "enum": ["none", *plain, *gradients],
        "enumDescriptions": ["no epilogue", *(plain[name].formula for name in plain), *gradients],
    }
    # The words are for completion: every one of them has the pattern.
    text = {"anyOf": [words, joined]}
    # An operation may be in a chain twice.
    steps = {**_list({"anyOf": [text, _with_parameters(strict)]}), "uniqueItems": False}
    return {"anyOf": [text, steps]}


def _with_parameters(strict: bool) -> Schema:
    """An operation of a list as a mapping of its name to its parameters."""
    values: dict[str, Any] = {
        name: {"description": operation.formula, **_parameters(operation)}
        for name, operation in BUILT_IN.items()
        if operation.parameters and name not in AUXILIARY
    }
    name_or_none = {"anyOf": [_NAME, {"type": "object", "maxProperties": 0}]}
    values |= {name: {"description": f"Name of the output {name}.", **name_or_none} for name in AUXILIARY}
    quantisation = {
        TO: {"enum": list(RESULT_TYPES)},
        BLOCK: {"enum": list(BLOCKS), "default": DEFAULT_BLOCK},
        SCALE: {"enum": list(SCALES), "default": FP32},
    }
    meaning = "Stores C in another type, with scales that are found from it."
    values[QUANTIZE] = {"description": meaning, **_object(quantisation, required=[TO])}
    gradient: Schema = {"type": "object", "properties": {"op": _TEXT}, "required": ["op"]}
    values[GRAD] = {"description": "The gradient of an operation with parameters.", **gradient}
    others: Any = False if strict else {"type": "object"}
    return {
        "type": "object",
        "properties": values,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": others,
    }


def _parameters(operation: EpilogueOperation) -> Schema:
    order = {"enum": list(gated_units.ORDERS), "default": gated_units.CONCATENATED}
    numbers = {
        name: order if operation.gated and name == gated_units.ORDER else _NUMBER for name in operation.parameters
    }
    # One of the bounds must be given.
    return _object(numbers, **({"minProperties": 1} if operation.bounds else {}))


def _operations() -> Schema:
    shape = {"enum": [list(parts) for parts in SHAPES]}
    values = {
        "formula": _TEXT,
        "operands": {"type": "object", "propertyNames": _NAME, "additionalProperties": shape},
        "scalars": {"type": "object", "propertyNames": _NAME, "additionalProperties": {"type": ["number", "null"]}},
    }
    names = {**_NAME, "not": {"enum": ["none", GRAD, gated_units.INTERLEAVED, *BUILT_IN]}}
    one = _mapping(keys.OPERATION_KEYS, values, ("formula",))
    return {"type": "object", "propertyNames": names, "additionalProperties": one, "default": {}}


def _tile() -> Schema:
    powers = {"enum": [1 << bits for bits in range(LARGEST_NUMBER.bit_length())]}
    number = {"type": "integer", "minimum": 1, "maximum": LARGEST_NUMBER}
    blocks = {"type": "array", "items": powers, "minItems": 2, "maxItems": 3, "uniqueItems": True}
    by_powers = {1: powers, 3: {"anyOf": [number, blocks]}}
    values: dict[str, Any] = {key: by_powers.get(POWERS.get(key, 0), number) for key in keys.TILE_KEYS}
    values |= {"ctas": {"enum": [1]}, "warp_specialize": {"enum": [False]}, "waves_per_eu": {"not": {}}}
    for entry in fields(Tile):
        if entry.default is not MISSING:
            values[entry.name] = {**values[entry.name], "default": entry.default}
    return _mapping(keys.TILE_KEYS, values, keys.TILE_REQUIRED)


def _exclusion() -> Schema:
    values = {**{axis: _listed(_value(axis)) for axis in AXES}, "because": _LINE}
    return {**_mapping(keys.EXCLUDE_KEYS, values, ("because",), defaults={}), "minProperties": 2}
