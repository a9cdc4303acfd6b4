"""What docs/contributing.md says of a new schedule and a new load: a file and a word, which handles what it claims."""

import re
import shutil

import jinja2
import pytest

from generator.emit import render, schedule_template
from generator.language import vocabulary
from generator.language.features import CHAINS, SEVERAL, STORED, Feature
from generator.language.word_traits import Schedule
from tests.helpers.support import ROOT, called, python, spec

RECIPE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8").split("## A new schedule")[1]
#: The template that the recipe shows, and its word as it stands.
LOOPED = "".join(
    line[3:] if line.startswith("   ") else line
    for line in re.findall(r"```jinja\n(.*?)\n   ```", RECIPE, re.S)[0].splitlines(keepends=True)
)
WORD = re.findall(r'"looped": Schedule\(.*\),\n', RECIPE)[0]
INT4 = "dtype: {a: bf16, b: int4, scales: {b: [128, 1]}}\nproduct: exchanged"
TF32 = "dtype: tf32\nlayout: ccr"


class Overlay:
    """The templates and words with a schedule `looped`, in this process."""

    def __init__(self, capsys, patch, folder):
        self.capsys, self.patch, self.folder = capsys, patch, folder
        self.texts = {"looped.py.j2": LOOPED}
        self.claims()
        environment = render.environment()
        own = jinja2.ChoiceLoader([jinja2.DictLoader(self.texts), *filter(None, [environment.loader])])
        patch.setattr(environment, "loader", own)

    def claims(self, *features):
        """Let the word handle these."""
        word = Schedule("one program computes one tile, in a loop of its own", handles=features)
        self.patch.setitem(vocabulary.SCHEDULE, "looped", word)

    def call(self, keys, *options):
        """A call of the command line on a spec of the schedule, by default one that renders it."""
        forget()
        plain = "".join(f"{line}\n" for line in ("layout: rcr", "dtype: fp16") if line.split(":")[0] not in keys)
        path = self.folder / "loops.yaml"
        path.write_text(f"summary: A loop.\nschedule: looped\ntargets: [sm90]\n{plain}{keys}\n")
        return called(self.capsys, path, *(options or ("--out", self.folder / "out")))

    def verified(self):
        """The level static of what is rendered."""
        return called(self.capsys, "verify", self.folder / "out" / "loops", "--level", "static")


def forget():
    """Let the next rendering read the templates again."""
    for cached in (schedule_template.checked, schedule_template._macros, render.macros_of):
        cached.cache_clear()


@pytest.fixture
def looped(capsys, monkeypatch, tmp_path):
    yield Overlay(capsys, monkeypatch, tmp_path)
    forget()


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        (INT4, "stored operands that a kernel converts"),
        ("dtype: {a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}", "stored operands with scales"),
        ('dtype: {a: bf16, sparsity: {b: "2:4"}}\nproduct: exchanged', "sparse stored operands"),
        (TF32, "products but those of 16 bits that are summed in fp32"),
        ("epilogue: swiglu", "gated linear units"),
        ("rounding: torch\nepilogue: relu", "epilogues"),
        ("batch: strided", "batches"),
        ("batch: grouped_k", "groups along K"),
        ("swizzle: linear", "orders of tiles but the default"),
        ("invariant: rows", "'invariant: rows'"),
    ],
)
def test_what_a_word_does_not_claim_is_refused(looped, keys, refused):
    for options in ((), ("--list",), ("--check",)):
        done = looped.call(keys, *options)
        assert done.status == 2 and f"schedule looped handles no {refused}" in done.err
        assert not (looped.folder / "out").exists()
    # What it does for a plain product is not what the refusal is about.
    assert looped.call("masking: [none, k, mnk, auto]").status == 0


def test_claims_of_a_template_with_the_macro_of_a_step_hold(looped):
    looped.claims(*STORED, *CHAINS, *SEVERAL, Feature.GATES, Feature.EXCHANGED, Feature.DESCRIPTORS, Feature.STORES)
    for keys in (INT4, TF32, "epilogue: [none, swiglu, bias+row_amax]\nload: [pointer, descriptor]\nstore: pointer"):
        assert looped.call(keys).status == 0
        assert looped.verified().status == 0
        kernels = [path.read_text() for path in (looped.folder / "out" / "loops").glob("gemm_*.py")]
        assert kernels and all("for pair in range(0, K, 2 * BLOCK_K):" in kernel for kernel in kernels)


@pytest.mark.parametrize(
    ("removed", "feature", "macro"),
    [
        ("tile.finish(k, load, store)", Feature.EPILOGUES, "tile.finish"),
        ("swizzle[k.swizzle]", Feature.ORDERS, "swizzle[k.swizzle]"),
        ("tile.end(k, load)", Feature.GROUPS_OF_K, "tile.end"),
        ("tile.step(k, load)", STORED[0], "tile.step"),
    ],
)
def test_each_claim_needs_its_macro(looped, removed, feature, macro):
    instead = {"tile.finish(k, load, store)": '""', "swizzle[k.swizzle]": "swizzle.grouped"}.get(removed, '""')
    looped.texts["looped.py.j2"] = LOOPED.replace(removed, instead)
    looped.claims(feature)
    done = looped.call("masking: auto")
    assert done.status == 2 and f"'looped' handles {feature.value}, but the template does not call {macro}" in done.err


@pytest.mark.parametrize("schedule", vocabulary.SCHEDULE)
def test_every_template_calls_what_does_what_its_word_claims(schedule):
    template = vocabulary.SCHEDULE[schedule].template or schedule
    assert schedule_template.checked(render.environment(), schedule).name == f"{template}.py.j2"


def test_a_template_that_is_missing_or_no_template_is_named(looped):
    looped.texts["looped.py.j2"] = "{% if %}"
    assert "templates/looped.py.j2:1: not a template" in looped.call("masking: auto").err
    del looped.texts["looped.py.j2"]
    assert "there is no templates/looped.py.j2, which 'looped' needs" in looped.call("masking: auto").err


@pytest.fixture
def checkout(tmp_path):
    """A copy of the generator and its templates."""
    for name in ("generator", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def put(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def ran(checkout, *call):
    """What a call there prints."""
    done = python("-m", "generator", *call, cwd=checkout, env={"PYTHONPATH": str(checkout)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("level", ["static", pytest.param("interpret", marks=pytest.mark.product)])
def test_the_recipe_makes_a_schedule_that_is_right(checkout, level):
    (checkout / "templates" / "looped.py.j2").write_text(f"{LOOPED}\n", encoding="utf-8")
    first = "SCHEDULE: Mapping[str, Schedule] = {\n"
    put(checkout / "generator" / "language" / "vocabulary.py", first, f"{first}    {WORD}")
    tile = "tile: [{m: 32, n: 32, k: 16, warps: 4}]"
    keys = f"summary: A loop.\nlayout: rcr\ndtype: fp16\nmasking: mnk\nschedule: looped\n{tile}\n"
    (checkout / "loops.yaml").write_text(keys)
    ran(checkout, "loops.yaml", "--out", "out")
    ran(checkout, "verify", "loops.yaml", "--out", "out", "--level", level)


LOADED = spec(
    "layout: [rcr, crr]; dtype: fp16; epilogue: [none, bias+add, swiglu]; masking: [none, auto]; "
    "schedule: [naive, tiled, persistent, split_k, stream_k]; load: [pointer, streamed]; "
    'exclude: [{schedule: naive, epilogue: swiglu, because: "one idea a step"}]'
)
LOADS = "LOAD: Mapping[str, Load] = {\n"
STREAMED = '    "streamed": Load("tiles of pointers, whose lines leave the cache first", rank=3),\n'
HANDLES = STREAMED.replace("rank=3", "rank=3, handles=(*_OPERANDS, Feature.STRIDED)")
POLICY = ', eviction_policy="evict_first"'


def test_a_load_is_a_file_and_a_word(checkout):
    words, loads = checkout / "generator" / "language" / "vocabulary.py", checkout / "templates" / "load"
    put(words, LOADS, LOADS + STREAMED)
    shutil.copy(loads / "pointer.j2", loads / "streamed.j2")
    end = "other={{ matrix.zero }}{% endif %})"
    put(loads / "streamed.j2", end, f"{end[:-1]}{POLICY})")
    (checkout / "loads.yaml").write_text(LOADED)
    # As it stands the word is for plain products, and each other one is refused with the reason.
    listed = ran(checkout, "loads.yaml", "--list")
    for refused in ("gated linear units", "epilogues", "programs that share the K of a tile"):
        assert f"load streamed handles no {refused}; use pointer" in listed
    put(words, STREAMED, HANDLES)
    ran(checkout, "loads.yaml", "--out", "out")
    found = sorted((checkout / "out" / "loads").glob("gemm_*_streamed_*.py"))
    # Two layouts and two maskings, of three chains by four schedules and of two by one.
    assert len(found) == 2 * 2 * (3 * 4 + 2)
    for path in found:
        _, _, text = path.read_text(encoding="utf-8").split("\n", 2)
        plain = path.with_name(path.name.replace("streamed", "pointer")).read_text(encoding="utf-8")
        assert POLICY in text
        assert text.replace(POLICY, "").replace("_streamed_", "_pointer_") == plain.split("\n", 2)[2], path.name
