"""Ends of the controller, of a switch or of the path between, on a switch that only records writes."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from controller.errors import ServiceError
from controller.jobs import Job
from controller.service.jobs import ServiceJob
from controller.service.queues import JobQueues
from controller.service.records import JobRecord
from controller.slots import SlotRange
from host_agent.job_api import jobs_pb2
from host_agent.job_api.job_request import JobRequest
from host_agent.joining.membership import open_memberships
from netsum_common.targets import Capabilities
from tests.controller.service_harness import DEADLINE_S, Bench, until


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    one = Bench(tmp_path, monkeypatch)
    try:
        yield one
    finally:
        for member in list(open_memberships):
            member.close()
        one.close()


def seated(bench: Bench, name: str) -> bool:
    job = bench.job(name)
    return job is not None and all(worker.state == jobs_pb2.SEATED for worker in job.workers)


def test_running_jobs_do_not_notice_another_controller(bench: Bench) -> None:
    bench.serve()
    members = bench.join_all("job", 2, slots=128)
    bench.operator.create_job("made", 3, slots=256, join_token="secret")
    held, made = dict(bench.switch.jobs), bench.job("made")
    bench.switch.log.clear()

    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: seated(bench, "job"))
    assert bench.switch.jobs == held
    assert bench.switch.log == []
    assert bench.switch.programs_set == 1
    assert not any(member.trouble or member.left for member in members)
    assert bench.job("made") == made
    assert bench.operator.switch().free_slots == 4096 - 128 - 256
    kept = bench.operator.switch().reconciliation.kept
    assert kept == 2 + 2 + 1 + 1 + 4, "two workers, two ports, a group, the switch's address, four stations"

    # The new controller knows the epochs, too.
    more = bench.join_all("more", 2)
    assert more[0].admission.epoch > members[0].admission.epoch
    refusal = bench.joining("made", 0, 3, join_token="other").exception(DEADLINE_S)
    assert "requires its join token" in str(refusal)


def test_the_event_log_survives_the_controller_and_names_every_change(bench: Bench) -> None:
    bench.serve()
    members = bench.join_all("job", 2)
    bench.operator.restart_job("job")
    until(lambda: all(member.restarted for member in members))
    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: seated(bench, "job"))
    members[1].close()
    until(lambda: members[0].left)
    bench.operator.delete_job("job")
    bench.operator.create_job("job", 1)

    events = bench.operator.job_events("job")
    assert [event.at for event in events] == sorted(event.at for event in events)
    steps = [
        (event.event, event.after) for event in events if not event.switch and not event.HasField("rank")
    ]
    assert steps == [
        ("create", "gathering"),
        *[("enqueue", "queued"), ("renew", "installing"), ("admit", "running")],
        ("restart", "clearing"),
        ("clear", "gathering"),
        *[("enqueue", "queued"), ("renew", "installing"), ("admit", "running")],
        *[("restore", "installing"), ("admit", "running")],
        ("end", "ended"),
        ("create", "gathering"),
    ]
    reasons = {event.event: event.reason for event in events if not event.switch}
    assert reasons["restart"] == "an operator restarted the job"
    assert reasons["leave"] == "it left"
    assert reasons["end"] == "an operator deleted the job"
    (rank,) = {event.rank for event in events if event.event == "leave"}
    assert rank == 1
    assert any(event.switch == "s1" and event.after == "ready" for event in events)
    with pytest.raises(ServiceError, match="there is no job named other"):
        bench.operator.job_events("other")


def test_workers_that_did_not_outlive_the_controller_have_left(bench: Bench) -> None:
    bench.serve()
    members = bench.join_all("job", 2)
    bench.stop()
    members[1].close()
    bench.serve(recovery_s=5.0)
    until(lambda: members[0].left)
    assert members[0].left == {1: "its connection was lost for 5 s"}


def test_a_gathering_that_the_controller_forgot_is_begun_again(bench: Bench) -> None:
    bench.serve()
    early = bench.joining("job", 0, 2)
    until(lambda: bench.job("job"))
    bench.serve()
    late = bench.joining("job", 1, 2)
    assert {early.result(DEADLINE_S).admission.worker_id, late.result(DEADLINE_S).admission.worker_id} == {
        0,
        1,
    }


def test_workers_of_a_job_that_the_controller_has_lost_get_an_error(bench: Bench, tmp_path: Path) -> None:
    bench.serve()
    ends: list[str] = []
    (member,) = bench.join_all("job", 1)
    member.watch(lambda *_: None, ends.append)
    bench.stop()
    for file in tmp_path.glob("state.sqlite3*"):
        file.unlink()
    bench.serve()
    until(lambda: ends)
    assert ends == ["job job has ended, or worker 0 has left it"]
    until(lambda: not bench.switch.jobs)
    # Nothing it left behind can meet the next job: epochs are not used again even so.
    (other,) = bench.join_all("other", 1)
    assert other.admission.epoch >= member.admission.epoch
    assert bench.operator.switch().reconciliation.removed == 1 or bench.switch.programs_set == 2


def test_a_switch_that_restarts_gets_its_jobs_back_in_a_new_epoch(bench: Bench) -> None:
    bench.serve()
    reported: list[str] = []
    members = bench.join_all("job", 2)
    members[0].watch(lambda *_: None, lambda _: None, lambda admission, reason: reported.append(reason))
    first = members[0].admission
    bench.switch.restart()
    for rank, member in enumerate(members):
        assert member.restarted(DEADLINE_S).epoch > first.epoch
        assert member.admission == bench.switch.jobs[first.job_id].admissions[rank]
    until(lambda: reported)
    assert reported == ["switch s1 was restarted"]
    view = bench.operator.switch()
    assert (view.restarts, view.reconnects) == (1, 1)
    assert bench.operator.job("job").restarts == 1


def test_a_connection_to_the_switch_that_broke_restarts_nothing(bench: Bench) -> None:
    bench.serve()
    members = bench.join_all("job", 2)
    held = dict(bench.switch.jobs)
    bench.switch.sessions += 1
    until(lambda: bench.operator.switch().reconnects == 1)
    until(lambda: bench.operator.switch().state == jobs_pb2.READY)
    assert bench.switch.jobs == held
    assert not any(member.trouble for member in members)


def test_the_switch_is_found_wherever_it_restarts_while_the_controller_is_down(bench: Bench) -> None:
    bench.serve()
    members = bench.join_all("job", 2)
    epoch = members[0].admission.epoch
    bench.stop()
    bench.switch.restart()
    bench.serve(recovery_s=DEADLINE_S)
    for member in members:
        assert member.restarted(DEADLINE_S).epoch > epoch
    assert bench.switch.programs_set == 2


def test_a_switch_with_the_program_of_an_earlier_controller_gets_another(
    bench: Bench, tmp_path: Path
) -> None:
    bench.serve()
    members = bench.join_all("job", 2)
    epoch = members[0].admission.epoch
    bench.stop()
    newer = tmp_path / bench.program.name
    for suffix in (".p4info.txtpb", ".capabilities.toml"):
        shutil.copy(bench.program.with_suffix(suffix), newer.with_suffix(suffix))
    newer.write_text(bench.program.read_text() + "\n")
    bench.program = newer
    bench.serve(recovery_s=DEADLINE_S)
    for member in members:
        assert member.restarted(DEADLINE_S).epoch > epoch
    assert bench.switch.programs_set == 2
    held = bench.switch.cookie
    bench.serve(recovery_s=DEADLINE_S).ready()
    assert (bench.switch.cookie, bench.switch.programs_set) == (held, 2)


def test_jobs_wait_for_a_switch_that_is_away(bench: Bench) -> None:
    bench.switch.reachable = False
    bench.serve()
    joining = bench.joining("job", 0, 1)
    until(lambda: (job := bench.job("job")) and job.state == jobs_pb2.QUEUED)
    assert (
        "switch s1 is not ready: no P4Runtime server answers at fake-s1:1" in bench.operator.job("job").reason
    )
    assert bench.operator.switch().state == jobs_pb2.CONNECTING
    bench.switch.reachable = True
    assert joining.result(DEADLINE_S).admission.worker_id == 0


def test_what_ends_while_its_switch_is_away_is_removed_when_it_is_back(bench: Bench) -> None:
    bench.serve()
    members = bench.join_all("job", 1, slots=4096)
    bench.switch.reachable = False
    members[0].close()
    until(lambda: not bench.operator.jobs())
    waiting = bench.joining("next", 0, 1, slots=4096, if_full="queue")
    until(lambda: bench.job("next"))
    assert bench.switch.jobs
    bench.switch.reachable = True
    waiting.result(DEADLINE_S)
    assert [job.name for job in bench.switch.jobs.values()] == ["next"]


def test_a_switch_that_refuses_a_job_ends_it_with_the_reason(bench: Bench) -> None:
    bench.serve().ready()
    bench.switch.refusal = "the switch refused insert for job 'job': table full"
    error = bench.joining("job", 0, 1).exception(DEADLINE_S)
    assert "table full" in str(error)
    bench.switch.refusal = ""
    until(lambda: bench.operator.switch().free_slots == 4096)
    (member,) = bench.join_all("job", 1)
    assert member.admission.slot_count == 64


def test_foreign_jobs_in_the_switch_are_removed_and_reported(bench: Bench) -> None:
    bench.serve()
    (member,) = bench.join_all("job", 1)
    (own,) = bench.switch.jobs.values()
    foreign = Job(JobRequest("foreign", 1), 77, 5, 1, SlotRange(512, 64), Capabilities(), own.workers)
    bench.switch.install(foreign)
    bench.switch.install(dataclasses.replace(own, token=own.token ^ 1))
    bench.switch.sessions += 1
    until(lambda: bench.operator.switch().reconciliation.removed == 4)
    assert bench.switch.jobs == {own.job_id: own}
    assert list(bench.operator.switch().reconciliation.findings) == [
        "table worker_admission: 2 removed, 1 written",
        "table copy_rewrite: 1 removed",
        "multicast groups: 1 removed",
    ]
    assert not member.trouble


def test_a_controller_that_was_displaced_stands_by(bench: Bench) -> None:
    bench.serve()
    (member,) = bench.join_all("job", 1)
    held = dict(bench.switch.jobs)
    bench.switch.primary = False
    until(lambda: bench.operator.switch().state == jobs_pb2.STANDBY)
    assert "another controller" in bench.operator.switch().reason
    joining = bench.joining("more", 0, 1)
    until(lambda: (job := bench.job("more")) and "another controller" in job.reason)
    bench.switch.primary = True
    joining.result(DEADLINE_S)
    assert bench.switch.jobs[member.admission.job_id] == held[member.admission.job_id]
    assert not member.trouble


def test_waiting_jobs_are_looked_through_a_few_times_after_a_restart(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all waiting jobs: once for each was quadratic, and 9,000 of them kept a running job's workers away for minutes."""
    bench.serve()
    members = bench.join_all("job", 2, slots=4096)
    for number in range(60):
        bench.operator.create_job(f"waits{number}", 2, if_full="queue")
    looked: list[str] = []
    waiting = JobQueues.waiting

    def counted(self: JobQueues, queue: str) -> Iterator[ServiceJob]:
        looked.append(queue)
        return waiting(self, queue)

    monkeypatch.setattr(JobQueues, "waiting", counted)
    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: seated(bench, "job"))
    assert len(bench.operator.jobs()) == 61
    assert len(looked) < 20
    assert not any(member.trouble for member in members)


def test_one_more_job_that_waits_costs_as_much_as_the_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every creation went through all waiting jobs."""
    bench.serve()
    bench.operator.create_job("job", 2, slots=4096)
    read = 0
    queue = cast(Any, JobRecord.queue).fget

    def counted(record: JobRecord) -> str:
        nonlocal read
        read += 1
        return str(queue(record))

    monkeypatch.setattr(JobRecord, "queue", property(counted))
    costs = []
    for number in range(60):
        before = read
        bench.operator.create_job(f"waits{number}", 2, if_full="queue")
        costs.append(read - before)
    assert max(costs) <= 3 * costs[0]
    assert bench.operator.jobs()[-1].reason == "59 other jobs already waiting for slots of switch s1"
