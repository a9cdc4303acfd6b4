"""Names of GPUs lead to their targets: in specs, and in the options of commands."""

from __future__ import annotations

import re

import pytest

from generator.commands import explain, tune
from generator.commands.command_line import main
from generator.language import gpus
from generator.language.errors import CallError
from generator.language.gpus import gpu_of, nearest_target
from generator.language.targets import TARGETS
from generator.plan.devices import DEVICES, named, of_gpu
from tests.helpers.support import BASE, GENERATED, called, mistakes_of

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


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("h100", "unknown value 'h100'; h100 is a GPU of sm90; legal: sm80, "),
        ("RTX 4090", "unknown value 'RTX 4090'; RTX 4090 is a GPU of sm89; legal: "),
        ("t4", "unknown value 't4'; t4 is a GPU of sm75, which is not supported; legal: "),
        ("sm_90", "did you mean 'sm90'? legal: "),
        ("SM90", "did you mean 'sm90'? legal: "),
        ("sm91", "did you mean 'sm90'? legal: "),
    ],
)
def test_a_spec_leads_to_the_target(word: str, told: str) -> None:
    (mistake,) = mistakes_of(f"{BASE}targets: [{word}]\n")
    assert told in mistake and "sm100'?" not in mistake


def test_the_option_target_leads_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    said = called(capsys, "verify", GENERATED / "ladder", "--level", "compile", "--target", "h100")
    assert said.status == 2 and "--target: invalid choice: 'h100'; h100 is a GPU of sm90; legal: all, sm80" in said.err
    assert nearest_target("sm9O", ("all", "sm90")).startswith("did you mean 'sm90'? ")


@pytest.mark.parametrize("command", ["explain", "prepare"])
def test_the_option_device_leads_to_it(capsys: pytest.CaptureFixture[str], command: str) -> None:
    shape = ["--shape", "N=64,K=64,M=1"] if command == "prepare" else []
    said = called(capsys, command, GENERATED / "ladder", "--device", "h100", *shape)
    assert said.status == 2
    if command == "explain":
        assert "h100 is a GPU of sm90: write nvidia_h100_80gb_hbm3" in said.err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (
            "h200",
            "'h200' is not known; legal: nvidia_a100_sxm4_80gb, nvidia_h100_80gb_hbm3, nvidia_h200; h200 is a GPU",
        ),
        ("a100", "; a100 is a GPU of sm80: write nvidia_a100_sxm4_80gb"),
        ("GH200", "; GH200 is a GPU of sm90: write nvidia_h100_80gb_hbm3 or nvidia_h200"),
        ("rtx4090", "; rtx4090 is a GPU of sm89, and no figures of one are known"),
        ("t4", "; t4 is a GPU of sm75, which is not supported, and no figures of one are known"),
    ],
)
def test_a_device_leads_to_what_is_known(word: str, told: str) -> None:
    with pytest.raises(CallError) as caught:
        named(word)
    assert told in str(caught.value)


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


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("l4", "--gpu: l4 is a GPU of sm89, and no figures of one are known; known: a100, h100, h200"),
        ("h800", "--gpu: h800 is a GPU of sm90, and no figures of one are known; known of sm90: h100, h200"),
        ("t4", "--gpu: t4 is a GPU of sm75, which is not supported, and no figures of one are known; known: a100"),
        ("mi300x", "--gpu: mi300x is a GPU of gfx942, and no figures of one are known; known: a100, h100, h200"),
        ("sm90", "--gpu: sm90 is an architecture; kernels are chosen for a GPU: h100, h200"),
        ("h10o", "--gpu: 'h10o' is not known; did you mean 'h100'? legal: a100, h100, h200"),
        ("", "--gpu: '' is not known; legal: a100, h100, h200"),
    ],
)
def test_a_gpu_without_figures(word: str, message: str) -> None:
    with pytest.raises(CallError, match=re.escape(message)):
        of_gpu(word)


@pytest.mark.parametrize(
    "call",
    [
        ("explain", GENERATED / "ladder"),
        ("prepare", GENERATED / "ladder", "--shapes", "64x64,1"),
        ("tune", "x.yaml", "--dry-run"),
        ("package", GENERATED / "ladder", "--format", "cubin", "--shapes", "64x64,1", "--out", "made"),
    ],
)
def test_gpu_stands_beside_device(capsys: pytest.CaptureFixture[str], call: tuple[object, ...]) -> None:
    said = called(capsys, *call, "--gpu", "l4")
    assert said.status == 2 and "--gpu: l4 is a GPU of sm89, and no figures" in said.err and said.out == ""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, call), "--gpu", "h100", "--device", "nvidia_a100_sxm4_80gb"])
    assert ended.value.code == 2 and "argument --device: not allowed with argument --gpu" in capsys.readouterr().err


def test_gpu_gives_the_device() -> None:
    assert explain.parser().parse_args(["x", "--gpu", "h100"]).device == "nvidia_h100_80gb_hbm3"
    assert explain.parser().parse_args(["x"]).device == "nvidia_h200"
    assert tune.parse(["x.yaml", "--again", "--gpu", "A100"]).device == "nvidia_a100_sxm4_80gb"
    assert tune.parse(["x.yaml"]).device is None
