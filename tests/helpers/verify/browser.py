"""What the tests of the page in headless Chromium share; the fixtures `chromium` and `browse` are in conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The window, in pixels.
SIZE = (1400, 1150)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The same pixels whatever the machine's screen and its settings.
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--disable-lcd-text",
)

Open = Callable[..., Any]


def cell(driver: Any, name: str, column: str) -> Any:
    """The button of a cell, or of the row where the column is empty."""
    columns = driver.execute_script("return JSON.parse(document.getElementById('data').textContent).columns")
    row = driver.find_element("css selector", f"button[aria-label='{name}']")
    place = columns.index(column) if column else -1
    return driver.find_element(
        "css selector", f"button[data-row='{row.get_attribute('data-row')}'][data-column='{place}']"
    )
