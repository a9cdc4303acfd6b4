"""Fixtures of the verification's tests: processes that interpret or compile, as this one must be free to use a GPU, and
a browser.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from generator.pytest_plugin import Outcomes
from generator.verify.jobs import Job, Result
from generator.verify.worker_pool import Pool, _initialize, workers_by_default
from tests.helpers.verify.browser import FLAGS, SIZE, Open

_OUTCOMES: pytest.StashKey[Outcomes] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the kernels of every spec (test_generated.py), so that they are proved beside the other tests.

    Where pytest-xdist runs several processes, the one that is given the file begins when it comes to it.
    """
    selected = [item.callspec.params["job"] for item in session.items if item.name.startswith("test_verified[")]
    # With `--dist loadfile` one process runs all of a file.
    outcomes = session.config.stash[_OUTCOMES] = Outcomes(selected, together=True)
    if not session.config.option.collectonly and "PYTEST_XDIST_WORKER" not in os.environ:
        _begin(outcomes)


def _begin(outcomes: Outcomes) -> None:
    """Work on everything but what needs the GPU, which is for one test at a time."""
    levels = dict.fromkeys(job.level for job in outcomes.jobs if job.level != "gpu")
    if levels and not outcomes.begun:
        outcomes.begin(tuple(levels))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers, whatever ended the session."""
    if _OUTCOMES in config.stash:
        config.stash[_OUTCOMES].close()


@pytest.fixture(scope="session")
def outcome(request: pytest.FixtureRequest) -> Callable[[Job], Result]:
    """What becomes of a job of test_generated.py, once it is done."""
    outcomes = request.config.stash[_OUTCOMES]
    _begin(outcomes)
    return outcomes


@pytest.fixture(scope="session")
def pools() -> Iterator[Callable[[str], Pool]]:
    """The worker processes of a level, which all tests of this process share: each worker takes seconds to start."""
    begun: dict[str, Pool] = {}

    def of(level: str) -> Pool:
        if level not in begun:
            begun[level] = Pool(level, workers_by_default())
        return begun[level]

    yield of
    for pool in begun.values():
        pool.close()


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable[..., Any]]:
    """Call a function of a module in a process with Triton's interpreter."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, context, initializer=_initialize, initargs=("interpret", context.Semaphore(1))
    ) as executor:
        yield lambda function, *arguments: executor.submit(function, *arguments).result()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, driven; nothing is fetched for it."""
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if missing := [name for name, path in found.items() if path is None]:
        pytest.fail(f"no {' and no '.join(missing)} here; install them: apt-get install chromium chromium-driver")
    try:
        import pixelmatch  # noqa: F401
        from PIL import Image  # noqa: F401
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

    def opened(html: str, hash: str = "", dark: bool = False) -> Any:
        place.write_text(html)
        width, height = SIZE
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        # A page that differs by its hash alone would not be loaded again.
        chromium.get("about:blank")
        chromium.get(place.as_uri() + hash)
        return chromium

    yield opened
    assert chromium.get_log("browser") == []
