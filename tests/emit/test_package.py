"""Rendered families as a repository of the Hub, and as a wheel."""

import ast
import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from generator.emit.manifest_reader import read
from tests.helpers.support import BASE, GENERATED, ROOT, Spoken, assert_formatted, contents, files_of, python

FAMILY = GENERATED / "fp16_rcr"


def test_the_repository_has_what_the_hub_asks_for(repository):
    assert {path.name for path in repository.iterdir()} == {
        *("README.md", "CARD.md", "build.toml", "flake.nix", "torch-ext", "build", "tests", "benchmarks")
    }
    variant = repository / "build" / "torch-cuda"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert (metadata["name"], metadata["version"], metadata["license"]) == ("fp16-rcr", 1, "mit")
    assert metadata["backend"] == {"type": "cuda", "archs": ["8.0", "9.0"]}
    # The namespace of the operators is the name of the package only if nothing in it looks like a separator.
    assert metadata["id"].isidentifier() and "__" not in metadata["id"]
    files = contents(variant)
    del files["metadata.json"]
    digests = {name: base64.b64encode(hashlib.sha256(data).digest()).decode() for name, data in files.items()}
    assert metadata["digest"] == {"algorithm": "sha256", "files": digests}
    assert {name: data for name, data in files.items() if not name.startswith("fp16_rcr/")} == contents(
        repository / "torch-ext" / "fp16_rcr"
    )


def test_the_package_is_still_a_rendered_family(repository, cli, tmp_path):
    again = ("--out", "again", "--license", "mit", "--repo-id", "me/fp16-rcr")
    assert cli("package", FAMILY, "--format", "kernels", *again).status == 0
    assert contents(tmp_path / "again") == contents(repository)
    folder = repository / "torch-ext" / "fp16_rcr"
    assert read(folder).contracts.keys() == read(FAMILY).contracts.keys()
    assert "layers.py" in read(folder).files
    assert_formatted(repository)
    done = python("-m", "generator", "verify", folder, "--level", "static", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr


def test_vendors_have_a_variant_each_and_a_family_may_have_no_layers(cli, tmp_path):
    Path("own__one.yaml").write_text(f"{BASE.replace('rcr', 'rrr')}targets: [sm89, gfx942]\n")
    assert cli("own__one.yaml").status == 0
    said = cli("package", "generated/own__one", "--format", "kernels", "--out", "hub", "--version", "3")
    assert said.status == 0 and said.out.endswith("layers: none\n")
    archs = {}
    for backend in ("cuda", "rocm"):
        metadata = json.loads((tmp_path / "hub" / "build" / f"torch-{backend}" / "metadata.json").read_text())
        archs[backend] = metadata["backend"]["archs"]
        assert (metadata["name"], metadata["version"], metadata["license"]) == ("own-one", 3, "other")
    assert archs == {"cuda": ["8.9"], "rocm": ["gfx942"]}
    assert not (tmp_path / "hub" / "torch-ext" / "own_one" / "layers.py").exists()


TRAINED = "summary: x\nlayout: rcr\ndtype: [fp16, bf16]\nepilogue: [none, bias, bias+relu, relu]\nbackward: kernels\n"


@pytest.mark.parametrize(
    ("text", "compiled", "trained"), [(TRAINED, True, True), (f"{BASE}package: plain\n", False, False)]
)
def test_layers_say_what_the_functions_can(cli, text, compiled, trained):
    Path("family.yaml").write_text(text)
    assert cli("family.yaml").status == 0
    assert cli("package", "generated/family", "--format", "kernels", "--out", "hub").status == 0
    layers = Path("hub/torch-ext/family/layers.py").read_text()
    says = f"    can_torch_compile = {compiled}\n    has_backward = {trained}\n"
    assert layers.count(says) == layers.count("class ") == 1 + trained
    assert ('(torch.bfloat16, False): "gemm_bf16_rcr_relu",' in layers) == trained
    mode = "Mode.INFERENCE | Mode.TORCH_COMPILE" if compiled else "Mode.INFERENCE"
    for card in ("README.md", "CARD.md"):
        assert f"kernelize(model, mode={mode})" in (Path("hub") / card).read_text()
    assert_formatted(Path("hub").resolve())


def test_a_version_of_many_digits_writes_nothing(cli, tmp_path):
    for form, told in (("kernels", "the Hub takes a whole number, found '9999"), ("wheel", "--version: '9999")):
        said = cli("package", FAMILY, "--format", form, "--version", "9" * 5000, "--out", "out")
        assert said.status == 2 and told in said.err and contents(tmp_path) == {}


def test_an_edited_family_is_refused(cli, tmp_path):
    shutil.copytree(GENERATED / "ladder", "ladder")
    (tmp_path / "ladder" / "_runtime" / "launchable.py").write_text("edited")
    said = cli("package", "ladder", "--format", "wheel", "--out", "dist")
    assert said.status == 1 and "ladder/_runtime/launchable.py: edited by hand" in said.err
    (tmp_path / "ladder" / "_runtime" / "launchable.py").unlink()
    said = cli("package", "ladder", "--format", "wheel", "--out", "dist")
    assert "ladder/_runtime/launchable.py: is missing" in said.err


@pytest.mark.parametrize("form", ["kernels", "wheel"])
@pytest.mark.parametrize("size", [100, 3000, 12000])
def test_a_package_is_written_whole_or_not_at_all(cli, tmp_path, form, size):
    Path("family.yaml").write_text(BASE + "epilogue: [none, bias]\n")
    assert cli("family.yaml").status == 0
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    call = ["package", "generated/family", "--format", form, "--out", "made"]
    code = f"{limit}\nimport sys\nfrom generator.commands.command_line import main\nsys.exit(main({call!r}))"
    ran = python("-c", code, cwd=tmp_path)
    assert ran.returncode == 1 and re.fullmatch(r"made\S*: cannot be written: File too large\n", ran.stderr), ran.stderr
    assert not contents(Path("made"))
    assert not list(Path().glob(".*"))
    assert cli(*call).status == 0


def hidden(folder):
    """What a call that was killed leaves: hidden files and folders, other than those that are packed."""
    return [path for path in folder.rglob(".*") if path.name != ".gitattributes"]


KILLED = """
import os, signal, sys
from generator.commands.command_line import main
function, count, calls = getattr(os, sys.argv[1]), int(sys.argv[2]), 0
def killed(*arguments, **keywords):
    global calls
    calls += 1
    if calls == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **keywords)
setattr(os, sys.argv[1], killed)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("form", "function", "count", "made"),
    [
        # Before anything is in place: a new folder, and one that is there and empty.
        ("kernels", "replace", 1, False),
        ("kernels", "replace", 1, True),
        # Between the files of a folder.
        ("kernels", "replace", 20, False),
        ("wheel", "replace", 1, False),
    ],
)
def test_a_call_that_was_killed_is_repeated(cli, tmp_path, form, function, count, made):
    call = ["package", GENERATED / "ladder", "--format", form, "--out"]
    if made:
        Path("made").mkdir()
    ran = python("-c", KILLED, function, count, *call, "made", cwd=tmp_path)
    assert ran.returncode == -9, ran.stderr
    assert hidden(tmp_path), "nothing was left, so nothing is shown"
    assert cli(*call, "made").status == 0
    assert cli(*call, "made").out.endswith(": same\n")
    assert cli(*call, "again").status == 0
    assert contents(Path("made")) == contents(Path("again"))
    assert not hidden(tmp_path)


def test_a_folder_with_a_file_of_somebody_else_is_left_alone(cli):
    call = ("package", GENERATED / "ladder", "--format", "kernels", "--out", "made")
    Path("made").mkdir()
    for name in (".made.0123456789ab.mine", ".tmp", "README.md"):
        (Path("made") / name).write_text("mine")
        assert cli(*call) == Spoken(1, "", "made: is not empty, and nothing is overwritten; choose another folder\n")
        assert contents(Path("made")) == {name: b"mine"}
        (Path("made") / name).unlink()
    Path("made").rmdir()
    Path("made").symlink_to("nowhere")
    said = cli(*call)
    assert said.status == 1 and "made: is a link that leads nowhere" in said.err and said.err.count("\n") == 1


def test_a_checkout_with_other_line_ends_is_packed_as_it_was_rendered(cli):
    shutil.copytree(GENERATED / "ladder", "ladder")
    for path in files_of(Path("ladder")):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for form in ("wheel", "kernels"):
        assert cli("package", "ladder", "--format", form, "--out", f"{form}_windows").status == 0
        assert cli("package", GENERATED / "ladder", "--format", form, "--out", form).status == 0
        assert contents(Path(f"{form}_windows")) == contents(Path(form))


def test_the_parts_of_a_wheel_have_its_normal_name(cli):
    Path("own__one.yaml").write_text(BASE)
    assert cli("own__one.yaml").status == 0
    options = ("--format", "wheel", "--out", "made", "--license", "mit or apache-2.0", "--version", "1.0.0-RC1")
    assert cli("package", "generated/own__one", *options).status == 0
    (wheel,) = Path("made").iterdir()
    assert wheel.name == "own_one_kernels-1.0.0rc1-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("own_one_kernels-1.0.0rc1.dist-info/METADATA").decode()
        assert "own__one_kernels/own__one/__init__.py" in archive.namelist()
    assert "Name: own-one-kernels\n" in metadata and "License-Expression: MIT OR Apache-2.0\n" in metadata


@pytest.mark.parametrize("options", [("--repo-id", "me/fp16-rcr"), ()])
def test_every_call_that_the_card_shows_names_the_repository_that_it_trusts(cli, options):
    assert cli("package", FAMILY, "--format", "kernels", "--out", "hub", *options).status == 0
    expected = "me/fp16-rcr" if options else "OWNER/fp16-rcr"
    pages = [Path("hub/README.md"), Path("hub/CARD.md"), *[ROOT / "docs" / "calling.md"] * bool(options)]
    for page in pages:
        blocks = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S))
        calls = [node for node in ast.walk(ast.parse(blocks)) if isinstance(node, ast.Call)]
        loading = [x for x in calls if ast.unparse(x.func) in ("get_kernel", "LayerRepository")]
        assert len(loading) >= 2
        for call in loading:
            trusted = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}["trust_remote_code"]
            assert (ast.unparse(call.args[0]), trusted) == (repr(expected), repr([expected])), page
    assert ('repo-id = "me/fp16-rcr"' in Path("hub/build.toml").read_text()) == bool(options)


def test_another_wheel_is_not_overwritten(cli):
    Path("family.yaml").write_text(BASE)
    cli("family.yaml")
    call = ("package", "generated/family", "--format", "wheel", "--out", "made")
    assert cli(*call).status == 0
    (wheel,) = Path("made").iterdir()
    wheel.write_bytes(b"another")
    said = cli(*call)
    assert (said.status, said.out) == (1, "") and f"{wheel}: is there already" in said.err
    assert wheel.read_bytes() == b"another"


def test_a_wheel_of_two_families_is_installed_and_called(cli, tmp_path):
    options = ("--format", "wheel", "--out", "dist", "--name", "my_kernels", "--version", "1.2", "--license", "MIT")
    assert cli("package", FAMILY, GENERATED / "ladder", *options).status == 0
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name == "my_kernels-1.2-py3-none-any.whl"
    assert cli("package", FAMILY, GENERATED / "ladder", *options).out == "dist/my_kernels-1.2-py3-none-any.whl: same\n"
    options = ("-q", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel)
    pip = [sys.executable, "-m", "pip", "install", *options]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = (
        "import torch, my_kernels.ladder, importlib.metadata as found;"
        "from my_kernels.fp16_rcr import gemm_fp16_rcr_none;"
        "a, b = torch.ones(5, 16).half(), torch.ones(7, 16).half(); print(gemm_fp16_rcr_none(a, b.T).sum().item());"
        "print(found.version('my-kernels'), found.metadata('my-kernels')['License-Expression'])"
    )
    done = python("-c", code, env={"PYTHONPATH": str(tmp_path / "site"), "TRITON_INTERPRET": "1"}, cwd=tmp_path)
    assert done.stdout == "560.0\n1.2 MIT\n", done.stderr


def test_folders_that_are_none_and_twice(cli):
    Path("family.yaml").write_text(BASE)
    said = cli("package", "family.yaml", "--format", "wheel", "--out", "made")
    assert said.status == 2 and "family.yaml is a file; give the folder of a rendered family" in said.err
    Path("link").symlink_to(GENERATED / "ladder")
    said = cli("package", GENERATED / "ladder", "link", "--format", "wheel", "--out", "dist")
    assert said.status == 0 and ": 1 family;" in said.out, "a folder under two paths is packaged once"
    shutil.copytree(GENERATED / "ladder", "ladder")
    said = cli("package", GENERATED / "ladder", "ladder", "--format", "wheel", "--out", "dist")
    assert said.status == 2 and "two families have one name: ladder, ladder" in said.err
    for form in ("wheel", "kernels"):
        said = cli("package", FAMILY, "--format", form, "--out", "family.yaml")
        assert said.status == 1 and "family.yaml: is a file, and the package's folder must be there" in said.err


#: What the documentation says of a repository of the Hub.
DOCUMENTED = (ROOT / "docs" / "calling.md").read_text(encoding="utf-8").partition("### A repository of the Hub\n")[2]
HELPERS = ROOT / "tests" / "helpers" / "emit"
VARIABLES = {"TRITON_INTERPRET": "1"}


@pytest.mark.ecosystem
def test_the_library_kernels_loads_the_repository(repository):
    """Offline: the loader checks the metadata and the digests. What layers compute is shown on the card."""
    variables = {**VARIABLES, "HF_HUB_OFFLINE": "1"}
    done = python(HELPERS / "hub_kernel.py", repository, env=variables, cwd=repository)
    assert done.stdout == "loaded\n", done.stdout + done.stderr
    tests = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--rootdir", repository, repository / "tests")
    done = python(*tests, env=variables, cwd=repository)
    assert done.returncode == 0 and "12 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.ecosystem
@pytest.mark.parametrize(("page", "blocks"), [("README.md", 2), ("CARD.md", 2), ("documented.md", 3)])
def test_the_code_of_the_card_works(repository, tmp_path, page, blocks):
    """With a stand-in for the Hub, for which the publisher is an organisation that it does not trust."""
    (tmp_path / "documented.md").write_text(DOCUMENTED, encoding="utf-8")
    path = (tmp_path if page == "documented.md" else repository) / page
    call = (HELPERS / "hub_stand_in.py", repository, "me/fp16-rcr", path)
    done = python(*call, env={**VARIABLES, "HF_HUB_OFFLINE": "0"}, cwd=repository)
    assert done.stdout == f"ran {blocks}\n", done.stdout + done.stderr
