"""`select: fastest`: the implementations that measurements call for, where a spec leaves them open."""

import json

import pytest
import yaml

from generator.cost import tuned
from generator.language.errors import CallError
from generator.language.model import Tile
from generator.language.vocabulary import OPEN_AXES
from generator.plan import portfolio
from generator.plan.devices import DEVICES
from tests.helpers.support import family_of, mistakes_of
from tests.helpers.tuned_file import measured

FASTEST = "summary: x\nlayout: rcr\ndtype: fp16\nselect: fastest\n"
ANY = "tiled_pointer_auto_grouped"
PLAIN = "gemm_fp16_rcr_none"
WIDE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
DEEP = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 6}
SPLIT = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8, "SPLIT": 4, "num_warps": 4, "num_stages": 4}
WALKING, AHEAD, DIVIDED = (
    "persistent_descriptor_auto_grouped_storepointer",
    "tiled_descriptor_auto_grouped",
    "splitk_descriptor_auto_grouped_storepointer",
)


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """Makes the package ship measurements of an H200 with these winners of one contract."""

    def ship(*rows):
        found = measured(PLAIN) | {"device": "NVIDIA H200", "rates": []}
        found["winners"] = [won(how, row, m=64 * size) for size, (how, row) in enumerate(rows, 1)]
        file = tmp_path / "shipped" / "nvidia_h200" / "found.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(found))
        monkeypatch.setattr(portfolio, "SHIPPED", tmp_path / "shipped")
        portfolio.shipped.cache_clear()
        monkeypatch.setattr(portfolio, "shipped", portfolio.shipped.__wrapped__)

    return ship


def won(how, row, contract=PLAIN, m=64):
    return {"contract": contract, "m": m, "n": 64, "k": 64, "kernel": f"{contract}__{how}", "config": row}


def hows(family):
    return [kernel.name.partition("__")[2] for kernel in family.kernels]


def of(family, how):
    (found,) = (kernel for kernel in family.kernels if kernel.name.endswith(f"__{how}"))
    return found


def test_kernels_and_configurations_are_those_that_were_measured(shipped):
    shipped((WALKING, WIDE), (AHEAD, DEEP), (WALKING, WIDE | {"GROUP_M": 16}), (DIVIDED, SPLIT))
    family = family_of(f"{FASTEST}targets: [sm90]\n")
    # The last one takes any operand.
    assert hows(family) == [AHEAD, WALKING, DIVIDED, ANY]
    assert of(family, WALKING).tiles == tuple(Tile(128, 256, 64, warps=8, stages=3, group=group) for group in (8, 16))
    assert of(family, DIVIDED).tiles == (Tile(64, 64, 128, warps=4, stages=4, split=4),)
    assert {kernel.select for kernel in family.kernels} == {"fastest"}
    assert [found.device for found in family.measured] == ["NVIDIA H200"]


def test_a_target_without_measurements_adds_the_default_portfolio(shipped):
    shipped((AHEAD, DEEP))
    assert hows(family_of(f"{FASTEST}targets: [sm90, sm80]\n")) == [AHEAD, ANY]
    alone = family_of(f"{FASTEST}targets: [sm80]\n")
    assert hows(alone) == [ANY] and alone.measured == ()
    more = [f"{ANY}_productexchanged", "persistent_descriptor_auto_grouped", f"{AHEAD}_storepointer"]
    assert hows(family_of(f"{FASTEST}targets: [sm100]\n")) == [ANY, *more]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("schedule: persistent", [WALKING]),
        ("schedule: [split_k, persistent]", [WALKING, DIVIDED]),
        ("load: pointer", [ANY]),
        # No implementation of the portfolio has these words.
        ("swizzle: linear", [how.replace("grouped", "linear") for how in (AHEAD, WALKING, DIVIDED, ANY)]),
        ("masking: mnk\nschedule: tiled", ["tiled_descriptor_mnk_grouped", "tiled_pointer_mnk_grouped"]),
    ],
)
def test_axes_that_the_spec_names_stay_as_named(shipped, keys, expected):
    shipped((WALKING, WIDE), (AHEAD, DEEP), (DIVIDED, SPLIT))
    family = family_of(f"{FASTEST}targets: [sm90]\n{keys}\n")
    assert set(hows(family)) >= set(expected)
    for axis, words in yaml.safe_load(keys).items():
        assert all(kernel.variant.word(axis) in words for kernel in family.kernels)
    # So do tiles.
    family = family_of(f"{FASTEST}tile:\n  - {{m: 64, n: 64, k: 64, warps: 4}}\n")
    assert {kernel.tiles for kernel in family.kernels} == {(Tile(64, 64, 64, warps=4),)}


def test_another_contract_has_the_portfolio_of_the_most_similar(shipped):
    shipped((WALKING, WIDE), (AHEAD, DEEP))
    for axes in ("dtype: bf16", "epilogue: bias+relu", "batch: strided", "layout: rcc", "layout: crr"):
        key = axes.partition(":")[0]
        text = "\n".join(line for line in FASTEST.splitlines() if not line.startswith(key))
        assert {AHEAD, ANY} <= set(hows(family_of(f"{text}\n{axes}\ntargets: [sm90]\n"))), axes


def test_a_measured_configuration_that_a_gate_also_has_stands_for_half_of_it(shipped):
    """128x128 is half of 128x256, and 128x64 is half of 128x128."""
    shipped((AHEAD, WIDE), (AHEAD, WIDE | {"BLOCK_N": 128}))
    family = family_of(f"{FASTEST}epilogue: swiglu\ntargets: [sm90]\n")
    assert of(family, AHEAD).tiles == tuple(Tile(128, n, 64, warps=8, stages=3) for n in (128, 64))
    ((_, _, held),) = tuned.bake(family).won
    assert held == (((64, 32, 64), AHEAD, 0), ((128, 32, 64), AHEAD, 1))


def test_an_exchanged_product_with_a_quantised_result_has_small_tiles(shipped):
    """Larger ones were measured to take 20 to 50 % longer than with a plain result."""
    exchanged = f"{AHEAD}_storepointer_productexchanged"
    shipped((exchanged, WIDE), (exchanged, DEEP | {"BLOCK_M": 64}), (WALKING, WIDE))
    for epilogue, counts in (("none", (2, 1)), ("[[{quantize: {to: fp8e4m3}}]]", (1, 1))):
        family = family_of(f"{FASTEST}epilogue: {epilogue}\ntargets: [sm90]\n")
        assert tuple(len(of(family, how).tiles) for how in (exchanged, WALKING)) == counts


def test_a_configuration_that_does_not_fit_has_fewer_stages(shipped):
    shipped((AHEAD, DEEP | {"num_stages": 9}))
    (fewer,) = of(family_of(f"{FASTEST}targets: [sm90]\n"), AHEAD).tiles
    assert fewer.stages == 7


def test_what_the_spec_names_comes_first_and_its_kernels_join(shipped):
    shipped((AHEAD, DEEP))
    own = measured("gemm_fp16_rcr_bias") | {"device": "NVIDIA H200", "rates": []}
    own["winners"] = [won(WALKING, WIDE, "gemm_fp16_rcr_bias")]
    text = f"{FASTEST}epilogue: bias\ntargets: [sm90]\ntuned: own.json\n"
    family = family_of(text, beside={"own.json": json.dumps(own)})
    assert hows(family) == [AHEAD, WALKING, ANY]
    assert [found.file for found in family.measured] == ["own.json", None]


def test_the_spec_s_own_file_counts_on_targets_without_shipped_measurements(shipped):
    shipped((AHEAD, DEEP))
    own, how = measured() | {"device": "NVIDIA A100-SXM4-80GB", "rates": []}, "splitk_pointer_auto_grouped"
    own["winners"] = [won(how, SPLIT)]
    family = family_of(f"{FASTEST}targets: [sm80]\ntuned: own.json\n", beside={"own.json": json.dumps(own)})
    assert {how, ANY} <= set(hows(family)) and AHEAD not in hows(family)
    ((device, _, held),) = tuned.bake(family).won
    assert (device, held) == ("NVIDIA A100-SXM4-80GB", (((64, 64, 64), how, 0),))


@pytest.mark.parametrize(
    ("how", "row", "there"),
    [
        ("elementwise_pointer_auto_linear", {"num_warps": 4}, True),
        (WALKING, {"num_warps": 4, "num_stages": 3}, False),
        ("a_schedule_of_another_version", WIDE, False),
    ],
)
def test_measurements_of_other_columns_or_kernels_do_no_harm(shipped, how, row, there):
    shipped((AHEAD, DEEP), (how, row))
    found = hows(family_of(f"{FASTEST}targets: [sm90]\n"))
    assert {AHEAD, ANY} <= set(found) and (how in found) == there


def test_an_exclusion_of_a_word_that_the_portfolio_has(shipped):
    shipped((WALKING, WIDE), (AHEAD, DEEP))
    family = family_of(f"{FASTEST}targets: [sm90]\nexclude:\n  - {{schedule: persistent, because: x}}\n")
    assert hows(family) == [AHEAD, ANY]
    assert [left.reason for left in family.left_out] == ["excluded: x"]
    # Whether a word of an open axis matches depends on the measurements; that of another axis must match.
    assert hows(family_of(f"{FASTEST}targets: [sm90]\nexclude:\n  - {{schedule: naive, because: x}}\n"))
    (line,) = mistakes_of(f"{FASTEST}load: pointer\nexclude:\n  - {{load: pointer, dtype: bf16, because: x}}\n")
    assert line.startswith("family.yaml:7:28: exclude.dtype: the spec does not list 'bf16'")


def test_backward_has_the_portfolio_of_the_contracts_that_it_needs():
    family = family_of(f"{FASTEST}epilogue: bias+gelu_tanh\nbackward: kernels\ntargets: [sm90]\n")
    assert len(family.contracts) == 4 and min(map(len, family.contracts.values())) > 4


def test_a_file_of_an_unknown_device_is_not_shipped_and_a_wrong_one_is_told(shipped, tmp_path):
    shipped((AHEAD, DEEP))
    (tmp_path / "shipped" / "some_gpu").mkdir()
    (tmp_path / "shipped" / "some_gpu" / "found.json").write_text("nothing")
    assert len(portfolio.shipped()) == 1
    (tmp_path / "shipped" / "nvidia_h200" / "found.json").write_text("nothing")
    with pytest.raises(CallError, match=r"found\.json, .* that the package ships, cannot be read: line 1: is not JSON"):
        family_of(FASTEST)


def test_every_shipped_file_is_of_a_known_device_with_a_target_and_figures():
    assert portfolio.shipped()
    for device, found in portfolio.shipped():
        assert device == DEVICES[device.slug] and found.device == device.name
        assert device.clock and device.memory and device.capability != (0, 0)


def test_every_shipped_kernel_is_found_by_its_name():
    words = portfolio._words_of()
    axes = {"masking": "auto", "swizzle": "grouped", "schedule": "persistent", "load": "descriptor"}
    assert words[WALKING] == axes | {"store": "pointer", "product": "direct"} and set(words[WALKING]) == set(OPEN_AXES)
    for _, found in portfolio.shipped():
        assert {each.how for each in (*found.winners, *found.fitted)} <= words.keys()
