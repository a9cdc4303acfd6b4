"""Shipped kernels by what they are examples of, and the same with changes."""

from __future__ import annotations

from pathlib import Path

from generator import runtime
from generator.bounds import FileProof, prove
from tests.helpers import shipped
from tests.helpers.call_functions import with_names

AUTO = "fp16_rcr/gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped"
NONE = "autotune/gemm_bf16_rcr_bias_relu__tiled_pointer_none_grouped"
STRIDED = "layouts/gemm_fp16_sss_bias_add__tiled_pointer_auto_grouped"
BLOCK = "load_block_pointer/gemm_fp16_crc_bias_add__tiled_blockpointer_auto_grouped"
NAIVE = "load_block_pointer/gemm_fp16_crc_none__naive_blockpointer_k_grouped"
ELEMENT = "ladder/gemm_fp16_rcr_none__elementwise_pointer_mnk_linear"
SWIZZLE = "load_pointer/gemm_fp16_rcr_none__tiled_pointer_none_swizzle2d"
HILBERT = "orders/gemm_bf16_rcr_none__tiled_pointer_auto_hilbert"
CHIPLET = "orders/gemm_bf16_rcr_none__tiled_pointer_auto_chiplet"
DESCRIPTOR = "fp16_rcr/gemm_fp16_rcr_bias_relu__tiled_descriptor_auto_grouped"
TUNED = "autotune/gemm_bf16_rcr_bias_relu__tiled_descriptor_auto_grouped"
SCALE = "bf16_rrr/gemm_bf16_rrr_scale_bias__tiled_pointer_auto_grouped"
MADE = "gemm_fp16_rcr_bias_biasm_save_1hidden_silu_colsum_1gradient_rowsum_rowamax"
OUTPUTS = f"outputs/{MADE}__persistent_pointer_auto_grouped"
DEALT = "stream_k/gemm_fp16_rcr_bias_silu__streamk_descriptor_auto_grouped"
SUMS = "split_k/gemm_fp16_rcr_bias_silu__splitk_pointer_auto_grouped"
SUMS_DESCRIPTORS = "split_k/gemm_fp16_rcr_bias_silu__splitk_descriptor_auto_grouped"
PARTS = "gated/gemm_fp16_rrr_bias_swiglu__splitk_pointer_auto_grouped"
PARTS_DESCRIPTORS = "gated/gemm_bf16_rcr_bias_swiglu__splitk_descriptor_auto_grouped"
DECODED = "int4_rcr/gemm_bf16xint4_fp32_bf16_b128x1_rcr_bias__decoded_pointer_auto_grouped_storepointer"
DECODED_DESCRIPTORS = DECODED.replace("pointer_auto", "descriptor_auto")
ADDS = "split_k/gemm_fp16_fp32_fp32_rcr_none__splitkatomic_pointer_auto_grouped"


def planted(kernel: str, *changes: tuple[str, str]) -> str:
    """The text of a shipped kernel with each text replaced, and with two rows of CONFIGS at most."""
    family, _, name = kernel.partition("/")
    text = (shipped.folder(family) / f"{name}.py").read_text()
    head, found, rest = text.partition("CONFIGS = [\n")
    table, end, tail = rest.partition("\n]\n")
    text = head + found + "\n".join(table.split("\n")[:2]) + end + tail
    for old, new in changes:
        assert old in text, f"{kernel} has no {old!r} any more"
        text = text.replace(old, new)
    return with_names(text)


def proof_of(folder: Path, text: str) -> FileProof:
    """The proof of a kernel of this text."""
    path = folder / "kernel.py"
    path.write_text(text)
    library = folder / "_runtime"
    if not library.exists():
        library.symlink_to(Path(runtime.__file__).parent)
    # The proof is about any configurations that a device holds.
    (folder / "_shared_memory.py").write_text("def needs_of(module):\n    return {}\n")
    return prove(path)


def wrong(proof: FileProof) -> list[str]:
    """What is said against the file: of its order, and of its accesses."""
    order = [proof.order.detail] if proof.order.state != "proved" else []
    return order + [x.detail for x in proof.accesses if x.state in ("refuted", "not proved")]
