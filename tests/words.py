"""Lists docstrings and comments of the product that begin without naming their subject: `python -m tests.words`, in `make lint`.

A docstring of a module, class or attribute is a noun phrase or a sentence with a subject ("Statistics of the last
collective."), a comment gives a reason. Texts that begin with a relative or possessive word ("What the last collective cost")
are listed. The exit status is 1 if there are any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("p4", "host_agent", "controller", "sim", "topologies", "netsum", "netsum_common", "examples")
SUBJECTLESS = re.compile(
    r"(What|Whatever|Where|Which|Whose|When|Of|By how|To which|For what|Its|It|They|These|Those|That|Neither)\b"
)


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Iterate over the docstrings and comments of a module, each with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str() as text)):
                yield node.lineno, text
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            # The second line of a comment continues its sentence.
            if not (alone and previous == token.start[0] - 1):
                yield token.start[0], token.string.lstrip("#: ")
            previous = token.start[0] if alone else 0


def p4_texts(source: str) -> Iterator[tuple[int, str]]:
    """Iterate over the comments of a P4 file, each with its line."""
    continued = False
    for number, line in enumerate(source.splitlines(), 1):
        code, mark, text = line.partition("//")
        alone = not code.strip()
        if mark and not (alone and continued):
            yield number, text.strip()
        continued = bool(mark) and alone


def main() -> int:
    """Print the places, one a line."""
    found = 0
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.p[y4]")):
        name = path.relative_to(ROOT).as_posix()
        if "_pb2" in name or name.startswith("p4/build/"):
            continue
        source = path.read_text(encoding="utf-8")
        for line, text in python_texts(source) if path.suffix == ".py" else p4_texts(source):
            first = text.strip().partition("\n")[0]
            if SUBJECTLESS.match(first) and "?" not in first:
                print(f"{name}:{line}: begins without its subject: {first[:90]}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
