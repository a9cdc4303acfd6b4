"""The sentences of a kernel's docstring."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

from generator.epilogue.formula import GATE, X
from generator.epilogue.gated_units import TOLD
from generator.epilogue.operations import ELEMENT, MATRIX, SCALAR
from generator.language.model import Variant
from generator.language.versions import SUPPORTED, spelled
from generator.language.vocabulary import MASKED_DIMENSIONS, QUANTISED, SWIZZLE
from generator.lowering import approximate_math
from generator.lowering.lines import paragraph
from generator.lowering.operands import Matrix
from generator.lowering.view import View
from generator.plan.kernels import Kernel


def escaped(text: str) -> str:
    """`text` for the inside of a triple-quoted string: nothing in it ends the string or escapes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def formula(v: Variant) -> str:
    """What is computed: `C = relu(A @ B + bias)`."""
    return f"C = {v.epilogue.text}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in aligned columns, indented."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return textwrap.indent("\n".join(lines), "    ")


def sizes(kernel: Kernel) -> str:
    """Which M, N and K the kernel takes."""
    v = kernel.variant
    if not v.traits.tiled:
        product = "M * N" if v.batch == "none" else "B * M * N"
        return f"M, N and K may be any size, 0 and 1 among them; {product} is at most 2**31 - 1."
    dimensions = MASKED_DIMENSIONS[v.masking]
    if v.load == "descriptor":
        text = "M, N and K may be any size, 0 and 1 among them; the hardware bounds every copy."
    elif dimensions is None:
        text = (
            "M, N and K may be any size, 0 and 1 among them; each that the tile divides is compiled without its mask."
        )
    elif not dimensions:
        text = "M, N and K must be multiples of the tile (0 is one): nothing is masked."
    else:
        free = " and ".join(d.upper() for d in dimensions if dimensions != "mnk") or "M, N and K"
        fixed = " and ".join(d.upper() for d in "mnk" if d not in dimensions)
        text = f"{free} may be any size, 0 and 1 among them"
        text += f"; {fixed} must be {'a multiple' if len(fixed) == 1 else 'multiples'} of the tile." if fixed else "."
    if not v.traits.looped:
        text += f" All of K is in one load, so K is at most {max(tile.k for tile in kernel.tiles)}."
    return text


def order(v: Variant) -> str:
    """How tiles are visited."""
    matrices = "" if v.batch == "none" else "matrix after matrix, "
    meaning = matrices + SWIZZLE[v.swizzle].meaning
    if not v.traits.tiled:
        return f"one program computes one element, {matrices}row after row."
    if v.traits.walks_tiles:
        each = "as many programs as the device holds walk the tiles of C, each every so many-th"
        return f"{each}; tiles are numbered {meaning}."
    if v.traits.walks_steps:
        each = "as many programs as the device holds share out the steps along K of all tiles, as many each"
        last = "Of those that share a tile the one that comes last adds the parts, in the order of K."
        return f"{each}; tiles are numbered {meaning}. {last}"
    if v.traits.pairs:
        each = "one program computes one tile of C: LEFT_N of its BLOCK_N columns, and those right of them"
        return f"{each}, from one read of A; tiles are visited {meaning}."
    if v.traits.splits:
        last = " The one that comes last adds the parts, in the order of K." if v.traits.workspace else ""
        return f"SPLIT programs share a tile of C, each with a part of K; tiles are visited {meaning}.{last}"
    return f"one program computes one tile of C; tiles are visited {meaning}."


def batch(v: Variant) -> str:
    """What the matrices of a batch share, and how they may lie to each other; nothing where there is no batch."""
    if v.batch == "none":
        return ""
    text = "matrix i of the result is computed from matrix i of each operand, for any number B of them, 0 too."
    shared = [operand.name for operand in v.epilogue.operands if operand.shape != MATRIX]
    if shared:
        text += f" All of them share {' and '.join(shared)}."
    if v.load == "descriptor":
        those = "Matrices of each" if v.store == "as_load" else "Those of a and b"
        return f"{text} {those} lie a multiple of 16 bytes apart, and none is repeated."
    return f"{text} Their stride is any; 0, as `expand` makes it, repeats one, which the result may not."


def product(v: Variant) -> str:
    """What the matrix unit is given, where it is not A and B as they are."""
    if v.product == "direct":
        return ""
    return "a tile is computed as C^T = B^T A^T, so that N fills the rows of the matrix unit."


def meanings(v: Variant) -> str:
    """What the operations of the spec's own are, where the formula calls them by name."""
    told = "; ".join(f"{word} of x is {text}" for word, text in v.epilogue.meanings.items())
    return f"{told}." if told else ""


def halves(v: Variant) -> str:
    """What a gate makes of the columns of the product; nothing where there is none."""
    gate = v.epilogue.gate
    if gate is None:
        return ""
    told = TOLD[gate.order]
    before = " in front of it" if v.epilogue.steps[0] is not gate else ""
    return (
        f"{gate.operation} makes {ast.unparse(gate.tree)} of the 2N columns{before}: gate is {told[GATE]}, "
        f"x {told[X]}. Both products are computed in one pass over A."
    )


def outputs(v: Variant) -> str:
    """What is written beside C, and C where it is read; nothing where there is no such thing."""
    saved = [output.name for output in v.epilogue.outputs if not output.tap.reduction]
    text = f"{'; '.join(v.epilogue.told)}." if v.epilogue.outputs else ""
    if saved:
        text += (
            f" {' and '.join(saved)} {'is' if len(saved) == 1 else 'are'} {v.dtype.out} and laid out as the result is."
        )
    if v.epilogue.reads_out:
        text += " C is the result's own tensor as it was before the call, and is read also where beta is 0."
    return text.strip()


def rounding(k: View) -> str:
    """What is rounded where."""
    v, dtype = k.v, k.v.dtype
    if dtype.acc == "int32":
        text = "products are summed in int32, exactly while the sum fits."
    else:
        text = f"products are summed in {dtype.acc}"
        text += {
            "tf32": ", of operands that the matrix unit rounds to tf32 (10 bits of mantissa).",
            "tf32x3": ", each emulated by three tf32 products to about the accuracy of fp32.",
            "full": ", promoted from the matrix unit's short accumulator at least every 128 along K.",
            "fast": ", on Hopper in the matrix unit's short accumulator (about 14 bits) for all of K.",
        }.get(dtype.precision or "", ".")
    if v.rounds_between:
        text += f" The sum, and what each operation of the epilogue makes of it in fp32, is rounded to {dtype.out}, as"
        text += f" eager torch rounds each tensor; no two operations are fused into one.{approximate_math.told(v)}"
        text += f" What is saved is rounded to {dtype.out} already." if k.saved else ""
        return text + (" Sums and maxima are fp32, of values that are so rounded." if k.parts else "")
    if v.epilogue.steps:
        text += f" The epilogue is computed in {k.kind}.{approximate_math.told(v)}"
    if dtype.out in QUANTISED:
        text += quantising(k)
    elif k.rounds:
        text += f" The result is rounded once, to {dtype.out}, at the store."
    if k.saved:
        made = "saturated and rounded as the result is" if dtype.out in QUANTISED else "rounded"
        text += f" What is saved is {made} at its own store alone, and goes on as it was."
    if k.parts:
        text += " Sums and maxima are fp32, of values that are not rounded to the result's type."
    return text


def quantising(k: View) -> str:
    """How the value after the epilogue becomes one of a narrow type."""
    out = k.v.dtype.out
    found = QUANTISED[out]
    text = f" The result is saturated to [{found.least}, {found.most}]"
    if k.quantises == "saturate_int8":
        return f"{text} at the store."
    return f"{text}, infinities too, and rounded once, to nearest even, to {out} at the store; {found.nan}."


def repeatable(v: Variant) -> str:
    """Whether two calls give the same bits."""
    if not v.traits.repeatable:
        return "no; the programs of a tile add to it as they come, in an order that is left to chance."
    same = "the same operands, configuration and device give the same bits on every run"
    return f"{same}, C among the operands." if v.epilogue.reads_out else f"{same}."


def properties(k: View) -> str:
    """What a caller should know, a labelled paragraph each."""
    kernel = k.kernel
    labelled = {
        "Sizes": sizes(kernel),
        "Batch": batch(kernel.variant),
        "Order": order(kernel.variant),
        "Product": product(kernel.variant),
        "Gate": halves(kernel.variant),
        "Epilogue": meanings(kernel.variant),
        "Outputs": outputs(kernel.variant),
        "Rounding": rounding(k),
        "Repeatable": repeatable(kernel.variant),
        "Needs": needs(kernel),
    }
    return "\n".join(paragraph(f"{label}: {text}") for label, text in labelled.items() if text)


def needs(kernel: Kernel) -> str:
    """What the kernel runs on, where that is less than everything."""
    parts = []
    if kernel.triton != spelled(SUPPORTED):
        parts.append(f"Triton {kernel.triton}")
    if kernel.variant.load == "descriptor":
        parts.append("a GPU with bulk tensor copies (sm90 or later)")
    if kernel.variant.dtype.a.startswith("fp8"):
        parts.append(f"a matrix unit for {kernel.variant.dtype.a}")
    return f"{' and '.join(parts)}." if parts else ""


def operand_table(k: View) -> str:
    """The operands and the result: shape, dtype, layout and alignment."""
    rows = [("operand", "shape", "dtype", "layout")]
    rows += [_matrix_row(k, k.a, "a"), _matrix_row(k, k.b, "b")]
    for operand in k.operands:
        if isinstance(operand, Matrix):
            rows.append(_matrix_row(k, operand, operand.name))
        elif operand.shape == SCALAR:
            rows.append((operand.name, "scalar", "any real", "a number, or a tensor of one element"))
        else:
            layout = "on the device" if operand.shape == ELEMENT else "stride 1"
            rows.append((operand.name, operand.extent, "any floating", layout))
    rows.append(_matrix_row(k, k.c, "result"))
    for output in k.outputs:
        result = output.result
        if isinstance(result, Matrix):
            rows.append(_matrix_row(k, result, output.name))
        else:
            rows.append((output.name, result.extent, result.torch_dtype.removeprefix("torch."), "stride 1"))
    return table(rows)


def _matrix_row(k: View, matrix: Matrix, label: str) -> tuple[str, str, str, str]:
    if matrix.layout == "strided":
        text = "any strides"
    else:
        inner = matrix.width if matrix.layout == "row" else matrix.rows
        text = f"{matrix.layout}-major, stride 1 along {inner}"
        if k.descriptors and (matrix.name in ("a", "b") or matrix in k.described):
            written = matrix.name == "c" or matrix in k.saved
            whole = "base, leading dimension and " + inner if written else "base and leading dimension"
            if matrix.name == "b" and k.read_step:
                whole = "base, leading dimension and N"
            text = f"{matrix.layout}-major; {whole} in multiples of 16 bytes"
    dtype = matrix.torch_dtype.removeprefix("torch.")
    return label, matrix.extent, "any floating" if dtype == "None" else dtype, text
