"""A contract as the files of a package have it: its functions, its fields in C and in ctypes, its operands in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

from generator.emit.cubin.compiled_contracts import CubinContract, CubinOperand, CubinPackage

#: Words of C and C++, and fields of every call, that no operand can have.
_WORDS = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const constexpr continue
    decltype default delete do double else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not nullptr operator or private protected public register requires restrict return
    short signed sizeof static struct switch template this throw true try typedef typeid typename typeof union unsigned
    using virtual void volatile wchar_t while xor linux unix i386 m n k batch groups workspace workspace_size
"""
TAKEN = frozenset(_WORDS.split())


@dataclass(frozen=True)
class OperandFields:
    """An operand as fields of a call: its address or number, and its strides with the dimension of each."""

    operand: CubinOperand
    name: str
    strides: tuple[tuple[int, str], ...]

    @property
    def layout(self) -> str:
        """How it lies in memory, in words."""
        x = self.operand
        rank = len(x.extents)
        if rank < 2:
            return ""
        if x.unit is None:
            return "any strides"
        return "row-major" if x.unit == rank - 1 else "column-major"


@dataclass(frozen=True)
class ContractSource(CubinContract):
    """A contract as the files have it."""

    package: CubinPackage

    @classmethod
    def of(cls, contract: CubinContract, package: CubinPackage) -> ContractSource:
        """The contract of a package."""
        return cls(**{x.name: getattr(contract, x.name) for x in fields(contract)}, package=package)

    @property
    def symbol(self) -> str:
        """The name of its function; with the package's, so that a program can have several packages."""
        return f"{self.package.name}_{self.name}"

    @property
    def size_lines(self) -> tuple[str, ...]:
        """The sizes that it takes, in lines that are not too long."""
        counted = f"{self.counted} = {self.package.count}; " if self.counted else ""
        return tuple(f"{counted}{line}" for text in self.sizes for line in _folded(text))

    @cached_property
    def arguments(self) -> tuple[OperandFields, ...]:
        """The operands in their order, each with names of its own."""
        taken = set(TAKEN)
        found = []
        for x in self.operands:
            name = x.name
            while {name, *(f"{name}_{end}" for _, end in x.strides)} & taken:
                name += "_"
            strides = tuple((dimension, f"{name}_{end}") for dimension, end in x.strides)
            taken |= {name, *(each for _, each in strides)}
            found.append(OperandFields(x, name, strides))
        return tuple(found)

    @property
    def table(self) -> list[str]:
        """The operands as aligned lines: name, shape, type, layout."""
        rows = [
            (each.name, each.operand.told, each.operand.dtype or "float", each.layout or "-", _written(each.operand))
            for each in self.arguments
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]

    @property
    def c_fields(self) -> list[str]:
        """The fields of a call in C, in order."""
        found = ["int64_t m, n, k"]
        found += [f"int64_t {self.counted}"] if self.counted else []
        for each in self.arguments:
            if not each.operand.extents:
                found.append(f"float {each.name}")
                continue
            found.append(f"{'void' if each.operand.written else 'const void'} *{each.name}")
            found += [f"int64_t {', '.join(name for _, name in each.strides)}"] if each.strides else []
        return [*found, *(["void *workspace", "size_t workspace_size"] if self.needs_memory else [])]

    @property
    def ctypes_fields(self) -> list[tuple[str, str]]:
        """The same for ctypes: names and types."""
        sizes = ["m", "n", "k", *([self.counted] if self.counted else [])]
        found = [(name, "c_int64") for name in sizes]
        for each in self.arguments:
            found.append((each.name, "c_void_p" if each.operand.extents else "c_float"))
            found += [(name, "c_int64") for _, name in each.strides]
        return [*found, *([("workspace", "c_void_p"), ("workspace_size", "c_size_t")] if self.needs_memory else [])]

    @property
    def filling(self) -> Iterator[str]:
        """The statements that take the fields of a call."""
        for index, each in enumerate(self.arguments):
            if not each.operand.extents:
                yield f"values[{index}].number = call->{each.name};"
                continue
            yield f"values[{index}].address = (uint64_t)(uintptr_t)call->{each.name};"
            for dimension, name in each.strides:
                yield f"values[{index}].stride[{dimension}] = call->{name};"


def _written(x: CubinOperand) -> str:
    return "written" if x.written else "read"


def _folded(text: str) -> Iterator[str]:
    """A long list in lines, at its commas."""
    line = ""
    for part in text.split(", "):
        if len(line) + len(part) > 100:
            yield f"{line},"
            line = "    "
        line += ("" if not line.strip() else ", ") + part
    yield line
