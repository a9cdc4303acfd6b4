"""What runs for a call on a GPU that is only claimed: with `invariant: rows` whatever M is, and which kernels never."""

import importlib
import json

import pytest
import torch

from generator.commands.command_line import main
from generator.cost import analytic
from generator.emit import manifest_reader
from generator.emit.loading import library_module, load_family
from generator.emit.never_chosen import never_chosen
from generator.plan.devices import DEVICES
from generator.plan.families import families
from generator.runtime import prepare
from generator.verify.ahead_of_time import standing_in_for
from tests.helpers import shipped
from tests.helpers.support import BASE, SPECS, called, family_of, forget, spec
from tests.helpers.tuned_file import AUTO, LARGE, RATES, SMALL, TILES, measured, one_seconds

H200 = DEVICES["nvidia_h200"]
CUDA = torch.device("cuda", 0)
#: Every power of two up to 8192 with its neighbours, and some odd sizes.
ROWS = sorted({*(2**p + d for p in range(14) for d in (-1, 0, 1)), 3, 100, 777, 5000} - {0, 8193})

SPEC = spec(
    "layout: [rcr, rrr, crr, rrc]; dtype: [fp16, fp8e4m3]; epilogue: [none, bias+gelu_tanh, add]; "
    "masking: [auto, mn]; schedule: [tiled, persistent, split_k, naive]; load: [pointer, descriptor]; "
    "targets: [sm90]; invariant: rows"
)


@pytest.fixture
def render(tmp_path):
    """Renders a spec as the family `alike` for a claimed H200; `found` is the text of found.json beside it."""

    def family(text, found=""):
        (tmp_path / "alike.yaml").write_text(text)
        (tmp_path / "found.json").write_text(found)
        assert main([str(tmp_path / "alike.yaml"), "--out", str(tmp_path)]) == 0
        return load_family(tmp_path / "alike")

    with standing_in_for(H200):
        yield family
    forget("alike")


def matrix(rows, columns, dtype, *, pitch=0, offset=0):
    """A row-major matrix without memory."""
    memory = torch.empty(0, dtype=dtype, device=CUDA)
    return memory.as_strided((rows, columns), (pitch or columns, 1), offset)


def ran(family, contract, m, n, k, **lies):
    """The kernel and the configuration of a call, whose A lies as `lies` says; M x N operands are contiguous."""
    dtype = torch.float8_e4m3fn if "fp8" in contract else torch.float16
    layout = contract.split("_")[2]
    a = matrix(m, k, dtype, **lies) if layout[0] == "r" else matrix(k, m, dtype).mT
    b = matrix(k, n, dtype) if layout[1] == "r" else matrix(n, k, dtype).mT
    operands = {}
    if "add" in contract:
        operands["add"] = matrix(m, n, torch.float16) if layout[2] == "r" else matrix(n, m, torch.float16).mT
    if "bias" in contract:
        operands["bias"] = torch.empty(n, dtype=torch.float16, device=CUDA)
    return getattr(family, contract).which(a, b, **operands)


def test_the_kernel_and_its_configuration_are_the_same_for_every_m(render):
    family = render(SPEC)
    with prepare.memoryless():
        kernels = set()
        for contract in family._KERNELS:
            # Aligned sizes; K whose rows a descriptor cannot address; few columns; and a K that fits one load.
            for n, k in ((4096, 4096), (1000, 1004), (1, 512), (256, 64)):
                found = {str(ran(family, contract, m, n, k)) for m in ROWS}
                assert len(found) == 1, (contract, n, k, found)
                kernels |= found
        # The sizes do not all have the same answer.
        assert len(kernels) > 2 * len(family._KERNELS)


@pytest.mark.parametrize("lies", [{"pitch": 516}, {"pitch": 520}, {"offset": 4}, {"pitch": 576}, {"pitch": 4096}])
def test_rows_of_one_buffer_run_the_same_kernel(render, lies):
    """Also one row alone, for which a descriptor would not look at the pitch."""
    family = render(BASE + "load: [pointer, descriptor]\ntargets: [sm90]\ninvariant: rows\n")
    with prepare.memoryless():
        found = {str(ran(family, "gemm_fp16_rcr_none", m, 1024, 512, **lies)) for m in ROWS}
    (kernel,) = found
    addressable = lies in ({"pitch": 520}, {"pitch": 576}, {"pitch": 4096})
    assert ("descriptor" in kernel) == addressable


@pytest.mark.parametrize("select", ["heuristic", "fastest"])
def test_a_batch_of_attention_has_one_choice_for_any_number_of_matrices(render, select):
    """Queries by keys, and weights by values, whose number of rows and of columns is that of tokens."""
    words = "" if select == "fastest" else "load: [pointer, descriptor]\n"
    text = f"{BASE.replace('rcr', '[rcr, rrr]')}batch: strided\n{words}targets: [sm90]\n"
    family = render(f"{text}select: {select}\ninvariant: rows\n")
    with prepare.memoryless():
        for tokens, width in ((33, 128), (33, 64), (1, 128), (48, 32), (2048, 128), (33, 12)):
            found = {"scores": set(), "values": set(), "last": set()}
            for count in (1, 2, 32, 224, 2048):
                query, key = (torch.empty(count, tokens, width, dtype=torch.float16, device=CUDA) for _ in "ab")
                scores = torch.empty(count, tokens, tokens, dtype=torch.float16, device=CUDA)
                found["scores"].add(str(family.bmm_fp16_rcr_none.which(query, key.mT)))
                found["values"].add(str(family.bmm_fp16_rrr_none.which(scores, key)))
                # One token of each sequence, of keys that are the beginning of a longer buffer.
                found["last"].add(str(family.bmm_fp16_rcr_none.which(_strided(query, (count, 1, width)), key.mT)))
            assert all(len(each) == 1 for each in found.values()), (tokens, width, found)
            # One matrix that is repeated, and matrices at odd distances, run what takes them.
            repeated = key.as_strided((count, width, tokens), (0, 1, width))
            repeated = family.bmm_fp16_rcr_none.which(query, repeated)
            assert "_pointer_" in repeated[0]
            odd = torch.empty(3 * (tokens * width + 1), dtype=torch.float16, device=CUDA)
            odd = odd.as_strided((3, tokens, width), (tokens * width + 1, width, 1))
            assert "_pointer_" in family.bmm_fp16_rcr_none.which(_strided(query, (3, tokens, width)), odd.mT)[0]


def _strided(x, shape):
    """A part of `x` that begins with it."""
    return x.as_strided(shape, x.stride())


@pytest.mark.parametrize("select", ["heuristic", "fastest"])
def test_groups_have_the_same_configuration_for_any_rows(render, select):
    """However many rows there are in all, in how many groups, and whether `rows` names them or not."""
    text = BASE.replace("rcr", "[rcr, rrr]") + "batch: grouped\nepilogue: [none, swiglu]\ntargets: [sm90]\n"
    implementation = (
        "" if select == "fastest" else "load: [pointer, descriptor]\nstore: pointer\nschedule: [tiled, persistent]\n"
    )
    family = render(f"{text}{implementation}select: {select}\ninvariant: rows\n")
    with prepare.memoryless():
        for contract in family._KERNELS:
            found = {named: set() for named in (False, True)}
            for groups in (1, 8, 128):
                shape = (groups, 512, 1024) if "_rrr_" in contract else (groups, 1024, 512)
                b = torch.empty(shape, dtype=torch.float16, device=CUDA)
                offsets = torch.empty(groups, dtype=torch.int32, device=CUDA)
                for total in ROWS:
                    a = matrix(total, 512, torch.float16)
                    given = (a, b if "_rrr_" in contract else b.mT, offsets)
                    found[False].add(str(getattr(family, contract).which(*given)))
                    rows = torch.empty(2 * total, dtype=torch.int32, device=CUDA)
                    found[True].add(str(getattr(family, contract).which(*given, rows=rows)))
            assert [len(each) for each in found.values()] == [1, 1], (contract, found)
            # Only pointers can follow `rows`, so the two are different kernels where descriptors win.
            assert all("_pointer_" in each for each in found[True])


def test_measurements_decide_by_their_rates_over_all_m(render, monkeypatch):
    """A winner of one M does not decide for that M."""
    contract = "gemm_fp16_rcr_none"
    found = measured(contract) | {"device": H200.name}
    found["winners"] = [{**winner, "kernel": f"{contract}__{AUTO}", "m": 1} for winner in found["winners"]]
    found["rates"] = [entry for entry in found["rates"] if AUTO in entry["kernel"]]
    text = f"{BASE}targets: [sm90]\nselect: table\ntuned: found.json\n{TILES}invariant: rows\n"
    family = render(text, json.dumps(found))
    chosen, crossings = [], set()
    tuned = importlib.import_module("alike._tuned")
    choose = tuned.choose
    monkeypatch.setattr(tuned, "choose", lambda *given: crossings.add(given[5]) or choose(*given))
    with prepare.memoryless():
        for n, k in ((4096, 64), (256, 512), (64, 64), (8192, 8192)):
            times = [
                [one_seconds(row, RATES[AUTO, index], (m, n, k), H200.multiprocessors, 2) for m in analytic.TYPICAL_M]
                for index, row in enumerate((SMALL, LARGE))
            ]
            mean = [sum(x / min(pair) for x, pair in zip(own, zip(*times))) for own in times]
            # Nor does more of a pitch count than whole 16 bytes, though measurements are of whole lines of the L2.
            lies = ({}, {"pitch": k + 8}, {"pitch": k + 24}, {"pitch": -(-k // 64) * 64}, {"pitch": 8192})
            answers = [ran(family, contract, m, n, k, **each) for each in lies for m in ROWS[:: 1 + bool(each)]]
            assert answers == [answers[0]] * len(answers)
            assert answers[0][1] == (SMALL, LARGE)[mean.index(min(mean))]
            chosen.append(answers[0][1]["BLOCK_M"])
    assert set(chosen) == {64, 128} and crossings == {(False, False)}


def test_nothing_is_copied_and_no_vector_is_read_in_another_layout(render):
    family = render(BASE.replace("rcr", "[rcr, ccr, rrr]").replace("fp16", "tf32") + "invariant: rows\n")
    with prepare.memoryless():
        for contract in family._KERNELS:
            function = getattr(family, contract)
            layout = contract.split("_")[2]
            for m in (1, 3, 4096, 4097):
                a = matrix(m, 8192, torch.float32) if layout[0] == "r" else matrix(8192, m, torch.float32).mT
                b = matrix(8192, 4100, torch.float32) if layout[1] == "r" else matrix(4100, 8192, torch.float32).mT
                assert function.step({"a": a, "b": b, "out": None})[0] is None


POINTER = "gemm_fp16_rcr_none__tiled_pointer_auto_grouped"


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        ("", []),
        ("masking: [none, auto]", ["tiled_pointer_none_grouped"]),
        # The one that takes fewer sizes is tried first.
        ("masking: [none, k]", []),
        ("swizzle: [linear, grouped, hilbert]", ["tiled_pointer_auto_linear", "tiled_pointer_auto_hilbert"]),
        # A descriptor does not address every operand.
        ("load: [pointer, descriptor]\ntargets: [sm90]", []),
        ("load: descriptor\nstore: [as_load, pointer]\ntargets: [sm90]", []),
        (
            "load: [pointer, descriptor]\nschedule: [tiled, persistent]\ntargets: [sm90]",
            ["persistent_pointer_auto_grouped", "persistent_descriptor_auto_grouped"],
        ),
        ("schedule: [tiled, split_k, naive]", ["splitk_pointer_auto_grouped", "naive_pointer_auto_grouped"]),
        # One load holds only so much of K.
        ("schedule: [naive, elementwise]\nswizzle: linear", []),
        # Where results must repeat, a kernel of atomic adds is left to others.
        ("dtype: {a: fp16, out: fp32}\nschedule: [split_k_atomic, stream_k]", ["splitkatomic_pointer_auto_grouped"]),
        ("schedule: [tiled, persistent]\nselect: fixed", ["persistent_pointer_auto_grouped"]),
        ("masking: [none, auto]\npackage: plain", ["tiled_pointer_none_grouped"]),
        # There are no functions.
        ("masking: [none, auto]\npackage: files", []),
        # The model gives a kernel with the same configurations the same cost, and takes the first.
        ("masking: [none, auto]\nselect: fastest\nschedule: tiled\nload: pointer\ntargets: [sm80]", None),
        ("schedule: [tiled, split_k]\nselect: fastest\nload: pointer\ntargets: [sm80]", []),
    ],
)
def test_what_is_never_chosen(text, unused):
    own = {line.partition(":")[0] for line in text.splitlines()}
    lines = [line for line in BASE.splitlines() if line.partition(":")[0] not in own]
    family = family_of("\n".join([*lines, text, ""]))
    found = [each.name.partition("__")[2] for each in never_chosen(family)]
    if unused is None:
        unused = [kernel.how for kernel in family.kernels if "_none_" in kernel.how]
        assert unused
    assert found == unused


def test_a_kernel_is_compared_on_each_of_its_targets():
    """One that another covers on some of its targets alone may be chosen on the others."""
    text = "summary: S.\nlayout: rcr\ndtype: {a: mxfp8e4m3}\nproduct: [direct, scaled]\ntargets: [%s]\n"
    assert never_chosen(family_of(text % "sm90, sm100")) == ()
    (found,) = never_chosen(family_of(text % "sm100"))
    assert found.name.endswith("__tiled_pointer_auto_grouped") and "_productscaled is tried before it" in found.reason


def test_the_list_the_manifest_and_json_agree(tmp_path, capsys):
    spec = tmp_path / "two.yaml"
    spec.write_text(BASE + "masking: [none, auto]\n")
    name = "gemm_fp16_rcr_none__tiled_pointer_none_grouped"
    reason = f"{POINTER} is tried before it and accepts every call that it accepts; `select: heuristic` does not"
    said = called(capsys, spec, "--list").out
    assert f"  never chosen by a function: 1\n  - {name}: {reason} compare kernels\n" in said
    (listed,) = json.loads(called(capsys, spec, "--list", "--json").out)
    assert main([str(spec), "--out", str(tmp_path)]) == 0
    manifest = json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert manifest["never_chosen"] == listed["never_chosen"] == [{"name": name, "reason": f"{reason} compare kernels"}]
    manifest_reader.read(tmp_path / "two")
    # What is not selected is not listed; the others stay what they are in the whole family.
    assert "never chosen" not in called(capsys, spec, "--list", "--only", "*_auto_*").out
    assert f"  - {name}: " in called(capsys, spec, "--list", "--only", "*_none_*").out
    spec.write_text(BASE)
    assert main([str(spec), "--out", str(tmp_path)]) == 0
    assert "never_chosen" not in json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert json.loads(called(capsys, spec, "--list", "--json").out)[0]["never_chosen"] == []


#: Sizes with a reason: a vector, few rows, one past a tile, multiples of every tile, an odd pitch, a long K.
SIZES = [(1, 4096, 4096), (16, 4096, 4096), (129, 257, 65), (4096, 4096, 4096), (1000, 1001, 1002), (64, 64, 65536)]


def _run(folder, device):
    """The kernels that calls of a family's functions run on a device, at all alignments of A and B."""
    found = set()
    with standing_in_for(DEVICES[device]):
        family = load_family(folder.resolve())
        ahead = library_module(family, "prepare")
        for name in family._KERNELS:
            for m, n, k in SIZES:
                options = {"M": m, "B": 1, "device": torch.device("cuda", 0), "unaligned": ("a", "b")}
                try:
                    launches = ahead.launches(getattr(family, name), n, k, **options)
                except ValueError:
                    continue
                found |= {launch.name for launch in launches}
    return found


@pytest.mark.parametrize("family", ["fp16_rcr", "bf16_rrr", "fp8e4m3_rcr", "gemm16", "split_k", "ladder"])
def test_functions_run_none_of_them(family):
    (found,) = families([path for path in SPECS if path.stem == family])
    unused = {each.name for each in never_chosen(found)}
    ran = {name for device in ("nvidia_h200", "nvidia_a100_sxm4_80gb") for name in _run(shipped.folder(family), device)}
    # What copies an operand is no kernel of the family.
    assert ran & {kernel.name for kernel in found.kernels} and not ran & unused
