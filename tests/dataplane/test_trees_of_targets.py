"""Trees of two and three levels, of Tofino's program on each switch: in the embedded engine, and on the ASIC model.

The controller's own code makes the tree and writes its entries. Every link loses, repeats and reorders packets.
"""

import random
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import pytest

from controller import entries
from controller.entries import Entry, MulticastGroup, Prefix
from controller.job_controller import JobController
from controller.jobs import WorkerEndpoint
from controller.switch_tables import SwitchTables
from controller.table_writer import Change, Key
from controller.trees import Place, TreeSwitch
from host_agent.wire.admission import Admission
from netsum_common.targets import Capabilities
from tests.dataplane.dataplane import asic_model, target
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.frames import (
    CONTRIBUTE,
    HEADER,
    HEADER_ONLY,
    HEADERS_BYTES,
    IPV4,
    LANES,
    NETSUM_PORT,
    RESULT,
    UDP,
    Netsum,
    ethernet,
    ipv4,
    udp,
)
from tests.dataplane.dataplane.target import Packet, Target
from tests.dataplane.tna_logic import translate

MODELS = {asic_model.TOFINO: 16, asic_model.TOFINO2: 32}
SLOTS = 2
CHUNKS = 5
MAX_PACKETS = 5000
UDP_PORT = 40000


class TargetWriter:
    """The `controller.table_writer.TableWriter` of a switch under test."""

    def __init__(self, switch: Target, tables: Collection[str]) -> None:
        self.tables = tables
        self._switch = switch
        self._entries: dict[Key, Entry] = {}
        self._groups: dict[int, MulticastGroup] = {}

    def write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        """Write entries."""
        del what
        for one in changed:
            if not one.match:
                self._switch.set_default(one.table, one.action, dict(one.params))
            else:
                self._put(change, one)

    def _put(self, change: Change, one: Entry) -> None:
        if change is not Change.INSERT:
            self._switch.delete([described(self._entries.pop(one.key))])
        if change is not Change.DELETE:
            self._switch.insert([described(one)])
            self._entries[one.key] = one

    def read(self, table: str) -> list[Entry]:
        """Return a table's entries."""
        return [one for one in self._entries.values() if one.table == table]

    def set_group(self, group: MulticastGroup, what: str) -> None:
        """Make a multicast group."""
        del what
        assert group.group_id not in self._groups
        self._switch.set_group(group.group_id, group.replicas)
        self._groups[group.group_id] = group

    def delete_groups(self, group_ids: Collection[int], what: str) -> None:
        """Delete multicast groups."""
        del what
        for each in self._groups.keys() & group_ids:
            self._switch.delete_group(each)
            del self._groups[each]

    def groups(self) -> Mapping[int, MulticastGroup]:
        """Return the multicast groups."""
        return self._groups

    def counters(self, names: Sequence[str], indexes: Sequence[int]) -> dict[int, dict[str, int]]:
        """Read counters."""
        return {index: self._switch.counters(names, index) for index in indexes}

    def reset_counters(self, names: Sequence[str], index: int) -> None:
        """Do nothing: each test has switches of its own."""

    def entry_counts(self, counted: Sequence[Entry]) -> dict[Key, int]:
        """Return nothing: entries are not counted here."""
        del counted
        return {}


def described(one: Entry) -> target.Entry:
    """Write the controller's entry as the tests do."""
    key = {
        name: (value.value, value.length) if isinstance(value, Prefix) else value for name, value in one.match
    }
    return target.Entry(one.table, key, one.action, dict(one.params))


@dataclass
class TreeWorker:
    """Sends a chunk when it has the RESULT of the one that had its slot; some need headers only."""

    admission: Admission
    place: Place
    parts: list[list[int]]
    header_only: bool
    results: dict[int, list[int] | None] = field(default_factory=dict)

    def waiting(self) -> list[int]:
        """Return the chunks that it waits for."""
        return [
            chunk
            for chunk in range(len(self.parts))
            if chunk not in self.results and (chunk < SLOTS or chunk - SLOTS in self.results)
        ]

    def packet(self, chunk: int, switch: TreeSwitch) -> Packet:
        """Make a contribution."""
        index = chunk % SLOTS * 2 + chunk // SLOTS % 2
        given = self.admission
        flags = LANES | (HEADER_ONLY if self.header_only else 0)
        header = Netsum(
            CONTRIBUTE, given.job_id, given.token, given.worker_id, index, chunk, lanes=self.parts[chunk]
        )
        payload = udp(UDP_PORT, NETSUM_PORT, header.with_(flags=flags).pack())
        own = self.place.endpoint
        packet = ipv4(number(own.ip), number(switch.ip), UDP, payload)
        return own.port, ethernet(station(switch.mac), station(own.mac), IPV4, packet)

    def receive(self, frame: bytes) -> None:
        """Take an answer."""
        words = HEADER.unpack_from(frame, 42)
        assert words[5] == self.admission.worker_id
        if words[0] & 15 == RESULT:
            length = int.from_bytes(frame[16:18], "big") - 52
            assert (length == 0) == (words[1] & LANES == 0)
            lanes = list(struct.unpack_from(f"!{length // 4}i", frame, HEADERS_BYTES)) if length else None
            assert (lanes is None) == self.header_only
            self.results[words[8]] = lanes


def number(ip: str) -> int:
    return int.from_bytes(bytes(map(int, ip.split("."))), "big")


def station(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


class Tree:
    """Switches s0 (the root) and below, and the packets between them. `above`: which switch each one's parent is."""

    def __init__(self, above: Mapping[str, str], hosts: Sequence[str], make: Callable[[], Target]) -> None:
        self._stack = ExitStack()
        names = ["s0", *above]
        self.switches = {name: self._made(make) for name in names}
        free = dict.fromkeys(names, 0)

        def port(name: str) -> int:
            free[name] += 1
            return free[name] - 1

        self._cables: dict[tuple[str, int], tuple[str, int]] = {}
        links: dict[str, dict[str, int]] = {name: {} for name in names}
        for low, high in above.items():
            links[low][high], links[high][low] = port(low), port(high)
            ends = (low, links[low][high]), (high, links[high][low])
            self._cables |= {ends[0]: ends[1], ends[1]: ends[0]}
        self.sites = {
            name: TreeSwitch(name, f"10.1.{at}.254", f"02:00:0a:01:{at:02x}:fe", links[name])
            for at, name in enumerate(names)
        }
        self._places = [
            Place(name, WorkerEndpoint(port(name), f"10.0.0.{rank}", f"02:00:0a:00:00:{rank:02x}", UDP_PORT))
            for rank, name in enumerate(hosts, 1)
        ]
        tables = {name: self._tables(name) for name in names}
        lanes = self.switches["s0"].lanes
        self.lanes = lanes
        self._controller = JobController(self.sites, tables, Capabilities(slots=64, lanes=lanes))

    def _made(self, make: Callable[[], Target]) -> Target:
        switch = make()
        self._stack.callback(switch.close)
        return switch

    def _tables(self, name: str) -> SwitchTables:
        owned = (
            entries.WORKER_ADMISSION,
            entries.JOB_PARENT,
            entries.JOB_QUORUM,
            entries.COPY_REWRITE,
            entries.SWITCH_ADDRESS,
        )
        tables = SwitchTables(TargetWriter(self.switches[name], owned))
        tables.set_switch_address(self.sites[name].ip, self.sites[name].mac)
        return tables

    def close(self) -> None:
        self._stack.close()

    def run(self, seed: int, loss: float, repeat: float) -> tuple[int, int]:
        """Add all chunks with faults; return how many packets were lost and repeated."""
        chance = random.Random(seed)
        job = self._controller.create_job(f"job {seed}", self._places, SLOTS)
        workers = [
            TreeWorker(
                admission,
                place,
                [[chance.randint(-(2**20), 2**20) for _ in range(self.lanes)] for _ in range(CHUNKS)],
                chance.random() < 0.4 and self.switches["s0"].can.header_only,
            )
            for admission, place in zip(job.admissions, self._places, strict=True)
        ]
        at = {(each.place.switch, each.place.endpoint.port): each for each in workers}
        lost = repeated = 0
        under_way: list[tuple[str, Packet]] = []
        for _ in range(MAX_PACKETS):
            if all(len(each.results) == CHUNKS for each in workers):
                break
            if not under_way:  # All that wait send again.
                under_way = [
                    (each.place.switch, each.packet(chunk, self.sites[each.place.switch]))
                    for each in workers
                    for chunk in each.waiting()
                ]
            switch, packet = under_way.pop(chance.randrange(len(under_way)))
            if chance.random() < loss:
                lost += 1
                continue
            if chance.random() < repeat:
                repeated += 1
                under_way.append((switch, packet))
            for port, frame in self.switches[switch].send([packet]):
                if (switch, port) in self._cables:
                    other, into = self._cables[switch, port]
                    under_way.append((other, (into, frame)))
                elif chance.random() < loss:
                    lost += 1
                else:
                    at[switch, port].receive(frame)
        for chunk in range(CHUNKS):
            total = [sum(lane) for lane in zip(*(each.parts[chunk] for each in workers), strict=True)]
            for each in workers:
                assert each.results.get(chunk, "none") == (None if each.header_only else total)
        self._controller.end_job(job)
        return lost, repeated


def translated() -> Target:
    return EmbeddedTarget(translate.LANES, translate.files("tna_tree"))


def on_the_model(chip: asic_model.Chip, lanes: int) -> Target:
    reason = asic_model.why_not(lanes, tree=True, chip=chip)
    if reason is not None:
        pytest.skip(reason)
    return asic_model.AsicModelTarget.compiled(lanes, tree=True, chip=chip)


SHAPES = {
    "two levels": ({"s1": "s0", "s2": "s0"}, ["s1", "s1", "s2", "s0"]),
    "three levels": ({"s1": "s0", "s2": "s1"}, ["s2", "s2", "s1", "s0"]),
}


@pytest.fixture(
    params=[
        pytest.param(translated, id="translated"),
        *(
            pytest.param(
                partial(on_the_model, chip, lanes),
                id=chip.name,
                marks=[pytest.mark.slow, pytest.mark.timeout(1200)],
            )
            for chip, lanes in MODELS.items()
        ),
    ]
)
def make(request: pytest.FixtureRequest) -> Callable[[], Target]:
    made: Callable[[], Target] = request.param
    return made


@pytest.fixture(params=SHAPES)
def tree(request: pytest.FixtureRequest, make: Callable[[], Target]) -> Iterator[Tree]:
    above, hosts = SHAPES[request.param]
    one = Tree(above, hosts, make)
    try:
        yield one
    finally:
        one.close()


def test_sums_are_exact_whatever_is_lost_repeated_or_reordered(tree: Tree) -> None:
    lost, repeated = tree.run(1, 0.0, 0.0)
    assert (lost, repeated) == (0, 0)
    for seed in range(2, 5):
        lost, repeated = tree.run(seed, 0.1, 0.1)
        assert lost
        assert repeated
