"""What was measured: the file that a spec names by `tuned`, and what of it a family's source holds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from generator.cost import tuned
from generator.emit.render import TUNED
from generator.language import tuned_file
from generator.language.spec import read
from tests.helpers.support import family_of, read_text
from tests.helpers.tuned_file import AUTO, DEVICE, GOOD, LARGE, NONE, SPEC, TILES, changed, measured


def baked(text, found):
    return tuned.bake(family_of(text, beside={"found.json": found}))


def like_of(held):
    """Contract -> the contract whose measurements are used for it."""
    return {name: other for _, name, other in held.like}


def test_the_digest_of_the_spec_is_of_the_measurements_too():
    texts = [GOOD, GOOD + "\n", changed(lambda f: f.update(regret=0.06))]
    digests = {read_text(SPEC, beside={"found.json": text}).digest for text in (*texts, GOOD)}
    assert len(digests) == 3 and read_text(f"{SPEC}# again\n", beside={"found.json": GOOD}).digest not in digests


def test_a_file_that_does_not_exist_yet_is_a_warning(cli, tmp_path):
    Path("family.yaml").write_text(SPEC.replace("found.json", "far/found.json"))
    spec = read(tmp_path / "family.yaml")
    assert spec.tuned == () and spec.tuned_files == (tmp_path / "far" / "found.json",)
    told = "tuned: 'far/found.json' does not exist yet; the family is rendered without it"
    assert cli("family.yaml", "--out", ".").err == f"family.yaml:6:8: warning: {told}\n"
    assert not Path("family", TUNED).exists()
    Path("far").mkdir()
    Path("far/found.json").write_text(GOOD)
    assert read(tmp_path / "family.yaml").tuned == (replace(tuned_file.parse(GOOD), file="far/found.json"),)


def test_what_does_not_enter_a_family_is_reported(cli):
    Path("family.yaml").write_text(SPEC.replace("[auto, none]", "auto"))
    lacking = f"which lacks the kernels or configurations: {NONE} (2)"
    for found, told in (
        (GOOD, f"2 of the 5 winners and rates of its contracts do not enter the family, {lacking}"),
        (
            json.dumps(measured("gemm_fp16_rrr_none")),
            "has nothing of the contracts of this family, nor of similar ones",
        ),
    ):
        Path("found.json").write_text(found)
        assert cli("family.yaml").err == f"family.yaml:6:8: warning: tuned: 'found.json' {told}\n"


@pytest.mark.parametrize(
    ("axes", "contract", "change", "sizes", "told"),
    [
        ("batch: strided\n", "bmm_fp16_rcr_none", {}, "4096x4096x64, 128x256x512", "`batch`, the number of products"),
        ("", "gemm_fp16_rcr_none", {"batch": 4}, "4x4096x4096x64, 4x128x256x512", "one product has no `batch`"),
        (
            *("", "gemm_fp16_rcr_none", {"config": {"BLOCK_SIZE_M": 64, "BLOCK_N": 64}}, "4096x4096x64, 128x256x512"),
            "no kernel has the keys 'BLOCK_SIZE_M' (did you mean 'BLOCK_M'?); legal: BLOCK_M, BLOCK_N, BLOCK_K,",
        ),
    ],
)
def test_a_winner_that_no_kernel_can_have_is_named(cli, axes, contract, change, sizes, told):
    Path("family.yaml").write_text(axes + SPEC)
    found = measured(contract)
    for winner in found["winners"]:
        winner.update(change)
    Path("found.json").write_text(json.dumps(found))
    start = f"family.yaml:{6 + axes.count(chr(10))}:8: warning: tuned: 'found.json' winner of {contract} at {sizes} "
    (line,) = cli("family.yaml").err.splitlines()
    assert line.startswith(f"{start}does not enter the family: {told}")


@pytest.mark.parametrize(
    ("text", "winners", "rates"),
    [
        (SPEC, [(128, 256, 512), (4096, 4096, 64)], {AUTO: [0, 1], NONE: [1]}),
        # A family without one of the kernels, and one without one of the rows.
        (SPEC.replace("[auto, none]", "auto"), [(4096, 4096, 64)], {AUTO: [0, 1]}),
        (SPEC.replace("  - {m: 64, n: 64, k: 64, warps: 4}\n", ""), [(128, 256, 512)], {AUTO: [0], NONE: [0]}),
        # The same tile with other warps is another row.
        (SPEC.replace("warps: 4", "warps: 2"), [(128, 256, 512)], {AUTO: [1], NONE: [1]}),
    ],
)
def test_what_names_no_kernel_or_row_of_the_family_is_left_out(text, winners, rates):
    held = baked(text, GOOD)
    ((device, contract, won),), ((_, _, fitted),) = held.won, held.rates
    assert (held.error, held.like, device, contract) == ("3.4%", (), DEVICE, "gemm_fp16_rcr_none")
    assert [sizes for sizes, _, _ in won] == winners
    assert {how: [row for row, _ in rows] for how, rows in fitted} == rates
    assert text != SPEC or dict(fitted)[NONE] == ((1, "(1, 4e-07, 2.5e-07, 1e-06, 4e12, 1e-06, -0.1, 0.2)"),)


@pytest.mark.parametrize(
    ("axes", "like"),
    [
        ("dtype: [fp16, bf16]", {"gemm_bf16_rcr_none": "gemm_fp16_rcr_none"}),
        (
            "dtype: fp16\nepilogue: [none, bias, bias+relu]",
            {"gemm_fp16_rcr_bias": "gemm_fp16_rcr_none", "gemm_fp16_rcr_bias_relu": "gemm_fp16_rcr_none"},
        ),
        # A family without the contract measured keeps what stands for its own first.
        ("dtype: bf16\nepilogue: [bias, bias+relu]", {"gemm_bf16_rcr_bias_relu": "gemm_bf16_rcr_bias"}),
        # A product for another result, or of a batch, takes as long for each tile.
        ("dtype: [fp16, {a: fp16, out: fp32}]", {"gemm_fp16_fp32_fp32_rcr_none": "gemm_fp16_rcr_none"}),
        ("dtype: fp16\nbatch: [none, strided]", {"bmm_fp16_rcr_none": "gemm_fp16_rcr_none"}),
        # With K in groups the time goes into writing a result for each.
        ("dtype: fp16\nbatch: [none, grouped, grouped_k]", {"gmm_fp16_rcr_none": "gemm_fp16_rcr_none"}),
        # Another width is another matter.
        ("dtype: [fp16, tf32]", {}),
    ],
)
def test_measurements_stand_for_other_contracts(axes, like):
    text = f"summary: x\nlayout: rcr\n{axes}\nmasking: [auto, none]\nselect: table\ntuned: found.json\n{TILES}"
    held = baked(text, GOOD)
    assert like_of(held) == like
    (won,) = {contract for _, contract, _ in held.won}
    assert set(like.values()) <= {won}


def test_what_was_measured_of_a_contract_itself_comes_first():
    both = [measured("gemm_fp16_rcr_none"), measured("gemm_fp16_rcr_bias")]
    found = both[0] | {key: both[0][key] + both[1][key] for key in ("winners", "rates")}
    held = baked(f"{SPEC}epilogue: [none, bias, relu]\n", json.dumps(found))
    assert like_of(held) == {"gemm_fp16_rcr_relu": "gemm_fp16_rcr_none"}
    assert [contract for _, contract, _ in held.won] == ["gemm_fp16_rcr_bias", "gemm_fp16_rcr_none"]


def test_winners_without_rates_enter_beside_the_rates_of_a_similar_contract():
    found = measured()
    own = measured("gemm_fp16_rcr_bias")["winners"][:1]
    both = json.dumps(found | {"winners": found["winners"] + own})
    held = baked(f"{SPEC}epilogue: [none, bias, relu]\n", both)
    assert like_of(held) == {f"gemm_fp16_rcr_{x}": "gemm_fp16_rcr_none" for x in ("bias", "relu")}
    assert [(name, len(won)) for _, name, won in held.won] == [("gemm_fp16_rcr_bias", 1), ("gemm_fp16_rcr_none", 2)]
    assert [contract for _, contract, _ in held.rates] == ["gemm_fp16_rcr_none"]
    # Nor do they stand for another contract where the plain product is not in the family.
    alone = baked(f"{SPEC}epilogue: [bias, relu]\n", both)
    assert like_of(alone) == {"gemm_fp16_rcr_bias": "gemm_fp16_rcr_relu"}
    assert [(name, len(won)) for _, name, won in alone.won] == [("gemm_fp16_rcr_bias", 1), ("gemm_fp16_rcr_relu", 2)]


def test_rates_of_few_sizes_come_after_those_of_a_similar_contract():
    """Four sizes of a contract say little of others; eight say more than those of another contract."""
    found = measured()
    for sizes in (4, 8):
        own = measured("gemm_fp16_rcr_bias")
        own["winners"] = [own["winners"][0] | {"m": 64 * (1 + size)} for size in range(sizes)]
        plain = [found["winners"][0] | {"m": 64 * (1 + size)} for size in range(8)]
        both = found | {"winners": plain + own["winners"], "rates": found["rates"] + own["rates"]}
        held = baked(f"{SPEC}epilogue: [none, bias]\n", json.dumps(both))
        expected = {4: {"gemm_fp16_rcr_bias": "gemm_fp16_rcr_none"}, 8: {}}
        assert like_of(held) == expected[sizes]


def test_measurements_of_one_device_hide_none_of_another():
    """One device has measurements of the contract itself, the other only of the plain product."""
    own = measured("gemm_fp16_rcr_relu") | {"device": "Another GPU"}
    own["winners"] = [own["winners"][0] | {"m": 64 * (1 + size)} for size in range(8)]
    text = f"{SPEC.replace('found.json', '[found.json, own.json]')}epilogue: [none, relu]\n"
    held = tuned.bake(family_of(text, beside={"found.json": GOOD, "own.json": json.dumps(own)}))
    assert held.like == ((DEVICE, "gemm_fp16_rcr_relu", "gemm_fp16_rcr_none"),)
    rated = [(device, contract) for device, contract, _ in held.rates]
    assert rated == [(DEVICE, "gemm_fp16_rcr_none"), ("Another GPU", "gemm_fp16_rcr_relu")]


def test_the_error_told_is_of_files_of_which_something_entered():
    other = changed(lambda f: f.update(device="Another GPU", error=0.5, winners=[], rates=[]))
    text = SPEC.replace("found.json", "[found.json, other.json]")
    assert tuned.bake(family_of(text, beside={"found.json": GOOD, "other.json": other})).error == "3.4%"


def test_of_two_files_the_first_counts():
    other = changed(lambda f: f["winners"][0].update(config=LARGE))
    for files in (["found.json", "other.json"], ["other.json", "found.json"]):
        text = SPEC.replace("found.json", f"[{', '.join(files)}]")
        held = tuned.bake(family_of(text, beside={"found.json": GOOD, "other.json": other}))
        ((_, _, won),) = held.won
        assert dict((sizes, row) for sizes, _, row in won)[4096, 4096, 64] == (files[0] == "other.json")


def test_what_was_measured_of_the_same_type_comes_before_another_of_its_width():
    both = [measured("gemm_fp16_rcr_none"), measured("gemm_bf16_rcr_none")]
    found = both[0] | {key: both[0][key] + both[1][key] for key in ("winners", "rates")}
    held = baked(SPEC.replace("dtype: fp16", "dtype: [fp16, bf16]\nepilogue: [none, bias]"), json.dumps(found))
    assert like_of(held) == {f"gemm_{dtype}_rcr_bias": f"gemm_{dtype}_rcr_none" for dtype in ("fp16", "bf16")}
