"""Versions of the site beside each other, and the list from which a reader chooses one."""

import functools
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.browser import browser, needs_browser

for package in ("sphinx", "myst_parser", "furo", "sphinx_design", "sphinx_copybutton"):
    pytest.importorskip(package, reason="needs Sphinx: pip install 'netsum[docs]'")

ROOT = Path(__file__).resolve().parents[2]
SPHINX = "import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"


def build(source: Path, site: Path) -> None:
    configured = ["-q", "-c", str(ROOT / "docs"), "-b", "html", str(source), str(site)]
    subprocess.run([sys.executable, "-c", SPHINX, *configured], check=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of few pages: the latest version with a page that the release lacks, and the release."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "docs" / "guides").mkdir(parents=True)
    (source / "docs" / "index.md").write_text("# First\n\n```{toctree}\nguides/old\n```\n")
    (source / "docs" / "guides" / "old.md").write_text("# Old\n")
    build(source, site / version("netsum"))
    assert json.loads((site / "versions.json").read_text()) == [version("netsum")]
    (source / "docs" / "index.md").write_text("# First\n\n```{toctree}\nguides/old\nnew\n```\n")
    (source / "docs" / "new.md").write_text("# New\n")
    build(source, site)
    return site


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *about: object) -> None:
            """Keep the test's output clean."""

    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_each_build_lists_the_versions_that_lie_beside_it(site: Path) -> None:
    assert json.loads((site / "versions.json").read_text()) == ["latest", version("netsum")]


CHOOSE = """new Promise((done) => {
  navigation.addEventListener("navigate", (leaving) => { leaving.preventDefault(); done(leaving.destination.url); });
  const choice = document.querySelector("select");
  choice.value = %r;
  choice.onchange();
})"""


@needs_browser
@pytest.mark.parametrize(
    ("page", "chosen", "there"),
    [
        ("docs/guides/old.html", "RELEASE", "RELEASE/docs/guides/old.html"),
        ("RELEASE/docs/guides/old.html", "latest", "docs/guides/old.html"),
        ("docs/new.html", "RELEASE", "RELEASE/index.html"),
    ],
)
def test_a_reader_who_changes_the_version_stays_on_the_page_if_it_has_it(
    address: str, page: str, chosen: str, there: str
) -> None:
    page, chosen, there = (each.replace("RELEASE", version("netsum")) for each in (page, chosen, there))
    with browser() as tab:
        tab.open(f"{address}/{page}")
        tab.until(f"location.href === '{address}/{page}' && document.querySelector('select')")
        assert tab.run("document.querySelector('select').value") != chosen
        assert tab.run(CHOOSE % chosen) == f"{address}/{there}"


@needs_browser
def test_a_page_opened_from_a_disk_has_no_list_and_no_error(site: Path) -> None:
    with browser() as tab:
        tab.open((site / "docs" / "guides" / "old.html").as_uri())
        tab.until("document.readyState === 'complete' && document.querySelector('.sidebar-brand')")
        assert not tab.run("!!document.querySelector('select')")
