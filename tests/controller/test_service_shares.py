"""Jobs that share slots: the service on switches that only record writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from host_agent.joining import JoinError, Membership, NoSlotsError, stream
from tests.controller.service_harness import DEADLINE_S, Bench, fake_leaf_spine, until

SLOTS = 4096


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.close()


def serve(bench: Bench, **options: object) -> None:
    bench.serve(slots=SLOTS, **{"share": "fair", **options}).ready()


def slots(bench: Bench) -> dict[str, int]:
    return {job.name: job.slot_count for job in bench.operator.jobs()}


def joined(bench: Bench, name: str, **options: object) -> list[Membership]:
    return bench.join_all(name, 1, **options)


def test_slots_pass_from_job_to_job(bench: Bench) -> None:
    serve(bench)
    members = {name: joined(bench, name)[0] for name in "ab"}
    assert slots(bench) == {"a": SLOTS // 2, "b": SLOTS // 2}
    members["c"] = joined(bench, "c")[0]
    until(lambda: slots(bench) == dict.fromkeys("abc", SLOTS // 4))
    for name, member in members.items():
        until(lambda name=name, member=member: member.admission.slot_count == SLOTS // 4)  # type: ignore[misc]
        held = bench.switch.jobs[member.admission.job_id]
        assert (held.name, held.epoch, held.token) == (name, member.admission.epoch, member.admission.token)
    members["b"].close()
    until(lambda: slots(bench) == {"a": SLOTS // 2, "c": SLOTS // 2})
    (a, c) = bench.operator.jobs()
    assert (a.restarts, c.restarts) == (0, 0)
    assert a.moves >= 3
    assert bench.operator.share() == ("fair", 1)


def test_weights_and_demand(bench: Bench) -> None:
    serve(bench, share="weighted")
    joined(bench, "a", weight=2.0)
    joined(bench, "b")
    joined(bench, "c")
    until(lambda: slots(bench) == {"a": SLOTS // 2, "b": SLOTS // 4, "c": SLOTS // 4})
    with pytest.raises(JoinError, match="a job's weight is above 0 and below 1,000,000, not -1"):
        joined(bench, "d", weight=-1.0)
    bench.operator.delete_job("a")
    bench.operator.delete_job("b")
    bench.operator.delete_job("c")
    serve(bench, share="demand")
    joined(bench, "e", slots=4096)
    joined(bench, "f", slots=1024)
    until(lambda: slots(bench) == {"e": 2048, "f": 512})


def test_a_created_job_gives_up_slots_before_it_starts(bench: Bench) -> None:
    serve(bench)
    bench.operator.create_job("later", 2)
    assert slots(bench) == {"later": SLOTS}
    joined(bench, "now")
    assert slots(bench) == {"later": SLOTS // 2, "now": SLOTS // 2}
    members = bench.join_all("later", 2)
    assert {member.admission.slot_count for member in members} == {SLOTS // 2}


def test_without_the_least_a_job_is_refused(bench: Bench) -> None:
    serve(bench, least_slots=2048)
    joined(bench, "a")
    joined(bench, "b")
    with pytest.raises(NoSlotsError, match="no slots are free, and every job has the minimum"):
        joined(bench, "c")
    waiting = bench.joining("d", 0, 1, if_full="queue")
    until(lambda: (view := bench.job("d")) is not None and "every job has the minimum" in view.reason)
    bench.operator.delete_job("a")
    assert waiting.result(DEADLINE_S).admission.slot_count == 2048
    view = bench.job("d")
    assert view is not None
    assert view.waited_s > 0


def test_a_job_on_a_tree_moves_on_all_its_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, fake_leaf_spine((2, 2)))
    try:
        serve(bench)
        wide = bench.join_all("wide", 4)
        assert all(switch.jobs[1].slots.count == SLOTS for switch in bench.switches.values())
        narrow = bench.join_all("narrow", 2)
        until(lambda: slots(bench) == {"wide": SLOTS // 2, "narrow": SLOTS // 2})
        until(lambda: {member.admission.slot_count for member in wide} == {SLOTS // 2})
        assert len({member.admission.epoch for member in wide}) == 1
        for switch in bench.switches.values():
            assert {job.slots.count for job in switch.jobs.values()} == {SLOTS // 2}
        for member in narrow:
            member.close()
        until(lambda: slots(bench) == {"wide": SLOTS})
    finally:
        bench.close()


def test_a_controller_that_restarts_knows_of_moves(bench: Bench) -> None:
    serve(bench, recovery_s=DEADLINE_S)
    (first,) = joined(bench, "a")
    joined(bench, "b")
    serve(bench, recovery_s=DEADLINE_S)
    joined(bench, "c")
    until(lambda: slots(bench) == dict.fromkeys("abc", SLOTS // 4))
    until(lambda: first.admission.slot_count == SLOTS // 4)
    assert first.trouble == ""


def test_a_job_joins_before_the_workers_of_others_have_attached_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FIRST_BACKOFF_S", 3.0)  # c has joined long before, unless the machine hangs.
    serve(bench, recovery_s=DEADLINE_S)
    joined(bench, "a")
    joined(bench, "b")
    serve(bench, recovery_s=DEADLINE_S)
    waiting = bench.joining("c", 0, 1)
    assert waiting.result(DEADLINE_S).admission.slot_count == SLOTS // 4
    until(lambda: slots(bench) == dict.fromkeys("abc", SLOTS // 4))


def test_a_switch_that_is_lost_in_the_middle_of_a_move(bench: Bench) -> None:
    serve(bench)
    (member,) = joined(bench, "a")
    bench.switch.refusal = "entries cannot be deleted now"
    waiting = bench.joining("b", 0, 1)
    until(lambda: (view := bench.job("a")) is not None and view.slot_count == SLOTS // 2)
    bench.switch.refusal = ""
    assert waiting.result(DEADLINE_S).admission.slot_count == SLOTS // 2
    until(lambda: member.admission.slot_count == SLOTS // 2)
    assert {job.name for job in bench.switch.jobs.values()} == {"a", "b"}
