"""Packets of an aggregation job as the program under test sees them, and the entries that admit them."""

import socket
import struct
from dataclasses import dataclass

import numpy as np

import controller.jobs
from controller.jobs import WorkerEndpoint
from controller.slots import SlotRange
from controller.switch_tables import SwitchTables
from host_agent.job_api.job_request import JobRequest
from host_agent.wire import constants as c
from host_agent.wire.header import Header
from netsum_common.targets import Capabilities
from sim.programming import InProcessWriter
from sim.switch import Packets, Switch

SWITCH_IP = 0x0A000064
SWITCH_MAC = 0x020000000064


@dataclass(frozen=True)
class BenchJob:
    """A job of `workers` workers, worker w at port w + 1 (or all at `port`) with address 10.0.0.(w + 1)."""

    workers: int
    lanes: int
    job_id: int = 1
    epoch: int = 7
    token: int = 0x5EED5EED
    slots: int = 64
    port: int | None = None

    def port_of(self, worker: int) -> int:
        """Return the switch port that a worker sends to."""
        return worker + 1 if self.port is None else self.port

    def ip(self, worker: int) -> int:
        """Return a worker's IPv4 address."""
        return 0x0A000001 + worker

    def mac(self, worker: int) -> int:
        """Return a worker's MAC address."""
        return 0x020000000001 + worker

    def endpoints(self) -> tuple[WorkerEndpoint, ...]:
        """Return the workers as the controller knows them."""
        return tuple(
            WorkerEndpoint(
                port=self.port_of(worker),
                ip=socket.inet_ntoa(self.ip(worker).to_bytes(4)),
                mac=self.mac(worker).to_bytes(6).hex(":"),
                udp_port=c.UDP_PORT,
            )
            for worker in range(self.workers)
        )


def install(switch: Switch, job: BenchJob) -> None:
    """Write the job's entries and multicast group into a switch, as the controller does."""
    tables = SwitchTables(InProcessWriter(switch))
    tables.set_switch_address(socket.inet_ntoa(SWITCH_IP.to_bytes(4)), SWITCH_MAC.to_bytes(6).hex(":"))
    tables.install(
        controller.jobs.Job(
            *(JobRequest("bench", job.workers), job.job_id, job.epoch, job.token, SlotRange(0, job.slots)),
            *(Capabilities(lanes=job.lanes), job.endpoints()),
        )
    )


def _sum16(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def contribution(job: BenchJob, worker: int, chunk: int, lanes: bytes) -> bytes:
    """Return one CONTRIBUTE as an Ethernet frame."""
    slot, version = chunk % job.slots, chunk // job.slots % 2
    kind, pool_index = c.KIND_CONTRIBUTE, slot * 2 + version
    header = Header(
        c.VERSION,
        kind,
        c.FLAG_LANES,
        job.job_id,
        0,
        c.OP_SUM,
        1,
        job.token,
        worker,
        0,
        pool_index,
        chunk,
        c.EXPONENT_BIAS,
    ).to_bytes()
    udp = struct.pack(">HHHH", c.UDP_PORT, c.UDP_PORT, 8 + len(header) + len(lanes), 0) + header + lanes
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0, job.ip(worker), SWITCH_IP)
    ip = ip[:10] + struct.pack(">H", _sum16(ip)) + ip[12:]
    ethernet = SWITCH_MAC.to_bytes(6, "big") + job.mac(worker).to_bytes(6, "big") + b"\x08\x00"
    return ethernet + ip + udp


def contributions(job: BenchJob, chunks: int, first: int = 0, seed: int = 1) -> Packets:
    """Return every worker's contribution to `chunks` chunks, chunk after chunk."""
    random = np.random.default_rng(seed)
    frames = []
    for chunk in range(first, first + chunks):
        for worker in range(job.workers):
            lanes = random.integers(-(2**20), 2**20, job.lanes, dtype=np.int32).astype(">i4").tobytes()
            frames.append((job.port_of(worker), contribution(job, worker, chunk, lanes)))
    return Packets.of(frames)
