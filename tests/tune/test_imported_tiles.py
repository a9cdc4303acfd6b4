"""Tiles of vLLM: candidates beside those of the model, winners only where they are trusted, and told where unknown."""

import json
from pathlib import Path

import pytest

from generator.language import tuned_file
from generator.language.errors import CallError
from generator.problem.product import Shape
from generator.tune import imported_tiles

SPEC = (
    "summary: Layers.\nlayout: rcr\ndtype: bf16\nbatch: {batch}\nselect: table\ntuned: layers.json\nschedule: tiled\n"
    "load: [pointer, descriptor]\nstore: pointer\ntargets: [sm90]\ntile:\n"
    "  - {{m: 16, n: 64, k: 128, group: 1, warps: 4, stages: 3}}\n"
    "  - {{m: 64, n: 128, k: 64, group: 16, warps: 4, stages: 4}}\n"
    "  - {{m: 128, n: 128, k: 64, group: 8, warps: 8, stages: 3}}\n"
)
BLOCKS = "N=2112,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
EXPERTS = "E=8,N=14336,device_name=NVIDIA_H200.json"


def tile(m, n, k, group, warps, stages, **more):
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return {**dict(zip(names, (m, n, k, group, warps, stages))), **more}


TILES = {
    "triton_version": "3.4.0",
    "1": tile(16, 64, 128, 1, 4, 3),
    "64": tile(64, 128, 64, 16, 4, 4, SPLIT_K=1),
    "512": tile(256, 128, 64, 8, 8, 3),
}
LACKING = "no kernel has {m: 256, n: 128, k: 64, group: 8, warps: 8, stages: 3}; where it is legal, add it to `tile`"


@pytest.fixture
def tune(cli):
    """`tune` with a file of vLLM, for a family that is rendered beside it."""
    for name in (BLOCKS, EXPERTS):
        Path(name).write_text(json.dumps(TILES))

    def run(file, *words, batch="none"):
        Path("layers.yaml").write_text(SPEC.format(batch=batch))
        assert cli("layers.yaml", "--out", "out").status == 0
        return cli("tune", "layers.yaml", "--out", "out", "--import", "vllm", file, "--device", "nvidia_h200", *words)

    return run


def test_its_rows_are_measured_beside_the_models_candidates(tune):
    said = tune(BLOCKS, "--dry-run", "--candidates", "1")
    assert said.status == 0
    found = said.out.split("gemm_bf16_rcr_none ")[1:]
    assert [each.partition("\n")[0] for each in found] == ["1x2112x7168", "64x2112x7168", "512x2112x7168"]
    assert [each.count("16x64x128, group 1") for each in found] == [2, 1, 0]
    assert [each.count("64x128x64, group 16") for each in found] == [0, 2, 1]
    assert said.err == f"--import: gemm_bf16_rcr_none at 512x2112x7168: {LACKING}\n"
    assert not Path("layers.json").exists()


def test_only_trust_makes_winners_of_what_was_not_measured(tune, cli):
    said = tune(BLOCKS, "--trust")
    assert (said.status, said.out) == (0, "layers.json: 2 winners, none of them measured\n") and LACKING in said.err
    found = tuned_file.parse(Path("layers.json").read_text())
    assert found.device == "NVIDIA H200" and [x.sizes for x in found.winners] == [(1, 2112, 7168), (64, 2112, 7168)]
    assert all(x.seconds is None for x in found.winners)
    said = cli("layers.yaml", "--out", "out")
    assert (said.status, said.err) == (0, "")
    entry = '(64, 2112, 7168): ("tiled_descriptor_auto_grouped_storepointer", 1)'
    assert entry in Path("out/layers/_tuned.py").read_text()
    Path("mine.json").write_text("{}")
    said = tune(BLOCKS, "--trust", "--tuned", "mine.json")
    assert said.status == 2 and "mine.json is there, and may be measured" in said.err
    assert Path("mine.json").read_text() == "{}"


def test_fused_experts_need_sizes_and_take_the_row_of_the_nearest_m(tune):
    said = tune(EXPERTS, "--dry-run", batch="grouped")
    assert said.status == 2 and f"the name of {EXPERTS} has no N and K: give the sizes with --shapes" in said.err
    said = tune(EXPERTS, "--trust", "--shapes", "8g70x2048x4096", "--shapes", "8g300x2048x4096", batch="grouped")
    assert "at 8g300x2048x4096: no kernel has {m: 256" in said.err
    (winner,) = json.loads(Path("layers.json").read_text())["winners"]
    assert winner["config"]["BLOCK_M"] == 64 and (winner["divided"], winner["batch"]) == (True, 8)


def test_nothing_that_fits_writes_nothing(tune):
    Path(BLOCKS).write_text(json.dumps({"512": tile(16, 64, 128, 1, 4, 3, kpack=2)}))
    said = tune(BLOCKS, "--trust")
    assert said.status == 1 and "kpack: 2}" in said.err and not Path("layers.json").exists()


def test_a_kernel_without_bands_has_a_group_of_one():
    tiles = imported_tiles.ImportedTiles(Path(BLOCKS), {1: TILES["1"]})
    config = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "num_warps": 4, "num_stages": 3}
    assert tiles.takes(Shape(5, 5, 5), config) and not tiles.takes(Shape(5, 5, 5), {**config, "SPLIT": 2})


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("vlm", "{}", "unknown kind of file 'vlm'; did you mean 'vllm'"),
        *(("vllm", text, "is not a file of tiles of vLLM") for text in ("{}", '{"1": {"BLOCK_SIZE_M": "16"}}', "[")),
        ("vllm", None, "there is no file"),
    ],
)
def test_other_files_are_refused(tmp_path, kind, text, message):
    path = tmp_path / BLOCKS
    if text is not None:
        path.write_text(text)
    with pytest.raises(CallError, match=message):
        imported_tiles.read(kind, str(path))
