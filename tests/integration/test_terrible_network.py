"""Real worker cores and the real P4 program on a network that drops, duplicates, delays and reorders.

S1 and S2, bit for bit, against sums computed apart (`simulated.reference`); and every run ends. Every third schedule,
or all of them with NETSUM_LONG_TESTS=1.
"""

import os
import random

import numpy as np
import pytest

from sim.network.worker import Worker
from tests.integration.simulated.star import Cables, Star, StarSwitch, star_switch
from tests.integration.simulated.workload import CollectiveTask, random_task

ROUND_TRIP_NS = 40_000
STEP = 1 if "NETSUM_LONG_TESTS" in os.environ else 3


def terrible(chance: random.Random, workers: int) -> Cables:
    """Cables from hardly any to terrible; with many workers a round needs many packets, so each is lost less often."""
    worst = 0.35 if workers <= 4 else 0.08
    return Cables(
        drop=chance.choice([0.0, 0.01, 0.1, worst]),
        duplicate=chance.choice([0.0, 0.05, 0.3]),
        delay_ns=ROUND_TRIP_NS // 4,
        jitter_ns=chance.choice([0, ROUND_TRIP_NS // 10, 2 * ROUND_TRIP_NS]),
        straggle=chance.choice([0.0, 0.02, 0.1]),
        # Long enough to come after its slot has been used several times more.
        straggle_ns=chance.choice([10, 300]) * ROUND_TRIP_NS,
    )


def run_schedule(switch: StarSwitch, workers: int, seed: int, collectives: int = 5) -> Star:
    chance = random.Random(seed)
    rng = np.random.default_rng(seed)
    slots = chance.choice([1, 2, 4, 8]) if workers <= 4 else 4
    tasks = [random_task(rng, workers, switch.capabilities.lanes) for _ in range(collectives)]
    network = Star(switch, terrible(chance, workers), seed)
    admissions = switch.admit(workers, slots)
    completed = switch.count("results")
    hosts = network.add_job(
        admissions,
        lambda worker: [task.plan(worker) for task in tasks],
        at_once=chance.choice([1, 2, 5]),
        first_chunk=chance.choice([0, 1, 2**32 - 5]),
        start_ns=lambda worker: chance.randrange(10 * ROUND_TRIP_NS),
    )
    network.run()
    network.drain()
    check(tasks, hosts)
    chunks = {host.core.counters()["chunks"] for host in hosts}
    assert chunks == {switch.count("results") - completed}, "each chunk is completed once"
    return network


def check(tasks: list[CollectiveTask], hosts: list[Worker]) -> None:
    for host in hosts:
        assert len(host.outcomes) == len(tasks)
        for task, outcome in zip(tasks, host.outcomes, strict=True):
            task.check(outcome, host.admission.rank)


@pytest.mark.parametrize(("workers", "schedules"), [(1, 300), (2, 900), (4, 800), (32, 40)])
def test_every_schedule_ends_with_the_right_bits_everywhere(workers: int, schedules: int) -> None:
    faulty = 0
    for seed in range(0, schedules, STEP):
        try:
            network = run_schedule(star_switch(64), workers, seed)
        except AssertionError as error:
            raise AssertionError(f"workers={workers} seed={seed}: {error}") from error
        faulty += any(host.core.counters()["retransmissions"] for host in network.workers)
    assert faulty > schedules / STEP / 2, "the network was not terrible"


@pytest.mark.parametrize(("workers", "schedules"), [(2, 100), (4, 100)])
def test_with_256_lanes_where_results_do_not_fit_into_contributions_without_lanes(
    workers: int, schedules: int
) -> None:
    for seed in range(0, schedules, STEP):
        run_schedule(star_switch(256, grows=False), workers, seed + 10_000, collectives=3)


def test_a_run_repeats_exactly() -> None:
    runs = [run_schedule(star_switch(64), 4, 77) for _ in range(2)]
    assert runs[0].network.events_run == runs[1].network.events_run
    assert runs[0].now_ns == runs[1].now_ns


@pytest.mark.parametrize("seed", range(20))
def test_two_jobs_share_a_switch(seed: int) -> None:
    switch = star_switch(64)
    rng = np.random.default_rng(seed)
    network = Star(switch, terrible(random.Random(seed), 4), seed)
    jobs = []
    for number, workers in ((1, 2), (2, 3)):
        tasks = [random_task(rng, workers, 64) for _ in range(4)]
        port = 10 * number
        admissions = switch.admit(workers, 4, name=f"job {number}", first_port=port, place=1)
        plans = [[task.plan(worker) for task in tasks] for worker in range(workers)]
        jobs.append((tasks, network.add_job(admissions, plans.__getitem__, first_port=port, place=1)))
    network.run()
    for tasks, hosts in jobs:
        check(tasks, hosts)


def test_packets_of_an_earlier_epoch_do_no_harm() -> None:
    switch = star_switch(64)
    faults = Cables(drop=0.05, duplicate=0.3, delay_ns=10_000, straggle=0.5, straggle_ns=3_000_000)

    before = switch.count("not_admitted")
    for seed in range(30):
        rng = np.random.default_rng(seed)
        network = Star(switch, faults, seed)
        tasks = [random_task(rng, 3, 64) for _ in range(6)]
        plans = [[task.plan(worker) for task in tasks] for worker in range(3)]
        network.add_job(switch.admit(3, 8), plans.__getitem__)
        network.run(until=lambda network=network: network.now_ns > 1_000_000)  # type: ignore[misc]
        for host in network.workers:
            host.alive = False
        # The restarted job begins on the same slots while packets of the old one are still under way.
        again = network.add_job(switch.admit(3, 8), plans.__getitem__)
        network.run()
        check(tasks, again)
    assert switch.count("not_admitted") > before + 30
