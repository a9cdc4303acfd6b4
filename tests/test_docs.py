"""README.md and docs/: what they take from code and data is what `python docs/pages.py` makes; commands are legal."""

import argparse
import functools
import importlib
import json
import os
import re
import shlex
import shutil

import pytest
from packaging.specifiers import SpecifierSet

from generator.bench import plot
from generator.commands import COMMANDS, bench, render, tune
from generator.emit import manifest_reader, manifest_schema
from generator.language.versions import minor_versions
from generator.verify import proof_records
from tests.helpers import shipped, support

ROOT = support.ROOT
pages = support.pages()
figures = pages.figures
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages.PAGES}
#: What a path in the text may begin with. Pages call the folder of measurements by its own name.
FOLDERS = {
    "measured": pages.MEASURED,
    **{n: ROOT / n for n in ("generator", "specs", "generated", "templates", "tests", "docs")},
}


@functools.cache
def _made(name):
    """Each table is made once, however many pages hold it."""
    return pages.TABLES[name]().strip()


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page, text in TEXTS.items() for name in pages.tables(text)]
)
def test_a_table_is_what_its_command_makes(page, name):
    made = "" if name in pages.BUILT else _made(name)
    assert pages.table(name, TEXTS[page]) == made, "renew it: python docs/pages.py"


@pytest.mark.parametrize("path", sorted((pages.MEASURED / "proofs").glob("*.json")), ids=lambda path: path.stem)
def test_a_record_of_proofs_is_of_kernels_as_they_are(path):
    """What is recorded of an earlier form of every kernel proves nothing: no page may count it."""
    recorded = proof_records.read(path).proved
    assert 2 * len(recorded.keys() & figures._current()) > len(recorded)


def test_every_kernel_is_proved_as_far_as_the_pages_say():
    """On a GPU and on each Triton version that it is for: a kernel that has changed since must be proved anew."""
    families = [manifest_reader.read(folder) for folder in shipped.folders()]
    assert "run on an NVIDIA H200 or an H100: every kernel of `specs/` that is for it; " in TEXTS["docs/proving.md"]
    proved = {}
    for record in map(proof_records.read, (pages.MEASURED / "proofs").glob("*.json")):
        minor = ".".join(record.place["triton"].split(".")[:2])
        for subject, levels in record.proved.items():
            stand = {f"{level} {minor}" for level, figures in levels.items() if proof_records.complete(figures)}
            proved.setdefault(subject, set()).update(stand)
    for family in families:
        for subject in proof_records.current([family]):
            kernel = family.by_name[subject.kernel]
            minors = minor_versions(SpecifierSet(kernel.triton))
            # Of device code alone, what is compiled: by all pairs of values, not of each kernel.
            wanted = {f"interpret {minor}" for minor in minors} if subject.host else set()
            if subject.host and "sm90" in kernel.targets:
                wanted.add("gpu 3.6")
            missing = wanted - proved.get(subject, set())
            assert not missing, f"{kernel.name}: {missing}"


def test_every_table_stands_on_a_page():
    assert {name for text in TEXTS.values() for name in pages.tables(text)} == pages.TABLES.keys()
    # A marker that is misspelt would leave its table unchecked.
    markers = sum(len(re.findall(r"^<!-- (?:table|end of)", text, re.M)) for text in TEXTS.values())
    assert markers == 2 * sum(len(list(pages.tables(text))) for text in TEXTS.values())


FIGURES = [(page, *found) for page, text in TEXTS.items() for found in figures.PATTERN.findall(text)]


@pytest.mark.parametrize(("page", "shown", "words"), FIGURES)
def test_a_figure_is_what_the_data_says(page, shown, words):
    assert shown == figures.figure(words), "renew it: python docs/pages.py"


def test_every_figure_has_a_comment_that_makes_it():
    # One that is misspelt, or not behind a figure, would leave it unchecked.
    assert sum(text.count("<!-- figure") for text in TEXTS.values()) == len(FIGURES)
    # Arguments may be given in vain: each function is of use somewhere.
    assert {words.split()[0] for _, _, words in FIGURES} == figures.FIGURES.keys()


#: What is said of kernels, launches, cases or sizes in a sentence, and follows from no file: limits of the program,
#: examples, and measurements of which pages have the result alone.
NOT_FROM_DATA = {"docs/changelog.md": {"10,000 sizes"}}
_COUNTED = re.compile(
    r"(?<![\w.,x-])(\d[\d,]*)((?: [a-z0-9`/*-]+)?) (kernels|launches|cases|accesses|sizes|functions)\b"
)
_MADE = re.compile(r"<!-- table: .*?<!-- end of table -->|^```.*?^```$|" + figures.PATTERN.pattern, re.M | re.S)


@pytest.mark.parametrize("page", TEXTS)
def test_a_number_of_kernels_or_sizes_is_made_from_data(page):
    found = {"".join((*each[:2], " ", each[2])) for each in _COUNTED.findall(_MADE.sub("", TEXTS[page]))}
    assert found == NOT_FROM_DATA.get(page, set()), "put a comment behind it: docs/figures.py"


def test_the_coverage_that_is_told_is_of_the_kernels_as_they_are():
    script = support.module(ROOT / "measured" / "scripts" / "coverage.py")
    kept = json.loads((ROOT / "measured" / "coverage.json").read_text())
    assert kept["kernels"] == script.digest(script.rendered()), "renew it by measured/scripts/coverage.py"


def test_the_table_of_speed_says_how_often_a_peer_is_faster():
    """README.md shows what decides: at how many of the sizes the kernels are slower."""
    head, _, *rows = pages.table("speed", TEXTS["README.md"]).splitlines()
    sizes, slower = (head.split(" | ").index(word) for word in ("sizes", "slower"))
    counts = {row.split(" | ")[0]: [int(row.split(" | ")[i]) for i in (sizes, slower)] for row in rows}
    assert all(many >= few >= 0 for many, few in counts.values())
    first = "| fp16 and bf16, four layouts, aligned sizes"
    of, fewer = (figures.figure(f"{words} speed */*[!d]") for words in ("sizes", "under 1"))
    assert counts[first] == [int(of), int(fewer)]


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page, text in TEXTS.items() for number, _ in enumerate(pages.consoles(text))],
)
def test_a_command_prints_what_stands_behind_it(page, number):
    block = list(pages.consoles(TEXTS[page]))[number]
    assert pages.console(block) == block, "renew it: python docs/pages.py"


def _sessions():
    """Each page with a session, less the blocks that compile a program to a file, which takes long; whole on demand."""
    for page, text in TEXTS.items():
        if "```pycon" in text:
            # A session with libraries of their own fails without them.
            needs = pytest.mark.ecosystem if _LIBRARIES.search(text) else ()
            yield pytest.param(page, False, id=page, marks=needs)
            if _COMPILED in text:
                yield pytest.param(page, True, id=f"{page} whole", marks=pytest.mark.operators)


#: What the blocks of a session have that compile a program to a file, or load it.
_COMPILED = ".pt2"
#: What a session imports that only the marker `ecosystem` has.
_LIBRARIES = re.compile(r"^>>> (?:from|import) (?:accelerate|peft|torchao|transformers)\b", re.M)
#: A spec that a page gives the name of a file.
_SPEC = re.compile(r"^```yaml\n# (\w+\.yaml)\n.*?^```$", re.M | re.S)
_PYCON = re.compile(r"^```pycon\n.*?^```$", re.M | re.S)


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles C++")
@pytest.mark.parametrize(("page", "whole"), [*_sessions()])
def test_a_session_prints_what_stands_in_it(page, whole, tmp_path, cli):
    """All `pycon` blocks of a page are one session, with the families that the page renders."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    text = TEXTS[page]
    for spec in _SPEC.finditer(text):
        (tmp_path / spec[1]).write_text(spec[0].removeprefix("```yaml\n").removesuffix("```"), encoding="utf-8")
        assert cli(spec[1], "--out", "gemms").status == 0
    for command in _commands(text):
        if command[0] not in ("tune", "bench"):
            assert cli(*command).status == 0
    if not whole:
        text = _PYCON.sub(lambda block: re.sub(r".+", "", block[0]) if _COMPILED in block[0] else block[0], text)
    lines, inside = [], False
    for line in text.splitlines():
        inside = line != "```" if inside else line == "```pycon"
        lines.append(line if inside and line != "```pycon" else "")
    # Empty lines in the place of all others keep the numbers of lines.
    (tmp_path / "session.txt").write_text("\n".join(lines), encoding="utf-8")
    own = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = support.python("-m", "doctest", "session.txt", cwd=tmp_path, env={"TRITON_INTERPRET": "1", **own})
    assert done.returncode == 0, done.stdout


def test_the_reference_has_every_key_of_a_manifest():
    table = TEXTS["docs/reference.md"].partition("## Keys of manifest.json")[2]
    named = {word for row in re.findall(r"^\| (.*?) \|", table, re.M) for word in re.findall("`([a-z_]+)`", row)}
    assert named == manifest_schema.SCHEMA.contents["properties"].keys()


def test_the_cookbook_has_a_spec_and_a_call_for_each_task():
    _, *tasks = re.split(r"^## ", TEXTS["docs/cookbook.md"], flags=re.M)
    assert len(tasks) == 12 and all(_SPEC.search(task) or "docs/examples/" in task for task in tasks)
    assert all("```pycon\n" in task or "```console\n" in task for task in tasks)


def test_every_plot_is_on_a_page_and_small():
    shown = {name for text in TEXTS.values() for name in re.findall(r"!\[[^]]+\]\((?:docs/)?plots/(\w+)\.svg\)", text)}
    assert shown == pages.PLOTS.keys() == {path.stem for path in pages.PLOT_FOLDER.iterdir()}
    assert max(path.stat().st_size for path in pages.PLOT_FOLDER.iterdir()) < 200_000


@pytest.mark.parametrize("name", pages.PLOTS)
def test_a_plot_is_of_the_committed_measurements(name, tmp_path):
    committed = (pages.PLOT_FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    digest = plot.digest(pages.plotted(name))
    assert f"sha256 of the measurements shown: {digest}" in committed, "renew it: python docs/pages.py"
    version = re.search(r"Matplotlib v([\d.]+),", committed)
    matplotlib = pytest.importorskip("matplotlib")
    if matplotlib.__version__ == version[1]:
        pages.draw(name, tmp_path / "again.svg")
        again = (tmp_path / "again.svg").read_text(encoding="utf-8")
        # Names of clipping paths are digests of floats, whose last bit differs between machines.
        drawn, wanted = (re.sub(r"\bp[0-9a-f]{10}\b", "clip", text) for text in (again, committed))
        assert drawn == wanted, "renew it: python docs/pages.py"


@pytest.mark.parametrize("page", TEXTS)
def test_a_table_has_at_most_seven_columns(page):
    rows = [line for line in TEXTS[page].splitlines() if re.match(r"\|( ?:?-+:? ?\|)+$", line)]
    assert all(row.count("|") - 1 <= 7 for row in rows)


def _commands(text):
    """The arguments of each `python -m generator` in the page's blocks."""
    blocks = re.findall(r"```(?:bash|console)\n(.*?)```", text.replace("\\\n", ""), re.S)
    lines = [re.split(r"&&|;|\|", line.removeprefix("$ "))[-1] for block in blocks for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.lstrip().startswith("python -m generator")]
    return [found[3 : found.index(">") if ">" in found else None] for found in words]


SHOWN = [(page, command) for page, text in TEXTS.items() for command in _commands(text)]


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=lambda value: value if isinstance(value, str) else None)
def test_a_command_that_is_shown_has_options_that_exist(page, command):
    parsers = {"bench": bench.parse, "tune": tune.parse}
    if command[0] in parsers:
        parsers[command[0]](command[1:])
    elif command[0] in COMMANDS:
        parser = importlib.import_module(f"generator.commands.{command[0]}").parser
        assert isinstance(parser().parse_args(command[1:]), argparse.Namespace)
    else:
        render.parser().parse_args(command)


@pytest.mark.parametrize("page", TEXTS)
def test_a_path_that_is_named_exists(page):
    named = set(re.findall(rf"(?<![\w/.~-])((?:{'|'.join(FOLDERS)})/[\w./*-]*[\w/*])", TEXTS[page]))
    for path in named:
        folder, _, rest = path.partition("/")
        if not re.search(r"[A-Z]{4}", rest.replace("README", "")):
            assert list(FOLDERS[folder].glob(rest)) if rest else FOLDERS[folder].is_dir(), f"{page} names {path}"


def test_the_readme_is_short():
    assert len(TEXTS["README.md"].splitlines()) <= 140


def test_a_link_of_the_readme_leads_somewhere():
    """Sphinx looks after the links of the other pages."""
    links = re.findall(r"\]\(([^)]+)\)", TEXTS["README.md"])
    assert links
    for link in links:
        path, _, heading = link.partition("#")
        headings = re.findall(r"^#+ (.*)$", TEXTS.get(path, ""), re.M)
        slugs = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
        assert (ROOT / path).is_file() and (not heading or heading in slugs), link


def test_long_tables_are_built_with_the_site():
    page = pages.built(TEXTS["docs/benchmarks.md"])
    assert all(pages.table(name, page).count("\n") > 5 for name in pages.BUILT)
    assert all(pages.table(name, page) for name in pages.tables(page))
