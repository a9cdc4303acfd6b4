"""What specs come to is what tests/outcomes.txt says: kernels, what is left out, and mistakes, word for word."""

from __future__ import annotations

import pytest

from tests.outcomes import outcome, sections


@pytest.mark.parametrize("section", sections())
def test_a_spec_comes_to_what_is_written(section: str) -> None:
    for text, gives in sections()[section]:
        assert outcome(section, text) == gives, f"{text}\nif this is meant: python -m tests.outcomes"
