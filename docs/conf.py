"""Sphinx configuration of the site: `make docs`. Its pages are the Markdown files of the repository, where they are."""

import importlib.metadata
import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

from sphinx.ext.autodoc.mock import _MockObject

project = "netsum"
author = copyright = "the netsum authors"
release = version = importlib.metadata.version("netsum")

root_doc = "docs/index"
include_patterns = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_copybutton",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# How other sites and messengers show a link.
myst_html_meta = {
    "description": "In-network aggregation that anyone can run: P4 switches add the gradients of a training job.",
    "property=og:title": "netsum",
    "property=og:type": "website",
    "property=og:description": "P4 switches add the gradients of a training job: on a laptop, in the kernel, on BMv2, on Tofino.",
}

if importlib.util.find_spec("torch") is None:  # The pages are the same without PyTorch.
    autodoc_mock_imports = ["torch"]
    # Annotations such as `Tensor | None` are evaluated.
    _MockObject.__or__ = _MockObject.__ror__ = lambda mocked, _: mocked
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"netsum {release}"
html_static_path = ["_static"]
MOVED = {"index": "docs/index", "docs/guides/first-change": "docs/tutorial/2-change"}
"""Pages at addresses that have none, the root among them, with those that they lead to."""
html_css_files = ["site.css"]
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
# Blocks that begin with a prompt are sessions, of which buttons copy what is typed; "# " begins a comment.
copybutton_prompt_text = r"\$ |>>> |\.\.\. ?"
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False
copybutton_line_continuation_character = "\\"
copybutton_here_doc_delimiter = "END"
copybutton_exclude = ".linenos, .viewcode-back"

_STATES = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
_TRANSITION = re.compile(r"\s*(\S+) --> (\w+)(?:: (\w+))?\s*\n")


def _as_table(diagram: re.Match[str]) -> str:
    """Write a state diagram as a table: drawing it would take a program from another site."""
    rows = [
        f"| {'' if state == '[*]' else state} | {event} | {following} |"
        for state, following, event in _TRANSITION.findall(diagram[1])
    ]
    return "\n".join(["| state | event | next state |", "|---|---|---|", *rows])


def setup(app: Any) -> None:
    """Register with Sphinx."""

    def read(app: Any, name: str, source: list[str]) -> None:
        source[0] = _STATES.sub(_as_table, source[0])

    def redirect(app: Any, error: Exception | None) -> None:
        for name, target in MOVED.items() if error is None else ():
            there = os.path.relpath(f"{target}.html", Path(name).parent)
            page = f'<!doctype html><title>netsum</title><meta http-equiv="refresh" content="0; url={there}">'
            Path(app.outdir, f"{name}.html").write_text(f'{page}<a href="{there}">netsum</a>\n')

    def offer(app: Any) -> None:
        released = Path(app.outdir).name == release
        app.add_js_file(
            "versions.js",
            loading_method="defer",
            **{"data-site": "../" * released, "data-version": release if released else "latest"},
        )

    def list_versions(app: Any, error: Exception | None) -> None:
        site = Path(app.outdir).parent if Path(app.outdir).name == release else Path(app.outdir)
        found = sorted((path.parent.name for path in site.glob("*/searchindex.js")), reverse=True)
        latest = ["latest"] * (site / "searchindex.js").exists()
        (site / "versions.json").write_text(json.dumps(latest + found) + "\n")

    app.connect("source-read", read)
    app.connect("builder-inited", offer)
    app.connect("build-finished", redirect)
    app.connect("build-finished", list_versions)
