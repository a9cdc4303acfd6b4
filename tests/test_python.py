"""`import generator`: the functions of the command line, with typed results, as docs/automation.md shows them."""

import ast
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

import generator
from tests.helpers.support import BASE, GENERATED, ROOT, python

PAGE = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8").partition("## From Python\n")[2]
FUNCTIONS = ("render", "check", "variants", "verify")
RESULTS = ("RenderResult", "CheckResult", "VariantsResult", "VerifyResult")
PARTS = ("RenderedFolder", "CheckedFolder", "FileDifference", "FamilyVariants", "VerificationPlan")
VALUES = ("Kernel", "LeftOut", "NeverChosen", "Job", "JobResult", "JobState", "Failure", "Mistake")
ERRORS = {"SpecError": 2, "CallError": 2, "NotInstalled": 2, "Refused": 1, "FileError": 1}
#: What a version may add to, and never take from.
STABLE = {*FUNCTIONS, "formula", *RESULTS, *PARTS, *VALUES, *ERRORS, "GeneratorError"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_names_are_those_that_are_promised():
    assert set(generator.__all__) == STABLE and len(generator.__all__) == len(STABLE)
    assert set(dir(generator)) >= STABLE and all(hasattr(generator, name) for name in STABLE)
    with pytest.raises(AttributeError, match="module 'generator' has no attribute 'rendr'"):
        generator.rendr  # noqa: B018


def test_the_types_are_of_the_same_names():
    """`__init__.pyi` is what type checkers read: each name is imported from the module that defines it."""
    tree = ast.parse((ROOT / "generator" / "__init__.pyi").read_text(encoding="utf-8"))
    stated = {(each.names[0].name, each.module) for each in tree.body if isinstance(each, ast.ImportFrom)}
    assert {name for name, _ in stated} == STABLE
    for name, module in stated:
        found = getattr(importlib.import_module(module), name)
        assert name == "verify" or getattr(generator, name) is found
        assert getattr(found, "__module__", module) == module
    assert (ROOT / "generator" / "py.typed").is_file()


def test_results_are_frozen():
    for name in {*RESULTS, *PARTS, *VALUES} - {"JobState"}:
        assert getattr(generator, name).__dataclass_params__.frozen, name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_page_has_each_function_with_its_parameters(name):
    shown = re.search(rf"^\| `{name}\((.*?)\)` \|", PAGE, re.M)
    words = []
    for each in inspect.signature(getattr(generator, name)).parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(f'{each.name}="{each.default}"' if each.name == "out" else each.name)
    assert shown[1] == ", ".join(words)


def test_the_page_has_every_error_and_its_exit_status():
    shown = {name: int(status) for name, status in re.findall(r"^\| `(\w+)` \|.*\| (\d) \|$", PAGE, re.M)}
    assert shown == ERRORS
    assert all(issubclass(getattr(generator, name), generator.GeneratorError) for name in ERRORS)


def loaded_after(code, cwd):
    ran = python("-c", f"import sys, generator; {code}; print(*sys.modules)", cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.splitlines()[-1].split())


def test_what_does_not_prove_imports_no_torch(tmp_path):
    assert {name for name in loaded_after("0", ROOT) if name.startswith(("generator.", "yaml", "jinja2"))} == set()
    (tmp_path / "family.yaml").write_text(BASE)
    heavy = {"torch", "triton", "numpy", "z3", "generator.verify.verification_run"}
    for name in ("render", "check", "variants"):
        assert not loaded_after(f"generator.{name}('family.yaml')", tmp_path) & heavy


def test_verify_is_a_function_whatever_was_imported():
    """The package of that name takes the attribute's place when one of its modules is imported."""
    importlib.import_module("generator.verify.jobs")
    from generator import verify

    assert callable(generator.verify) and inspect.signature(verify).parameters["levels"].default is None


def test_results_say_what_the_command_line_prints(cli):
    Path("family.yaml").write_text(f"{BASE}masking: [auto, none]\n")
    first = generator.render("family.yaml").families[0]
    assert (first.name, first.folder, first.spec) == ("family", Path("generated/family"), Path("family.yaml"))
    assert first.changed and not first.updated + first.removed + first.same
    again = generator.render(Path("family.yaml"))
    assert not again.changed and len(again.families[0].same) == len(first.created)
    assert cli("family.yaml").out == f"generated/family: 2 kernels; {len(first.created)} same\n"
    assert cli("family.yaml", "--check").out == "2 kernels of 1 family as the specs say\n"
    checked = generator.check(["family.yaml"])
    assert checked.ok and checked.families[0].version == generator.__version__
    listed = [family.as_json() for family in generator.variants("family.yaml").families]
    assert json.loads(cli("family.yaml", "--list", "--json").out) == json.loads(json.dumps(listed))


def test_a_difference_has_its_diff_if_asked_for(cli):
    Path("family.yaml").write_text(BASE)
    (folder,) = generator.render("family.yaml").families
    path = folder.folder / f"{folder.kernels[0]}.py"
    path.write_text(path.read_text().replace("num_warps", "warps"))
    plain, whole = (generator.check("family.yaml", diff=diff).families[0] for diff in (False, True))
    (one,), (other,) = plain.differences, whole.differences
    assert (one.name, one.outcome, one.edited, one.diff) == (path.name, "updated", True, "")
    assert cli("family.yaml", "--diff").out == other.diff and other.diff.startswith("--- generated/family/")
    with pytest.raises(generator.Refused, match="edited by hand"):
        generator.render("family.yaml")
    assert generator.render("family.yaml", force=True).families[0].updated == (path.name,)


def test_orphans_and_reports_in_their_order():
    for name in ("one", "two"):
        Path(f"{name}.yaml").write_text(BASE)
    generator.render(["one.yaml", "two.yaml"])
    events = []
    found = generator.check("one.yaml", orphans=True, report=events.append)
    assert not found.ok and found.orphans == (Path("generated/two"),)
    assert events == [*found.orphans, *found.families]
    assert generator.check("one.yaml").ok


def test_warnings_are_no_exceptions(cli):
    Path("family.yaml").write_text(f"{BASE}select: table\ntuned: later.json\n")
    events = []
    result = generator.render("family.yaml", report=events.append)
    assert len(result.warnings) == 1 and result.warnings[0].line == 5
    assert events == [*result.warnings, *result.families]
    assert generator.variants("family.yaml").warnings == generator.check("family.yaml").warnings == result.warnings
    assert cli("family.yaml").err == str(result.warnings[0]).replace(": ", ": warning: ", 1) + "\n"


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [("summary: x\n", {}, "SpecError"), (None, {}, "SpecError"), (BASE, {"only": "nothing"}, "CallError")],
)
@pytest.mark.parametrize("name", ["render", "check", "variants"])
def test_errors_are_those_of_the_command_line(cli, name, text, options, error):
    if text is not None:
        Path("family.yaml").write_text(text)
    with pytest.raises(getattr(generator, error)) as caught:
        getattr(generator, name)("family.yaml", **options)
    assert isinstance(caught.value, generator.GeneratorError) and not Path("generated").exists()
    mode = {"render": (), "check": ("--check",), "variants": ("--list",)}[name]
    said = cli("family.yaml", *mode, *(word for key, value in options.items() for word in (f"--{key}", value)))
    assert said.status == ERRORS[error] and str(caught.value) in said.err


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_path_is_refused(name):
    """Text is taken for a path, whose length the system may refuse, and a file for the paths that are its lines."""
    call = getattr(generator, name)
    Path("family.yaml").write_text(BASE)
    with open("family.yaml", encoding="utf-8") as file:
        for given in ({"summary": "x"}, b"family.yaml", 3, None, [3], [None], BASE, BASE + "# a comment\n" * 50, file):
            with pytest.raises(generator.CallError, match="a spec is given by the path of its file, got "):
                call(given)
    with pytest.raises(generator.CallError, match="no spec given"):
        call([])
    with pytest.raises(generator.FileError, match=r"xxx: cannot be read: File name too long"):
        call("x" * 300)
    spec = GENERATED / "ladder" if name == "verify" else ROOT / "specs" / "ladder.yaml"
    with pytest.raises(generator.CallError, match="only: expected a pattern of names, got 3"):
        call(spec, only=3)
    for out in (None, 3) if name != "variants" else ():
        with pytest.raises(generator.CallError, match=f"out: expected the path of a folder, got {out}"):
            call(spec, out)
    for package in ("wheel",) if name in ("render", "check") else ():
        with pytest.raises(generator.CallError, match="package: 'wheel' is not known; legal: torch, plain, files"):
            call("family.yaml", package=package)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ["statik"]}, "there is no level 'statik'; did you mean 'static'?"),
        ({"levels": ["compile"], "targets": ["h100"]}, "there is no target 'h100'; h100 is a GPU of sm90"),
        ({"coverage": "some"}, "coverage: expected all, pairs"),
        *(({"shard": each}, f"from 1 to N, got {each!r}") for each in ((3, 2), (0, 2), "1/2")),
        ({"levels": "static"}, "levels: expected several words, as in ['static'], got 'static'"),
        ({"levels": ["compile"], "targets": "sm90"}, "targets: expected several words, as in ['sm90'], got 'sm90'"),
        *(({"jobs": each}, f"jobs: expected a whole number from 1 to 1024, got {each!r}") for each in (0, "2")),
        ({"case": 3}, "case: expected a pattern of names, got 3"),
    ],
)
def test_a_wrong_call_of_verify(options, message):
    with pytest.raises(generator.CallError, match=re.escape(message)):
        generator.verify(GENERATED / "ladder", **options)


def test_verify_returns_what_it_found_and_prints_nothing(tmp_path, capsys, cli):
    Path("family.yaml").write_text(BASE)
    (folder,) = generator.render("family.yaml").families
    events = []
    right = generator.verify("family.yaml", levels=["static"], report=events.append)
    assert right.ok and [result.job.name for result in right.results] == list(folder.kernels) and not right.stopped
    assert isinstance(events[0], generator.VerificationPlan) and events[1:] == list(right.results)
    path = folder.folder / f"{folder.kernels[0]}.py"
    path.write_text(path.read_text() + "x = y\n")
    wrong = generator.verify(folder.folder, levels=["static"])
    assert not wrong.ok and wrong.failed == wrong.results and wrong.results[0].failures[0].case
    spoken = capsys.readouterr()
    assert spoken.out == spoken.err == ""
    assert cli("verify", folder.folder, "--level", "static").status == 1
