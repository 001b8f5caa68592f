"""Packets/s of the network simulator beside ns-3 on the same star, in turn: ``python -m netsum.bench.simulator``.

Both have hosts on one switch over links of 10 Gbit/s and 1 us, packets of 1,086 bytes, 32 chunks under way, and a switch that
answers every host when it has a packet from all. netsum runs the worker core and the P4 program on real values, whose sums are
checked; ns-3 (Debian's libns3-dev and g++) moves packets whose values nobody adds up: with its UDP sockets, and from link to
link without any protocol. A packet is counted on every link it passes. Times are processor time.
"""

import argparse
import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from host_agent.collectives import Collective, plan_allreduce
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from netsum.bench.machine import machine_and_date
from netsum.bench.modules import one_sentence, whole
from netsum.programs import compiled_program
from netsum.terminal import Rows
from netsum_common.memory_used import most_bytes
from sim.network.network import Network
from sim.network.parameters import LinkParameters
from sim.network.programming import ProgrammedSwitch
from sim.network.shapes import leaf_spine, star
from sim.network.worker import Worker

SOURCE = Path(__file__).with_name("ns3") / "star.cc"
LIBRARIES = ("core", "network", "point-to-point", "internet")
LANES = 256
SLOTS = 32  # Chunks under way: 32 jobs share a switch's 1,024 slots.
CHUNKS_AT_ONCE = 1024  # Of an all-reduce: 1 MiB.
MOST_WORKERS = 32
MOST_PORTS = 480
STACKS = (("ns-3, UDP sockets", "udp"), ("ns-3, links alone", "link"))


def build_ns3(folder: Path) -> Path | None:
    """Compile the star for ns-3; None where ns-3 or a compiler is missing."""
    if shutil.which("g++") is None or not Path("/usr/include/ns3").is_dir():
        return None
    program = folder / "star"
    command = ["g++", "-O2", "-std=c++17", str(SOURCE), "-o", str(program)]
    done = subprocess.run(
        [*command, *(f"-lns3-{name}" for name in LIBRARIES)], capture_output=True, text=True
    )
    if done.returncode:
        print(f"ns-3's star does not compile: {done.stderr[-300:]}", file=sys.stderr)
        return None
    return program


def run_ns3(program: Path, hosts: int, packets: int, stack: str) -> float:
    """Return packets per second of processor time."""
    command = [str(program), f"--hosts={hosts}", f"--chunks={packets // (2 * hosts)}", f"--slots={SLOTS}"]
    command.append(f"--stack={stack}")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    count, _, used, _ = done.stdout.split()
    return int(count) / float(used)


def run_ours(hosts: int, packets: int, lanes: int) -> float:
    """Return packets per second of processor time, of a run whose sums are all right.

    Up to 480 hosts are on one switch, in jobs of at most 32 workers; more are on leaves of 32, each of which adds for its own.
    """
    shape = star(hosts) if hosts <= MOST_PORTS else leaf_spine(hosts, hosts // MOST_WORKERS, 2)
    link = LinkParameters(rate_bps=10**10, latency_ns=1000, framing_bytes=0)
    added = 4 * (LANES - lanes)
    network = Network(1, lanes=lanes)
    program = compiled_program(lanes).json
    adding = {place.name for place in shape.switches if place.name.startswith(("s1", "leaf"))}
    programmed = {
        place.name: ProgrammedSwitch(program, lanes, ip=place.ip, mac=place.mac)
        for place in shape.switches
        if place.name in adding
    }
    nodes = {
        place.name: network.add_switch(
            place.name, place.ip, place.mac, programmed=programmed.get(place.name), added_bytes=added
        )
        for place in shape.switches
    }
    nodes |= {place.name: network.add_host(place.name, place.ip, place.mac) for place in shape.hosts}
    for edge in shape.edges:
        network.connect(
            nodes[edge.one], nodes[edge.other], link, one_port=edge.one_port, other_port=edge.other_port
        )
    chunks = max(packets // (2 * hosts), 1)
    times = -(-chunks // CHUNKS_AT_ONCE)
    values = np.ones(-(-chunks // times) * lanes, np.float32)
    sums = [np.empty_like(values) for _ in range(hosts)]

    def plan(worker: int, admission: Admission, sequence: int) -> Collective:
        return plan_allreduce(admission, sequence, values, "sum", sums[worker], "raise")

    def check(worker: Worker, outcome: Outcome) -> None:
        assert outcome.error is None, outcome.error
        assert outcome.result is not None
        assert (outcome.result == worker.admission.num_workers).all()
        outcome.result[:] = 0

    for first in range(0, hosts, MOST_WORKERS):
        members = [nodes[place.name] for place in shape.hosts[first : first + MOST_WORKERS]]
        name = "s1" if len(adding) == 1 else f"leaf{first // MOST_WORKERS + 1}"
        job = programmed[name].start_job(f"job{first}", network.endpoints(members, nodes[name]), SLOTS)
        network.add_job(
            job,
            members,
            nodes[name],
            lambda worker, first=first: [partial(plan, first + worker)] * times,  # type: ignore[misc]
            added_bytes=added,
            on_ended=check,
        )
    gc.collect()  # What earlier runs left.
    started = time.process_time()
    network.run(limit_ns=10**12)
    used = time.process_time() - started
    assert all(len(worker.outcomes) == times for worker in network.workers)
    return int(network.link_records["packets"].sum()) / used


def main(arguments: Sequence[str] | None = None) -> None:
    """Print packets/s for each number of hosts, netsum and ns-3 in turn."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--hosts", type=whole, nargs="+", default=[8, 32, 128, 1024])
    options.add_argument("--packets", type=whole, default=320_000, help="of a run, on all links")
    options.add_argument("--runs", type=whole, default=3)
    chosen = options.parse_args(arguments)
    print(f"{machine_and_date()}; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        program = build_ns3(Path(folder))
        if program is None:
            print("ns-3 is not measured: install Debian's libns3-dev and g++")
        run_ours(4, 1000, LANES)  # Compiles what is not in the cache.
        made = Rows(">hosts", "what", ">packets/s", ">least", ">most", ">netsum is", ">MB so far", key=2)
        for hosts in chosen.hosts:
            found: dict[str, list[float]] = {}
            memory = 0.0
            for _ in range(chosen.runs):
                for name, lanes in (("netsum, 256 lanes", LANES), ("netsum, 64 of 256 lanes computed", 64)):
                    found.setdefault(name, []).append(run_ours(hosts, chosen.packets, lanes))
                    memory = most_bytes() / 2**20
                if program is not None and hosts <= MOST_WORKERS:
                    for name, stack in STACKS:
                        rate = run_ns3(program, hosts, chosen.packets // 4, stack)
                        found.setdefault(name, []).append(rate)
            ours = statistics.median(found["netsum, 256 lanes"])
            for name, rates in found.items():
                middle = statistics.median(rates)
                is_ours = name.startswith("netsum")
                made.add(
                    *(str(hosts), name, f"{middle:,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}"),
                    *("" if is_ours else f"{ours / middle:.1f} x", f"{memory:,.0f}" if is_ours else ""),
                )
            print(f"{hosts} hosts measured", file=sys.stderr, flush=True)
        made.print()


if __name__ == "__main__":
    with one_sentence():
        main()
