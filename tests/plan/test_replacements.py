"""Axes that a spec leaves unset: the default words, and others on targets that cannot run these."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.plan import replacements
from tests.helpers.support import BASE, called, family_of, mistakes_of

INT4 = "{a: bf16, b: int4, scales: {b: [128, 1]}}"
#: The mappings of the first table of docs/stored_operands.md whose direct product sm90 refuses.
PACKED = {
    "int4": INT4,
    "uint4": "{a: fp16, b: uint4, scales: {b: [64, 1]}, zeros: {b: true}}",
    "mxfp4": "{a: bf16, b: mxfp4}",
    "nvfp4": "{a: nvfp4, b: nvfp4}",
    "sparse": '{a: fp16, sparsity: {b: "2:4"}}',
}


def spec(dtype: str, more: str = "", layout: str = "rcr") -> str:
    return f"summary: A product.\nlayout: {layout}\ndtype: {dtype}\n{more}"


def served(text: str) -> dict[str, tuple[str, ...]]:
    return {kernel.how: kernel.targets for kernel in family_of(text).kernels}


@pytest.mark.parametrize(
    "more",
    ["", "batch: grouped\n", "epilogue: swiglu\n", "select: autotune\n", "invariant: rows\n", "package: files\n"],
)
@pytest.mark.parametrize("dtype", PACKED.values(), ids=PACKED)
def test_default_words_serve_the_default_targets(dtype: str, more: str) -> None:
    direct = "tiled_pointer_auto_grouped"
    assert served(spec(dtype, more)) == {direct: ("sm80",), f"{direct}_productexchanged": ("sm90",)}
    assert family_of(spec(dtype, more)).spec.warnings == ()


@pytest.mark.parametrize("schedule", ["persistent", "split_k", "stream_k"])
def test_each_schedule_takes_what_runs(schedule: str) -> None:
    name = f"{schedule.replace('_', '')}_pointer_auto_grouped"
    assert served(spec(INT4, f"schedule: {schedule}\n")) == {name: ("sm80",), f"{name}_productexchanged": ("sm90",)}


def test_what_takes_a_place_is_told() -> None:
    family = family_of(spec(INT4))
    (left,) = family.left_out
    exchanged = "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none__tiled_pointer_auto_grouped_productexchanged"
    assert left.target == "sm90"
    assert left.reason.endswith(f"from sm90 on; {exchanged} is in its place") and "use 'product" not in left.reason


@pytest.mark.parametrize(
    ("dtype", "target", "how"),
    [
        (INT4, "sm90", "tiled_pointer_auto_grouped_productexchanged"),
        # Without the instructions of 64 rows: what makes B dense first, and takes any operand.
        (INT4, "sm120", "decoded_pointer_auto_grouped"),
        (PACKED["sparse"], "sm120", "decoded_pointer_auto_grouped"),
        # A has scales of its own, so that nothing is made dense.
        ("{a: mxfp8e4m3, b: mxfp4}", "sm120", "tiled_descriptor_auto_grouped"),
        (PACKED["nvfp4"], "sm120", "tiled_pointer_auto_grouped_productscaled"),
    ],
)
def test_a_target_that_a_spec_lists_takes_what_runs_there(dtype: str, target: str, how: str) -> None:
    assert served(spec(dtype, f"targets: [{target}]\n")) == {how: (target,)}


def test_an_axis_that_a_spec_names_stays_as_named() -> None:
    text = spec(INT4, "product: direct\nschedule: tiled\nload: pointer\n")
    assert served(text) == {"tiled_pointer_auto_grouped": ("sm80",)}
    (warning,) = family_of(text).spec.warnings
    assert "sm90 is a default target, and no kernel runs there: unaligned rows" in warning.message
    assert warning.message.endswith("use 'product: exchanged'; write 'targets: [sm80]' if you do not need it")
    (mistake,) = mistakes_of(text + "targets: [sm80, sm90]\n")
    assert "targets: 'sm90' survives in no variant: unaligned rows" in mistake


def test_other_axes_change_only_where_a_contract_has_nothing_else() -> None:
    """With both products every target has a kernel: nothing is added."""
    both = "product: [direct, exchanged]\n"
    direct = "tiled_pointer_auto_grouped"
    assert served(spec(INT4, both)) == {direct: ("sm80",), f"{direct}_productexchanged": ("sm90",)}
    assert "decoded_pointer_auto_grouped" in served(spec(INT4, "product: direct\n"))


def test_an_exclusion_leaves_nothing_in_its_place() -> None:
    text = spec(f"[fp16, {INT4}]", f"exclude: [{{dtype: {INT4}, because: x}}]\n")
    (mistake,) = mistakes_of(text)
    assert "survives in no variant: excluded: x" in mistake


@pytest.mark.parametrize(
    ("more", "lacking"),
    [("load: descriptor\n", "sm80"), ("product: exchanged\n", "sm80"), ("dtype: fp8e4m3\n", "sm80")],
)
def test_a_default_target_that_nothing_serves_is_a_warning(more: str, lacking: str) -> None:
    text = BASE.replace("dtype: fp16\n", "") + more if "dtype" in more else BASE + more
    (warning,) = family_of(text).spec.warnings
    assert warning.message.startswith(f"targets: {lacking} is a default target, and no kernel runs there: ")
    assert family_of(text + "targets: [sm90]\n").spec.warnings == ()


@pytest.mark.parametrize("option", ["--list", "--check", "--diff"])
def test_the_warning_is_printed_whatever_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "x.yaml").write_text(f"{BASE}load: descriptor\n")
    done = called(capsys, tmp_path / "x.yaml", option, "--out", tmp_path / "out")
    assert "x.yaml:1:1: warning: targets: sm80 is a default target" in done.err


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_a_target_with_little_shared_memory_has_a_default_configuration(target: str) -> None:
    (kernel,) = family_of(spec(PACKED["sparse"], f"targets: [sm80, {target}]\n")).kernels
    assert kernel.targets == ("sm80", target)
    own = [index for index in range(len(kernel.tiles)) if index not in dict(kernel.not_offered)[target]]
    assert own == [len(kernel.tiles) - 1]


def test_sums_that_do_not_repeat_are_never_chosen_unasked() -> None:
    assert "split_k_atomic" not in replacements._others("schedule")
