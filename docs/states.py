"""The diagrams of states in docs/controller.md: ``python -m docs.states`` writes them into the page."""

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from controller.service.states import (
    JOB_TRANSITIONS,
    LINK_TRANSITIONS,
    MEMBER_TRANSITIONS,
    JobState,
    LinkState,
    MemberState,
)

DIAGRAMS: Final[Mapping[str, tuple[Enum, Mapping[Any, Enum]]]] = {
    "job": (JobState.GATHERING, JOB_TRANSITIONS),
    "member": (MemberState.ATTACHED, MEMBER_TRANSITIONS),
    "link": (LinkState.CONNECTING, LINK_TRANSITIONS),
}
"""First state and table of each diagram."""


def diagram(first: Enum, table: Mapping[Any, Enum]) -> str:
    """Return a table as a Mermaid state diagram."""
    arrows = [
        f"    {state.value} --> {after.value}: {event.value}" for (state, event), after in table.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}", *arrows, "```"])


def with_diagrams(page: str) -> str:
    """Return a Markdown page with its diagrams, which comments mark, written anew."""
    for name, (first, table) in DIAGRAMS.items():
        begin, end = f"<!-- states: {name} -->", "<!-- end -->"
        text = f"{begin}\n{diagram(first, table)}\n{end}"
        page = re.sub(f"{begin}.*?{end}", text, page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    target = Path(__file__).with_name("controller.md")
    target.write_text(with_diagrams(target.read_text(encoding="utf-8")), encoding="utf-8")
