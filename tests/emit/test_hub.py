"""A repository of the Hub in the library `kernels`: what the card shows is what works for every user."""

import pytest

from tests.helpers.support import ROOT, python

pytestmark = pytest.mark.ecosystem
#: What the documentation says of a repository of the Hub.
DOCUMENTED = (ROOT / "docs" / "calling.md").read_text(encoding="utf-8").partition("### A repository of the Hub\n")[2]
HELPERS = ROOT / "tests" / "helpers" / "emit"
VARIABLES = {"TRITON_INTERPRET": "1"}


def test_the_library_kernels_loads_the_repository(repository):
    """Offline: the loader checks the metadata and the digests, and its layer computes what the model's did."""
    variables = {**VARIABLES, "HF_HUB_OFFLINE": "1"}
    done = python(HELPERS / "hub_kernel.py", repository, env=variables, cwd=repository)
    assert done.stdout == "loaded\n", done.stdout + done.stderr
    tests = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--rootdir", repository, repository / "tests")
    done = python(*tests, env=variables, cwd=repository)
    assert done.returncode == 0 and "12 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "blocks"), [("README.md", 2), ("CARD.md", 2), ("documented.md", 3)])
def test_the_code_of_the_card_works(repository, tmp_path, page, blocks):
    """With a stand-in for the Hub, for which the publisher is an organisation that it does not trust."""
    (tmp_path / "documented.md").write_text(DOCUMENTED, encoding="utf-8")
    path = (tmp_path if page == "documented.md" else repository) / page
    call = (HELPERS / "hub_stand_in.py", repository, "me/fp16-rcr", path)
    done = python(*call, env={**VARIABLES, "HF_HUB_OFFLINE": "0"}, cwd=repository)
    assert done.stdout == f"ran {blocks}\n", done.stdout + done.stderr
