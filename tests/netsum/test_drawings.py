"""The drawings of the documentation, which readers see on light and on dark pages."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser, needs_browser

DOCS = Path(__file__).parents[2] / "docs"
_PIXELS = """new Promise((done) => {
  const image = new Image();
  image.onload = () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 400, height: 200 });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, 400, 200);
    done([...context.getImageData(0, 0, 400, 200).data]);
  };
  image.src = "data:image/svg+xml;base64,%s";
})"""


@pytest.fixture(name="tab", scope="module")
def _tab() -> Iterator[Browser]:
    with browser() as one:
        yield one


def brightness(tab: Browser, path: Path) -> list[float]:
    """Return the brightness of each pixel, from 0 to 255; none may let the page through."""
    pixels = tab.run(_PIXELS % base64.b64encode(path.read_bytes()).decode())
    assert min(pixels[3::4]) > 200, f"{path.name} has no paper of its own"
    return [sum(pixels[at : at + 3]) / 3 for at in range(0, len(pixels), 4)]


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_drawing_can_be_read_on_any_page(tab: Browser, dark: bool) -> None:
    tab.size(1000, dark=dark)
    for path in sorted(DOCS.rglob("*.svg")):
        pixels = brightness(tab, path)
        paper = pixels[0]
        assert max(abs(pixel - paper) for pixel in pixels) > 120, path.name


@needs_browser
def test_the_architecture_is_dark_on_dark_pages(tab: Browser) -> None:
    papers = []
    for dark in (False, True):
        tab.size(1000, dark=dark)
        pixels = brightness(tab, DOCS / "architecture.svg")
        papers.append(sum(pixels) / len(pixels))
    light, night = papers
    assert light > 200
    assert night < 70
