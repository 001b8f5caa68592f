"""The Internet-Draft as XML (RFC 7991), which xml2rfc makes text and HTML of: ``python -m docs.draft_xml > FILE``."""

import re
import sys
from calendar import month_name
from collections.abc import Iterator
from xml.etree import ElementTree as xml

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.draft import DRAFT, REGION, anchor

NAME = "draft-netsum-slot-protocol-00"
CITED = re.compile(r"\[([A-Z][A-Z0-9-]+)\]")
COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
MARKS = {"strong": "strong", "em": "em"}


class Converter:
    """Writer of one page of Markdown as the sections of a document.

    Parameters
    ----------
    page
        The Markdown.
    """

    def __init__(self, page: str) -> None:
        self.titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        self.anchors = {anchor(title): f"at-{anchor(title)}" for title in self.titles}
        # A region's text has links to its section of docs/protocol.md, which is the one around it here.
        parts = re.split(r"^#+ (.+)$", page, flags=re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True):
            self.anchors |= {found[2]: f"at-{anchor(title)}" for found in REGION.finditer(text)}
        self.tokens = MarkdownIt("commonmark").enable("table").parse(COMMENT.sub("", page))
        self.references = [row for table in self.tables("References") for row in table]

    def tables(self, under: str) -> Iterator[list[list[str]]]:
        """Iterate over the tables of a section, as the cells of their rows without the titles."""
        title, rows = "", list[list[str]]()
        for at, token in enumerate(self.tokens):
            if token.type == "heading_open":
                title = self.tokens[at + 1].content
            elif token.type == "tr_open":
                rows.append([])
            elif token.type == "td_open":
                rows[-1].append(self.tokens[at + 1].content)
            elif token.type == "table_close":
                if title == under:
                    yield [row for row in rows if row]
                rows = []

    def document(self) -> xml.Element:
        """Return the whole document."""
        rfc = xml.Element(
            "rfc",
            {
                "version": "3",
                "ipr": "trust200902",
                "docName": NAME,
                "category": "exp",
                "submissionType": "IETF",
            },
        )
        front, middle, back = (xml.SubElement(rfc, name) for name in ("front", "middle", "back"))
        xml.SubElement(front, "title", {"abbrev": "Netsum Slot Protocol"}).text = self.titles[0]
        xml.SubElement(front, "seriesInfo", {"name": "Internet-Draft", "value": NAME})
        xml.SubElement(xml.SubElement(front, "author"), "organization").text = "The netsum authors"
        xml.SubElement(front, "date")
        # Levels: the document, then the sections that are open.
        open_sections = [middle]
        at = 0
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.type == "heading_open":
                level, title = int(token.tag[1:]), self.tokens[at + 1].content
                if level == 2 and title == "Abstract":
                    open_sections = [middle, xml.SubElement(front, "abstract")]
                elif level > 1:
                    parent = open_sections[level - 2]
                    section = xml.SubElement(parent, "section", {"anchor": f"at-{anchor(title)}"})
                    xml.SubElement(section, "name").text = title
                    open_sections[level - 1 :] = [section]
                at += 3
            elif len(open_sections) > 1:
                at = self.block(open_sections[-1], at)
            else:  # The paragraph below the title is about the page.
                at += 1
        middle.remove(next(each for each in middle if each.findtext("name") == "References"))
        self.write_references(back)
        return rfc

    def block(self, parent: xml.Element, at: int) -> int:
        """Write the block that begins at a token; return the token behind it."""
        token = self.tokens[at]
        match token.type:
            case "paragraph_open":
                self.inline(xml.SubElement(parent, "t"), self.tokens[at + 1])
                return at + 3
            case "fence":
                xml.SubElement(parent, "artwork", {"type": "ascii-art"}).text = token.content
                return at + 1
            case "bullet_list_open" | "ordered_list_open":
                kind = "ul" if token.type.startswith("bullet") else "ol"
                element, at = xml.SubElement(parent, kind), at + 1
                while self.tokens[at].type == "list_item_open":
                    item, at = xml.SubElement(element, "li"), at + 1
                    while self.tokens[at].type != "list_item_close":
                        at = self.block(item, at)
                    at += 1
                return at + 1
            case "table_open":
                return self.table(xml.SubElement(parent, "table"), at + 1)
        raise ValueError(
            f"{DRAFT.name}, line {(token.map or [0])[0]}: no XML for {token.type}; use paragraphs, lists, tables, code"
        )

    def table(self, table: xml.Element, at: int) -> int:
        """Write a table whose first token is given; return the token behind it."""
        part = row = table
        while (token := self.tokens[at]).type != "table_close":
            if token.type in ("thead_open", "tbody_open"):
                part = xml.SubElement(table, token.tag)
            elif token.type == "tr_open":
                row = xml.SubElement(part, "tr")
            elif token.type in ("th_open", "td_open"):
                self.inline(xml.SubElement(row, token.tag), self.tokens[at + 1])
                at += 1
            at += 1
        return at + 1

    def inline(self, element: xml.Element, token: Token) -> None:
        """Write text with its marks, links and citations."""
        stack = [element]
        for child in token.children or ():
            kind = child.type.removesuffix("_open").removesuffix("_close")
            if child.type == "text":
                pieces = CITED.split(child.content)
                for name, text in zip([None, *pieces[1::2]], pieces[::2], strict=True):
                    if name:
                        xml.SubElement(stack[-1], "xref", {"target": name})
                    add_text(stack[-1], text)
            elif child.type == "code_inline":
                xml.SubElement(stack[-1], "tt").text = child.content
            elif child.type in ("softbreak", "hardbreak"):
                add_text(stack[-1], " ")
            elif kind in MARKS or kind == "link":
                if child.type.endswith("_close"):
                    stack.pop()
                else:
                    stack.append(self.mark(stack[-1], kind, str(child.attrGet("href") or "")))
            else:
                raise ValueError(f"{DRAFT.name}: no XML for {child.type} in {token.content!r}")

    def mark(self, parent: xml.Element, kind: str, target: str) -> xml.Element:
        """Begin a mark or a link; a link to another page of the repository is its text."""
        if kind != "link":
            return xml.SubElement(parent, MARKS[kind])
        if target.startswith("#"):
            return xml.SubElement(parent, "xref", {"target": self.anchors[target[1:]]})
        if target.startswith("http"):
            return xml.SubElement(parent, "eref", {"target": target})
        return xml.SubElement(parent, "em")

    def write_references(self, back: xml.Element) -> None:
        """Write the table of references."""
        lists = xml.SubElement(back, "references")
        xml.SubElement(lists, "name").text = "References"
        for name, title, authors, series, date in self.references:
            reference = xml.SubElement(lists, "reference", {"anchor": name})
            front = xml.SubElement(reference, "front")
            xml.SubElement(front, "title").text = title
            for author in authors.split(", "):
                xml.SubElement(front, "author", {"fullname": author})
            year, month = date.split("-")
            xml.SubElement(front, "date", {"year": year, "month": month_name[int(month)]})
            kind, _, value = series.rpartition(" ")
            xml.SubElement(reference, "seriesInfo", {"name": kind, "value": value})


def add_text(element: xml.Element, text: str) -> None:
    """Append text to an element, behind its last child."""
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def document() -> str:
    """Return the draft as XML."""
    root = Converter(DRAFT.read_text(encoding="utf-8")).document()
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
