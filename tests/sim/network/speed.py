"""Packets/s of the network simulator: ``python -m tests.sim.network.speed --hosts 8,32``.

Hosts are on one switch over links of 10 Gbit/s and 1 us, packets have 1,090 bytes, 32 chunks of a job are under way. The worker
core and the P4 program run on real values, whose sums are checked. A packet is counted on every link it passes. Times are
processor time.
"""

import gc
import os
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from host_agent.collectives import AllReduceRequest, Collective
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from netsum.bench.machine import machine_and_date
from netsum.cli.exits import reported_errors
from netsum.option_values import whole_numbers
from netsum.options import runs_option
from netsum.programs import compiled_program
from netsum.terminal import ProgressRows
from netsum_common.memory_used import most_bytes
from netsum_common.options import option, parse
from sim.network.network import Network
from sim.network.parameters import LinkParameters
from sim.network.programming import ProgrammedSwitch
from sim.network.trees import places, tree_controller
from sim.network.worker import Worker
from topologies.generated import leaf_spine, star

LANES = 256
SLOTS = 32  # Chunks of a job under way.
CHUNKS_AT_ONCE = 1024  # Chunks of an all-reduce: 1 MiB.
MOST_WORKERS = 32
MOST_PORTS = 480


@dataclass(frozen=True)
class SpeedOptions:
    """All-reduces on a star in virtual time, as packets/s of processor time."""

    hosts: str = option("Numbers of hosts.", "8,32,128,1024", metavar="N,…")
    packets: int = option("Packets of a run, on all links.", 320_000, within=(1, None))
    runs: int = runs_option(3)


def packets_per_s(hosts: int, packets: int, lanes: int) -> float:
    """Return packets per second of processor time, of a run whose sums are all right.

    Up to 480 hosts are on one switch, in jobs of at most 32 workers; more are on leaves of 32, each of which adds for its own.
    """
    topology = star(hosts) if hosts <= MOST_PORTS else leaf_spine(hosts, hosts // MOST_WORKERS, 2)
    link = LinkParameters(rate_bps=10**10, latency_ns=1000, framing_bytes=0)
    added = 4 * (LANES - lanes)
    network = Network(1, lanes=lanes)
    program = compiled_program(lanes).json
    programmed = {
        name: ProgrammedSwitch(program, ip=spec.ip, mac=spec.mac)
        for name, spec in topology.switches.items()
        if name.startswith(("s1", "leaf"))
    }
    network.add_topology(topology, link, programmed=programmed, added_bytes=added)
    chunks = max(packets // (2 * hosts), 1)
    times = -(-chunks // CHUNKS_AT_ONCE)
    values = np.ones(-(-chunks // times) * lanes, np.float32)
    sums = [np.empty_like(values) for _ in range(hosts)]

    def plan(worker: int, admission: Admission, sequence: int) -> Collective[Any]:
        return AllReduceRequest(values, "sum", sums[worker]).plan(admission, sequence)

    def check(worker: Worker, outcome: Outcome) -> None:
        assert outcome.error is None, outcome.error
        assert outcome.result is not None
        assert (outcome.result == worker.admission.num_workers).all()
        outcome.result[:] = 0

    controller = tree_controller(network, programmed)
    for first in range(0, hosts, MOST_WORKERS):
        members = network.hosts[first : first + MOST_WORKERS]
        job = controller.create_job(f"job{first}", places(network, members), SLOTS)
        network.add_job(
            job.admissions,
            members,
            network.by_name[job.tree.root],
            lambda worker, first=first: [partial(plan, first + worker)] * times,  # type: ignore[misc]
            added_bytes=added,
            on_ended=check,
        )
    gc.collect()  # Garbage of earlier runs.
    started = time.process_time()
    network.run(limit_ns=10**12)
    used = time.process_time() - started
    assert all(len(worker.outcomes) == times for worker in network.workers)
    return int(network.link_records["packets"].sum()) / used


def run(options: SpeedOptions) -> None:
    """Print packets/s for each number of hosts, with all lanes computed and with a quarter of them, in turn."""
    counts = whole_numbers(options.hosts, "--hosts")
    print(f"{machine_and_date()}; load {os.getloadavg()[0]:.1f}")
    packets_per_s(4, 1000, LANES)  # Compiles code that is not in the cache.
    made = ProgressRows(">hosts", ">lanes computed", ">packets/s", ">least", ">most", ">MB so far", key=2)
    for count in counts:
        found: dict[int, list[float]] = {LANES: [], 64: []}
        for _ in range(options.runs):
            for lanes, rates in found.items():
                rates.append(packets_per_s(count, options.packets, lanes))
        for lanes, rates in found.items():
            numbers = (statistics.median(rates), min(rates), max(rates), most_bytes() / 2**20)
            made.add(str(count), str(lanes), *(f"{each:,.0f}" for each in numbers))
        print(f"{count} hosts measured", file=sys.stderr, flush=True)
    made.print()


if __name__ == "__main__":
    with reported_errors():
        run(parse(SpeedOptions, None, "python -m tests.sim.network.speed", SpeedOptions.__doc__ or ""))
