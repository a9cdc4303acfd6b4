"""Words handle what they claim and nothing else, and the legality table is closed by default."""

import itertools
from dataclasses import replace

import pytest

from generator.language import vocabulary
from generator.language.built_in import chain_of
from generator.language.dtypes import NAMING
from generator.language.model import Dtype, Layout
from generator.language.targets import TARGETS
from generator.language.vocabulary import LOAD, MASKING, SCHEDULE, SWIZZLE, WORDS
from generator.language.word_traits import Load, Masking
from generator.plan import claims, default_configurations, legality
from generator.plan.claims import CLAIMING, NEEDS
from tests.helpers.support import variant

INT4 = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": (128, 1)})
FP8 = Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", "fast").scaled_by({"a": (1, 128), "b": (128, 128)})
#: Of each axis the words that ask for features, the plainest first.
ASKING = {
    "layout": tuple(map(Layout.of, ("rcr", "ccr", "crr", "scr"))),
    "dtype": (
        *(Dtype.of("fp16"), Dtype.of("tf32"), Dtype.of("fp32"), INT4, FP8),
        *(replace(FP8, b="fp8e5m2"), Dtype("mxfp4", "mxfp4", "fp32", "bf16", None)),
        replace(Dtype.of("bf16"), sparse=True),
        Dtype("fp8e4m3", "int4", "fp32", "bf16", None).scaled_by({"b": (128, 1)}),
    ),
    "batch": ("none", "strided", "grouped", "grouped_k"),
    "epilogue": (
        *map(chain_of, ((), ("bias",), ("swiglu",), ("save",), ("row_amax",))),
        chain_of([{"operation": "quantize", "to": "int8"}]),
    ),
    "swizzle": ("grouped", "linear"),
    "schedule": ("tiled", *(word for word in SCHEDULE if word != "tiled")),
    "load": ("pointer", *(word for word in LOAD if word != "pointer")),
    "store": ("as_load", "pointer"),
    "product": ("direct", "exchanged", "scaled", "summed"),
    "result": ("full", "symmetric"),
}


def variants(most=3, **fixed):
    """Variants with these words, in which at most so many other axes are not plain."""
    free = [axis for axis in ASKING if axis not in fixed]
    for count in range(most + 1):
        for axes in itertools.combinations(free, count):
            for values in itertools.product(*(ASKING[axis][1:] for axis in axes)):
                yield variant(**{"masking": "auto", **dict(zip(axes, values, strict=True)), **fixed})


#: Each feature with the words of the axes that are asked for it.
ASKED = [(need, axis, word) for need in NEEDS for axis in need.axes for word in WORDS[axis]]


@pytest.mark.parametrize(("need", "axis", "word"), ASKED, ids=[f"{n.feature.name}-{word}" for n, _, word in ASKED])
def test_a_word_handles_what_it_claims_and_nothing_else(need, axis, word):
    fixed = {"load": "descriptor", "store": "pointer"} if word == "paired" else {}
    legal = (v for v in variants(**fixed, **{axis: word}) if need.asked(v) and legality.why_not(v) is None)
    found = next(legal, None)
    assert (found is not None) is (need.feature in WORDS[axis][word].handles)


@pytest.mark.parametrize("axis", CLAIMING)
def test_a_word_that_claims_nothing_handles_plain_products_alone(axis, monkeypatch):
    plain = replace(WORDS[axis][vocabulary.DEFAULTS[axis]], handles=())
    monkeypatch.setitem(WORDS[axis], "plain", plain)
    reasons = {v: legality.why_not(v) for v in variants(**{axis: "plain"})}
    for v, reason in reasons.items():
        needs = [need for need in claims.asked(v) if axis in need.axes]
        assert reason is not None if needs else True
    assert reasons[variant(masking="auto", **{axis: "plain"})] is None


def test_the_reason_names_words_that_are_legal(monkeypatch):
    monkeypatch.setitem(SCHEDULE, "plain", replace(SCHEDULE["tiled"], handles=()))
    monkeypatch.setitem(LOAD, "own", Load("of one's own"))
    monkeypatch.setitem(SWIZZLE, "own", replace(SWIZZLE["linear"], handles=()))
    for v, reason in (
        (variant(schedule="plain", dtype=INT4, product="exchanged"), "schedule plain handles no stored operands that"),
        (variant(load="own", epilogue=chain_of(("swiglu",))), "load own handles no gated linear units; use d"),
        (variant(swizzle="own", schedule="persistent"), "swizzle own handles no tiles that are numbered before; use g"),
    ):
        assert (legality.why_not(v) or "").startswith(reason)
    # A product of few rows, which persistent has nothing to gain from.
    v = variant(schedule="plain", dtype=Dtype.of("fp32"), product="summed")
    assert (legality.why_not(v) or "").endswith("; use tiled or split_k")


def test_a_masking_says_which_dimensions_may_be_ragged(monkeypatch):
    with pytest.raises(TypeError, match="ragged"):
        Masking("of one's own")
    monkeypatch.setitem(MASKING, "m", Masking("M is any size", ragged="m"))
    assert legality.why_not(variant(masking="m")) is None
    assert "use mnk or auto" in (legality.why_not(variant(masking="m", load="descriptor")) or "")


#: The types of shorthands, too.
DTYPES = dict.fromkeys((*ASKING["dtype"], *map(Dtype.of, NAMING)))


def without_default(v):
    """Whether no default tile has whole blocks of a result, few enough columns, or a place in shared memory."""
    gate = "tripled" in v.schedule and v.epilogue.gate is not None and "tf32" in v.dtype.word
    quantised = v.quantised is not None and v.schedule.startswith("split_k_")
    return gate or quantised or (v.schedule == "naive" and v.product == "exchanged")


@pytest.mark.parametrize("schedule", SCHEDULE)
def test_every_legal_variant_has_legal_default_configurations_of_which_some_fit(schedule):
    for v in (v for dtype in DTYPES for v in variants(2, schedule=schedule, dtype=dtype)):
        if legality.why_not(v) is None and not without_default(v):
            rows = default_configurations.defaults(v)
            legal = [row for row in rows if legality.why_no_row(v, row) is None]
            assert legal and (legal == list(rows) or v.product == "exchanged"), v.name
            targets = [target for target in TARGETS if legality.why_not_on(v, target) is None]
            fits = (legality.why_no_row_on(v, row, target) is None for target in targets for row in legal)
            assert any(fits) or not targets, v.name
