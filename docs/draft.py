"""The shared parts of the Internet-Draft: ``python -m docs.draft`` writes them, ``python -m docs.draft_xml`` its XML.

docs/draft-netsum-slot-protocol.md has regions between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``:

- "spec …" from p4/spec/protocol.toml: figures of the headers, tables of fields and of values;
- "protocol SECTION" from docs/protocol.md: the section with that anchor, without those below it, up to the comment
  ``<!--draft-ends-->`` if it has one.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
DRAFT = DOCS / "draft-netsum-slot-protocol.md"
PROTOCOL = DOCS / "protocol.md"
SPEC = DOCS.parent / "p4" / "spec" / "protocol.toml"

REGION = re.compile(
    r"^<!-- (spec|protocol) ([\w-]+): begin -->\n.*?^<!-- \1 \2: end -->$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")
ROW_BITS = 32


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")


def sections() -> dict[str, str]:
    """Return the sections of docs/protocol.md by their anchors, each without its heading and the sections below it."""
    parts = re.split(r"^#+ (.+)\n", PROTOCOL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {anchor(title): text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def included(section: str, present: set[str]) -> str:
    """Return a section with its links as they are right in the draft, which has the sections `present` too."""
    text = sections()[section].partition("<!--draft-ends-->")[0].strip()

    def link(found: re.Match[str]) -> str:
        page, place = found[1], found[2] or ""
        here = not page and place[1:] in present
        return f"]({'' if here else page or PROTOCOL.name}{place})"

    return LINK.sub(link, text)


def figure(fields: Iterable[dict[str, Any]]) -> str:
    """Draw a header, 32 bits a row, as RFCs do."""
    rows: list[list[tuple[str, int]]] = [[]]
    for field in fields:
        left = field["bits"]
        while left:
            room = ROW_BITS - sum(bits for _, bits in rows[-1])
            if not room:
                rows.append([])
                continue
            taken = min(left, room)
            name = field["name"] if left == field["bits"] else "..."
            rows[-1].append((name, taken))
            left -= taken
    rule = "+-" * ROW_BITS + "+"
    lines = [
        " " + " ".join(f"{bit // 10}" if bit % 10 == 0 else " " for bit in range(ROW_BITS)).rstrip(),
        " " + " ".join(f"{bit % 10}" for bit in range(ROW_BITS)),
        rule,
    ]
    for row in rows:
        lines += ["|" + "|".join(label(name, 2 * bits - 1) for name, bits in row) + "|", rule]
    return "\n".join(["```", *lines, "```"])


def label(name: str, width: int) -> str:
    """Return a name in the middle of its field, shortened to what fits."""
    short = name[: width - 1] + "." if width > 1 else name[0].upper()
    return (name if len(name) <= width else short).center(width)


def field_rows(fields: Iterable[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Iterate over the fields of a header: first bit, width, name, meaning."""
    first = 0
    for field in fields:
        yield first, field["bits"], f"`{field['name']}`", field["doc"]
        first += field["bits"]


def table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table of Markdown."""
    lines = [" | ".join(str(cell) for cell in row) for row in (list(titles), *rows)]
    head, *body = [f"| {line} |" for line in lines]
    return "\n".join([head, "|" + "---|" * (head.count(" | ") + 1), *body])


def from_spec(name: str) -> str:
    """Return what a region has from protocol.toml."""
    spec = tomllib.loads(SPEC.read_text(encoding="utf-8"))
    if name in ("header", "status"):
        fields = spec[name]["fields"]
        return figure(fields) + "\n\n" + table(("bit", "bits", "field", "value"), field_rows(fields))
    if name == "values":
        groups = {"kind": spec["kind"], "op": spec["op"], "flags": spec["flag"]}
        rows = [
            (f"`{field}`", item["value"], name.upper(), item["doc"])
            for field, items in groups.items()
            for name, item in items.items()
        ]
        return table(("field", "value", "name", "meaning"), rows)
    assert name == "constants", (
        f"{DRAFT.name}: no region 'spec {name}'; there are header, status, values, constants"
    )
    exponent = spec["exponent"]
    constants: list[tuple[str, Any]] = [
        ("protocol version", spec["protocol"]["version"]),
        ("UDP port of the switch", spec["protocol"]["udp_port"]),
        ("workers of a switch, at most", spec["protocol"]["max_children"]),
        ("pool versions of a slot", spec["pool"]["versions"]),
        ("bytes of a lane", spec["lanes"]["bytes"]),
        ("exponent: bias", exponent["bias"]),
        ("exponent: all zero", exponent["all_zero"]),
        ("exponent: non-finite", exponent["non_finite"]),
        ("completer: unknown", spec["completer"]["unknown"]),
    ]
    return table(("constant", "value"), constants)


def written(page: str) -> str:
    """Return the draft with its regions as their sources have them."""
    present = {anchor(title) for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}

    def region(found: re.Match[str]) -> str:
        source, name = found[1], found[2]
        text = from_spec(name) if source == "spec" else included(name, present)
        return f"<!-- {source} {name}: begin -->\n{text}\n<!-- {source} {name}: end -->"

    return REGION.sub(region, page)


if __name__ == "__main__":
    DRAFT.write_text(written(DRAFT.read_text(encoding="utf-8")), encoding="utf-8")
