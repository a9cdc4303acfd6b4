"""What a change of the library or of a macro changes in the families that are committed, and what stays proved.

A message or a comment of host code must ask for no GPU: the records of proofs and timings name digests of kernels, of
their configurations and of the tables of their calls.
"""

import jinja2
import pytest

from generator.emit import package_files, render
from generator.emit.apply import MANIFEST
from generator.emit.code_parts import parts
from generator.emit.job import RenderingJob
from generator.language.reserved_names import TEMPLATES
from generator.plan.families import families
from tests.helpers import shipped
from tests.helpers.support import ROOT, SPECS


def changes(specs):
    """The files of shipped families that rendering would change, each with its new text."""
    for family in families(specs):
        job = RenderingJob(family, shipped.folder(family.spec.name).parent, None, force=False)
        for name, text in job.files({}):
            path = job.folder / name
            if not path.exists() or path.read_text() != text:
                yield f"{family.spec.name}/{name}", text


@pytest.fixture
def fresh(monkeypatch):
    """Nothing that was rendered before is taken again, neither within the test nor behind it."""
    caches = (package_files._library_text, package_files.imported, render.macros_of, render.part, render.environment)

    def clear():
        for cached in caches:
            cached.cache_clear()
        render._hosts.clear()

    clear()
    yield
    monkeypatch.undo()
    clear()


@pytest.mark.usefixtures("fresh")
def test_a_message_and_a_comment_of_the_library_change_only_its_modules(monkeypatch):
    original = package_files._library_text.__wrapped__
    message = "must be given: it is C, which is read"

    def changed(name):
        return original(name).replace(message, "is C, and must be given") + "\n# The end.\n"

    assert message in original("call")
    monkeypatch.setattr(package_files, "_library_text", changed)
    found = dict(changes(list(SPECS)))
    assert {name.split("/")[1] for name in found} == {"_runtime"}
    assert {name.split("/")[0] for name in found} == {path.stem for path in SPECS}


@pytest.mark.usefixtures("fresh")
def test_a_comment_of_a_macro_changes_the_families_that_use_it_and_no_digest(monkeypatch):
    path = TEMPLATES / "swizzle.j2"
    text = path.read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("# Which tile: along a Hilbert curve")]
    changed = jinja2.ChoiceLoader(
        [
            jinja2.DictLoader({"swizzle.j2": text.replace(line, f"{line}\n# Another comment.")}),
            render.environment().loader,
        ]
    )
    assert line in text
    monkeypatch.setattr(render.environment(), "loader", changed)
    render.macros_of.cache_clear()
    render.environment().cache.clear()
    specs = [ROOT / "specs" / f"{name}.yaml" for name in ("orders", "fp16_rcr", "ladder", "grouped")]
    found = dict(changes(specs))
    assert found and {name.split("/")[0] for name in found} == {"orders"}
    for name, new in found.items():
        assert name.endswith("_hilbert.py")
        old = (shipped.folder("orders").parent / name).read_text()
        assert parts(old) == parts(new) and old != new
    assert MANIFEST not in str(found)
