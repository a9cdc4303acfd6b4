"""Which kernels no function of a family chooses: what the list says, and that the functions agree on a GPU."""

import json

import pytest
import torch

from generator.commands.command_line import main
from generator.emit import manifest_reader
from generator.emit.loading import library_module, load_family
from generator.emit.never_chosen import never_chosen
from generator.plan.devices import DEVICES
from generator.plan.families import families
from generator.verify.ahead_of_time import standing_in_for
from tests.helpers import shipped
from tests.helpers.support import BASE, SPECS, called, family_of

POINTER = "gemm_fp16_rcr_none__tiled_pointer_auto_grouped"


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        ("", []),
        ("masking: [none, auto]", ["tiled_pointer_none_grouped"]),
        # The one that takes fewer sizes is tried first.
        ("masking: [none, k]", []),
        ("swizzle: [linear, grouped, hilbert]", ["tiled_pointer_auto_linear", "tiled_pointer_auto_hilbert"]),
        # A descriptor does not address every operand.
        ("load: [pointer, descriptor]\ntargets: [sm90]", []),
        ("load: descriptor\nstore: [as_load, pointer]\ntargets: [sm90]", []),
        (
            "load: [pointer, descriptor]\nschedule: [tiled, persistent]\ntargets: [sm90]",
            ["persistent_pointer_auto_grouped", "persistent_descriptor_auto_grouped"],
        ),
        ("schedule: [tiled, split_k, naive]", ["splitk_pointer_auto_grouped", "naive_pointer_auto_grouped"]),
        # One load holds only so much of K.
        ("schedule: [naive, elementwise]\nswizzle: linear", []),
        # Where results must repeat, a kernel of atomic adds is left to others.
        ("dtype: {a: fp16, out: fp32}\nschedule: [split_k_atomic, stream_k]", ["splitkatomic_pointer_auto_grouped"]),
        ("schedule: [tiled, persistent]\nselect: fixed", ["persistent_pointer_auto_grouped"]),
        ("masking: [none, auto]\npackage: plain", ["tiled_pointer_none_grouped"]),
        # There are no functions.
        ("masking: [none, auto]\npackage: files", []),
        # The model gives a kernel with the same configurations the same cost, and takes the first.
        ("masking: [none, auto]\nselect: fastest\nschedule: tiled\nload: pointer\ntargets: [sm80]", None),
        ("schedule: [tiled, split_k]\nselect: fastest\nload: pointer\ntargets: [sm80]", []),
    ],
)
def test_what_is_never_chosen(text, unused):
    own = {line.partition(":")[0] for line in text.splitlines()}
    lines = [line for line in BASE.splitlines() if line.partition(":")[0] not in own]
    family = family_of("\n".join([*lines, text, ""]))
    found = [each.name.partition("__")[2] for each in never_chosen(family)]
    if unused is None:
        unused = [kernel.how for kernel in family.kernels if "_none_" in kernel.how]
        assert unused
    assert found == unused


def test_a_kernel_is_compared_on_each_of_its_targets():
    """One that another covers on some of its targets alone may be chosen on the others."""
    text = "summary: S.\nlayout: rcr\ndtype: {a: mxfp8e4m3}\nproduct: [direct, scaled]\ntargets: [%s]\n"
    assert never_chosen(family_of(text % "sm90, sm100")) == ()
    (found,) = never_chosen(family_of(text % "sm100"))
    assert found.name.endswith("__tiled_pointer_auto_grouped") and "_productscaled is tried before it" in found.reason


def test_the_list_the_manifest_and_json_agree(tmp_path, capsys):
    spec = tmp_path / "two.yaml"
    spec.write_text(BASE + "masking: [none, auto]\n")
    name = "gemm_fp16_rcr_none__tiled_pointer_none_grouped"
    reason = f"{POINTER} is tried before it and accepts every call that it accepts; `select: heuristic` does not"
    said = called(capsys, spec, "--list").out
    assert f"  never chosen by a function: 1\n  - {name}: {reason} compare kernels\n" in said
    (listed,) = json.loads(called(capsys, spec, "--list", "--json").out)
    assert main([str(spec), "--out", str(tmp_path)]) == 0
    manifest = json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert manifest["never_chosen"] == listed["never_chosen"] == [{"name": name, "reason": f"{reason} compare kernels"}]
    manifest_reader.read(tmp_path / "two")
    # What is not selected is not listed; the others stay what they are in the whole family.
    assert "never chosen" not in called(capsys, spec, "--list", "--only", "*_auto_*").out
    assert f"  - {name}: " in called(capsys, spec, "--list", "--only", "*_none_*").out
    spec.write_text(BASE)
    assert main([str(spec), "--out", str(tmp_path)]) == 0
    assert "never_chosen" not in json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert json.loads(called(capsys, spec, "--list", "--json").out)[0]["never_chosen"] == []


#: Sizes with a reason: a vector, few rows, one past a tile, multiples of every tile, an odd pitch, a long K.
SIZES = [(1, 4096, 4096), (16, 4096, 4096), (129, 257, 65), (4096, 4096, 4096), (1000, 1001, 1002), (64, 64, 65536)]


def _run(folder, device):
    """The kernels that calls of a family's functions run on a device, at all alignments of A and B."""
    found = set()
    with standing_in_for(DEVICES[device]):
        family = load_family(folder.resolve())
        ahead = library_module(family, "prepare")
        for name in family._KERNELS:
            for m, n, k in SIZES:
                options = {"M": m, "B": 1, "device": torch.device("cuda", 0), "unaligned": ("a", "b")}
                try:
                    launches = ahead.launches(getattr(family, name), n, k, **options)
                except ValueError:
                    continue
                found |= {launch.name for launch in launches}
    return found


@pytest.mark.parametrize("family", ["fp16_rcr", "bf16_rrr", "fp8e4m3_rcr", "gemm16", "split_k", "ladder"])
def test_functions_run_none_of_them(family):
    (found,) = families([path for path in SPECS if path.stem == family])
    unused = {each.name for each in never_chosen(found)}
    ran = {name for device in ("nvidia_h200", "nvidia_a100_sxm4_80gb") for name in _run(shipped.folder(family), device)}
    # What copies an operand is no kernel of the family.
    assert ran & {kernel.name for kernel in found.kernels} and not ran & unused
