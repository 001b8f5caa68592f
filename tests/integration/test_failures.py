"""Runs that cannot succeed: within its deadline, every survivor gets an error that names the missing party."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest, BarrierRequest, BroadcastRequest, Collective
from host_agent.errors import (
    DuplicateWorkerError,
    MismatchError,
    MissingWorkersError,
    ResultsLostError,
    SwitchSilentError,
)
from host_agent.wire import Admission
from host_agent.wire.constants import FLAG_MISMATCH, KIND_CONTRIBUTE, KIND_STATUS
from sim.network.worker import Plan, Worker
from tests.integration.simulated.star import Cables, Star, StarSwitch, star_switch

TIMEOUT_NS = 2_000_000_000
LOSSY = Cables(drop=0.1, duplicate=0.1, delay_ns=10_000, jitter_ns=30_000)


@pytest.fixture
def switch() -> StarSwitch:
    return star_switch(64)


def total(size: int, op: str = "sum", dtype: str = "float32") -> Plan:
    def plan(admission: Admission, sequence: int) -> Collective[Any]:
        return AllReduceRequest(np.ones(size, dtype), op).plan(admission, sequence)  # type: ignore[arg-type]

    return plan


def start(
    switch: StarSwitch,
    plans: Callable[[int], list[Plan]],
    workers: int = 4,
    faults: Cables = LOSSY,
    seed: int = 0,
) -> Star:
    network = Star(switch, faults, seed)
    network.add_job(switch.admit(workers, 4), plans, timeout_ns=TIMEOUT_NS)
    return network


def errors(hosts: list[Worker]) -> list[Exception | None]:
    return [host.outcomes[-1].error for host in hosts]


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_worker_is_named_by_all_others(switch: StarSwitch, seed: int) -> None:
    network = start(switch, lambda worker: [total(10_000)], seed=seed)
    network.run(until=lambda: network.workers[2].core.counters()["chunks"] >= 50)
    killed_ns = network.now_ns
    network.workers[2].alive = False
    network.run()
    for host in network.workers:
        if host.alive:
            error = host.outcomes[-1].error
            assert isinstance(error, MissingWorkersError)
            assert error.missing == (2,)
            assert "worker 2 did not contribute" in str(error)
    # Results of packets under way may still have come; then the deadline runs.
    assert network.now_ns - killed_ns < 1.5 * TIMEOUT_NS


def test_several_that_never_start_are_named(switch: StarSwitch) -> None:
    network = start(switch, lambda worker: [BarrierRequest().plan])
    for worker in (0, 3):
        network.workers[worker].alive = False
    network.run()
    for error in errors([network.workers[1], network.workers[2]]):
        assert isinstance(error, MissingWorkersError)
        assert error.missing == (0, 3)
        assert "workers 0, 3 did not contribute" in str(error)


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_switch_does_not_answer(switch: StarSwitch, seed: int) -> None:
    network = start(switch, lambda worker: [total(10_000), total(5)], seed=seed)
    network.run(until=lambda: network.workers[2].core.counters()["chunks"] >= 50)
    network.kill_switch()
    network.run()
    for host in network.workers:
        (outcome,) = host.outcomes
        assert isinstance(outcome.error, SwitchSilentError)
        assert "does not answer" in str(outcome.error)


def test_what_was_said_before_the_switch_died_is_not_taken_for_an_answer(switch: StarSwitch) -> None:
    network = start(switch, lambda worker: [total(100)], workers=2)
    network.workers[1].alive = False
    network.run(until=lambda: network.workers[0].core.state["status_seen"][0] == 1)
    network.kill_switch()
    network.run()
    assert isinstance(network.workers[0].outcomes[0].error, SwitchSilentError)


MISMATCHES = {
    "size": (total(100), total(101)),
    "chunks": (total(100), total(1000)),
    "op": (total(100), total(100, "mean")),
    "switch op": (total(100), total(100, "max")),
    "dtype": (total(100), total(100, "sum", "int32")),
    "kind": (total(100), BarrierRequest().plan),
    "on_overflow": (
        AllReduceRequest(np.ones(5)).plan,
        AllReduceRequest(np.ones(5), "sum", None, "saturate").plan,
    ),
    "a type's unit": (
        BroadcastRequest(np.ones(5, "M8[s]"), 0).plan,
        BroadcastRequest(np.ones(5, "M8[ns]"), 0).plan,
    ),
    "a type's fields": (
        BroadcastRequest(np.ones(5, [("x", "f4")]), 0).plan,
        BroadcastRequest(np.ones(5, [("x", "i4")]), 0).plan,
    ),
    "long items": (
        BroadcastRequest(np.zeros(44, "S300"), 0).plan,
        BroadcastRequest(np.zeros(300, "S44"), 0).plan,
    ),
    "counts that CRC-16 does not distinguish": (total(70_000, "max"), total(70_000 ^ 0x11021, "max")),
    "root": (
        BroadcastRequest(np.ones(5), 0).plan,
        BroadcastRequest(np.ones(5), 1).plan,
    ),
}


@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize("name", MISMATCHES)
def test_workers_that_disagree_all_get_an_error(switch: StarSwitch, name: str, odd: int) -> None:
    agreed, other = MISMATCHES[name]
    common: list[Plan] = [total(300)]
    network = start(
        switch,
        lambda worker: [*common, other if worker == odd else agreed],
        faults=Cables(delay_ns=10_000, jitter_ns=30_000),
    )
    network.run()
    for host in network.workers:
        assert host.outcomes[0].error is None
        assert isinstance(host.outcomes[1].error, MismatchError), host.outcomes[1].error
    assert network.now_ns < TIMEOUT_NS, "at once, not at the deadline"


@pytest.mark.parametrize("seed", range(20))
def test_workers_that_disagree_all_get_an_error_on_a_lossy_network(switch: StarSwitch, seed: int) -> None:
    network = start(switch, lambda worker: [total(200 + (worker == seed % 4))], seed=seed)
    network.run()
    # The slot stays disputed: a worker that lost the MISMATCH receives it again when it probes.
    assert {type(error) for error in errors(network.workers)} == {MismatchError}
    assert network.now_ns < TIMEOUT_NS / 2


@pytest.mark.parametrize("odd", [0, 1])
def test_who_was_deaf_when_the_others_fell_out_learns_of_it(switch: StarSwitch, odd: int) -> None:
    network = start(switch, lambda worker: [total(200 + (worker == odd))], workers=2, faults=Cables())
    deaf = network.workers[0]
    deaf.deaf = True
    network.run(until=lambda: network.workers[1].done)
    network.workers[1].alive = False
    deaf.deaf = False
    network.run()
    assert isinstance(deaf.outcomes[0].error, MismatchError)


def test_a_mismatch_that_a_probe_found_is_reported_again(switch: StarSwitch) -> None:
    network = start(switch, lambda worker: [total(5 + worker)], workers=2, faults=Cables())
    network.drop(1, up=True, kind=KIND_CONTRIBUTE)
    network.drop(2, up=False, kind=KIND_STATUS, flags=FLAG_MISMATCH)
    network.run()
    assert network.dropped == 2
    assert {type(error) for error in errors(network.workers)} == {MismatchError}
    assert network.now_ns < TIMEOUT_NS / 2


@pytest.mark.parametrize("drop", [0.35, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_a_dead_worker_is_named_where_many_packets_are_lost(
    switch: StarSwitch, seed: int, drop: float
) -> None:
    network = start(switch, lambda worker: [total(300)], faults=Cables(drop=drop, delay_ns=10_000), seed=seed)
    network.workers[2].alive = False
    network.run()
    for host in network.workers:
        if host.alive:
            assert isinstance(host.outcomes[0].error, MissingWorkersError), host.outcomes[0].error
            assert host.outcomes[0].error.missing == (2,)


def test_a_worker_that_skips_a_collective_is_found_out(switch: StarSwitch) -> None:
    network = start(
        switch, lambda worker: [total(64)] * (2 if worker else 1) + [BarrierRequest().plan], faults=Cables()
    )
    network.run()
    assert all(isinstance(error, MismatchError) for error in errors(network.workers))


def test_an_admission_that_was_used_before_is_recognised(switch: StarSwitch) -> None:
    admissions = switch.admit(2, 4)
    network = Star(switch, LOSSY, 1)
    hosts = network.add_job(admissions, lambda worker: [total(5000)] * 2, timeout_ns=TIMEOUT_NS)
    network.run(until=lambda: len(hosts[0].outcomes) == 1)
    hosts[0].alive = False
    (again,) = network.add_job(admissions[:1], lambda worker: [total(5000)] * 2, timeout_ns=TIMEOUT_NS)
    network.run()
    assert isinstance(again.outcomes[0].error, DuplicateWorkerError)
    assert isinstance(hosts[1].outcomes[1].error, MissingWorkersError)


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        (Cables(mtu_down=200), ResultsLostError),
        (Cables(mtu_up=200), SwitchSilentError),
    ],
)
def test_a_link_that_loses_long_packets_is_suspected(
    switch: StarSwitch, faults: Cables, kind: type[Exception]
) -> None:
    network = start(switch, lambda worker: [total(500)], faults=faults)
    network.run()
    for error in errors(network.workers):
        assert isinstance(error, kind)
        assert "MTU" in str(error)


def test_a_failure_ends_what_was_submitted_behind_it(switch: StarSwitch) -> None:
    network = Star(switch, Cables(), 0)
    hosts = network.add_job(
        switch.admit(2, 4), lambda worker: [total(100)] * 4, timeout_ns=TIMEOUT_NS, at_once=4
    )
    hosts[1].alive = False
    network.run()
    assert len({id(outcome.error) for outcome in hosts[0].outcomes}) == 1
    assert len(hosts[0].outcomes) == 4
