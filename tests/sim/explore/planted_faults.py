"""Faults that reviewers named, planted in the sources of the P4 program and of the worker core; each net says whether it
catches them.

    python -m tests.sim.explore.planted_faults --out planted.jsonl [NAME …]

The faults of the program need p4c: they are changes of the source, compiled. A line of JSON a fault.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.sim.explore.blind_faults import (
    MODULES,
    ROOT,
    Fault,
    dataplane,
    explore,
    host_agent,
    in_a_process,
    run_at_random,
)
from tests.sim.explore.worker_texts import text_of


@dataclass(frozen=True)
class Planted:
    """A piece of a source (`where` is a module of the core or a file below p4/), and what takes its place."""

    name: str
    where: str
    piece: str
    instead: str


PLANTED: Final = (
    Planted("quorum of nine or more", "v1model/quorum.p4", "(bit<8>) sums & 0x3F", "(bit<8>) sums & 0x07"),
    Planted("op not compared", "v1model/slot.p4", "++ hdr.netsum.op ++", "++ 3w1 ++"),
    Planted(
        "pool range not checked",
        "v1model/netsum.p4",
        "target.shared.admission.indices_left == 0 ||",
        "false ||",
    ),
    Planted("age of 2^31 is newer", "v1model/slot.p4", "age[31:31] == 1", "age > 0x80000000"),
    Planted(
        "parent's RESULT taken too early",
        "v1model/slot.p4",
        "collective != asked_collective || seen != meta.admission.full_mask) {",
        "collective != asked_collective) {",
    ),
    Planted(
        "parent's RESULT from elsewhere",
        "v1model/netsum.p4",
        "from_parent != (target.shared.admission.worker_bit == 0)",
        "(!from_parent && target.shared.admission.worker_bit == 0)",
    ),
    Planted(
        "dispute lost on a full slot",
        "v1model/slot.p4",
        "collective = COLLECTIVE_DISPUTED;\n                changed = true;",
        "collective = COLLECTIVE_DISPUTED;\n                changed = seen != meta.admission.full_mask;",
    ),
    Planted(
        "last exponent counts",
        "v1model/slot.p4",
        "if (hdr.netsum.exponent > exponent) {",
        "if (hdr.netsum.exponent != exponent) {",
    ),
    Planted(
        "any exponent accepted",
        "arrivals",
        "possible = exponent_is_possible(record.payload, exponent, slot.exponent)",
        "possible = True",
    ),
    Planted(
        "MISMATCH ahead ignored",
        "arrivals",
        "DISPUTED if waiting or ahead < 2 * core.slot_count else STALE",
        "DISPUTED if waiting else STALE",
    ),
    Planted(
        "deadline not renewed by a RESULT",
        "arrivals",
        "    core.progress_ns = now_ns\n",
        "",
    ),
    Planted(
        "a level above is not asked for lanes",
        "arrivals",
        "if full or level > 0:",
        "if full:",
    ),
    Planted(
        "another slot's timer put off",
        "recovery",
        "core.loss_time_ns = min(core.loss_time_ns, loss_time_ns)",
        "core.loss_time_ns = loss_time_ns",
    ),
    Planted(
        "quorum chunk's slot reused too early",
        "departures",
        "if slots[slot_of(core, chunk)].quorum != 0:",
        "if False:",
    ),
)


def plant(planted: Planted, folder: Path) -> Fault:
    """Change a source; returns the fault, compiled if it is one of the program."""
    if planted.where in MODULES:
        text = text_of(planted.where)
        assert text.count(planted.piece) == 1, planted
        return Fault(planted.name, None, planted.where, text.replace(planted.piece, planted.instead))
    sources = folder / "p4"
    shutil.copytree(ROOT / "p4", sources, ignore=shutil.ignore_patterns("build", "__pycache__"))
    path = sources / planted.where
    text = path.read_text()
    assert text.count(planted.piece) == 1, planted
    path.write_text(text.replace(planted.piece, planted.instead))
    path = folder / "changed.json"
    subprocess.run(
        ["p4c-bm2-ss", "--std", "p4-16", "-D", "LANES=64", "-o", path, sources / "v1model/netsum.p4"],
        check=True,
        capture_output=True,
    )
    return Fault(planted.name, path)


def main() -> None:
    """Plant faults and write each net's verdict on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    chosen = [each for each in PLANTED if not given.names or each.name in given.names]
    if shutil.which("p4c-bm2-ss") is None and any(each.where not in MODULES for each in chosen):
        sys.exit("p4c-bm2-ss is not on PATH: faults of the program are compiled")
    with given.out.open("w") as out:
        for planted in chosen:
            with tempfile.TemporaryDirectory() as folder:
                fault = plant(planted, Path(folder))
                nets = (explore, run_at_random, host_agent if fault.module else dataplane)
                said = {net.__name__: in_a_process(net, fault) for net in nets}
            print(json.dumps({"fault": fault.what, **said}, ensure_ascii=False), file=out, flush=True)


if __name__ == "__main__":
    main()
