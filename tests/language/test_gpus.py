"""Names of GPUs lead to their targets: in specs, and in the options of commands."""

from __future__ import annotations

import re

import pytest

from generator.commands import explain, tune
from generator.language import gpus
from generator.language.gpus import gpu_of
from generator.language.targets import TARGETS
from generator.plan.devices import DEVICES, named, of_gpu

#: Names of GPUs as drivers, shops and users write them, by their targets; no kernel is made for the last four.
NAMES = {
    "sm90": "h100, H100, NVIDIA H100 80GB HBM3, h100-pcie, nvidia_h200, GH200",
    "sm80": "a100, NVIDIA A100-SXM4-80GB, a30",
    "sm86": "a10, A10G, a40, NVIDIA RTX A6000, rtx 3090",
    "sm89": "l4, L40, l40s, NVIDIA GeForce RTX 4090, rtx_4090, RTX-4090, NVIDIA GeForce RTX 4090 Laptop GPU, "
    "NVIDIA RTX 6000 Ada Generation",
    "sm100": "b100, b200, gb200",
    "sm120": "rtx5090, NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "gfx90a": "mi200, mi250",
    "gfx942": "AMD Instinct MI300X, mi325x",
    "gfx950": "MI355X",
    "gfx1100": "AMD Radeon RX 7900 XTX, rx7900xtx",
    "gfx1201": "rx-9070-xt",
    "sm75": "t4",
    "sm70": "Tesla V100-SXM2-16GB",
    "sm121": "gb10",
    "sm103": "b300",
}


@pytest.mark.parametrize("target", NAMES)
def test_a_name_is_known(target: str) -> None:
    for name in NAMES[target].split(", "):
        gpu = gpu_of(name)
        assert gpu is not None and gpu.architecture == target and gpu.supported == (target in TARGETS), name


@pytest.mark.parametrize("name", ["", "h1000", "sm90", "gfx942", "banana", "nvidia", "100", "rtx", "a"])
def test_other_words_are_no_gpus(name: str) -> None:
    assert gpu_of(name) is None


def test_each_name_has_one_architecture_that_exists() -> None:
    listed = [name for names in gpus._OF_ARCHITECTURE.values() for name in names.split()]
    assert len(listed) == len(set(listed)) and all(re.fullmatch("[a-z0-9]+", name) for name in listed)
    assert set(TARGETS) <= set(gpus._OF_ARCHITECTURE)
    for device in DEVICES.values():
        gpu = gpu_of(device.name)
        assert gpu is not None and gpu.architecture == device.target and named(device.name) is device


def test_a_gpu_is_the_device_of_its_name() -> None:
    slugs = {"nvidia_h100_80gb_hbm3": ("h100", "H100-SXM"), "nvidia_h200": ("NVIDIA H200", "nvidia_h200")}
    for slug, words in (*slugs.items(), ("nvidia_a100_sxm4_80gb", ("a100",))):
        assert [of_gpu(word) for word in words] == [DEVICES[slug]] * len(words)


def test_gpu_gives_the_device() -> None:
    assert explain.parser().parse_args(["x", "--gpu", "h100"]).device == "nvidia_h100_80gb_hbm3"
    assert explain.parser().parse_args(["x"]).device == "nvidia_h200"
    assert tune.parse(["x.yaml", "--again", "--gpu", "A100"]).device == "nvidia_a100_sxm4_80gb"
    assert tune.parse(["x.yaml"]).device is None
