"""What the page looks like in headless Chromium, against golden screenshots.

`pytest -m browser tests/verify/test_page_looks.py` runs these. A missing browser fails them: nothing is skipped.
`REFRESH_SCREENSHOTS=1` writes the golden screenshots anew; look at them before they are committed.
"""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from generator.verify.page import page
from tests.helpers.verify.browser import SIZE, Open, cell

from .test_page import sample

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parent / "screenshots"
#: How far a colour may be off (pixelmatch's measure, 0 to 1), and how many pixels may be further off than that: enough
#: for the edges of letters, too little for a cell (some 2,000 pixels) that has lost its palest tint.
OFF, PIXELS = 0.03, 300
#: Lines that are compared at a time.
BAND = 30


@pytest.fixture(scope="module")
def html() -> str:
    return page(*sample())


def picture(driver: Any) -> Any:
    from PIL import Image

    return Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")


def off(found: Any, golden: Any) -> int:
    """The number of pixels that are off by more than the edge of a letter may be; counts no further than it must."""
    from pixelmatch.contrib.PIL import pixelmatch

    pixels, (width, height) = 0, SIZE
    for top in range(0, height, BAND):
        band = (0, top, width, top + BAND)
        pixels += pixelmatch(found.crop(band), golden.crop(band), threshold=OFF)
        if pixels > PIXELS:
            break
    return pixels


def view(browse: Open, html: str, name: str) -> Any:
    """The page as the screenshot of that name has it."""
    if name == "left-out":
        return browse(html, "#tab=left-out")
    driver = browse(html, dark=name == "dark")
    failed = next(result.job for result in sample()[0] if result.failures and result.job.level == "compile")
    cell(driver, failed.name, failed.label).click()
    # No caret, no ring around what has the focus; the failure and what is around it in sight.
    driver.execute_script("document.activeElement.blur(); scrollTo(0, document.getElementById('filters').offsetTop)")
    return driver


@pytest.mark.parametrize("name", ["light", "dark", "left-out"])
def test_it_looks_as_it_did(browse: Open, html: str, tmp_path: Path, name: str) -> None:
    from PIL import Image

    found = picture(view(browse, html, name))
    assert found.size == SIZE
    golden = SCREENSHOTS / f"page-{name}.png"
    if os.environ.get("REFRESH_SCREENSHOTS"):
        SCREENSHOTS.mkdir(exist_ok=True)
        found.save(golden, optimize=True)
    refresh = "if it should look so, REFRESH_SCREENSHOTS=1 writes it anew"
    assert golden.exists(), f"{golden} is not there; {refresh}"
    expected = Image.open(golden).convert("RGB")
    if off(found, expected) > PIXELS:
        from pixelmatch.contrib.PIL import pixelmatch

        actual, differs = tmp_path / f"{name}-actual.png", tmp_path / f"{name}-difference.png"
        found.save(actual)
        difference = Image.new("RGBA", SIZE)
        pixels = pixelmatch(found, expected, difference, threshold=OFF)
        difference.save(differs)
        pytest.fail(f"{pixels} pixels differ from {golden}: see {actual} and {differs}; {refresh}")


COLUMN = "document.querySelectorAll('td.cell.s0:nth-child(9)').forEach(td => td.className = '{}')"
BREAKS = {
    "no style at all": "document.querySelectorAll('style').forEach(style => style.remove())",
    "a column in another colour": COLUMN.format("cell s3"),
    "a column without its pale colour": COLUMN.format("cell"),
    "one failure that looks passed": "document.querySelector('td.s1').className = 'cell s0'",
    "nothing under the opened cell": "document.querySelector('tr.opened').remove()",
    "columns that shrink": "document.querySelectorAll('td.cell').forEach(td => td.style.minWidth = 0)",
    "text a little larger": "document.body.style.zoom = '101%'",
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS.keys())
def test_what_breaks_visibly_is_beyond_the_tolerance(browse: Open, html: str, script: str) -> None:
    driver = view(browse, html, "light")
    whole = picture(driver)
    assert off(picture(driver), whole) == 0
    driver.execute_script(script)
    assert off(picture(driver), whole) > PIXELS
