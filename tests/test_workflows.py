"""The workflows that docs/ gives for CI: each command is one that exists, with the arguments that the inputs make."""

import os
import re
import subprocess

import pytest
import yaml

from generator.commands import render
from generator.verify.result_cache import NAME
from tests.helpers.support import ROOT

EXAMPLES = ROOT / "docs" / "examples"
#: Stands for `python` and `pip`: prints its name and arguments, a line each.
STUB = '#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@" END\n'


def calls(script, folder, **variables):
    """The commands that a script of CI runs, with their arguments."""
    for name in ("python", "pip"):
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **variables}
    done = subprocess.run(["bash", "-eu", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return [found.split("\n") for found in re.split(r"\nEND\n", done.stdout) if found]


def folder_of(tmp_path):
    for name in ("specs/one.yaml", "specs/two.yaml", "generated/one/x", "generated/two/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


WANTED = [
    ["pip", "install", "gemm-generator @ git+https://example.org/gemm-generator@COMMIT"],
    ["python", "-m", "generator", "specs/one.yaml", "specs/two.yaml", "--out", "generated", "--check"],
    ["pip", "install", "torch", "--index-url", "https://download.pytorch.org/whl/cpu"],
    ["pip", "install", "gemm-generator[verify] @ git+https://example.org/gemm-generator@COMMIT"],
    [
        *("python", "-m", "pytest", "--gemm-family", "generated/one", "--gemm-family", "generated/two"),
        *("--gemm-shard", "2/2", "--junit-xml", "verify.xml"),
    ],
]


@pytest.fixture
def github():
    # PyYAML reads `on` as true.
    found = yaml.safe_load((EXAMPLES / "github.yml").read_text())
    return found


def ran_by_github(workflow, tmp_path, **given):
    """The commands of all jobs, with these inputs and the defaults of the others."""
    inputs = {name: entry["default"] for name, entry in workflow[True]["workflow_call"]["inputs"].items()}
    assert given.keys() <= inputs.keys()
    known = {"matrix.shard": "2", "strategy.job-total": "2"}
    known |= {f"inputs.{name}": text for name, text in (inputs | given).items()}
    ran = []
    for job in workflow["jobs"].values():
        expression = re.compile(r"\${{ (.*?) }}")
        variables = {name: expression.sub(lambda found: known[found[1]], text) for name, text in job["env"].items()}
        for step in job["steps"]:
            # An expression in a script would be text that the shell runs.
            assert "${{" not in step.get("run", "")
            ran += calls(step["run"], folder_of(tmp_path), **variables) if "run" in step else []
    return ran


def test_the_workflow_for_github(github, tmp_path):
    assert ran_by_github(github, tmp_path) == WANTED
    render.parser().parse_args(WANTED[1][3:])


def test_the_call_that_is_shown_checks_the_folder_that_it_names(github, tmp_path):
    page = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")
    shown = next(found for found in re.findall(r"```yaml\n(.*?)```", page, re.S) if "uses: ./.github" in found)
    given = yaml.safe_load(shown)["jobs"]["kernels"]["with"]
    install, check, *_ = ran_by_github(github, tmp_path, **given)
    # Without its extra a requirement keeps its address.
    assert install == ["pip", "install", given["requirement"].replace("[verify]", "")]
    assert check[-3:] == ["--out", given["out"], "--check"]
    assert all(family.startswith(f"{given['out']}/") for family in given["families"].split())


def test_the_template_for_gitlab(tmp_path):
    found = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())
    variables = {**found.pop("variables"), "CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "2"}
    scripts = [line for job in found.values() for line in job["script"]]
    assert [call for line in scripts for call in calls(line, folder_of(tmp_path), **variables)] == WANTED


def test_github_stores_what_passed_from_the_default_branch_alone(github):
    steps = github["jobs"]["proved"]["steps"]
    uses = [step.get("uses", "pytest" if "pytest" in step.get("run", "") else "") for step in steps]
    restore, proofs, save = (uses.index(x) for x in ("actions/cache/restore@v4", "pytest", "actions/cache/save@v4"))
    # Before the proofs and after them; an action that both restores and saves would store any branch's results.
    assert restore < proofs < save and uses.count("pytest") == 1
    restored, saved, when = steps[restore]["with"], steps[save]["with"], steps[save]["if"]
    assert restored["path"] == saved["path"] == "~/.cache/gemm-generator"
    assert saved["key"] == restored["key"] and restored["key"].startswith(restored["restore-keys"])
    assert "github.event_name != 'pull_request'" in when and "repository.default_branch" in when
    assert not any(step.get("uses", "").startswith("actions/cache@") for step in steps)


def test_gitlab_restores_what_passed_and_stores_it_where_that_is_set(tmp_path):
    found = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())
    job = found["gemm-proved"]
    assert found["variables"]["GEMM_CACHE_POLICY"] == "pull" and job["cache"]["policy"] == "$GEMM_CACHE_POLICY"
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project):
        folder.mkdir()

    def run(part):
        variables = {**os.environ, "HOME": str(home)}
        ran = subprocess.run(
            ["bash", "-eu", "-c", "\n".join(job[part])], cwd=project, env=variables, capture_output=True
        )
        assert ran.returncode == 0, ran.stderr

    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    run("before_script")
    own = home / ".cache" / "gemm-generator"
    assert own.is_dir() and not any(own.iterdir())
    (own / "verify").mkdir()
    (own / "verify" / NAME).write_text("x")
    run("after_script")
    assert [job["cache"]["paths"][0]] == [path.name for path in project.iterdir() if path.name != ".git"]
    (own / "verify" / NAME).unlink()
    run("before_script")
    assert (own / "verify" / NAME).read_text() == "x"
    (own / "verify" / NAME).unlink()
    subprocess.run(["git", "add", "-f", ".gemm-cache"], cwd=project, check=True)
    run("before_script")
    assert not (own / "verify" / NAME).exists(), "what a commit has is not believed"


@pytest.mark.parametrize(
    "hook", yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()), ids=lambda hook: hook["id"]
)
def test_a_hook_is_a_command_that_exists(hook):
    name, *arguments = hook["entry"].split()
    assert name == "gemm-generator" and f"| `{hook['id']}` |" in (ROOT / "docs" / "automation.md").read_text()
    render.parser().parse_args([*arguments, *hook["args"]])


def test_no_page_installs_the_generator_from_an_index():
    """It is on none: a checkout, a wheel's file, or an address with a commit."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *EXAMPLES.iterdir()]
    for path in (*pages, *(ROOT / "generator").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"gemm-generator\[[a-z,]+\](?! @ )", text), path
        assert not re.search(r"pip install (-\S+ )*['\"]?gemm-generator(?![\[/]| @)", text), path
        # There are no tags: what is pinned is a commit.
        assert path not in pages or not re.search(r"(rev: |gemm-generator@)v\d", text), path
