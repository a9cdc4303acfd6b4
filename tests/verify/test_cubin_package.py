"""`package --format cubin`: the files, what is refused and why, and the statuses of calls that cannot be launched."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from generator.emit.cubin import sources
from generator.emit.cubin.compiled_contracts import CubinPackage
from generator.emit.cubin.sources import STATUSES, CubinSources
from generator.language.errors import CallError
from generator.plan.devices import DEVICES
from generator.verify.ahead_of_time import ProductSizes
from generator.verify.cubin_package import compiled_package
from tests.helpers.emit.cubins import STRICT, Built, compiled_with, fake_driver, of_kind
from tests.helpers.support import GENERATED, ROOT, Spoken, contents, python
from tests.helpers.verify.rendered import rendered

Cli = Callable[..., Spoken]

HELPERS = ROOT / "tests" / "helpers" / "emit"
TILE = "tile: [{m: 32, n: 32, k: 32, warps: 4, stages: 2}]\n"
SPECS = {
    "plain": f"layout: rcr\ndtype: fp16\nepilogue: bias+gelu_tanh\nload: pointer\n{TILE}",
    "batch": f"layout: rcr\ndtype: fp16\nbatch: strided\nepilogue: scale+add\nload: descriptor\n{TILE}",
    "split": f"layout: rcr\ndtype: bf16\nschedule: split_k\nload: pointer\n{TILE.replace('}]', ', split: 2}]')}",
}
N, K, ROWS = 64, 32, (1, 32, 33, 34)


def package_of(name: str, folder: Path) -> CubinPackage:
    """The package `packed` of a spec of SPECS, rendered into a folder."""
    family = rendered(folder, f"packed_{name}", f"summary: For C.\ntargets: [sm90]\n{SPECS[name]}")
    shapes, count = [ProductSizes(N, K, ROWS)], 1 + ("batch:" in SPECS[name])
    return compiled_package(family, "packed", DEVICES["nvidia_h200"], shapes, only="*", count=count)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
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


@pytest.mark.parametrize("name", SPECS)
def test_the_sources_compile_without_a_warning(builds: dict[str, Built], name: str, tmp_path: Path) -> None:
    folder = builds[name].folder
    c, header = folder / "packed.c", tmp_path / "alone.c"
    # The header needs nothing in front of it.
    header.write_text('#include "packed.h"\n')
    for level in ("-O0", "-O2"):
        compiled_with("gcc", "-std=c11", *STRICT, level, "-c", c, "-o", tmp_path / "c.o")
        compiled_with("g++", "-x", "c++", "-std=c++17", *STRICT, level, "-c", c, "-o", tmp_path / "cpp.o")
    compiled_with("gcc", "-std=c11", *STRICT, f"-I{folder}", "-c", header, "-o", tmp_path / "h.o")
    compiled_with("g++", "-x", "c++", "-std=c++17", *STRICT, f"-I{folder}", "-c", header, "-o", tmp_path / "h.o")
    include = ("-O2", f"-I{folder}", "-c", folder / "example.c", "-o", tmp_path / "example.o")
    compiled_with("gcc", "-std=c11", *STRICT, *include)
    compiled_with("g++", "-x", "c++", "-std=c++17", *STRICT, *include)


def test_cmake_builds_the_example_which_says_that_there_is_no_driver(builds: dict[str, Built], tmp_path: Path) -> None:
    folder, out = builds["plain"].folder, tmp_path / "build"
    compiled_with("cmake", "-S", folder, "-B", out, "-DCMAKE_C_FLAGS=-Werror", "-DCMAKE_CXX_FLAGS=-Werror")
    compiled_with("cmake", "--build", out)
    assert (out / "libpacked.a").is_file() and (out / "libpacked.so").is_file()
    for program in ("example_c", "example_cpp"):
        # A folder without a driver: this machine may have one.
        environment = {"LD_LIBRARY_PATH": str(_no_driver(tmp_path))}
        done = subprocess.run([out / program], capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stderr) == (2, "the CUDA driver lacks cuInit\n")
    linked = subprocess.run(["ldd", out / "libpacked.so"], capture_output=True, text=True, check=True).stdout
    assert "cuda" not in linked


def test_the_call_of_the_documentation_compiles(cli: Cli, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "without_python.md").read_text()
    (shown,) = re.findall(r"```c\n(.*?)```", page, re.S)
    (command,) = re.findall(r"^\$ python -m generator (package .*)$", page, re.M)
    (tmp_path / "generated").symlink_to(GENERATED)
    assert cli(*shlex.split(command)).status == 0
    (tmp_path / "shown.c").write_text(shown)
    for standard in (("gcc", "-std=c11"), ("g++", "-x", "c++", "-std=c++17", "-Wno-missing-field-initializers")):
        include = (*STRICT, f"-I{tmp_path / 'linear'}", "-c", tmp_path / "shown.c", "-o", tmp_path / "shown.o")
        compiled_with(*standard, *include)


@pytest.mark.parametrize(("computes", "status", "word"), [("1", 0, "right"), ("0", 1, "WRONG")])
def test_the_example_compares_a_product_with_float64(
    builds: dict[str, Built], tmp_path: Path, computes: str, status: int, word: str
) -> None:
    """On the GPU it runs what was compiled. Here a driver in C computes the product that each launch asks for."""
    built = builds["plain"]
    environment = {"FAKE_CUDA_SIZES": str(built.folder / "sizes.txt"), "FAKE_CUDA_COMPUTE": computes}
    environment |= {**os.environ, "LD_LIBRARY_PATH": str(built.driver)} | environment
    sources = (built.folder / "example.c", built.folder / "packed.c")
    compiled_with("gcc", "-O2", f"-I{built.folder}", *sources, "-lm", "-o", tmp_path / "example")
    done = subprocess.run([tmp_path / "example"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (status, "")
    lines = done.stdout.splitlines()
    # The sizes of the table, with operands that are contiguous and odd.
    assert len(lines) == 3 * 2 and all(word in line for line in lines)


def _no_driver(folder: Path) -> Path:
    """A folder with a library of the driver's name that has no functions."""
    made = folder / "empty"
    made.mkdir(exist_ok=True)
    compiled_with("gcc", "-shared", "-x", "c", "/dev/null", "-o", made / "libcuda.so.1")
    return made


def test_the_library_has_no_state_and_no_name_without_its_own(builds: dict[str, Built]) -> None:
    listed = subprocess.run(
        ["nm", "--defined-only", builds["plain"].library], capture_output=True, text=True, check=True
    )
    symbols = [line.split()[1:] for line in listed.stdout.splitlines()]
    named = [name for kind, name in symbols if kind.isupper() and not name.startswith("_")]
    assert named and all(name.startswith("packed_") for name in named)
    # What is written before it is loaded, with the addresses of others, is constant; the rest is the compiler's.
    data = {name for kind, name in symbols if kind in "dDbB" and not name.startswith(("_", "completed"))}
    assert data == {"contracts", "images"}


def status(name: str) -> list[object]:
    """A status and its words, as a call answers."""
    return [[*STATUSES].index(name), STATUSES[name]]


@pytest.mark.parametrize(
    ("package", "fields", "wanted"),
    [
        ("plain", {"m": 2}, "SIZES"),
        ("plain", {"n": 32}, "SIZES"),
        ("plain", {"k": 64}, "SIZES"),
        ("plain", {"m": -1}, "SIZES"),
        ("plain", {"m": 35}, "SIZES"),
        ("batch", {"batch": 3}, "SIZES"),
        ("plain", {"a": 0}, "NO_ADDRESS"),
        ("plain", {"out": 0}, "NO_ADDRESS"),
        ("plain", {"a_ld": K - 1}, "LEADING_DIMENSION"),
        ("plain", {"b_ld": -K}, "LEADING_DIMENSION"),
        ("plain", {"out_ld": N - 16}, "LEADING_DIMENSION"),
        ("batch", {"out_batch": 0}, "OVERLAP"),
        ("batch", {"out_batch": 31 * N}, "OVERLAP"),
        ("batch", {"a": (1 << 40) + 2}, "ALIGNMENT"),
        ("batch", {"b_ld": K + 4}, "ALIGNMENT"),
        # A descriptor cannot repeat a matrix.
        ("batch", {"a_batch": 0}, "ALIGNMENT"),
        ("plain", {"a_ld": 2**31}, "SPAN"),
        ("plain", {"out_ld": 2**27}, "SPAN"),
        ("split", {"workspace": 0}, "WORKSPACE"),
        ("split", {"workspace_size": 2 * 32 * N * 4 - 1}, "WORKSPACE"),
        ("split", {"workspace": (1 << 44) + 128}, "WORKSPACE"),
    ],
)
def test_a_wrong_call_is_not_launched(
    builds: dict[str, Built], package: str, fields: dict[str, int], wanted: str
) -> None:
    built = builds[package]
    call = {"m": 32, "n": N, "k": K, **FIELDS[package]}
    right, wrong = (built.package.contracts[0].name, 0, call), (built.package.contracts[0].name, 0, {**call, **fields})
    answers, lines = built.called(right, wrong)
    assert answers == [[0, None], status(wanted)]
    assert of_kind(lines[1], "cuLaunchKernel") and not lines[2]


@pytest.mark.parametrize("package", SPECS)
def test_the_host_time_of_a_launch_is_a_small_part_of_the_drivers(
    builds: dict[str, Built], package: str, tmp_path: Path
) -> None:
    """By pointers, by descriptors, with two kernels and a workspace: the driver itself takes some microseconds."""
    built = builds[package]
    name = f"packed_{built.package.contracts[0].name}"
    values = {"m": 32, "n": N, "k": K, **FIELDS[package]}
    texts = {field: f"(void *){x}" if isinstance(x, int) and x >= 1 << 40 else x for field, x in values.items()}
    fields = ", ".join(f".{field} = {text}" for field, text in texts.items())
    given = {"HEADER": f'"{built.folder}/packed.h"', "CALL": f"{name}_call", "FUNCTION": name, "FIELDS": fields}
    defined = [f"-D{word}={text}" for word, text in given.items()]
    source = (HELPERS / "launch_time.c", built.folder / "packed.c", "-o", tmp_path / "launch_time")
    compiled_with("gcc", "-O2", "-std=c11", *STRICT, *defined, *source)
    compiled_with("gcc", "-O2", "-shared", "-fPIC", *STRICT, HELPERS / "idle_cuda.c", "-o", tmp_path / "libcuda.so.1")
    done = subprocess.run(
        [tmp_path / "launch_time"], capture_output=True, text=True, env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    # Measured: 100 to 210 ns.
    assert float(done.stdout) < 1500, f"{done.stdout} ns"


def test_padded_and_repeated_operands_are_launched(builds: dict[str, Built]) -> None:
    call = {"m": 32, "n": N, "k": K, **FIELDS["plain"]}
    name = builds["plain"].package.contracts[0].name
    others = [{"a_ld": K + 1}, {"a": (1 << 40) + 2}, {"bias": (1 << 42) + 2}, {"out_ld": 2 * N}]
    answers, lines = builds["plain"].called(*[(name, 0, {**call, **other}) for other in others])
    assert answers == [[0, None]] * 4
    assert [len(of_kind(own, "cuLaunchKernel")) for own in lines[1:5]] == [1] * 4


def test_nothing_is_launched_for_an_empty_result(builds: dict[str, Built]) -> None:
    for name, size in (("plain", "m"), ("plain", "n"), ("batch", "batch"), ("split", "m")):
        call = {"m": 32, "n": N, "k": K, **FIELDS[name], size: 0}
        answers, lines = builds[name].called((builds[name].package.contracts[0].name, 0, call))
        assert answers == [[0, None]] and not lines[1]


def test_the_workspace_is_as_large_as_the_call_needs(builds: dict[str, Built]) -> None:
    name = f"{builds['split'].package.contracts[0].name}_workspace"
    sizes = [{"m": m, "n": N, "k": K} for m in (1, 32, 33, 0)]
    answers, _ = builds["split"].called(*[(name, None, each) for each in (*sizes, {"m": 2, "n": N, "k": K})])
    assert answers == [*([0, 2 * m * N * 4] for m in (1, 32, 33, 0)), status("SIZES")]
    plain = f"{builds['plain'].package.contracts[0].name}_workspace"
    assert builds["plain"].called((plain, None, sizes[0]))[0] == [[0, 0]]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"FAKE_CUDA_MAJOR": "8"}, "OTHER_GPU"),
        ({"FAKE_CUDA_CONTEXT": "0"}, "NO_CONTEXT"),
        ({"FAKE_CUDA_FAIL": "cuCtxGetCurrent 3"}, 3),
        ({"FAKE_CUDA_FAIL": "cuModuleLoadData 209"}, 209),
        ({"FAKE_CUDA_FAIL": "cuModuleGetFunction 500"}, 500),
    ],
)
def test_what_cannot_be_loaded_is_unloaded(
    builds: dict[str, Built], environment: dict[str, str], wanted: object
) -> None:
    answers, lines = builds["plain"].called(environment=environment)
    (answer,) = answers
    if isinstance(wanted, str):
        assert answer == status(wanted)
    else:
        assert answer[0] == 1000 + wanted and answer[1].startswith("the CUDA driver")
    loaded = of_kind(lines[0], "cuModuleLoadData")
    assert len(of_kind(lines[0], "cuModuleUnload")) == len(loaded)


def test_a_driver_that_is_not_there_or_lacks_a_function(builds: dict[str, Built], tmp_path: Path) -> None:
    empty = replace(builds["plain"], driver=_no_driver(tmp_path), folder=tmp_path / "again")
    assert empty.called() == ([status("OLD_DRIVER")], [[]])
    shutil.copy(builds["plain"].folder / "packed.py", tmp_path)
    library = ctypes.CDLL(str(builds["plain"].library))
    library.packed_words.restype = ctypes.c_char_p
    words = [library.packed_words(number).decode() for number in range(len(STATUSES))]
    assert words == [*STATUSES.values()] and len(set(words)) == len(words)
    assert library.packed_words(-1) == b"not a status of this library"
    assert b"driver" in library.packed_words(1700) and b"less 1000" in library.packed_words(1998)
    # NULL in place of a handle, of a place for one, and of a call.
    name = builds["plain"].package.contracts[0].name
    call = getattr(library, f"packed_{name}")
    assert library.packed_load(None) == [*STATUSES].index("NO_HANDLE") and library.packed_unload(None) == 0
    assert call(None, None, None) == [*STATUSES].index("NO_CALL")


def test_errors_of_the_driver_are_those_of_the_call(builds: dict[str, Built]) -> None:
    for package, function, number in (
        ("plain", "cuLaunchKernel", 719),
        ("batch", "cuTensorMapEncodeTiled", 1),
        ("split", "cuLaunchKernel", 701),
    ):
        call = {"m": 32, "n": N, "k": K, **FIELDS[package]}
        built = builds[package]
        answers, lines = built.called(
            (built.package.contracts[0].name, 0, call), environment={}, FAKE_CUDA_FAIL=f"{function} {number}"
        )
        assert answers[0][0] == 1000 + number
        assert len(of_kind(lines[1], function)) == 1
    other = builds["plain"].called(
        (builds["plain"].package.contracts[0].name, 0, {"m": 32, "n": N, "k": K, **FIELDS["plain"]}),
        FAKE_CUDA_CONTEXT="77",
    )
    # A handle is of one context, also when it is unloaded.
    assert other[0] == [status("OTHER_CONTEXT")] * 2 and not of_kind(other[1][1], "cuLaunchKernel")


def test_shared_memory_beyond_48_kib_is_asked_for(builds: dict[str, Built], tmp_path: Path) -> None:
    package = builds["plain"].package
    large = [replace(x, shared=60000) for x in package.images]
    changed = _with_images(package, large)
    built = Built(tmp_path / "large", changed, builds["plain"].driver)
    _, lines = built.called()
    optin, reserved = 232448, 16
    assert of_kind(lines[0], "cuFuncSetAttribute") == [[str(i), "8", str(optin - reserved)] for i in range(len(large))]
    assert of_kind(lines[0], "cuFuncSetCacheConfig") == [[str(i), "1"] for i in range(len(large))]
    answers, _ = built.called(environment={"FAKE_CUDA_SHARED": "60015"})
    assert answers == [status("SHARED_MEMORY")]


def test_clusters_and_other_attributes_are_launched_as_triton_does(builds: dict[str, Built], tmp_path: Path) -> None:
    package = builds["plain"].package
    clustered = [replace(x, ctas=16, cooperative=True, overlaps=True) for x in package.images]
    built = Built(tmp_path / "clustered", _with_images(package, clustered), builds["plain"].driver)
    answers, lines = built.called((package.contracts[0].name, 7, {"m": 33, "n": N, "k": K, **FIELDS["plain"]}))
    assert answers == [[0, None]]
    # A non-portable size of a cluster is allowed first.
    assert of_kind(lines[0], "cuFuncSetAttribute") == [[str(i), "14", "1"] for i in range(len(clustered))]
    (words,) = of_kind(lines[1], "cuLaunchKernelEx")
    assert words[1:13] == [
        *(str(2 * 2 * 16), "1", "1", "128", "1", "1", words[7], "7"),
        *("[6,1,0,0]", "[2,1,0,0]", "[4,16,1,1]", "[5,1,0,0]"),
    ]


def _with_images(package: CubinPackage, images: list[object]) -> CubinPackage:
    """The package with other images in the place of its own."""
    other = dict(zip(package.images, images, strict=True))
    contracts = []
    for contract in package.contracts:
        entries = {
            id(entry): replace(entry, launches=tuple(replace(x, image=other[x.image]) for x in entry.launches))
            for entry in contract.entries
        }
        runs = [replace(run, entries=tuple(x and entries[id(x)] for x in run.entries)) for run in contract.runs]
        contracts.append(replace(contract, runs=tuple(runs)))
    return replace(package, contracts=tuple(contracts))


def test_the_same_family_gives_the_same_bytes_anywhere(builds: dict[str, Built], tmp_path: Path) -> None:
    folder = tmp_path / "another" / "place"
    folder.mkdir(parents=True)
    again = dict(CubinSources(package_of("plain", folder)).files())
    assert again == {name: (builds["plain"].folder / name).read_text() for name in again}
    assert str(tmp_path) not in "".join(again.values())


def test_more_than_a_c_file_holds_is_refused(builds: dict[str, Built], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 1000)
    with pytest.raises(CallError, match="a C file may have 1000: give fewer --shapes, or select contracts by --only"):
        CubinSources(builds["plain"].package)


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    Path("own.yaml").write_text(f"summary: For C.\ntargets: [sm90]\nname: own\n{SPECS['plain']}")
    assert cli("own.yaml").status == 0
    call = ("package", "generated/own", "--format", "cubin", "--device", "nvidia_h200", "--shapes", "64x32,32")
    said = cli(*call, "--out", "made", "--name", "mine")
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("made: 6 files; 1 function for NVIDIA H200, 3 cubins of ")
    names = ["CMakeLists.txt", "README.md", "example.c", "mine.c", "mine.h", "mine.py"]
    assert sorted(contents(tmp_path / "made")) == names
    assert cli(*call, "--out", "made", "--name", "mine").out == "made: same\n"
    said = cli(*call, "--out", "made", "--name", "other")
    assert said.status == 1 and "is not empty, and nothing is overwritten" in said.err


def test_families_of_files_are_refused(cli: Cli) -> None:
    Path("own.yaml").write_text(f"summary: For C.\npackage: files\n{SPECS['plain']}")
    assert cli("own.yaml").status == 0
    call = ("--format", "cubin", "--device", "nvidia_h200", "--shapes", "64x64,32", "--out", "made")
    said = cli("package", "generated/own", *call)
    assert said.status == 2 and "has no functions, which choose among kernels" in said.err


def test_names_of_c_and_of_other_fields_are_made_others(cli: Cli, tmp_path: Path) -> None:
    Path("own.yaml").write_text(
        "summary: For C.\ntargets: [sm90]\nlayout: rcr\ndtype: fp16\nload: pointer\n"
        "ops:\n  odd: {formula: 'x * int + a_ld + register', operands: {int: [M, N], a_ld: [N], register: []}}\n"
        f"epilogue: odd\n{TILE}"
    )
    assert cli("own.yaml").status == 0
    call = ("--format", "cubin", "--device", "nvidia_h200", "--shapes", "64x64,32", "--out", "made")
    assert cli("package", "generated/own", *call).status == 0
    header = (tmp_path / "made" / "own.h").read_text()
    for field in ("const void *int_;", "int64_t int__ld;", "const void *a_ld_;", "float register_;"):
        assert field in header
    compiled_with("gcc", "-std=c11", *STRICT, "-c", tmp_path / "made" / "own.c", "-o", tmp_path / "own.o")
    compiled_with("gcc", "-std=c11", "-c", tmp_path / "made" / "example.c", "-o", tmp_path / "example.o")


def test_a_machine_without_torch_is_told_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    call = ("package", GENERATED / "split_k", "--format", "cubin", "--device", "nvidia_h200", "--shapes", "64x64,1")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from generator.commands.command_line import main; "
    done = python("-c", f"{code}sys.exit(main(sys.argv[1:]))", tmp_path, *call, "--out", tmp_path / "made")
    assert done.returncode == 2 and "package --format cubin needs torch; install the extra" in done.stderr
