"""Jobs on trees of switches: all switches of a job hold its epoch, or none; on switches that only remember."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.errors import JobRefusedError, ServiceError
from controller.jobs import ParentLink
from controller.ledger import JobLedger, Ledgers
from controller.service.network import ControlledNetwork
from controller.service.records import JobRecord
from controller.service.trees import JobTrees
from host_agent.job_api import jobs_pb2
from host_agent.job_api.job_request import JobRequest
from host_agent.joining import JoinError
from host_agent.joining.membership import open_memberships
from netsum_common.targets import Capabilities
from tests.controller.service_harness import DEADLINE_S, Bench, fake_leaf_spine, until

MakeBench = Callable[[ControlledNetwork], Bench]


@pytest.fixture
def make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(network: ControlledNetwork) -> Bench:
        made.append(Bench(tmp_path, monkeypatch, network))
        made[0].serve().ready()
        return made[0]

    try:
        yield make
    finally:
        for member in list(open_memberships):
            member.close()
        for one in made:
            one.close()


def held(bench: Bench) -> dict[str, tuple[int, int]]:
    """The job id and epoch that each switch holds."""
    return {
        name: (job.job_id, job.epoch)
        for name, switch in bench.switches.items()
        for job in switch.jobs.values()
    }


def free(bench: Bench) -> set[int]:
    return {switch.free_slots for switch in bench.operator.switches()}


def test_a_job_over_two_leaves_is_added_by_them_and_a_spine(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((2, 2, 2)))
    members = bench.join_all("job", 4, slots=8)
    epoch = members[0].admission.epoch
    assert held(bench) == dict.fromkeys(("l1", "l2", "p1"), (1, epoch))
    (leaf,), (root,) = bench.switches["l2"].jobs.values(), bench.switches["p1"].jobs.values()
    assert leaf.parent == ParentLink(101, "127.0.3.4", "02:00:00:00:03:04", 1)
    assert (root.parent, [child.port for child in root.workers]) == (None, [1, 2])
    ranks = [
        (member.admission.rank, member.admission.worker_id, member.admission.world_size) for member in members
    ]
    assert ranks == [(0, 0, 4), (1, 1, 4), (2, 0, 4), (3, 1, 4)]
    assert [member.admission.switch[0] for member in members] == ["127.0.3.1"] * 2 + ["127.0.3.2"] * 2
    assert [len(member.admission.path) for member in members] == [2] * 4
    for switch in ("l1", "l2", "p1"):
        bench.switches[switch].count(members[0].admission.job_id, 7)
    view = bench.operator.job("job")
    assert view.switch == "p1"
    shown = [(one.name, one.parent, list(one.ranks)) for one in view.tree]
    assert shown == [("p1", "", []), ("l1", "p1", [0, 1]), ("l2", "p1", [2, 3])]
    assert all(one.counters["contributions"] == 7 for one in view.tree)
    assert [worker.admitted for worker in view.workers] == [100, 101, 100, 101]
    for member in members:
        member.close()
    until(lambda: free(bench) == {4096})
    assert held(bench) == {}


def test_a_job_on_one_leaf_or_a_named_switch_has_one_switch(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((2, 2)))
    bench.join_all("local", 2)
    assert held(bench).keys() == {"l1"}
    assert not bench.job("local").tree  # type: ignore[union-attr]
    named = [
        bench.joining("named", rank, 2, switch="l2", addresses=[f"127.0.2.{rank + 3}"]) for rank in range(2)
    ]
    assert [one.result(DEADLINE_S).admission.switch[0] for one in named] == ["127.0.3.2"] * 2
    assert held(bench).keys() == {"l1", "l2"}


def test_workers_of_a_root_know_their_ranks_and_all_others(make_bench: MakeBench) -> None:
    network = fake_leaf_spine((2, 2), spines=0)
    for name, other in (("l1", "l2"), ("l2", "l1")):
        network.switches[name].neighbours[other] = 101  # type: ignore[index]
    bench = make_bench(network)
    places = ["127.0.2.1", "127.0.2.3", "127.0.2.2", "127.0.2.4"]
    members = [bench.joining("job", rank, 4, addresses=[place]) for rank, place in enumerate(places)]
    admissions = [member.result(DEADLINE_S).admission for member in members]
    assert [(each.worker_id, each.num_workers) for each in admissions] == [(0, 3), (0, 2), (1, 3), (1, 2)]
    assert [(each.rank, each.world_size) for each in admissions] == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_two_spines_share_the_jobs(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((4, 4), spines=2))
    roots = set()
    for number in range(2):
        addresses = [[f"127.0.2.{1 + number}"], [f"127.0.2.{5 + number}"]]
        members = [bench.joining(f"job{number}", rank, 2, addresses=addresses[rank]) for rank in range(2)]
        for member in members:
            member.result(DEADLINE_S)
        roots.add(bench.job(f"job{number}").switch)  # type: ignore[union-attr]
    assert roots == {"p1", "p2"}


def test_a_switch_without_room_leaves_nothing_held_and_a_queued_job_gets_all_of_it_later(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(fake_leaf_spine((2, 2)))
    first = bench.joining("full", 0, 1, slots=4096, addresses=["127.0.2.4"]).result(DEADLINE_S)
    addresses = [["127.0.2.1"], ["127.0.2.3"]]
    refused = [bench.joining("job", rank, 2, slots=8, addresses=addresses[rank]) for rank in range(2)]
    assert "switch l2: " in str(refused[0].exception(DEADLINE_S))
    until(lambda: [switch.free_slots for switch in bench.operator.switches()] == [4096, 0, 4096])
    queued = [
        bench.joining("later", rank, 2, slots=8, if_full="queue", addresses=addresses[rank])
        for rank in range(2)
    ]
    until(lambda: (job := bench.job("later")) is not None and job.state == jobs_pb2.QUEUED)
    assert held(bench).keys() == {"l2"}
    first.close()
    epochs = {one.result(DEADLINE_S).admission.epoch for one in queued}
    assert len(epochs) == 1
    assert held(bench).keys() == {"l1", "l2", "p1"}


@pytest.mark.parametrize("restarted", ["l2", "p1"])
def test_a_switch_that_restarts_gives_the_job_a_new_epoch_on_all(
    make_bench: MakeBench, restarted: str
) -> None:
    bench = make_bench(fake_leaf_spine((1, 1)))
    members = bench.join_all("job", 2)
    before = members[0].admission
    bench.switches[restarted].restart()
    after = [member.restarted(DEADLINE_S) for member in members]
    assert {one.epoch for one in after} == {epoch for _, epoch in held(bench).values()}
    assert after[0].epoch > before.epoch
    assert after[0].token == after[1].token != before.token
    assert held(bench).keys() == {"l1", "l2", "p1"}
    assert bench.job("job").reason == f"switch {restarted} was restarted"  # type: ignore[union-attr]


def test_another_controller_takes_a_tree_over_as_it_is(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((1, 1)))
    members = bench.join_all("job", 2)
    before = held(bench)
    for switch in bench.switches.values():
        switch.log.clear()
    bench.serve(recovery_s=DEADLINE_S).ready()
    until(lambda: (job := bench.job("job")) is not None and job.state == jobs_pb2.RUNNING)
    assert held(bench) == before
    assert not any(switch.log for switch in bench.switches.values())
    assert not any(member.trouble or member.left for member in members)


def test_a_job_waits_for_a_switch_that_does_not_answer(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((1, 1)))
    bench.switches["p1"].reachable = False
    until(lambda: bench.operator.switch("p1").state != jobs_pb2.READY)
    joining = [bench.joining("job", rank, 2) for rank in range(2)]
    until(lambda: (job := bench.job("job")) is not None and "switch p1 is not ready" in job.reason)
    assert held(bench) == {}
    bench.switches["p1"].reachable = True
    for one in joining:
        one.result(DEADLINE_S)
    assert held(bench).keys() == {"l1", "l2", "p1"}


def test_a_dead_spine_moves_its_jobs_to_the_other_when_they_restart(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((1, 1), spines=2))
    members = bench.join_all("job", 2)
    assert held(bench).keys() == {"l1", "l2", "p1"}
    bench.switches["p1"].reachable = False
    until(lambda: bench.operator.switch("p1").state != jobs_pb2.READY)
    bench.operator.restart_job("job")
    epochs = {member.restarted(DEADLINE_S).epoch for member in members}
    assert {epoch for name, (_, epoch) in held(bench).items() if name != "p1"} == epochs
    assert bench.job("job").switch == "p2"  # type: ignore[union-attr]
    bench.switches["p1"].reachable = True
    until(lambda: held(bench).keys() == {"l1", "l2", "p2"})


def test_a_switch_that_refuses_its_part_leaves_the_others_empty(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((1, 1)))
    bench.switches["l2"].refusal = "RESOURCE_EXHAUSTED: the table is full"
    joining = [bench.joining("job", rank, 2) for rank in range(2)]
    for one in joining:
        assert "the table is full" in str(one.exception(DEADLINE_S))
    bench.switches["l2"].refusal = ""
    until(lambda: free(bench) == {4096})
    until(lambda: held(bench) == {})


def test_workers_that_come_back_elsewhere_get_another_tree(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((2, 2, 2)))
    bench.operator.create_job("job", 2)
    first, second = (
        bench.joining("job", rank, 2, addresses=[f"127.0.2.{1 + 2 * rank}"]) for rank in range(2)
    )
    member, gone = first.result(DEADLINE_S), second.result(DEADLINE_S)
    assert held(bench).keys() == {"l1", "l2", "p1"}
    gone.close()
    until(lambda: member.left)
    bench.operator.restart_job("job")
    until(lambda: held(bench) == {})
    assert free(bench) == {4096}
    again = bench.joining("job", 1, 2, addresses=["127.0.2.5"]).result(DEADLINE_S)
    assert member.restarted(DEADLINE_S).epoch == again.admission.epoch
    assert held(bench).keys() == {"l1", "l3", "p1"}


def test_what_cannot_be_a_tree_gets_one_sentence(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((1, 1), spines=0))
    with pytest.raises(JoinError, match="a job has 1 to 64 workers here, 32 at each switch, not 2000"):
        bench.joining("job", 0, 2000).result(DEADLINE_S)
    joining = [bench.joining("job", rank, 2) for rank in range(2)]
    for one in joining:
        assert "no switch can reach all of l1, l2: check the links" in str(one.exception(DEADLINE_S))
    assert held(bench) == {}


def test_more_children_than_a_switch_can_have_get_one_sentence(make_bench: MakeBench) -> None:
    bench = make_bench(fake_leaf_spine((33, 1)))
    joining = [bench.joining("job", rank, 34) for rank in range(34)]
    for one in joining:
        assert "switch l1 would have 33 children (33 workers, 0 switches)" in str(one.exception(DEADLINE_S))
    assert free(bench) == {4096}


@pytest.mark.parametrize(
    ("slots", "reason"),
    [(8192, "8,192 slots requested, but the switch has 4096"), (48, "a job's slots must be a power of two")],
)
def test_slots_that_no_switch_has_are_refused_before_workers_come(
    make_bench: MakeBench, slots: int, reason: str
) -> None:
    bench = make_bench(fake_leaf_spine((2, 2)))
    for if_full in ("refuse", "queue"):
        with pytest.raises(ServiceError, match=reason):
            bench.operator.create_job("job", 2, slots=slots, if_full=if_full)
    with pytest.raises(JoinError, match=reason):
        bench.joining("job", 0, 2, slots=slots).result(DEADLINE_S)
    assert bench.operator.jobs() == []


def test_a_reservation_that_one_switch_refuses_leaves_nothing_on_the_others() -> None:
    network = fake_leaf_spine((2, 2))
    first, second = list(network.switches)[:2]
    ledgers = Ledgers({first: JobLedger(Capabilities()), second: JobLedger(Capabilities(slots=16))})
    record = JobRecord(
        JobRequest("job", 2), switch=first, job_id=3, slot_base=64, slot_count=32, below={second: 64}
    )
    with pytest.raises(JobRefusedError):
        JobTrees(network, ledgers, Capabilities()).restore(record)
    assert [ledger.free_slots for ledger in ledgers.values()] == [4096, 16]
