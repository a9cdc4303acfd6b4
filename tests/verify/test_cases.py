"""The cases follow from the kernel: which sizes there are, that they are legal, that each says why."""

from generator.verify.cases import cases
from generator.verify.manifest_configurations import takes
from tests.helpers.support import family_of


def kernel(text):
    return family_of(f"summary: s\nlayout: rcr\ndtype: fp16\n{text}").kernels[0]


def by_name(text, *, hardware=False):
    return {case.name: case for case in cases(kernel(text), hardware=hardware)}


TABLE = "tile: [{m: 64, n: 128, k: 32, warps: 4, group: 3}, {m: 16, n: 32, k: 64, warps: 4, group: 3}]\n"


def test_the_full_list_is_on_the_smallest_row_and_two_cases_on_each_other():
    found = by_name(TABLE + "masking: auto\n")
    assert {case.row for name, case in found.items() if name != "plain" and not name.startswith("row")} == {1}
    assert found["plain"].row is None
    assert found["row0-ragged"].sizes == (96, 64, 48)
    assert found["row0-aligned"].sizes == (64, 128, 32)


def test_rows_that_differ_in_warps_or_stages_alone_are_one_to_the_interpreter():
    rows = "{m: 64, n: 64, k: 64, warps: 4}, {m: 64, n: 64, k: 64, warps: 8}, {m: 64, n: 64, k: 64, warps: 4, group: 2}"
    table = f"tile: [{{m: 16, n: 32, k: 64, warps: 4}}, {rows}, {{m: 16, n: 32, k: 64, warps: 4, stages: 5}}]\n"
    ragged = {name for name in by_name(table) if name.endswith("-ragged")}
    assert ragged == {"row1-ragged", "row3-ragged"}
    on_a_gpu = {name for name in by_name(table, hardware=True) if name.endswith("-ragged")}
    assert on_a_gpu == {f"row{row}-ragged" for row in (1, 2, 3, 4)}


def test_sizes_come_from_the_tile():
    found = by_name(TABLE + "masking: auto\n")
    assert found["aligned"].sizes == (32, 32, 128)
    assert found["past-tile"].sizes == (17, 33, 129)
    assert (found["past-m"].sizes, found["past-n"].sizes) == ((17, 32, 64), (16, 33, 64))
    assert found["past-k"].sizes == (16, 32, 65)
    assert found["primes"].sizes == (13, 31, 61)
    assert found["one"].sizes == (1, 1, 1)
    assert [found[f"empty-{d}"].sizes.index(0) for d in "mnk"] == [0, 1, 2]


def test_hardware_runs_each_configuration_on_a_full_device():
    """For so many steps that a product still reads its operands while those of the next step are made ready."""
    text = "schedule: split_k\nload: descriptor\nproduct: exchanged\nstore: pointer\ntargets: [sm90]\n"
    stored = "dtype: {a: bf16, b: int8, scales: {b: [0, 1]}}\n"
    (made,) = family_of(f"summary: s\nlayout: rcr\n{stored}{text}").kernels
    found = {case.row: case for case in cases(made, hardware=True) if case.name.endswith("overlapping")}
    assert list(found) == list(range(len(made.tiles)))
    for row, tile in enumerate(made.tiles):
        m, n, k = found[row].sizes
        assert -(-m // tile.m) * -(-n // tile.n) >= 132 and k // tile.k // tile.split >= 9
    assert not any(case.name.endswith("overlapping") for case in cases(made, hardware=False))
    square = kernel("result: symmetric\n")
    (full,) = (case for case in cases(square, hardware=True) if case.name == "row0-overlapping")
    side = -(-full.sizes[0] // square.tiles[0].n)
    assert full.sizes[0] == full.sizes[1] and 132 <= side * (side + 1) // 2 < 2 * 132
    assert not any(c.name.endswith("overlapping") for c in cases(kernel("schedule: naive\n"), hardware=True))


def test_names_are_unique_and_every_case_says_why():
    for text in (TABLE, "schedule: elementwise\n", "load: descriptor\ntargets: [sm90]\n", "schedule: naive\n"):
        found = cases(kernel(text + "epilogue: bias+scale+add\n"), hardware=True)
        assert len({case.name for case in found}) == len(found)
        assert all(case.reason for case in found)


def test_sizes_are_what_the_masking_takes():
    for masking in ("none", "k", "mn", "mnk", "auto"):
        for schedule in ("tiled", "naive"):
            made = kernel(f"masking: {masking}\nschedule: {schedule}\n")
            for case in cases(made, hardware=False):
                # Without a row, the launcher chooses one that takes the sizes.
                tiles = made.tiles if case.row is None else (made.tiles[case.row],)
                assert any(takes(made.variant, tile, case.sizes) for tile in tiles), (masking, schedule, case)


def test_bands_are_one_whole_and_one_of_one_along_the_dimension_that_is_grouped():
    assert by_name(TABLE + "swizzle: grouped\nmasking: mnk\n")["bands"].sizes == (3 * 16 + 1, 33, 2)
    assert by_name(TABLE + "swizzle: grouped_n\nmasking: mnk\n")["bands"].sizes == (17, 3 * 32 + 1, 2)
    assert by_name(TABLE + "swizzle: swizzle2d\nmasking: none\n")["bands"].sizes == (4 * 16, 2 * 32, 64)
    assert not {"bands", "curve"} & by_name(TABLE + "swizzle: linear\n").keys()
    assert by_name(TABLE + "swizzle: chiplet\nmasking: mnk\n")["bands"].sizes == (3 * 16 + 1, 33, 2)
    # A curve has a grid that it cuts in every way.
    assert by_name(TABLE + "swizzle: hilbert\nmasking: mnk\n")["curve"].sizes == (4 * 16 + 1, 6 * 32 + 1, 2)


def test_each_matrix_passes_two_to_the_31_in_turn():
    found = by_name("epilogue: bias+add\n")
    assert [case.huge for case in found.values() if case.huge] == ["a", "b", "c", "add"]


def test_descriptors_get_lines_of_16_bytes_and_no_unaligned_views():
    found = by_name("load: descriptor\ntargets: [sm90]\nmasking: mnk\n")
    assert all(case.sizes[1] % 8 == 0 for case in found.values())
    assert "unaligned" not in found
    plain = by_name("load: descriptor\nstore: pointer\ntargets: [sm90]\nmasking: mnk\n")
    assert any(case.sizes[1] % 8 for case in plain.values())


def test_operands_come_in_every_floating_type_and_scalars_in_both_forms():
    found = by_name("epilogue: scale+bias\n")
    assert {case.operand_type for case in found.values()} == {"fp32", "fp64", "bf16", "fp16", "uint8"}
    assert {case.scalar_tensor for case in found.values()} == {True, False}
    assert not any(name.startswith("operands") for name in by_name("epilogue: relu\n"))


def test_a_gpu_also_makes_the_plain_call_and_repeats():
    found = by_name(TABLE, hardware=True)
    assert found["plain"].row is None and not found["plain"].given_out
    assert [name for name, case in found.items() if case.repeat] == ["past-tile", "plain"]


def test_strided_operands_lie_every_way():
    found = {
        case.strided for case in cases(family_of("summary: s\nlayout: sss\ndtype: fp16\n").kernels[0], hardware=False)
    }
    assert found == {"row", "column", "gaps"}
