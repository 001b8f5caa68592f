"""Compile the test programs of this folder with p4c: `python tests/programs/compile.py`.

The results are committed, so that the tests need no compiler. What depends on the machine that compiled them
is left out: paths and positions in the source.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIMEOUT_S = 120


def stripped(node: Any) -> Any:
    """Strip a BMv2 JSON document of source positions."""
    if isinstance(node, dict):
        return {key: stripped(value) for key, value in node.items() if key not in ("source_info", "program")}
    if isinstance(node, list):
        return [stripped(value) for value in node]
    return node


def compile_program(source: Path) -> tuple[str, str]:
    """Compile a program to (BMv2 JSON, P4Info)."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, described = Path(folder, "out.json"), Path(folder, "out.p4info.txtpb")
        subprocess.run(
            ["p4c-bm2-ss", "--arch", "v1model", "-o", compiled, "--p4runtime-files", described, source.name],
            cwd=source.parent,
            check=True,
            timeout=TIMEOUT_S,
        )
        document = stripped(json.loads(compiled.read_text()))
        return json.dumps(document, indent=1) + "\n", described.read_text()


def main() -> int:
    """Compile every program of the folder."""
    if shutil.which("p4c-bm2-ss") is None:
        print(
            "p4c-bm2-ss is not on PATH; install p4c (https://github.com/p4lang/p4c) to compile the programs"
        )
        return 1
    for source in sorted(HERE.glob("*.p4")):
        compiled, described = compile_program(source)
        source.with_suffix(".json").write_text(compiled)
        source.with_suffix(".p4info.txtpb").write_text(described)
    return 0


if __name__ == "__main__":
    sys.exit(main())
