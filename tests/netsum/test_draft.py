"""The Internet-Draft of the protocol: its shared parts are those of their sources, and IETF's tools take it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import draft


def fields() -> list[dict[str, object]]:
    spec: dict[str, dict[str, list[dict[str, object]]]] = tomllib.loads(draft.SPEC.read_text("utf-8"))
    return spec["header"]["fields"]


def test_its_shared_parts_are_those_of_their_sources() -> None:
    page = draft.DRAFT.read_text(encoding="utf-8")
    assert len(draft.REGION.findall(page)) > 15
    assert page == draft.written(page), "run: python -m docs.draft"


def test_the_table_of_the_protocols_page_has_the_fields_of_the_specification() -> None:
    rows = re.findall(r"^\| `(\w+)`, (\d+) \|", draft.sections()["packet"], re.MULTILINE)
    assert [(name, int(bits)) for name, bits in rows] == [(each["name"], each["bits"]) for each in fields()]


def test_a_figure_shows_each_field_once_in_its_bits() -> None:
    odd = [
        {"name": "first", "bits": 12},
        {"name": "across", "bits": 27},
        {"name": "bit", "bits": 1},
        {"name": "last", "bits": 24},
    ]
    for each in (odd, fields()):
        rows = [line for line in draft.figure(each).splitlines() if line.startswith("|")]
        assert {len(row) for row in rows} == {2 * draft.ROW_BITS + 1}
        names = [name.strip() for row in rows for name in row.strip("|").split("|")]
        shown = [
            str(field["name"]) if field["bits"] != 1 else str(field["name"])[0].upper() for field in each
        ]
        assert [name for name in names if name != "..."] == shown


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """The draft as XML."""
    pytest.importorskip("markdown_it", reason="needs markdown-it: pip install 'netsum[docs]'")
    from docs.draft_xml import document

    path = tmp_path / "draft.xml"
    path.write_text(document(), encoding="utf-8")
    return path


def test_every_reference_and_citation_of_the_document_has_its_other_end(document: Path) -> None:
    root = ElementTree.parse(document).getroot()
    targets = {each.get("target") for each in root.iter("xref")}
    anchors = {each.get("anchor") for each in root.iter()} - {None}
    assert targets <= anchors
    assert {each.get("anchor") for each in root.iter("reference")} <= targets
    assert len(list(root.iter("section"))) > 20


def test_xml2rfc_makes_text_of_it(document: Path) -> None:
    pytest.importorskip("xml2rfc", reason="needs xml2rfc: pip install 'netsum[docs]'")
    program = [sys.executable, "-c", "from xml2rfc.run import main; main()"]
    options = ["--quiet", "--no-network", "--text", "--path", str(document.parent), str(document)]
    done = subprocess.run([*program, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"\b(Error|Warning)\b", done.stdout + done.stderr)
    text = document.with_suffix(".txt").read_text(encoding="utf-8")
    assert "Congestion Considerations" in text
    assert "pool_index" in text
