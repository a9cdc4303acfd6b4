"""Whether machine code of Hopper writes to registers that an asynchronous product still reads, from its disassembly.

A product of a warp group (`HGMMA` and its like) runs on while later instructions are issued. It may read its rows from
four registers of each thread; these must keep their values until the group of products that it was committed with has
been waited for (`WARPGROUP.DEPBAR`). ptxas before CUDA 13.3 does not always keep them (Triton issue 9433).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: A label, and an instruction with its address and perhaps the predicate that guards it.
_LABEL = re.compile(r"\s*([.$\w]+):\s*$")
_ADDRESS = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s")
_INSTRUCTION = re.compile(r"\s*(?:@(!?U?P(?:\d|T))\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
_TARGET = re.compile(r"`\(([^)]+)\)|(\.L_\w+)")
_REGISTER = re.compile(r"R(\d+)(?:\.\w+)*$")
_PREDICATE = re.compile(r"U?P(?:\d|T)$")

_PRODUCTS = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
#: The registers of a thread that hold the rows of one product: 64 rows of 32 bytes, over 128 threads.
_ROWS = 4
_BRANCHES = ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL")
_ENDS = ("EXIT", "RET")
#: What reads its first register, or the one behind its first predicate. Other instructions write to it, unless it is
#: an address.
_ONLY_READ = (*_BRANCHES, *_ENDS, "BAR", "FCHK", "NANOSLEEP", "SETLMEMBASE", "WARPSYNC")
#: Two registers, besides those that say so: numbers of 64 bits.
_DOUBLES = ("DADD", "DFMA", "DMUL", "DMNMX")

#: Of each register that products may still read: the fewest groups that were committed since the youngest of them was
#: issued, its own group included. 0 if that is not committed yet.
_Read = Mapping[int, int]


@dataclass(frozen=True)
class _Instruction:
    address: str
    #: Whether a predicate decides if it is executed.
    guarded: bool
    operation: str
    text: str

    @property
    def name(self) -> str:
        return self.operation.partition(".")[0]

    @property
    def operands(self) -> list[str]:
        return [operand.strip() for operand in self.text.split(",")]

    @property
    def rows(self) -> range:
        """The registers from which a product reads its rows; empty for other instructions, and for shared memory."""
        match = _REGISTER.match(self.operands[1]) if self.name in _PRODUCTS else None
        return range(int(match[1]), int(match[1]) + _ROWS) if match else range(0)

    @property
    def written(self) -> range:
        """The registers that the instruction writes to; the sums of a product are not among them."""
        if self.name in _PRODUCTS or self.name in _ONLY_READ:
            return range(0)
        operands = self.operands
        first = operands[1] if _PREDICATE.match(operands[0]) and len(operands) > 1 else operands[0]
        match = _REGISTER.match(first)
        return range(int(match[1]), int(match[1]) + self._width) if match else range(0)

    @property
    def _width(self) -> int:
        parts = self.operation.split(".")[1:]
        if self.name == "LDSM":
            return int(parts[-1]) if parts[-1].isdigit() else 1
        if "128" in parts or self.name.endswith("MMA"):
            return 4
        wide = {"64", "WIDE", "F64"} | ({"S64", "U64"} if self.name != "SHF" else set())
        # CS2R without a width clears or reads 64 bits.
        if wide & set(parts) or self.name in _DOUBLES or self.operation == "CS2R":
            return 2
        return 1


def overwriting(sass: str) -> tuple[str, ...]:
    """The instructions, with their addresses, that write to a register which a product may still read as its rows.

    Every path through the text is followed: branches taken and not taken, and loops until nothing new is found.

    Args:
        sass: What `nvdisasm -c` prints of a kernel with products that read their rows from registers.

    Raises:
        ValueError: The text has no such product, or an instruction or a branch that cannot be read.
    """
    instructions, labels = _parsed(sass)
    if not any(each.rows for each in instructions):
        raise ValueError("the disassembly has no product that reads its rows from registers")
    reads = _reads(instructions, labels)
    return tuple(
        f"{each.address} {each.operation} {each.text}"
        for each, read in zip(instructions, reads, strict=True)
        if any(register in read for register in each.written)
    )


def _parsed(sass: str) -> tuple[list[_Instruction], dict[str, int]]:
    """The instructions that can be executed, in order, and the number of the instruction behind each label."""
    instructions: list[_Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif address := _ADDRESS.match(line):
            match = _INSTRUCTION.match(line, address.end())
            if not match:
                raise ValueError(f"the disassembly has an instruction that cannot be read: {line.strip()!r}")
            guard, operation, text = match.groups()
            if guard not in ("!PT", "!UPT"):
                guarded = guard not in (None, "PT", "UPT")
                instructions.append(_Instruction(address[1], guarded, operation, text))
    return instructions, labels


def _reads(instructions: Sequence[_Instruction], labels: Mapping[str, int]) -> list[_Read]:
    """What products may still read before each instruction, over all paths to it."""
    following = [_following(number, each, labels) for number, each in enumerate(instructions)]
    before: dict[int, _Read] = {}
    for start in range(len(instructions)):
        # What no path comes to, such as a function that is called by its address, is begun with nothing to wait for.
        waiting = [] if start in before else [start]
        before.setdefault(start, {})
        while waiting:
            number = waiting.pop()
            after = _after(instructions[number], before[number])
            for successor in following[number]:
                joined = _either(before.get(successor, after), after)
                if successor < len(instructions) and joined != before.get(successor):
                    before[successor] = joined
                    waiting.append(successor)
    return [before[number] for number in range(len(instructions))]


def _following(number: int, instruction: _Instruction, labels: Mapping[str, int]) -> list[int]:
    """The numbers of the instructions that may come next."""
    if instruction.name in _ENDS:
        return [number + 1] if instruction.guarded else []
    if instruction.name not in _BRANCHES:
        return [number + 1]
    targets = [quoted or plain for quoted, plain in _TARGET.findall(instruction.text)]
    missing = [target for target in targets if target not in labels]
    if not targets or missing:
        raise ValueError(f"the disassembly has a branch to an unknown place: {instruction.text!r}")
    # A branch with a predicate or a mask among its operands may go on too.
    sure = instruction.operation == "BRA" and not instruction.guarded and instruction.text.startswith("`(")
    return [labels[target] for target in targets] + ([] if sure else [number + 1])


def _after(instruction: _Instruction, read: _Read) -> _Read:
    """What products may still read after `instruction`, if they may still read `read` before it."""
    if instruction.operation.startswith("WARPGROUP.DEPBAR"):
        barrier, groups = instruction.operands
        if instruction.guarded or barrier != "gsb0":
            return read
        return {register: age for register, age in read.items() if age <= int(groups, 16)}
    if instruction.name not in _PRODUCTS:
        return read
    after = {**read, **dict.fromkeys(instruction.rows, 0)}
    if "gsb0" in instruction.operands:
        after = {register: age + 1 for register, age in after.items()}
    return _either(read, after) if instruction.guarded else after


def _either(one: _Read, other: _Read) -> _Read:
    """What products may still read after one of two paths; a product is as young as it is on one of them."""
    return {
        register: min(read[register] for read in (one, other) if register in read)
        for register in one.keys() | other.keys()
    }
