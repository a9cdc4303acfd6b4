"""Names of GPUs lead to their targets: in specs, and in the options of commands."""

from __future__ import annotations

import re

import pytest

from generator.commands import explain, tune
from generator.language import gpus
from generator.language.gpus import gpu_of
from generator.language.targets import TARGETS
from generator.plan.devices import DEVICES, named, of_gpu

NAMES = {
    "h100": "sm90",
    "H100": "sm90",
    "NVIDIA H100 80GB HBM3": "sm90",
    "h100-pcie": "sm90",
    "nvidia_h200": "sm90",
    "GH200": "sm90",
    "a100": "sm80",
    "NVIDIA A100-SXM4-80GB": "sm80",
    "a30": "sm80",
    "a10": "sm86",
    "A10G": "sm86",
    "a40": "sm86",
    "NVIDIA RTX A6000": "sm86",
    "rtx 3090": "sm86",
    "l4": "sm89",
    "L40": "sm89",
    "l40s": "sm89",
    "NVIDIA GeForce RTX 4090": "sm89",
    "rtx_4090": "sm89",
    "RTX-4090": "sm89",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "sm89",
    "NVIDIA RTX 6000 Ada Generation": "sm89",
    "b100": "sm100",
    "b200": "sm100",
    "gb200": "sm100",
    "rtx5090": "sm120",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "sm120",
    "mi200": "gfx90a",
    "mi250": "gfx90a",
    "AMD Instinct MI300X": "gfx942",
    "mi325x": "gfx942",
    "MI355X": "gfx950",
    "AMD Radeon RX 7900 XTX": "gfx1100",
    "rx7900xtx": "gfx1100",
    "rx-9070-xt": "gfx1201",
    # No kernel is made for these.
    "t4": "sm75",
    "Tesla V100-SXM2-16GB": "sm70",
    "gb10": "sm121",
    "b300": "sm103",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_known(name: str) -> None:
    gpu = gpu_of(name)
    assert gpu is not None and gpu.architecture == NAMES[name] and gpu.supported == (NAMES[name] in TARGETS)


@pytest.mark.parametrize("name", ["", "h1000", "sm90", "gfx942", "banana", "nvidia", "100", "rtx", "a"])
def test_other_words_are_no_gpus(name: str) -> None:
    assert gpu_of(name) is None


def test_each_name_has_one_architecture_that_exists() -> None:
    listed = [name for names in gpus._OF_ARCHITECTURE.values() for name in names.split()]
    assert len(listed) == len(set(listed)) and all(re.fullmatch("[a-z0-9]+", name) for name in listed)
    assert all(gpu_of(device.name) and gpu_of(device.name).architecture == device.target for device in DEVICES.values())  # type: ignore[union-attr]
    assert set(TARGETS) <= set(gpus._OF_ARCHITECTURE)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_device_has_the_name_that_torch_reports(device: object) -> None:
    assert named(device.name) is device  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("word", "slug"),
    [
        ("h100", "nvidia_h100_80gb_hbm3"),
        ("H100-SXM", "nvidia_h100_80gb_hbm3"),
        ("NVIDIA H200", "nvidia_h200"),
        ("nvidia_h200", "nvidia_h200"),
        ("a100", "nvidia_a100_sxm4_80gb"),
    ],
)
def test_a_gpu_is_the_device_of_its_name(word: str, slug: str) -> None:
    assert of_gpu(word) is DEVICES[slug]


def test_gpu_gives_the_device() -> None:
    assert explain.parser().parse_args(["x", "--gpu", "h100"]).device == "nvidia_h100_80gb_hbm3"
    assert explain.parser().parse_args(["x"]).device == "nvidia_h200"
    assert tune.parse(["x.yaml", "--again", "--gpu", "A100"]).device == "nvidia_a100_sxm4_80gb"
    assert tune.parse(["x.yaml"]).device is None
