"""From a spec to its family: order, exclusions, what collapses, and what is left out with which reason."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from dataclasses import replace

import pytest
from packaging.specifiers import SpecifierSet

from generator.language.errors import SpecError
from generator.language.model import Exclusion, Variant
from generator.language.spec import read
from generator.language.vocabulary import AXES, DEFAULTS, IMPLEMENTATION_AXES
from generator.plan import exclusions
from generator.plan import expand as expand_module
from generator.plan.expand import LARGEST_FAMILY, expand
from generator.plan.kernels import LeftOut
from generator.plan.wanted_variants import wanted_variants
from tests.helpers.support import BASE, SPECS, family_of, mistakes_of, read_text


def names(text: str) -> list[str]:
    return [kernel.name for kernel in family_of(text).kernels]


def test_the_order_is_that_of_the_axes_and_of_the_values() -> None:
    text = "summary: x\nlayout: [rrr, ccc]\ndtype: [bf16, fp16]\nepilogue: [relu, none]\nmasking: [mnk, none]\n"
    text += "swizzle: [linear_n, linear]\nschedule: [tiled, naive]\n"
    product = itertools.product(
        ("rrr", "ccc"), ("bf16", "fp16"), ("relu", "none"), ("mnk", "none"), ("linearn", "linear"), ("tiled", "naive")
    )
    assert names(text) == [f"gemm_{d}_{a}_{e}__{s}_pointer_{m}_{o}" for a, d, e, m, o, s in product]


def test_rows_that_differ_in_the_split_alone_are_one_where_k_is_not_divided() -> None:
    rows = "".join(f"  - {{m: 64, n: 64, k: 64, warps: 4, split: {split}}}\n" for split in (2, 8))
    divided, whole = family_of(f"{BASE}schedule: [split_k, tiled]\ntile:\n{rows}").kernels
    assert [tile.split for tile in divided.tiles] == [2, 8]
    assert len(whole.tiles) == 1


def test_the_order_of_the_keys_in_the_file_says_nothing() -> None:
    lines = [*BASE.splitlines(), "masking: [none, mnk]", "swizzle: [linear, grouped]"]
    assert names("\n".join(lines)) == names("\n".join(reversed(lines)))


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        # Axes of one entry are a conjunction, words of one axis a disjunction, entries again a disjunction.
        ("{masking: none, because: x}", ["mnk_linear", "mnk_grouped", "auto_linear", "auto_grouped"]),
        ("{masking: [none, mnk], because: x}", ["auto_linear", "auto_grouped"]),
        (
            "{masking: none, swizzle: linear, because: x}",
            ["none_grouped", "mnk_linear", "mnk_grouped", "auto_linear", "auto_grouped"],
        ),
        (
            "{masking: none, swizzle: linear, because: x}, {masking: auto, swizzle: [grouped], because: y}",
            ["none_grouped", "mnk_linear", "mnk_grouped", "auto_linear"],
        ),
        # The same axis by another spelling of its value.
        (
            "{layout: {a: row, b: column, c: row}, masking: mnk, because: x}",
            ["none_linear", "none_grouped", "auto_linear", "auto_grouped"],
        ),
        (
            "{dtype: {a: fp16}, epilogue: none, masking: [mnk, none], because: x}",
            ["auto_linear", "auto_grouped"],
        ),
    ],
)
def test_exclusion(exclude: str, left: list[str]) -> None:
    text = f"{BASE}masking: [none, mnk, auto]\nswizzle: [linear, grouped]\nexclude: [{exclude}]\n"
    if "none, mnk]" in exclude or "mnk, none]" in exclude or exclude.startswith(("{masking: none, because", "{layout")):
        # A word that is wholly taken out is not to be listed: here another load keeps it.
        text = text.replace("exclude: [{", "load: [pointer, block_pointer]\nexclude: [{load: pointer, ")
    kept = [name.partition("__tiled_pointer_")[2] for name in names(text)]
    assert [name for name in kept if name] == left


def test_excluded_variants_are_listed_with_the_spec_s_own_reason() -> None:
    text = f"{BASE}masking: [none, mnk]\nswizzle: [linear, grouped]\n"
    family = family_of(text + "exclude: [{masking: none, swizzle: linear, because: ' no caller has those '}]\n")
    assert family.left_out == (
        LeftOut("gemm_fp16_rcr_none__tiled_pointer_none_linear", "excluded: no caller has those"),
    )


def test_the_first_exclusion_gives_the_reason() -> None:
    exclude = "[{masking: none, swizzle: linear, because: one}, {masking: none, epilogue: relu, because: two}]"
    text = f"{BASE}epilogue: [none, relu]\nmasking: [none, mnk]\nswizzle: [linear, grouped]\nexclude: {exclude}\n"
    reasons = {left.name: left.reason for left in family_of(text).left_out}
    assert reasons == {
        "gemm_fp16_rcr_none__tiled_pointer_none_linear": "excluded: one",
        "gemm_fp16_rcr_relu__tiled_pointer_none_linear": "excluded: one",
        "gemm_fp16_rcr_relu__tiled_pointer_none_grouped": "excluded: two",
    }


def test_an_exclusion_that_matches_nothing() -> None:
    spec = read_text(BASE)
    nothing = Exclusion((("masking", frozenset({"mnk"})),), "x")
    positions = {**spec.positions, ("exclude", "0"): (9, 5)}
    with pytest.raises(SpecError) as caught:
        expand(replace(spec, exclude=(nothing,), positions=positions))
    (mistake,) = caught.value.mistakes
    message = "exclude: matches no variant of the family; correct it or take it out"
    assert (mistake.line, mistake.column, mistake.message) == (9, 5, message)


@pytest.mark.parametrize(
    ("text", "kept", "collapsed"),
    [
        pytest.param(
            "schedule: elementwise\nmasking: [mnk, none]\nswizzle: [linear, grouped]\n",
            ["elementwise_pointer_mnk_linear"],
            ["mnk_grouped", "none_linear", "none_grouped"],
            id="one element has no mask and no order of tiles",
        ),
        pytest.param(
            "load: descriptor\nmasking: [mnk, auto]\ntargets: [sm90]\n",
            ["tiled_descriptor_mnk_grouped"],
            ["auto_grouped"],
            id="descriptors are bounded by the hardware",
        ),
        pytest.param(
            "load: descriptor\nmasking: [auto, mnk]\ntargets: [sm90]\n",
            ["tiled_descriptor_auto_grouped"],
            ["mnk_grouped"],
            id="the first that is listed stays",
        ),
        pytest.param(
            "store: [as_load, pointer]\n",
            ["tiled_pointer_auto_grouped"],
            ["auto_grouped_storepointer"],
            id="pointers are stored through pointers",
        ),
    ],
)
def test_what_makes_no_difference_collapses_into_the_first(text: str, kept: list[str], collapsed: list[str]) -> None:
    family = family_of(BASE + text)
    assert [kernel.name.partition("__")[2] for kernel in family.kernels] == kept
    assert [
        left.name.partition("pointer_" if "descriptor" not in text else "descriptor_")[2] for left in family.left_out
    ] == collapsed
    assert {left.reason for left in family.left_out} == {f"the same kernel as {family.kernels[0].name}"}


def test_a_target_that_cannot_run_a_variant_is_left_out_of_it_alone() -> None:
    family = family_of(f"{BASE}load: [pointer, descriptor]\ntargets: [sm80, sm90, gfx942]\n")
    assert {k.variant.load: k.targets for k in family.kernels} == {
        "pointer": ("sm80", "sm90", "gfx942"),
        "descriptor": ("sm90",),
    }
    by_descriptor = [
        left for left in family.left_out if "descriptor" in left.name and not left.reason.startswith("tile")
    ]
    assert [(left.target, left.reason) for left in by_descriptor] == [
        ("sm80", "sm80 has no bulk tensor copies; descriptors need sm90 or later"),
        ("gfx942", "gfx942 has no bulk tensor copies; descriptors need sm90 or later"),
    ]


def test_a_row_that_one_target_cannot_hold_is_not_offered_there() -> None:
    rows = "tile:\n  - {m: 256, n: 128, k: 64, warps: 8, stages: 3}\n  - {m: 64, n: 64, k: 64, warps: 4}\n"
    family = family_of(f"{BASE}targets: [sm86, sm90]\n{rows}")
    (kernel,) = family.kernels
    assert [tile.m for tile in kernel.tiles] == [256, 64] and kernel.targets == ("sm86", "sm90")
    # sm86 keeps one of the three stages in registers: 2 x (256 + 128) x 64 x 2 bytes fit; sm90 holds all three.
    assert family.left_out == ()
    deeper = family_of(f"{BASE}targets: [sm86, sm90]\n{rows.replace('stages: 3', 'stages: 4')}")
    assert [left.target for left in deeper.left_out] == ["sm86"]
    assert deeper.left_out[0].reason == (
        "tile 256x128x64, 8 warps, 4 stages: 147456 bytes of shared memory, and sm86 has 101376"
    )
    assert [tile.stages for tile in deeper.kernels[0].tiles] == [4, 3]


def test_a_row_that_one_variant_cannot_use_is_not_in_its_table() -> None:
    rows = "tile:\n  - {m: 64, n: 64, k: 16, warps: 4}\n  - {m: 64, n: 64, k: 64, warps: 4}\n"
    family = family_of(f"summary: x\nlayout: rcr\ndtype: [fp16, int8]\n{rows}")
    assert {k.variant.dtype.word: [tile.k for tile in k.tiles] for k in family.kernels} == {
        "fp16": [16, 64],
        "int8": [64],
    }
    reasons = {left.reason.partition(": ")[2] for left in family.left_out}
    assert reasons == {"k is 16, and the matrix unit needs at least 32 for int8"}


def test_the_range_of_triton_is_narrowed_by_what_a_kernel_uses() -> None:
    kernels = family_of(f"{BASE}load: [pointer, block_pointer]\n").kernels
    assert ["3.9.0" in SpecifierSet(kernel.triton) for kernel in kernels] == [True, False]
    assert all(
        "3.8.1" in SpecifierSet(kernel.triton) and "3.5" not in SpecifierSet(kernel.triton) for kernel in kernels
    )


NO_DESCRIPTORS = "sm80 has no bulk tensor copies; descriptors need sm90 or later"
UNLIKE = (
    "the hardware bounds descriptor accesses, so 'masking: none' has no effect; use mnk or auto; "
    "the hardware bounds descriptor accesses, so 'masking: k' has no effect; use mnk or auto"
)


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        # One value of an axis, where all else is as it is by default, or does not speak against it.
        ("schedule: split_k_atomic", "4:11", "schedule: 'split_k_atomic'"),
        (
            "select: fixed\nschedule:\n  - split_k_atomic\nload: [pointer, block_pointer]",
            "6:5",
            "schedule: 'split_k_atomic'",
        ),
        ("masking: none\nload: descriptor\ntargets: [sm80]", "5:7", "load: 'descriptor'"),
        ("epilogue: bias+row_sum\nselect: autotune\nschedule: elementwise", "4:11", "epilogue: 'bias+row_sum'"),
        # All that an axis lists.
        ("schedule: [split_k_atomic, decoded]", "4:11", "the value of schedule"),
        # A value of a key that has no default.
        ("epilogue: gelu\nrounding: torch", "3:8", "dtype: 'int8'"),
        # One target, and several.
        ("targets: [sm80]", "4:11", "targets: 'sm80'"),
        ("targets: [sm80, sm86]", "4:10", "the value of targets"),
        # One exclusion: it takes out what the spec asks for, so that no value is to blame.
        ("masking: none\nexclude: [{masking: none, because: x}]", "5:11", "this exclusion"),
        ("masking: [none, mnk]\nexclude:\n  - {masking: [none, mnk], because: x}", "6:5", "this exclusion"),
        (
            "load: [descriptor, pointer]\nmasking: k\nexclude:\n  - {load: descriptor, because: x}\n"
            "  - {load: pointer, because: y}",
            "8:5",
            "this exclusion",
        ),
        # Each of them alone would do, or both together.
        ("exclude: [{layout: rcr, because: x}, {dtype: fp16, because: y}]", "4:10", "these exclusions"),
    ],
)
def test_an_empty_family_names_the_part_that_is_to_blame_alone(text: str, place: str, part: str) -> None:
    base = BASE
    if "dtype" in part:
        base = BASE.replace("fp16", "int8")
    elif "targets" in part:
        base = BASE.replace("fp16", "fp8e4m3")
    (told,) = mistakes_of(f"{base}{text}\n")
    head = f"family.yaml:{place}: the family is empty because of {part} alone; left out: "
    assert told.startswith(head) and len(told) > len(head)


@pytest.mark.parametrize(
    ("text", "reasons", "parts"),
    [
        ("load: descriptor\ntargets: [sm80]", NO_DESCRIPTORS, "load: 'descriptor' (4:7), targets: 'sm80' (5:11)"),
        ("masking: [none, k]\nload: descriptor", UNLIKE, "the value of masking (4:10), load: 'descriptor' (5:7)"),
        (
            "triton: '>=3.9'\nload: block_pointer",
            "block_pointer needs Triton <3.9, and the spec allows >=3.9,<3.10",
            "the value of triton (4:9), load: 'block_pointer' (5:7)",
        ),
        (
            "select: autotune\nepilogue: accumulate",
            "the autotuner repeats a kernel, and accumulate would read what the run before wrote; "
            "use 'select: heuristic'",
            "select: 'autotune' (4:9), epilogue: 'accumulate' (5:11)",
        ),
        (
            "masking: [none, mnk]\nexclude: [{masking: none, because: x}, {masking: mnk, because: y}]",
            "excluded: x; excluded: y",
            "this exclusion (5:11), this exclusion (5:40)",
        ),
    ],
)
def test_an_empty_family_names_the_parts_of_which_each_may_be_to_blame(text: str, reasons: str, parts: str) -> None:
    told = f"family.yaml:1:1: the family is empty; left out: {reasons}; to leave something, change one of: {parts}"
    assert mistakes_of(f"{BASE}{text}\n") == [told]


def test_an_empty_family_for_which_nothing_alone_is_to_blame() -> None:
    text = "load: descriptor\nmasking: none\nschedule: split_k_atomic\nepilogue: relu\ntargets: [sm80]\n"
    (told,) = mistakes_of(BASE + text)
    assert told.startswith("family.yaml:1:1: the family is empty; left out: ") and "change one of" not in told


def test_a_row_that_empties_the_family_is_named_at_its_place() -> None:
    row = "{m: 256, n: 256, k: 256, warps: 8}"
    message = "tile: no target can run this configuration: 524288 bytes of shared memory, and sm80 has 166912"
    assert mistakes_of(f"{BASE}tile:\n  - {row}\n") == [f"family.yaml:5:5: {message}"]


def test_the_part_to_blame_for_a_large_family_is_found_in_seconds() -> None:
    layouts = ", ".join(a + b + c for a in "rcs" for b in "rcs" for c in "rcs")
    text = f"summary: x\nlayout: [{layouts}]\ndtype: [fp16, bf16]\nepilogue: [relu, bias, gelu, silu, tanh]\n"
    text += "masking: [none, k, mn, mnk, auto]\nswizzle: [linear, grouped]\nschedule: split_k_atomic\n"
    started = time.process_time()
    (told,) = mistakes_of(text)
    assert told.startswith(
        "family.yaml:7:11: the family is empty because of schedule: 'split_k_atomic' alone; left out: "
    )
    assert time.process_time() - started < 60


def test_a_family_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LARGEST_FAMILY == 100_000
    monkeypatch.setattr(expand_module, "LARGEST_FAMILY", 3)
    assert len(names(f"{BASE}masking: [none, k, mn]\n")) == 3
    with pytest.raises(SpecError, match=r":1:1: the product of the axes has 4 variants; at most 3 are rendered$"):
        names(f"{BASE}masking: [none, k, mn, mnk]\n")


def test_more_of_a_family_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        f"{BASE}masking: [none, k, mn]\ntile: [{{m: 64, n: 64, k: 32, warps: 4}}, {{m: 32, n: 64, k: 32, warps: 4}}]\n"
    )
    assert len(names(text)) == 3
    monkeypatch.setattr(expand_module, "MOST_CONFIGURATIONS", 5)
    with pytest.raises(SpecError, match=r":5:7: tile: .* 3 variants with 2 configurations each; at most 5 "):
        names(text)
    monkeypatch.setattr(expand_module, "MOST_LEFT_OUT", 3)
    with pytest.raises(
        SpecError, match=r":1:1: the family has more than 3 variants and configurations that are left out$"
    ):
        names(f"{BASE}masking: [none, k, mn, mnk, auto]\nload: [pointer, descriptor]\ntargets: [sm80]\n")
    # What measurements choose for a contract is no part of the product.
    monkeypatch.setattr(expand_module, "LARGEST_FAMILY", 1)
    with pytest.raises(SpecError, match=r":1:1: the family has more than 1 kernels; no more are rendered$"):
        names(f"{BASE}select: fastest\ntargets: [sm90]\n")


def test_exclusions_are_found_together() -> None:
    """For every variant the indices of those that match it, as if each were tried by itself."""
    lists = "masking: [none, k, mnk]\nswizzle: [linear, grouped]\nschedule: [tiled, persistent]\n"
    entries = [
        f"{{masking: {masking}, swizzle: {swizzle}, because: x}}"
        for masking in ("none", "[k, mnk]", "mnk")
        for swizzle in ("linear", "[grouped]", "[linear, grouped]")
    ]
    spec = read_text(f"{BASE}{lists}exclude: [{', '.join(entries)}, {{schedule: persistent, because: x}}]\n")
    together = exclusions.Exclusions(spec.exclude)
    for variant, _ in wanted_variants(spec):
        alone = [
            index
            for index, each in enumerate(spec.exclude)
            if all(variant.word(axis) in words for axis, words in each.axes)
        ]
        assert together.matching(variant) == alone and alone is not None


def test_too_large_a_product_is_answered_before_it_is_walked() -> None:
    layouts = ", ".join(a + b + c for a in "rcs" for b in "rcs" for c in "rcs")
    chains = ", ".join(
        f"{a}+{b}+{c}"
        for a in ("bias", "add", "relu", "silu")
        for b in ("gelu", "tanh", "scale")
        for c in ("add", "relu", "bias", "gelu")
    )
    text = f"summary: x\nlayout: [{layouts}]\ndtype: [fp16, bf16, fp32, int8]\nepilogue: [{chains}]\n"
    text += "masking: [none, k, mn, mnk, auto]\nswizzle: [linear, linear_n, grouped, grouped_n, swizzle2d]\n"
    with pytest.raises(SpecError, match="has 129600 variants; at most 100000"):
        names(text)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_point_of_a_shipped_product_is_a_kernel_or_left_out_with_a_reason(path) -> None:
    family = expand(read(path))
    kernels = {kernel.name for kernel in family.kernels}
    left_out = {left.name for left in family.left_out if left.target is None and not left.reason.startswith("tile ")}
    axes = {axis: words or (DEFAULTS[axis],) for axis, words in family.spec.axes.items()}
    listed = {Variant(*values).name for values in itertools.product(*(axes[axis] for axis in AXES))}
    own = {name.partition("__")[0] for name in listed}
    # A contract that only the backward pass needs has the spec's implementation axes.
    added = {contract for gradient in family.gradients for contract in gradient.contracts} - own
    if family.spec.select == "fastest":
        # Which kernels a contract has follows from measurements; each has some.
        assert {name.partition("__")[0] for name in kernels} == own | added
        return
    each = math.prod(len(axes[axis]) for axis in IMPLEMENTATION_AXES)
    assert len(listed) == math.prod(len(axes[axis]) for axis in AXES)
    assert not kernels & left_out and listed <= kernels | left_out
    others = Counter(name.partition("__")[0] for name in (kernels | left_out) - listed)
    assert others == dict.fromkeys(added, each)
    assert all(left.reason for left in family.left_out)
    assert all(kernel.tiles and kernel.targets for kernel in family.kernels)


@pytest.mark.parametrize(
    ("text", "place", "value", "reason"),
    [
        (
            "schedule: [paired, tiled]\ntile: [{m: 64, n: 192, k: 64, warps: 4}]",
            "4:20",
            "schedule: 'tiled'",
            "tile 64x192x64, 4 warps, 3 stages: n is 192, and tiled needs a power of two; use paired",
        ),
        (
            "epilogue: [none, swiglu]\ntile: [{m: 64, n: 256, k: 64, warps: 4}]\ntargets: [sm90]",
            "4:18",
            "epilogue: 'swiglu'",
            "tile 64x256x64, 4 warps, 3 stages: its accumulators need 256 registers per thread, and sm90 has 255 with "
            "4 warps",
        ),
    ],
)
def test_a_value_of_which_no_configuration_is_left_names_one(text: str, place: str, value: str, reason: str) -> None:
    told = f"family.yaml:{place}: {value} survives in no variant: no configuration fits: {reason}"
    assert mistakes_of(f"{BASE}{text}\n") == [told]


def test_configurations_that_are_left_out_differ_in_their_words() -> None:
    rows = ", ".join(f"{{m: 128, n: 256, k: 64, warps: 8, split: {split}}}" for split in (2, 4))
    small = "{m: 64, n: 64, k: 64, warps: 4}"
    family = family_of(f"{BASE}schedule: split_k\ntargets: [sm80, sm86]\ntile: [{rows}, {small}]\n")
    reasons = [left.reason for left in family.left_out]
    assert [reason.partition(":")[0] for reason in reasons] == [
        f"tile 128x256x64, 8 warps, 3 stages, split {split}" for split in (2, 4)
    ]


def test_what_a_size_that_is_no_power_of_two_needs() -> None:
    told = mistakes_of(f"{BASE}schedule: persistent\ntile: [{{m: 96, n: 64, k: 64, warps: 4}}]\n")
    assert [line.partition("configuration: ")[2] for line in told] == [
        "m is 96, and persistent needs a power of two; use paired_m"
    ]
