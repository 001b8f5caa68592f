"""Writes the tables of strategies, compressors and memories, and of their options, into their pages: ``python -m docs.methods``.

With ``--check`` nothing is written, and the exit status is 1 if a page is not as it would be.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from host_agent.compression import COMPRESSORS, MEMORIES
from host_agent.compression.compressor import COMPARISON, Compressor
from host_agent.options import described, parameters_of
from host_agent.strategies.base import STRATEGIES, Strategy
from host_agent.strategies.registry import own_options_of

DOCS = Path(__file__).parent


def option_rows(kinds: Mapping[str, Any], names: Any) -> Iterator[str]:
    """Iterate over the rows of a table of options: name, option, values, default."""
    for name, kind in sorted(kinds.items()):
        for option in names(kind):
            each = parameters_of(kind)[option]
            default = "required" if each.default is each.empty else f"`{each.default!r}`"
            yield f"| `{name}` | `{option}` | {described(each.annotation)} | {default} |"


def _strategy_row(name: str) -> str:
    kind = STRATEGIES[name]
    return f"| `{name}` | {kind.summary} | {kind.use} | {kind.cost} | {kind.source} |"


def _useful() -> list[tuple[str, type[Compressor]]]:
    return [(name, kind) for name, kind in COMPRESSORS.items() if kind.use != COMPARISON]


def _own(kind: type[Strategy]) -> list[str]:
    return [each.name for each in own_options_of(kind)]


def regions() -> dict[str, dict[str, Iterable[str]]]:
    """Return the lines of each region by page and name of the region."""
    choose = "| strategy | what it does | when to choose it | sent a step | source |\n|---|---|---|---|---|"
    chosen = "| compressor | when to choose it |\n|---|---|"
    options = "| name | option | value | default |\n|---|---|---|---|"
    return {
        "strategies": {
            "choice": [choose, *map(_strategy_row, sorted(STRATEGIES))],
            "options": [options, *option_rows(STRATEGIES, _own)],
        },
        "compression": {
            "choice": [chosen, *(f"| `{name}` | {kind.use} |" for name, kind in _useful())],
            "options": [options, *option_rows({**COMPRESSORS, **MEMORIES}, parameters_of)],
        },
    }


def written(page: str, text: str) -> str:
    """Return a page with its regions written anew."""
    for name, lines in regions()[page].items():
        begin, end = f"<!-- methods {name}: begin -->\n", f"\n<!-- methods {name}: end -->"
        assert text.count(begin) == text.count(end) == 1, (
            f"docs/{page}.md: expected one region 'methods {name}'"
        )
        text = text.partition(begin)[0] + begin + "\n".join(lines) + end + text.partition(end)[2]
    return text


def main() -> int:
    """Write the pages, or check them."""
    stale = 0
    for page in regions():
        path = DOCS / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        new = written(page, text)
        stale |= new != text
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    return int(stale and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
