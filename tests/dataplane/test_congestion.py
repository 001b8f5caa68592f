"""Two signals on the way: the marks of queues (ECN), and by whose packet a slot was completed."""

import pytest

from tests.dataplane.dataplane.frames import CE, CONGESTED, ECT, LANES, UNKNOWN, internet_checksum
from tests.dataplane.dataplane.jobs import Job, MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Packet, Target
from tests.dataplane.dataplane.tree import PlacedJob

ECT_1 = 1


def with_service(packet: Packet, service: int) -> Packet:
    """Set the IPv4 type of service of a packet, whose lower two bits are of ECN."""
    port, frame = packet
    head = frame[14:15] + bytes([service]) + frame[16:24] + b"\0\0" + frame[26:34]
    checksum = internet_checksum(head).to_bytes(2, "big")
    return port, frame[:14] + head[:10] + checksum + head[12:] + frame[34:]


def all_with(packets: list[Packet], service: int) -> list[Packet]:
    return [with_service(packet, service) for packet in packets]


def echoed(target: Target, flags: int = 0) -> int:
    """Return flags with the echo of a mark, where the program has room for it."""
    return flags | (CONGESTED if target.can.congestion_marks else 0)


@pytest.mark.parametrize("marked", range(3))
@pytest.mark.parametrize("has_lanes", [False, True], ids=["header", "lanes"])
def test_a_mark_on_any_contribution_is_in_the_result(
    target: Target, make_job: MakeJob, has_lanes: bool, marked: int
) -> None:
    job = make_job(workers=3)
    parts = [lanes_of(target, each) if has_lanes else None for each in range(3)]
    total = saturating_sum([part for part in parts if part]) if has_lanes else None
    sent = [
        with_service(job.contribution(each, 0, parts[each]), CE if each == marked else ECT)
        for each in range(3)
    ]
    flags = echoed(target, LANES if has_lanes else 0)
    job.expect(sent[:2])
    job.expect(sent[2], all_with(job.results(0, total, flags=flags), ECT))
    # The slot keeps the mark for those that lost the RESULT.
    job.expect(job.contribution(1, 0, parts[1]), job.result(1, 0, total, flags=flags))


def test_no_mark_outlives_its_chunk_or_comes_from_another_packet(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2, slots=1)
    parts = [lanes_of(target, each) for each in range(2)]
    for chunk in (0, 2):
        job.expect(with_service(job.contribution(0, chunk, parts[0]), ECT if chunk else CE))
        # The marks of a duplicate and of a PROBE do not count, as neither adds a contribution.
        if chunk:
            job.expect(with_service(job.contribution(0, chunk, parts[0]), CE))
            job.expect(with_service(job.probe(1, chunk), CE), with_service(job.status(1, chunk, 0b01), ECT))
        flags = LANES if chunk else echoed(target, LANES)
        job.expect(
            job.contribution(1, chunk, parts[1]), job.results(chunk, saturating_sum(parts), flags=flags)
        )


@pytest.mark.parametrize(("service", "answer"), [(0, 0), (ECT, ECT), (ECT_1, 0), (0xB8, 0), (0xB8 | CE, ECT)])
def test_an_answer_may_be_marked_if_the_packet_might(
    target: Target, make_job: MakeJob, service: int, answer: int
) -> None:
    job = make_job(workers=1)
    flags = echoed(target) if service & 3 == CE else 0
    job.expect(with_service(job.contribution(0, 0), service), all_with(job.results(0, flags=flags), answer))


def given(job: Job, worker_id: int, completer: int) -> Packet:
    return job.contribution(worker_id, 0, lanes_of(job.target, worker_id), completer=completer)


def test_all_learn_who_was_last(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    total = saturating_sum([lanes_of(target, each) for each in range(3)])
    job.expect([given(job, 0, 700), given(job, 2, 702)])
    job.expect(given(job, 1, 701), job.results(0, total, completer=701))
    # A retransmission does not say who sends it: which of its packets is answered is not known.
    job.expect(given(job, 0, UNKNOWN), job.result(0, 0, total, completer=UNKNOWN))


def test_a_switch_with_a_parent_passes_both_on(target: Target, make_job: MakeJob) -> None:
    if not target.can.trees:
        pytest.skip("the program has no trees")
    job = make_job(workers=2, kind=PlacedJob)
    assert isinstance(job, PlacedJob)
    parts = [lanes_of(target, each) for each in range(2)]
    total, result = saturating_sum(parts), lanes_of(target, 9)
    flags = echoed(target, LANES)
    job.expect(with_service(given(job, 0, 4), CE))
    job.expect(
        with_service(given(job, 1, 5), ECT), with_service(job.sum_up(0, total, flags=flags, completer=5), ECT)
    )
    job.expect(given(job, 0, UNKNOWN), job.sum_up(0, total, flags=flags))
    # The parent's RESULT has the marks of all, and the last of all.
    job.expect(
        with_service(job.result_of_parent(0, result, completer=4094, flags=LANES | CONGESTED), ECT),
        all_with(job.results(0, result, completer=4094, flags=flags), ECT),
    )
    job.expect(given(job, 1, UNKNOWN), job.result(1, 0, result, flags=flags))


def test_a_child_s_mark_goes_on_to_the_result(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2)
    parts = [lanes_of(target, each) for each in range(2)]
    job.expect(job.contribution(0, 0, parts[0], flags=LANES | CONGESTED))
    job.expect(
        job.contribution(1, 0, parts[1]),
        job.results(0, saturating_sum(parts), flags=echoed(target, LANES)),
    )
