"""`netsum explore --random`: random runs on all processors, with their coverage."""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from netsum.explore.runs import write_schedule_files
from netsum.programs import compiled_program
from netsum.terminal import ProgressRows, echo
from sim.core_calls import SHIPPED, CoreCode
from sim.explore.random_runs import OUTCOMES, SYSTEMS, RandomRuns, Tally
from sim.explore.random_walk import FAULT_KINDS

_LANES = 64
_SLICE_S = 5.0


class Counting(Protocol):
    """A worker core that counts something by name while it runs."""

    @property
    def worker(self) -> CoreCode:
        """The worker core's machine code."""

    def counted(self) -> Mapping[str, int]:
        """Return the counts."""


@dataclass(frozen=True)
class RandomResult:
    """Result of random runs on every processor."""

    clean: bool  # Whether nothing was violated.
    seed: int
    systems: dict[str, dict[str, Any]]  # Runs, rounds, steps and ended runs, by the system's name.
    taken: dict[str, int]  # Counts of `Counting` by name, of all processors together.


def run_at_random(
    minutes: float,
    seed: int | None,
    out: Path,
    counting: Callable[[], Counting] | None = None,
) -> RandomResult:
    """Run for a while on every processor.

    `seed`: of everything random; a new one if None. The seed is printed. `counting`: makes a worker core that takes the
    place of the shipped one, in each process.
    """
    chosen = secrets.randbits(31) if seed is None else seed
    processes = os.cpu_count() or 1
    echo(f"seed {chosen}, {processes} processes")
    program = compiled_program(_LANES).json
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(_run, program, chosen, process, 60 * minutes, counting, out)
            for process in range(processes)
        ]
        results = [future.result() for future in futures]
    tallies: dict[str, Tally] = {}
    taken: dict[str, int] = {}
    clean = True
    for found, counted, violated in results:
        clean &= not violated
        for name, tally in found.items():
            tallies.setdefault(name, Tally()).add(tally)
        for name, count in counted.items():
            taken[name] = taken.get(name, 0) + count
    _print(tallies)
    echo("0 wrong sums, 0 hangs" if clean else f"VIOLATED: see {out}; --seed {chosen} repeats it")
    systems = {
        name: {"runs": each.runs, "rounds": each.rounds, "steps": each.steps, "ended": each.ended}
        for name, each in tallies.items()
    }
    return RandomResult(clean, chosen, systems, taken)


def _run(
    program: Path, seed: int, process: int, seconds: float, make: Callable[[], Counting] | None, out: Path
) -> tuple[dict[str, Tally], dict[str, int], bool]:
    """Run all systems in turn; returns the tallies, what was counted, and whether something was violated."""
    counting = make() if make else None
    worker = counting.worker if counting else SHIPPED
    runs = {each.name: RandomRuns(each, program, seed * 1000 + process, worker) for each in SYSTEMS}
    # The time begins when all is compiled: after a first run of each.
    violated = any(_violates(name, each, _once(), seed, process, out) for name, each in runs.items())
    deadline = time.monotonic() + seconds
    while not violated and time.monotonic() < deadline:
        for name, each in runs.items():
            stop = min(time.monotonic() + _SLICE_S, deadline)
            over = partial(_is_past, stop)
            violated = violated or _violates(name, each, over, seed, process, out)
    tallies = {name: each.tally for name, each in runs.items()}
    return tallies, dict(counting.counted()) if counting else {}, violated


def _violates(
    name: str, runs: RandomRuns, until: Callable[[], bool], seed: int, process: int, out: Path
) -> bool:
    violation = runs.run(until)
    if violation:
        stem = out / f"random-{name.replace(' ', '-')}-{seed}-{process}"
        write_schedule_files(runs.system, runs.steps(), violation, stem, "")
    return bool(violation)


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def _once() -> Callable[[], bool]:
    answers = iter((False, True))
    return lambda: next(answers)


def _print(tallies: dict[str, Tally]) -> None:
    shown = ProgressRows(
        "system", ">workers", ">switches", ">slots", ">runs", ">rounds", ">steps", ">ended by fair network"
    )
    total = Tally()
    for scenario in SYSTEMS:
        tally = tallies.get(scenario.name, Tally())
        total.add(tally)
        counts = (tally.runs, tally.rounds, tally.steps, tally.ended)
        shown.add(
            scenario.name,
            *map(str, (scenario.workers, scenario.shape.switches, scenario.slots)),
            *(f"{count:,}" for count in counts),
        )
    counts = (total.runs, total.rounds, total.steps, total.ended)
    shown.add("all", "", "", "", *(f"{count:,}" for count in counts))
    shown.print()
    echo("")
    pairs = ProgressRows("outcome in the switch", *(f">{kind}" for kind in FAULT_KINDS))
    for outcome, row in zip(OUTCOMES, total.pairs.tolist(), strict=True):
        pairs.add(outcome, *(f"{count:,}" for count in row))
    pairs.print()
    echo("")
    core = ProgressRows("counted by the worker cores", ">times")
    for name, count in total.core.items():
        core.add(name, f"{count:,}")
    core.print()
