"""`netsum explore --random`: random runs on all processors, with their coverage."""

from __future__ import annotations

import os
import secrets
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from controller.entries import COUNTERS
from netsum.explore.files import write_schedule_files
from netsum.programs import compiled_program
from netsum.terminal import Rows, say
from sim.explore.random_runs import SYSTEMS, RandomRuns, Tally
from sim.explore.random_walk import FAULT_KINDS

__all__ = ["run_at_random"]

_LANES = 64
_SLICE_S = 5.0


def run_at_random(minutes: float, seed: int | None, out: Path) -> bool:
    """Run for a while on every processor; returns whether nothing was violated.

    Parameters
    ----------
    minutes
        How long.
    seed
        Of everything random; a new one if None. The seed is printed.
    out
        Where the files of a violation go.
    """
    chosen = secrets.randbits(31) if seed is None else seed
    processes = os.cpu_count() or 1
    say(f"seed {chosen}, {processes} processes")
    deadline = time.time() + 60 * minutes
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_run, chosen, process, deadline, out) for process in range(processes)]
        results = [future.result() for future in futures]
    tallies: dict[str, Tally] = {}
    clean = True
    for found, violated in results:
        clean &= not violated
        for name, tally in found.items():
            tallies.setdefault(name, Tally()).add(tally)
    _print(tallies)
    say("0 wrong sums, 0 hangs" if clean else f"VIOLATED: see {out}; --seed {chosen} repeats it")
    return clean


def _run(seed: int, process: int, deadline: float, out: Path) -> tuple[dict[str, Tally], bool]:
    """Run all systems in turn until the deadline; returns the tallies, and whether something was violated."""
    program = compiled_program(_LANES).json
    runs = {each.name: RandomRuns(each, program, seed * 1000 + process) for each in SYSTEMS}
    while True:
        for name, each in runs.items():
            stop = time.time() + _SLICE_S
            violation = each.run(lambda stop=stop: time.time() >= stop)  # type: ignore[misc]
            if violation:
                stem = out / f"random-{name.replace(' ', '-')}-{seed}-{process}"
                write_schedule_files(each.system, each.steps(), violation, stem, "")
                return {name: other.tally for name, other in runs.items()}, True
            if time.time() >= deadline:
                return {name: other.tally for name, other in runs.items()}, False


def _print(tallies: dict[str, Tally]) -> None:
    shown = Rows("system", ">workers", ">slots", ">runs", ">rounds", ">steps", ">ended by fair network")
    total = Tally()
    for scenario in SYSTEMS:
        tally = tallies.get(scenario.name, Tally())
        total.add(tally)
        counts = (tally.runs, tally.rounds, tally.steps, tally.ended)
        shown.add(
            scenario.name, str(scenario.workers), str(scenario.slots), *(f"{count:,}" for count in counts)
        )
    counts = (total.runs, total.rounds, total.steps, total.ended)
    shown.add("all", "", "", *(f"{count:,}" for count in counts))
    shown.print()
    say("")
    pairs = Rows("outcome in the switch", *(f">{kind}" for kind in FAULT_KINDS))
    for outcome, row in zip(COUNTERS, total.pairs.tolist(), strict=True):
        pairs.add(outcome, *(f"{count:,}" for count in row))
    pairs.print()
    say("")
    core = Rows("counted by the worker cores", ">times")
    for name, count in total.core.items():
        core.add(name, f"{count:,}")
    core.print()
