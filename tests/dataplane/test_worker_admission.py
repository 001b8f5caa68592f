"""Who may touch a slot, and which slots."""

import pytest

from tests.dataplane.dataplane.frames import CONTRIBUTE, IPV4, NETSUM_PORT, UDP, Netsum, ethernet, ipv4, udp
from tests.dataplane.dataplane.jobs import (
    SWITCH_IP,
    SWITCH_MAC,
    Job,
    MakeJob,
    lanes_of,
    saturating_sum,
    worker_at,
)
from tests.dataplane.dataplane.target import Packet, Target


def half_full(target: Target, job: Job) -> tuple[list[int], list[int]]:
    """Put worker 0's contribution to chunk 0 in; return both workers' parts."""
    parts = lanes_of(target, 1), lanes_of(target, 2)
    job.expect(job.contribution(0, 0, parts[0]))
    return parts


def packet(header: Netsum, *, port: int, ip: int) -> Packet:
    datagram = udp(40000, NETSUM_PORT, header.pack())
    return port, ethernet(SWITCH_MAC, 0x020000000077, IPV4, ipv4(ip, SWITCH_IP, UDP, datagram))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"token": 0}, id="token 0"),
        pytest.param({"token": 0x12345678}, id="another token"),
        pytest.param({"worker_id": 0}, id="another worker"),
        pytest.param({"worker_id": 2}, id="worker that is not in the job"),
        pytest.param({"worker_id": 33}, id="worker beyond the bitmap"),
        pytest.param({"worker_id": 255}, id="last worker id"),
    ],
)
def test_unadmitted_worker_changes_nothing(target: Target, make_job: MakeJob, change: dict[str, int]) -> None:
    job = make_job()
    parts = half_full(target, job)
    forged = job.header(CONTRIBUTE, 1, 0, lanes=lanes_of(target, 9)).with_(**change)
    with job.counting(not_admitted=1):
        job.expect(job.packet(forged, worker_id=1))
    job.expect(job.contribution(1, 0, parts[1]), job.results(0, saturating_sum(parts)))


@pytest.mark.parametrize("job_id", [0, 2, 255, 256, 0xFFFF])
def test_job_that_does_not_exist(target: Target, make_job: MakeJob, job_id: int) -> None:
    job = make_job(job_id=1)
    parts = half_full(target, job)
    with job.counting(job_id=job_id if job_id < 256 else 0, not_admitted=1):
        job.expect(job.packet(job.header(CONTRIBUTE, 1, 0, lanes=lanes_of(target, 9), job_id=job_id)))
    job.expect(job.contribution(1, 0, parts[1]), job.results(0, saturating_sum(parts)))


def test_wrong_port(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    parts = half_full(target, job)
    header = job.header(CONTRIBUTE, 1, 0, lanes=parts[1])
    with job.counting(not_admitted=7):
        job.expect([packet(header, port=port, ip=worker_at(1).ip) for port in (0, 2, 3, 4, 5, 6, 7)])
    job.expect(packet(header, port=1, ip=worker_at(1).ip), job.results(0, saturating_sum(parts)))


def test_wrong_source(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    parts = half_full(target, job)
    header = job.header(CONTRIBUTE, 1, 0, lanes=parts[1])
    others = [worker_at(0).ip, worker_at(2).ip, SWITCH_IP, 0, 0xFFFFFFFF]
    with job.counting(not_admitted=len(others)):
        job.expect([packet(header, port=1, ip=ip) for ip in others])
    job.expect(packet(header, port=1, ip=worker_at(1).ip), job.results(0, saturating_sum(parts)))


def test_answers_go_where_the_controller_said_not_where_the_packet_came_from(
    target: Target, make_job: MakeJob
) -> None:
    job = make_job(workers=1)
    lanes = lanes_of(target, 1)
    header = job.header(CONTRIBUTE, 0, 0, lanes=lanes)
    for _ in range(2):  # the multicast and the answer to a retransmission
        job.expect(packet(header, port=0, ip=worker_at(0).ip), job.results(0, lanes))


def test_end_of_a_job_shuts_its_workers_out(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    half_full(target, job)
    job.end()
    with job.counting(not_admitted=2):
        job.expect([job.contribution(1, 0, lanes_of(target, 2)), job.probe(0, 0)])


def test_old_epochs_packets_and_slots_are_void(target: Target, make_job: MakeJob) -> None:
    old = make_job(job_id=7)
    for chunk in range(100, 108):
        old.expect(old.contribution(0, chunk, lanes_of(target, chunk)))
    old.end()
    new = make_job(job_id=7, slot_base=old.slot_base)
    parts = lanes_of(target, 1), lanes_of(target, 2)
    for chunk in range(8):  # lower numbers than those in the slots
        new.expect(new.contribution(1, chunk, parts[1]))
        with new.counting(not_admitted=2):
            new.expect([old.contribution(0, chunk, parts[0]), old.contribution(0, 100 + chunk, parts[0])])
        new.expect(new.contribution(0, chunk, parts[0]), new.results(chunk, saturating_sum(parts)))


def test_slots_of_a_later_epoch_are_void(target: Target, make_job: MakeJob) -> None:
    """The clock that numbers epochs may have been set back."""
    parts = lanes_of(target, 1), lanes_of(target, 2)
    now = make_job()
    later = make_job(job_id=7, epoch=now.epoch + 1000)
    for chunk in range(8):
        later.expect(later.contribution(0, chunk, lanes_of(target, 3)))
    later.end()
    new = make_job(job_id=7, slot_base=later.slot_base, epoch=now.epoch + 1)
    for chunk in range(8):
        new.expect(new.contribution(1, chunk, parts[1]))
        new.expect(new.contribution(0, chunk, parts[0]), new.results(chunk, saturating_sum(parts)))


def test_next_job_on_the_same_slots_starts_anew(target: Target, make_job: MakeJob) -> None:
    first = make_job(workers=1)
    for chunk in range(8):
        first.expect(
            first.contribution(0, chunk, lanes_of(target, 1)), first.results(chunk, lanes_of(target, 1))
        )
    first.end()
    second = make_job(slot_base=first.slot_base)
    parts = lanes_of(target, 3), lanes_of(target, 4)
    for chunk in range(8):
        second.expect(second.contribution(0, chunk, parts[0]))
        second.expect(second.contribution(1, chunk, parts[1]), second.results(chunk, saturating_sum(parts)))


@pytest.mark.parametrize("beyond", [0, 1, 2, 1000, 0xFFFF])
def test_slot_out_of_range(target: Target, make_job: MakeJob, beyond: int) -> None:
    make_job(slots=4)
    job = make_job(slots=4)
    neighbour = make_job(slots=4)
    parts = half_full(target, neighbour)
    pool_index = min(2 * job.slot_count + beyond, 0xFFFF)
    with job.counting(out_of_range=3):
        job.expect(job.packet(job.header(CONTRIBUTE, 1, 0, lanes=lanes_of(target, 5), pool_index=pool_index)))
        job.expect(job.packet(job.header(CONTRIBUTE, 1, 0, pool_index=pool_index)))
        job.expect(job.probe(1, 0, pool_index=pool_index))
    neighbour.expect(neighbour.contribution(1, 0, parts[1]), neighbour.results(0, saturating_sum(parts)))


def test_range_that_reaches_beyond_the_switch(target: Target, make_job: MakeJob) -> None:
    job = make_job(slot_base=target.can.slots - 2, slots=4)
    with job.counting(contributions=1, out_of_range=2):
        job.expect(job.contribution(0, 1))
        job.expect([job.contribution(0, 2), job.contribution(0, 7)])
