"""A project's demo as a person meets it: served on this machine, and open in a real browser."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Page, sync_playwright

from workspace import Workspace, wait_until, workspace

Points = Sequence[tuple[float, float]]
FOUR: Points = ((0.6, 0.88), (0.6, 0.12), (0.25, 0.6), (0.8, 0.6))
ZERO: Points = ((0.5, 0.15), (0.32, 0.3), (0.3, 0.65), (0.48, 0.87), (0.68, 0.7), (0.7, 0.35), (0.5, 0.15))


def trained_project(dest: Path, framework: str = "pytorch") -> Workspace:
    """A default project with a good model, which is exported."""
    project = workspace(dest, framework, project_name="Digits")
    project.cli("export", project.train("good"))
    return project


@contextmanager
def served(project: Workspace) -> Iterator[str]:
    """The address of the project's demo, which ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = (project.python, "-m", "streamlit", "run", "app/main.py", "--server.headless", "true")
    with project.started(*command, "--server.port", str(port)) as process:
        wait_until(lambda: is_healthy(port), process, "the demo answers")
        yield f"http://127.0.0.1:{port}"


def is_healthy(port: int) -> bool:
    time.sleep(0.2)
    try:
        return bool(urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).status == 200)
    except OSError:
        return False


@contextmanager
def opened(browser: str, width: int, height: int) -> Iterator[Page]:
    """An empty page of a fresh browser."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        try:
            yield chromium.new_page(viewport={"width": width, "height": height})
        finally:
            chromium.close()


def draw(page: Page, points: Points) -> None:
    """One stroke over the canvas; the points are shares of its width and height."""
    canvas = page.get_by_label("Draw here")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for x, y in places[1:]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
