"""Trees of switches on a network that drops, duplicates, delays and reorders on every link.

Worker cores, the P4 program on every switch, and the controller's placement and entries are the real ones. S1 and S2
bit for bit, against sums computed apart; every run ends; who is missing is named at every level. Every fourth schedule,
or all of them with NETSUM_LONG_TESTS=1. With 8 lanes the switches decide as Tofino's do (tests/dataplane/tna_logic).
"""

import os
import random

import numpy as np
import pytest

from host_agent.errors import MissingWorkersError, SwitchSilentError
from tests.integration.simulated.star import Cables
from tests.integration.simulated.tree import Shape, TreeNetwork, fabric
from tests.integration.simulated.workload import random_task
from tests.integration.test_terrible_network import ROUND_TRIP_NS, check, terrible

STEP = 1 if "NETSUM_LONG_TESTS" in os.environ else 4
SHAPES: list[tuple[Shape, int]] = [
    ((1, 1), 60),
    ((2, 2), 60),
    ((1, 3), 40),
    ((2, (1, 2)), 30),
    ((((1, 2), (1,)), ((2,), (1, 1))), 15),
    ((2, 2, 2, 2), 20),
]


def run_schedule(shape: Shape, lanes: int, seed: int, collectives: int = 3) -> TreeNetwork:
    chance = random.Random(seed)
    rng = np.random.default_rng(seed)
    tree = fabric(shape, lanes)
    world_size = len(tree.hosts)
    tasks = [random_task(rng, world_size, lanes) for _ in range(collectives)]
    network = TreeNetwork(tree, terrible(chance, 8), seed)
    job = network.start_job(chance.choice([1, 2, 4, 8]))
    workers = network.add_workers(
        job.admissions,
        lambda rank: [task.plan(rank) for task in tasks],
        at_once=chance.choice([1, 2]),
        first_chunk=chance.choice([0, 2**32 - 5]),
        start_ns=lambda rank: chance.randrange(10 * ROUND_TRIP_NS),
    )
    network.run()
    network.drain()
    check(tasks, workers)
    (chunks,) = {worker.core.counters()["chunks"] for worker in workers}
    counted = network.tree.counters("results", "results_taken")
    assert counted["results"] == chunks, "the root completes each chunk once"
    below = len(job.tree.branches) - 1
    assert counted["results_taken"] == below * chunks, "every other switch takes each RESULT once"
    assert not any(worker.core.counters()["malformed"] for worker in workers)
    return network


@pytest.mark.parametrize("lanes", [8, 64, 256])
@pytest.mark.parametrize(("shape", "schedules"), SHAPES, ids=str)
def test_every_schedule_ends_with_the_right_bits_everywhere(shape: Shape, schedules: int, lanes: int) -> None:
    faulty = 0
    for seed in range(0, schedules, STEP):
        try:
            network = run_schedule(shape, lanes, seed)
        except AssertionError as error:
            raise AssertionError(f"shape={shape} lanes={lanes} seed={seed}: {error}") from error
        faulty += any(worker.core.counters()["retransmissions"] for worker in network.workers)
    assert faulty > schedules / STEP / 2, "the network was not terrible"


def test_a_run_repeats_exactly() -> None:
    runs = [run_schedule((2, 2), 64, 7).network for _ in range(2)]
    assert runs[0].events_run == runs[1].events_run
    assert runs[0].now_ns == runs[1].now_ns


def test_an_uplink_carries_one_workers_traffic() -> None:
    rng = np.random.default_rng(5)
    tasks = [random_task(rng, 8, 64) for _ in range(4)]
    network = TreeNetwork(fabric((4, 4), 64), Cables(), 1)
    workers = network.add_workers(
        network.start_job(8).admissions, lambda rank: [task.plan(rank) for task in tasks]
    )
    network.run()
    check(tasks, workers)
    assert not any(worker.core.counters()["retransmissions"] for worker in workers)
    (chunks,) = {worker.core.counters()["chunks"] for worker in workers}
    assert {packets for packets, _ in network.sent_up().values()} == {chunks}


def failing(
    shape: Shape, absent: frozenset[int] = frozenset(), dead: frozenset[str] = frozenset()
) -> TreeNetwork:
    tree = fabric(shape, 64)
    task = random_task(np.random.default_rng(3), len(tree.hosts), 64)
    network = TreeNetwork(tree, Cables(drop=0.01), 1)
    for name in dead:
        network.kill_switch(name)
    workers = network.add_workers(
        network.start_job(2).admissions, lambda rank: [task.plan(rank)], timeout_ns=10**9
    )
    for rank in absent:
        workers[rank].alive = False
    network.run()
    return network


def test_a_missing_worker_is_named_in_its_own_rack_and_its_rack_in_the_others() -> None:
    network = failing((2, 2), absent=frozenset({3}))
    (own,) = (outcome.error for outcome in network.workers[2].outcomes)
    assert isinstance(own, MissingWorkersError)
    assert own.missing == (3,)
    for worker in network.workers[:2]:
        (error,) = (outcome.error for outcome in worker.outcomes)
        assert isinstance(error, MissingWorkersError)
        assert error.missing == (2, 3)
        assert "at least one of workers 2, 3" in str(error)


def test_a_dead_root_is_named_as_what_does_not_answer() -> None:
    network = failing((2, 2), dead=frozenset({"s0"}))
    for worker in network.workers:
        (error,) = (outcome.error for outcome in worker.outcomes)
        assert isinstance(error, SwitchSilentError)
        assert "or one above it" in str(error)


def test_a_dead_leaf_costs_its_rack_the_switch_and_the_others_its_workers() -> None:
    network = failing((2, 2), dead=frozenset({"s1"}))
    for worker in network.workers[:2]:
        (error,) = (outcome.error for outcome in worker.outcomes)
        assert isinstance(error, SwitchSilentError)
    for worker in network.workers[2:]:
        (error,) = (outcome.error for outcome in worker.outcomes)
        assert isinstance(error, MissingWorkersError)
        assert error.missing == (0, 1)


@pytest.mark.parametrize("restarted", ["s0", "s1"])
def test_a_switch_that_restarts_costs_an_epoch_and_no_wrong_bit(restarted: str) -> None:
    """S4: a switch loses its partial sums and the job begins anew while packets of its last epoch are under way."""
    tree = fabric((2, 2), 64)
    cables = Cables(drop=0.05, duplicate=0.3, straggle=0.5, straggle_ns=3_000_000)
    for seed in range(0, 24, STEP):
        rng = np.random.default_rng(seed)
        tasks = [random_task(rng, 4, 64) for _ in range(4)]
        plans = [[task.plan(rank) for task in tasks] for rank in range(4)]
        network = TreeNetwork(tree, cables, seed)
        job = network.start_job(8)
        old = network.add_workers(job.admissions, plans.__getitem__)
        moment_ns = int(rng.integers(50_000, 1_000_000))
        network.run(until=lambda network=network, moment_ns=moment_ns: network.network.now_ns > moment_ns)  # type: ignore[misc]
        for worker in old:
            worker.alive = False
        network.restart_switch(restarted)
        workers = network.add_workers(network.restart_job(job).admissions, plans.__getitem__)
        network.run()
        network.drain()
        check(tasks, workers)
        assert network.tree.counters("results")["results"] >= workers[0].core.counters()["chunks"]
