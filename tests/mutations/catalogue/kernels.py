"""The kernels that are made wrong, of every axis some: the family's folder and the kernel's name."""

from __future__ import annotations

Kernel = tuple[str, str]


def _pointer(masking: str, swizzle: str, schedule: str = "tiled") -> Kernel:
    return "load_pointer", f"gemm_fp16_rcr_none__{schedule}_pointer_{masking}_{swizzle}"


# Pointer loads: masked in every way, visited in every order.
SILU = ("fp16_rcr", "gemm_fp16_rcr_bias_silu__tiled_pointer_auto_grouped")
RELU = ("fp16_rcr", "gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped")
UNMASKED = _pointer("none", "groupedn")
MASKED_K = _pointer("k", "linearn")
MASKED_MN = _pointer("mn", "swizzle2d")
MASKED = _pointer("mnk", "linear")
NAIVE = _pointer("mnk", "linear", "naive")
NAIVE_FIXED = ("ladder", "gemm_fp16_rcr_none__naive_pointer_mnk_linear")
ELEMENTWISE = ("ladder", "gemm_fp16_rcr_none__elementwise_pointer_mnk_linear")
ELEMENTWISE_EPILOGUE = ("epilogues", "gemm_bf16_rcr_bias_biasm_tanh_scale__elementwise_pointer_auto_grouped")
AUTOTUNED = ("autotune", "gemm_bf16_rcr_bias_relu__tiled_pointer_none_grouped")
HILBERT = ("orders", "gemm_bf16_rcr_none__tiled_pointer_auto_hilbert")
CHIPLET = ("orders", "gemm_bf16_rcr_none__tiled_pointer_none_chiplet")

# Layouts: row-major throughout, column-major throughout, strided.
RRR = ("bf16_rrr", "gemm_bf16_rrr_bias_gelutanh__tiled_pointer_mnk_groupedn")
CCC = ("epilogues", "gemm_bf16_ccc_scale_bias_relu_add__tiled_pointer_auto_grouped")
CCC_ADD_ADD = ("epilogues", "gemm_bf16_ccc_add_add__tiled_pointer_auto_grouped")
CSC = ("layouts", "gemm_fp16_csc_biasm_scale__tiled_pointer_auto_grouped")
SSR = ("layouts", "gemm_fp16_ssr_none__tiled_pointer_none_grouped")
SSS = ("layouts", "gemm_fp16_sss_bias_add__tiled_pointer_auto_grouped")

# Batches.
BATCHES = ("batched", "bmm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped")
BATCHES_ADD = ("batched", "bmm_bf16_rrr_add__tiled_pointer_auto_grouped")
BATCHES_DESCRIPTORS = ("batched", "bmm_fp16_rcr_bias_relu__tiled_descriptor_auto_grouped")

# Symmetric results.
SYMMETRIC = ("symmetric", "gemm_bf16_rcr_none_resultsymmetric__tiled_pointer_auto_grouped_storepointer")
SYMMETRIC_WALKED = ("symmetric", "gemm_bf16_rcr_none_resultsymmetric__persistent_descriptor_auto_grouped_storepointer")
SYMMETRIC_PARTS = ("symmetric", "gemm_fp32_rcr_none_resultsymmetric__splitk_pointer_auto_grouped_storepointer")
QUANTISED = ("quantised_blocks", "gemm_bf16_rcr_quantize_fp8e4m3__tiled_pointer_auto_grouped")
QUANTISED_BYTES = ("quantised_blocks", "gemm_bf16_rcr_quantize_mxfp4__tiled_pointer_auto_grouped")
QUANTISED_SUMS = ("quantised_blocks", "gemm_bf16_rcr_scale_quantize_nvfp4__splitk_descriptor_auto_grouped_storepointer")
QUANTISED_POWERS = ("quantised_blocks", "gemm_bf16_rcr_quantize_int8_64_block_pow2__persistent_descriptor_auto_grouped")

# Groups of rows.
GROUPS = ("grouped", "gmm_bf16_rcr_scalem__tiled_pointer_auto_grouped_storepointer")
GROUPS_WALKED = ("grouped", "gmm_bf16_rcr_none__persistent_descriptor_auto_grouped_storepointer")
GROUPS_SPLIT = ("grouped", "gmm_bf16_rcr_scalem__splitk_descriptor_auto_grouped_storepointer")
GROUPS_OF_K = ("grouped_k", "gmmk_bf16_crc_none__tiled_pointer_auto_grouped_storepointer")
GROUPS_OF_K_WALKED = ("grouped_k", "gmmk_bf16_crr_none__persistent_descriptor_auto_grouped_storepointer")

# Types.
FP16_SUMS = ("dtypes", "gemm_fp16_fp16_fp16_rrr_none__tiled_pointer_mnk_grouped")
IEEE = ("fp32_rcr", "gemm_fp32_rcr_bias_tanh__tiled_pointer_mnk_linear")
TF32 = ("tf32_rcr", "gemm_tf32_rcr_bias_gelu__tiled_pointer_auto_grouped")
TF32_HELD = ("tf32", "gemm_tf32_rrr_none__tiled_pointer_auto_grouped_productexchanged")
TF32X3 = ("tf32_rcr", "gemm_tf32x3_rcr_bias__tiled_pointer_auto_linear")
INT8 = ("int8_rcr", "gemm_int8_int32_fp16_rcr_scale_bias_relu__tiled_pointer_auto_grouped")
INT8_RELU = ("int8_rcr", "gemm_int8_rcr_relu__tiled_pointer_auto_grouped")
FP8 = ("fp8e4m3_rcr", "gemm_fp8e4m3_rcr_scale_bias__tiled_pointer_auto_grouped")
FP8_FAST = ("fp8e4m3_rcr", "gemm_fp8e4m3_fp32_bf16_fast_rcr_scale__tiled_pointer_auto_grouped")

# Operands as they are stored.
INT4 = ("int4_rcr", "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none__tiled_pointer_auto_grouped_storepointer")
INT4_EXCHANGED = ("int4_rcr", f"{INT4[1]}_productexchanged")
#: Of few rows, A is put in the order in which B's words are decoded.
INT4_COPIED = ("int4_rcr", INT4_EXCHANGED[1].replace("pointer_auto", "descriptor_auto"))
#: Words of B have the order of the matrix unit; of numbers of 4 bits each, and of 8 with one scale for all of K.
FRAGMENTS_4 = (
    "fragments",
    "gemm_bf16xint4_fp32_bf16_b128x1_fragments_rcr_none__tiled_descriptor_auto_grouped_storepointer_productexchanged",
)
FRAGMENTS_8 = ("fragments", FRAGMENTS_4[1].replace("int4", "int8").replace("b128x1", "ballx1"))
#: B is decoded by a first kernel.
DECODED = ("int4_rcr", "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none__decoded_pointer_auto_grouped_storepointer")
#: B is copied row-major by a first kernel.
FP32_COPIED = ("fp32", "gemm_fp32_rcr_none__decoded_pointer_auto_grouped")
#: Lanes share K.
SUMMED = ("fp32", "gemm_fp32_rcr_none__tiled_pointer_auto_grouped_productsummed")
UINT4_ZEROS = ("stored", "gemm_fp16xuint4_fp32_fp16_b64x32_zeros_rrr_none__tiled_pointer_auto_grouped")
INT8_SCALED = ("stored", "gemm_int8_int32_bf16_a1xall_ballx1_rrr_none__tiled_pointer_auto_grouped")
MXFP4 = ("mx", "gemm_bf16xmxfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped")
MX_MIXED = ("mx", "gemm_mxfp8e4m3xmxfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped_productexchanged")
NVFP4 = ("mx", "gemm_nvfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped")
MX_SCALED = ("mx_scaled", "gemm_mxfp8e4m3xmxfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped_productscaled")
MXFP4_SCALED = ("mx_scaled", "gemm_mxfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped_productscaled")
NVFP4_SCALED = ("mx_scaled", "gemm_nvfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped_productscaled")
SPARSE = ("sparse24", "gemm_fp16_sparse24_rcr_none__tiled_pointer_auto_grouped_storepointer_productexchanged")
FP8_BLOCKS = ("fp8_blocks", "gemm_fp8e4m3_a1x128_b128x128_rcr_none__tiled_pointer_auto_grouped_storepointer")

#: One half of a tile is promoted, or scaled, while the other is multiplied.
FP8_PAIRED = ("fp8e4m3_rcr", "gemm_fp8e4m3_rcr_none__paired_descriptor_auto_grouped_storepointer_productexchanged")
FP8_BLOCKS_PAIRED = (
    "fp8_blocks",
    "gemm_fp8e4m3_a1x128_b128x128_rcr_none__paired_descriptor_auto_grouped_storepointer_productexchanged",
)

# Other loads.
BLOCKS = ("load_block_pointer", "gemm_fp16_crc_bias_add__tiled_blockpointer_auto_grouped")
BLOCKS_MN = ("load_block_pointer", "gemm_fp16_rcr_bias_add__tiled_blockpointer_mn_grouped")
BLOCKS_NAIVE = ("load_block_pointer", "gemm_fp16_rcr_none__naive_blockpointer_none_grouped")
DESCRIPTORS = ("fp16_rcr", "gemm_fp16_rcr_none__tiled_descriptor_auto_grouped")
DESCRIPTORS_CCC = ("load_descriptor", "gemm_fp16_ccc_bias_add__tiled_descriptor_mnk_grouped")
DESCRIPTORS_RCS = ("load_descriptor", "gemm_fp16_rcs_bias_add__tiled_descriptor_mnk_grouped_storepointer")
DESCRIPTORS_NAIVE = ("load_descriptor", "gemm_fp16_rrr_none__naive_descriptor_mnk_grouped")
DESCRIPTORS_FP8 = ("fp8e4m3_rcr", "gemm_fp8e5m2_rcr_scale_bias__tiled_descriptor_auto_grouped")

# Programs that walk tiles, and products of exchanged operands.
PERSISTENT = ("gemm16", "gemm_fp16_rcr_none__persistent_descriptor_auto_grouped_storepointer")
EXCHANGED = ("gemm16", "gemm_fp16_rrr_none__tiled_pointer_auto_grouped_productexchanged")

# Tiles of two widths.
PAIRED = ("gemm16", "gemm_fp16_rcr_none__paired_descriptor_auto_grouped_storepointer")

# Tiles of two and three blocks of rows, and of three of columns.
_BLOCKS = "descriptor_auto_grouped_storepointer"
PAIRED_M = ("widths", f"gemm_bf16_rcr_none__pairedm_{_BLOCKS}_productexchanged")
TRIPLED_M = ("widths", f"gemm_bf16_rcr_none__tripledm_{_BLOCKS}_productexchanged")
TRIPLED = ("widths", f"gemm_bf16_rcr_none__tripled_{_BLOCKS}")
SPLIT_PAIRED_M = ("widths", f"gemm_bf16_rcr_none__splitkpairedm_{_BLOCKS}_productexchanged")
SPLIT_PAIRED = ("widths", f"gemm_bf16_rcr_none__splitkpaired_{_BLOCKS}")
SPLIT_FRAGMENTS = (
    "fragments",
    f"gemm_bf16xint4_fp32_bf16_b128x1_fragments_rcr_none__splitkpairedm_{_BLOCKS}_productexchanged",
)
STORED_TRIPLED_M = ("widths_stored", f"gemm_fp8e4m3_a1x128_b128x128_rcr_none__tripledm_{_BLOCKS}_productexchanged")

# Programs that share the K of a tile.
SPLIT = ("split_k", "gemm_fp16_rcr_bias_silu__splitk_pointer_auto_grouped")
SPLIT_DESCRIPTORS = ("split_k", "gemm_fp16_rcr_bias_silu__splitk_descriptor_auto_grouped")
SPLIT_GATE = ("gated", "gemm_fp16_rrr_bias_swiglu__splitk_pointer_auto_grouped")
ADDED = ("split_k", "gemm_fp16_fp32_fp32_rcr_none__splitkatomic_pointer_auto_grouped")
STREAM = ("stream_k", "gemm_fp16_rcr_bias_silu__streamk_pointer_mnk_grouped")

# Beside a chain of operations: gates, outputs, rounding in between, narrow results, fast forms.
GATED = ("gated", "gemm_bf16_rcr_bias_swiglu__tiled_pointer_auto_grouped")
HALVES = ("training", "gemm_bf16_rcr_save_1whole_swiglu__tiled_pointer_auto_grouped")
OUTPUTS = (
    "outputs",
    "gemm_fp16_rcr_bias_biasm_save_1hidden_silu_colsum_1gradient_rowsum_rowamax__tiled_pointer_auto_grouped",
)
SAVED = ("outputs", "gemm_fp16_rcr_bias_save_gelu__tiled_pointer_auto_grouped")
ACCUMULATED = ("outputs", "gemm_fp16_rcr_accumulate__tiled_pointer_auto_grouped")
ROUNDED = ("rounding", "gemm_bf16_rcr_bias_gelu_roundingtorch__tiled_pointer_auto_grouped")
TO_INT8 = ("quantised", "gemm_bf16_fp32_int8_rcr_bias_relu_scale__tiled_pointer_auto_grouped")
TO_FP8 = ("quantised", "gemm_bf16_fp32_fp8e4m3_rcr_bias_relu_scale__tiled_pointer_auto_grouped")
FAST = ("fast", "gemm_fp16_rcr_bias_gelutanh__tiled_pointer_auto_grouped_mathfast")
