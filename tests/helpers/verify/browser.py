"""What the tests of pages in headless Chromium share; a conftest.py imports the fixtures `chromium` and `browse`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1150",
)

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, driven; nothing is fetched for it."""
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if missing := [name for name, path in found.items() if path is None]:
        pytest.fail(f"no {' and no '.join(missing)} here; install them: apt-get install chromium chromium-driver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError as error:
        pytest.fail(f"{error}; install it: pip install -c constraints.txt '.[test]'")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found["chromedriver"]))
    yield driver
    driver.quit()


@pytest.fixture
def browse(chromium: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page's text, and fails the test afterwards if the browser complained of anything."""
    place = tmp_path / "page.html"

    def opened(html: str, hash: str = "") -> Any:
        place.write_text(html)
        # A page that differs by its hash alone would not be loaded again.
        chromium.get("about:blank")
        chromium.get(place.as_uri() + hash)
        return chromium

    yield opened
    assert chromium.get_log("browser") == []
