"""What commands write besides families: a spec by `new`, and git's index by `--stage` and the hooks of pre-commit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from generator.emit import staging
from generator.language import schema
from generator.language.spec import read
from tests.helpers.support import BASE, LONGEST, ROOT, Spoken, contents, files_of


def git(*arguments, cwd, status=0):
    """What git prints; fails unless it ends with `status`."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    call = ["git", *identity, *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    done = subprocess.run(call, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path):
    git("init", "-q", cwd=tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "linear.yaml").write_text(f"{BASE}epilogue: [none, bias]\n")
    return tmp_path


def test_what_is_rendered_is_staged_and_nothing_else(repository, cli):
    assert cli("--all", "--stage").status == 0
    (repository / "generated" / "linear" / "notes.txt").write_text("mine")
    staged = git("diff", "--cached", "--name-only", cwd=repository).split()
    folder = repository / "generated" / "linear"
    files = sorted(path.relative_to(repository).as_posix() for path in folder.rglob("*") if path.is_file())
    assert sorted(staged) == [name for name in files if not name.endswith("notes.txt")]
    git("commit", "-q", "-m", "one", cwd=repository)
    # A kernel that is gone is staged as removed.
    (repository / "specs" / "linear.yaml").write_text(BASE)
    assert cli("--all", "--stage").status == 0
    changes = git("diff", "--cached", "--name-status", cwd=repository)
    assert "D\tgenerated/linear/gemm_fp16_rcr_bias__tiled_pointer_auto_grouped.py" in changes
    assert "notes.txt" not in changes


def test_without_a_repository(tmp_path, cli, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    Path("family.yaml").write_text(BASE)
    said = cli("family.yaml", "--stage")
    assert said.status == 1 and said.err.startswith("--stage: fatal: not a git repository")


def test_another_process_that_has_the_index(repository, cli, monkeypatch):
    lock = repository / ".git" / "index.lock"
    lock.write_text("")
    monkeypatch.setattr(staging, "_PATIENCE", 0.0)
    said = cli("--all", "--stage")
    assert said.status == 1 and said.err.startswith("--stage: another process has had git's index for ")
    assert "and nothing was added; when it has ended, give the same command again: " in said.err
    # It ends while this process waits.
    monkeypatch.setattr(staging, "_PATIENCE", 60.0)
    monkeypatch.setattr(staging.time, "sleep", lambda seconds: lock.unlink(missing_ok=True))
    assert cli("--all", "--stage").status == 0
    assert "generated/linear/manifest.json" in git("diff", "--cached", "--name-only", cwd=repository)


def test_a_checkout_keeps_the_line_ends(repository, cli, tmp_path_factory):
    assert cli("--all", "--stage").status == 0
    git("add", "specs", cwd=repository)
    git("commit", "-q", "-m", "one", cwd=repository)
    clone = tmp_path_factory.mktemp("clone") / "clone"
    git("clone", "-q", "-c", "core.autocrlf=true", repository, clone, cwd=repository)
    assert b"\r\n" in (clone / "specs" / "linear.yaml").read_bytes()
    assert not any(b"\r" in path.read_bytes() for path in files_of(clone / "generated" / "linear"))
    assert cli(clone / "specs" / "linear.yaml", "--out", clone / "generated", "--check").status == 0


@pytest.mark.install
def test_the_hooks_check_and_render(repository, tmp_path_factory):
    """As another project uses them: pre-commit installs the generator from its repository."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "-q", "pre-commit>=4"], check=True)
    # The hooks of the work tree, committed or not.
    source = tmp_path_factory.mktemp("source")
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not name.startswith(("generated/", "measured/", "tests/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    git("init", "-q", cwd=source)
    git("add", "-A", cwd=source)
    git("commit", "-q", "-m", "source", cwd=source)
    revision = git("rev-parse", "HEAD", cwd=source).strip()

    def use(hook):
        text = f"repos:\n  - repo: {source}\n    rev: {revision}\n    hooks: [{{id: {hook}}}]\n"
        (repository / ".pre-commit-config.yaml").write_text(text)

    def commit(status):
        git("add", "specs", ".pre-commit-config.yaml", cwd=repository)
        home = {"PRE_COMMIT_HOME": str(environment / "cache")}
        done = subprocess.run(
            [environment / "bin" / "pre-commit", "run"],
            cwd=repository,
            env={**os.environ, **home},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    use("gemm-check")
    assert "would be created" in commit(1) and not (repository / "generated").exists()
    use("gemm-render")
    assert "Passed" in commit(0)
    assert "generated/linear/manifest.json" in git("diff", "--cached", "--name-only", cwd=repository)
    use("gemm-check")
    assert "Passed" in commit(0)


@pytest.mark.parametrize("select", ["heuristic", "fastest"])
def test_every_key_in_a_comment_may_be_used(cli, select):
    assert cli("new", "family", "--select", select).status == 0
    path = Path("family.yaml")
    path.write_text(re.sub(r"^# (\w+: \w+)$", r"\1", path.read_text(), flags=re.M))
    assert len(read(path).positions) > 12
    assert cli("family.yaml", "--list").status == 0


def test_values_are_written_as_in_a_spec(cli):
    told = 'x: "y" \\ # z'
    said = cli("new", "c", "--dtype", "[{a: fp16, out: fp32}, bf16]", "--layout", "[rcr, rrr]", "--summary", told)
    assert (said.status, read(Path("c.yaml")).summary) == (0, told)
    types = ("--dtype", "[{a: fp16, out: fp32}, bf16]", "--layout", "[rcr, rrr]", "--epilogue", "bias+gelu")
    assert cli("new", "d", *types).status == 0 and cli("new", "e").status == 0
    assert read(Path("e.yaml")).summary == "bf16 GEMM, A row-major, B column-major, C row-major."
    assert Path(schema.FILE).read_text() == schema.text()
    assert read(Path("d.yaml")).summary == "fp16_fp32_fp32 or bf16 GEMM, in several layouts, with epilogue bias+gelu."


def test_a_folder_that_is_not_there_is_told(cli, tmp_path):
    told = "missing/family.yaml: cannot be written: No such file or directory\n"
    assert cli("new", "missing/family.yaml") == Spoken(1, "", told)
    assert contents(tmp_path) == {}


def test_nothing_is_overwritten(cli):
    Path("mine.yaml").write_text("mine")
    said = cli("new", "mine")
    assert said == Spoken(1, "", "mine.yaml: is there already, and is never overwritten; choose another name\n")
    assert Path("mine.yaml").read_text() == "mine" and not Path(schema.FILE).exists()
    Path(schema.FILE).write_text("{}")
    assert "gemm.schema.json: kept; to renew it: python -m generator schema > gemm.schema.json" in cli("new", "n").err
    assert Path(schema.FILE).read_text() == "{}"
