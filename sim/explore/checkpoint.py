"""A search on disk: written beside the last one and renamed, so that there is always one that is whole."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from host_agent.errors import NetsumError
from netsum_common.sources import sources_stamp
from sim.explore.engine.found_states import SEARCH
from sim.explore.scenario import ExplorerScenario, from_document
from sim.explore.search import Search
from sim.explore.system import System

_FORMAT = 1
_COUNTS = (
    *("head", "tail", "states", "ends_count", "low", "waiting"),
    *("expanded", "saturated", "subsumed", "dropped", "longest", "part_count", "part_checked"),
)


_ARRAYS = ("arena", "keys", "ends", "buckets", "tops", "parents", "codes", "parts", "part_keys")
_USED = {"arena": "tail", "parts": "part_count", "parents": "states", "codes": "states"}
"""Counts of the used elements of arrays that have room for more."""


class CheckpointError(NetsumError):
    """A checkpoint that cannot be gone on from; the message says why."""


def _code_stamp(program: Path) -> str:
    """Hash the code that gives a state its meaning: the program, the worker core, the explorer."""
    return hashlib.sha256(program.read_bytes()).hexdigest() + sources_stamp(Path(__file__))


def save(search: Search, program: Path, folder: Path) -> None:
    """Write a search that is paused; `OSError` if the folder cannot be written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        record, world = search.record, search.system.world
        count = world.get("packet_count")
        used = {name: int(record[count][0]) for name, count in _USED.items()}
        arrays = {name: search.arrays[name][: used.get(name)] for name in _ARRAYS}
        for name in ("packets", "about"):
            arrays[name] = world.arrays[name][:count]
        arrays["index"] = world.arrays["index"]
        for name, array in arrays.items():
            np.save(fresh / f"{name}.npy", array)
        document = {
            "format": _FORMAT,
            "stamp": _code_stamp(program),
            "scenario": asdict(search.system.scenario),
            "program": str(program),
            "order": search.order,
            "liveness": bool(record["liveness"][0]),
            "reduce": bool(world.get("collect") or record["subsume"][0]),
            "collect": bool(world.get("collect")),
            "symmetry": world.get("permutations") > 1,
            "seconds": search.seconds,
            "steps": world.get("steps"),
            "packet_count": count,
            **{name: int(record[name][0]) for name in _COUNTS},
        }
        (fresh / "search.json").write_text(json.dumps(document, indent=1))
        old = folder.with_name(folder.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def load(folder: Path, memory_bytes: int) -> tuple[Search, Path]:
    """Read a search and return it, paused, with the program that it explores.

    Raises CheckpointError if there is none, or the code has changed since.
    """
    if not folder.exists() and folder.with_name(folder.name + ".old").exists():
        folder = folder.with_name(folder.name + ".old")  # killed between two renames
    try:
        document = json.loads((folder / "search.json").read_text())
    except (OSError, ValueError) as fault:
        raise CheckpointError(f"{folder} is not a checkpoint of an exploration ({fault})") from None
    program = Path(document["program"])
    if (
        document.get("format") != _FORMAT
        or not program.is_file()
        or document["stamp"] != _code_stamp(program)
    ):
        raise CheckpointError(
            f"{folder} was written by other code (P4 program, worker core or explorer): start the exploration again"
        )
    scenario: ExplorerScenario = from_document(document["scenario"])
    system = System(scenario, program)
    search = Search(
        system,
        order=document["order"],
        liveness=document["liveness"],
        reduce=document["reduce"],
        collect=document["collect"],
        symmetry=document["symmetry"],
        memory_bytes=memory_bytes,
    )
    world = system.world
    for name in ("packets", "about", "index"):
        array = np.load(folder / f"{name}.npy")
        world.arrays[name][: len(array)] = array
    world.put(packet_count=document["packet_count"], steps=document["steps"])
    search.restore(
        {name: np.load(folder / f"{name}.npy") for name in _ARRAYS},
        {name: document[name] for name in _COUNTS},
        document["seconds"],
    )
    return search, program


def exists(folder: Path) -> bool:
    """Whether there is something to go on from."""
    return (folder / "search.json").is_file() or os.path.isfile(
        folder.with_name(folder.name + ".old") / "search.json"
    )


assert set(_COUNTS) <= set(SEARCH.names or ())
