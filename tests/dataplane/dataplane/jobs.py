"""A job on a switch under test: its entries, the packets of its workers, the answers to expect."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .frames import (
    CONTRIBUTE,
    IPV4,
    NETSUM_PORT,
    PROBE,
    RESULT,
    STATUS,
    UDP,
    Netsum,
    difference,
    ethernet,
    ipv4,
    udp,
)
from .target import PORTS, Entry, Packet, Target

SWITCH_IP = 0x0A4D00FE
SWITCH_MAC = 0x02000A4D00FE
COUNTERS = (
    "contributions",
    "results",
    "duplicates_answered",
    "duplicates_dropped",
    "stale",
    "not_admitted",
    "out_of_range",
    "mismatches",
    "malformed",
    "probes",
)


@dataclass(frozen=True)
class Worker:
    """The place of a worker."""

    worker_id: int
    port: int
    ip: int
    mac: int
    udp_port: int


def worker_at(worker_id: int) -> Worker:
    """Place a worker; more workers than ports share ports."""
    ip = 0x0A4D0001 + worker_id
    return Worker(worker_id, worker_id % PORTS, ip, 0x020000000000 + ip, 40000 + worker_id)


class Job:
    """One epoch of a job.

    Parameters
    ----------
    target
        The switch.
    job_id, epoch, token
        As the controller would choose them.
    workers
        How many.
    slot_base, slot_count
        Its slot range.
    """

    def __init__(
        self,
        target: Target,
        job_id: int,
        epoch: int,
        token: int,
        workers: int,
        slot_base: int,
        slot_count: int,
    ) -> None:
        self.target, self.job_id, self.epoch, self.token = target, job_id, epoch, token
        self.workers = [worker_at(worker_id) for worker_id in range(workers)]
        self.slot_base, self.slot_count = slot_base, slot_count
        self.full_mask = (1 << workers) - 1
        self._started = False

    def entries(self) -> list[Entry]:
        """List the controller's entries for the job."""
        admission = [
            Entry(
                "worker_admission",
                {
                    "ingress_port": worker.port,
                    "ipv4_src": worker.ip,
                    "job_id": self.job_id,
                    "worker_id": worker.worker_id,
                    "token": self.token,
                },
                "admit",
                {
                    "worker_bit": 1 << worker.worker_id,
                    "full_mask": self.full_mask,
                    "num_workers": len(self.workers),
                    "epoch": self.epoch,
                    "pool_base": 2 * self.slot_base,
                    "pool_indices": 2 * self.slot_count,
                    "mcast_group": self.job_id,
                },
            )
            for worker in self.workers
        ]
        rewrite = [
            Entry(
                "copy_rewrite",
                {"job_id": self.job_id, "worker_id": worker.worker_id},
                "rewrite",
                {"dst_mac": worker.mac, "dst_ip": worker.ip, "dst_port": worker.udp_port},
            )
            for worker in self.workers
        ]
        return admission + rewrite

    def start(self) -> None:
        """Let the workers in."""
        self._started = True
        replicas = [(worker.port, worker.worker_id + 1) for worker in self.workers]
        self.target.set_up(self.job_id, replicas, self.entries())

    def end(self) -> None:
        """Delete what `start` wrote, if that is not done."""
        if not self._started:
            return
        self._started = False
        self.target.tear_down(self.job_id, self.entries())

    def pool_index(self, chunk: int) -> int:
        """Return the pool index of a chunk, relative to the slot range."""
        return chunk % self.slot_count * 2 + chunk // self.slot_count % 2

    def header(self, kind: int, worker_id: int, chunk: int, **fields: object) -> Netsum:
        """Make a header of this job; fields replace its own."""
        plain = Netsum(kind, self.job_id, self.token, worker_id, self.pool_index(chunk), chunk)
        return plain.with_(**fields)

    def packet(self, header: Netsum, *, worker_id: int | None = None) -> Packet:
        """Send a header from a worker's host."""
        worker = worker_at(header.worker_id if worker_id is None else worker_id)
        datagram = udp(worker.udp_port, NETSUM_PORT, header.pack())
        return worker.port, ethernet(SWITCH_MAC, worker.mac, IPV4, ipv4(worker.ip, SWITCH_IP, UDP, datagram))

    def contribution(
        self, worker_id: int, chunk: int, lanes: Sequence[int] | None = None, **fields: object
    ) -> Packet:
        """Make a worker's contribution to a chunk."""
        return self.packet(self.header(CONTRIBUTE, worker_id, chunk, lanes=lanes, **fields))

    def probe(self, worker_id: int, chunk: int, **fields: object) -> Packet:
        """Make a worker's PROBE."""
        return self.packet(self.header(PROBE, worker_id, chunk, **fields))

    def answer(self, header: Netsum) -> Packet:
        """Make an answer as it should leave the switch, bit for bit."""
        worker = self.workers[header.worker_id]
        datagram = udp(NETSUM_PORT, worker.udp_port, header.with_(num_workers=len(self.workers)).pack())
        packet = ipv4(SWITCH_IP, worker.ip, UDP, datagram)
        return worker.port, ethernet(worker.mac, SWITCH_MAC, IPV4, packet)

    def result(
        self, worker_id: int, chunk: int, lanes: Sequence[int] | None = None, **fields: object
    ) -> Packet:
        """Make the RESULT one worker should get."""
        return self.answer(self.header(RESULT, worker_id, chunk, lanes=lanes, **fields))

    def results(self, chunk: int, lanes: Sequence[int] | None = None, **fields: object) -> list[Packet]:
        """Make the RESULTs all workers should get."""
        return [self.result(worker.worker_id, chunk, lanes, **fields) for worker in self.workers]

    def status(
        self, worker_id: int, chunk: int, seen: int, slot_chunk: int | None = None, **fields: object
    ) -> Packet:
        """Make the STATUS one worker should get."""
        held = chunk if slot_chunk is None else slot_chunk
        return self.answer(self.header(STATUS, worker_id, chunk, status=(seen, held), **fields))

    def statuses(self, chunk: int, seen: int, **fields: Any) -> list[Packet]:
        """Make the STATUSes all workers should get."""
        return [self.status(worker.worker_id, chunk, seen, **fields) for worker in self.workers]

    def expect(self, packets: Sequence[Packet] | Packet, expected: Sequence[Packet] | Packet = ()) -> None:
        """Put packets in and check that the output is, bit for bit, the expected one."""
        sent = [packets] if isinstance(packets, tuple) else list(packets)
        wanted = [expected] if isinstance(expected, tuple) and expected else list(expected)
        wrong = difference(self.target.send(sent), wanted)
        assert not wrong, wrong

    def counts(self, job_id: int | None = None) -> dict[str, int]:
        """Read the counters of the job."""
        index = self.job_id if job_id is None else job_id
        return self.target.counters(COUNTERS, index)

    @contextmanager
    def counting(self, *, job_id: int | None = None, **expected: int) -> Iterator[None]:
        """Check by how much each counter grows meanwhile; those that are not named must not."""
        before = self.counts(job_id)
        yield
        after = self.counts(job_id)
        grown = {name: after[name] - before[name] for name in COUNTERS if after[name] != before[name]}
        assert grown == expected


MakeJob = Callable[..., Job]
"""The fixture `make_job`."""


def lanes_of(target: Target, seed: int, low: int = -(2**20), high: int = 2**20) -> list[int]:
    """Make a packet's lanes, all different, the same for the same seed."""
    source = random.Random(seed)
    return [source.randint(low, high) for _ in range(target.lanes)]


def saturating_sum(parts: Sequence[Sequence[int]]) -> list[int]:
    """Add lanes one part after the other, staying within int32 at each step."""
    total = list(parts[0])
    for part in parts[1:]:
        total = [min(max(a + b, -(2**31)), 2**31 - 1) for a, b in zip(total, part, strict=True)]
    return total
