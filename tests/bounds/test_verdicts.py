"""What the proof says of kernels with mistakes is what planted.txt says."""

import pytest

from tests.bounds.planted import PATH, verdicts
from tests.helpers.changes import sections


@pytest.mark.parametrize("name", sections(PATH))
def test_a_mistake_has_its_verdict(name):
    section = sections(PATH)[name]
    for case, said in zip(section.cases, verdicts(section), strict=True):
        assert said == case.said, f"{case}\nif this is meant: python -m tests.bounds.planted"
