"""Aggregators on hosts: the service on switches that only record what is written, and agents that tests script."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.errors import ServiceError, StoreError
from controller.service.store import Store
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc
from host_agent.job_api.jobs_pb2 import FromAggregator, Offer, Started
from host_agent.joining import JoinError, NoSlotsError
from tests.controller.service_harness import DEADLINE_S, Bench, FakeSession, FakeSwitch, until

SLOTS = 1024


class ScriptedAgent:
    """An agent of a host whose switch only records what is written."""

    def __init__(self, bench: Bench, name: str = "agg", ip: str = "127.0.2.77") -> None:
        self.switch = FakeSwitch()
        self.address = f"fake-{name}:1"
        FakeSession.switches = {**FakeSession.switches, self.address: self.switch}
        self._outgoing: queue.SimpleQueue[FromAggregator | None] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(bench.address)
        stub = jobs_pb2_grpc.AggregatorsStub(self._channel)  # type: ignore[no-untyped-call]
        self._say(offer=Offer(name=name, ip=ip))
        self._messages = stub.Register(iter(self._outgoing.get, None), timeout=DEADLINE_S)

    def hears(self) -> str:
        """The kind of the next message."""
        kind: str = next(self._messages).WhichOneof("message")
        return kind

    def starts(self, failure: str = "", mac: str = "", device_id: int = 1) -> None:
        """Wait until it is asked to start, and say that it does."""
        assert self.hears() == "start"
        started = Started(
            p4runtime=self.address, device_id=device_id, udp_port=28275, failure=failure, mac=mac
        )
        self._say(started=started)

    def leave(self) -> None:
        self._outgoing.put(None)
        self._channel.close()

    def _say(self, **message: Any) -> None:
        self._outgoing.put(FromAggregator(**message))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.close()


def agent_of(bench: Bench, name: str = "agg") -> ScriptedAgent:
    agent = ScriptedAgent(bench, name)
    assert agent.hears() == "registered"
    return agent


def test_a_job_without_slots_goes_to_a_host_and_returns(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    (full,) = bench.join_all("full", 1, slots=SLOTS)
    joining = bench.joining("spills", 0, 1, slots=512)
    agent.starts()
    seat = joining.result(DEADLINE_S)
    view = bench.operator.job("spills")
    assert (view.switch, view.on_host, view.slot_count) == ("agg", True, SLOTS // 8)
    assert seat.admission.switch == ("127.0.2.77", 28275)
    assert [job.name for job in agent.switch.jobs.values()] == ["spills"]
    full.close()
    until(lambda: bench.operator.job("spills").switch == "s1")
    until(lambda: seat.admission.slot_count == 512)
    view = bench.operator.job("spills")
    assert (view.on_host, view.moves, view.restarts) == (False, 1, 0)
    assert seat.admission.switch[0] == "127.0.2.254"
    assert not agent.switch.jobs
    assert seat.trouble == ""


def test_with_shared_slots_a_job_below_the_least_goes_to_a_host(bench: Bench) -> None:
    bench.serve(slots=SLOTS, share="fair", least_slots=512).ready()
    agent = agent_of(bench)
    seats = {name: bench.join_all(name, 1)[0] for name in "ab"}
    joining = bench.joining("c", 0, 1)
    agent.starts()
    joining.result(DEADLINE_S)
    assert bench.operator.job("c").on_host
    seats["a"].close()
    until(lambda: not bench.operator.job("c").on_host)
    until(lambda: {job.slot_count for job in bench.operator.jobs()} == {512})


def test_a_worker_that_no_switch_reaches(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    joining = bench.joining("remote", 0, 1, addresses=["127.0.9.9"])
    agent.starts()
    assert joining.result(DEADLINE_S).admission.switch == ("127.0.2.77", 28275)
    (worker,) = agent.switch.jobs[1].workers
    assert (worker.port, worker.ip, worker.mac) == (0, "127.0.9.9", "02:00:7f:00:09:09")


def test_a_job_that_asks_for_a_host_stays_there(bench: Bench) -> None:
    """With slots free on the switch; also after a restart of the controller, and with the MAC address of its kernel."""
    bench.serve(recovery_s=DEADLINE_S).ready()
    with pytest.raises(
        ServiceError, match="to be added on a host; no aggregator has registered, or none has"
    ):
        bench.operator.create_job("early", 1, on_host=True)
    agent = agent_of(bench)
    bench.operator.create_job("here", 1, on_host=True, if_full="queue")
    agent.starts(mac="02:00:00:00:00:99")
    (seat,) = bench.join_all("here", 1)
    assert seat.admission.switch == ("127.0.2.77", 28275)
    assert [worker.mac for worker in agent.switch.jobs[1].workers] == ["02:00:00:00:00:01"]
    assert agent.switch.address == ("127.0.2.77", "02:00:00:00:00:99")
    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: bench.operator.job("here").workers[0].state == jobs_pb2.SEATED)
    view = bench.operator.job("here")
    assert (view.on_host, view.moves, view.restarts) == (True, 0, 0)
    assert agent.switch.address == ("127.0.2.77", "02:00:00:00:00:99")
    seat.close()


def test_a_kernel_sends_only_to_mac_addresses_that_are_known(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    joining = bench.joining("remote", 0, 1, addresses=["127.0.9.9"])
    agent.starts(mac="02:00:00:00:00:99")
    with pytest.raises(JoinError, match="the MAC address of worker 0 at 127.0.9.9 is not known"):
        joining.result(DEADLINE_S)


def test_a_host_that_is_not_there(bench: Bench) -> None:
    """The agent registers and never starts its switch: one sentence, and nothing is held."""
    bench.serve(start_s=0.2).ready()
    agent = agent_of(bench)
    bench.join_all("full", 1, slots=SLOTS)
    with pytest.raises(
        NoSlotsError,
        match=r"^64 slots requested; .*; aggregator agg at 127.0.2.77 did not start within 0.2 s$",
    ):
        bench.join_all("spills", 1)
    assert agent.hears() == "start"
    assert [job.name for job in bench.operator.jobs()] == ["full"]
    assert len(bench.switch.jobs) == 1
    assert agent.switch.jobs == {}


def test_a_host_that_cannot_start(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    bench.join_all("full", 1, slots=SLOTS)
    joining = bench.joining("spills", 0, 1)
    agent.starts(failure="UDP port 28275 is in use")
    with pytest.raises(NoSlotsError, match="aggregator agg cannot start: UDP port 28275 is in use"):
        joining.result(DEADLINE_S)


def test_a_host_that_cannot_be_saved_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    bench.serve().ready()
    agent = agent_of(bench)
    bench.operator.create_job("here", 1, on_host=True, if_full="queue")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "save_host", full)
        agent.starts()
        with pytest.raises(grpc.RpcError, match="the disk is full"):
            agent.hears()


def test_a_device_id_that_cannot_be_saved_is_refused(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    bench.operator.create_job("here", 1, on_host=True, if_full="queue")
    agent.starts(device_id=(1 << 64) - 1)
    with pytest.raises(grpc.RpcError, match="aggregator agg: a device id is below 2..63"):
        agent.hears()


def test_an_invalid_request_does_not_go_to_a_host(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    with pytest.raises(JoinError, match="2,048 slots requested, but the switch has 1024"):
        bench.join_all("large", 1, slots=2048)
    agent.leave()


def test_a_host_that_goes_away(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    (full,) = bench.join_all("full", 1, slots=SLOTS)
    joining = bench.joining("spills", 0, 1, slots=SLOTS)
    agent.starts()
    seat = joining.result(DEADLINE_S)
    other = agent_of(bench, "other")
    agent.leave()
    other.starts()
    assert seat.restarted(DEADLINE_S).switch == ("127.0.2.77", 28275)
    assert bench.operator.job("spills").switch == "other"
    assert {switch.name for switch in bench.operator.switches()} == {"s1", "other"}
    full.close()
    until(lambda: bench.operator.job("spills").switch == "s1")


def test_two_hosts_of_one_name(bench: Bench) -> None:
    bench.serve().ready()
    first = agent_of(bench)
    for name in ("agg", "s1", "h1"):
        with pytest.raises(grpc.RpcError, match=f"there is a switch or aggregator named {name} already"):
            ScriptedAgent(bench, name).hears()
    first.leave()


@pytest.mark.parametrize("name", ["", "a\nb", 201 * "a"])
def test_the_name_of_an_aggregator_is_checked(bench: Bench, name: str) -> None:
    bench.serve().ready()
    with pytest.raises(grpc.RpcError, match="printable characters( that are not all blanks| as name)"):
        ScriptedAgent(bench, name).hears()


def test_what_is_said_of_a_registration(bench: Bench) -> None:
    bench.serve().ready()
    with pytest.raises(grpc.RpcError, match="aggregator agg: .*somewhere"):
        ScriptedAgent(bench, ip="somewhere").hears()
    stub = jobs_pb2_grpc.AggregatorsStub(grpc.insecure_channel(bench.address))  # type: ignore[no-untyped-call]
    with pytest.raises(grpc.RpcError, match="an agent begins with its offer"):
        list(stub.Register(iter([FromAggregator(started=jobs_pb2.Started())])))
