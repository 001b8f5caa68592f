"""Random bytes and mutated real packets: no slot changes, no result comes out, the switch goes on.

A mutated packet can still be a worker's own good contribution; `would_count` finds those by the protocol's page
alone, and they are left out.
"""

import os
import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.dataplane.dataplane.asic_model import TOFINO
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.frames import (
    ARP,
    CONGESTED,
    HEADER,
    HEADER_ONLY,
    HEADERS_BYTES,
    IPV4,
    LANES,
    MISMATCH,
    NETSUM_PORT,
    STATUS,
    UDP,
    describe,
    internet_checksum,
)
from tests.dataplane.dataplane.jobs import SWITCH_IP, Job, MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import CHECK_SEQUENCE_BYTES, PORTS, Packet, Target

CHUNKS = 8
IN_PROCESS, ON_BMV2 = 50_000, 2_000
BATCH = 500
EXAMPLES = 20_000 if "NETSUM_LONG_TESTS" in os.environ else 100


def would_count(job: Job, packet: Packet) -> bool:
    """Return whether a packet is a contribution that the protocol has the switch take."""
    port, frame = packet
    if not job.target.kind.sees_where_frames_end:
        whole = 14 + int.from_bytes(frame[16:18], "big")
        if len(frame) + CHECK_SEQUENCE_BYTES >= min(whole, HEADERS_BYTES + 4 * TOFINO.lanes_a_pass):
            frame = frame[:whole].ljust(whole, b"\0")
    if len(frame) < HEADERS_BYTES or frame[12:14] != struct.pack("!H", IPV4) or frame[14] != 0x45:
        return False
    total, fragment, source, destination = struct.unpack("!2xH2xH4xII", frame[14:34])
    destination_port, udp_bytes = struct.unpack("!2xHH2x", frame[34:42])
    first, flags, job_id, collective, token, worker_id, _, pool_index, *_ = HEADER.unpack_from(frame, 42)
    size = HEADER.size + 4 * job.target.lanes * (flags & LANES)
    known = LANES | CONGESTED | (HEADER_ONLY if job.target.can.header_only else 0)
    return (
        (first, collective >> 28 in (1, 2, 3), flags & ~known) == (0x21, True, 0)
        and (total, udp_bytes, len(frame)) == (size + 28, size + 8, size + 42)
        and fragment & 0x3FFF == 0
        and (frame[23], destination, destination_port) == (UDP, SWITCH_IP, NETSUM_PORT)
        and internet_checksum(frame[14:34]) == 0
        and (job_id, token) == (job.job_id, job.token)
        and worker_id < len(job.workers)
        and (port, source) == (job.workers[worker_id].port, job.workers[worker_id].ip)
        and pool_index < 2 * job.slot_count
    )


def mutated(source: random.Random, packet: Packet) -> Packet:
    """Break a packet in one to three ways; half of the time make its lengths and its checksum right again."""
    port, frame = packet[0], bytearray(packet[1])
    for _ in range(source.randint(1, 3)):
        at = source.randrange(min(len(frame), 64)) if frame and source.random() < 0.9 else 0
        match source.randrange(7):
            case 0:  # a bit
                frame[at : at + 1] = bytes(byte ^ 1 << source.randrange(8) for byte in frame[at : at + 1])
            case 1:  # a field
                width = source.choice((1, 2, 4))
                corner = (
                    source.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, source.getrandbits(32))) % 256**width
                )
                frame[at : at + width] = corner.to_bytes(width, "big")
            case 2:
                del frame[source.randrange(len(frame) + 1) :]
            case 3:
                frame += source.randbytes(source.randint(1, 1100))
            case 4:  # bytes in the middle
                frame[at:at] = source.randbytes(source.randint(1, 8))
            case 5:
                del frame[at : at + source.randint(1, 8)]
            case 6:
                port = source.randrange(PORTS)
    if source.random() < 0.5 and len(frame) >= 42:
        frame[16:18] = struct.pack("!H", len(frame) - 14)
        frame[38:40] = struct.pack("!H", len(frame) - 34)
        frame[24:26] = bytes(2)
        frame[24:26] = struct.pack("!H", internet_checksum(bytes(frame[14:34])))
    return port, bytes(frame[:1514]).ljust(14, b"\0")


def of_the_job(job: Job, seed: int) -> list[Packet]:
    """Make one of each of the job's own packets, to be broken."""
    lanes = lanes_of(job.target, seed)
    places = [(worker, chunk) for worker in range(len(job.workers)) for chunk in range(CHUNKS)]
    return [
        *(job.contribution(*place, lanes) for place in places),
        *(job.contribution(*place) for place in places),
        *(job.probe(*place) for place in places),
    ]


def broken(source: random.Random, good: list[Packet]) -> Packet:
    """Make a packet of random bytes, or break a good one."""
    if source.random() < 0.1:
        return source.randrange(PORTS), source.randbytes(source.randint(14, 1514))
    return mutated(source, source.choice(good))


def hostile(seed: int, count: int, job: Job) -> Iterator[Packet]:
    """Make packets that must not count."""
    source = random.Random(seed)
    good = of_the_job(job, seed)
    while count:
        packet = broken(source, good)
        if not would_count(job, packet):
            count -= 1
            yield packet


def memory(target: Target) -> dict[str, bytes] | None:
    """Return all registers, where the engine lets us look."""
    if not isinstance(target, EmbeddedTarget):
        return None
    return {name: target.switch.register_view(name).tobytes() for name in target.switch.program.registers}


def is_allowed(target: Target, frame: bytes) -> bool:
    """Return whether hostile packets may cause this: an answer to ARP, to ping, or to a PROBE, also of another collective."""
    if frame[12:14] == struct.pack("!H", ARP) or frame[23] == 1:
        return True
    fits = len(frame) == HEADERS_BYTES + 8
    if not target.kind.sees_where_frames_end:  # what a PROBE has too many, or too few, its answer has
        fits = len(frame) >= HEADERS_BYTES + 8 - CHECK_SEQUENCE_BYTES and frame[16:18] == (60).to_bytes(
            2, "big"
        )
    return fits and frame[42] & 15 == STATUS and frame[43] in (0, MISMATCH)


def partly_filled(job: Job) -> list[list[list[int]]]:
    """Fill slots with the contributions of none, one, two and all three workers, in turn; return all workers' lanes."""
    parts = [[lanes_of(job.target, 3 * chunk + worker) for worker in range(3)] for chunk in range(CHUNKS)]
    for chunk in range(CHUNKS):
        for worker in range(chunk % 4):
            job.target.send([job.contribution(worker, chunk, parts[chunk][worker])])
    return parts


def test_no_packet_that_is_broken_in_any_way_changes_a_slot(target: Target, make_job: MakeJob) -> None:
    """One packet at a time, so that what fails is made as small as it can be."""
    if not isinstance(target, EmbeddedTarget):
        pytest.skip("asks for the registers after each packet")
    job = make_job(workers=3)
    partly_filled(job)
    before, good = memory(target), of_the_job(job, 1)

    @settings(max_examples=EXAMPLES)
    @given(source=st.randoms(use_true_random=False))
    def changes_nothing(source: random.Random) -> None:
        packet = broken(source, good)
        assume(not would_count(job, packet))
        wrong = [describe(frame) for _, frame in target.send([packet]) if not is_allowed(target, frame)]
        assert not wrong, wrong[0]
        assert memory(target) == before

    changes_nothing()


@pytest.mark.slow
@pytest.mark.timeout(900)  # 2,000 packets take the ASIC model minutes
def test_no_slot_changes_and_no_result_comes_out(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    parts = partly_filled(job)
    before = memory(target)
    count = IN_PROCESS if isinstance(target, EmbeddedTarget) else ON_BMV2
    packets = list(hostile(target.lanes, count, job))
    for start in range(0, count, BATCH):
        batch = sorted(packets[start : start + BATCH], key=lambda packet: packet[0])
        wrong = [describe(frame) for _, frame in target.send(batch) if not is_allowed(target, frame)]
        assert not wrong, wrong[0]
        assert memory(target) == before
    for chunk in range(CHUNKS):
        there = chunk % 4
        job.expect(job.probe(0, chunk), job.status(0, chunk, (1 << there) - 1))
        total = saturating_sum(parts[chunk])
        missing = [job.contribution(worker, chunk, parts[chunk][worker]) for worker in range(there, 3)]
        job.expect(missing, job.results(chunk, total) if missing else [])
        job.expect(job.contribution(0, chunk, parts[chunk][0]), job.result(0, chunk, total))
