"""The exercises of a checkout of p4lang's tutorials: which there are, and compiling one into a folder of its own."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "NETSUM_TUTORIALS"
COMPILER = "p4c-bm2-ss"
COMPILE_TIMEOUT_S = 500


@dataclass(frozen=True)
class Exercise:
    """One exercise, with a topology to run it on.

    Attributes
    ----------
    name
        For people.
    folder
        Its folder under ``exercises``.
    topology
        Its topology's file in that folder.
    sources
        P4 programs in that folder; each compiles to ``build/STEM.json``.
    entries
        What ``--entries`` says beyond the topology.
    controlled
        Whether its own controller programs the switches.
    """

    name: str
    folder: str
    topology: str
    sources: tuple[str, ...]
    entries: tuple[str, ...] = ()
    controlled: bool = False


def _plain(name: str, topology: str = "topology.json", **more: Any) -> Exercise:
    return Exercise(name, name, topology, (f"solution/{name}.p4",), **more)


EXERCISES = (
    _plain("basic", "pod-topo/topology.json"),
    Exercise("basic, triangle", "basic", "triangle-topo/topology.json", ("solution/basic.p4",)),
    _plain("basic_tunnel"),
    Exercise(
        *("p4runtime", "p4runtime", "topology.json", ("advanced_tunnel.p4",)),
        controlled=True,
    ),
    Exercise(*("flowcache", "flowcache", "topology.json", ("solution/flowcache.p4",)), controlled=True),
    _plain("ecn"),
    _plain("mri"),
    _plain("source_routing"),
    _plain("calc"),
    _plain("load_balance"),
    _plain("qos"),
    _plain("multicast", "sig-topo/topology.json", entries=("s1=solution/s1-runtime.json",)),
    Exercise(
        *("firewall", "firewall", "pod-topo/topology.json", ("solution/firewall.p4", "basic.p4")),
    ),
    _plain("link_monitor", "pod-topo/topology.json"),
)


def checkout() -> Path | None:
    """Return the checkout that NETSUM_TUTORIALS names; None if it names none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def missing() -> str | None:
    """Return why the exercises cannot be compiled, or None."""
    found = checkout()
    if found is None:
        return f"{VARIABLE} does not name a checkout of https://github.com/p4lang/tutorials"
    if not (found / "exercises").is_dir():
        return f"{VARIABLE}={found} has no folder exercises"
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    return None


def prepare(exercise: Exercise, folder: Path, cache: Path) -> Path:
    """Copy an exercise into a folder and compile its programs there, or find them compiled; return its folder.

    The folders are laid out as in the checkout, so that an exercise's controller finds ``utils``.

    Raises
    ------
    subprocess.CalledProcessError
        The compiler refuses a program.
    """
    whole = checkout()
    assert whole is not None, "see `missing`"
    shutil.copytree(whole / "utils", folder / "utils", dirs_exist_ok=True)
    own = folder / "exercises" / exercise.folder
    shutil.copytree(whole / "exercises" / exercise.folder, own, dirs_exist_ok=True)
    (own / "build").mkdir(exist_ok=True)
    (own / "logs").mkdir(exist_ok=True)
    for source in exercise.sources:
        text = (own / source).read_bytes()
        stem = Path(source).stem
        compiled = cache / f"{stem}-{hashlib.sha256(text).hexdigest()[:12]}"
        if not compiled.with_suffix(".json").is_file():
            _compile(own / source, compiled)
        shutil.copyfile(compiled.with_suffix(".json"), own / "build" / f"{stem}.json")
        shutil.copyfile(compiled.with_suffix(".p4info.txtpb"), own / "build" / f"{stem}.p4.p4info.txtpb")
    return own


def _compile(source: Path, compiled: Path) -> None:
    part = compiled.with_suffix(".part")
    described = compiled.with_suffix(".p4info.txtpb")
    subprocess.run(
        [COMPILER, "--std", "p4-16", "--p4runtime-files", str(described), "-o", str(part), str(source)],
        check=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    part.replace(compiled.with_suffix(".json"))
