"""Faults that reviewers named, and faults that a seed draws: the lemma that does not hold with each, or why none need fail.

They are those of `tests/sim/explore/planted_faults.py` and `blind_faults.py`.
"""

import ast
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sim.core_calls import SHIPPED
from sim.explore.search import Search
from sim.explore.story import events_of, steps_of
from sim.explore.system import System
from sim.explore.violations import VIOLATIONS
from sim.switch.loader import load_program
from tests.proof import program_faults, worker
from tests.proof.catalogue import of_core
from tests.proof.induction import Verdict
from tests.proof.source_paths import Sources
from tests.proof.worker_faults import ELSEWHERE
from tests.sim.explore.blind_faults import MODULES, PROGRAM, SCENARIOS, Fault, core_fault, program_fault
from tests.sim.explore.planted_faults import PLANTED, plant
from tests.sim.explore.worker_texts import text_of, worker_with

SEED, OF_PROGRAM, OF_CORE = 22, 24, 12
RUN_S = 3.0
"""Time of a search for a run in a scenario, in seconds."""
TIMERS = ("deadline not renewed by a RESULT", "another slot's timer put off")
"""Faults that reviewers named and no lemma need notice."""


def _drawn(folder: Path) -> Iterator[Fault]:
    draw = random.Random(SEED)
    for number in range(OF_PROGRAM):
        yield program_fault(draw, folder, number)
    for _ in range(OF_CORE):
        yield core_fault(draw)


def _outside(fault: Fault) -> str:
    """Return why no lemma need notice a fault of the worker core; empty if one must."""
    if fault.what in TIMERS:
        return "timers"
    place, _, change = fault.what.partition(": ")
    _, _, line = place.partition(".py:")
    if not line.isdecimal():
        return ""
    functions = [n for n in ast.parse(text_of(fault.module)).body if isinstance(n, ast.FunctionDef)]
    inside = [f.name for f in functions if f.lineno <= int(line) <= (f.end_lineno or f.lineno)]
    sources = Sources.of_core(worker.OPAQUE, worker.STEADY)
    followed = sources.followed([name for _, names in worker.GROUPS for name in names])
    if not followed.intersection(inside):
        return f"no lemma is about {', '.join(inside)}: timers, and what is written into a datagram"
    if any(words in f"{inside[0]}: {change}\n" for words in ELSEWHERE):
        return "timers, codecs and counters"
    return ""


def verdict(fault: Fault, seed: int = 0) -> Verdict:
    """Ask for the lemmas that a fault may concern, until one does not hold."""
    if fault.module:
        return of_core(fault.what, {fault.module: fault.text}, seed, _outside(fault))
    assert fault.path
    return program_faults.verdict(fault.what, load_program(fault.path), load_program(PROGRAM), seed)


def reviewed(seed: int = 0) -> Iterator[Verdict]:
    """Ask for each fault that reviewers named; those of the program are compiled."""
    for planted in PLANTED:
        if planted.where not in MODULES and shutil.which("p4c-bm2-ss") is None:
            yield Verdict(f"{planted.name}: p4c-bm2-ss is not on PATH", "missed", "noticed", 0.0)
            continue
        with tempfile.TemporaryDirectory() as folder:
            yield verdict(plant(planted, Path(folder)), seed)


def drawn(seed: int = 0) -> Iterator[Verdict]:
    """Ask for each fault that the seed draws."""
    with tempfile.TemporaryDirectory() as folder:
        for fault in _drawn(Path(folder)):
            yield verdict(fault, seed)


def run_of(fault: Fault) -> tuple[str, list[str]]:
    """Return a guarantee that a fault violates, and the shortest schedule that shows it; both empty if none is found."""
    core = worker_with({fault.module: fault.text}) if fault.module else SHIPPED
    for scenario in SCENARIOS:
        system = System(scenario, fault.path or PROGRAM, core)
        search = Search(system, order="breadth", collect=False, memory_bytes=1 << 27)
        result = search.run(until_s=RUN_S)
        if result.violation:
            steps = [event.text for event in events_of(system, steps_of(system, result.way))]
            return VIOLATIONS[result.violation], steps
    return "", []


def runs(seed: int = 0) -> Iterator[Verdict]:
    """Print a schedule of the explorer for each fault that the seed draws and that it finds."""
    del seed
    with tempfile.TemporaryDirectory() as folder:
        for fault in _drawn(Path(folder)):
            begun = time.process_time()
            violated, steps = run_of(fault)
            print(f"{fault.what}: not so: {violated}", *steps, sep="\n    ", file=sys.stderr)
            words = (
                f"{fault.what}: {len(steps)} steps to: {violated}" if violated else f"{fault.what}: no run"
            )
            answer = "found" if violated else "none"
            yield Verdict(words, answer, answer, time.process_time() - begun)
