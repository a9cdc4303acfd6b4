"""What was measured: the file that a spec names by `tuned`, what of it a family's source holds, and what it chooses."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support import BASE, assert_formatted, family_of, mistakes_of, read_text

from generator import timing, tuned
from generator.cli import main
from generator.expand import expand
from generator.model import Fitted, Measured, Winner
from generator.render import TUNED, package_names, package_source
from generator.spec import read

SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
LARGE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
TILES = "tile:\n  - {m: 64, n: 64, k: 64, warps: 4}\n  - {m: 128, n: 128, k: 64, warps: 8}\n"
SPEC = f"{BASE}masking: [auto, none]\nselect: table\ntuned: found.json\n{TILES}"
AUTO, NONE = "tiled_pointer_auto_grouped", "tiled_pointer_none_grouped"
#: A small tile that is quick to begin, a large one that is quick where there is much to do; the best for whole tiles.
RATES = {
    (AUTO, 0): (2, 3e-7, 2.5e-7, 1e-6, 1e12, 2e-6),
    (AUTO, 1): (1, 8e-7, 5e-7, 2e-6, 4e12, 4e-6),
    (NONE, 1): (1, 4e-7, 2.5e-7, 1e-6, 4e12, 1e-6),
}
DEVICE, PROCESSORS = "Some GPU", 4


def measured(contract: str = "gemm_fp16_rcr_none") -> dict[str, Any]:
    """A file as `tune` writes it, less what nobody reads."""
    return {
        "format": 1,
        "device": DEVICE,
        "error": 0.034,
        "regret": 0.05,
        "winners": [
            {"contract": contract, "m": m, "n": n, "k": k, "kernel": f"{contract}__{how}", "config": row}
            for m, n, k, how, row in ((4096, 4096, 64, AUTO, SMALL), (128, 256, 512, NONE, LARGE))
        ],
        "rates": [
            {"contract": contract, "kernel": f"{contract}__{how}", "config": (SMALL, LARGE)[row], "rates": list(rates)}
            for (how, row), rates in RATES.items()
        ],
    }


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """The text of a file that was changed."""
    found = copy.deepcopy(measured())
    change(found)
    return json.dumps(found)


GOOD = json.dumps(measured())


def baked(text: str, found: str) -> tuned.Baked:
    return tuned.bake(family_of(text, beside={"found.json": found}))


# The file.


def test_a_good_file() -> None:
    contract = "gemm_fp16_rcr_none"
    assert tuned.parse(GOOD) == Measured(
        DEVICE,
        (Winner(contract, (4096, 4096, 64), AUTO, SMALL), Winner(contract, (128, 256, 512), NONE, LARGE)),
        tuple(Fitted(contract, how, (SMALL, LARGE)[row], rates) for (how, row), rates in RATES.items()),
        0.034,
        0.05,
    )


NO_RATES = "are no rates"
NO_SIZE = "a size is no whole number of at least 1"
# What is wrong -> how the file is made so, and what is answered.
BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (lambda f: f.update(format=2), "its format is 2, and 1 is read"),
    "a format that is text": (lambda f: f.update(format="1"), "its format is '1', and 1 is read"),
    "no format": (lambda f: f.pop("format"), "KeyError: 'format'"),
    "no device": (lambda f: f.pop("device"), "KeyError: 'device'"),
    "no rates at all": (lambda f: f.pop("rates"), "KeyError: 'rates'"),
    "a device with a quote": (lambda f: f.update(device='a"b'), "'a\"b' is no name"),
    "a device with a backslash": (lambda f: f.update(device="a\\"), r"'a\\\\' is no name"),
    "a device with a line end": (lambda f: f.update(device="a\nb"), r"'a\\nb' is no name"),
    "a device in another script": (lambda f: f.update(device="é"), "'é' is no name"),
    "a device that is a number": (lambda f: f.update(device=200), "200 is no name"),
    "a contract with a quote": (lambda f: f["rates"][0].update(contract='x"'), "'x\"' is no name"),
    "a winner's kernel with a quote": (lambda f: f["winners"][0].update(kernel='x__"'), "'x__\"' is no name"),
    "a kernel of rates with a quote": (lambda f: f["rates"][0].update(kernel='x__"'), "'x__\"' is no name"),
    "a column with a quote": (lambda f: f["winners"][0].update(config={'"': 1}), "'\"' is no name"),
    "a negative size": (lambda f: f["winners"][1].update(n=-1), NO_SIZE),
    "a size of 0": (lambda f: f["winners"][1].update(m=0), NO_SIZE),
    "half a size": (lambda f: f["winners"][1].update(k=1.5), NO_SIZE),
    "a size that is text": (lambda f: f["winners"][1].update(k="64"), NO_SIZE),
    "a winner without a size": (lambda f: f["winners"][1].pop("k"), "KeyError: 'k'"),
    "five rates": (lambda f: f["rates"][0]["rates"].pop(), NO_RATES),
    "seven rates": (lambda f: f["rates"][0]["rates"].append(1.0), NO_RATES),
    "a rate of 0": (lambda f: f["rates"][0].update(rates=[1, 1, 0, 1, 1, 1]), NO_RATES),
    "a negative rate": (lambda f: f["rates"][0].update(rates=[1, 1, -1, 1, 1, 1]), NO_RATES),
    "a rate that is no number": (lambda f: f["rates"][0].update(rates=[1, 1, float("nan"), 1, 1, 1]), NO_RATES),
    "a rate that is text": (lambda f: f["rates"][0].update(rates=[1, 1, "1", 1, 1, 1]), NO_RATES),
    "a row that is a list": (lambda f: f["winners"][0].update(config=[64]), "AttributeError: 'list' object has no"),
    "a row that is a number": (lambda f: f["rates"][0].update(config=0), "AttributeError: 'int' object has no"),
    "a row of texts": (lambda f: f["winners"][0].update(config={"BLOCK_M": "64"}), "{'BLOCK_M': '64'} is no row"),
    "an error that is text": (lambda f: f.update(error="small"), "could not convert string to float: 'small'"),
    "winners that are a number": (lambda f: f.update(winners=1), "TypeError: 'int' object is not iterable"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_a_bad_file(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("{", r"\{")):
        tuned.parse(changed(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "JSONDecodeError: "), ("{", "JSONDecodeError: "), ("[]", "TypeError: "), ("null", "TypeError: ")],
)
def test_a_file_that_is_something_else(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tuned.parse(text)


# The keys of a spec.

NOT_READ = "tuned: 'found.json', relative to the spec, cannot be read:"


@pytest.mark.parametrize(
    ("keys", "found", "expected"),
    [
        ("select: table", GOOD, ["4:9: select: 'table' needs the key `tuned`: a file that `tune` wrote"]),
        ("tuned: found.json", GOOD, ["4:8: tuned: belongs to 'select: table', and select is 'heuristic'"]),
        (
            "select: fixed\ntuned: found.json",
            GOOD,
            ["5:8: tuned: belongs to 'select: table', and select is 'fixed'"],
        ),
        (
            "select: table\ntuned: other.json",
            GOOD,
            ["5:8: tuned: 'other.json', relative to the spec, cannot be read: No such file or directory"],
        ),
        ("select: table\ntuned: .", GOOD, ["5:8: tuned: '.', relative to the spec, cannot be read: Is a directory"]),
        (
            "select: table\ntuned: [found.json, other.json]",
            GOOD,
            ["5:21: tuned: 'other.json', relative to the spec, cannot be read: No such file or directory"],
        ),
        ("select: table\ntuned: found.json", "[]", [f"5:8: {NOT_READ} TypeError: list indices must be integers"]),
        (
            "select: table\ntuned: found.json",
            changed(lambda f: f.update(format=7)),
            [f"5:8: {NOT_READ} its format is 7, and 1 is read"],
        ),
        ("select: table\ntuned: [found.json, found.json]", GOOD, ["5:21: tuned: 'found.json' is listed twice"]),
        (
            "select: table\ntuned: []",
            GOOD,
            ["5:8: tuned: the list is empty; give at least one value or leave the key out"],
        ),
        ("select: table\ntuned: 5", GOOD, ["5:8: tuned: expected text, found 5 (quote it to make it text)"]),
        ("select: table\ntuned:", GOOD, ["5:7: tuned: expected text, found None"]),
    ],
)
def test_mistakes_of_the_keys(keys: str, found: str, expected: list[str]) -> None:
    lines = mistakes_of(f"{BASE}{keys}\n", beside={"found.json": found})
    assert len(lines) == len(expected)
    assert all(line.startswith(f"family.yaml:{start}") for line, start in zip(lines, expected))


def test_two_files() -> None:
    text = SPEC.replace("found.json", "[found.json, other.json]")
    other = changed(lambda f: f.update(device="Another GPU"))
    spec = read_text(text, beside={"found.json": GOOD, "other.json": other})
    assert [found.device for found in spec.tuned] == [DEVICE, "Another GPU"]
    held = tuned.bake(expand(spec))
    assert [device for device, _, _ in held.won] == [device for device, _, _ in held.rates] == [DEVICE, "Another GPU"]


def test_the_digest_of_the_spec_is_of_the_measurements_too() -> None:
    texts = [GOOD, GOOD + "\n", changed(lambda f: f.update(regret=0.06))]
    digests = [read_text(SPEC, beside={"found.json": text}).digest for text in texts]
    assert len(set(digests)) == 3
    assert read_text(SPEC, beside={"found.json": GOOD}).digest == digests[0]
    assert read_text(f"{SPEC}# again\n", beside={"found.json": GOOD}).digest != digests[0]


# What of it a family holds.


def test_what_a_family_holds() -> None:
    contract = "gemm_fp16_rcr_none"
    assert baked(SPEC, GOOD) == tuned.Baked(
        "3.4%",
        (),
        ((DEVICE, contract, (((128, 256, 512), NONE, 1), ((4096, 4096, 64), AUTO, 0))),),
        (
            (
                DEVICE,
                contract,
                (
                    (
                        AUTO,
                        ((0, "(2, 3e-07, 2.5e-07, 1e-06, 1e12, 2e-06)"), (1, "(1, 8e-07, 5e-07, 2e-06, 4e12, 4e-06)")),
                    ),
                    (NONE, ((1, "(1, 4e-07, 2.5e-07, 1e-06, 4e12, 1e-06)"),)),
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "winners", "rates"),
    [
        (SPEC, [(128, 256, 512), (4096, 4096, 64)], {AUTO: [0, 1], NONE: [1]}),
        # A family without one of the kernels, and one without one of the rows.
        (SPEC.replace("[auto, none]", "auto"), [(4096, 4096, 64)], {AUTO: [0, 1]}),
        (SPEC.replace("  - {m: 64, n: 64, k: 64, warps: 4}\n", ""), [(128, 256, 512)], {AUTO: [0], NONE: [0]}),
        # The same tile with other warps is another row.
        (SPEC.replace("warps: 4", "warps: 2"), [(128, 256, 512)], {AUTO: [1], NONE: [1]}),
    ],
)
def test_what_names_no_kernel_or_row_of_the_family_is_left_out(
    text: str, winners: list[tuple[int, int, int]], rates: dict[str, list[int]]
) -> None:
    held = baked(text, GOOD)
    ((_, _, won),) = held.won
    ((_, _, fitted),) = held.rates
    assert [sizes for sizes, _, _ in won] == winners
    assert {how: [row for row, _ in rows] for how, rows in fitted} == rates


def test_measurements_of_another_layout_say_nothing() -> None:
    held = baked(SPEC, json.dumps(measured("gemm_fp16_rrr_none")))
    assert (held.like, held.won, held.rates) == ((), (), ())


@pytest.mark.parametrize(
    ("axes", "like"),
    [
        ("dtype: [fp16, bf16]", {"gemm_bf16_rcr_none": "gemm_fp16_rcr_none"}),
        (
            "dtype: fp16\nepilogue: [none, bias, bias+relu]",
            {"gemm_fp16_rcr_bias": "gemm_fp16_rcr_none", "gemm_fp16_rcr_bias_relu": "gemm_fp16_rcr_none"},
        ),
        # A family without the contract measured keeps what stands for its own first.
        ("dtype: bf16\nepilogue: [bias, bias+relu]", {"gemm_bf16_rcr_bias_relu": "gemm_bf16_rcr_bias"}),
        # Another width, another result or another product is another matter.
        ("dtype: [fp16, tf32]", {}),
        ("dtype: [fp16, {a: fp16, out: fp32}]", {}),
        ("dtype: fp16\nbatch: [none, strided]", {}),
    ],
)
def test_measurements_stand_for_other_contracts(axes: str, like: dict[str, str]) -> None:
    text = f"summary: x\nlayout: rcr\n{axes}\nmasking: [auto, none]\nselect: table\ntuned: found.json\n{TILES}"
    held = baked(text, GOOD)
    assert dict(held.like) == like
    (won,) = {contract for _, contract, _ in held.won}
    assert set(like.values()) <= {won}


def test_what_was_measured_of_a_contract_itself_comes_first() -> None:
    both = [measured("gemm_fp16_rcr_none"), measured("gemm_fp16_rcr_bias")]
    found = both[0] | {key: both[0][key] + both[1][key] for key in ("winners", "rates")}
    held = baked(f"{SPEC}epilogue: [none, bias, relu]\n", json.dumps(found))
    assert held.like == (("gemm_fp16_rcr_relu", "gemm_fp16_rcr_none"),)
    assert [contract for _, contract, _ in held.won] == ["gemm_fp16_rcr_bias", "gemm_fp16_rcr_none"]


def test_what_was_measured_of_the_same_type_comes_before_another_of_its_width() -> None:
    both = [measured("gemm_fp16_rcr_none"), measured("gemm_bf16_rcr_none")]
    found = both[0] | {key: both[0][key] + both[1][key] for key in ("winners", "rates")}
    held = baked(SPEC.replace("dtype: fp16", "dtype: [fp16, bf16]\nepilogue: [none, bias]"), json.dumps(found))
    assert dict(held.like) == {f"gemm_{dtype}_rcr_bias": f"gemm_{dtype}_rcr_none" for dtype in ("fp16", "bf16")}


# The source.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SPEC, GOOD),
        (f"{SPEC}epilogue: [none, bias+gelu_tanh]\n", GOOD),
        (SPEC.replace("fp16", "bf16"), GOOD),
        (SPEC, changed(lambda f: f["winners"].clear())),
        (SPEC, json.dumps(measured("gemm_fp16_rrr_none"))),
    ],
    ids=["a family", "epilogues", "another type", "rates alone", "nothing"],
)
def test_the_source_parses_and_is_formatted(tmp_path: Path, text: str, found: str) -> None:
    family = family_of(text, beside={"found.json": found})
    assert TUNED in package_names(family.spec)
    source = package_source(family, TUNED)
    ast.parse(source)
    (tmp_path / TUNED).write_text(source)
    assert_formatted(tmp_path)


def test_a_family_that_was_not_measured_has_no_such_source() -> None:
    assert TUNED not in package_names(read_text(BASE))


# The choice.


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """Renders a spec named `measured` with the file beside it, and imports the family on a device of that file."""

    def render(text: str, found: str) -> ModuleType:
        (tmp_path / "measured.yaml").write_text(text)
        (tmp_path / "found.json").write_text(found)
        assert main([str(tmp_path / "measured.yaml"), "--out", str(tmp_path)]) == 0
        return importlib.import_module("measured")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: DEVICE)
    properties = SimpleNamespace(multi_processor_count=PROCESSORS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    yield render
    for name in [name for name in sys.modules if name.split(".")[0] == "measured"]:
        del sys.modules[name]


@pytest.fixture
def family(rendered: Callable[[str, str], ModuleType]) -> ModuleType:
    return rendered(f"{SPEC}epilogue: [none, bias]\n", GOOD)


def chosen(
    package: ModuleType, sizes: tuple[int, int, int], only: str = "", contract: str = "gemm_fp16_rcr_none"
) -> tuple[str, int] | None:
    """The kernel, less its contract, and the row that are chosen among the kernels of a contract."""
    kernels = [package._kernel(name) for name in package._KERNELS[contract] if only in name]
    choose = importlib.import_module("measured._tuned").choose
    found = choose(contract, kernels, sizes, 2, torch.device("cuda", 0))
    if found is None:
        return None
    kernel, row = found
    return kernel.__name__.rpartition("__")[2], kernel.CONFIGS.index(row)


def modelled(sizes: tuple[int, int, int], only: str = "") -> tuple[str, int]:
    """The kernel and row that the model holds for the best, of those that take the sizes."""
    cost = {
        (how, row): timing.seconds((SMALL, LARGE)[row], rates, sizes, PROCESSORS, 2)
        for (how, row), rates in RATES.items()
        if only in how and (how == AUTO or not (sizes[0] % 128 or sizes[1] % 128 or sizes[2] % 64))
    }
    return min(cost, key=cost.__getitem__)


@pytest.mark.parametrize("contract", ["gemm_fp16_rcr_none", "gemm_fp16_rcr_bias"])
def test_a_size_that_was_measured_runs_what_won(family: ModuleType, contract: str) -> None:
    assert chosen(family, (4096, 4096, 64), contract=contract) == (AUTO, 0) != modelled((4096, 4096, 64))
    assert chosen(family, (128, 256, 512), contract=contract) == (NONE, 1)


def test_another_size_runs_the_best_by_the_model(family: ModuleType) -> None:
    sizes = [(m, n, k) for m in (1, 64, 100, 1024, 4000) for n in (64, 1024, 4096) for k in (64, 4096)]
    found = {size: chosen(family, size) for size in sizes}
    assert found == {size: modelled(size) for size in sizes}
    assert set(found.values()) == set(RATES)


def test_a_kernel_that_refuses_the_operands_is_not_chosen(family: ModuleType) -> None:
    assert chosen(family, (128, 256, 512), only="auto") == modelled((128, 256, 512), only="auto")
    assert chosen(family, (1024, 1024, 1024)) == (NONE, 1)
    assert chosen(family, (1024, 1024, 1024), only="auto") == (AUTO, 1)


def test_on_another_device_nothing_is_chosen(family: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Another GPU")
    assert chosen(family, (4096, 4096, 64)) is None and chosen(family, (1024, 1024, 1024)) is None


def test_a_row_is_the_one_measured_where_tables_differ(rendered: Callable[[str, str], ModuleType]) -> None:
    """With six stages a result has room in the place of the operands alone, which it has where there is an epilogue."""
    row = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
    tiles = "".join(f"  - {{m: 128, n: 128, k: 32, warps: 4, stages: {stages}}}\n" for stages in (6, 3))
    contract, how = "gemm_tf32_rcr_none", "tiled_descriptor_auto_grouped"
    found = measured(contract) | {"winners": [], "rates": []}
    found["winners"] = [{"contract": contract, "m": 8, "n": 8, "k": 8, "kernel": f"{contract}__{how}", "config": row}]
    found["rates"] = [{key: found["winners"][0][key] for key in ("contract", "kernel", "config")} | {"rates": [1] * 6}]
    text = SPEC.partition("masking")[0].replace("fp16", "tf32") + "load: descriptor\ntargets: [sm90]\n"
    text += f"epilogue: [none, bias]\nselect: table\ntuned: found.json\ntile:\n{tiles}"
    package = rendered(text, json.dumps(found))
    choose = importlib.import_module("measured._tuned").choose
    tables = []
    for name, (own,) in package._KERNELS.items():
        kernel = package._kernel(own)
        tables.append(kernel.CONFIGS)
        for sizes in ((8, 8, 8), (16, 16, 16)):
            assert choose(name, [kernel], sizes, 4, torch.device("cuda", 0)) == (kernel, row)
    assert [len(table) for table in tables] == [1, 2]


def test_the_model_in_the_folder_is_the_generators_own(family: ModuleType) -> None:
    own = importlib.import_module("measured._timing")
    sizes, rates = (1000, 3000, 500), RATES[AUTO, 0]
    assert own.seconds(SMALL, rates, sizes, PROCESSORS, 2) == timing.seconds(SMALL, rates, sizes, PROCESSORS, 2)


def test_a_family_is_read_with_what_was_measured_beside_its_spec(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "found.json").write_text(GOOD)
    (tmp_path / "family.yaml").write_text(SPEC.replace("found.json", "far/found.json"))
    assert read(tmp_path / "family.yaml").tuned == (tuned.parse(GOOD),)
