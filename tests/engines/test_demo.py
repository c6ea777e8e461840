"""The demo in a real browser: what a stranger tries, on a wide screen and on a phone's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from support import ROOT
from workspace import FIRST, SMALL, Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = ("", "runs", "mistakes")
LABELS = """
import json
from {package} import data, settings
print(json.dumps(data.build_datasets(settings.DataSettings()).test.arrays["label"].tolist()))
"""


@dataclass(frozen=True)
class Demo:
    project: Workspace
    url: str


# The demo is the same text in both frameworks; one page reads checkpoints.
@pytest.fixture(scope="module", params=FIRST)
def demo(browser: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    from demo import served, trained_project

    project = trained_project(tmp_path_factory.mktemp("demo") / "project", request.param)
    project.train("poor", *SMALL, "--trainer.max-epochs", "2")
    with served(project) as url:
        yield Demo(project, url)


@pytest.fixture
def page(demo: Demo, browser: str) -> "Iterator[Page]":
    """A wide page on the demo, which asks nobody else for anything and shows no traceback."""
    from demo import opened

    asked = []
    with opened(browser, 1280, 900) as page:
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(demo.url)
        yield page
        assert page.get_by_test_id("stException").count() == 0
    assert not [url for url in asked if not url.startswith((demo.url, "data:", "blob:"))]


def expect_prediction(page: "Page", label: str) -> None:
    from playwright.sync_api import expect

    expect(page.get_by_test_id("stMetricValue")).to_have_text(label, timeout=60_000)


def test_it_listens_on_this_machine_alone(demo: Demo) -> None:
    said = (demo.project.path / "out.txt").read_text("utf-8")
    assert demo.url in said
    assert "Network URL" not in said and "External URL" not in said


def test_pictures_of_the_test_set_are_predicted(demo: Demo, page: "Page") -> None:
    code = LABELS.format(package=demo.project.package)
    labels = json.loads(demo.project.run(demo.project.python, "-c", code).stdout)
    slider = page.get_by_role("slider")
    for number in range(3):
        page.get_by_text(f"The test set says: {labels[number]}").wait_for()
        expect_prediction(page, str(labels[number]))  # which the model gets right
        slider.press("ArrowRight")
    page.get_by_text(f"The test set says: {labels[3]}").wait_for()
    page.get_by_test_id("stVegaLiteChart").wait_for()


def test_what_is_drawn_is_predicted(page: "Page") -> None:
    from demo import FOUR, ZERO, draw

    page.get_by_text("Draw", exact=True).click()
    page.get_by_text("The prediction appears here.").wait_for()
    draw(page, FOUR)
    expect_prediction(page, "4")
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("The prediction appears here.").wait_for()
    draw(page, ZERO)
    expect_prediction(page, "0")


def test_an_upload_is_predicted_as_on_the_command_line(demo: Demo, page: "Page") -> None:
    folder = demo.project.path / "pictures"
    demo.project.run(demo.project.python, ROOT / "tests" / "write_digits.py", folder)
    expected = demo.project.predict(folder)
    page.get_by_text("Upload", exact=True).first.click()
    for name in sorted(expected)[:3]:
        page.locator("input[type=file]").set_input_files(folder / name)
        page.get_by_text(name).wait_for()
        expect_prediction(page, expected[name])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [("text.png", b"no picture", "of no format that is known"), ("empty.png", b"", "the file is empty")],
)
def test_a_damaged_upload_is_named_in_one_line(
    demo: Demo, page: "Page", name: str, content: bytes, reason: str
) -> None:
    file = demo.project.path / name
    file.write_bytes(content)
    page.get_by_text("Upload", exact=True).first.click()
    page.locator("input[type=file]").set_input_files(file)
    alert = page.get_by_role("alert").filter(has_text=name)
    alert.wait_for()
    assert reason in alert.inner_text()


def test_curves_of_the_runs_are_shown(page: "Page") -> None:
    page.get_by_role("link", name="Runs").click()
    for title in ("Loss", "Accuracy", "Learning rate"):
        page.get_by_text(title, exact=True).wait_for()
    page.get_by_test_id("stVegaLiteChart").nth(3).wait_for()
    for run in ("baseline/good", "baseline/poor"):
        page.get_by_text(run, exact=True).first.wait_for()
    page.get_by_test_id("stDataFrame").wait_for()


def test_mistakes_are_shown_as_pictures(page: "Page") -> None:
    page.get_by_role("link", name="Mistakes").click()
    page.get_by_text("predicted").nth(23).wait_for()
    page.locator("[data-testid=stMain] img").nth(23).wait_for()
    loaded = "[...document.querySelectorAll('[data-testid=stMain] img')].filter(found => found.naturalWidth > 0)"
    page.wait_for_function(f"{loaded}.length === 24")


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_it_without_scrolling_sideways(demo: Demo, page: "Page", name: str) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    page.goto(f"{demo.url}/{name}")
    page.locator("[data-testid=stVegaLiteChart], [data-testid=stMain] img").first.wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for(state="attached")
    for part in ("document.scrollingElement", "document.querySelector('[data-testid=stMain]')"):
        assert page.evaluate(f"{part}.scrollWidth") <= 375
