"""From specs to their families: order, exclusions, what collapses, what is left out and why, and other words."""

import itertools
import math
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from generator.language.errors import SpecError
from generator.language.model import Exclusion, Variant
from generator.language.spec import read
from generator.language.vocabulary import AXES, DEFAULTS, IMPLEMENTATION_AXES
from generator.plan import exclusions, replacements
from generator.plan import expand as expand_module
from generator.plan.expand import LARGEST_FAMILY, expand
from generator.plan.families import families
from generator.plan.wanted_variants import wanted_variants
from tests.helpers.support import BASE, SPECS, family_of, mistakes_of, read_text


def names(text):
    return [kernel.name for kernel in family_of(text).kernels]


def test_the_order_is_that_of_the_axes_and_of_the_values():
    text = "summary: x\nlayout: [rrr, ccc]\ndtype: [bf16, fp16]\nepilogue: [relu, none]\nmasking: [mnk, none]\n"
    text += "swizzle: [linear_n, linear]\nschedule: [tiled, naive]\n"
    product = itertools.product(
        ("rrr", "ccc"), ("bf16", "fp16"), ("relu", "none"), ("mnk", "none"), ("linearn", "linear"), ("tiled", "naive")
    )
    assert names(text) == [f"gemm_{d}_{a}_{e}__{s}_pointer_{m}_{o}" for a, d, e, m, o, s in product]


def test_the_range_of_triton_is_narrowed_by_what_a_kernel_uses():
    ranges = [SpecifierSet(kernel.triton) for kernel in family_of(f"{BASE}load: [pointer, block_pointer]\n").kernels]
    assert [[version in each for version in ("3.5", "3.8.1", "3.9.0")] for each in ranges] == [
        *([False, True, True], [False, True, False])
    ]


def test_the_part_to_blame_for_a_large_family_is_found_in_seconds():
    layouts = ", ".join(a + b + c for a in "rcs" for b in "rcs" for c in "rcs")
    text = f"summary: x\nlayout: [{layouts}]\ndtype: [fp16, bf16]\nepilogue: [relu, bias, gelu, silu, tanh]\n"
    text += "masking: [none, k, mn, mnk, auto]\nswizzle: [linear, grouped]\nschedule: split_k_atomic\n"
    started = time.process_time()
    (told,) = mistakes_of(text)
    assert told.startswith(
        "family.yaml:7:11: the family is empty because of schedule: 'split_k_atomic' alone; left out: "
    )
    assert time.process_time() - started < 60


def test_a_family_has_a_limit(monkeypatch):
    assert LARGEST_FAMILY == 100_000
    monkeypatch.setattr(expand_module, "LARGEST_FAMILY", 3)
    assert len(names(f"{BASE}masking: [none, k, mn]\n")) == 3
    with pytest.raises(SpecError, match=r":1:1: the product of the axes has 4 variants; at most 3 are rendered$"):
        names(f"{BASE}masking: [none, k, mn, mnk]\n")


def test_more_of_a_family_has_a_limit(monkeypatch):
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


def test_exclusions_are_found_together():
    """For every variant the indices of those that match it, as if each were tried by itself."""
    lists = "masking: [none, k, mnk]\nswizzle: [linear, grouped]\nschedule: [tiled, persistent]\n"
    pairs = itertools.product(("none", "[k, mnk]", "mnk"), ("linear", "[grouped]", "[linear, grouped]"))
    entries = [f"{{masking: {masking}, swizzle: {swizzle}, because: x}}" for masking, swizzle in pairs]
    spec = read_text(f"{BASE}{lists}exclude: [{', '.join(entries)}, {{schedule: persistent, because: x}}]\n")
    together = exclusions.Exclusions(spec.exclude)
    for variant, _ in wanted_variants(spec):
        matches = [all(variant.word(axis) in words for axis, words in each.axes) for each in spec.exclude]
        assert together.matching(variant) == [index for index, matched in enumerate(matches) if matched]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_point_of_a_shipped_product_is_a_kernel_or_left_out_with_a_reason(path):
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


def test_an_exclusion_that_matches_nothing():
    spec = read_text(BASE)
    nothing = Exclusion((("masking", frozenset({"mnk"})),), "x")
    told = r":9:5: exclude: matches no variant of the family; correct it or take it out$"
    with pytest.raises(SpecError, match=told):
        expand(replace(spec, exclude=(nothing,), positions={**spec.positions, ("exclude", "0"): (9, 5)}))


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_a_target_with_little_shared_memory_has_a_default_configuration(target):
    text = BASE.replace("fp16", '{a: fp16, sparsity: {b: "2:4"}}')
    (kernel,) = family_of(f"{text}targets: [sm80, {target}]\n").kernels
    assert kernel.targets == ("sm80", target)
    own = [index for index in range(len(kernel.tiles)) if index not in dict(kernel.not_offered)[target]]
    assert own == [len(kernel.tiles) - 1]


def names_of(*paths):
    return [family.spec.name for family in families(paths)]


def test_a_spec_under_several_paths_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, other = tmp_path / "one.yaml", tmp_path / "folder"
    spec.write_text(BASE)
    other.mkdir()
    (other / "one.yaml").symlink_to(spec)
    paths = [Path("one.yaml"), spec, Path("folder/../one.yaml"), other / "one.yaml"]
    assert names_of(*paths) == ["one"]
    assert [family.spec.path for family in families(paths)] == [Path("one.yaml")]


def test_a_link_of_another_name_is_another_spec(tmp_path):
    spec, link = tmp_path / "one.yaml", tmp_path / "two.yaml"
    spec.write_text(BASE)
    link.symlink_to(spec)
    assert names_of(spec, link) == ["one", "two"]
    # Unless the text gives the name.
    spec.write_text(BASE + "name: three\n")
    assert names_of(spec, link) == ["three"]


def test_a_copy_is_another_spec_that_cannot_have_the_folder_and_a_mistake_is_said_once(tmp_path):
    spec, copy = tmp_path / "one.yaml", tmp_path / "folder" / "one.yaml"
    copy.parent.mkdir()
    spec.write_text(BASE)
    copy.write_text(BASE)
    with pytest.raises(SpecError, match="'one' is also the name of"):
        families([spec, copy])
    spec.write_text(BASE.replace("rcr", "xyz"))
    with pytest.raises(SpecError) as caught:
        families([spec, tmp_path / "." / ".." / tmp_path.name / "one.yaml"])
    assert len(caught.value.mistakes) == 1


def test_sums_that_do_not_repeat_are_never_chosen_unasked():
    assert "split_k_atomic" not in replacements._others("schedule")
