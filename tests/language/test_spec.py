"""Reading a spec: every kind of mistake with its whole message and its place."""

from __future__ import annotations

import hashlib

import pytest

from generator.language.keys import KEYS
from generator.language.model import Layout, word_of
from generator.language.spec import read
from generator.language.versions import spelled
from tests.helpers.support import BASE, SPECS, family_of, mistakes_of, read_text

KEY_LIST = (
    "legal: summary, name, layout, dtype, batch, epilogue, masking, swizzle, schedule, load, store, product, rounding, "
    "math, result, tile, select, backward, invariant, package, with, backends, tuned, targets, triton, ops, "
    "exclude, header"
)
AXIS_LIST = "layout, dtype, batch, epilogue, masking, swizzle, schedule, load, store, product, rounding, math, result"
WITH_LIST = "legal: inductor, aten, prepare, dtensor, experts, torchao"
TARGET_LIST = "legal: sm80, sm86, sm89, sm90, sm100, sm120, gfx90a, gfx942, gfx950, gfx1100, gfx1201"
NO_NAME = "is not a name; expected lower-case letters, digits and _, a letter first"
FROM_FILE = "name (from the file's name; set the key `name` to choose another)"
EMPTY = "the list is empty; give at least one value or leave the key out"
NO_DESCRIPTORS = "sm80 has no bulk tensor copies; descriptors need sm90 or later"
OF_SPEC = 'it is a key of the spec, as in targets: ["sm80", "sm90"]'
TWO_MASKINGS = "masking: [none, mnk]\n"

# What is added behind BASE, from line 4 on -> what is answered, in this order.
MISTAKES = {
    # Keys.
    "an unknown key, and the nearest": (
        "laout: rcr",
        [f"4:1: spec: unknown key 'laout'; did you mean 'layout'? {KEY_LIST}"],
    ),
    "an unknown key, near to none": ("zzz: 1", [f"4:1: spec: unknown key 'zzz'; {KEY_LIST}"]),
    "a key that is a number": ("7: x", [f"4:1: spec: unknown key 7; {KEY_LIST}"]),
    "a merge key": ("<<: {load: pointer}", [f"4:1: spec: unknown key '<<'; {KEY_LIST}"]),
    "a key twice": ("layout: rrr", ["4:1: spec: the key 'layout' appears twice, first on line 2"]),
    "a key three times": (
        "load: pointer\nload: pointer\nload: pointer",
        [f"{line}:1: spec: the key 'load' appears twice, first on line 4" for line in (5, 6)],
    ),
    # Words of an axis.
    "an unknown word, and the nearest": (
        "swizzle: groupd",
        [
            "4:10: swizzle: unknown value 'groupd'; did you mean 'grouped'? "
            "legal: linear, linear_n, grouped, grouped_n, swizzle2d, hilbert, chiplet"
        ],
    ),
    "a word in capitals": (
        "load: Pointer",
        ["4:7: load: unknown value 'Pointer'; did you mean 'pointer'? legal: pointer, block_pointer, descriptor"],
    ),
    "a word that YAML 1.1 reads as false": (
        "masking: [none, off]",
        ["4:17: masking: unknown value 'off'; legal: none, k, mn, mnk, auto"],
    ),
    "a number for a word": ("batch: 3", ["4:8: batch: unknown value 3; legal: none, strided, grouped, grouped_k"]),
    "nothing for a word": ("store:", ["4:7: store: unknown value nothing; legal: as_load, pointer"]),
    "an empty list": ("masking: []", [f"4:10: masking: {EMPTY}"]),
    "a word twice": ("swizzle: [linear, linear]", ["4:19: swizzle: 'linear' is listed twice"]),
    "a list for the scalar key": (
        "select: [fixed]",
        ["4:9: select: unknown value [fixed]; legal: fixed, autotune, heuristic, table, fastest"],
    ),
    "an unknown result": ("result: triangular", ["4:9: result: unknown value 'triangular'; legal: full, symmetric"]),
    "an unknown rounding": ("rounding: eager", ["4:11: rounding: unknown value 'eager'; legal: late, torch"]),
    "an unknown form": (
        "math: fats",
        ["4:7: math: unknown value 'fats'; did you mean 'fast'? legal: auto, exact, fast"],
    ),
    "forms, several": (
        "math: [exact, fast]",
        ["4:7: math: expected one of auto, exact, fast for the whole family, found a list"],
    ),
    "an unknown select": (
        "select: best",
        ["4:9: select: unknown value 'best'; legal: fixed, autotune, heuristic, table, fastest"],
    ),
    "an unknown invariance": (
        "invariant: row",
        ["4:12: invariant: unknown value 'row'; did you mean 'rows'? legal: none, rows"],
    ),
    "an invariance for some kernels": (
        "invariant: [none, rows]",
        ["4:12: invariant: unknown value [none, rows]; legal: none, rows"],
    ),
    "an unknown addition": (
        "with: prepar",
        [f"4:7: with: unknown value 'prepar'; did you mean 'prepare'? {WITH_LIST}"],
    ),
    "an addition of a list": ("with: [prepare, nn]", [f"4:17: with: unknown value 'nn'; {WITH_LIST}"]),
    "an addition twice": ("with: [aten, inductor, aten]", ["4:24: with: 'aten' is listed twice"]),
    "additions in a mapping": ("with: {aten: true}", [f"4:7: with: unknown value {{aten: true}}; {WITH_LIST}"]),
    # Name.
    "a name that is a path up": ("name: ../x", [f"4:7: name: '../x' {NO_NAME}"]),
    "a name that is a path": ("name: a/b", [f"4:7: name: 'a/b' {NO_NAME}"]),
    "a name that is an absolute path": ("name: /tmp", [f"4:7: name: '/tmp' {NO_NAME}"]),
    "a name with a line end": ('name: "abc\\n"', [f"4:7: name: 'abc\\n' {NO_NAME}"]),
    "a name in capitals": ("name: Abc", [f"4:7: name: 'Abc' {NO_NAME}"]),
    "a name with a digit in front": ("name: 1a", [f"4:7: name: '1a' {NO_NAME}"]),
    "a name in another script": ("name: é", [f"4:7: name: 'é' {NO_NAME}"]),
    "no name": ('name: ""', [f"4:7: name: '' {NO_NAME}"]),
    "a name that is a number": ("name: 5", ["4:7: name: expected text, found 5 (quote it to make it text)"]),
    "a name that is nothing": ("name:", ["4:6: name: expected text, found nothing"]),
    "a name that is a list": ("name: [a]", ["4:7: name: expected text, found [a]"]),
    "a keyword": ("name: class", ["4:7: name: 'class' is a keyword of Python and cannot be imported"]),
    "a name of 65": ("name: " + "a" * 65, ["4:7: name: the name has 65 characters, at most 64 are allowed"]),
    # Targets and versions.
    "a target alone": ("targets: sm90", ["4:10: targets: expected a list such as [sm90], found 'sm90'"]),
    "no target": ("targets: []", [f"4:10: targets: {EMPTY}"]),
    "an unknown target": (
        "targets: [sm90, sm91]",
        [f"4:17: targets: unknown value 'sm91'; did you mean 'sm90'? {TARGET_LIST}"],
    ),
    "a target without sm": ("targets: [90]", [f"4:11: targets: unknown value 90; did you mean 'sm90'? {TARGET_LIST}"]),
    "a target twice": ("targets: [sm90, sm90]", ["4:17: targets: 'sm90' is listed twice"]),
    "a version that is a number": ("triton: 3.6", ["4:9: triton: expected text, found 3.6 (quote it to make it text)"]),
    "no version": ("triton: abc", ["4:9: triton: 'abc' is not a version range; expected one such as '>=3.6,<3.9'"]),
    "a version to come": (
        'triton: ">=4"',
        ["4:9: triton: no supported version is in '>=4'; supported: >=3.6,<3.10"],
    ),
    # Exclude.
    "exclude without a list": (
        "exclude: {masking: auto, because: x}",
        ["4:10: exclude: expected a list, found {masking: auto, because: x}"],
    ),
    "exclude with a word": (
        "exclude: [masking]",
        [f"4:11: exclude: expected a mapping with the keys {AXIS_LIST}, because, found 'masking'"],
    ),
    "exclude without because": (
        f"{TWO_MASKINGS}exclude: [{{masking: none}}]",
        ["5:11: exclude: the key 'because' is missing"],
    ),
    "exclude with an empty because": (
        f"{TWO_MASKINGS}exclude: [{{masking: none, because: ' '}}]",
        ["5:36: exclude.because: expected the reason, found none"],
    ),
    "a long reason": (
        f"{TWO_MASKINGS}exclude: [{{masking: none, because: {'x' * 1001}}}]",
        ["5:36: exclude.because: expected at most 1000 characters, found 1001"],
    ),
    "1001 exclusions": (
        f"{TWO_MASKINGS}exclude: [{'{masking: none, because: x}, ' * 1001}]",
        [f"5:{11 + 1000 * 29}: exclude: the list has 1,001 entries, at most 1,000 are allowed"],
    ),
    "1001 configurations": (
        f"tile: [{'{m: 16, n: 16, k: 16, warps: 1}, ' * 1001}]",
        [f"4:{8 + 1000 * 33}: tile: the list has 1,001 entries, at most 1,000 are allowed"],
    ),
    "a long range of versions": (
        f"triton: '{'>=3.6,' * 40}<3.9'",
        [
            "4:9: triton: '>=3.6,>=3.6,>=3.6,>=3.6,>=3.6,>=3.6,>=3.6,>=3.6,>=3.6,>=3.… is not a version range; "
            "expected one such as '>=3.6,<3.9'"
        ],
    ),
    "exclude because of a number": (
        f"{TWO_MASKINGS}exclude: [{{masking: none, because: 5}}]",
        ["5:36: exclude.because: expected text, found 5 (quote it to make it text)"],
    ),
    "exclude of everything": (
        f"{TWO_MASKINGS}exclude: [{{because: x}}]",
        [f"5:11: exclude: names no axis and would exclude everything; axes: {AXIS_LIST}"],
    ),
    "exclude of a word that is not listed": (
        f"{TWO_MASKINGS}exclude: [{{masking: auto, because: x}}]",
        ["5:21: exclude.masking: the spec does not list 'auto'; legal: none, mnk"],
    ),
    "exclude of a default that is not there": (
        "exclude: [{swizzle: linear, because: x}]",
        ["4:21: exclude.swizzle: the spec does not list 'linear'; legal: grouped"],
    ),
    "exclude of an unknown word": (
        f"{TWO_MASKINGS}exclude: [{{masking: nonne, because: x}}]",
        ["5:21: masking: unknown value 'nonne'; did you mean 'none'? legal: none, k, mn, mnk, auto"],
    ),
    "exclude by an unknown axis": (
        f"{TWO_MASKINGS}exclude: [{{swizle: linear, because: x}}]",
        [f"5:12: exclude: unknown key 'swizle'; did you mean 'swizzle'? legal: {AXIS_LIST}, because"],
    ),
    "exclude by what is no axis": (
        f"{TWO_MASKINGS}exclude: [{{masking: none, targets: [sm80], because: x}}]",
        [f"5:27: exclude: unknown key 'targets'; {OF_SPEC}; legal: {AXIS_LIST}, because"],
    ),
    "exclude of no word": (
        f"{TWO_MASKINGS}exclude: [{{masking: [], because: x}}]",
        [f"5:21: exclude.masking: {EMPTY}"],
    ),
    "exclude of what is excluded already": (
        "masking: [none, mnk]\nswizzle: [linear, grouped]\nexclude:\n"
        "  - {masking: none, because: x}\n  - {masking: none, swizzle: linear, because: y}\n",
        ["4:11: masking: 'none' survives in no variant: excluded: x"],
    ),
    # Header.
    "a header that is a number": ("header: 5", ["4:9: header: expected text, found 5 (quote it to make it text)"]),
    "a header that is a list": ("header: [a]", ["4:9: header: expected text, found [a]"]),
    # The expansion's own.
    "a word that survives nowhere": (
        "load: [pointer, descriptor]\nmasking: [none, mnk, k]\nexclude: [{masking: [k], load: pointer, because: slow}]",
        ["5:22: masking: 'k' survives in no variant: excluded: slow"],
    ),
    "a load that no version has": (
        'triton: ">=3.9"\nload: [pointer, block_pointer]',
        [
            "5:17: load: 'block_pointer' survives in no variant: "
            "block_pointer needs Triton <3.9, and the spec allows >=3.9,<3.10"
        ],
    ),
    "a target that can run nothing": (
        "load: descriptor\ntargets: [sm80, sm90]",
        [f"5:11: targets: 'sm80' survives in no variant: {NO_DESCRIPTORS}"],
    ),
    "an empty family": (
        "load: descriptor\ntargets: [sm80]",
        [
            f"1:1: the family is empty; left out: {NO_DESCRIPTORS}; to leave something, change one of: "
            "load: 'descriptor' (4:7), targets: 'sm80' (5:11)"
        ],
    ),
    "a family that excludes itself": (
        f"{TWO_MASKINGS}exclude: [{{masking: [none, mnk], because: neither}}]",
        ["5:11: the family is empty because of this exclusion alone; left out: excluded: neither"],
    ),
    # Several at once, in the order of the file.
    "several mistakes": (
        "targets: [sm91]\nlod: pointer\nmasking: [auto, atuo]\nname: A\nepilogue: clamp",
        [
            f"4:11: targets: unknown value 'sm91'; did you mean 'sm90'? {TARGET_LIST}",
            f"5:1: spec: unknown key 'lod'; did you mean 'load'? {KEY_LIST}",
            "6:17: masking: unknown value 'atuo'; did you mean 'auto'? legal: none, k, mn, mnk, auto",
            f"7:7: name: 'A' {NO_NAME}",
            "8:11: epilogue: 'clamp' needs one of min, max, as in [{clamp: {min: 0}}]",
        ],
    ),
    "several mistakes of the expansion": (
        "targets: [sm90, sm80]\nload: descriptor\nmasking: [auto, none, k]",
        [
            f"4:17: targets: 'sm80' survives in no variant: {NO_DESCRIPTORS}",
            *(
                f"6:{column}: masking: {word!r} survives in no variant: "
                f"the hardware bounds descriptor accesses, so 'masking: {word}' has no effect; use mnk or auto"
                for column, word in ((17, "none"), (23, "k"))
            ),
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_mistake(text: str, expected: list[str]) -> None:
    assert mistakes_of(f"{BASE}{text}\n") == [f"family.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("summary: x", ["1:1: spec: the key 'dtype' is missing", "1:1: spec: the key 'layout' is missing"]),
        ("layout: rcr\ndtype: fp16", ["1:1: spec: the key 'summary' is missing"]),
        # A key that is there and wrong is not missing as well.
        ("summary: 5\nlayout: rcr\ndtype: fp16", ["1:10: summary: expected text, found 5 (quote it to make it text)"]),
        ("summary:\nlayout: rcr\ndtype: fp16", ["1:9: summary: expected text, found nothing"]),
        (
            "summary: true\nlayout: rcr\ndtype: fp16",
            ["1:10: summary: expected text, found true (quote it to make it text)"],
        ),
        ("summary: ' '\nlayout: rcr\ndtype: fp16", ["1:10: summary: expected a line of text, found none"]),
        ("summary: |\n  a\n  b\nlayout: rcr\ndtype: fp16", ["1:10: summary: expected one line, found several"]),
        (
            "summary: x\nsummary: y\nlayout: rcr\ndtype: fp16",
            ["2:1: spec: the key 'summary' appears twice, first on line 1"],
        ),
    ],
)
def test_required_keys(text: str, expected: list[str]) -> None:
    assert mistakes_of(text + "\n") == [f"family.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("a b.yaml", f"{FROM_FILE}: 'a b' {NO_NAME}"),
        ("fp16.rcr.yaml", f"{FROM_FILE}: 'fp16.rcr' {NO_NAME}"),
        ("A.yaml", f"{FROM_FILE}: 'A' {NO_NAME}"),
        ("__init__.yaml", f"{FROM_FILE}: '__init__' {NO_NAME}"),
        ("class.yaml", f"{FROM_FILE}: 'class' is a keyword of Python and cannot be imported"),
        (f"{'a' * 65}.yaml", f"{FROM_FILE}: the name has 65 characters, at most 64 are allowed"),
    ],
)
def test_a_name_from_the_file(file: str, expected: str) -> None:
    assert mistakes_of(BASE, file) == [f"{file}:1:1: {expected}"]
    assert read_text(f"{BASE}name: mine\n", file).name == "mine"


NO_USE = "not available yet; leave it out"
ROW = "tile: [{m: 64, n: 64, k: 64, warps: 4, "

# Every word of the language whose template is still to come -> the answer at its place.
PLANNED = [
    (f"{ROW}ctas: 2}}]", f"4:46: tile.ctas: {NO_USE}"),
    (f"{ROW}warp_specialize: true}}]", f"4:57: tile.warp_specialize: {NO_USE}"),
    (f"{ROW}waves_per_eu: 2}}]", f"4:54: tile.waves_per_eu: {NO_USE}"),
]


@pytest.mark.parametrize(("text", "expected"), PLANNED, ids=[text for text, _ in PLANNED])
def test_a_word_that_is_not_available_yet(text: str, expected: str) -> None:
    assert mistakes_of(f"{BASE}{text}\n") == [f"family.yaml:{expected}"]


@pytest.mark.parametrize("text", ["ops: [a]", "ops: 5", "ops: words"])
def test_ops_that_are_no_mapping(text: str) -> None:
    lines = mistakes_of(f"{BASE}{text}\n")
    assert lines and all(line.startswith("family.yaml:4:") and " ops: " in line for line in lines)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("dtype: {a: null}", "3:12: dtype.a:"),
        ("dtype: {a: fp16, b: null}", "3:21: dtype.b:"),
        ("dtype: {a: fp16, acc: }", "3:22: dtype.acc:"),
        ("dtype: {a: fp16, out: ~}", "3:23: dtype.out:"),
        ("dtype: {a: fp32, precision: null}", "3:29: dtype.precision:"),
    ],
)
def test_a_part_of_a_dtype_that_is_null(text: str, place: str) -> None:
    (line,) = mistakes_of(f"summary: x\nlayout: rcr\n{text}\n")
    assert line.startswith(f"family.yaml:{place}")


def test_a_spec_that_says_everything() -> None:
    spec = read_text(
        "summary: 'Everything: here.'\nname: all_of_it\nlayout: [rcr, {a: strided, b: row, c: column}]\n"
        "dtype: [fp16, {a: fp16, out: fp32}]\nbatch: none\nepilogue: [none, bias+relu, [bias, gelu]]\n"
        "masking: [none, mnk]\nswizzle: linear\nschedule: tiled\nload: pointer\nstore: as_load\n"
        "tile: [{m: 64, n: 32, k: 64, warps: 4, group: 4, stages: 2}]\nselect: fixed\ntargets: [sm90, gfx942]\n"
        "triton: '>=3.7'\nops: {}\nexclude: []\nheader: |\n  Copyright somebody\n\n  Do as you like.\n"
    )
    assert (spec.name, spec.summary) == ("all_of_it", "Everything: here.")
    assert spec.axes["layout"] == (Layout("row", "column", "row"), Layout("strided", "row", "column"))
    assert [word_of(value) for value in spec.axes["dtype"]] == ["fp16", "fp16_fp32_fp32"]
    assert [word_of(value) for value in spec.axes["epilogue"]] == ["none", "bias+relu", "bias+gelu"]
    assert spec.header == ("Copyright somebody", "", "Do as you like.")
    assert (spec.select, spec.targets, spelled(spec.triton)) == ("fixed", ("sm90", "gfx942"), ">=3.7,<3.10")


def test_defaults() -> None:
    spec = read_text(BASE)
    implied = {axis: [word_of(value) for value in values] for axis, values in spec.axes.items()}
    assert implied == {
        "layout": ["rcr"],
        "dtype": ["fp16"],
        "batch": ["none"],
        "epilogue": ["none"],
        "masking": ["auto"],
        "swizzle": ["grouped"],
        "schedule": ["tiled"],
        "load": ["pointer"],
        "store": ["as_load"],
        "product": ["direct"],
        "rounding": ["late"],
        "math": ["auto"],
        "result": ["full"],
    }
    assert (spec.name, spec.tiles, spec.select, spec.targets) == ("family", None, "heuristic", ("sm80", "sm90"))
    assert (spec.exclude, spec.header, spelled(spec.triton)) == ((), (), ">=3.6,<3.10")


def test_the_keys_are_those_of_the_language() -> None:
    assert list(KEYS) == [
        *("summary", "name", "layout", "dtype", "batch", "epilogue", "masking", "swizzle", "schedule", "load", "store"),
        *(
            "product",
            "rounding",
            "math",
            "result",
            "tile",
            "select",
            "backward",
            "invariant",
            "package",
            "with",
            "backends",
            "tuned",
            "targets",
            "triton",
            "ops",
        ),
        *("exclude", "header"),
    ]


def test_additions_are_in_the_order_of_the_language() -> None:
    found = {text: read_text(f"{BASE}{text}\n").additions for text in ("", "with: []", "with: aten")}
    assert found == {"": (), "with: []": (), "with: aten": ("aten",)}
    assert read_text(f"{BASE}with: [dtensor, inductor]\n").additions == ("inductor", "dtensor")


def test_a_shipped_spec_is_named_as_its_file() -> None:
    assert [read(path).name for path in SPECS] == [path.stem for path in SPECS]


def test_a_summary_written_as_a_block() -> None:
    assert read_text("summary: >\n  One line,\n  folded.\nlayout: rcr\ndtype: fp16\n").summary == "One line, folded."


def test_a_single_value_and_a_list_of_one_are_the_same_family() -> None:
    one, many = family_of(BASE), family_of("summary: A product.\nlayout: [rcr]\ndtype: [fp16]\nmasking: [auto]\n")
    assert one.kernels == many.kernels


def test_reading_stops_after_many_mistakes() -> None:
    lines = mistakes_of(BASE + "".join(f"key{number}: 1\n" for number in range(1000)))
    assert len(lines) == 201 and lines[-1].endswith(": there may be more mistakes; reading stops after 200")


def test_many_scalars_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(name: str) -> str:
        calls.append(name)
        return name

    monkeypatch.setattr("generator.language.operation_reader.written", counted)
    scalars = ", ".join(f"s{number}: 1" for number in range(500))
    mistakes_of(f"{BASE}ops: {{f: {{formula: x, scalars: {{{scalars}}}}}}}\n")
    assert len(calls) < 3000


def test_line_ends_are_not_in_the_digest() -> None:
    text = f"{BASE}header: |\n  one\n  two\n"
    found, other = read_text(text), read_text(text.replace("\n", "\r\n").encode())
    assert found.digest == hashlib.sha256(text.encode()).hexdigest() == other.digest
    assert found.header == other.header == ("one", "two")
    assert found.digest != read_text(text.replace("one", "two")).digest


def test_a_header_has_an_end() -> None:
    """It is copied into every file."""
    assert read_text(f"{BASE}header: {'x' * 20_000}\n").header == ("x" * 20_000,)
    (line,) = mistakes_of(f"{BASE}header: {'x' * 20_001}\n")
    assert ":4:9: header: 20001 characters; at most 20000 are copied into every file" in line
