"""Writes docs/examples.md, the gallery of examples: ``python -m docs.gallery``; ``--run [NAME ...]`` runs examples before.

The texts are the examples' docstrings. The recorded output of a run is in docs/data/examples.json, with a digest of the code
that printed it: a changed example is run again.
"""

import argparse
import ast
import datetime
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from docs.tables import DATA, ROOT, written

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "examples.md"
RECORD = DATA / "examples.json"
DEADLINE_S = 900
TITLE = """# Examples

*Generated.*
Whole programs, each with one of its runs. This page is written by `python -m docs.gallery`: change the docstrings, not the page;
`python -m docs.gallery --run NAME` runs an example again.
"""
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "harness")


def source_of(name: str) -> tuple[str, str, bool]:
    """Return an example's docstring, a digest of its code, and whether it trains by the harness of all."""
    digest, texts = hashlib.sha256(), [(EXAMPLES / f"{name}.py").read_text("utf-8")]
    if by_harness := "from harness import" in texts[0]:
        texts.append((EXAMPLES / "harness.py").read_text("utf-8"))
    for text in texts:
        digest.update(text.split('"""', 2)[2].encode())
    return ast.get_docstring(ast.parse(texts[0])) or "", digest.hexdigest()[:16], by_harness


def command_of(name: str) -> str:
    """Return the command of an example: the first of its docstring, or the harness's."""
    text, _, by_harness = source_of(name)
    own = [line.partition("  #")[0].strip() for line in text.splitlines() if f" examples/{name}.py" in line]
    start = "torchrun --nproc-per-node 4" if by_harness else "python"
    return own[0] if own else f"{start} examples/{name}.py"


def page() -> str:
    """Return the page."""
    sections = [TITLE]
    for name in NAMES:
        blocks = [
            f"```sh\n{each}\n```" if each.startswith(("python ", "torchrun ")) else each
            for each in source_of(name)[0].split("\n\n")
        ]
        region = f"<!-- data examples {name}: begin -->\n<!-- data examples {name}: end -->"
        link = f"[Source](../examples/{name}.py)"
        sections.append("\n\n".join([f"## {name}.py", *blocks, link, region]) + "\n")
    return written("\n".join(sections))


def run(names: list[str]) -> None:
    """Run examples one after another, and record what they print."""
    record = json.loads(RECORD.read_text("utf-8"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name in names:
        done = subprocess.run(
            command_of(name).split(),
            cwd=ROOT,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=DEADLINE_S,
        )
        record["tables"][name] = {"output": [f"$ {command_of(name)}", *done.stdout.rstrip().splitlines()]}
        record["sources"][name] = source_of(name)[1]
        record["date"] = datetime.date.today().isoformat()
    record["tables"] = {name: record["tables"][name] for name in NAMES if name in record["tables"]}
    RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", choices=NAMES, metavar="NAME", help="examples to run; none: all")
    options = parser.parse_args()
    if options.run is not None:
        run(options.run or NAMES)
    PAGE.write_text(page(), "utf-8")
