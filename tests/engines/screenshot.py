"""Take docs/images/demo.png anew: the demo of a generated project, with a digit drawn by hand."""

import sys
import tempfile
from pathlib import Path

from demo import FOUR, draw, opened, served, trained_project
from playwright.sync_api import expect

from programs import find_browser
from support import ROOT

PICTURE = ROOT / "docs" / "images" / "demo.png"
MAX_BYTES = 150_000


def main() -> None:
    browser = find_browser()
    if browser is None:
        sys.exit("error: no Chromium: make engines")
    with tempfile.TemporaryDirectory() as folder:
        project = trained_project(Path(folder) / "project")
        with served(project) as url, opened(browser, 1200, 760) as page:
            page.goto(url)
            page.get_by_text("Draw", exact=True).click(timeout=60_000)
            page.get_by_text("The prediction appears here.").wait_for()
            draw(page, FOUR)
            expect(page.get_by_test_id("stMetricValue")).to_have_text("4", timeout=60_000)
            page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)").wait_for()
            page.mouse.move(0, 0)
            page.wait_for_timeout(1000)  # shadows fade
            png = page.screenshot()
    if len(png) > MAX_BYTES:
        sys.exit(f"error: the picture has {len(png)} bytes, more than {MAX_BYTES}")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(png)
    print(f"{PICTURE}: {len(png)} bytes")


if __name__ == "__main__":
    main()
