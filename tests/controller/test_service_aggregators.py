"""Aggregators on hosts: the service on switches that only record writes, and agents that tests script."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.errors import JobStoreError, ServiceError
from controller.service.store import JobStore
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc
from host_agent.job_api.jobs_pb2 import FromAggregator, Offer, Started
from host_agent.joining import JoinError, Membership, NoSlotsError
from tests.controller.harness_switches import HarnessSession, HarnessSwitch
from tests.controller.service_harness import DEADLINE_S, Bench, until

SLOTS = 4096


class ScriptedAgent:
    """An agent of a host whose switch only records writes."""

    def __init__(
        self, bench: Bench, name: str = "agg", ip: str = "127.0.2.77", workers: str = "", mac: str = ""
    ) -> None:
        self.address = f"fake-{name}:1"
        self.switch = HarnessSwitch()
        HarnessSession.switches = {**HarnessSession.switches, self.address: self.switch}
        running = Started(p4runtime=self.address, device_id=1, udp_port=28275, mac=mac) if workers else None
        self._offer = Offer(name=name, ip=ip, leaf=bool(workers), workers=workers, running=running)
        self.register(bench)

    def register(self, bench: Bench) -> None:
        self._outgoing: queue.SimpleQueue[FromAggregator | None] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(bench.address)
        stub = jobs_pb2_grpc.AggregatorsStub(self._channel)  # type: ignore[no-untyped-call]
        self._send(offer=self._offer)
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
        self._send(started=started)
        self._offer.running.CopyFrom(started)

    def leave(self) -> None:
        self._outgoing.put(None)
        self._channel.close()

    def _send(self, **message: Any) -> None:
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
    joining = bench.joining("spills", 0, 1, slots=2048)
    agent.starts()
    member = joining.result(DEADLINE_S)
    view = bench.operator.job("spills")
    assert (view.switch, view.on_host, view.slot_count) == ("agg", True, SLOTS // 8)
    assert member.admission.switch == ("127.0.2.77", 28275)
    assert [job.name for job in agent.switch.jobs.values()] == ["spills"]
    full.close()
    until(lambda: bench.operator.job("spills").switch == "s1")
    until(lambda: member.admission.slot_count == 2048)
    view = bench.operator.job("spills")
    assert (view.on_host, view.moves, view.restarts) == (False, 1, 0)
    assert view.reason == "it returned from aggregator agg to s1"
    assert member.admission.switch[0] == "127.0.2.254"
    assert not agent.switch.jobs
    assert member.trouble == ""


def test_with_shared_slots_a_job_below_the_least_goes_to_a_host(bench: Bench) -> None:
    bench.serve(slots=SLOTS, share="fair", least_slots=2048).ready()
    agent = agent_of(bench)
    members = {name: bench.join_all(name, 1)[0] for name in "ab"}
    joining = bench.joining("c", 0, 1)
    agent.starts()
    joining.result(DEADLINE_S)
    assert bench.operator.job("c").on_host
    members["a"].close()
    until(lambda: not bench.operator.job("c").on_host)
    until(lambda: {job.slot_count for job in bench.operator.jobs()} == {2048})


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
    (member,) = bench.join_all("here", 1)
    assert member.admission.switch == ("127.0.2.77", 28275)
    assert [worker.mac for worker in agent.switch.jobs[1].workers] == ["02:00:00:00:00:01"]
    assert agent.switch.address == ("127.0.2.77", "02:00:00:00:00:99")
    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: bench.operator.job("here").workers[0].state == jobs_pb2.SEATED)
    view = bench.operator.job("here")
    assert (view.on_host, view.moves, view.restarts) == (True, 0, 0)
    assert agent.switch.address == ("127.0.2.77", "02:00:00:00:00:99")
    member.close()


RACK = "127.0.2.0/30"  # Subnet of the workers 0, 1 and 2 of four.


def leaf_of(bench: Bench, *, ip: str = "127.0.2.78", workers: str = RACK, mac: str = "") -> ScriptedAgent:
    agent = ScriptedAgent(bench, "rack", ip, workers, mac)
    assert agent.hears() == "registered"
    until(lambda: bench.operator.switch("rack").state == jobs_pb2.READY)
    return agent


def trained(bench: Bench, workers: int, root: ScriptedAgent, mac: str = "") -> list[Membership]:
    bench.operator.create_job("train", workers, on_host=True, if_full="queue")
    root.starts(mac=mac)
    return bench.join_all("train", workers)


def tree_of(bench: Bench) -> list[tuple[str, str, list[int]]]:
    return [(each.name, each.parent, list(each.ranks)) for each in bench.operator.job("train").tree]


@pytest.mark.parametrize(
    "macs", [("", ""), ("02:00:00:00:00:77", "02:00:00:00:00:78")], ids=["process", "kernel"]
)
def test_an_aggregator_is_a_leaf_below_another(bench: Bench, macs: tuple[str, str]) -> None:
    """An agent adds for its workers, also after a restart of the controller; when it goes, the root adds for all."""
    bench.serve(recovery_s=DEADLINE_S).ready()
    root, leaf = agent_of(bench), leaf_of(bench, mac=macs[1])
    members = trained(bench, 4, root, macs[0])
    assert tree_of(bench) == [("agg", "", [3]), ("rack", "agg", [0, 1, 2])]
    assert [member.admission.switch[0] for member in members] == ["127.0.2.78"] * 3 + ["127.0.2.77"]
    assert [len(member.admission.path) for member in members] == [2, 2, 2, 1]
    above, below = root.switch.jobs[1], leaf.switch.jobs[1]
    child = above.workers[1]
    assert (child.ip, child.port, child.is_switch) == ("127.0.2.78", 0, True)
    assert child.mac == (macs[1] or "02:00:7f:00:02:4e")
    assert below.parent is not None
    assert (below.parent.ip, below.parent.mac) == ("127.0.2.77", macs[0] or "02:00:7f:00:02:4d")
    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: all(each.state == jobs_pb2.SEATED for each in bench.operator.job("train").workers))
    assert len(tree_of(bench)) == 2
    assert bench.operator.job("train").restarts == 0
    for agent in (root, leaf):
        agent.register(bench)
        assert agent.hears() == "registered"
    leaf.leave()
    assert {member.restarted(DEADLINE_S).switch[0] for member in members} == {"127.0.2.77"}
    assert len(root.switch.jobs[1].workers) == 4
    leaf = leaf_of(bench, mac=macs[1])
    assert {member.admission.switch[0] for member in members} == {"127.0.2.77"}
    bench.operator.restart_job("train")
    assert [member.restarted(DEADLINE_S).switch[0] for member in members] == ["127.0.2.78"] * 3 + [
        "127.0.2.77"
    ]
    leaf.leave()


def test_an_aggregator_is_a_leaf_below_a_switch(bench: Bench) -> None:
    bench.serve().ready()
    leaf = leaf_of(bench, ip="127.0.2.4")
    members = bench.join_all("train", 4)
    assert tree_of(bench) == [("s1", "", [3]), ("rack", "s1", [0, 1, 2])]
    (job,) = bench.switch.jobs.values()
    assert [(child.ip, child.port, child.mac) for child in job.workers][1] == (
        "127.0.2.4",
        4,
        "02:00:00:00:00:04",
    )
    (below,) = leaf.switch.jobs.values()
    assert [child.port for child in below.workers] == [0, 0, 0]
    assert {member.admission.switch[0] for member in members} == {"127.0.2.4", "127.0.2.254"}


@pytest.mark.parametrize(
    ("mac", "rack", "workers"),
    [("02:00:00:00:00:78", RACK, 4), ("", "127.0.2.4/30", 4), ("", RACK, 3)],
    ids=["in the kernel below a process", "for one worker", "for all workers"],
)
def test_an_aggregator_is_no_leaf(bench: Bench, mac: str, rack: str, workers: int) -> None:
    bench.serve().ready()
    root = agent_of(bench)
    leaf = leaf_of(bench, workers=rack, mac=mac)
    assert {member.admission.switch[0] for member in trained(bench, workers, root)} == {"127.0.2.77"}
    assert not leaf.switch.jobs


def test_a_leaf_that_no_switch_is_above_is_no_part_of_a_job(bench: Bench) -> None:
    bench.serve().ready()
    leaf = leaf_of(bench)
    assert {member.admission.switch[0] for member in bench.join_all("train", 4)} == {"127.0.2.254"}
    assert not leaf.switch.jobs


def test_with_leaves_a_job_has_more_workers_than_one_aggregator_takes(bench: Bench) -> None:
    bench.serve().ready()
    root = agent_of(bench)
    with pytest.raises(ServiceError, match="a job has 1 to 32 workers, not 40"):
        bench.operator.create_job("large", 40, on_host=True, if_full="queue")
    leaf = leaf_of(bench)
    bench.operator.create_job("large", 40, on_host=True, if_full="queue")
    root.starts()
    leaf.leave()


@pytest.mark.parametrize("workers", ["127.0.9.1/24", "somewhere"])
def test_the_workers_of_a_leaf_are_checked(bench: Bench, workers: str) -> None:
    bench.serve().ready()
    with pytest.raises(grpc.RpcError, match="aggregator rack: expected an IPv4 network such as 10.0.1.0/24"):
        ScriptedAgent(bench, "rack", workers=workers).hears()


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
        raise JobStoreError("the disk is full")

    bench.serve().ready()
    agent = agent_of(bench)
    bench.operator.create_job("here", 1, on_host=True, if_full="queue")
    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "save_host", full)
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
    with pytest.raises(JoinError, match="8,192 slots requested, but the switch has 4096"):
        bench.join_all("large", 1, slots=8192)
    agent.leave()


def test_a_host_that_goes_away(bench: Bench) -> None:
    bench.serve().ready()
    agent = agent_of(bench)
    (full,) = bench.join_all("full", 1, slots=SLOTS)
    joining = bench.joining("spills", 0, 1, slots=SLOTS)
    agent.starts()
    member = joining.result(DEADLINE_S)
    other = agent_of(bench, "other")
    agent.leave()
    other.starts()
    assert member.restarted(DEADLINE_S).switch == ("127.0.2.77", 28275)
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
    with pytest.raises(
        grpc.RpcError, match="(aggregator: expected a name of 1 to 100 letters|printable characters as name)"
    ):
        ScriptedAgent(bench, name).hears()


def test_what_is_said_of_a_registration(bench: Bench) -> None:
    bench.serve().ready()
    with pytest.raises(grpc.RpcError, match="aggregator agg: .*somewhere"):
        ScriptedAgent(bench, ip="somewhere").hears()
    stub = jobs_pb2_grpc.AggregatorsStub(grpc.insecure_channel(bench.address))  # type: ignore[no-untyped-call]
    with pytest.raises(grpc.RpcError, match="expected an offer as an agent's first message"):
        list(stub.Register(iter([FromAggregator(started=jobs_pb2.Started())])))
