"""The compile level: what it reads from machine code; test_planted.py has what it refuses."""

import pytest

from generator.verify.machine_code import CompileError, MachineCode, _amd_registers, _nvidia_registers


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
