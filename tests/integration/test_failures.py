"""Runs that cannot end well: every survivor gets an error, within its deadline, that says who or what is missing."""

from collections.abc import Callable

import numpy as np
import pytest

from host_agent import (
    Admission,
    DuplicateWorkerError,
    MismatchError,
    MissingWorkersError,
    ResultsLostError,
    SwitchSilentError,
)
from host_agent.collectives import Collective, plan_allreduce, plan_barrier, plan_broadcast
from host_agent.wire import Header
from host_agent.wire.constants import FLAG_MISMATCH
from tests.integration.virtual_network.network import Faults, Host, Network, Plan
from tests.integration.virtual_network.switch import VirtualSwitch, virtual_switch

TIMEOUT_NS = 2_000_000_000
LOSSY = Faults(drop=0.1, duplicate=0.1, delay_ns=10_000, jitter_ns=30_000)


@pytest.fixture
def switch() -> VirtualSwitch:
    return virtual_switch(64)


def total(size: int, op: str = "sum", dtype: str = "float32") -> Plan:
    def plan(admission: Admission, sequence: int) -> Collective:
        return plan_allreduce(admission, sequence, np.ones(size, dtype), op, None, "raise")  # type: ignore[arg-type]

    return plan


def start(
    switch: VirtualSwitch,
    plans: Callable[[int], list[Plan]],
    workers: int = 4,
    faults: Faults = LOSSY,
    seed: int = 0,
) -> Network:
    network = Network(switch, faults, seed)
    network.add_job(switch.start_job(workers, 4), plans, timeout_ns=TIMEOUT_NS)
    return network


def errors(hosts: list[Host]) -> list[Exception | None]:
    return [host.outcomes[-1].error for host in hosts]


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_worker_is_named_by_all_others(switch: VirtualSwitch, seed: int) -> None:
    network = start(switch, lambda worker: [total(10_000)], seed=seed)
    network.run(until=lambda: network.hosts[2].core.counters()["chunks"] >= 50)
    killed_ns = network.now_ns
    network.hosts[2].alive = False
    network.run()
    for host in network.hosts:
        if host.alive:
            error = host.outcomes[-1].error
            assert isinstance(error, MissingWorkersError)
            assert error.missing == (2,)
            assert "worker 2 did not contribute" in str(error)
    # Results may still have come for what was on its way; then the deadline runs.
    assert network.now_ns - killed_ns < 1.5 * TIMEOUT_NS


def test_several_that_never_start_are_named(switch: VirtualSwitch) -> None:
    network = start(switch, lambda worker: [plan_barrier])
    for worker in (0, 3):
        network.hosts[worker].alive = False
    network.run()
    for error in errors([network.hosts[1], network.hosts[2]]):
        assert isinstance(error, MissingWorkersError)
        assert error.missing == (0, 3)
        assert "workers 0, 3 did not contribute" in str(error)


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_switch_does_not_answer(switch: VirtualSwitch, seed: int) -> None:
    network = start(switch, lambda worker: [total(10_000), total(5)], seed=seed)
    network.run(until=lambda: network.hosts[2].core.counters()["chunks"] >= 50)
    network.switch_alive = False
    network.run()
    for host in network.hosts:
        (outcome,) = host.outcomes
        assert isinstance(outcome.error, SwitchSilentError)
        assert "does not answer" in str(outcome.error)


def test_what_was_said_before_the_switch_died_is_not_taken_for_an_answer(switch: VirtualSwitch) -> None:
    network = start(switch, lambda worker: [total(100)], workers=2)
    network.hosts[1].alive = False
    network.run(until=lambda: network.hosts[0].core.state["status_seen"][0] == 1)
    network.switch_alive = False
    network.run()
    assert isinstance(network.hosts[0].outcomes[0].error, SwitchSilentError)


MISMATCHES = {
    "size": (total(100), total(101)),
    "chunks": (total(100), total(1000)),
    "op": (total(100), total(100, "mean")),
    "switch op": (total(100), total(100, "max")),
    "dtype": (total(100), total(100, "sum", "int32")),
    "kind": (total(100), plan_barrier),
    "on_overflow": (
        lambda admission, sequence: plan_allreduce(admission, sequence, np.ones(5), "sum", None, "raise"),
        lambda admission, sequence: plan_allreduce(admission, sequence, np.ones(5), "sum", None, "saturate"),
    ),
    "a type's unit": (
        lambda admission, sequence: plan_broadcast(admission, sequence, np.ones(5, "M8[s]"), 0, None),
        lambda admission, sequence: plan_broadcast(admission, sequence, np.ones(5, "M8[ns]"), 0, None),
    ),
    "a type's fields": (
        lambda admission, sequence: plan_broadcast(admission, sequence, np.ones(5, [("x", "f4")]), 0, None),
        lambda admission, sequence: plan_broadcast(admission, sequence, np.ones(5, [("x", "i4")]), 0, None),
    ),
    "long items": (
        lambda admission, sequence: plan_broadcast(admission, sequence, np.zeros(44, "S300"), 0, None),
        lambda admission, sequence: plan_broadcast(admission, sequence, np.zeros(300, "S44"), 0, None),
    ),
    "counts that CRC-16 does not tell apart": (total(70_000, "max"), total(70_000 ^ 0x11021, "max")),
    "root": (
        lambda admission, sequence: plan_broadcast(admission, sequence, np.ones(5), 0, None),
        lambda admission, sequence: plan_broadcast(admission, sequence, np.ones(5), 1, None),
    ),
}


@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize("name", MISMATCHES)
def test_workers_that_disagree_all_get_an_error(switch: VirtualSwitch, name: str, odd: int) -> None:
    agreed, other = MISMATCHES[name]
    common: list[Plan] = [total(300)]
    network = start(
        switch,
        lambda worker: [*common, other if worker == odd else agreed],
        faults=Faults(delay_ns=10_000, jitter_ns=30_000),
    )
    network.run()
    for host in network.hosts:
        assert host.outcomes[0].error is None
        assert isinstance(host.outcomes[1].error, MismatchError), host.outcomes[1].error
    assert network.now_ns < TIMEOUT_NS, "at once, not at the deadline"


@pytest.mark.parametrize("seed", range(20))
def test_workers_that_disagree_all_get_an_error_on_a_lossy_network(switch: VirtualSwitch, seed: int) -> None:
    network = start(switch, lambda worker: [total(200 + (worker == seed % 4))], seed=seed)
    network.run()
    # The slot stays disputed: who misses the MISMATCH is told again when it asks.
    assert {type(error) for error in errors(network.hosts)} == {MismatchError}
    assert network.now_ns < TIMEOUT_NS / 2


@pytest.mark.parametrize("odd", [0, 1])
def test_who_was_deaf_when_the_others_fell_out_learns_of_it(switch: VirtualSwitch, odd: int) -> None:
    network = start(switch, lambda worker: [total(200 + (worker == odd))], workers=2, faults=Faults())
    deaf = network.hosts[0]
    hear = deaf.receive
    deaf.receive = lambda datagram: None  # type: ignore[method-assign]
    network.run(until=lambda: network.hosts[1].done)
    network.hosts[1].alive = False
    deaf.receive = hear  # type: ignore[method-assign]
    network.run()
    assert isinstance(deaf.outcomes[0].error, MismatchError)


def test_a_mismatch_that_a_probe_found_is_told_again(switch: VirtualSwitch) -> None:
    network = start(switch, lambda worker: [total(5 + worker)], workers=2, faults=Faults())
    asking, deaf = network.hosts
    to_switch, hear = network.to_switch, deaf.receive
    lost: list[bytes] = []

    def lose_the_first_contribution(port: int, datagram: bytes) -> None:
        if port == asking.port and not lost:
            lost.append(datagram)
        else:
            to_switch(port, datagram)

    def lose_the_first_mismatch(datagram: bytes) -> None:
        if len(lost) == 1 and Header.from_bytes(datagram).flags & FLAG_MISMATCH:
            lost.append(datagram)
        else:
            hear(datagram)

    network.to_switch = lose_the_first_contribution  # type: ignore[method-assign]
    deaf.receive = lose_the_first_mismatch  # type: ignore[method-assign]
    network.run()
    assert len(lost) == 2
    assert {type(error) for error in errors(network.hosts)} == {MismatchError}
    assert network.now_ns < TIMEOUT_NS / 2


@pytest.mark.parametrize("drop", [0.35, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_a_dead_worker_is_named_where_many_packets_are_lost(
    switch: VirtualSwitch, seed: int, drop: float
) -> None:
    network = start(switch, lambda worker: [total(300)], faults=Faults(drop=drop, delay_ns=10_000), seed=seed)
    network.hosts[2].alive = False
    network.run()
    for host in network.hosts:
        if host.alive:
            assert isinstance(host.outcomes[0].error, MissingWorkersError), host.outcomes[0].error
            assert host.outcomes[0].error.missing == (2,)


def test_a_worker_that_skips_a_collective_is_found_out(switch: VirtualSwitch) -> None:
    network = start(
        switch, lambda worker: [total(64)] * (2 if worker else 1) + [plan_barrier], faults=Faults()
    )
    network.run()
    assert all(isinstance(error, MismatchError) for error in errors(network.hosts))


def test_an_admission_that_was_used_before_is_recognised(switch: VirtualSwitch) -> None:
    admissions = switch.start_job(2, 4)
    network = Network(switch, LOSSY, 1)
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
        (Faults(mtu_down=200), ResultsLostError),
        (Faults(mtu_up=200), SwitchSilentError),
    ],
)
def test_a_link_that_loses_long_packets_is_suspected(
    switch: VirtualSwitch, faults: Faults, kind: type[Exception]
) -> None:
    network = start(switch, lambda worker: [total(500)], faults=faults)
    network.run()
    for error in errors(network.hosts):
        assert isinstance(error, kind)
        assert "MTU" in str(error)


def test_a_failure_ends_what_was_submitted_behind_it(switch: VirtualSwitch) -> None:
    network = Network(switch, Faults(), 0)
    hosts = network.add_job(
        switch.start_job(2, 4), lambda worker: [total(100)] * 4, timeout_ns=TIMEOUT_NS, at_once=4
    )
    hosts[1].alive = False
    network.run()
    assert len({id(outcome.error) for outcome in hosts[0].outcomes}) == 1
    assert len(hosts[0].outcomes) == 4
