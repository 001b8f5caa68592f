"""Explorations with progress, checkpoints and files of their findings."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.service.page import recorded_page
from netsum.command_errors import UsageError
from netsum.explore.options import ExploreOptions
from netsum.programs import compiled_program, warn_if_stale
from netsum.terminal import ProgressRows, echo, echo_progress
from sim.explore import checkpoint as checkpoints
from sim.explore.configurations import CONFIGURATIONS
from sim.explore.engine.world import LEFT_OUT_WRONGLY, MACHINE_ERROR
from sim.explore.scenario import ExplorerScenario
from sim.explore.schedules import pcap, read_schedule, text, write_schedule
from sim.explore.search import Search, SearchProgress, SearchResult
from sim.explore.shrink import shrink, violates
from sim.explore.story import StoryEvent, StoryStep, events_of, recorded_steps, steps_of
from sim.explore.system import System
from sim.explore.violations import VIOLATIONS


def write_schedule_files(
    system: System, made: list[StoryStep], violation: int, stem: Path, fault: str
) -> list[StoryEvent]:
    """Shrink a schedule that violates something, print it, and write it to files; returns its events."""
    events = shrink(system, made, violation)
    stem.parent.mkdir(parents=True, exist_ok=True)
    title, ending = f"netsum explore: {stem.name}", VIOLATIONS[violation]
    shape = system.shape
    story = text(events, shape, title, ending)
    for line in story.splitlines():
        echo(line)
    stem.with_suffix(".txt").write_text(story)
    stem.with_suffix(".pcap").write_bytes(pcap(events, shape))
    write_schedule(stem.with_suffix(".json"), system.scenario, fault, violation, events)
    stem.with_suffix(".html").write_text(recorded_page(title, shape.links(), recorded_steps(events, shape)))
    echo(f"written: {stem}.txt, .html, .pcap, and .json for --replay")
    return events


_LANES = 64
_PROGRESS_S = 2.0
_SYMMETRY_WORKERS = 4  # From this many on one state stands for all permutations, unless the caller chooses.


def print_configurations() -> list[dict[str, Any]]:
    """Print what can be explored, and return it for JSON."""
    shown = ProgressRows("name", ">workers", ">jobs", ">switches", ">slots", "rounds", "what else may happen")
    for each in CONFIGURATIONS.values():
        rounds = ",".join(r.kind + ("" if r.agreed else "?") for r in each.rounds)
        counts = (each.workers, each.jobs, each.shape.switches, each.slots)
        shown.add(each.name, *map(str, counts), rounds, _extras(each))
    shown.print()
    return [
        {"name": each.name, "workers": each.workers, "jobs": each.jobs, "switches": each.shape.switches, "slots": each.slots}
        for each in CONFIGURATIONS.values()
    ]  # fmt: skip


def _extras(scenario: ExplorerScenario) -> str:
    extras = []
    if scenario.kills:
        extras.append(f"{scenario.kills} worker dies")
    if scenario.switch_restarts:
        extras.append("a switch restarts" if scenario.parents else "the switch restarts")
    if scenario.epochs > 1:
        extras.append("the job moves to a new epoch" + " with a lower number" * scenario.falls)
    if scenario.moves:
        extras.append("which has other slots")
    if not scenario.grows:
        extras.append("packets cannot grow by lanes")
    if scenario.first_chunk:
        extras.append(f"chunks begin at {scenario.first_chunk}")
    if scenario.unknown_sources:
        extras.append("packets of unknown sources")
    if scenario.copies:
        extras.append(f"at most {scenario.copies} copies of a packet in flight")
    if not scenario.batches:
        extras.append("datagrams are taken in one by one")
    if not all(each.agreed for each in scenario.rounds):
        extras.append("the last worker means another collective")
    return "; ".join(extras)


def run(options: ExploreOptions) -> list[dict[str, Any]]:
    """Explore configurations one after the other; returns how each search ended, for JSON.

    The outcome "exhausted" is that of a configuration that was explored in full, without a violation.
    """
    names = options.names or ("smallest",)
    for name in names:
        if name not in CONFIGURATIONS:
            raise UsageError(f"there is no configuration {name!r}: `netsum explore --list` shows them")
    if options.checkpoint is not None and len(names) > 1:
        raise UsageError("--checkpoint keeps one exploration: give one configuration")
    ended = []
    program = compiled_program(_LANES).json
    echo_progress("compiling or loading the explorer …")
    for name in names:
        system = System(CONFIGURATIONS[name], program)
        many = system.scenario.workers >= _SYMMETRY_WORKERS
        search = Search(
            system,
            order="breadth" if options.shortest else "largest",
            reduce=not options.all_states,
            symmetry=many and not options.all_states if options.symmetry is None else options.symmetry,
            memory_bytes=options.memory << 20,
        )
        ended.append(_run(search, program, options.checkpoint, options))
    return ended


def resume(folder: Path, options: ExploreOptions) -> list[dict[str, Any]]:
    """Continue the search in a folder; returns as `run`."""
    echo_progress("compiling or loading the explorer …")
    search, program = checkpoints.load(folder, options.memory << 20)
    warn_if_stale(program)
    return [_run(search, program, folder, options)]


def _run(search: Search, program: Path, checkpoint: Path | None, options: ExploreOptions) -> dict[str, Any]:
    name = search.system.scenario.name
    last = {"shown": time.monotonic(), "saved": time.monotonic()}

    def report(progress: SearchProgress) -> bool:
        now = time.monotonic()
        if now - last["shown"] >= _PROGRESS_S:
            last["shown"] = now
            echo_progress(f"{name}: {_counts(progress)}", again=True)
        if checkpoint is not None and now - last["saved"] >= options.every:
            started = time.monotonic()
            checkpoints.save(search, program, checkpoint)
            last["saved"] = time.monotonic() + 10 * (time.monotonic() - started)
        return True

    try:
        result = search.run(report)
    except KeyboardInterrupt:
        if checkpoint is not None:
            checkpoints.save(search, program, checkpoint)
            echo_progress(f"\nkept in {checkpoint}: go on with `netsum explore --resume {checkpoint}`")
        raise
    echo_progress("", again=True)
    print(f"{name}: {_counts(result.progress)}: {_verdict(result)}", flush=True)
    if result.outcome == "memory" and checkpoint is not None:
        checkpoints.save(search, program, checkpoint)
        echo_progress(f"kept in {checkpoint}: go on with more --memory and --resume {checkpoint}")
    if result.outcome == "violated" and result.violation not in (LEFT_OUT_WRONGLY, MACHINE_ERROR):
        made = steps_of(search.system, result.way)
        write_schedule_files(search.system, made, result.violation, options.out / name, "")
    violation = VIOLATIONS[result.violation] if result.violation else None
    return {
        "configuration": name, "outcome": result.outcome, "violation": violation, **asdict(result.progress),
    }  # fmt: skip


def _counts(progress: SearchProgress) -> str:
    rate = progress.steps / progress.seconds / 1e6 if progress.seconds else 0.0
    return (
        f"{progress.states:,} states, {progress.ends:,} without packets, {progress.steps:,} steps, "
        f"{progress.seconds:.1f} s, {rate:.2f} M steps/s, {progress.memory >> 20:,} MiB"
    )


def _verdict(result: SearchResult) -> str:
    match result.outcome:
        case "exhausted":
            return "explored in full, 0 violations"
        case "memory":
            return "not explored in full: --memory is reached"
        case "violated":
            return f"VIOLATED after {len(result.way)} steps: {VIOLATIONS[result.violation]}"
    return "paused"


def replay(path: Path, *, faulty: Callable[[str, ExplorerScenario, Path], System] | None = None) -> bool:
    """Run a schedule and print it; returns whether nothing was violated.

    `faulty`: builds the system of a schedule that was found with a fault put in, from the fault's name, the scenario and the
    shipped program.
    """
    scenario, fault, violation, made = read_schedule(path)
    if fault and faulty is None:
        raise UsageError(
            f"{path}: this schedule is of the fault {fault!r}: run `python -m tests.sim.explore.faults --replay {path}` "
            "in a checkout"
        )
    echo_progress("compiling or loading the explorer …")
    program = compiled_program(_LANES).json
    system = faulty(fault, scenario, program) if fault and faulty else System(scenario, program)
    events = events_of(system, made)
    found = events[-1].result if events and events[-1].result < 0 else 0
    if not found and violation and violates(system, made, violation):
        found = violation
    ending = VIOLATIONS[found] if found else "no guarantee is violated on the way"
    if not found and violation:
        ending += f"; the file says: {VIOLATIONS[violation]}"
    print(text(events, system.shape, f"{path}: {scenario.name}", ending), flush=True)
    return not found
