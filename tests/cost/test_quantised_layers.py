"""Which kernels, tiles and choices contracts have whose results are quantised, and gates under scales of blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.commands.command_line import main
from generator.cost import tuned
from generator.plan.configurations import configurations
from tests.helpers.support import family_of

BLOCK_FP8 = "layout: rcr\ndtype: {a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}\ntargets: [sm90]\n"


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        (BLOCK_FP8, "[swiglu, {quantize: {to: fp8e4m3}}]"),
        (BLOCK_FP8, "[{quantize: {to: fp8e4m3}}]"),
        (BLOCK_FP8, "[swiglu, {quantize: {to: fp8e4m3, block: 256}}]"),
        (BLOCK_FP8, "[geglu, {quantize: {to: int8, block: 64}}]"),
        ("layout: rcr\ndtype: bf16\ntargets: [sm90]\n", "[bias, swiglu, {quantize: {to: fp8e4m3}}]"),
        ("layout: rcr\ndtype: bf16\ntargets: [sm90]\n", "[{quantize: {to: fp8e4m3, block: 256}}]"),
        ("layout: rcr\ndtype: fp8e4m3\ntargets: [sm90]\n", "[swiglu, {quantize: {to: fp8e4m3}}]"),
    ],
)
def test_the_fastest_kernels_have_tiles_of_whole_blocks(keys: str, last: str) -> None:
    family = family_of(f"summary: x\n{keys}select: fastest\nepilogue: [{last}]\n")
    block = family.kernels[0].variant.quantised.block  # type: ignore[union-attr]
    copied = [kernel for kernel in family.kernels if kernel.variant.loading.descriptors]
    assert {"tiled"} <= {kernel.variant.schedule for kernel in copied}
    assert all(tile.n % block == 0 for kernel in family.kernels for tile in kernel.tiles)
    # No measured kernel is left out because its columns are too few.
    assert [left for left in family.left_out if "must be a multiple" in left.reason] == []


def test_a_tile_of_more_columns_has_no_rates_of_the_one_that_was_measured() -> None:
    family = family_of(f"summary: x\n{BLOCK_FP8}select: fastest\nepilogue: [[{{quantize: {{to: fp8e4m3}}}}]]\n")
    plain = family_of(f"summary: x\n{BLOCK_FP8}select: fastest\n")
    (measured,), (found,) = (
        [rates for device, _, rates in tuned.bake(each).rates if device == "NVIDIA H200"] for each in (plain, family)
    )
    rows = {how: configurations(kernel) for kernel in plain.kernels for how in [kernel.how]}
    known = {text: rows[how][index] for how, entries in measured for index, text in entries}
    own = {kernel.how: configurations(kernel) for kernel in family.kernels}
    compared = [(own[how][index], known[text]) for how, entries in found for index, text in entries]
    assert compared
    for one, other in compared:
        assert one["BLOCK_M"] * one["BLOCK_N"] == other["BLOCK_M"] * other["BLOCK_N"]


@pytest.mark.parametrize("select", ["fastest", "heuristic"])
@pytest.mark.parametrize("last", ["[swiglu, {quantize: {to: fp8e4m3}}]", "swiglu", "[geglu, {quantize: {to: int8}}]"])
def test_a_gate_of_block_fp8_runs_tiles_that_the_hardware_copies(
    select: str, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "" if select == "fastest" else "schedule: [tiled, persistent]\nload: [pointer, descriptor]\nstore: pointer\n"
    )
    spec = tmp_path / "layer.yaml"
    spec.write_text(f"summary: x\n{BLOCK_FP8}{words}select: {select}\nepilogue: [{last}]\n")
    assert main(["explain", str(spec), "--sizes", "4096,14336,4096", "--device", "nvidia_h200"]) == 0
    said = capsys.readouterr().out
    # On an H100 tiles of 128 rows take up to 17 % longer.
    columns = 128 if "quantize" in last else 64
    chosen = f"configuration: BLOCK_M 64, BLOCK_N {columns}, BLOCK_K 128, GROUP_M 8"
    assert f"__tiled_descriptor_auto_grouped_storepointer\n    {chosen}" in said
