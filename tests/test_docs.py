"""README.md and docs/: what they take from code and data is what `python docs/pages.py` makes; commands are legal."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from generator import cli
from generator.bench import cli as bench_cli
from generator.bench import plot
from generator.tune import cli as tune_cli
from tests.helpers import support

ROOT = support.ROOT
pages = support.pages()
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages.PAGES}
#: What a path in the text may begin with. Pages call the folder of measurements by its own name.
FOLDERS = {
    "measured": pages.MEASURED,
    **{n: ROOT / n for n in ("generator", "specs", "generated", "templates", "tests", "docs")},
}


@functools.cache
def _made(name: str) -> str:
    """Each table is made once, however many pages hold it."""
    return pages.TABLES[name]().strip()


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page, text in TEXTS.items() for name in pages.tables(text)]
)
def test_a_table_is_what_its_command_makes(page: str, name: str) -> None:
    assert pages.table(name, TEXTS[page]) == _made(name), "renew it: python docs/pages.py"


def test_every_table_stands_on_a_page() -> None:
    assert {name for text in TEXTS.values() for name in pages.tables(text)} == pages.TABLES.keys()
    # A marker that is misspelt would leave its table unchecked.
    markers = sum(len(re.findall(r"^<!-- (?:table|end of)", text, re.M)) for text in TEXTS.values())
    assert markers == 2 * sum(len(list(pages.tables(text))) for text in TEXTS.values())


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page, text in TEXTS.items() for number, _ in enumerate(pages.consoles(text))],
)
def test_a_command_prints_what_stands_behind_it(page: str, number: int) -> None:
    block = list(pages.consoles(TEXTS[page]))[number]
    assert pages.console(block) == block, "renew it: python docs/pages.py"


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles C++")
@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if "```pycon" in text])
def test_a_session_prints_what_stands_in_it(page: str, tmp_path: Path, cli: Callable[..., support.Spoken]) -> None:
    """All `pycon` blocks of a page are one session, with the families that the page renders."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for command in _commands(TEXTS[page]):
        assert cli(*command).status == 0
    lines, inside = [], False
    for line in TEXTS[page].splitlines():
        inside = line != "```" if inside else line == "```pycon"
        lines.append(line if inside and line != "```pycon" else "")
    # Empty lines in the place of all others keep the numbers of lines.
    (tmp_path / "session.txt").write_text("\n".join(lines), encoding="utf-8")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "doctest", "session.txt"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_every_plot_is_on_a_page_and_small() -> None:
    shown = {name for text in TEXTS.values() for name in re.findall(r"!\[[^]]+\]\((?:docs/)?plots/(\w+)\.svg\)", text)}
    assert shown == pages.PLOTS.keys() == {path.stem for path in pages.PLOT_FOLDER.iterdir()}
    assert max(path.stat().st_size for path in pages.PLOT_FOLDER.iterdir()) < 200_000


@pytest.mark.parametrize("name", pages.PLOTS)
def test_a_plot_is_of_the_committed_measurements(name: str, tmp_path: Path) -> None:
    committed = (pages.PLOT_FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    digest = plot.digest(pages.plotted(name))
    assert f"sha256 of the measurements shown: {digest}" in committed, "renew it: python docs/pages.py"
    version = re.search(r"Matplotlib v([\d.]+),", committed)
    matplotlib = pytest.importorskip("matplotlib")
    assert version is not None
    if matplotlib.__version__ == version[1]:
        pages.draw(name, tmp_path / "again.svg")
        assert (tmp_path / "again.svg").read_text(encoding="utf-8") == committed, "renew it: python docs/pages.py"


def test_a_digest_tells_other_measurements() -> None:
    whole = pages.plotted("fused")
    assert plot.digest(replace(whole, ratios=whole.ratios[1:])) != plot.digest(whole)


@pytest.mark.parametrize("page", TEXTS)
def test_a_table_has_at_most_seven_columns(page: str) -> None:
    rows = [line for line in TEXTS[page].splitlines() if re.match(r"\|( ?:?-+:? ?\|)+$", line)]
    assert all(row.count("|") - 1 <= 7 for row in rows)


def _commands(text: str) -> list[list[str]]:
    """The arguments of each `python -m generator` in the page's blocks."""
    blocks = re.findall(r"```(?:bash|console)\n(.*?)```", text.replace("\\\n", ""), re.S)
    lines = [re.split(r"&&|;|\|", line.removeprefix("$ "))[-1] for block in blocks for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.lstrip().startswith("python -m generator")]
    return [found[3 : found.index(">") if ">" in found else None] for found in words]


COMMANDS = [(page, command) for page, text in TEXTS.items() for command in _commands(text)]


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: value if isinstance(value, str) else None)
def test_a_command_that_is_shown_has_options_that_exist(page: str, command: list[str]) -> None:
    parsers: dict[str, Callable[[list[str]], object]] = {"bench": bench_cli.parse, "tune": tune_cli.parse}
    if command[0] in parsers:
        parsers[command[0]](command[1:])
    elif command[0] in cli.COMMANDS:
        parser = importlib.import_module(cli.COMMANDS[command[0]]).parser
        assert isinstance(parser().parse_args(command[1:]), argparse.Namespace)
    else:
        cli.parser().parse_args(command)


@pytest.mark.parametrize("page", TEXTS)
def test_a_path_that_is_named_exists(page: str) -> None:
    named = set(re.findall(rf"(?<![\w/.~-])((?:{'|'.join(FOLDERS)})/[\w./*-]*[\w/*])", TEXTS[page]))
    for path in named:
        folder, _, rest = path.partition("/")
        if not re.search(r"[A-Z]{4}", rest.replace("README", "")):
            assert list(FOLDERS[folder].glob(rest)) if rest else FOLDERS[folder].is_dir(), f"{page} names {path}"


def test_the_readme_is_short() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 250


def test_a_link_of_the_readme_leads_somewhere() -> None:
    """Sphinx looks after the links of the other pages."""
    links = re.findall(r"\]\(([^)]+)\)", TEXTS["README.md"])
    assert links
    for link in links:
        path, _, heading = link.partition("#")
        headings = re.findall(r"^#+ (.*)$", TEXTS.get(path, ""), re.M)
        slugs = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
        assert (ROOT / path).is_file() and (not heading or heading in slugs), link
