"""Machine code: registers that an asynchronous product still reads are not written to; its figures are read."""

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor

import pytest
import triton

from generator.verify.asynchronous_products import overwriting
from generator.verify.expectations import _overwrites
from generator.verify.machine_code import CompileError, MachineCode, _amd_registers, _nvidia_registers, _overwriting
from generator.verify.worker_pool import _initialize
from tests.helpers.verify.unprotected import compiled, ptxas

#: A product of rows in R40 to R43 that is committed alone, its wait for all products, and one for all but the youngest.
PRODUCT = "HGMMA.64x64x16.F32.BF16 R8, R40, gdesc[UR4], R8, gsb0"
WAIT = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
WAIT_1 = "WARPGROUP.DEPBAR.LE gsb0, 0x1"
#: One that reads its rows from shared memory.
SHARED = "HGMMA.64x64x16.F32.BF16 R40, gdesc[UR4], R40, gsb0"
OTHER = "IGMMA.64x64x32.S8.S8 R8, R44, gdesc[UR4], R8, gsb0"
UNCOMMITTED = "HGMMA.64x64x16.F32.BF16 R8, R40, gdesc[UR4], R8"
AGAIN = "@!P0 BRA `(.L_x_0)"
LOAD = "LDS R40, [R2]"


def sass(*lines):
    """As nvdisasm prints it: names of labels end with a colon, instructions have their numbers for addresses."""
    return "\n".join(
        line if line.endswith(":") else f"        /*{number:04x}*/        {line} ;" for number, line in enumerate(lines)
    )


def found(*lines):
    """The numbers of the lines that write to what a product may still read."""
    return [int(each.split()[0], 16) for each in overwriting(sass(*lines))]


def test_the_next_step_must_not_write_what_the_last_one_reads():
    assert found(".L_x_0:", LOAD, PRODUCT, WAIT, AGAIN, LOAD, "EXIT") == []
    assert found(".L_x_0:", LOAD, PRODUCT, AGAIN, WAIT, "EXIT") == [1]
    assert found(".L_x_0:", LOAD, PRODUCT, WAIT_1, AGAIN, WAIT, "EXIT") == [1]
    # With steps by turns in other registers the older one has been waited for.
    turns = (".L_x_0:", LOAD, PRODUCT, WAIT_1, "LDS R44, [R2]", OTHER, WAIT_1, AGAIN, WAIT, "EXIT")
    assert found(*turns) == []
    assert found(*turns[:6], *turns[7:]) == [1]


def test_a_wait_leaves_as_many_of_the_youngest_products_as_it_says():
    assert found(PRODUCT, OTHER, WAIT_1, LOAD) == []
    assert found(PRODUCT, OTHER, WAIT_1, "LDS R44, [R2]") == [3]
    assert found(PRODUCT, OTHER, "WARPGROUP.DEPBAR.LE gsb0, 0x2", LOAD) == [3]
    # Two products that are committed together are waited for together, and what is not committed is never.
    assert found(UNCOMMITTED, OTHER, WAIT_1, LOAD) == [3]
    assert found(UNCOMMITTED, OTHER, WAIT, LOAD) == []
    assert found(UNCOMMITTED, WAIT, LOAD) == [2]
    # The same rows again: the younger product counts.
    assert found(PRODUCT, PRODUCT, WAIT_1, LOAD) == [3]


#: Instructions that write to R40 to R43, and others.
WRITING = """
LDS.64 R39, [R2] ; LDS.128 R37, [R2+UR4] ; LDS.U16 R43, [R2] ; LDSM.16.M88.4 R37, [R2+0x400]
LDG.E.128.CONSTANT R37, desc[UR4][R2.64] ; IMAD.WIDE.U32 R39, R2, 0x4, R4 ; CS2R R39, SRZ
IMAD.MOV.U32 R43, RZ, RZ, 0x43 ; @P0 MOV R41, R2 ; IADD3 R40, P0, R2, R3, RZ
LOP3.LUT P0, R40, R2, 0x1, RZ, 0xc0, !PT ; SHFL.BFLY PT, R40, R2, 0x1, 0x1f
ATOMG.E.ADD.STRONG.GPU PT, R40, desc[UR4][R2.64], R3
"""
OTHERS = """
LDS.64 R38, [R2] ; LDS.128 R36, [R2+UR4] ; LDS R44, [R2] ; LDSM.16.MT88.2 R38, [R2] ; LDSM.16.M88 R39, [R2]
IMAD.WIDE.U32 R2, R40, 0x4, R42 ; CS2R.32 R39, SR_CLOCKLO ; SHF.L.U64.HI R39, R2, 0x2, R4
HFMA2.MMA R39, -RZ, RZ, 0, 0 ; @!PT LDS R40, [R2] ; IADD3 R2, P0, R40, R41, RZ
LOP3.LUT P0, RZ, R40, 0x1, RZ, 0xc0, !PT ; SHFL.BFLY PT, R2, R40, 0x1, 0x1f
ISETP.GE.AND P0, PT, R40, R41, PT ; FCHK P0, R40, R41 ; R2UR UR40, R40 ; ULDC.64 UR40, c[0x0][0x210]
STS.128 [R40], R40 ; STG.E.128 desc[UR4][R40.64], R40 ; LDGSTS.E.BYPASS.128 [R40], desc[UR14][R42.64], P4
BAR.SYNC.DEFER_BLOCKING R40, 0x80 ; NOP
"""


@pytest.mark.parametrize("writing", [True, False])
def test_what_an_instruction_writes_to(writing):
    for line in re.split(r" ; |\n", (WRITING if writing else OTHERS).strip()):
        assert found(PRODUCT, line, WAIT) == ([1] if writing else []), line


def test_products_of_shared_memory_and_sums_do_not_count():
    assert found(PRODUCT, WAIT, SHARED, LOAD, "LDS R8, [R2]") == []
    assert found(PRODUCT, SHARED, WAIT) == []


def test_every_path_is_followed():
    # Past a wait, by a branch forward or by a guard.
    assert found(PRODUCT, "@P0 BRA `(.L_x_1)", WAIT, ".L_x_1:", LOAD) == [4]
    assert found(PRODUCT, "BRA.U UP0, `(.L_x_1)", WAIT, ".L_x_1:", LOAD) == [4]
    assert found(PRODUCT, f"@P0 {WAIT}", LOAD) == [2]
    # Not behind what leaves in any case, and behind what may not.
    assert found(PRODUCT, "BRA `(.L_x_1)", LOAD, ".L_x_1:", WAIT, LOAD) == []
    assert found(PRODUCT, "EXIT", LOAD) == []
    assert found(PRODUCT, "@P0 EXIT", LOAD) == [2]
    # Into a wait that stands behind the loop and comes back into it, and out of a loop in a loop.
    assert found(PRODUCT, "BRA `(.L_x_2)", ".L_x_1:", LOAD, "EXIT", ".L_x_2:", WAIT, "BRA `(.L_x_1)") == []
    nested = (".L_x_1:", LOAD, ".L_x_0:", PRODUCT, AGAIN, "@P1 BRA `(.L_x_1)", WAIT, "EXIT")
    assert found(*nested) == [1]
    assert found(*nested[:5], WAIT, *nested[5:]) == []
    # A guarded product may not have been issued, so that it pushes no older one out.
    assert found(PRODUCT, f"@P0 {OTHER}", WAIT_1, LOAD) == [3]
    # What is come to by an address alone.
    assert found("EXIT", PRODUCT, LOAD) == [2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no product that reads its rows from registers"),
        (sass(SHARED, WAIT), "no product that reads its rows from registers"),
        (sass(PRODUCT, "BRX R2 -0x10"), "a branch to an unknown place"),
        (sass(PRODUCT, AGAIN), "a branch to an unknown place"),
        (sass(PRODUCT, "?"), "an instruction that cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error(text, words):
    with pytest.raises(ValueError, match=words):
        overwriting(text)


@pytest.mark.parametrize(
    ("tool", "words"), [("/nowhere/nvdisasm", "No such file"), ("true", "no product"), ("false", "is unknown")]
)
def test_a_disassembler_that_prints_nothing_is_a_failure(tool, words, monkeypatch):
    monkeypatch.setattr(triton.knobs.nvidia.nvdisasm, "path", tool)
    with pytest.raises(CompileError, match=words):
        _overwriting(b"")


def test_either_kernel_of_a_launch_may_be_wrong_and_the_figures_stay():
    right = MachineCode(1, 0, 1, 0, {}, "first")
    wrong = MachineCode(1, 0, 1, 0, {}, "second", ("0040 LDS R40, [R2]",))
    assert right.beside(wrong).overwriting == wrong.beside(right).overwriting == wrong.overwriting
    assert right.figures == wrong.figures
    assert not [*_overwrites(right)]
    (message,) = _overwrites(wrong)
    assert "1 instructions write" in message and "0040 LDS R40, [R2]" in message and "issue 9433" in message


def test_compiled_kernels_are_right_where_each_step_waits():
    context = multiprocessing.get_context("spawn")
    arguments = ("compile", context.Semaphore(1))
    with ProcessPoolExecutor(1, context, initializer=_initialize, initargs=arguments) as executor:
        waits, unprotected = executor.map(compiled, (True, False))
    for code in (waits, unprotected):
        assert code.instructions["wgmma from registers"] == code.instructions["wgmma"] > 0
    assert waits.overwriting == ()
    # What Triton 3.9 and later make of this kernel is right by chance with an older ptxas.
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if ptxas() >= (13, 3):
        assert unprotected.overwriting == ()
    elif version < (3, 9):
        assert unprotected.overwriting


def test_machine_code_whose_figures_are_not_reported_is_a_failure():
    amd = ".vgpr_count: 40\n.vgpr_spill_count: 2\n"
    assert _amd_registers(amd) == (40, 8)
    for line in amd.splitlines():
        with pytest.raises(CompileError, match=r"the assembly has no \.?vgpr"):
            _amd_registers(amd.replace(line, ""))
    ptxas = "Used 40 registers\n0 bytes stack frame, 16 bytes spill stores\n"
    assert _nvidia_registers(ptxas) == (40, 16)
    for line in ptxas.splitlines():
        with pytest.raises(CompileError, match="ptxas reported"):
            _nvidia_registers(ptxas.replace(line, ""))


def test_figures_of_two_kernels_of_a_launch_are_the_larger_and_instructions_are_added():
    first = MachineCode(100, 0, 40, 0, {"wgmma": 2, "bulk copy out": 0}, "first")
    second = MachineCode(20, 0, 60, 8, {"wgmma": 0, "bulk copy out": 1}, "second")
    assert first.beside(second) == MachineCode(100, 0, 60, 8, {"wgmma": 2, "bulk copy out": 1}, "firstsecond")
