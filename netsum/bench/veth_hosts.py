"""A host's side of ``netsum bench veth``, run where its interface is: sends a worker's packets, counts the results.

Compiled, and one packet costs it about as much as a switch's port: contributions go out in batches, as many chunks ahead of
the results as the job has slots. So nothing is lost while queues hold that many packets, and the switch never waits.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from netsum.bench.traffic import Job, contributions
from netsum_common.compiled import compiled
from netsum_common.sockets import monotonic_ns
from sim.switch import Packets
from sim.switch.ports import InterfacePorts
from sim.switch.ports.frames import HEADER_BYTES
from sim.switch.ports.rings import receive_frames, transmit_frames

ROOT = Path(__file__).resolve().parents[2]

BATCH = 32
LOOK_MS = 100
QUIET_NS = 3_000_000_000
_CHUNK_OFFSET = 12


@compiled
def drive(inbox: Any, outbox: Any, ports: Any, lengths: Any, frames: Any, window: int, quiet_ns: int) -> int:
    """Send all frames, at most `window` chunks ahead of the results; return how many results came.

    It gives up when none has come for `quiet_ns`.
    """
    total = ports.shape[0]
    sent, got = 0, 0
    last_ns = monotonic_ns(inbox.work)
    while got < total:
        # The slot of chunk n is free when its result has come.
        may = min(total, got + window) - sent
        count = min(may, BATCH)
        if count > 0:
            transmit_frames(outbox, ports[sent:], lengths[sent:], frames[sent:], count)
            sent += count
        came = receive_frames(inbox, 0 if may > 0 else LOOK_MS)
        for i in range(came):
            if inbox.lengths[i] == lengths[0]:
                got += 1
        now_ns = monotonic_ns(inbox.work)
        if came > 0:
            last_ns = now_ns
        elif now_ns - last_ns > quiet_ns:
            break
    return got


def main() -> None:
    """Send a job's contributions and print how long all results took, as JSON."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--interface", required=True, help="of the worker")
    options.add_argument("--worker", type=int, required=True)
    options.add_argument("--job", required=True, help="a `Job`'s fields, as JSON")
    options.add_argument("--packets", type=int, required=True)
    chosen = options.parse_args()
    job = Job(**json.loads(chosen.job))
    everything = contributions(job, chosen.packets // job.workers)
    own = everything.ports == job.port_of(chosen.worker)
    packets = Packets.trusted(everything.ports[own], everything.lengths[own], everything.frames[own])
    with InterfacePorts([(job.port_of(chosen.worker), chosen.interface)]) as ports:
        arguments = (ports._inbox, ports._outbox, packets.ports, packets.lengths, packets.frames)
        drive(*arguments[:2], packets.ports[:0], packets.lengths[:0], packets.frames[:0], 1, 0)
        print("ready", flush=True)
        sys.stdin.readline()
        ports.receive(0)
        results = drive(*arguments, job.slots, QUIET_NS)
        end_ns = time.perf_counter_ns()
        right = _right(job, everything, ports)
        print(json.dumps({"results": results, "end_ns": end_ns, "right": right}))


def _right(job: Job, packets: Packets, ports: InterfacePorts) -> bool:
    """Whether the results that were received last hold the sums of their chunks."""
    sent = packets.frames[:, -4 * job.lanes :].copy().view(">i4").reshape(-1, job.workers, job.lanes)
    at = HEADER_BYTES + _CHUNK_OFFSET
    found = [row[:length].tobytes() for row, length in zip(ports.frames, ports.lengths, strict=True)]
    results = [frame for frame in found if len(frame) == packets.lengths[0]]
    return bool(results) and all(
        (
            np.frombuffer(frame[-4 * job.lanes :], ">i4") == sent[int.from_bytes(frame[at : at + 4])].sum(0)
        ).all()
        for frame in results
    )


if __name__ == "__main__":
    main()
