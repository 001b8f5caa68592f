"""The explorer's faults of program and worker core: for each the lemma that does not hold with it, or why none is needed."""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from netsum.programs import compiled_program
from sim.explore.search import Search
from sim.explore.story import events_of, steps_of
from sim.explore.violations import VIOLATIONS
from sim.switch.loader import load_program
from tests.proof import program_faults, worker
from tests.proof.explored import Missing
from tests.proof.explored_check import sentences_missing
from tests.proof.induction import Verdict
from tests.proof.source_paths import Sources
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.fault import Fault
from tests.sim.explore.faults.program import changed_program
from tests.sim.explore.faults.run import faulty_system
from tests.sim.explore.worker_texts import text_of

RUN_S = 10.0
"""Time of a search for a run in a scenario, in seconds."""
OUTSIDE = {
    "offer-timer-lost": "timers", "lost-for-ever": "timers", "quiet-for-ever": "timers", "asked-once": "timers",
    "index-not-compared": "the chunk's number, which is compared, says the same",
    "exponent-not-learned": "codecs", "wrong-chunk-asked": "what is written into a datagram",
    "all-need-the-header-only": "what is written into a datagram", "unneeded-lanes-written": "codecs",
    "no-padding": "what is written into a datagram",
}  # fmt: skip
"""Faults that no lemma need notice, and why: what they break is liveness beyond R1 to R3, or numbers. The explorer finds them."""


def of_core(name: str, texts: dict[str, str], seed: int, outside: str = "") -> Verdict:
    """Ask for the lemmas about a changed worker core, until one does not hold; `outside`: why none should fail, if so."""
    begun = time.process_time()
    try:
        sources = Sources.of_core(worker.OPAQUE, worker.STEADY, texts)
        failed = next((v.lemma for v in worker.lemmas(seed, sources) if not v.holds), None)
    except AssertionError as refused:
        failed = str(refused)
    words = f"not so: {failed}" if failed else outside or "nothing fails"
    answer = "noticed" if failed else "outside" if outside else "missed"
    expected = "outside" if outside else "noticed"
    return Verdict(f"{name}: {words}", answer, expected, time.process_time() - begun)


def verdict(fault: Fault, folder: Path, seed: int = 0) -> Verdict:
    """Ask for the lemmas that a fault of the catalogue may concern, until one does not hold."""
    shipped = compiled_program(64).json
    if fault.program is not None:
        changed = load_program(changed_program(shipped, fault.program, folder / "changed.json"))
        return program_faults.verdict(fault.name, changed, load_program(shipped), seed)
    text = text_of(fault.module)
    for old, new in fault.changes:
        text = text.replace(old, new)
    return of_core(fault.name, {fault.module: text}, seed, OUTSIDE.get(fault.name, ""))


def run_of(fault: Fault) -> tuple[str, list[str]]:
    """Return a sentence that a state of the faulty code does not have, and the shortest schedule to such a state."""
    found: list[Missing] = []
    for scenario in fault.scenarios:
        system = faulty_system(fault, scenario, compiled_program(64).json)
        search = Search(system, order="breadth", collect=False, liveness=False, memory_bytes=1 << 27)
        result = search.run(until_s=RUN_S)
        if result.violation:
            found = [Missing(VIOLATIONS[result.violation], 0, result.way)]
        found += sentences_missing(search)
        if found:
            first = min(found, key=lambda missing: len(missing.way))
            return first.sentence, [event.text for event in events_of(system, steps_of(system, first.way))]
    return "", []


def runs(seed: int = 0) -> Iterator[Verdict]:
    """Print a schedule of the faulty code for each fault of the catalogue that a sentence, or the explorer, notices."""
    del seed
    for fault in FAULTS.values():
        if fault.source:
            continue
        begun = time.process_time()
        sentence, steps = run_of(fault)
        print(f"{fault.name}: not so: {sentence}", *steps, sep="\n    ", file=sys.stderr)
        expected = "none" if not steps else "found"
        words = (
            f"{fault.name}: {len(steps)} steps to a state without: {sentence}"
            if steps
            else f"{fault.name}: no run"
        )
        yield Verdict(words, expected, expected, time.process_time() - begun)


def lemmas(seed: int = 0) -> Iterator[Verdict]:
    """Ask for each fault of the catalogue."""
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS.values():
            if not fault.source:  # SwitchML's is a program of its own: `faults.py`
                yield verdict(fault, Path(folder), seed)
