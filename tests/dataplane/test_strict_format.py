"""Packets for the netsum port that deviate from the protocol: counted, dropped, no trace."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from netsum_common.lane_counts import LINK_LANES
from tests.dataplane.dataplane.asic_model import TOFINO
from tests.dataplane.dataplane.frames import (
    CONGESTED,
    CONTRIBUTE,
    HEADER_ONLY,
    HEADERS_BYTES,
    IPV4,
    LANES,
    MISMATCH,
    NETSUM_PORT,
    PROBE,
    RESULT,
    STATUS,
    UDP,
    Netsum,
    ethernet,
    ipv4,
    udp,
)
from tests.dataplane.dataplane.jobs import (
    SWITCH_IP,
    SWITCH_MAC,
    Job,
    MakeJob,
    lanes_of,
    saturating_sum,
    worker_at,
)
from tests.dataplane.dataplane.target import CHECK_SEQUENCE_BYTES, Packet, Target


class Victim:
    """A job with worker 0's part of chunk 0 in its slot; worker 1's is what gets mangled."""

    def __init__(self, target: Target, job: Job) -> None:
        self.job = job
        self.parts = lanes_of(target, 1), lanes_of(target, 2)
        self.either = None, self.parts[1]
        job.expect(job.contribution(0, 0, self.parts[0]))

    def header(self, **fields: Any) -> Netsum:
        return self.job.header(CONTRIBUTE, 1, 0).with_(**fields)

    def packet(
        self, payload: bytes, *, ip: dict[str, Any] | None = None, udp_length: int | None = None
    ) -> Packet:
        worker = worker_at(1)
        datagram = udp(worker.udp_port, NETSUM_PORT, payload, length=udp_length)
        frame = ethernet(
            SWITCH_MAC, worker.mac, IPV4, ipv4(worker.ip, SWITCH_IP, UDP, datagram, **(ip or {}))
        )
        return worker.port, frame

    def refuses(self, *headers: Netsum) -> None:
        """Check that each of these from worker 1 is counted as malformed, and that none comes out."""
        self.refuses_packets(self.packet(header.pack()) for header in headers)

    def refuses_packets(self, packets: Iterable[Packet], visible: bool = True) -> None:
        """Check the same of packets; the job of those whose header is not visible is not known."""
        sent = list(packets)
        with self.job.counting(job_id=self.job.job_id if visible else 0, malformed=len(sent)):
            self.job.expect(sent)

    def check_untouched(self) -> None:
        self.job.expect(self.job.probe(0, 0), self.job.status(0, 0, 0b01))
        self.job.expect(
            self.job.contribution(1, 0, self.parts[1]), self.job.results(0, saturating_sum(self.parts))
        )


@pytest.fixture
def victim(target: Target, make_job: MakeJob) -> Iterator[Victim]:
    """Give a victim, and check afterwards that nothing happened to it."""
    mangled = Victim(target, make_job())
    yield mangled
    mangled.check_untouched()


def cut_off(target: Target, frame: bytes, lengths: Iterable[int]) -> list[bytes]:
    """Cut a frame to each of these lengths that the target can get and can distinguish from a whole one."""
    cut = [frame[:length] for length in lengths if target.kind.shortest_frame <= length < len(frame)]
    if target.kind.sees_where_frames_end:
        return cut
    ends = range(
        HEADERS_BYTES, len(frame) + 1, 4 * min(target.lanes, TOFINO.lanes_a_pass)
    )  # of what is read at once
    return [part for part in cut if not any(0 < end - len(part) <= CHECK_SEQUENCE_BYTES for end in ends)]


def test_unknown_version(victim: Victim) -> None:
    headers = [
        victim.header(version=version, lanes=lanes) for version in (0, 1, 3, 15) for lanes in victim.either
    ]
    victim.refuses(*headers)


def test_kinds_a_switch_does_not_take(victim: Victim) -> None:
    """Among them RESULT and STATUS, which hosts must not be able to have sent on to others."""
    others = [kind for kind in range(16) if kind not in (CONTRIBUTE, PROBE)]
    victim.refuses(*(victim.header(kind=kind, lanes=lanes) for kind in others for lanes in victim.either))


def test_forged_answers(victim: Victim) -> None:
    """Exactly as the switch would have sent them."""
    forged = []
    for kind, flags in itertools.product((RESULT, STATUS), (0, LANES, MISMATCH)):
        header = victim.header(kind=kind, flags=flags, num_workers=2)
        header = header.with_(status=(3, 0)) if kind == STATUS else header
        forged.append(header.with_(lanes=victim.parts[1]) if flags & LANES else header)
    victim.refuses(*forged)


def test_unknown_operation(victim: Victim) -> None:
    for op in (0, *range(4, 8)):
        victim.refuses(
            victim.header(op=op),
            victim.header(op=op, lanes=victim.parts[1]),
            victim.header(op=op, kind=PROBE),
        )


FLAGS = (*range(16), 16, 16 | LANES, 32, 64, 128, 255)
"""All that have a meaning, and those that have none yet."""


def are_known(victim: Victim, kind: int, flags: int, quorum: int) -> bool:
    """Return whether a switch takes a packet with these flags, if it has lanes where they say so."""
    may = {PROBE: 0, CONTRIBUTE: LANES | CONGESTED}[kind]
    if kind == CONTRIBUTE and victim.job.target.can.header_only and not quorum:
        may |= HEADER_ONLY
    if quorum and not victim.job.target.can.lanes_in_quorums:
        may &= ~LANES
    return flags & ~may == 0


@pytest.mark.parametrize("quorum", range(2))
@pytest.mark.parametrize("has_lanes", [False, True], ids=["header", "lanes"])
def test_flags_that_do_not_fit(victim: Victim, has_lanes: bool, quorum: int) -> None:
    victim.refuses(
        *(
            victim.header(flags=flags, kind=kind, quorum=quorum, lanes=victim.parts[1] if has_lanes else None)
            for flags, kind in itertools.product(FLAGS, (CONTRIBUTE, PROBE))
            if bool(flags & LANES) != has_lanes or not are_known(victim, kind, flags, quorum)
        )
    )


def test_probe_with_lanes(victim: Victim) -> None:
    victim.refuses(victim.header(kind=PROBE, lanes=victim.parts[1]))


@pytest.mark.parametrize("with_lanes", [False, True])
def test_consistent_packet_of_another_size(victim: Victim, with_lanes: bool) -> None:
    payload = victim.header(lanes=victim.parts[1] if with_lanes else None).pack()
    cut, longer = [payload[:change] for change in (-4, -1)], [payload + bytes(more) for more in (1, 4, 100)]
    victim.refuses_packets(map(victim.packet, longer))
    visible = with_lanes or not victim.job.target.kind.sees_where_frames_end
    victim.refuses_packets(map(victim.packet, cut), visible=visible)


def test_lanes_of_the_other_program(target: Target, victim: Victim) -> None:
    others = [lanes for lanes in LINK_LANES if lanes != target.lanes]
    victim.refuses(*(victim.header(lanes=[1] * other) for other in others))


@pytest.mark.parametrize("with_lanes", [False, True])
@pytest.mark.parametrize("which", ["ip", "udp", "frame"])
def test_lengths_that_do_not_agree(victim: Victim, which: str, with_lanes: bool) -> None:
    payload = victim.header(lanes=victim.parts[1] if with_lanes else None).pack()
    shorter, longer = (-28, -20, -4, -1), (1, 2, 4, 100)
    if which == "ip":
        packets = [
            victim.packet(payload, ip={"total_bytes": 28 + len(payload) + change})
            for change in shorter + longer
        ]
    elif which == "udp":
        packets = [
            victim.packet(payload, udp_length=8 + len(payload) + change) for change in shorter + longer
        ]
    else:
        port, frame = victim.packet(payload)
        cut = cut_off(victim.job.target, frame, [len(frame) + change for change in shorter])
        if cut:
            victim.refuses_packets([(port, part) for part in cut], visible=with_lanes)
        if not victim.job.target.kind.sees_where_frames_end:
            return
        packets = [(port, frame + bytes(change)) for change in longer]
    victim.refuses_packets(packets)


@pytest.mark.parametrize("with_lanes", [False, True])
def test_cut_off_anywhere(victim: Victim, with_lanes: bool) -> None:
    port, frame = victim.packet(victim.header(lanes=victim.parts[1] if with_lanes else None).pack())
    lengths = [*range(14, 63), *range(63, len(frame), 31)]
    victim.job.expect([(port, part) for part in cut_off(victim.job.target, frame, lengths)])


NO_PLAIN_IP: dict[str, dict[str, Any]] = {
    "first fragment": {"flags_and_offset": 0x2000},
    "first fragment, must not be fragmented": {"flags_and_offset": 0x6000},
    "last fragment": {"flags_and_offset": 0x0001},
    "last fragment, far": {"flags_and_offset": 0x1FFF},
    "no-operation options": {"options": b"\1\1\1\1"},
    "longest options": {"options": b"\x94\4\0\0" + bytes(36)},
    "header too short": {"ihl": 4},
    "no header": {"ihl": 0},
    "header longer than it is": {"ihl": 15},
    "version 6": {"version": 6},
    "version 0": {"version": 0},
}


def test_ip_that_is_not_plain(victim: Victim) -> None:
    """The job cannot be seen behind options or in a fragment."""
    for ip in NO_PLAIN_IP.values():
        packets = [victim.packet(victim.header(lanes=lanes).pack(), ip=ip) for lanes in victim.either]
        victim.refuses_packets(packets, visible=False)


def test_wrong_ip_checksum(victim: Victim) -> None:
    for checksum in (0, 0xFFFF, 0x1234):
        ip = {"checksum": checksum}
        victim.refuses_packets(
            victim.packet(victim.header(lanes=lanes).pack(), ip=ip) for lanes in victim.either
        )


def test_other_udp_port_of_the_switch_is_dropped(victim: Victim) -> None:
    port, frame = victim.packet(victim.header(lanes=victim.parts[1]).pack())
    with victim.job.counting():
        others = (0, 53, NETSUM_PORT - 1, NETSUM_PORT + 1, 0xFFFF)
        victim.job.expect([(port, frame[:36] + other.to_bytes(2, "big") + frame[38:]) for other in others])


@pytest.mark.parametrize(
    "ip",
    [{"ttl": 1}, {"ttl": 255}, {"tos": 0xB8}, {"identification": 0xABCD}, {"flags_and_offset": 0}],
    ids=["ttl 1", "ttl 255", "expedited", "identification", "may be fragmented"],
)
def test_ip_fields_that_do_not_matter(target: Target, make_job: MakeJob, ip: dict[str, Any]) -> None:
    taken = Victim(target, make_job())
    packet = taken.packet(taken.header(lanes=taken.parts[1]).pack(), ip=ip)
    taken.job.expect(packet, taken.job.results(0, saturating_sum(taken.parts)))


def test_udp_checksum_does_not_matter(target: Target, make_job: MakeJob) -> None:
    taken = Victim(target, make_job())
    port, frame = taken.packet(taken.header(lanes=taken.parts[1]).pack())
    frame = frame[:40] + b"\xab\xcd" + frame[42:]
    taken.job.expect((port, frame), taken.job.results(0, saturating_sum(taken.parts)))
