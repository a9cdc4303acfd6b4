"""The classes of launches, and what Triton is told of each: as the launch path itself has it."""

import pytest

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import read
from generator.language.targets import TARGETS
from generator.plan import legality
from generator.verify.launches import REFUSED, launches, left_out
from generator.verify.specialise import specialise
from tests.helpers import shipped
from tests.helpers.support import ROOT

FP16 = read(ROOT / "generated" / "fp16_rcr")
AUTO = "gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped"
NONE = "gemm_fp16_rcr_bias_relu__tiled_pointer_none_grouped"


def classes(kernel, target="sm90", row=0):
    return {launch.case.name: launch for launch in launches(kernel, target) if launch.row == row}


def specialised(name, case, target="sm90"):
    kernel = FP16.by_name[name]
    (found,) = specialise(load_kernel(FP16.file(name)), kernel, classes(kernel, target)[case], target)
    return found


def known(found):
    """The constants of a specialisation, and the names of what is a multiple of 16."""
    names = list(found.signature)
    constants = {names[path[0]]: value for path, value in found.constants.items()}
    return constants, {names[path[0]] for path, entries in found.known.items() if entries}


def test_a_kernel_for_any_size_is_launched_in_every_class():
    assert classes(FP16.by_name[AUTO]).keys() == {
        "aligned", "ragged", "unit", "unaligned", "wide", "wide-stride", "operands",
        "ragged-m", "ragged-n", "ragged-k", "ragged-mn", "ragged-mk", "ragged-nk",
    }  # fmt: skip


def test_a_kernel_for_whole_tiles_is_never_ragged():
    assert classes(FP16.by_name[NONE]).keys() == {"aligned", "unaligned", "wide", "operands"}


def test_every_row_is_launched_on_every_target_that_holds_it():
    for target in TARGETS:
        for kernel in FP16.kernels:
            found = launches(kernel, target)
            if left_out(kernel, target) is not None:
                assert not found
                continue
            for row, tile in enumerate(kernel.tiles):
                names = {launch.case.name for launch in found if launch.row == row}
                fits = legality.why_no_row_on(kernel.variant, tile, target) is None
                assert ("aligned" in names) == fits
                assert (names == {REFUSED}) == (not fits)


def test_whole_aligned_tiles_are_known_to_be_multiples_of_16():
    found = specialised(AUTO, "aligned")
    constants, multiples = known(found)
    assert multiples == {"a_ptr", "b_ptr", "c_ptr", "bias_ptr", "M", "N", "K", "lda", "ldb", "ldc"}
    assert found.signature["a_ptr"] == "*fp16" and found.signature["bias_ptr"] == "*fp16"
    assert constants["EVEN_M"] and constants["EVEN_N"] and constants["EVEN_K"]
    assert str(constants["INDEX"]) == "int32" and constants["BLOCK_M"] == 128
    assert found.options["num_warps"] == 4 and found.options["num_stages"] == 3


@pytest.mark.parametrize(
    ("case", "even"),
    [("ragged", ""), ("ragged-m", "nk"), ("ragged-nk", "m"), ("ragged-k", "mn"), ("unaligned", "mnk"), ("unit", "")],
)
def test_each_class_is_what_its_name_says(case, even):
    found = specialised(AUTO, case)
    constants, multiples = known(found)
    assert "".join(d for d in "mnk" if constants[f"EVEN_{d.upper()}"]) == even
    assert ("a_ptr" in multiples) == (case != "unaligned")
    assert ("lda" in multiples) == (case in ("ragged-m",)) or case == "unit"
    assert (found.signature["M"] == "constexpr") == (case == "unit")


def test_offsets_past_31_bits_are_wide():
    for case, stride in (("wide", "i32"), ("wide-stride", "i64")):
        found = specialised(AUTO, case)
        assert str(known(found)[0]["INDEX"]) == "int64" and found.signature["lda"] == stride


def test_amd_is_told_the_reach_of_pointers():
    found = specialised(AUTO, "aligned", "gfx942").known.values()
    assert any(["tt.pointer_range", 32] in entries for entries in found)


def test_a_class_that_is_another_again_is_not_launched_twice():
    for family in ("ladder", "layouts", "dtypes"):
        for kernel in read(shipped.folder(family)).kernels:
            found = launches(kernel, "sm90")
            assert len({launch.name for launch in found}) == len(found)
