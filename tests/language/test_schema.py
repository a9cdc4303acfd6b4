"""The schema and the reader agree, but for mistakes that a schema cannot express: these are listed here."""

import copy
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from yaml.nodes import MappingNode, ScalarNode

from generator.language import keys
from generator.language.document import compose, scalar
from generator.language.errors import SpecError
from generator.language.schema import FILE, MODELINE, schema, text
from generator.language.vocabulary import WORDS
from tests import outcomes
from tests.drawn.specs import LAYOUTS, contracts, specs
from tests.helpers.support import BASE, ROOT, SPECS, Spoken, read_text

SECTIONS = ("layouts", "types", "chains", "tiles", "keys and words", "the keys that every spec has", "formulas")
VALIDATOR = jsonschema.Draft7Validator(schema())


def value(node):
    """A document as an editor's YAML reader sees it: lists, mappings and scalars of the core schema."""
    if isinstance(node, ScalarNode):
        return scalar(node)
    if isinstance(node, MappingNode):
        return {str(value(key)): value(entry) for key, entry in node.value}
    return [value(entry) for entry in node.value]


def refused(text):
    """What the schema says against a spec."""
    return [error.message for error in VALIDATOR.iter_errors(value(compose(Path("family.yaml"), text)))]


def taken(text):
    """Whether the reader takes a spec."""
    try:
        read_text(text)
    except SpecError:
        return False
    return True


def test_it_is_a_schema():
    jsonschema.Draft7Validator.check_schema(schema())
    assert list(schema()["properties"]) == list(keys.KEYS)


def test_the_committed_schema_is_the_languages():
    assert (ROOT / "specs" / FILE).read_text(encoding="utf-8") == text(), f"renew it: generator schema > specs/{FILE}"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_shipped_spec_names_the_schema_and_passes(path):
    found = path.read_text(encoding="utf-8")
    assert found.startswith(f"{MODELINE}\n")
    assert refused(found) == []


def test_every_example_passes():
    """A key's example, in a spec that is otherwise the smallest, is taken by the reader and by the schema."""
    measured = dict.fromkeys(("tuned", "backends"), "select: fastest")
    beside = {**measured, "exclude": "schedule: [persistent, tiled]\nload: [pointer, descriptor]"}
    for key, entry in keys.KEYS.items():
        for example in entry.examples:
            base = {**yaml.safe_load(BASE), **yaml.safe_load(beside.get(key, "{}")), key: example}
            found = yaml.safe_dump(base)
            assert refused(found) == [] and taken(found), found


#: Specs with mistakes, each with the first message.
BAD = {
    outcomes.whole(section, text): gives[0].partition(": ")[2]
    for section, cases in outcomes.sections().items()
    if section.removeprefix(outcomes.WHOLE) in SECTIONS
    for text, gives in cases
    if gives[0][0].isdigit()
} | {f"{BASE}tuned: [missing.json, 5]\nselect: table\n": "tuned: "}

EMPTY = "survives in no variant|the family is empty"
#: What a schema cannot express, as docs/editor.md lists it, and the reader's messages for it.
NOT_EXPRESSED = {
    "a key that appears twice": "appears twice",
    "a value that is listed twice in two spellings": "is listed twice",
    "a combination of values that is illegal, or a value that is left in no kernel": f"{EMPTY}|no target can run",
    "an excluded value that the spec does not list": "the spec does not list",
    "a mistake in a formula, or parameters with which it is invalid": r"ops\.\w+\.formula|with these parameters",
    "a name that Python or a kernel uses, or two names that are spelt alike": "keyword|would be the same",
    "a control character or a line end in text": "control character|is not a name|found several",
    "a malformed range of Triton versions": r"triton: ",
    "a list, a chain or a text that is too long": r"at most [\d,]+ (are allowed|characters)",
    "a number that is not finite in fp32": r"a finite number|in fp32|found \.nan|a 0 has no sign|needs one of min",
    "an `n` that is neither a power of two nor the sum of two": r"tile\.[mn]: ",
    "a result type that the operands' types do not allow, or two types that do not go together": r"dtype\.(out|b): ",
}


@pytest.mark.parametrize("spec", BAD)
def test_a_mistake_is_refused_or_listed(spec):
    kinds = [kind for kind, messages in NOT_EXPRESSED.items() if re.search(messages, BAD[spec])]
    assert not taken(spec) or "no variant" in BAD[spec] or "family is empty" in BAD[spec] or "no target" in BAD[spec]
    assert refused(spec) or kinds


def test_what_is_not_expressed_is_on_the_page_and_happens():
    page = (ROOT / "docs" / "editor.md").read_text(encoding="utf-8")
    let_through = [line for spec, line in BAD.items() if not refused(spec)]
    for kind, messages in NOT_EXPRESSED.items():
        assert f"- {kind}" in page and any(re.search(messages, line) for line in let_through), kind


def agree(spec):
    """The schema does not refuse what the reader takes."""
    assert not (taken(spec) and refused(spec)), spec


@settings(max_examples=150, deadline=None)
@given(specs("sm90") | contracts().map(yaml.safe_dump))
def test_what_the_reader_takes_is_not_refused(spec):
    agree(spec)


#: Values of every kind, legal for some key.
KINDS_OF_WORDS = "x none row fp16 fp32 tf32 bias+gelu full grad(gelu) fixed rows kernels interleaved"
VALUES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, 2, 64, 3.5, 1.0, -1, [], {}, [1], ["M", "N"], ["M"], *KINDS_OF_WORDS.split()]
    ),
    LAYOUTS,
    st.sampled_from([["bias", {"clamp": {"min": 0}}], {"clamp": {"max": 6}}, {"save": "hidden"}, {"a": "bf16"}]),
)


@st.composite
def altered(draw):
    """A drawn spec with one to three of its values, or keys, replaced by others."""
    root = yaml.safe_load(draw(specs("sm90")))
    for _ in range(draw(st.integers(1, 3))):
        at = root
        while True:
            key = draw(st.sampled_from([*at, *keys.KEYS] if at is root else list(at))) if isinstance(at, dict) else 0
            inner = at.get(key) if isinstance(at, dict) else at[0]
            if not inner or not isinstance(inner, (dict, list)) or draw(st.booleans()):
                break
            at = inner
        at[key] = copy.deepcopy(draw(VALUES))
        if draw(st.integers(0, 3)) == 0 and isinstance(at[key], str):
            at[key] = [at[key]]
    return yaml.safe_dump(root, sort_keys=False)


@settings(max_examples=400, deadline=None)
@given(altered())
def test_an_altered_spec_is_not_refused_where_the_reader_takes_it(spec):
    agree(spec)


def test_an_editor_can_tell_what_each_word_means():
    meanings = {entry.meaning for entries in WORDS.values() for entry in entries.values()}
    assert [meaning for meaning in meanings if meaning not in text()] == []


def test_the_command_prints_it(cli):
    assert cli("schema") == Spoken(0, text(), "")
    assert cli("schema", "extra").status == 2
