"""Compile the programs of this folder with p4c: `python tests/sim/explore/programs/compile.py`.

The results are committed, so that no test needs the compiler. Each says what it was compiled from.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
P4 = HERE.parents[3] / "p4"
_TIMEOUT_S = 600


def source_digest(source: Path) -> str:
    """Hash a program with all files of the project that it includes: the compiler names actions by their lines."""
    files = [source]
    for file in files:
        for name in re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE):
            included = (file.parent / name).resolve()
            if included not in files:
                files.append(included)
    without_comments = [_p4_build().COMMENT.sub(b"", file.read_bytes()) for file in files]
    return hashlib.sha256(b"".join(without_comments)).hexdigest()


def compiler_version() -> str:
    """Return the version of the compiler on PATH."""
    return str(_p4_build().compiler_version())


def compile_program(source: Path) -> str:
    """Compile a program to BMv2 JSON, without what depends on the machine that compiled it."""
    build = _p4_build()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "out.json")
        command = [build.COMPILER, "--std", "p4-16", "--Wdisable=unused", "-o", str(target), source.name]
        subprocess.run(command, cwd=source.parent, check=True, timeout=_TIMEOUT_S)
        document = build.without_sources(json.loads(target.read_text()))
    document["program"] = source.name
    document["sources"] = source_digest(source)
    document["compiler"] = compiler_version()
    text: str = build.one_line_each(document)
    return text


def _p4_build() -> ModuleType:
    # A package named p4 would hide the one of P4Runtime, so the folder is none.
    spec = importlib.util.spec_from_file_location("netsum_p4_build", P4 / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Compile every program of the folder."""
    compiler = _p4_build().COMPILER
    if shutil.which(compiler) is None:
        print(
            f"error: {compiler} is not on PATH: install p4c (https://github.com/p4lang/p4c)", file=sys.stderr
        )
        return 1
    for source in sorted(HERE.glob("*.p4")):
        source.with_suffix(".json").write_text(compile_program(source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
