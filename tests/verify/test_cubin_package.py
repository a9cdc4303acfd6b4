"""`package --format cubin`: the files, what is refused and why, and the statuses of calls that cannot be launched."""

import ctypes
import math
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from generator.emit.cubin import sources
from generator.emit.cubin.example import example_of
from generator.emit.cubin.sources import STATUSES, files
from generator.language.errors import CallError
from generator.plan.devices import DEVICES
from generator.verify.ahead_of_time import ProductSizes
from generator.verify.cubin_package import compiled_package
from tests.helpers.emit.cubins import STRICT, Built, compiled_with, fake_driver, of_kind
from tests.helpers.support import GENERATED, ROOT, contents, python
from tests.helpers.verify.rendered import rendered

TILE = "tile: [{m: 32, n: 32, k: 32, warps: 4, stages: 2}]\n"
SPECS = {
    "plain": f"layout: rcr\ndtype: fp16\nepilogue: bias+gelu_tanh\nload: pointer\n{TILE}",
    "batch": f"layout: rcr\ndtype: fp16\nbatch: strided\nepilogue: scale+add\nload: descriptor\n{TILE}",
    "large": f"layout: rcr\ndtype: fp16\nload: pointer\n{TILE.replace('32', '128').replace('stages: 2', 'stages: 3')}",
    "split": f"layout: rcr\ndtype: bf16\nschedule: split_k\nload: pointer\n{TILE.replace('}]', ', split: 2}]')}",
}
N, K, ROWS = 64, 32, (1, 32, 33, 34)


def package_of(name, folder):
    """The package `packed` of a spec of SPECS, rendered into a folder."""
    family = rendered(folder, f"packed_{name}", f"summary: For C.\ntargets: [sm90]\n{SPECS[name]}")
    shapes, count = [ProductSizes(N, K, ROWS)], 1 + ("batch:" in SPECS[name])
    return compiled_package(family, "packed", DEVICES["nvidia_h200"], shapes, only="*", count=count)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    driver = fake_driver(tmp_path_factory.mktemp("fake"))
    folders = {name: tmp_path_factory.mktemp(name) for name in SPECS}
    return {name: Built(folder / "made", package_of(name, folder), driver) for name, folder in folders.items()}


#: The fields of a call of each contract, with aligned addresses.
FIELDS = {
    "plain": {"a": 1 << 40, "b": 1 << 41, "bias": 1 << 42, "out": 1 << 43},
    "batch": {"a": 1 << 40, "b": 1 << 41, "scale": 2.0, "add": 1 << 42, "out": 1 << 43, "batch": 2}
    | {"a_batch": 32 * K, "b_batch": N * K, "add_batch": 32 * N, "out_batch": 32 * N},
    "split": {"a": 1 << 40, "b": 1 << 41, "out": 1 << 43, "workspace": 1 << 44, "workspace_size": 1 << 20},
}


C, CPP = ("gcc", "-std=c11", *STRICT), ("g++", "-x", "c++", "-std=c++17", *STRICT)


@pytest.mark.parametrize("name", SPECS)
def test_the_sources_compile_without_a_warning(builds, name, tmp_path):
    # The header needs nothing in front of it.
    (tmp_path / "alone.c").write_text('#include "packed.h"\n')
    folder = builds[name].folder
    for language in (C, CPP):
        for source in (folder / "packed.c", folder / "example.c", tmp_path / "alone.c"):
            compiled_with(*language, "-O2", f"-I{folder}", "-c", source, "-o", tmp_path / "made.o")


def test_the_call_of_the_documentation_compiles(cli, tmp_path):
    page = (ROOT / "docs" / "without_python.md").read_text()
    (shown,) = re.findall(r"```c\n(.*?)```", page, re.S)
    (command,) = re.findall(r"^\$ python -m generator (package .*)$", page, re.M)
    (tmp_path / "generated").symlink_to(GENERATED)
    assert cli(*shlex.split(command)).status == 0
    (tmp_path / "shown.c").write_text(shown)
    for language in (C, (*CPP, "-Wno-missing-field-initializers")):
        compiled_with(*language, f"-I{tmp_path / 'linear'}", "-c", tmp_path / "shown.c", "-o", tmp_path / "shown.o")


def test_the_example_says_whether_known_results_are_right(builds, tmp_path):
    """On the GPU it runs what was compiled. Here a driver in C computes the product that each launch asks for."""
    built, program = builds["plain"], tmp_path / "example"
    compiled_with("gcc", "-O2", built.folder / "example.c", built.folder / "packed.c", "-o", program)
    environment = os.environ | {
        "FAKE_CUDA_SIZES": str(built.folder / "sizes.txt"),
        "LD_LIBRARY_PATH": str(built.driver),
    }
    for computes, status, word in (("1", 0, "right"), ("0", 1, "WRONG")):
        done = subprocess.run(
            program, capture_output=True, text=True, env=environment | {"FAKE_CUDA_COMPUTE": computes}
        )
        assert (done.returncode, done.stderr) == (status, "")
        # The first and the last size of the table, with operands at aligned and at odd addresses.
        assert [word in line for line in done.stdout.splitlines()] == [True] * 4
    # A folder without a driver: this machine may have one.
    environment = {"LD_LIBRARY_PATH": str(_no_driver(tmp_path))}
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (2, "the CUDA driver lacks cuInit\n")


def test_known_results_are_those_of_products_in_float64(builds):
    example, numbers = example_of(builds["batch"].package.contracts[0], 2), torch.arange(-8, 9).double() / 8

    def made(place, *shape):
        return numbers[(5 * torch.arange(math.prod(shape)) + place) % 17].reshape(shape)

    for (m, n, k, count), checks in example.cases:
        product = made(0, count, m, k) @ made(1, count, n, k).mT
        bits = (product * 0.5 + made(3, count, m, n)).half().flatten().view(torch.int16)
        assert len(checks) == 8
        assert all(least <= int(bits[at]) & 0xFFFF <= largest for at, least, largest in checks)


def _no_driver(folder):
    """A folder with a library of the driver's name that has no functions."""
    made = folder / "empty"
    made.mkdir(exist_ok=True)
    compiled_with("gcc", "-shared", "-x", "c", "/dev/null", "-o", made / "libcuda.so.1")
    return made


def test_the_library_has_no_state_and_no_name_without_its_own(builds, tmp_path):
    compiled_with(*C, "-fno-pic", "-c", builds["plain"].folder / "packed.c", "-o", tmp_path / "made.o")
    listed = subprocess.run(["nm", "--defined-only", tmp_path / "made.o"], capture_output=True, text=True, check=True)
    symbols = [line.split()[1:] for line in listed.stdout.splitlines()]
    named = [name for kind, name in symbols if kind.isupper()]
    assert named and all(name.startswith("packed_") for name in named)
    assert {kind.lower() for kind, _ in symbols} == {"t", "r"}


def status(name):
    """A status and its words, as a call answers."""
    return [[*STATUSES].index(name), STATUSES[name]]


def called(builds, package, *changes, **later):
    """Answers and lines of calls that are right but for the changes of each."""
    name, own = builds[package].package.contracts[0].name, {"m": 32, "n": N, "k": K, **FIELDS[package]}
    return builds[package].called(*[(name, 0, own | fields) for fields in changes], **later)


#: Package -> the status of a call with other fields.
WRONG = {
    "plain": [
        *[("SIZES", fields) for fields in ({"m": 2}, {"n": 32}, {"k": 64}, {"m": -1}, {"m": 35})],
        *[("NO_ADDRESS", {name: 0}) for name in ("a", "out")],
        *[("LEADING_DIMENSION", fields) for fields in ({"a_ld": K - 1}, {"b_ld": -K}, {"out_ld": N - 16})],
        *[("SPAN", fields) for fields in ({"a_ld": 2**31}, {"out_ld": 2**27})],
    ],
    "batch": [
        ("SIZES", {"batch": 3}),
        *[("OVERLAP", {"out_batch": stride}) for stride in (0, 31 * N)],
        # A descriptor cannot repeat a matrix.
        *[("ALIGNMENT", fields) for fields in ({"a": (1 << 40) + 2}, {"b_ld": K + 4}, {"a_batch": 0})],
    ],
    "split": [
        *[("WORKSPACE", {"workspace": address}) for address in (0, (1 << 44) + 8, (1 << 44) + 128)],
        ("WORKSPACE", {"workspace_size": 2 * 32 * N * 4 - 1}),
    ],
}


@pytest.mark.parametrize("package", WRONG)
def test_a_wrong_call_is_not_launched(builds, package):
    answers, (_, right, *lines, _) = called(builds, package, {}, *(fields for _, fields in WRONG[package]))
    assert answers == [[0, None], *(status(name) for name, _ in WRONG[package])]
    assert of_kind(right, "cuLaunchKernel") and not any(lines)


def test_padded_and_repeated_operands_are_launched(builds):
    others = [{"a_ld": K + 1}, {"a": (1 << 40) + 2}, {"bias": (1 << 42) + 2}, {"out_ld": 2 * N}]
    answers, lines = called(builds, "plain", *others)
    assert answers == [[0, None]] * 4
    assert [len(of_kind(own, "cuLaunchKernel")) for own in lines[1:5]] == [1] * 4


@pytest.mark.parametrize(("package", "size"), [("plain", "m"), ("plain", "n"), ("batch", "batch"), ("split", "m")])
def test_nothing_is_launched_for_an_empty_result(builds, package, size):
    answers, lines = called(builds, package, {size: 0})
    assert answers == [[0, None]] and not lines[1]


def test_the_workspace_is_as_large_as_the_call_needs(builds):
    for package, parts in (("split", 2), ("plain", 0)):
        name = f"{builds[package].package.contracts[0].name}_workspace"
        answers, _ = builds[package].called(*[(name, None, {"m": m, "n": N, "k": K}) for m in (1, 32, 33, 0, 2)])
        assert answers == [*([0, parts * m * N * 4] for m in (1, 32, 33, 0)), status("SIZES")]


@pytest.mark.parametrize(
    ("package", "environment", "wanted"),
    [
        ("plain", {"FAKE_CUDA_MAJOR": "8"}, "OTHER_GPU"),
        ("plain", {"FAKE_CUDA_CONTEXT": "0"}, "NO_CONTEXT"),
        ("large", {"FAKE_CUDA_SHARED": "60000"}, "SHARED_MEMORY"),
        ("plain", {"FAKE_CUDA_FAIL": "cuCtxGetCurrent 3"}, 3),
        ("plain", {"FAKE_CUDA_FAIL": "cuModuleLoadData 209"}, 209),
        ("plain", {"FAKE_CUDA_FAIL": "cuModuleGetFunction 500"}, 500),
    ],
)
def test_what_cannot_be_loaded_is_unloaded(builds, package, environment, wanted):
    (answer,), lines = builds[package].called(environment=environment)
    if isinstance(wanted, str):
        assert answer == status(wanted)
    else:
        assert answer[0] == 1000 + wanted and answer[1].startswith("the CUDA driver")
    assert len(of_kind(lines[0], "cuModuleUnload")) == len(of_kind(lines[0], "cuModuleLoadData"))


def test_a_driver_that_lacks_a_function_and_null_in_place_of_pointers(builds, tmp_path):
    empty = replace(builds["plain"], driver=_no_driver(tmp_path), folder=tmp_path / "again")
    assert empty.called() == ([status("OLD_DRIVER")], [[]])
    library = ctypes.CDLL(str(builds["plain"].library))
    library.packed_words.restype = ctypes.c_char_p
    words = [library.packed_words(number).decode() for number in range(len(STATUSES))]
    assert words == [*STATUSES.values()] and len(set(words)) == len(words)
    assert library.packed_words(-1) == b"not a status of this library"
    assert b"driver" in library.packed_words(1700) and b"less 1000" in library.packed_words(1998)
    call = library[f"packed_{builds['plain'].package.contracts[0].name}"]
    assert library.packed_load(None) == [*STATUSES].index("NO_HANDLE") and library.packed_unload(None) == 0
    assert call(None, None, None) == [*STATUSES].index("NO_CALL")


def test_errors_of_the_driver_are_those_of_the_call(builds):
    for package, function in (
        ("plain", "cuLaunchKernel"),
        ("batch", "cuTensorMapEncodeTiled"),
        ("split", "cuLaunchKernel"),
    ):
        answers, lines = called(builds, package, {}, FAKE_CUDA_FAIL=f"{function} 719")
        assert answers[0][0] == 1719 and len(of_kind(lines[1], function)) == 1
    answers, lines = called(builds, "plain", {}, FAKE_CUDA_CONTEXT="77")
    # A handle is of one context, also when it is unloaded.
    assert answers == [status("OTHER_CONTEXT")] * 2 and not of_kind(lines[1], "cuLaunchKernel")


def test_shared_memory_beyond_48_kib_is_asked_for(builds):
    _, (lines, _) = builds["large"].called()
    images, optin, reserved = range(len(builds["large"].package.images)), 232448, 16
    assert of_kind(lines, "cuFuncSetAttribute") == [[str(i), "8", str(optin - reserved)] for i in images]
    assert of_kind(lines, "cuFuncSetCacheConfig") == [[str(i), "1"] for i in images]


def test_the_same_family_gives_the_same_bytes_anywhere(builds, tmp_path):
    folder = tmp_path / "another" / "place"
    folder.mkdir(parents=True)
    again = dict(files(package_of("plain", folder)))
    assert again == {name: (builds["plain"].folder / name).read_text() for name in again}
    assert str(tmp_path) not in "".join(again.values())


def test_more_than_a_c_file_holds_is_refused(builds, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BYTES", 1000)
    with pytest.raises(CallError, match="a C file may have 1000: give fewer --shapes, or select contracts by --only"):
        [*files(builds["plain"].package)]


@pytest.fixture
def packed(cli):
    """Renders a spec named `own`, and packs it into the folder `made`."""

    def run(text, *options):
        Path("own.yaml").write_text(f"summary: For C.\ntargets: [sm90]\n{text}")
        assert cli("own.yaml").status == 0
        call = ("--format", "cubin", "--device", "nvidia_h200", "--shapes", "64x32,32", "--out", "made")
        return cli("package", "generated/own", *call, *options)

    return run


def test_the_command(packed, tmp_path):
    said = packed(SPECS["plain"], "--name", "mine")
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("made: 4 files; 1 function for NVIDIA H200, 3 cubins of ")
    assert sorted(contents(tmp_path / "made")) == ["example.c", "mine.c", "mine.h", "mine.py"]
    assert packed(SPECS["plain"], "--name", "mine").out == "made: same\n"
    said = packed(SPECS["plain"], "--name", "other")
    assert said.status == 1 and "is not empty, and nothing is overwritten" in said.err


def test_families_of_files_are_refused(packed):
    said = packed(f"package: files\n{SPECS['plain']}")
    assert said.status == 2 and "has no functions, which choose among kernels" in said.err


def test_names_of_c_and_of_other_fields_are_made_others(packed, tmp_path):
    odd = "odd: {formula: 'x * int + a_ld + register', operands: {int: [M, N], a_ld: [N], register: []}}"
    assert packed(SPECS["plain"].replace("bias+gelu_tanh", f"odd\nops: {{{odd}}}")).status == 0
    header = (tmp_path / "made" / "own.h").read_text()
    for field in ("const void *int_;", "int64_t int__ld;", "const void *a_ld_;", "float register_;"):
        assert field in header
    for source in ("own.c", "example.c"):
        compiled_with(*C, "-c", tmp_path / "made" / source, "-o", tmp_path / "made.o")


def test_a_machine_without_torch_is_told_what_to_install(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    call = ("package", GENERATED / "split_k", "--format", "cubin", "--device", "nvidia_h200", "--shapes", "64x64,1")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from generator.commands.command_line import main; "
    done = python("-c", f"{code}sys.exit(main(sys.argv[1:]))", tmp_path, *call, "--out", tmp_path / "made")
    assert done.returncode == 2 and "package --format cubin needs torch; install the extra" in done.stderr
