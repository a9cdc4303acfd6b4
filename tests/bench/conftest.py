"""Fixtures of the tests of measurements: a browser."""

from __future__ import annotations

from tests.helpers.verify.browser import browse, chromium  # noqa: F401
