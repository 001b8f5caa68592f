"""Runs of a point with and without fast-forward, and their comparison."""

import json
from dataclasses import replace
from typing import Any, NamedTuple

from sim.errors import SimulationError
from sim.experiments.equal_jobs import equal_jobs
from sim.experiments.experiment import Point
from sim.experiments.running import Watch, run_point
from sim.network.engine.engine_records import LINK
from sim.network.forwarding import FastForward


class Compared(NamedTuple):
    """Runs of a point with fast-forward and without it."""

    reported: str  # Without it: the results, or the error that it ended with.
    different: list[str]  # Results that differ with fast-forward.
    watch: Watch  # Watch of the run with fast-forward.
    equal_jobs: int  # How many were not run with it.


def compare(point: Point, programs: dict[int, str]) -> Compared:
    """Run a point without fast-forward, with it, and, if it has equal jobs, with it and one of those alone."""
    slow, fast = Watch(), Watch()
    reported, _ = _run(point, programs, False, slow)
    found = {
        "results": (reported, _run(point, programs, True, fast)[0]),
        "counters": (counted(slow), counted(fast)),
    }
    equal = 0
    if equal_jobs(point.settings):
        once, equal = _run(point, programs, True, None)
        found["results of equal jobs"] = reported, once
    return Compared(reported, [what for what, (one, other) in found.items() if one != other], fast, equal)


def _run(point: Point, programs: dict[int, str], forward: bool, watch: Watch | None) -> tuple[str, int]:
    """Run a point; returns what it reports, and how many equal jobs were not run: none, if it is watched."""
    settings = replace(point.settings, run=replace(point.settings.run, fast_forward=forward))
    try:
        result = run_point(replace(point, settings=settings), programs, watch)
    except SimulationError as error:
        return f"{type(error).__name__}: {error}", 0
    limits = {job: [vars(each) for each in found] for job, found in result.limits.items()}
    return json.dumps([result.rows, result.series, limits, result.events]), result.equal_jobs


def forwarded(watch: Watch) -> FastForward:
    """Return what left out periods of a run."""
    assert watch.scenario is not None
    forward = watch.scenario.network.forward
    assert isinstance(forward, FastForward)
    return forward


def counted(watch: Watch) -> list[Any]:
    """Return what links, switches, programs and cores have counted, and when workers' hosts were last busy."""
    if watch.scenario is None:
        return []
    network = watch.scenario.network
    names = [name for name in LINK.names or () if not name.endswith("_packet")]
    found: list[Any] = [network.link_records[names].tolist()]
    switches = network.switch_records
    found += [switches[name].tolist() for name in ("packets", "busy_ps", "busy_total_ps", "longest_wait_ps")]
    found += [network.worker_records[name].tolist() for name in ("busy_ps", "busy_total_ps")]
    for worker in network.workers:
        state = worker.core.state[0]
        found.append(worker.core.counters())
        found.append(
            [int(state[name]) for name in ("result_ns", "srtt_ns", "rto_ns", "progress_ns", "heard_ns")]
        )
    for programmed in network.programmed:
        if programmed is not None:
            found += [each.tolist() for each in programmed.engine.counter_arrays()]
    return found
