"""Packets for the netsum port that are not exactly what the protocol says: counted, dropped, no trace."""

from typing import Any

import pytest
from dataplane.frames import (
    CONTRIBUTE,
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
from dataplane.jobs import SWITCH_IP, SWITCH_MAC, Job, MakeJob, lanes_of, saturating_sum, worker_at
from dataplane.target import Packet, Target


class Victim:
    """A job with worker 0's part of chunk 0 in its slot; worker 1's is what gets mangled."""

    def __init__(self, target: Target, job: Job) -> None:
        self.job = job
        self.parts = lanes_of(target, 1), lanes_of(target, 2)
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

    def check_untouched(self) -> None:
        self.job.expect(self.job.probe(0, 0), self.job.status(0, 0, 0b01))
        self.job.expect(
            self.job.contribution(1, 0, self.parts[1]), self.job.results(0, saturating_sum(self.parts))
        )


@pytest.fixture
def victim(target: Target, make_job: MakeJob) -> Victim:
    return Victim(target, make_job())


@pytest.mark.parametrize("version", [0, 2, 15])
def test_unknown_version(victim: Victim, version: int) -> None:
    with victim.job.counting(malformed=2):
        victim.job.expect(victim.packet(victim.header(version=version).pack()))
        victim.job.expect(victim.packet(victim.header(version=version, lanes=victim.parts[1]).pack()))
    victim.check_untouched()


@pytest.mark.parametrize("kind", [kind for kind in range(16) if kind not in (CONTRIBUTE, PROBE)])
def test_kinds_a_switch_does_not_take(victim: Victim, kind: int) -> None:
    """Among them RESULT and STATUS, which hosts must not be able to have sent on to others."""
    with victim.job.counting(malformed=2):
        victim.job.expect(victim.packet(victim.header(kind=kind).pack()))
        victim.job.expect(victim.packet(victim.header(kind=kind, lanes=victim.parts[1]).pack()))
    victim.check_untouched()


@pytest.mark.parametrize("kind", [RESULT, STATUS])
@pytest.mark.parametrize("flags", [0, LANES, MISMATCH])
def test_forged_answers(victim: Victim, kind: int, flags: int) -> None:
    """Exactly as the switch would have sent them."""
    header = victim.header(kind=kind, flags=flags, num_workers=2)
    header = header.with_(status=(3, 0)) if kind == STATUS else header
    header = header.with_(lanes=victim.parts[1]) if flags & LANES else header
    with victim.job.counting(malformed=1):
        victim.job.expect(victim.packet(header.pack()))
    victim.check_untouched()


@pytest.mark.parametrize("op", [0, *range(4, 16)])
def test_unknown_operation(victim: Victim, op: int) -> None:
    with victim.job.counting(malformed=3):
        victim.job.expect(victim.packet(victim.header(op=op).pack()))
        victim.job.expect(victim.packet(victim.header(op=op, lanes=victim.parts[1]).pack()))
        victim.job.expect(victim.packet(victim.header(op=op, kind=PROBE).pack()))
    victim.check_untouched()


@pytest.mark.parametrize("flags", [flags for flags in range(16) if flags != LANES])
def test_flags_that_do_not_fit_lanes(victim: Victim, flags: int) -> None:
    with victim.job.counting(malformed=1):
        victim.job.expect(victim.packet(victim.header(flags=flags, lanes=victim.parts[1]).pack()))
    victim.check_untouched()


@pytest.mark.parametrize("flags", range(1, 16))
def test_flags_that_do_not_fit_a_bare_header(victim: Victim, flags: int) -> None:
    with victim.job.counting(malformed=2):
        victim.job.expect(victim.packet(victim.header(flags=flags).pack()))
        victim.job.expect(victim.packet(victim.header(flags=flags, kind=PROBE).pack()))
    victim.check_untouched()


def test_probe_with_lanes(victim: Victim) -> None:
    with victim.job.counting(malformed=1):
        victim.job.expect(victim.packet(victim.header(kind=PROBE, lanes=victim.parts[1]).pack()))
    victim.check_untouched()


@pytest.mark.parametrize("change", [-4, -1, 1, 4, 100])
@pytest.mark.parametrize("with_lanes", [False, True])
def test_consistent_packet_of_another_size(victim: Victim, change: int, with_lanes: bool) -> None:
    payload = victim.header(lanes=victim.parts[1] if with_lanes else None).pack()
    payload = payload[:change] if change < 0 else payload + bytes(change)
    job_id = victim.job.job_id if len(payload) >= 20 else 0
    with victim.job.counting(job_id=job_id, malformed=1):
        victim.job.expect(victim.packet(payload))
    victim.check_untouched()


def test_lanes_of_the_other_program(target: Target, victim: Victim) -> None:
    other = {64: 256, 256: 64}[target.lanes]
    with victim.job.counting(malformed=1):
        victim.job.expect(victim.packet(victim.header(lanes=[1] * other).pack()))
    victim.check_untouched()


@pytest.mark.parametrize("with_lanes", [False, True])
@pytest.mark.parametrize("change", [-28, -20, -4, -1, 1, 2, 4, 100])
@pytest.mark.parametrize("which", ["ip", "udp", "frame"])
def test_lengths_that_do_not_agree(victim: Victim, which: str, change: int, with_lanes: bool) -> None:
    payload = victim.header(lanes=victim.parts[1] if with_lanes else None).pack()
    if which == "ip":
        packet = victim.packet(payload, ip={"total_bytes": 28 + len(payload) + change})
    elif which == "udp":
        packet = victim.packet(payload, udp_length=8 + len(payload) + change)
    else:
        port, frame = victim.packet(payload)
        packet = port, frame[:change] if change < 0 else frame + bytes(change)
    counted = victim.job.job_id
    if which == "frame" and change < 0 and not with_lanes:
        counted = 0  # the header is cut off
    with victim.job.counting(job_id=counted, malformed=1):
        victim.job.expect(packet)
    victim.check_untouched()


@pytest.mark.parametrize("with_lanes", [False, True])
def test_cut_off_anywhere(target: Target, victim: Victim, with_lanes: bool) -> None:
    port, frame = victim.packet(victim.header(lanes=victim.parts[1] if with_lanes else None).pack())
    lengths = [*range(14, 63), *range(63, len(frame), 31)]
    victim.job.expect([(port, frame[:length]) for length in lengths if length < len(frame)])
    victim.check_untouched()


@pytest.mark.parametrize(
    ("ip", "visible"),
    [
        pytest.param({"checksum": 0}, True, id="checksum 0"),
        pytest.param({"checksum": 0xFFFF}, True, id="checksum ffff"),
        pytest.param({"checksum": 0x1234}, True, id="checksum of something else"),
        pytest.param({"flags_and_offset": 0x2000}, False, id="first fragment"),
        pytest.param({"flags_and_offset": 0x6000}, False, id="first fragment, must not be fragmented"),
        pytest.param({"flags_and_offset": 0x0001}, False, id="last fragment"),
        pytest.param({"flags_and_offset": 0x1FFF}, False, id="last fragment, far"),
        pytest.param({"options": b"\1\1\1\1"}, False, id="no-operation options"),
        pytest.param({"options": b"\x94\4\0\0" + bytes(36)}, False, id="longest options"),
        pytest.param({"ihl": 4}, False, id="header too short"),
        pytest.param({"ihl": 0}, False, id="no header"),
        pytest.param({"ihl": 15}, False, id="header longer than it is"),
        pytest.param({"version": 6}, False, id="version 6"),
        pytest.param({"version": 0}, False, id="version 0"),
    ],
)
def test_ip_that_is_not_plain(victim: Victim, ip: dict[str, Any], visible: bool) -> None:
    counted = victim.job.job_id if visible else 0  # the job cannot be seen behind options or in a fragment
    with victim.job.counting(job_id=counted, malformed=2):
        victim.job.expect(victim.packet(victim.header(lanes=victim.parts[1]).pack(), ip=ip))
        victim.job.expect(victim.packet(victim.header().pack(), ip=ip))
    victim.check_untouched()


@pytest.mark.parametrize(
    "ip",
    [{"ttl": 1}, {"ttl": 255}, {"tos": 0xB8}, {"identification": 0xABCD}, {"flags_and_offset": 0}],
    ids=["ttl 1", "ttl 255", "expedited", "identification", "may be fragmented"],
)
def test_ip_fields_that_do_not_matter(victim: Victim, ip: dict[str, Any]) -> None:
    total = saturating_sum(victim.parts)
    victim.job.expect(
        victim.packet(victim.header(lanes=victim.parts[1]).pack(), ip=ip), victim.job.results(0, total)
    )


def test_udp_checksum_does_not_matter(victim: Victim) -> None:
    port, frame = victim.packet(victim.header(lanes=victim.parts[1]).pack())
    frame = frame[:40] + b"\xab\xcd" + frame[42:]
    victim.job.expect((port, frame), victim.job.results(0, saturating_sum(victim.parts)))


def test_other_udp_port_of_the_switch_is_dropped(victim: Victim) -> None:
    port, frame = victim.packet(victim.header(lanes=victim.parts[1]).pack())
    with victim.job.counting():
        for other in (0, 53, NETSUM_PORT - 1, NETSUM_PORT + 1, 0xFFFF):
            victim.job.expect((port, frame[:36] + other.to_bytes(2, "big") + frame[38:]))
    victim.check_untouched()
