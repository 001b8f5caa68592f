"""Joining, leaving and ending jobs over the job API, on a switch that only records writes."""

import contextlib
import dataclasses
import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.errors import ServiceError
from controller.jobs import Job
from controller.service.client import as_dict
from controller.service.views import add_rates
from host_agent.errors import SwitchSilentError, UsedAdmissionError
from host_agent.job_api import jobs_pb2
from host_agent.joining import BandwidthDelay, JoinError, Share, membership_status
from host_agent.joining.membership import open_memberships
from netsum.cli.watching import last_sentence
from netsum_common.logs import LogFormatter
from tests.controller.harness_switches import HarnessTables
from tests.controller.service_harness import DEADLINE_S, Bench, fake_network, until


@pytest.fixture(scope="module")
def lasting_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        one = Bench(tmp_path_factory.mktemp("service"), patch)
        one.serve()
        yield one
        one.close()


@pytest.fixture
def bench(lasting_bench: Bench) -> Iterator[Bench]:
    """A service without jobs."""
    yield lasting_bench
    for member in list(open_memberships):
        member.close()
    for job in lasting_bench.operator.jobs():
        with contextlib.suppress(ServiceError):  # The job may be ending by itself.
            lasting_bench.operator.delete_job(job.name)
    until(lambda: lasting_bench.operator.switch().free_slots == 4096)


@pytest.mark.parametrize("as_json", [True, False])
def test_lines_of_the_log_name_job_worker_and_switch(
    bench: Bench, caplog: pytest.LogCaptureFixture, as_json: bool
) -> None:
    with caplog.at_level(logging.INFO):
        for member in bench.join_all("job", 2):
            member.close()
        until(lambda: not bench.operator.jobs())
    lines = [LogFormatter(as_json).format(record) for record in caplog.records]
    if as_json:
        found = [json.loads(line) for line in lines]
        joined = [each for each in found if each["message"].startswith("join, attached: ")]
        assert {(each["job"], each["worker"]) for each in joined} == {("job", 0), ("job", 1)}
        assert {each["level"] for each in found} == {"INFO"}
        assert all(datetime.fromisoformat(each["time"]).tzinfo for each in found)
        assert {each["switch"] for each in found if "job" not in each} <= {"s1"}
    else:
        pattern = r"\S+T\S+\+00:00 INFO controller\.service\.events job=job worker=[01]: join, attached: .*"
        assert sum(re.fullmatch(pattern, line) is not None for line in lines) == 2


def test_workers_join_and_the_last_one_to_leave_ends_the_job(bench: Bench) -> None:
    until(lambda: bench.streams == 0)
    members = bench.join_all("job", 3)
    assert bench.streams == 3
    (held,) = bench.switch.jobs.values()
    for rank, member in enumerate(members):
        assert member.admission == held.admissions[rank]
        assert member.host == f"h{rank + 1}"
        assert member.bind == (f"127.0.2.{rank + 1}", held.workers[rank].udp_port)
        assert not member.trouble
    bench.switch.count(held.job_id, 7)
    view = bench.operator.job("job")
    assert as_dict(view)["state"] == "running"
    assert [worker.host for worker in view.workers] == ["h1", "h2", "h3"]
    assert view.counters["contributions"] == 7
    assert [worker.admitted for worker in view.workers] == [100, 101, 102]

    members[1].close()
    until(lambda: members[0].left == {1: "it left"} and members[2].left == {1: "it left"})
    assert members[0].trouble == "worker 1 left: it left"
    assert bench.switch.jobs
    with pytest.raises(JoinError, match="worker 1 of job job has left .*: restart the job"):
        bench.joining("job", 1, 3).result()
    members[0].close()
    members[2].close()
    until(lambda: not bench.switch.jobs)
    with pytest.raises(ServiceError, match="job job has ended: all its workers have left"):
        bench.operator.job("job")
    assert bench.operator.jobs(ended=True)[-1].name == "job"
    assert bench.operator.switch().free_slots == 4096


def test_a_job_and_an_ended_one_of_its_name_are_counted_apart(bench: Bench) -> None:
    for counted in (7, 8):
        (member,) = bench.join_all("twice", 1)
        bench.switch.count(member.admission.job_id, counted)
        if counted == 7:
            member.close()
            # The switch is read once more after the job has ended.
            until(lambda: not bench.operator.jobs())
            until(lambda: bench.operator.jobs(ended=True)[-1].counters["results"] == 7)
    *_, ended, running = bench.operator.jobs(ended=True)
    assert [as_dict(view)["state"] for view in (ended, running)] == ["ended", "running"]
    assert [view.counters["results"] for view in (ended, running)] == [7, 8]
    assert [view.workers[0].admitted for view in (ended, running)] == [100, 100]


def test_a_restart_during_the_installation_is_not_overwritten_by_the_old_epoch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The switch is slow: the first epoch is written after the operator's restart, and must not be admitted any more."""
    writing, written = threading.Event(), threading.Event()
    install = HarnessTables.install

    def slow(tables: HarnessTables, job: Job) -> None:
        if not writing.is_set():
            writing.set()
            assert written.wait(DEADLINE_S)
        install(tables, job)

    monkeypatch.setattr(HarnessTables, "install", slow)
    installed = bench.switch.log.count("install job")
    joining = [bench.joining("job", rank, 2) for rank in range(2)]
    assert writing.wait(DEADLINE_S)
    record = bench.registry.find("job").record
    first = record.epoch
    with ThreadPoolExecutor(1) as operator:
        # The answer has the counters, so it waits for the switch.
        restarted = operator.submit(bench.operator.restart_job, "job")
        until(lambda: record.restarts == 1)
        written.set()
        restarted.result(DEADLINE_S)
    members = [future.result(DEADLINE_S) for future in joining]
    (held,) = bench.switch.jobs.values()
    assert {member.admission.epoch for member in members} == {held.epoch}
    assert held.epoch > first
    assert bench.switch.log.count("install job") == installed + 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text
    for member in members:
        member.close()


def test_a_worker_whose_connection_breaks_has_left_after_the_grace(bench: Bench) -> None:
    reported: list[tuple[int, str]] = []
    members = bench.join_all("job", 2)
    members[0].watch(lambda rank, reason: reported.append((rank, reason)), lambda reason: None)
    # As if the process had been killed: its connection ends, and no process attaches again.
    members[1]._stream._closing.set()
    members[1]._stream._call.cancel()
    until(lambda: reported)
    assert reported == [(1, "its connection was lost for 1 s")]
    late: list[tuple[int, str]] = []
    members[0].watch(lambda rank, reason: late.append((rank, reason)), lambda reason: None)
    assert late == reported
    members[0].close()
    until(lambda: not bench.operator.jobs())


def test_a_connection_that_broke_is_made_again_without_notice_to_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = dataclasses.replace(bench.registry.options, grace_s=DEADLINE_S)
    monkeypatch.setattr(bench.registry, "options", patient)
    members = bench.join_all("job", 2)
    for _ in range(3):
        before = members[1]._stream._call
        before.cancel()
        until(lambda before=before: members[1]._stream._call is not before)  # type: ignore[misc]  # the default
        until(lambda: as_dict(bench.operator.job("job"))["workers"][1]["state"] == "seated")
    assert not members[0].left
    assert not members[1].trouble


@pytest.mark.parametrize(
    ("rank", "world_size", "options", "message"),
    [
        (1, 3, {}, "job made has 2 workers, but worker 1 expects 3"),
        (2, 2, {}, "job made has ranks 0 to 1, not 2"),
        (0, 2, {}, r"worker 0 of job made has already joined, on h1 \(127.0.2.1\)"),
        (
            1,
            2,
            {"addresses": ["10.9.9.9"]},
            "worker 1 runs on no host of this controller: its addresses are 10.9.9.9; .*h1",
        ),
        (1, 2, {"join_token": "wrong"}, "job made requires its join token: the worker sent a different one"),
        (1, 2, {"join_token": ""}, "job made requires its join token: the worker sent none"),
    ],
)
def test_a_worker_that_cannot_join_gets_the_reason_and_the_others_wait_on(
    bench: Bench, rank: int, world_size: int, options: dict[str, object], message: str
) -> None:
    bench.operator.create_job("made", 2, join_token="secret")
    first = bench.joining("made", 0, 2, join_token="secret")
    until(lambda: as_dict(bench.operator.job("made"))["workers"][0]["state"] == "seated")
    with pytest.raises(JoinError, match=message):
        bench.joining("made", rank, world_size, **{"join_token": "secret", **options}).result()
    with bench.joining("made", 1, 2, join_token="secret").result(), first.result():
        pass


def test_workers_that_do_not_agree_how_many_they_are_all_get_an_error(bench: Bench) -> None:
    first = bench.joining("job", 0, 2)
    until(lambda: bench.operator.jobs())
    agree = (
        r"the workers of job job do not agree on its world size: worker 1 expects 3, earlier ones expect 2"
    )
    for worker in (first, bench.joining("job", 1, 3)):
        with pytest.raises(JoinError, match=agree):
            worker.result()
    assert not bench.operator.jobs()


@pytest.mark.parametrize(
    ("world_size", "rank", "name", "message"),
    [
        (33, 0, "job", "a job has 1 to 32 workers, not 33"),
        (2, 5, "job", "job job has ranks 0 to 1, not 5"),
        (2, 0, "", "job: expected a name of 1 to 100 letters"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_and_not_kept(
    bench: Bench, world_size: int, rank: int, name: str, message: str
) -> None:
    with pytest.raises(JoinError, match=message):
        bench.joining(name, rank, world_size, addresses=["127.0.2.1"]).result()
    assert not bench.operator.jobs()


def test_a_worker_that_gives_up_reports_who_was_missing_and_the_others_get_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr(membership_status, "time", clock)
    hasty, patient = bench.joining("job", 1, 3), bench.joining("job", 0, 3, timeout_s=1e6)
    reported = ["workers [2] have not joined"] * 2
    until(lambda: [member._status._waiting_for for member in list(open_memberships)] == reported)
    clock.monotonic = lambda: time.monotonic() + 1000.0
    with pytest.raises(
        JoinError, match=rf"joining job job took longer than {DEADLINE_S:g} s: workers \[2\] have not joined"
    ):
        hasty.result()
    with pytest.raises(JoinError, match="worker 1 left before all workers had joined"):
        patient.result()


def test_a_created_job_waits_for_workers_that_come_and_go(bench: Bench) -> None:
    made = as_dict(bench.operator.create_job("made", 2, slots=256))
    assert made["state"] == "gathering"
    assert not any(made["counters"].values())  # The switch still has those of the job whose id it was.
    assert bench.operator.switch().free_slots == 4096 - 256
    with pytest.raises(JoinError, match="took longer"):
        bench.joining("made", 0, 2, timeout_s=0.3).result()
    until(
        lambda: {worker["state"] for worker in as_dict(bench.operator.job("made"))["workers"]} == {"absent"}
    )
    assert bench.operator.switch().free_slots == 4096 - 256  # They are the job's until an operator ends it.
    members = bench.join_all("made", 2, slots=8)  # The operator's request counts.
    assert members[0].admission.slot_count == 256
    for member in members:
        member.close()
    until(lambda: not bench.operator.jobs())


def test_a_created_job_that_no_worker_joins_ends(bench: Bench) -> None:
    bench.operator.create_job("made", 2, idle_s=0.2)
    until(lambda: not bench.operator.jobs())
    ended = bench.operator.jobs(ended=True)[-1]
    assert ended.reason == "no worker joined within 0.2 s"
    assert bench.operator.switch().free_slots == 4096


def test_a_restart_gives_all_a_new_epoch(bench: Bench) -> None:
    reported: list[str] = []
    members = bench.join_all("job", 2)
    before = members[0].admission
    members[1].watch(lambda *_: None, lambda _: None, lambda admission, reason: reported.append(reason))
    bench.operator.restart_job("job")
    for rank, member in enumerate(members):
        admission = member.restarted(DEADLINE_S)
        assert admission == next(iter(bench.switch.jobs.values())).admissions[rank]
        assert admission.epoch > before.epoch
        assert admission.token != before.token
    until(lambda: reported)
    assert reported == ["an operator restarted the job"]
    assert bench.operator.job("job").restarts == 1
    for member in members:
        member.close()


def test_an_admission_serves_one_communicator_and_all_workers_start_again_together(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    used = [member.admission for member in members]
    for member in members:
        assert member.start_again() == member.admission in used, "nothing has used it yet"
        member.communicator().close()
        with pytest.raises(UsedAdmissionError, match="Membership.start_again"):
            member.communicator()
    with pytest.raises(JoinError, match="starting again in job job took longer than 0.1 s"):
        members[0].start_again(0.1)
    with ThreadPoolExecutor(2) as threads:
        admissions = list(threads.map(lambda member: member.start_again(DEADLINE_S), members))
    assert admissions[0].epoch == admissions[1].epoch > used[0].epoch
    assert bench.operator.job("job").restarts == 1
    for member in members:
        member.communicator().close()


def test_a_worker_whose_communicator_failed_starts_again_at_once(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    used = members[0].admission
    with members[0].communicator(timeout_s=0.01) as failing, pytest.raises(SwitchSilentError):
        failing.barrier()
    assert members[0].start_again(DEADLINE_S).epoch > used.epoch
    until(lambda: members[1].admission.epoch > used.epoch)
    assert members[1].start_again() == members[1].admission
    assert bench.operator.job("job").restarts == 1


def test_after_a_restart_workers_that_left_may_come_again(bench: Bench) -> None:
    members = bench.join_all("job", 3)
    members[2].close()
    until(lambda: members[0].left)
    bench.operator.restart_job("job")
    until(lambda: members[0].trouble == "the job is being restarted: workers [2] have not joined")
    assert not bench.switch.jobs
    late = bench.joining("job", 2, 3, addresses=["127.0.2.4"]).result()
    for member in members[:2]:
        member.restarted(DEADLINE_S)
        assert not member.trouble
    (held,) = bench.switch.jobs.values()
    assert [worker.ip for worker in held.workers] == ["127.0.2.1", "127.0.2.2", "127.0.2.4"]
    for member in (late, *members):
        member.close()


def test_a_deleted_job_ends_for_its_workers(bench: Bench) -> None:
    ends: list[str] = []
    members = bench.join_all("job", 2)
    members[0].watch(lambda *_: None, ends.append)
    bench.operator.delete_job("job")
    assert not bench.switch.jobs
    # Once, and that is the last word: a member does not request it again.
    until(lambda: not any(member._stream._thread.is_alive() for member in members))
    assert ends == ["an operator deleted the job"]
    assert members[1].trouble == "the job ended: an operator deleted the job"
    # The job's name is free at once.
    for member in bench.join_all("job", 2):
        member.close()


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (32, 32),
        (None, 64),
        (Share(0.3), 1024),
        (BandwidthDelay(100e6, 0.001), 64),  # 100 kbit in chunks of 2,736 bits on the wire: 37
        (BandwidthDelay(1e9, 0.0001), 64),
        (BandwidthDelay(1e6, 0.0001), 1),
    ],
)
def test_slots_by_request_by_link_and_by_share(bench: Bench, slots: object, expected: int) -> None:
    with bench.joining("job", 0, 1, slots=slots).result() as member:
        assert member.admission.slot_count == expected


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (48, "must be a power of two"),
        (8192, "8,192 slots requested, but the switch has 4096"),
        (Share(1.5), "above 0 to 1, not 1.5"),
        (BandwidthDelay(0, 1), "need a rate in bit/s"),
        (BandwidthDelay(1e11, 0.01), "262,144|524,288 slots requested, but the switch has 4096"),
    ],
)
@pytest.mark.parametrize("if_full", ["refuse", "queue"])
def test_slots_that_cannot_be_are_refused(bench: Bench, slots: object, message: str, if_full: str) -> None:
    with pytest.raises(JoinError, match=message):
        bench.joining("job", 0, 1, slots=slots, if_full=if_full).result()
    with pytest.raises(ServiceError, match=message):
        bench.operator.create_job("made", 1, slots=slots, if_full=if_full)
    assert not bench.operator.jobs()


def test_a_job_that_does_not_fit_is_refused_queued_or_given_less(bench: Bench) -> None:
    bench.operator.create_job("large", 1, slots=2048)
    bench.operator.create_job("small", 1, slots=1024)
    full = "2,048 slots requested; 1024 of the switch's 4096 are free"
    with pytest.raises(JoinError, match=full):
        bench.joining("refused", 0, 1, slots=2048).result()
    with pytest.raises(ServiceError, match=full):
        bench.operator.create_job("refused", 1, slots=2048)
    with bench.joining("modest", 0, 1, slots=2048, if_full="take less").result() as modest:
        assert modest.admission.slot_count == 1024
    until(lambda: bench.operator.switch().free_slots == 1024)

    with pytest.raises(JoinError, match="job hasty waited 0.2 s in the queue: 2,048 slots requested"):
        bench.joining("hasty", 0, 1, slots=2048, if_full="queue", queue_s=0.2).result()
    first = bench.joining("first", 0, 1, slots=2048, if_full="queue")
    until(lambda: bench.job("first") and as_dict(bench.job("first"))["state"] == "queued")
    assert full in bench.operator.job("first").reason
    # Who comes later waits behind, also with a smaller request; who does not want to wait need not.
    second = bench.operator.create_job("second", 1, slots=128, if_full="queue")
    assert as_dict(second)["state"] == "queued"
    assert second.reason == "1 other job already waiting for slots of switch s1"
    with bench.joining("passing", 0, 1, slots=64).result():
        pass
    bench.operator.delete_job("large")
    with first.result(DEADLINE_S) as member:
        assert member.admission.slot_count == 2048
        until(lambda: bench.operator.job("second").slot_count == 128)


def test_jobs_that_state_no_number_get_a_share_of_what_is_free(bench: Bench) -> None:
    """With a share as the controller's default, later jobs get fewer slots, and none is refused for earlier ones."""
    bench.serve(slots=Share(0.25))
    try:
        with contextlib.ExitStack() as stack:
            members = [stack.enter_context(bench.joining(f"job{each}", 0, 1).result()) for each in range(16)]
            counts = [member.admission.slot_count for member in members]
            assert counts[:2] == [1024, 512]
            assert counts == sorted(counts, reverse=True)
            assert sum(counts) <= 4096
            with bench.joining("numbered", 0, 1, slots=16).result() as member:
                assert member.admission.slot_count == 16
    finally:
        bench.serve()


def test_places_of_a_loopback_are_given_in_the_order_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, fake_network(3, any_place=True))
    try:
        bench.serve()
        members = bench.join_all("job", 3, addresses=[])
        assert {member.host for member in members} == {"h1", "h2", "h3"}
        more = bench.join_all("more", 2, addresses=["192.0.2.1"])
        assert len({member.bind for member in (*members, *more)}) == 5
        for member in (*members, *more):
            member.close()
    finally:
        bench.close()


def test_ranks_on_a_loopback_get_places_by_rank_in_whatever_order_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, fake_network(3, any_place=True))
    try:
        bench.serve()
        coming = {}
        for rank in (2, 1, 0):
            coming[rank] = bench.joining("job", rank, 3, addresses=[])
            until(lambda rank=rank: (view := bench.job("job")) and view.workers[rank].host)  # type: ignore[misc]
        members = [coming[rank].result(DEADLINE_S) for rank in range(3)]
        assert [member.host for member in members] == ["h1", "h2", "h3"]
        # A place that is free goes before the rank's own, which is not.
        members[1].close()
        until(lambda: bench.operator.job("job").workers[1].state == jobs_pb2.LEFT)
        assert bench.joining("second", 0, 1, addresses=[]).result(DEADLINE_S).host == "h2"
    finally:
        bench.close()


def test_a_watch_shows_rates_and_who_is_stuck_until_the_job_ends(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    views = bench.operator.watch_job("job", 0.05)
    assert as_dict(next(views))["state"] == "running"
    stuck = jobs_pb2.StuckSlot(slot=3, chunk=67, waiting_ns=10**9, switch_answered=True, missing=[1])
    for chunks in (100, 300):
        report = jobs_pb2.Report(chunks=chunks, retransmissions=chunks // 10, stuck=stuck)
        members[0]._stream.send(jobs_pb2.FromWorker(report=report))
        view = next(one for one in views if one.workers[0].report.chunks == chunks)
    assert view.workers[0].report.stuck.missing == [1]
    assert view.workers[0].chunks_per_s > 0
    assert view.workers[0].retransmissions_per_s > 0
    assert not view.workers[1].HasField("report")
    for member in members:
        member.close()
    assert as_dict(list(views)[-1])["state"] == "ended"
    with pytest.raises(ServiceError, match="there is no job named other"):
        next(bench.operator.watch_job("other"))


def test_the_worker_that_the_others_wait_for_is_named(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    for took_us, member in zip((6000, 1000), members, strict=True):
        durations = jobs_pb2.Durations(epoch=1, first=0, stride=1, us=[took_us] * 50)
        member._stream.send(jobs_pb2.FromWorker(report=jobs_pb2.Report(chunks=1, durations=durations)))
    until(lambda: bench.operator.job("job").HasField("last"))
    view = bench.operator.job("job")
    assert last_sentence(view) == (
        "slow: worker 1 was the last in 100% of 50 collectives, by 5.0 ms at the median"
    )
    for member in members:
        member.close()


def test_an_unknown_switch_and_an_unknown_job_are_said_to_be(bench: Bench) -> None:
    with pytest.raises(ServiceError, match="there is no switch s9: the switches are s1"):
        bench.operator.switch("s9")
    with pytest.raises(ServiceError, match="there is no switch s9: the switches are s1"):
        bench.operator.create_job("made", 1, switch="s9")
    with pytest.raises(ServiceError, match="there is no job named none"):
        bench.operator.restart_job("none")
    bench.operator.create_job("made", 2)
    with pytest.raises(ServiceError, match="job made has not started"):
        bench.operator.restart_job("made")
    with pytest.raises(ServiceError, match="a job named made already exists"):
        bench.operator.create_job("made", 2)
    with pytest.raises(
        JoinError, match="there is no job named secret, and the join token belongs to an existing job"
    ):
        bench.joining("secret", 0, 1, join_token="x").result()


def test_a_worker_that_says_twice_where_it_receives_does_not_restart_the_job(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    epoch = bench.operator.job("job").epoch
    members[0]._stream.send(jobs_pb2.FromWorker(receive=jobs_pb2.Receiver(udp_port=1234)))
    until(lambda: members[0].trouble)
    assert members[0].trouble == "the job ended: a worker sends its receiver once, before its job runs"
    assert bench.operator.job("job").epoch == epoch
    assert not members[1].trouble


def test_a_token_may_have_any_letters(bench: Bench) -> None:
    bench.operator.create_job("made", 1, join_token="schlüssel")
    with pytest.raises(JoinError, match="requires its join token: the worker sent a different one"):
        bench.joining("made", 0, 1, join_token="schlussel").result()
    bench.joining("made", 0, 1, join_token="schlüssel").result()


def test_there_is_no_rate_since_a_time_without_counts() -> None:
    before = jobs_pb2.JobView(workers=[jobs_pb2.WorkerView(rank=0)])
    view = jobs_pb2.JobView(
        counters={"contributions": 700, "results": 350},
        workers=[jobs_pb2.WorkerView(rank=0, report=jobs_pb2.Report(chunks=350, retransmissions=9))],
    )
    add_rates(view, before, 0.5)
    assert (view.results_per_s, view.workers[0].retransmissions_per_s) == (0, 0)
    assert not before.counters  # A switch that did not answer has no counts.
