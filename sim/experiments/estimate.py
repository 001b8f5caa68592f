"""Estimates of a run: packets on links, packets that fast-forward leaves out, processor time and memory.

The constants were measured on an Intel Xeon of 2 cores, Linux 6.18, 2026-11-25, with networks from 3 to 4,229 nodes. Packets and
memory are right within a factor of two, which a test checks; the time holds for a machine like that one.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil, log2
from typing import Final

from sim.experiments.equal_jobs import equal_jobs
from sim.experiments.scenario import topology_of
from sim.experiments.settings import FaultTable, JobTable, Settings
from sim.experiments.work import Bucket, Work, work_of
from sim.peers.table import COLOCATED, PIECES, SERVED, server_count
from topologies.topology import Topology

_START_BYTES: Final = 195_000_000  # Python, Numba, and the program's machine code.
_NODE_BYTES: Final = 59_000  # Memory of a host or switch, with a worker or a switch's tables.
_VALUE_BYTES: Final = 2.7  # For each byte of an array: contributions, windows of one array, and their sum.
_FRAME_BYTES: Final = 1100, 7.5  # For each packet that may be under way, and more for each lane.
_MESSAGE_BYTES: Final = 430  # Memory of a peer's message.
_FLOW_BYTES: Final = 31_000  # From a peer's host to another one.
_START_S: Final = 2.5
_NODE_S: Final = 0.001
_PACKET_S: Final = 1e-6
_VALUE_S: Final = 25e-9  # For each byte of an array.
# Chunks that are simulated until a pass repeats itself, and where it ends; and more of them for each slot.
_FIRST_CHUNKS: Final = 300, 8


@dataclass(frozen=True)
class Estimate:
    """The estimate of one run, or of several in sequence; `packets` pass links, `run` of them are simulated."""

    packets: float = 0
    run: float = 0
    seconds: float = 0  # Seconds of one processor.
    memory_bytes: float = 0

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.packets + other.packets,
            self.run + other.run,
            self.seconds + other.seconds,
            max(self.memory_bytes, other.memory_bytes),
        )

    def __str__(self) -> str:
        left_out = self.packets - self.run
        left = f", of which {left_out / 1e6:,.0f} million repeat and are left out" if left_out > 1e6 else ""
        return (
            f"about {self.packets / 1e6:,.0f} million packets on links{left}: "
            f"about {self.seconds:,.0f} s of processor time and {self.memory_bytes / 1e9:,.1f} GB of memory"
        )


def estimate(settings: Settings) -> Estimate:
    """Return the estimate of a point's run.

    Raises SettingError: the settings do not fit together.
    """
    topology = topology_of(settings)
    hosts = list(topology.hosts)
    nodes = len(hosts) + len(topology.switches)
    found = Estimate(seconds=_START_S + _NODE_S * nodes, memory_bytes=_START_BYTES + _NODE_BYTES * nodes)
    once = equal_jobs(settings)[1:]
    for number, job in enumerate(settings.job):
        work = work_of(job)
        first = job.first_host - 1
        leaf_of = {host: topology.place(host)[0] for host in hosts[first : first + job.workers]}
        one = _of_netsum if job.contender == "netsum" else _of_peer
        of_job = one(settings, topology, job, work, leaf_of)
        if number in once:  # An equal job is run in its place.
            of_job = Estimate(of_job.packets)
        found = Estimate(
            found.packets + of_job.packets,
            found.run + of_job.run,
            found.seconds + of_job.run * _PACKET_S + of_job.seconds,
            found.memory_bytes + of_job.memory_bytes,
        )
    return found


def _of_netsum(
    settings: Settings, topology: Topology, job: JobTable, work: Work, leaf_of: dict[str, str]
) -> Estimate:
    """Estimate netsum: each chunk passes each link of the tree, or of each worker's way to the switch, there and back."""
    leaves = set(leaf_of.values())
    far = len(leaves) > 1 or (job.switch or topology.aggregator) not in leaves
    links = job.workers + (len(leaves) * far if job.tree else job.workers * far * (_levels(topology) - 1))
    lanes = job.simulated_lanes or job.lanes
    packets = run = under_way = 0.0
    for bucket in work.buckets:
        blocks = _blocks(bucket, job)
        chunks = blocks + min(job.slots, blocks)  # The opening round brings exponents.
        packets += chunks
        run += min(chunks, _chunks_run(settings, job, bucket, chunks, links, leaf_of))
        under_way = max(under_way, min(job.slots, blocks))
    size = sum(bucket.size for bucket in work.buckets) * lanes / job.lanes
    # Arrays with zeros at random are no windows of one.
    sparse = sum(bucket.size for bucket in work.buckets if bucket.density < 1 and not bucket.common)
    own = sparse * job.workers * lanes / job.lanes
    times = 2 * links * work.iterations
    frames = job.workers * under_way * (_FRAME_BYTES[0] + _FRAME_BYTES[1] * lanes)
    return Estimate(packets * times, run * times, size * _VALUE_S, size * _VALUE_BYTES + own + frames)


def _blocks(bucket: Bucket, job: JobTable) -> float:
    """Return how many blocks of an array travel with their lanes."""
    share = bucket.density if bucket.common else 1 - (1 - bucket.density) ** job.workers
    return ceil(bucket.size / (4 * job.lanes)) * share


def _chunks_run(
    settings: Settings, job: JobTable, bucket: Bucket, chunks: float, links: int, leaf_of: dict[str, str]
) -> float:
    """Return how many chunks of a pass are simulated: until it repeats, at its end, and again after each loss."""
    alone = len(settings.job) == 1 or (job.tree and all(each.tree for each in settings.job))
    repeats = settings.run.fast_forward and not settings.run.series and not settings.script
    if not (repeats and alone and bucket.density == 1) or job.quorum or job.workload or settings.background:
        return chunks
    lost = 0.0
    for fault in settings.fault:
        hit = _links_hit(fault, leaf_of, links)
        if hit and (fault.duplicate or fault.jitter or fault.straggle or fault.to_bad):
            return chunks
        lost += (fault.loss or 0) * hit * chunks
    first, each_slot = _FIRST_CHUNKS
    return (1 + lost) * (first + each_slot * job.slots)


def _links_hit(fault: FaultTable, leaf_of: dict[str, str], links: int) -> int:
    """Return how many directions of links that a job's packets pass have a fault; those between switches count all or not."""
    ways = [way for host, leaf in leaf_of.items() for way in (f"{host}>{leaf}", f"{leaf}>{host}")]
    hit = sum(fnmatchcase(way, fault.links) for way in ways)
    named = any(fault.links[at : at + 1] == "h" for at in (0, fault.links.find(">") + 1))
    return hit if named else hit + 2 * (links - len(leaf_of))


def _of_peer(
    settings: Settings, topology: Topology, job: JobTable, work: Work, leaf_of: dict[str, str]
) -> Estimate:
    """Estimate a peer: workers send and receive about two arrays each, and every other packet is acknowledged."""
    transport, workers, leaves = settings.transport, job.workers, set(leaf_of.values())
    servers = server_count(job.contender, job.servers, workers) or workers
    # The part of the messages that leave their rack: in a ring as many as there are racks.
    far = len(leaves) / workers if job.contender == "ring" else 1 - 1 / max(len(leaves), 1)
    ways = 1 + far * (_levels(topology) - 1) * (len(leaves) > 1)
    steps = {
        "ring": 2 * max(workers - 1, 1),
        "halving-doubling": 2 * ceil(log2(max(workers, 2))),
        "tree": 2,
    }.get(job.contender, 2 * servers)
    packets = messages = 0.0
    for bucket in work.buckets:
        size = bucket.size * (bucket.density if job.contender == "omnireduce" else 1)
        packets += 4 * size / transport.segment * (1 + 1 / transport.ack_every) * workers * ways
        pieces = min(
            transport.pieces or PIECES.get(job.contender, 32), ceil(size * 2 / steps / transport.segment)
        )
        messages += steps * workers * max(pieces, 1)
    flows = workers * (servers if job.contender in (*SERVED, *COLOCATED) else 1)
    return Estimate(
        packets * work.iterations,
        packets * work.iterations,
        0,
        messages * work.iterations * _MESSAGE_BYTES + 2 * flows * _FLOW_BYTES,
    )


def _levels(topology: Topology) -> int:
    """Return how many switches are on the way up from a host."""
    if len(topology.switches) == 1:
        return 1
    return 3 if any(name.startswith("agg") for name in topology.switches) else 2
