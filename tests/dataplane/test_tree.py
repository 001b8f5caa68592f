"""A switch in a tree of switches: packets to the parent, packets from it, and refusals."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.dataplane.dataplane.frames import BOR, CONTRIBUTE, MAX, MISMATCH, RESULT, SUM
from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Packet, Target
from tests.dataplane.dataplane.tree import OWN_ID, PlacedJob

MakeTree = Callable[..., PlacedJob]
"""Bytes by which a packet may leave larger than it came."""


@pytest.fixture
def make_tree(target: Target, make_job: Callable[..., Any]) -> MakeTree:
    if not target.can.trees:
        pytest.skip("Tofino's program has no trees")
    return partial(make_job, kind=PlacedJob)


def complete(
    job: PlacedJob, target: Target, chunk: int = 0, **fields: object
) -> tuple[list[list[int]], list[int]]:
    """Let all children contribute: the sum goes up."""
    parts = [lanes_of(target, 100 * chunk + each.worker_id) for each in job.workers]
    total = saturating_sum(parts)
    for worker_id, part in enumerate(parts):
        last = worker_id == len(parts) - 1
        job.expect(
            job.contribution(worker_id, chunk, part, **fields),
            job.sum_up(chunk, total, **fields) if last else [],
        )
    return parts, total


def test_the_sum_goes_up_and_the_parents_result_comes_down(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=3)
    with job.counting(contributions=3), job.passing(passed_up=1):
        complete(job, target)
    result = lanes_of(target, 7)
    with job.counting(), job.passing(results_taken=1):
        job.expect(job.result_of_parent(0, result, exponent=9), job.results(0, result, exponent=9))


@pytest.mark.parametrize("op", [SUM, MAX, BOR])
def test_each_operation(target: Target, make_tree: MakeTree, op: int) -> None:
    job = make_tree(workers=2)
    parts = [lanes_of(target, each) for each in range(2)]
    operations: dict[int, Callable[[int, int], int]] = {SUM: operator.add, MAX: max, BOR: operator.or_}
    combine = operations[op]
    total = [combine(a, b) for a, b in zip(*parts, strict=True)]
    job.expect(job.contribution(1, 0, parts[1], op=op, exponent=4))
    job.expect(job.contribution(0, 0, parts[0], op=op, exponent=3), job.sum_up(0, total, op=op, exponent=4))
    result = lanes_of(target, 7)
    job.expect(job.result_of_parent(0, result, op=op, exponent=8), job.results(0, result, op=op, exponent=8))
    job.expect(job.contribution(1, 0, parts[1], op=op), job.result(1, 0, result, op=op, exponent=8))


def test_only_child_0_is_passed_up_again(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=3)
    parts, total = complete(job, target)
    with job.counting(duplicates_dropped=2), job.passing(duplicates_passed_up=1):
        for worker_id, expected in ((0, [job.sum_up(0, total)]), (1, []), (2, [])):
            job.expect(job.contribution(worker_id, 0, parts[worker_id]), expected)


def test_a_duplicate_before_completion_goes_nowhere(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    for _ in range(2):
        job.expect(job.contribution(0, 0, lanes_of(target, 0)))


def test_when_final_the_switch_answers_itself(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    parts, _ = complete(job, target)
    result = lanes_of(target, 7)
    job.expect(job.result_of_parent(0, result), job.results(0, result))
    with job.counting(duplicates_answered=2, probes=1), job.passing():
        for worker_id in range(2):
            job.expect(job.contribution(worker_id, 0, parts[worker_id]), job.result(worker_id, 0, result))
        job.expect(job.probe(1, 0, exponent=77), job.status(1, 0, 0b11, exponent=77))


def test_a_second_result_changes_nothing(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    parts, _ = complete(job, target)
    result = lanes_of(target, 7)
    job.expect(job.result_of_parent(0, result), job.results(0, result))
    with job.counting(duplicates_dropped=1), job.passing():
        job.expect(job.result_of_parent(0, lanes_of(target, 8)))
    job.expect(job.contribution(0, 0, parts[0]), job.result(0, 0, result))


def test_a_result_for_what_the_slot_does_not_wait_for_is_stale(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2, slots=1)
    result = lanes_of(target, 7)
    with job.counting(stale=1), job.passing():
        job.expect(job.result_of_parent(0, result))  # nothing there yet
    job.expect(job.contribution(0, 0, lanes_of(target, 0)))
    with job.counting(stale=1), job.passing():
        job.expect(job.result_of_parent(0, result))  # not complete
    _, total = complete(job, target, chunk=2)
    with job.counting(stale=4), job.passing():
        job.expect(job.result_of_parent(0, result))  # older
        job.expect(job.result_of_parent(4, result))  # newer
        job.expect(job.result_of_parent(2, result, fingerprint=1))  # of another collective
        job.expect(job.result_of_parent(2, result, op=MAX))
    job.expect(job.contribution(0, 2, lanes_of(target, 0)), job.sum_up(2, total))


def test_a_slot_is_used_again(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2, slots=1)
    for chunk in range(5):
        complete(job, target, chunk)
        result = lanes_of(target, chunk + 50)
        job.expect(job.result_of_parent(chunk, result), job.results(chunk, result))
        if chunk >= 2:
            with job.counting(stale=1), job.passing():
                job.expect(job.contribution(0, chunk - 2, lanes_of(target, 1)))


def test_a_probe_goes_as_far_as_the_contribution_went(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=3)
    job.expect(job.contribution(2, 0, lanes_of(target, 2)))
    with job.counting(probes=1), job.passing():
        job.expect(job.probe(2, 0, exponent=1), job.status(2, 0, 0b100, exponent=1))
    job.expect(job.contribution(1, 0, lanes_of(target, 1)))
    total = saturating_sum([lanes_of(target, each) for each in (2, 1, 0)])
    job.expect(job.contribution(0, 0, lanes_of(target, 0)), job.sum_up(0, total))
    with job.counting(probes=1), job.passing(probes_passed_up=1):
        job.expect(job.probe(2, 0, exponent=8191), job.probe_up(0, 2, exponent=8191))


def test_a_probe_of_the_one_that_is_missing_is_answered_here(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    job.expect(job.contribution(1, 0, lanes_of(target, 1)))
    with job.counting(probes=1), job.passing():
        job.expect(job.probe(0, 0, exponent=1), job.status(0, 0, 0b10, exponent=1))


def test_a_probe_collects_its_way_and_a_status_takes_it_back(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=3)
    complete(job, target)
    way = 0b10101_00011
    job.expect(job.probe_from(2, 0, way, exponent=5), job.probe_up(0, way << 5 | 2, exponent=5))
    with job.counting(), job.passing(statuses_passed_down=1):
        job.expect(
            job.status_of_parent(0, 0b1001, way << 5 | 2, exponent=5),
            job.passed_down(2, 0, 0b1001, way, level=1, exponent=5),
        )
    job.expect(job.status_of_parent(0, 0b1001, 1, level=2), job.passed_down(1, 0, 0b1001, level=3))


def test_the_answer_to_a_probe_keeps_its_way(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    job.expect(job.probe_from(1, 0, 0x1234, exponent=3), job.passed_down(1, 0, 0, 0x1234, exponent=3))


def test_a_mismatch_from_the_parent_goes_to_all(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=3)
    complete(job, target)
    with job.counting(), job.passing(statuses_passed_down=1):
        job.expect(
            job.status_of_parent(0, 0b1, flags=MISMATCH),
            [job.passed_down(worker_id, 0, 0b1, flags=MISMATCH) for worker_id in range(3)],
        )


def test_a_mismatch_among_children_goes_to_all_and_never_up(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    job.expect(job.contribution(0, 0, lanes_of(target, 0)))
    with job.counting(mismatches=1), job.passing():
        job.expect(
            job.contribution(1, 0, lanes_of(target, 1), fingerprint=1),
            job.statuses(0, 0b1, flags=MISMATCH, fingerprint=1),
        )


def test_without_lanes(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    job.expect(job.contribution(0, 0, exponent=3))
    job.expect(job.contribution(1, 0, exponent=5), job.sum_up(0, exponent=5))
    job.expect(job.contribution(0, 0, exponent=3), job.sum_up(0, exponent=5))
    zeros = [0] * target.lanes
    job.expect(job.contribution(0, 0, zeros, exponent=3), job.sum_up(0, zeros, exponent=5))
    job.expect(job.result_of_parent(0, exponent=6), job.results(0, exponent=6))
    job.expect(job.contribution(1, 0, zeros), job.result(1, 0, exponent=6))


def grows_by_lanes(target: Target) -> bool:
    return 4 * target.lanes <= target.growth_bytes


def test_what_has_no_room_for_lanes_is_asked_for_again_from_child_0(
    target: Target, make_tree: MakeTree
) -> None:
    job = make_tree(workers=2)
    part = lanes_of(target, 0)
    zeros = [0] * target.lanes
    job.expect(job.contribution(0, 0, part, exponent=3))
    up = job.sum_up(0, part, exponent=3)
    asked = [job.status(worker, 0, 0b11, exponent=3) for worker in range(2)]
    with job.counting(contributions=1), job.passing(**({"passed_up": 1} if grows_by_lanes(target) else {})):
        job.expect(job.contribution(1, 0), up if grows_by_lanes(target) else asked)
    job.expect(job.contribution(0, 0), up if grows_by_lanes(target) else asked[:1])
    job.expect(job.contribution(0, 0, zeros), up)


def test_a_result_with_lanes_for_children_without(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    job.expect(job.contribution(0, 0))
    job.expect(job.contribution(1, 0), job.sum_up(0))
    result = lanes_of(target, 7)
    job.expect(job.result_of_parent(0, result), job.results(0, result))
    expected = job.result(1, 0, result) if grows_by_lanes(target) else job.status(1, 0, 0b11)
    job.expect(job.contribution(1, 0), expected)
    job.expect(job.contribution(1, 0, [0] * target.lanes), job.result(1, 0, result))


def test_one_child(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=1)
    part = lanes_of(target, 0)
    job.expect(job.contribution(0, 0, part), job.sum_up(0, part))
    job.expect(job.contribution(0, 0, part), job.sum_up(0, part))
    result = lanes_of(target, 7)
    job.expect(job.result_of_parent(0, result), job.results(0, result))


def test_children_send_no_results_and_the_parent_no_contributions(
    target: Target, make_tree: MakeTree
) -> None:
    job = make_tree(workers=2)
    parts, total = complete(job, target)
    lanes = lanes_of(target, 7)
    with job.counting(malformed=2), job.passing():
        job.expect(job.packet(job.header(RESULT, 0, 0, lanes=lanes)))
        job.expect(job.packet(job.header(RESULT, OWN_ID, 0, lanes=lanes), worker_id=1))
    with job.counting(not_admitted=1), job.passing():
        job.expect(job.from_parent(job.header(CONTRIBUTE, OWN_ID, 2, lanes=lanes)))
    with job.counting(malformed=3), job.passing():
        job.expect(job.result_of_parent(0, lanes, token=job.token ^ 1))
        job.expect(job.from_parent(job.header(RESULT, OWN_ID + 1, 0, lanes=lanes)))
        job.expect(job.status_of_parent(0, 1, token=job.token ^ 1))
    with job.counting(out_of_range=1), job.passing():
        job.expect(job.result_of_parent(0, lanes, pool_index=2 * job.slot_count))
    job.expect(job.contribution(0, 0, parts[0]), job.sum_up(0, total))


def test_what_the_parent_cannot_have_sent_is_malformed(target: Target, make_tree: MakeTree) -> None:
    job = make_tree(workers=2)
    complete(job, target)
    lanes = lanes_of(target, 7)
    wrong: list[Packet] = [
        job.result_of_parent(0, lanes[:-1]),
        job.result_of_parent(0, lanes, flags=0),
        job.result_of_parent(0, flags=1),
        job.result_of_parent(0, lanes, flags=3),
        job.result_of_parent(0, lanes, op=0),
        job.result_of_parent(0, lanes, version=1),
        job.result_of_parent(0, lanes, quorum=1),
        job.result_of_parent(0, flags=16),
        job.status_of_parent(0, 1, flags=1),
        job.status_of_parent(0, 1, lanes=lanes),
        job.status_of_parent(0, 1, op=4),
        job.from_parent(job.header(4, OWN_ID, 0)),
    ]
    with job.counting(malformed=len(wrong)), job.passing():
        job.expect(wrong)


def test_two_jobs_one_with_a_parent(target: Target, make_tree: MakeTree, make_job: MakeJob) -> None:
    tree, single = make_tree(workers=2), make_job(workers=2)
    _, total = complete(tree, target)
    parts = [lanes_of(target, each) for each in range(2)]
    single.expect(
        [single.contribution(each, 0, parts[each]) for each in range(2)],
        single.results(0, saturating_sum(parts)),
    )
    tree.expect(tree.contribution(0, 0, lanes_of(target, 0)), tree.sum_up(0, total))
