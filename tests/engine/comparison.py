"""The embedded switch beside a C program that does the same by hand, same packets.

The packets are the contributions of a two-worker job, chunk after chunk: every other one completes its chunk and leaves as two
results, so as many packets leave as come. The engine takes them in batches in its process, and so does the C program (`twin`),
whose output is compared byte for byte; both are timed by processor time. Runs alternate. BMv2 is beside the
engine in ``python -m tests.veth``.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from host_agent.errors import NetsumError
from netsum.bench.machine import machine_and_date
from netsum.options import lanes_option, runs_option
from netsum.programs import compiled_program
from netsum_common.lane_counts import LINK_LANES, Lanes
from sim.switch import Packets, Switch, load_program
from tests.engine.traffic import BenchJob, contributions, install
from tests.engine.twin import Twin, compiler

BATCH = 256
WORKERS = 2
_CHUNKS = {64: 8000, 256: 4000}


@dataclass(frozen=True)
class EngineOptions:
    """Packets/s of the embedded engine and of C written by hand (with a C compiler): same packets."""

    runs: int = runs_option(3)
    lanes: Lanes | None = lanes_option()


@dataclass
class EngineComparison:
    """Packets/s of the runs with one program; `twin` is empty where no C compiler is installed."""

    lanes: int
    packets: int
    engine: list[float] = field(default_factory=list)
    twin: list[float] = field(default_factory=list)


def _batches(packets: Packets) -> list[Packets]:
    starts = range(0, len(packets), BATCH)
    return [
        Packets(packets.ports[s : s + BATCH], packets.lengths[s : s + BATCH], packets.frames[s : s + BATCH])
        for s in starts
    ]


def _engine_rate(switch: Switch, batches: Sequence[Packets], loops: int) -> float:
    """Return packets/s of processor time over `loops` runs of all batches, each from the same state."""
    fresh = switch.save_state()
    spent_ns, packets = 0, 0
    for _ in range(loops):
        switch.restore_state(fresh)
        begin = time.thread_time_ns()
        left = sum(len(switch.inject(batch, 0, copy=False)) for batch in batches)
        spent_ns += time.thread_time_ns() - begin
        taken = sum(len(batch) for batch in batches)
        if left != taken:
            raise BenchError(f"{left} packets left the engine, not {taken}: the program did not aggregate")
        packets += taken
    switch.restore_state(fresh)
    return packets / spent_ns * 1e9


def _check_twin(switch: Switch, twin: Twin, batches: Sequence[Packets]) -> None:
    fresh = switch.save_state()
    for batch in batches:
        if list(switch.inject(batch, 0, copy=False)) != list(twin.inject(batch)):
            raise BenchError("the engine and the C program put out different packets")
    switch.restore_state(fresh)


class BenchError(NetsumError):
    """A measurement failed; the message says why, and what to do."""


def measure(lanes: int, runs: int = 3) -> EngineComparison:
    """Run the engine and the C program, `runs` times each, alternating."""
    job = BenchJob(WORKERS, lanes, port=0)
    switch = Switch(load_program(compiled_program(lanes).json))
    install(switch, job)
    packets = contributions(job, _CHUNKS[lanes])
    batches = _batches(packets)
    loops = max(1, round(np.ceil(400_000 / len(packets))))
    comparison = EngineComparison(lanes, len(packets))
    twin = Twin(job, BATCH) if compiler() else None
    if twin:
        _check_twin(switch, twin, batches)
    _engine_rate(switch, batches, 1)
    for _ in range(runs):
        comparison.engine.append(_engine_rate(switch, batches, loops))
        if twin:
            comparison.twin.append(twin.rate(batches, loops))
    return comparison


def spread(rates: Sequence[float]) -> str:
    """Write the median of some rates, and the least and the most."""
    return f"{statistics.median(rates):>12,.0f}  ({min(rates):,.0f} … {max(rates):,.0f})"


def run(options: EngineOptions) -> None:
    """Measure the programs with these lanes and print packets/s, the ratio, the machine and the date."""
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; packets/s, median of {options.runs} runs (least … most)")
    for count in LINK_LANES if options.lanes is None else (options.lanes,):
        comparison = measure(count, options.runs)
        print(f"{count:>4} lanes  embedded switch {spread(comparison.engine)}")
        if comparison.twin:
            ratio = statistics.median(comparison.engine) / statistics.median(comparison.twin)
            print(f"            C by hand       {spread(comparison.twin)}   ratio {ratio:.2f}")
            costs = [1e9 / statistics.median(rates) for rates in (comparison.engine, comparison.twin)]
            print(f"            ns a contribution: {costs[0]:.1f}, by hand {costs[1]:.1f}")
        else:
            print("            without the C program: no C compiler is installed")
