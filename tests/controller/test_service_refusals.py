"""Refusals of a service, and the error when no service answers."""

import contextlib
import dataclasses
import gc
import logging
import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from controller.errors import JobStoreError, ServiceError
from controller.ledger import Ledgers
from controller.service import registry
from controller.service.client import OperatorClient
from controller.service.jobs import RefusalError
from controller.service.requests import check_message, check_world, read_request
from controller.service.rpc import CODES
from controller.service.store import JobStore
from controller.service.trees import JobTrees
from host_agent.job_api import jobs_pb2
from host_agent.job_api.slot_request import IfFull
from host_agent.joining import JoinError, join
from netsum_common.targets import Capabilities
from tests.controller.odd_messages import first, odd, ordinary
from tests.controller.service_harness import DEADLINE_S, Bench, fake_leaf_spine, fake_network, until


def test_what_no_client_of_ours_says_is_refused() -> None:
    with pytest.raises(RefusalError, match="expected REFUSE, QUEUE or TAKE_LESS"):
        read_request(jobs_pb2.CreateJobRequest(if_full=9))  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    one = Bench(tmp_path, monkeypatch)
    one.serve()
    yield one
    one.close()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_number_out_of_range_takes_neither_slots_nor_the_name(bench: Bench, number: float) -> None:
    for _ in range(3):
        with pytest.raises(ServiceError, match=r"expected a number from 0 to 1e\+15 as queue_s, not"):
            bench.operator.create_job("job", 2, queue_s=number)
        with pytest.raises(ServiceError, match="weight"):
            bench.operator.create_job("job", 2, weight=number)
    assert bench.operator.switch().free_slots == 4096
    assert bench.operator.create_job("job", 2).name == "job"


def test_numbers_are_checked_at_any_depth() -> None:
    slots = jobs_pb2.Slots(bandwidth_delay=jobs_pb2.BandwidthDelay(link_bits_per_s=1e9, rtt_s=float("nan")))
    check_message(jobs_pb2.CreateJobRequest(name="job", world_size=2, queue_s=1.5))
    with pytest.raises(RefusalError, match="as rtt_s, not nan"):
        check_message(jobs_pb2.CreateJobRequest(slots=slots))


@pytest.mark.parametrize("if_full", ["refuse", "queue"])
def test_a_job_that_cannot_be_saved_takes_neither_slots_nor_the_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, if_full: IfFull
) -> None:
    if if_full == "queue":
        bench.operator.create_job("holder", 2, slots=4096)
    free = bench.operator.switch().free_slots

    def full(*_: object) -> None:
        raise JobStoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "save", full)
        for _ in range(20):
            with pytest.raises(ServiceError, match="the disk is full"):
                bench.operator.create_job("job", 2, slots=64, if_full=if_full)
    assert bench.operator.switch().free_slots == free
    assert bench.job("job") is None
    assert bench.operator.create_job("job", 2, slots=64, if_full=if_full).name == "job"


def test_a_new_name_that_is_no_word_of_a_shell_is_refused(bench: Bench) -> None:
    for name in ("", "   ", "my job", "a;reboot", "$(reboot)", "-x", "../up", "é", 101 * "a"):
        with pytest.raises(ServiceError, match="job: expected a name of 1 to 100 letters, digits, dots"):
            bench.operator.create_job(name, 2)
    with pytest.raises(JoinError, match="job: expected a name of 1 to 100 letters, digits, dots"):
        bench.join_all("my job", 1)


def test_a_job_of_an_older_state_file_keeps_its_name(bench: Bench, tmp_path: Path) -> None:
    bench.operator.create_job("old", 1)
    bench.stop()
    (file,) = tmp_path.rglob("state.sqlite3")
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE job SET name = 'my job; $x'")
    bench.serve().ready()
    (member,) = bench.join_all("my job; $x", 1)
    assert bench.operator.job("my job; $x").world_size == 1
    bench.operator.restart_job("my job; $x")
    bench.operator.delete_job("my job; $x")
    member.close()
    assert bench.operator.jobs() == []


def test_the_number_of_jobs_has_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_JOBS", 3)
    for number in range(3):
        bench.operator.create_job(f"job{number}", 2)
    with pytest.raises(ServiceError, match="has 3 jobs that have not ended, and takes no more"):
        bench.operator.create_job("more", 2)
    with pytest.raises(JoinError, match="has 3 jobs that have not ended, and takes no more"):
        bench.joining("more", 0, 2).result()
    bench.operator.delete_job("job1")
    bench.operator.create_job("more", 2)


def test_bytes_that_are_no_message_leave_no_traceback(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with grpc.insecure_channel(bench.address) as channel:
        call = channel.unary_unary("/netsum.v1.Operators/CreateJob")
        with caplog.at_level(logging.DEBUG), pytest.raises(grpc.RpcError):
            call(b"\xff\xff\xff not protobuf", timeout=10)
    assert bench.operator.jobs() == []
    assert not [record for record in caplog.records if record.exc_info]


OPERATORS = ("ListJobs", "GetJob", "RestartJob", "ListSwitches", "GetSwitch", "CreateJob", "DeleteJob")
MESSAGES = 10_000 if "NETSUM_LONG_TESTS" in os.environ else 4_000
EXPLAINED = {*CODES.values(), grpc.StatusCode.UNAVAILABLE}


def _call(channel: Any, kind: str, rng: random.Random) -> int:
    """Make a call with odd messages, and return how many it had."""
    messages = [odd(ordinary(kind, rng), rng)]
    if kind in ("Join", "Register"):
        messages = [
            odd(first(kind, rng), rng),
            *(odd(ordinary(kind, rng), rng) for _ in range(rng.randrange(4))),
        ]
        service = "Workers" if kind == "Join" else "Aggregators"
        for _ in channel.stream_stream(f"/netsum.v1.{service}/{kind}")(iter(messages), timeout=DEADLINE_S):
            pass
    elif kind == "WatchJob":
        watch = channel.unary_stream(f"/netsum.v1.Operators/{kind}")(messages[0], timeout=DEADLINE_S)
        next(watch)
        watch.cancel()
    elif b"others" not in messages[0] or kind not in ("DeleteJob", "RestartJob"):
        channel.unary_unary(f"/netsum.v1.Operators/{kind}")(messages[0], timeout=DEADLINE_S)
    return len(messages)


def test_odd_messages_touch_nothing_of_others(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.serve(grace_s=0.0)
    members = bench.join_all("others", 2)
    before = bench.operator.job("others")
    rng, sent, unexplained = random.Random(22), 0, []
    kinds = [*OPERATORS, "WatchJob", *["CreateJob", "DeleteJob", "Register"] * 3, *["Join"] * 8]
    with grpc.insecure_channel(bench.address) as channel:
        while sent < MESSAGES:
            kind = rng.choice(kinds)
            try:
                sent += _call(channel, kind, rng)
            except grpc.RpcError as error:
                sent += 1
                if error.code() not in EXPLAINED and "DecodeError" not in error.details():
                    unexplained.append(f"{kind}: {error.code()} {error.details()}")
    assert unexplained == []
    after = bench.operator.job("others")
    for view in (before, after):
        for worker in view.workers:
            worker.ClearField("seen_s"), worker.ClearField("report")
    assert after == before
    assert [(member.trouble, member.admission.epoch) for member in members] == [("", before.epoch)] * 2
    for job in bench.operator.jobs():
        if job.name != "others":
            bench.operator.delete_job(job.name)
    assert bench.operator.switch().free_slots == 4096 - before.slot_count
    gc.collect()  # A coroutine that was never awaited is logged when it is collected.
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def test_workers_on_several_pipes_of_a_tofino_get_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = fake_network(2)
    site = network.switches["s1"]
    apart = dict(zip(site.stations, (12, 132), strict=True))
    switches = {"s1": dataclasses.replace(site, stations=apart)}
    bench = Bench(tmp_path, monkeypatch, dataclasses.replace(network, switches=switches))
    try:
        bench.switch.tofino = True
        bench.serve()
        for joining in [bench.joining("job", rank, 2) for rank in (0, 1)]:
            with pytest.raises(
                JoinError, match="pipe 0: ports 12; pipe 1: ports 132.: use ports of one pipe"
            ):
                joining.result()
        until(lambda: bench.operator.switch().free_slots == 4096)
    finally:
        bench.close()


@pytest.mark.parametrize(
    "details",
    [
        "Deadline Exceeded",
        "keepalive watchdog timeout",
        "Stream removed (ping timeout)",
        "ipv4:127.0.0.1:1: Socket closed",
    ],
)
def test_a_controller_that_is_cut_off_is_said_not_to_answer(tmp_path: Path, details: str) -> None:
    said = SimpleNamespace(code=lambda: grpc.StatusCode.DEADLINE_EXCEEDED, details=lambda: details)
    with OperatorClient(f"unix:{tmp_path}/none.sock") as operator:
        fault = str(operator._explained(said))
        assert fault.startswith(f"no controller answers at unix:{tmp_path}/none.sock (")
        said.details = lambda: "job train waited 5 s: 64 slots requested"
        assert str(operator._explained(said)) == said.details()


def test_no_controller_is_said_to_be_there(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/none.sock"
    with (
        OperatorClient(address) as operator,
        pytest.raises(ServiceError, match=f"no controller answers at {address}"),
    ):
        operator.jobs()
    with pytest.raises(JoinError, match=f"nothing answers at {address}"):
        join(address, job="job", rank=0, world_size=1)
    with pytest.raises(
        JoinError, match="expected an address such as 127.0.0.1:28276 or unix:PATH, not 'nowhere'"
    ):
        join("nowhere", job="job", rank=0, world_size=1)


def test_more_workers_than_places() -> None:
    network = fake_leaf_spine((32,) * 32)
    places = JobTrees(network, Ledgers(), Capabilities()).most_workers(spread=True)
    with pytest.raises(RefusalError, match="^a job has 1 to 1024 workers here, 32 at each switch, not 2000$"):
        check_world(2000, places)
