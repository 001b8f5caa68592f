"""Put faults of the catalogue into the P4 program and the worker core, one at a time, and look for each with the explorer.

    python -m tests.sim.explore.faults [NAME]... [--out FOLDER]
    python -m tests.sim.explore.faults --replay SCHEDULE [--bmv2]

It ends with 0 if every fault is found, or harmless where the catalogue says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from netsum.command_errors import CommandError
from netsum.explore.runs import replay, write_schedule_files
from netsum.programs import compiled_program
from netsum.terminal import ProgressRows
from sim.explore.scenario import ExplorerScenario
from sim.explore.schedules import read_schedule
from sim.explore.system import System
from sim.explore.violations import VIOLATIONS
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.run import faulty_system, look_for
from tests.sim.explore.on_bmv2 import compare_bmv2, require_bmv2


def main() -> int:
    """Look for faults, or run one's schedule."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.explore.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; default: all")
    parser.add_argument(
        "--out", type=Path, default=Path("explored"), help="folder for the files of a schedule"
    )
    parser.add_argument("--replay", type=Path, help="run the schedule in this file and end")
    parser.add_argument(
        "--bmv2", action="store_true", help="compare BMv2's answers, with --replay; needs root"
    )
    chosen = parser.parse_args()
    for name in chosen.names:
        if name not in FAULTS:
            parser.error(f"there is no fault {name!r}: expected some of {', '.join(FAULTS)}")
    try:
        if chosen.replay is None:
            return 0 if find_faults(chosen.names, chosen.out) else 1
        scenario, name, _, made = read_schedule(chosen.replay)
        fault = FAULTS.get(name)
        if chosen.bmv2 and fault is not None and fault.source:
            parser.error(
                f"{fault.source} is a program without forwarding tables: only the embedded switch runs it"
            )
        if chosen.bmv2:
            require_bmv2(scenario)
        clean = replay(chosen.replay, faulty=_faulty)
        if chosen.bmv2:
            program = compiled_program(64)
            clean &= compare_bmv2(faulty_system(fault, scenario, program.json), program, made)
        return 0 if clean else 1
    except CommandError as error:
        parser.exit(1, f"error: {error}\n")


def _faulty(name: str, scenario: ExplorerScenario, program: Path) -> System:
    if name not in FAULTS:
        raise CommandError(f"there is no fault {name!r} in the catalogue")
    return faulty_system(FAULTS[name], scenario, program)


def find_faults(names: Sequence[str], out: Path) -> bool:
    """Put faults of the catalogue in, one at a time, and explore; returns whether each is found, or harmless as it should be."""
    program = compiled_program(64).json
    shown = ProgressRows("fault", "in", "found", ">steps", ">states", ">s", key=1)
    good = True
    for name in names or FAULTS:
        fault = FAULTS[name]
        found = look_for(fault, program)
        if found.result.outcome == "violated":
            write_schedule_files(
                found.system, [event.step for event in found.events], found.result.violation, out / name, name
            )
            verdict = VIOLATIONS[found.result.violation].partition(":")[0]
            good &= not fault.harmless
        else:
            verdict = "harmless" if found.result.outcome == "exhausted" else found.result.outcome
            good &= bool(fault.harmless) and verdict == "harmless"
        print(f"{name}: {verdict}, {len(found.events)} steps, {found.states:,} states, {found.seconds:.1f} s")
        length = f"{'' if found.shortest else '≤ '}{len(found.events)}"
        shown.add(
            name,
            "core" if fault.module else "program",
            verdict,
            length if found.result.outcome == "violated" else "",
            f"{found.states:,}",
            f"{found.seconds:.1f}",
        )
    shown.print()
    return good


if __name__ == "__main__":
    sys.exit(main())
