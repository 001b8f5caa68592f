"""Compile the programs beside this file with p4c, without what differs from machine to machine.

Run it after changing one: ``python tests/sim/switch/programs/compile.py``.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _strip(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _strip(value) for key, value in node.items() if key not in ("source_info", "program")}
    if isinstance(node, list):
        return [_strip(item) for item in node]
    return node


def compiled(source: Path) -> str:
    """Return a program's BMv2 JSON, free of paths and source positions."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "program.json"
        command = ["p4c-bm2-ss", "--std", "p4-16", "-o", str(target), source.name]
        subprocess.run(command, cwd=source.parent, check=True, capture_output=True, timeout=60)
        document = _strip(json.loads(target.read_text()))
    document["__meta__"].pop("compiler", None)
    return json.dumps(document, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    for program in sorted(HERE.glob("*.p4")):
        program.with_suffix(".json").write_text(compiled(program))
