"""The files of the window, and a copy of its page that shows recorded steps without a controller."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

SCRIPTS: Final = ("dom.js", "drawing.js", "window.js", "replay.js")
TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def read_part(name: str) -> str:
    """Return a file of the window."""
    return files("controller.service").joinpath("window", name).read_text(encoding="utf-8")


def recorded_page(title: str, links: Iterable[Sequence[str]], steps: Iterable[Mapping[str, Any]]) -> str:
    """Return one HTML document that shows steps one by one and needs no other file.

    `title`: names the recording. `links`: pairs of names of connected hosts and switches. `steps`: each with `text`, `from`
    and, if a packet travels, `to` and `short`, a short name of the packet. Optional are `at_ns`, `lost` and `sent`, the pairs
    of names between which packets leave in answer.
    """
    document = {"title": title, "links": list(links), "steps": list(steps)}
    recorded = json.dumps(document, ensure_ascii=False).replace("<", "\\u003c")
    scripts = "".join(f"<script>\n{read_part(name)}</script>\n" for name in SCRIPTS)
    page = read_part("index.html")
    page = re.sub(r"<script src=.*?</script>\n", "", page)
    page = page.replace(
        '<link rel="stylesheet" href="window.css">', f"<style>\n{read_part('window.css')}</style>"
    )
    return page.replace(
        "</body>", f'<script type="application/json" id="recorded">{recorded}</script>\n{scripts}</body>'
    )
