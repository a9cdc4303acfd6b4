"""A kernel's docstring: its table of operands, and its sentences, of which `docstring_numbers` has some."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence

from generator.epilogue.formula import GATE, X
from generator.epilogue.gated_units import TOLD
from generator.epilogue.operations import ELEMENT, MATRIX, SCALAR
from generator.epilogue.quantisation import OUT_SCALE
from generator.language.elements import every_target
from generator.language.model import Variant
from generator.language.storage import SCALE_TYPES, element_of
from generator.language.versions import SUPPORTED, spelled
from generator.language.vocabulary import MASKING, SWIZZLE
from generator.lowering.docstring_numbers import quantised, rounding, stored
from generator.lowering.lines import paragraph
from generator.lowering.view import View
from generator.plan.contract_call import Argument, call
from generator.plan.kernels import Kernel
from generator.plan.target_rules import packed_from_sm90, scaling_targets


def escaped(text: str) -> str:
    """`text` for the inside of a triple-quoted string: nothing in it ends the string or escapes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def formula(v: Variant) -> str:
    """What is computed: `C = relu(A @ B + bias)`."""
    return f"C = {v.epilogue.text}"


def beside(v: Variant) -> Iterator[str]:
    """What a formula does not say of a contract: how C is stored, and what is written beside it."""
    if v.symmetric:
        yield "C is symmetric"
    if v.quantised is not None:
        word = v.quantised.format or v.quantised.kind
        yield f"C is stored as {word} under a scale for {v.quantised.block} columns of a row"
    outputs = [output.name for output in v.epilogue.outputs]
    if outputs:
        yield f"also written: {', '.join(outputs)}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in aligned columns, indented; a last cell that is too long goes on in its column."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    before = sum(width + 2 for width in widths)
    lines = []
    for *cells, last in rows:
        head = "".join(cell.ljust(width + 2) for cell, width in zip(cells, widths))
        for part in paragraph(last, before + 4).split("\n"):
            lines.append((head + part).rstrip())
            head = " " * before
    return textwrap.indent("\n".join(lines), "    ")


def sizes(kernel: Kernel) -> str:
    """Which M, N and K the kernel takes."""
    v = kernel.variant
    if not v.traits.tiled:
        product = " * ".join((*v.products.front, "M", "N"))
        return f"M, N and K may be any size, including 0 and 1; {product} is at most 2**31 - 1."
    dimensions = MASKING[v.masking].ragged
    if v.products.divided:
        text = (
            f"{', '.join(v.products.sizes)} may be any size, including 0 and 1, and so may be the part of each group."
        )
        if not v.loading.descriptors and dimensions is not None:
            masked = [size for size in "NK" if size.lower() not in dimensions and size != v.products.divided]
            text += f" {masked[0]} must be a multiple of the tile." if masked else ""
        return text
    if v.loading.descriptors:
        text = "M, N and K may be any size, including 0 and 1; the hardware checks the bounds of every copy."
    elif dimensions is None:
        text = (
            "M, N and K may be any size, including 0 and 1; "
            "a dimension that the tile divides is compiled without its mask."
        )
    elif not dimensions:
        text = "M, N and K must be multiples of the tile (0 is a multiple); nothing is masked."
    else:
        free = " and ".join(d.upper() for d in dimensions if dimensions != "mnk") or "M, N and K"
        fixed = " and ".join(d.upper() for d in "mnk" if d not in dimensions)
        text = f"{free} may be any size, including 0 and 1"
        text += f"; {fixed} must be {'a multiple' if len(fixed) == 1 else 'multiples'} of the tile." if fixed else "."
    if not v.traits.looped:
        text += f" One load covers all of K, so K is at most {max(tile.k for tile in kernel.tiles)}."
    together = v.dtype.together
    text = text if together == 1 else f"{text} K must be a multiple of {together}."
    packed = 1 if v.quantised is None else v.quantised.packed
    return text if packed == 1 else f"{text} N must be a multiple of {packed}."


def order(v: Variant) -> str:
    """How tiles are visited."""
    matrices = "matrix by matrix, " if v.products.several else ""
    if v.products.divided:
        matrices = "group by group, "
    meaning = matrices + SWIZZLE[v.swizzle].meaning
    if not v.traits.tiled:
        return f"one program computes one element; elements are numbered {matrices}row by row."
    if v.traits.walks_tiles:
        each = "persistent: there are as many programs as the device runs at once, each computing several tiles of C"
        return f"{each}; tiles are numbered {meaning}."
    if v.traits.walks_steps:
        each = "stream-K: as many programs as the device runs at once share all steps along K of all tiles equally"
        last = "Of the programs that share a tile, the one that finishes last adds the partial sums, in the order of K."
        return f"{each}; tiles are numbered {meaning}. {last}"
    blocks = ""
    if v.traits.pairs:
        side, sizes = v.traits.side.upper(), list(v.traits.sizes_of_blocks)
        each, read = ("rows", "B") if side == "M" else ("columns", "A")
        behind = {"M": "below", "N": "to the right of"}[side]
        those = f"{' and '.join(sizes)} of its BLOCK_{side} {each}"
        blocks = f"{those}{',' * (len(sizes) == 1)} and the {each} {behind} them, reading {read} once"
    if v.traits.splits:
        last = " A second kernel adds their partial sums, in the order of K." if v.traits.joins else ""
        if v.products.divided:
            each = "SPLIT programs share a tile of C, each with its part of K, and each computing several tiles"
            return f"{each}; tiles are numbered {meaning}.{last}"
        each = f" Each sums {blocks}." if blocks else ""
        return f"SPLIT programs share a tile of C, each with its part of K; tiles are visited {meaning}.{each}{last}"
    if blocks:
        return f"one program computes one tile of C: {blocks}; tiles are visited {meaning}."
    return f"one program computes one tile of C; tiles are visited {meaning}."


def symmetric(v: Variant) -> str:
    """What is computed of a symmetric result; nothing where that is not stated."""
    if not v.symmetric:
        return ""
    read = " and ".join(["a", "b", *(x.name for x in v.epilogue.operands if x.shape == MATRIX)])
    return (
        f"the caller states that C is symmetric, as A @ A^T is. Its elements on and above the diagonal are computed "
        f"from {read}, and those below are copies of them, so that C equals its transpose bit for bit."
    )


def batch(v: Variant) -> str:
    """What the matrices of a batch share, and how they may lie to each other; nothing where there is no batch."""
    if not v.products.several or v.products.divided:
        return ""
    text = "matrix i of the result is computed from matrix i of each operand, for any batch size B, including 0."
    shared = [operand.name for operand in v.epilogue.operands if operand.shape in (SCALAR, ELEMENT)]
    if shared:
        text += f" All of them share {' and '.join(shared)}."
    vectors = [x.name for x in call(v).operands if x.shared]
    if vectors:
        text += f" A vector without the dimension B is shared by all: {' and '.join(vectors)} may be one."
    if v.loading.descriptors:
        those = "The batch strides" if v.store == "as_load" else "The batch strides of a and b"
        return f"{text} {those} are multiples of 16 bytes, and not 0."
    return (
        f"{text} Batch strides are any; a stride of 0, as `expand` makes it, repeats one matrix, but not in the result."
    )


def groups(v: Variant) -> str:
    """What the groups of a divided extent are; nothing where no extent is divided."""
    if not v.products.divided:
        return ""
    if v.products.divided == "K":
        return (
            "elements along K up to offsets[0] are summed in matrix 0 of the result, those from there up to offsets[1] "
            "in matrix 1, and so on; a group without elements has a sum of 0. An end counts as between the one before "
            "it and T, whatever it is. offsets stay on the device: nothing waits for them."
        )
    return (
        "rows up to offsets[0] of a are multiplied by b[0], those from there up to offsets[1] by b[1], and so on. Rows "
        "past the last end are not written. An end counts as between the one before it and T, whatever it is. offsets "
        "stay on the device: nothing waits for them. rows, if given, names the row of a for each row of the product; a "
        "row that a does not have stands for zeros. scatter, if given, names the row of out for each row of the "
        "product; out is then given and has any number of rows: those that nothing names keep what they hold, and a "
        "row that out does not have is skipped."
    )


def product(v: Variant) -> str:
    """What the matrix unit is given, where it is not A and B as they are."""
    if v.product == "direct":
        return ""
    if v.dtype.native:
        return "the matrix unit multiplies elements as they are stored, and the sum of each block by its scales."
    if v.product == "summed":
        return "each index along K of a step has a sum of its own, which lanes share; behind the loop they are added."
    gained = "the columns of C fill the rows of the matrix unit"
    if v.dtype.precision == "ieee":
        gained = "B is read as the left operand, which may have K contiguous"
    return f"a tile is computed as C^T = B^T A^T, so that {gained}."


def meanings(v: Variant) -> str:
    """What the operations of the spec's own are, where the formula calls them by name."""
    meanings = "; ".join(f"{word} of x is {text}" for word, text in v.epilogue.meanings.items())
    return f"{meanings}." if meanings else ""


def halves(v: Variant) -> str:
    """What a gate makes of the columns of the product; nothing where there is none."""
    gate = v.epilogue.gate
    if gate is None:
        return ""
    halves_text = TOLD[gate.order]
    before = " before it" if v.epilogue.steps[0] is not gate else ""
    return (
        f"{gate.operation} computes {ast.unparse(gate.tree)} from the 2N columns{before}: gate is {halves_text[GATE]}, "
        f"x is {halves_text[X]}. Both products are computed in one pass over A."
    )


def outputs(v: Variant) -> str:
    """What is written beside C, and C where it is read; nothing where there is no such thing."""
    saved = [output.name for output in v.epilogue.outputs if not output.reduced]
    text = f"{'; '.join(v.epilogue.described_outputs)}." if v.epilogue.outputs else ""
    if saved:
        text += (
            f" {' and '.join(saved)} {'is' if len(saved) == 1 else 'are'} {v.dtype.out} and has the result's layout."
        )
    if v.epilogue.reads_out:
        text += " C is the value of the result's own tensor before the call"
        text += "; it is not read where a call's beta is 0." if v.epilogue.beta else "."
    return text.strip()


def repeatable(v: Variant) -> str:
    """Whether two calls give the same bits."""
    if not v.traits.repeatable:
        return "no; the programs of a tile add to it in an order that varies."
    same = "the same operands, configuration and device give the same bits on every run"
    return f"{same}; C is one of the operands." if v.epilogue.reads_out else f"{same}."


def rows(kernel: Kernel) -> str:
    """What a row of the result does not depend on, where M has no part in the choice of a configuration."""
    if not kernel.rows_alike:
        return ""
    return (
        "a row of the result has the same bits whatever the other rows hold and however many there are, "
        "for the same layouts, device and versions: the choice of a configuration does not read M."
    )


def properties(k: View) -> str:
    """What a caller should know, a labelled paragraph each."""
    if "properties" not in k.texts:
        k.texts["properties"] = _properties(k)
    before, after = k.texts["properties"]
    return "\n".join([*before, paragraph(f"Order: {order(k.kernel.variant)}"), *after])


def _properties(k: View) -> tuple[list[str], list[str]]:
    """The paragraphs before and after that of the order of tiles."""
    kernel = k.kernel
    before = {
        "Sizes": sizes(kernel),
        "Symmetric": symmetric(kernel.variant),
        "Batch": batch(kernel.variant),
        "Groups": groups(kernel.variant),
    }
    after = {
        "Product": product(kernel.variant),
        "Stored": stored(kernel.variant),
        "Gate": halves(kernel.variant),
        "Epilogue": meanings(kernel.variant),
        "Outputs": outputs(kernel.variant),
        "Quantised": quantised(kernel.variant),
        "Rounding": rounding(k),
        "Repeatable": repeatable(kernel.variant),
        "Rows": rows(kernel),
        "Needs": needs(kernel),
    }
    first, last = ([paragraph(f"{label}: {text}") for label, text in each.items() if text] for each in (before, after))
    return first, last


def needs(kernel: Kernel) -> str:
    """What the kernel runs on, where that is less than everything."""
    parts = []
    if kernel.triton != spelled(SUPPORTED):
        parts.append(f"Triton {kernel.triton}")
    if kernel.variant.loading.descriptors:
        parts.append("a GPU with bulk tensor copies (sm90 or later)")
    if packed_from_sm90(kernel.variant):
        parts.append("a GPU before sm90, or one of AMD")
    multiplied = kernel.variant.dtype.stored_a.multiplied
    if kernel.variant.dtype.native:
        parts.append(f"a matrix unit that scales blocks ({' or '.join(scaling_targets(kernel.variant))})")
    elif not every_target(multiplied):
        parts.append(f"a matrix unit for {multiplied}")
    return f"{' and '.join(parts)}." if parts else ""


def operand_table(k: View) -> str:
    """The operands and the result: shape, dtype, layout and alignment."""
    call = k.call
    rows = [("operand", "shape", "dtype", "layout")]
    for x in (call.a, call.b, *call.keywords, *call.optional, *call.results):
        if x.number:
            rows.append((x.name, "scalar", "any real", "a number, or a tensor of one element"))
        else:
            rows.append(("result" if x is call.out else x.name, x.description, _dtype(x), _layout(k, x)))
    return table(rows)


def _dtype(x: Argument) -> str:
    """The type of an operand in the table; which ones scales and zero points may have is said below it."""
    if isinstance(x.dtype, tuple):
        named = [element_of(word).torch for word in x.dtype if word not in SCALE_TYPES]
        return ", ".join([*(["float"] if SCALE_TYPES[0] in x.dtype else []), *named])
    return element_of(x.dtype).torch if x.dtype else "any floating"


def _layout(k: View, x: Argument) -> str:
    """The strides that a tensor must have, and its alignment."""
    if x in k.call.optional:
        return "stride 1; may be left out"
    if not x.layout:
        return "on the device" if x.extents == ("1",) else "stride 1"
    if x.unit is None:
        return "any strides"
    inner = x.extents[x.unit].replace(" // ", " / ")
    if k.descriptors and x.name in (k.a.variable, k.b.variable, *(matrix.variable for matrix in k.described)):
        whole = "base, leading dimension and " + inner if x in k.call.results else "base and leading dimension"
        if x is k.call.b and k.read_step:
            whole = "base, leading dimension and N"
        return f"{x.layout}-major; {whole} in multiples of 16 bytes"
    return f"{x.layout}-major, stride 1" if x.name == OUT_SCALE else f"{x.layout}-major, stride 1 along {inner}"
