"""The legality table: each rule refuses what it names, with its reason, and nothing beside it."""

from __future__ import annotations

import pytest

from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout, Tile, Variant
from generator.language.targets import TARGETS
from generator.plan import legality, variant_rules
from generator.plan.shared_memory import BARRIERS
from tests.helpers.support import BASE, family_of, mistakes_of, read_text, variant

INT8 = Dtype.of("int8")
BIAS = chain_of(("bias",))
NO_INT32 = "the epilogue is computed in fp32, and no rounding back to int32 is defined; give dtype.out a float type"
STRIDED = "a descriptor needs an inner stride of 1, which a strided A or B need not have; use 'load: pointer'"


@pytest.mark.parametrize(
    ("v", "reason"),
    [
        (variant(), None),
        (variant(schedule="elementwise"), None),
        (
            variant(schedule="elementwise", load="descriptor"),
            "elementwise loads single elements, which descriptor cannot address; use 'load: pointer'",
        ),
        (
            variant(schedule="elementwise", load="block_pointer"),
            "elementwise loads single elements, which block_pointer cannot address; use 'load: pointer'",
        ),
        (
            variant(schedule="elementwise", dtype=Dtype.of("tf32")),
            "tf32 is a mode of the matrix unit, which elementwise does not use; use tiled",
        ),
        (variant(schedule="elementwise", dtype=Dtype.of("fp32")), None),
        (variant(load="descriptor"), None),
        (variant(batch="strided"), None),
        (variant(batch="strided", schedule="persistent", load="descriptor"), None),
        (
            variant(batch="strided", schedule="stream_k"),
            "stream_k divides the K of a single product, not those of a batch; use tiled",
        ),
        (variant(load="descriptor", masking="auto"), None),
        *(
            (
                variant(load="descriptor", masking=masking),
                f"the hardware bounds descriptor accesses, so 'masking: {masking}' has no effect; use mnk or auto",
            )
            for masking in ("none", "k", "mn")
        ),
        (variant(load="descriptor", layout=Layout.of("srr")), STRIDED),
        (variant(load="descriptor", layout=Layout.of("rsr")), STRIDED),
        (
            variant(load="descriptor", layout=Layout.of("rrs")),
            "a descriptor cannot write a strided C; use 'store: pointer'",
        ),
        (variant(load="descriptor", layout=Layout.of("rrs"), store="pointer"), None),
        (variant(load="block_pointer", layout=Layout.of("sss")), None),
        (variant(dtype=INT8), None),
        # relu stays in integers, bias does not.
        (variant(dtype=INT8, epilogue=chain_of(("relu",))), None),
        (variant(dtype=INT8, epilogue=chain_of(("bias",))), NO_INT32),
        (variant(dtype=INT8, epilogue=chain_of(("relu", "silu"))), NO_INT32),
        (variant(dtype=Dtype("int8", "int8", "int32", "int8", None), epilogue=chain_of(("silu",))), None),
        (variant(dtype=Dtype("int8", "int8", "int32", "fp16", None), epilogue=chain_of(("bias",))), None),
        (variant(schedule="split_k_atomic", dtype=Dtype.of("fp32")), None),
        (variant(schedule="split_k_atomic", dtype=Dtype("fp16", "fp16", "fp32", "fp32", None)), None),
        (
            variant(schedule="split_k_atomic"),
            "partial sums are added in the result's type, and fp16 rounds each addition; use split_k",
        ),
        (
            variant(schedule="split_k_atomic", dtype=Dtype("int8", "int8", "int32", "fp32", None)),
            "partial sums are added in the result's type, and fp32 rounds int32 sums; use split_k",
        ),
        (
            variant(schedule="split_k_atomic", dtype=Dtype.of("fp32"), epilogue=chain_of(("bias",))),
            "each partial sum is added to the result separately, and an epilogue needs the whole sum; use split_k",
        ),
        *(
            (
                variant(schedule="split_k_atomic", dtype=Dtype.of("fp32"), load=load),
                f"{load} has no atomic add; use 'store: pointer'",
            )
            for load in ("descriptor", "block_pointer")
        ),
        (variant(schedule="split_k_atomic", dtype=Dtype.of("fp32"), load="descriptor", store="pointer"), None),
        (variant(rounding="torch"), None),
        (variant(rounding="torch", dtype=Dtype("int8", "int8", "int32", "bf16", None)), None),
        (
            variant(rounding="torch", dtype=INT8),
            "eager torch rounds no operation to int32; use 'rounding: late', or give dtype.out fp16 or bf16",
        ),
        (
            variant(epilogue=chain_of(("bias",) * 60)),
            "its name has 340 characters, and 240 are allowed; shorten the epilogue",
        ),
    ],
)
def test_what_no_target_can_run(v: Variant, reason: str | None) -> None:
    assert legality.why_not(v) == reason


@pytest.mark.parametrize(
    ("v", "refused"),
    [
        (variant(), set()),
        (variant(load="descriptor"), set(TARGETS) - {"sm90", "sm100", "sm120"}),
        (variant(dtype=Dtype.of("fp8e4m3")), {"sm80", "sm86", "gfx90a", "gfx1100"}),
        (variant(dtype=Dtype("bf16", "bf16", "fp32", "fp8e4m3", None)), {"sm80", "sm86"}),
        (variant(dtype=Dtype("bf16", "bf16", "fp32", "fp8e5m2", None)), {"sm80", "sm86"}),
        (variant(dtype=Dtype("bf16", "bf16", "fp32", "int8", None)), set()),
        (variant(dtype=Dtype.of("tf32")), {"gfx90a", "gfx950", "gfx1100", "gfx1201"}),
        (variant(dtype=Dtype.of("tf32x3")), {target for target in TARGETS if target.startswith("gfx")}),
        (variant(dtype=Dtype.of("fp32")), set()),
        (variant(schedule="persistent"), set()),
        (variant(product="exchanged"), set(TARGETS) - {"sm90", "sm100"}),
        # Scalar units have no rows to fill, and read a left operand with contiguous K faster.
        (variant(product="exchanged", dtype=Dtype.of("fp32")), {x for x in TARGETS if not TARGETS[x].capability}),
    ],
)
def test_which_targets_cannot_run_it(v: Variant, refused: set[str]) -> None:
    found = {target: legality.why_not_on(v, target) for target in TARGETS}
    assert {target for target, reason in found.items() if reason} == refused


@pytest.mark.parametrize("target", ["sm80", "sm120", "gfx942"])
def test_an_exchange_needs_a_matrix_unit_of_64_rows(target: str) -> None:
    reason = f"an exchanged product is for matrix instructions of 64 rows, which {target} does not have"
    assert legality.why_not_on(variant(product="exchanged"), target) == reason


def _naive_copies(*chain: str) -> dict[str, object]:
    return {"schedule": "naive", "load": "descriptor", "epilogue": chain_of(chain)}


@pytest.mark.parametrize(
    ("axes", "target", "stages", "needed"),
    [
        # (64 x 32 + 32 x 128) fp16 elements are 12,288 bytes a stage.
        ({}, "sm90", 3, 36864),  # wgmma reads every stage from shared memory
        ({}, "sm100", 4, 49152 + BARRIERS),  # tcgen05 waits at barriers
        ({}, "sm80", 3, 24576),  # one stage is in registers
        ({}, "gfx942", 2, 12288),
        ({}, "sm80", 1, 16384),  # one stage, and then the result of 16,384 bytes
        ({"schedule": "naive"}, "sm80", 3, 16384),  # all of K at once, and then the result
        ({"schedule": "naive"}, "sm90", 3, 16384),
        # While the hardware copies the result out, vectors of 128 elements pass.
        (_naive_copies(), "sm90", 3, 16384 + 512 + BARRIERS),
        # A result of 32 bits may pass through it wherever it goes.
        ({"schedule": "naive", "dtype": Dtype.of("int8")}, "sm90", 3, 32768),
        ({**_naive_copies(), "store": "pointer", "dtype": Dtype.of("int8")}, "sm90", 3, 32768 + BARRIERS),
        # Both halves of B lie beside A; so does the matrix that the product begins with, of 32 bits at the most.
        (_naive_copies("swiglu"), "sm90", 3, 20480 + 512 + BARRIERS),
        (_naive_copies("add"), "sm90", 3, 45056 + 512 + BARRIERS),
        ({"schedule": "elementwise"}, "sm90", 3, 0),
        # A partial sum of 32,768 bytes is put in order there, where the loads leave less.
        ({"schedule": "split_k"}, "sm90", 2, 32768),
        ({"schedule": "split_k"}, "sm90", 3, 36864),
        ({"schedule": "split_k_atomic", "dtype": Dtype.of("tf32")}, "sm90", 3, 73728),
        # The result of 16,384 bytes is copied out while the next tile is loaded.
        ({"schedule": "stream_k", "load": "descriptor"}, "sm90", 3, 36864 + 16384 + BARRIERS),
        ({"schedule": "stream_k", "load": "descriptor", "store": "pointer"}, "sm90", 3, 36864 + BARRIERS),
        # The result of 16,384 bytes of one tile passes through it while the next tile is loaded, in whole at the most.
        ({"schedule": "persistent"}, "sm90", 3, 36864 + 16384),
        ({"schedule": "persistent", "load": "descriptor"}, "sm90", 3, 36864 + 16384 + 512 + BARRIERS),
        ({"schedule": "persistent", "load": "descriptor", "store": "pointer"}, "sm90", 3, 36864 + 16384 + BARRIERS),
        ({"schedule": "persistent"}, "sm80", 3, 24576 + 16384),
        ({"schedule": "persistent", "dtype": Dtype.of("int8")}, "sm90", 3, 18432 + 32768),
        ({"schedule": "persistent"}, "sm80", 1, 16384),  # nothing is in flight
        # Plain arithmetic has two stages in flight; beside them lies B, or a result on its way out that is larger.
        ({"load": "descriptor", "dtype": Dtype.of("fp32")}, "sm90", 3, 49152 + 32768 + BARRIERS),
        ({"load": "descriptor", "dtype": Dtype.of("fp32"), "store": "pointer"}, "sm90", 3, 49152 + 16384 + BARRIERS),
        # An exchange is of rows and columns, not of bytes.
        ({"product": "exchanged"}, "sm90", 3, 36864),
        # Other widths of the operands.
        ({"dtype": Dtype.of("int8")}, "sm90", 3, 32768),  # the result, of 32 bits
        ({"dtype": Dtype.of("tf32")}, "sm90", 3, 73728),
    ],
)
def test_shared_memory(axes: dict[str, object], target: str, stages: int, needed: int) -> None:
    tile = Tile(64, 128, 32, warps=4, stages=stages)
    assert legality.shared_memory(variant(**axes), tile, target) == needed


@pytest.mark.parametrize(
    ("tile", "target", "reason"),
    [
        (Tile(64, 64, 64, warps=32), "sm90", None),
        (Tile(64, 64, 64, warps=64), "sm90", "64 warps, and sm90 runs at most 32 in a program"),
        (Tile(64, 64, 64, warps=16), "gfx942", None),
        (Tile(64, 64, 64, warps=32), "gfx942", "32 warps, and gfx942 runs at most 16 in a program"),
        (Tile(128, 256, 64, warps=8, stages=3), "sm90", None),
        (
            Tile(256, 256, 64, warps=8, stages=3),
            "sm90",
            "its accumulators need 256 registers per thread, and sm90 has 255 with 8 warps",
        ),
        (
            Tile(256, 256, 32, warps=16, stages=3),
            "sm90",
            "its accumulators need 128 registers per thread, and sm90 has 128 with 16 warps",
        ),
        (
            Tile(16, 128, 256, warps=1, stages=2),
            "sm80",
            "accumulators and operands need 640 registers per thread, and sm80 has 255 with 1 warp",
        ),
        (Tile(256, 256, 64, warps=8, stages=4), "sm90", "262144 bytes of shared memory, and sm90 has 232448"),
    ],
)
def test_rows_on_a_target(tile: Tile, target: str, reason: str | None) -> None:
    assert legality.why_no_row_on(variant(), tile, target) == reason


@pytest.mark.parametrize(
    ("dtype", "tile", "reason"),
    [
        ("fp16", Tile(16, 16, 16, warps=1), None),
        ("fp16", Tile(8, 16, 16, warps=1), "m and n are 8 and 16, and the matrix unit needs at least 16 of each"),
        ("fp16", Tile(16, 16, 8, warps=1), "k is 8, and the matrix unit needs at least 16 for fp16"),
        ("int8", Tile(16, 16, 32, warps=1), None),
        ("int8", Tile(16, 16, 16, warps=1), "k is 16, and the matrix unit needs at least 32 for int8"),
        (
            "fp16",
            Tile(2048, 1024, 16, warps=8),
            "it holds 2097152 elements in one tensor, and Triton allows 1048576",
        ),
    ],
)
def test_rows_on_any_target(dtype: str, tile: Tile, reason: str | None) -> None:
    assert legality.why_no_row(variant(dtype=Dtype.of(dtype)), tile) == reason


@pytest.mark.parametrize(
    ("product", "tile", "reason"),
    [
        ("exchanged", Tile(16, 64, 16, warps=4), None),
        *(
            (
                "exchanged",
                Tile(64, n, 16, warps=4),
                f"n is {n}, too few columns of C for the 64 rows of the matrix unit in an exchanged product",
            )
            for n in (16, 32)
        ),
        ("direct", Tile(64, 16, 16, warps=4), None),
        # What holds for every product comes first.
        ("exchanged", Tile(64, 8, 16, warps=4), "m and n are 64 and 8, and the matrix unit needs at least 16 of each"),
    ],
)
def test_rows_of_an_exchanged_product(product: str, tile: Tile, reason: str | None) -> None:
    assert legality.why_no_row(variant(product=product), tile) == reason


@pytest.mark.parametrize(
    ("schedule", "split", "reason"),
    [
        ("split_k", 1, None),
        ("split_k", 1023, None),
        *(
            (schedule, split, f"split is {split}, and at most 1023 is allowed with k: 64: indices along K have 32 bits")
            for schedule, split in (("split_k", 1024), ("split_k_atomic", 2048))
        ),
        ("tiled", 2048, None),
    ],
)
def test_rows_that_divide_k(schedule: str, split: int, reason: str | None) -> None:
    v = variant(schedule=schedule, dtype=Dtype.of("tf32"))
    assert legality.why_no_row(v, Tile(64, 64, 64, warps=4, split=split)) == reason


def test_versions() -> None:
    allowed = read_text(f'{BASE}triton: ">=3.9"\n').triton
    assert legality.why_no_version(variant(), allowed) is None
    assert "needs Triton <3.9" in (legality.why_no_version(variant(load="block_pointer"), allowed) or "")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"schedule": "elementwise"}, {"schedule": "elementwise", "swizzle": "linear"}, True),
        ({"schedule": "elementwise"}, {"schedule": "elementwise", "masking": "none"}, True),
        ({"schedule": "elementwise"}, {"schedule": "tiled"}, False),
        ({"load": "descriptor"}, {"load": "descriptor", "masking": "auto"}, True),
        ({"load": "descriptor"}, {"load": "descriptor", "store": "pointer"}, False),
        ({"load": "pointer"}, {"load": "pointer", "store": "pointer"}, True),
        ({"load": "block_pointer"}, {"load": "block_pointer", "store": "pointer"}, False),
        ({"masking": "mnk"}, {"masking": "auto"}, False),
        ({"swizzle": "linear"}, {"swizzle": "grouped"}, False),
        ({"product": "exchanged"}, {"product": "direct"}, False),
        ({"schedule": "elementwise", "product": "exchanged"}, {"schedule": "elementwise"}, True),
        # Nothing is rounded between the product and the store.
        ({"rounding": "torch"}, {}, True),
        ({"rounding": "torch", "epilogue": BIAS}, {"epilogue": BIAS}, False),
        *(
            ({"rounding": "torch", "epilogue": BIAS, "dtype": dtype}, {"epilogue": BIAS, "dtype": dtype}, same)
            for dtype, same in (
                (Dtype.of("fp32"), True),
                (Dtype("fp16", "fp16", "fp16", "fp32", None), True),
                (Dtype("fp16", "fp16", "fp16", "fp16", None), True),
                (Dtype("int8", "int8", "int32", "fp32", None), False),
            )
        ),
        ({"epilogue": BIAS, "math": "fast"}, {"epilogue": BIAS}, False),
    ],
)
def test_effective_words(one: dict[str, object], other: dict[str, object], same: bool) -> None:
    assert (legality.effective_words(variant(**one)) == legality.effective_words(variant(**other))) is same


@pytest.mark.parametrize(
    ("masking", "masked"),
    [
        ("none", {"m": False, "n": False, "k": False}),
        ("k", {"m": False, "n": False, "k": True}),
        ("mn", {"m": True, "n": True, "k": False}),
        ("mnk", {"m": True, "n": True, "k": True}),
        ("auto", {"m": None, "n": None, "k": None}),
    ],
)
def test_ragged(masking: str, masked: dict[str, bool | None]) -> None:
    assert variant_rules.ragged(masking) == masked


@pytest.mark.parametrize(
    ("v", "reason"),
    [
        (
            variant(schedule="stream_k"),
            "where stream_k divides K depends on the number of tiles, and so on M; use split_k",
        ),
        (
            variant(schedule="split_k_atomic", dtype=Dtype("fp16", "fp16", "fp32", "fp32", None)),
            "split_k_atomic adds partial sums in an order that varies; use split_k or tiled",
        ),
        *((variant(schedule=word), None) for word in ("tiled", "persistent", "split_k", "naive")),
        (variant(schedule="elementwise", masking="none"), None),
        (variant(masking="none"), "M would decide which tiles are legal for 'masking: none'; use mn, mnk or auto"),
        (variant(masking="k"), "M would decide which tiles are legal for 'masking: k'; use mn, mnk or auto"),
        *((variant(masking=word), None) for word in ("mn", "mnk", "auto")),
        (
            variant(load="descriptor", layout=Layout.of("crr")),
            "M would decide whether a descriptor can address a column-major A; use 'load: pointer'",
        ),
        (
            variant(load="descriptor", layout=Layout.of("rrc")),
            "M would decide whether a descriptor can write a column-major C; use 'store: pointer'",
        ),
        (variant(load="descriptor", layout=Layout.of("rrc"), store="pointer"), None),
        (variant(load="block_pointer", layout=Layout.of("crc")), None),
        (variant(layout=Layout.of("crc")), None),
        (
            variant(epilogue=chain_of(("row_sum",))),
            "row_sum adds the sums of tiles by torch.sum, whose order depends on M; compute it from the result",
        ),
        (
            variant(epilogue=chain_of(("bias", "col_sum"))),
            "col_sum is computed from all rows together; compute it from the result",
        ),
        *((variant(epilogue=chain_of((word,))), None) for word in ("row_amax", "save", "bias_m", "accumulate")),
        (variant(batch="strided"), None),
    ],
)
def test_what_depends_on_other_rows(v: Variant, reason: str | None) -> None:
    wanted = reason and f"{reason} with 'invariant: rows'"
    for select in ("fixed", "heuristic", "table"):
        assert legality.why_not_selected(v, select) is None
        assert legality.why_not_selected(v, select, rows_alike=True) == wanted
    tuned = "the autotuner's choice is keyed on M; use 'select: heuristic' or 'table' with 'invariant: rows'"
    assert legality.why_not_selected(v, "autotune", rows_alike=True) == tuned


def test_a_family_whose_rows_are_alike_leaves_out_what_is_not() -> None:
    text = f"{BASE}schedule: [tiled, stream_k]\nmasking: [none, auto]\n"
    assert [kernel.rows_alike for kernel in family_of(text).kernels] == [False] * 4
    left = mistakes_of(f"{text}invariant: rows\n")
    assert [line.partition(": ")[0] for line in left] == ["family.yaml:4:19", "family.yaml:5:11"]
    assert all(line.endswith("with 'invariant: rows'") for line in left)
    text = BASE.replace("rcr", "[rcr, crr]") + "load: [pointer, descriptor]\ninvariant: rows\n"
    family = family_of(text)
    assert [kernel.rows_alike for kernel in family.kernels] == [True] * 3
    reasons = {left.name: left.reason for left in family.left_out if left.target is None}
    assert "column-major A" in reasons["gemm_fp16_crr_none__tiled_descriptor_auto_grouped"]


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("schedule: stream_k\ninvariant: rows", "to leave something, change one of: schedule: 'stream_k' (4:11)"),
        ("select: autotune\ninvariant: rows", "to leave something, change one of: select: 'autotune' (4:9)"),
    ],
)
def test_an_empty_family_names_the_invariance_as_what_can_be_changed(keys: str, answer: str) -> None:
    (line,) = mistakes_of(f"{BASE}{keys}\n")
    assert f"{answer}, invariant: 'rows' (5:12)" in line
