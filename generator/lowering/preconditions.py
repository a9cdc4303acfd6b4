"""What a launcher asks of a call: what its contract says of operands, and what its kernel and its rows can take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generator.language.dtypes import ELEMENTS
from generator.language.storage import Storage
from generator.language.targets import TARGETS
from generator.lowering.lines import INDENT, WIDTH, bracketed
from generator.lowering.view import View
from generator.plan.call import SCALES, Argument, Call
from generator.plan.target_rules import packed_from_sm90, scaling_targets

#: Bytes of a B that is decoded, at most: more is not worth the memory to a caller, whom other kernels answer.
MOST_DECODED = 2**29


@dataclass(frozen=True)
class Preconditions:
    """The checks of a launcher, as source: errors in a call, reasons to refuse one, conditions on a row."""

    kernel: View

    @property
    def call(self) -> Call:
        return self.kernel.call

    # What the contract says of operands.

    @property
    def any_dtype(self) -> bool:
        return any(x.dtype is None for x in self.call.tensors)

    @property
    def scale_types(self) -> str:
        """The statement that names the types of scales."""
        return SCALES

    @property
    def several_dtypes(self) -> bool:
        """Whether an operand may have one of several types."""
        return any(isinstance(x.dtype, tuple) for x in self.call.tensors)

    @property
    def any_strided(self) -> bool:
        return any(x.unit is None for x in (*self.call.tensors, self.call.out))

    def may_overlap(self, x: Argument) -> bool:
        """Whether the strides that are checked leave two elements of a result at one address."""
        return len(x.extents) > 1

    @property
    def together(self) -> int:
        """The elements along K of which K is a multiple."""
        return self._stored_b.together

    @property
    def split(self) -> str:
        """The statement that refuses another K."""
        shared = self._stored_b.index if self._stored_b.sparse else "b"
        found = f"{{a.shape[{len(self.call.a.extents) - 1}]}} columns"
        told = f"K must be a multiple of {self.together}, the elements that share a byte of {shared}"
        return bracketed("raise ValueError(", (f'f"a has {found}: {told}"',), ")", 8)

    @property
    def _stored_b(self) -> Storage:
        return self.kernel.kernel.variant.dtype.stored_b

    # What the kernel cannot take, and which configurations can.

    @property
    def refuses(self) -> bool:
        """Whether the kernel cannot take everything that its contract allows."""
        k = self.kernel
        return bool(self.conditions or self.refusals or k.descriptors)

    @property
    def matrices(self) -> tuple[str, ...]:
        """The launcher's matrices beside `out`."""
        return tuple(x.name for x in self.call.tensors if x.layout)

    @property
    def unlike(self) -> str:
        """The head of the statement for matrices of `given` that have not as many dimensions as they must have."""
        counts = {x.name: len(x.extents) for x in (*self.call.tensors, self.call.out) if x.layout}
        wanted = str(counts["out"])
        few = " or ".join(f"x is {name}" for name in self.matrices if counts[name] != counts["out"])
        if few:
            wanted = f"({counts['b']} if {few} else {wanted})"
        each = f"not isinstance(x, torch.Tensor) or x.dim() != {wanted} for x in given"
        one = f"if any({each}):"
        return one if INDENT + len(one) <= WIDTH else f"if any(\n{' ' * INDENT}{each}\n):"

    @property
    def refusals(self) -> tuple[tuple[str, str], ...]:
        """Conditions on a call that this kernel refuses, each with the reason, as source."""
        k, found = self.kernel, []
        if k.v.loading.blocks:
            reason = "block pointers need Triton older than 3.9, and this is {triton.__version__}"
            found.append(('tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)', f'f"{reason}"'))
        if k.descriptors:
            reason = "descriptors need an NVIDIA GPU from sm90 on, and this is {torch.cuda.get_device_name(a.device)}"
            condition = "a.is_cuda and (torch.version.hip or torch.cuda.get_device_capability(a.device) < (9, 0))"
            found.append((condition, f'f"{reason}"'))
        packed = packed_from_sm90(k.kernel.variant)
        if packed is not None:
            condition = "a.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(a.device) >= (9, 0)"
            found.append((condition, f'"{packed}: take the exchanged one"'))
        if k.v.dtype.native:
            able = scaling_targets(k.v)
            majors = ", ".join(str(TARGETS[target].capability // 10) for target in able)
            condition = (
                f"a.is_cuda and (torch.version.hip or torch.cuda.get_device_capability(a.device)[0] not in ({majors},))"
            )
            reason = f"a scaled product needs {' or '.join(able)}, and this is {{torch.cuda.get_device_name(a.device)}}"
            found.append((condition.replace(" 12,)", " 12)"), f'f"{reason}"'))
        if k.descriptors and self.call.optional:
            reason = "descriptors copy neighbouring rows of a, and rows names others"
            found.append(("rows is not None", f'"{reason}"'))
        if k.described:
            dimension = "N" if k.c.layout == "row" else "M"
            size, step = self.extents[dimension], 128 // ELEMENTS[k.v.dtype.out].bits
            reason = f"{dimension} is {{{size}}}, and a descriptor writes multiples of {step}"
            found.append((f"{size} % {step}", f'f"{reason}"'))
        if k.read_step:
            size = self.extents["N"]
            reason = f"N is {{{size}}}, and a descriptor reads b's second half at multiples of {k.read_step}"
            found.append((f"{size} % {k.read_step}", f'f"{reason}"'))
        if k.decoding is not None:
            size = k.decoding.bytes("b.shape[1]", "a.shape[1]")
            reason = f"b is {{tuple(b.shape)}}, which takes more than {MOST_DECODED} bytes when it is decoded"
            found.append((f"{size} > {MOST_DECODED}", f'f"{reason}"'))
        if not k.schedule.repeatable:
            reason = f"results of {k.v.schedule} do not repeat, and torch.use_deterministic_algorithms(True) holds"
            found.append(("torch.are_deterministic_algorithms_enabled()", f'"{reason}"'))
        if not k.tiled:
            several = self.call.products.several
            size = f"{'a.shape[0] * ' if several else ''}{self.extents['M']} * {self.extents['N']}"
            told = f"B * M * N is {{{size}}}:" if several else f"M * N is {{{size}}}, and"
            reason = f'f"{told} a grid with one program an element has at most 2**31 - 1"'
            if len(f"{' ' * 2 * INDENT}return {reason}") > WIDTH:
                reason = f"(\n{' ' * 3 * INDENT}{reason}\n{' ' * 2 * INDENT})"
            found.append((f"{size} >= 2**31", reason))
        return tuple(found)

    @property
    def described(self) -> tuple[tuple[str, str], ...]:
        """The operands that descriptors read, each with the row-major matrix that is described."""
        k = self.kernel
        given = (k.a, k.b, *k.described) if k.decoding is None else (k.a, *k.described)
        return tuple((x.variable, x.described) for x in given if x not in (k.c, *k.saved))

    @property
    def written(self) -> tuple[tuple[str, str], ...]:
        """The same of results."""
        k = self.kernel
        return tuple((x.variable, x.described) for x in k.described if x in (k.c, *k.saved))

    @property
    def divided(self) -> tuple[str, ...]:
        """The dimensions that must be multiples of the tile."""
        k = self.kernel
        kinds = (("M", k.edges.bound.m), ("N", k.edges.bound.n), ("K", k.edges.bound.k))
        return tuple(d for d, kind in kinds if kind == "never") if k.tiled and not k.descriptors else ()

    @property
    def bounded_k(self) -> bool:
        """Whether a tile must hold all of K."""
        return not self.kernel.schedule.looped

    @property
    def conditions(self) -> tuple[str, ...]:
        """What a row of the table must satisfy to take M, N and K."""
        found = [f'{d} % row["BLOCK_{d}"] == 0' for d in self.divided]
        return (*found, *(['K <= row["BLOCK_K"]'] if self.bounded_k else []))

    @property
    def fitted(self) -> str:
        """The launcher's variables for the sizes that a configuration must be legal for."""
        return ", ".join(self.call.sizes[-3:])

    @property
    def extents(self) -> Mapping[str, str]:
        """The sizes as extents of the operands."""
        return dict(zip("MNK", map(self.call.size, self.call.sizes[-3:])))
