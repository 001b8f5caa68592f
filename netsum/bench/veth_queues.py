"""One receive queue of an interface beside several: how many packets/s the switch in the kernel adds behind one port.

``sudo python -m netsum.bench.veth_queues`` makes a virtual cable with one receive queue, then one with a queue per processor.
On each processor a process sends contributions as fast as it can, to a slot of its own, and the switch at the other end adds
them; excess packets are lost before it. A packet that adds makes no packet, so the port is the only one. Counted are the
packets that the program has seen, on each processor.
"""

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import time

import numpy as np

from netsum.bench.machine import machine_and_date
from netsum.bench.traffic import BenchJob, contribution
from netsum.bench.xdp_twin import forgetful_switch
from sim.switch.bpf import syscall
from sim.switch.bpf.emit import FLAGS
from sim.switch.bpf.memory import PORT_WORDS
from sim.switch.bpf.stubs import instruction, load_address
from topologies.namespaces import missing_for_namespaces, run

_SECONDS, _WARM_S, _BATCH = 1.0, 0.3, 64
_REDIRECT_MAP = 51


def _sender(interface: str) -> int:
    """Return a program that sends its packet out of an interface."""
    cable = syscall.Map("cable", syscall.DEVMAP, 4, 4, 1)
    cable.update(bytes(4), struct.pack("=I", socket.if_nametoindex(interface)))
    code = load_address(1, 1, cable.fd) + instruction(0xB7, 2) + instruction(0xB7, 3)
    return syscall.load_program("send", code + instruction(0x85, immediate=_REDIRECT_MAP) + instruction(0x95))


def _flood(program: int, packet: bytes, processor: int) -> int:
    """Start a process that sends from a processor until it is killed; return its number."""
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {processor})
        while True:
            syscall.run_once(program, packet, 64 * _BATCH, live=True, batch=_BATCH)
    return child


def measure(lanes: int, queues: int) -> list[float]:
    """Return packets/s that the switch adds behind a port with receive queues, on each processor; in a namespace of its own."""
    each = ("numtxqueues", str(queues), "numrxqueues", str(queues))
    run("ip", "link", "add", "h1", *each, "type", "veth", "peer", "name", "s1", *each)
    job, children = BenchJob(3, lanes), []
    switch = forgetful_switch(job)
    try:
        for end in ("h1", "s1"):
            run("ip", "link", "set", end, "up")
        stub = switch.kernel.stub("arrive", {"ingress_port": job.port_of(0), FLAGS: 0})
        link = syscall.attach_xdp(stub, socket.if_nametoindex("s1"), syscall.NATIVE_MODE)
        program = _sender("h1")
        for number, processor in enumerate(sorted(os.sched_getaffinity(0))):
            packet = contribution(job, 0, number, struct.pack(f"!{lanes}i", *range(lanes)))
            children.append(_flood(program, packet, processor))
        counts = switch.kernel.counts("ports")[:, len(PORT_WORDS) * job.port_of(0)]
        time.sleep(_WARM_S)
        begin, before = time.perf_counter(), counts.copy()
        time.sleep(_SECONDS)
        rates: list[float] = ((counts - before) / (time.perf_counter() - begin)).tolist()
        os.close(link)
        return rates
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
        switch.close()
        run("ip", "link", "delete", "h1")


def main() -> None:
    """Measure one receive queue and one for each processor, in turn, and print packets/s."""
    options = argparse.ArgumentParser(prog="python -m netsum.bench.veth_queues", description=main.__doc__)
    options.add_argument("--runs", type=int, default=5, help="of each (default: 5)")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.runs < 1:
        options.error(f"--runs: expected at least 1, not {chosen.runs}")
    lacking = missing_for_namespaces()
    if lacking is not None:
        sys.exit(f"error: {lacking}")
    if not chosen.inside:
        command = [sys.executable, "-m", "netsum.bench.veth_queues", "--inside", "--runs", str(chosen.runs)]
        sys.exit(subprocess.run(["unshare", "--net", *command], check=False).returncode)
    processors = len(os.sched_getaffinity(0))
    print(machine_and_date())
    print(
        f"load before: {os.getloadavg()[0]:.1f}; one port, a sender on each of {processors} processors; packets/s"
    )
    for lanes in (64, 256):
        found: dict[int, list[list[float]]] = {1: [], processors: []}
        for _ in range(chosen.runs):
            for queues, rates in found.items():
                rates.append(measure(lanes, queues))
        for queues, rates in found.items():
            sums = [sum(each) for each in rates]
            shares = ", ".join(f"{each:,.0f}" for each in np.median(np.array(rates), axis=0))
            print(
                f"{lanes:>4} lanes  {queues} queue{'s' * (queues > 1)}  {statistics.median(sums):>12,.0f}  "
                f"({min(sums):,.0f} … {max(sums):,.0f}); by processor {shares}",
                flush=True,
            )


if __name__ == "__main__":
    main()
