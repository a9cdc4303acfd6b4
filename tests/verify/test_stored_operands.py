"""Kernels of stored operands are proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.commands.command_line import main


def test_kernels_of_every_kind_of_storage_are_proved(tmp_path: Path, shared_workers: None) -> None:
    (tmp_path / "kinds.yaml").write_text(
        "summary: Kinds of storage.\nlayout: rcr\nselect: fixed\ntargets: [sm90]\n"
        "dtype:\n"
        "  - {a: bf16, b: int4, scales: {b: [32, 1]}}\n"
        "  - {a: fp16, b: uint4, scales: {b: [32, 4]}, zeros: {b: true}}\n"
        "  - {a: fp8e4m3, scales: {a: [1, 32], b: [64, 16]}}\n"
        "epilogue: [none, swiglu]\nbatch: [none, strided]\nproduct: [direct, exchanged]\n"
        "schedule: [tiled, persistent, split_k, stream_k]\nload: [pointer, descriptor]\n"
        "tile: [{m: 16, n: 64, k: 32, warps: 4, split: 2}]\n"
    )
    assert main([str(tmp_path / "kinds.yaml"), "--out", str(tmp_path)]) == 0
    assert (
        main(["verify", str(tmp_path / "kinds"), "--level", "interpret", "--coverage", "kernels", "--jobs", "1"]) == 0
    )


@pytest.mark.parametrize(
    ("axes", "cases"),
    [
        # Batches and the schedules that are not here, each with every kind of storage, are in the test above. Of the
        # cases: blocks, groups, least and special.
        ("batch: [none, grouped]\nschedule: [tiled, split_k]\n", "[bgls][lrep]*"),
        pytest.param(
            "batch: [none, strided, grouped]\nschedule: [tiled, persistent, split_k, stream_k]\n",
            "*",
            marks=pytest.mark.product,
        ),
    ],
    ids=["few", "all"],
)
def test_kernels_of_every_format_are_proved(axes: str, cases: str, tmp_path: Path, shared_workers: None) -> None:
    (tmp_path / "formats.yaml").write_text(
        "summary: Formats with scales of their own.\nlayout: [rcr, crr]\nselect: fixed\ntargets: [sm90]\n"
        "dtype:\n"
        "  - {a: bf16, b: mxfp4}\n  - {a: fp16, b: nvfp4}\n  - {a: mxfp8e5m2, b: mxfp8e4m3}\n"
        "  - {a: mxfp8e4m3, b: mxfp4}\n  - {a: mxfp4, b: mxfp8e5m2}\n  - {a: nvfp4}\n"
        f"epilogue: [none, swiglu]\n{axes}product: [direct, exchanged]\nload: [pointer, descriptor]\nstore: pointer\n"
        "tile: [{m: 16, n: 64, k: 32, warps: 4, split: 2}, {m: 16, n: 64, k: 16, warps: 4, split: 2}]\n"
    )
    assert main([str(tmp_path / "formats.yaml"), "--out", str(tmp_path)]) == 0
    folder = str(tmp_path / "formats")
    some = ["--coverage", "kernels", "--case", cases, "--jobs", "1"]
    assert main(["verify", folder, "--level", "interpret", *some]) == 0


def test_scaled_products_of_every_kind_are_proved(tmp_path: Path, shared_workers: None) -> None:
    (tmp_path / "scaled.yaml").write_text(
        "summary: Scaled products.\nlayout: rcr\nselect: fixed\ntargets: [sm100]\nproduct: scaled\n"
        "dtype: [{a: mxfp4, b: mxfp8e5m2}, {a: nvfp4}]\n"
        "epilogue: [none, swiglu]\nbatch: [none, strided, grouped]\n"
        "schedule: [tiled, persistent, split_k]\nload: [pointer, descriptor]\nstore: pointer\n"
        "tile: [{m: 128, n: 32, k: 128, warps: 4, split: 2}]\n"
    )
    assert main([str(tmp_path / "scaled.yaml"), "--out", str(tmp_path)]) == 0
    some = ["--coverage", "kernels", "--case", "blocks", "--jobs", "1"]
    assert main(["verify", str(tmp_path / "scaled"), "--level", "interpret", *some]) == 0
    bounds = ["--only", "gemm_*pointer_auto*", "--jobs", "1"]
    assert main(["verify", str(tmp_path / "scaled"), "--level", "bounds", *bounds]) == 0
