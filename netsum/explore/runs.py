"""Explorations with progress, checkpoints and files of what they find."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from netsum.cli.errors import UsageError
from netsum.cli.output import print_table, table
from netsum.programs import compiled_program
from sim.explore import checkpoint as checkpoints
from sim.explore.configurations import CONFIGURATIONS
from sim.explore.drawing import svg, text
from sim.explore.scenario import Scenario
from sim.explore.schedules import pcap, read_schedule, write_schedule
from sim.explore.search import Order, Progress, Result, Search
from sim.explore.shrink import shrink
from sim.explore.story import steps_of, tell
from sim.explore.system import System
from sim.explore.violations import VIOLATIONS

__all__ = ["go_on", "print_configurations", "replay", "run"]

_LANES = 64
_CHECKPOINT_S = 60.0
_PROGRESS_S = 2.0


def print_configurations() -> None:
    """Print what can be explored."""
    shown = table("name", ">workers", ">jobs", ">slots", "rounds", "what else may happen")
    for each in CONFIGURATIONS.values():
        rounds = ",".join(r.kind + ("" if r.agreed else "?") for r in each.rounds)
        shown.add_row(each.name, str(each.workers), str(each.jobs), str(each.slots), rounds, _extras(each))
    print_table(shown)


def _extras(scenario: Scenario) -> str:
    extras = []
    if scenario.kills:
        extras.append(f"{scenario.kills} worker dies")
    if scenario.switch_restarts:
        extras.append("the switch restarts")
    if scenario.epochs > 1:
        extras.append("the job moves to a new epoch")
    if scenario.first_chunk:
        extras.append(f"chunks begin at {scenario.first_chunk}")
    if scenario.strangers:
        extras.append("packets of strangers")
    if scenario.copies:
        extras.append(f"at most {scenario.copies} copies of a packet in flight")
    if not scenario.batches:
        extras.append("datagrams are taken in one by one")
    if not all(each.agreed for each in scenario.rounds):
        extras.append("the last worker means another collective")
    return "; ".join(extras)


def run(
    names: Sequence[str],
    *,
    order: Order,
    reduce: bool,
    memory_bytes: int,
    checkpoint: Path | None,
    out: Path,
) -> bool:
    """Explore configurations one after the other; returns whether all were explored in full and nothing was violated."""
    for name in names:
        if name not in CONFIGURATIONS:
            raise UsageError(f"there is no configuration {name!r}: `netsum explore --list` shows them")
    if checkpoint is not None and len(names) > 1:
        raise UsageError("--checkpoint keeps one exploration: give one configuration")
    clean = True
    program = compiled_program(_LANES).json
    _say("compiling or loading the explorer …")
    for name in names:
        system = System(CONFIGURATIONS[name], program)
        search = Search(system, order=order, reduce=reduce, memory_bytes=memory_bytes)
        clean &= _run(search, program, checkpoint, out)
    return clean


def go_on(folder: Path, memory_bytes: int, out: Path) -> bool:
    """Go on with the search in a folder; returns as `run`."""
    _say("compiling or loading the explorer …")
    search, program = checkpoints.load(folder, memory_bytes)
    return _run(search, program, folder, out)


def _run(search: Search, program: Path, checkpoint: Path | None, out: Path) -> bool:
    name = search.system.scenario.name
    last = {"shown": time.monotonic(), "saved": time.monotonic()}

    def report(progress: Progress) -> bool:
        now = time.monotonic()
        if now - last["shown"] >= _PROGRESS_S:
            last["shown"] = now
            _say(f"{name}: {_counts(progress)}", again=True)
        if checkpoint is not None and now - last["saved"] >= _CHECKPOINT_S:
            started = time.monotonic()
            checkpoints.save(search, program, checkpoint)
            last["saved"] = time.monotonic() + 10 * (time.monotonic() - started)
        return True

    try:
        result = search.run(report)
    except KeyboardInterrupt:
        if checkpoint is not None:
            checkpoints.save(search, program, checkpoint)
            _say(f"\nkept in {checkpoint}: go on with `netsum explore --resume {checkpoint}`")
        raise
    _say("", again=True)
    print(f"{name}: {_counts(result.progress)}: {_verdict(result)}", flush=True)
    if result.outcome == "memory" and checkpoint is not None:
        checkpoints.save(search, program, checkpoint)
        _say(f"kept in {checkpoint}: go on with more --memory and --resume {checkpoint}")
    if result.outcome == "violated":
        write_files(search.system, result, out / name, "")
    return result.outcome == "exhausted"


def _counts(progress: Progress) -> str:
    rate = progress.steps / progress.seconds / 1e6 if progress.seconds else 0.0
    return (
        f"{progress.states:,} states, {progress.ends:,} without packets, {progress.steps:,} steps, "
        f"{progress.seconds:.1f} s, {rate:.2f} M steps/s, {progress.memory >> 20:,} MiB"
    )


def _verdict(result: Result) -> str:
    match result.outcome:
        case "exhausted":
            return "explored in full, 0 violations"
        case "memory":
            return "not explored in full: --memory is reached"
        case "violated":
            return f"VIOLATED after {len(result.way)} steps: {VIOLATIONS[result.violation]}"
    return "paused"


def write_files(system: System, result: Result, stem: Path, fault: str) -> None:
    """Shrink a way to a violation and write it as text, diagram, capture and schedule."""
    events = shrink(system, steps_of(system, result.way), result.violation)
    stem.parent.mkdir(parents=True, exist_ok=True)
    title, ending = f"netsum explore: {system.scenario.name}", VIOLATIONS[result.violation]
    told = text(events, title, ending)
    print(told, flush=True)
    stem.with_suffix(".txt").write_text(told)
    stem.with_suffix(".svg").write_text(svg(events, system.scenario.hosts, title, ending))
    stem.with_suffix(".pcap").write_bytes(pcap(events))
    write_schedule(stem.with_suffix(".json"), system.scenario, fault, result.violation, events)
    print(f"written: {stem}.txt, .svg, .pcap, and .json for --replay", flush=True)


def replay(path: Path) -> bool:
    """Run a schedule and print it; returns whether nothing was violated."""
    scenario, _, violation, made = read_schedule(path)
    _say("compiling or loading the explorer …")
    system = System(scenario, compiled_program(_LANES).json)
    events = tell(system, made)
    found = events[-1].result if events and events[-1].result < 0 else 0
    ending = VIOLATIONS[found] if found else "no guarantee is violated on the way"
    if not found and violation:
        ending += f"; the file says: {VIOLATIONS[violation]}"
    print(text(events, f"{path}: {scenario.name}", ending), flush=True)
    return not found


def _say(line: str, *, again: bool = False) -> None:
    """Write a line of progress for people; one that replaces the last only to a terminal."""
    if again and not sys.stderr.isatty():
        return
    print(f"\r{line}\x1b[K" if again else line, end="" if again else "\n", file=sys.stderr, flush=True)
