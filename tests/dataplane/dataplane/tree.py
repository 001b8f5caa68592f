"""A job on a switch that has a parent: packets to the parent and from it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .frames import CONTRIBUTE, IPV4, NETSUM_PORT, PROBE, RESULT, STATUS, UDP, Netsum, ethernet, ipv4, udp
from .jobs import SWITCH_IP, SWITCH_MAC, Job
from .target import PORTS, Entry, Packet

PARENT_PORT = PORTS - 1
PARENT_IP = 0x0A4D0100
PARENT_MAC = 0x020000990001
OWN_ID = 5
"""The switch's worker id at its parent."""
TREE_COUNTERS = (
    "passed_up",
    "duplicates_passed_up",
    "probes_passed_up",
    "results_taken",
    "statuses_passed_down",
)


class PlacedJob(Job):
    """One epoch of a job whose workers are children of a switch that has a parent."""

    def entries(self) -> list[Entry]:
        """List the controller's entries for the job."""
        from_parent = Entry(
            "worker_admission",
            {
                "ingress_port": PARENT_PORT,
                "ipv4_src": PARENT_IP,
                "job_id": self.job_id,
                "worker_id": OWN_ID,
                "token": self.token,
            },
            "admit",
            {
                "worker_bit": 0,
                "full_mask": self.full_mask,
                "num_workers": len(self.workers),
                "epoch": self.epoch,
                "pool_base": 2 * self.slot_base,
                "pool_indices": 2 * self.slot_count,
                "mcast_group": self.job_id,
            },
        )
        to_parent = Entry(
            "job_parent",
            {"job_id": self.job_id},
            "pass_up",
            {"port": PARENT_PORT, "dst_mac": PARENT_MAC, "dst_ip": PARENT_IP, "worker_id": OWN_ID},
        )
        return [*super().entries(), from_parent, to_parent]

    def up(self, header: Netsum, identification: int = 0) -> Packet:
        """Make a packet to the parent as it should leave, bit for bit."""
        datagram = udp(NETSUM_PORT, NETSUM_PORT, header.with_(worker_id=OWN_ID).pack())
        packet = ipv4(SWITCH_IP, PARENT_IP, UDP, datagram, identification=identification)
        return PARENT_PORT, ethernet(PARENT_MAC, SWITCH_MAC, IPV4, packet)

    def sum_up(self, chunk: int, lanes: Sequence[int] | None = None, **fields: object) -> Packet:
        """Make the CONTRIBUTE that the parent should get."""
        return self.up(self.header(CONTRIBUTE, OWN_ID, chunk, lanes=lanes, **fields))

    def probe_up(self, chunk: int, identification: int, **fields: object) -> Packet:
        """Make the PROBE that the parent should get."""
        return self.up(self.header(PROBE, OWN_ID, chunk, **fields), identification)

    def from_parent(self, header: Netsum, identification: int = 0, **fields: object) -> Packet:
        """Send a header from the parent."""
        datagram = udp(NETSUM_PORT, NETSUM_PORT, header.with_(num_workers=9, **fields).pack())
        packet = ipv4(PARENT_IP, SWITCH_IP, UDP, datagram, identification=identification)
        return PARENT_PORT, ethernet(SWITCH_MAC, PARENT_MAC, IPV4, packet)

    def result_of_parent(self, chunk: int, lanes: Sequence[int] | None = None, **fields: object) -> Packet:
        """Make a RESULT from the parent."""
        return self.from_parent(self.header(RESULT, OWN_ID, chunk, lanes=lanes, **fields))

    def status_of_parent(self, chunk: int, seen: int, identification: int = 0, **fields: object) -> Packet:
        """Make a STATUS from the parent."""
        header = self.header(STATUS, OWN_ID, chunk, status=(seen, chunk), **fields)
        return self.from_parent(header, identification)

    def probe_from(self, worker_id: int, chunk: int, identification: int, **fields: object) -> Packet:
        """Make a PROBE of a child whose IPv4 header is numbered."""
        worker = self.workers[worker_id]
        datagram = udp(worker.udp_port, NETSUM_PORT, self.header(PROBE, worker_id, chunk, **fields).pack())
        packet = ipv4(worker.ip, SWITCH_IP, UDP, datagram, identification=identification)
        return worker.port, ethernet(SWITCH_MAC, worker.mac, IPV4, packet)

    def passed_down(
        self, worker_id: int, chunk: int, seen: int, identification: int = 0, **fields: object
    ) -> Packet:
        """Make the STATUS of the parent that one child should get."""
        worker = self.workers[worker_id]
        header = self.header(
            STATUS, worker_id, chunk, status=(seen, chunk), num_workers=len(self.workers), **fields
        )
        packet = ipv4(
            SWITCH_IP,
            worker.ip,
            UDP,
            udp(NETSUM_PORT, worker.udp_port, header.pack()),
            identification=identification,
        )
        return worker.port, ethernet(worker.mac, SWITCH_MAC, IPV4, packet)

    @contextmanager
    def passing(self, **expected: int) -> Iterator[None]:
        """Check by how much the counters of trees grow meanwhile; those that are not named must not."""
        before = self.target.counters(TREE_COUNTERS, self.job_id)
        yield
        after = self.target.counters(TREE_COUNTERS, self.job_id)
        grown = {name: after[name] - before[name] for name in TREE_COUNTERS if after[name] != before[name]}
        assert grown == expected
