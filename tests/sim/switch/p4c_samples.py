"""p4c's sample programs: where they are on this machine, and compiling them. None of them is kept in this repository."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["REFUSED", "compile_sample", "samples_dir", "v1model_samples"]

# Unsupported features, by the name in the engine's refusal.
REFUSED = {"extern-funcs-bmv2": "primitive 'extern_func'"}


def samples_dir() -> Path | None:
    """Return p4c's ``testdata/p4_16_samples``: named by NETSUM_P4C_SAMPLES, or beside the compiler."""
    candidates = [Path(named)] if (named := os.environ.get("NETSUM_P4C_SAMPLES")) else []
    if compiler := shutil.which("p4c-bm2-ss"):
        prefix = Path(compiler).resolve().parent.parent
        candidates += [prefix / "share/p4c/p4_16_samples", prefix / "share/p4c/testdata/p4_16_samples"]
    return next((c for c in candidates if c.is_dir()), None)


def v1model_samples(*, with_script: bool) -> list[str]:
    """Return the names of the v1model programs, all or those with an STF script; none without a compiler."""
    directory = samples_dir()
    if directory is None or shutil.which("p4c-bm2-ss") is None:
        return []
    names = []
    for source in sorted(directory.glob("*.p4")):
        scripted = source.name.endswith("-bmv2.p4") and source.with_suffix(".stf").exists()
        if (scripted or not with_script) and "v1model.p4" in source.read_text():
            names.append(source.stem)
    return names


def compile_sample(name: str, directory: Path) -> Path | None:
    """Compile a sample, or find it compiled in `directory`; None if p4c refuses it."""
    samples = samples_dir()
    assert samples is not None
    source = samples / f"{name}.p4"
    target = directory / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.json"
    if not target.exists():
        options = ["--emit-externs"] if name in REFUSED else []
        temporary = target.with_suffix(".part")
        command = ["p4c-bm2-ss", "--std", "p4-16", *options, "-o", str(temporary), source.name]
        subprocess.run(command, cwd=source.parent, capture_output=True, timeout=60, check=False)
        if not temporary.exists() or not temporary.stat().st_size:
            return None
        temporary.replace(target)
    return target
