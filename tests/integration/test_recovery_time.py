"""Cost of losses, a slow switch and late workers, in virtual time and packets: bounds that do not depend on the machine."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest, Collective
from host_agent.wire import Admission
from tests.integration.simulated.star import Cables, Star, star_switch

MS = 1_000_000
ROUND_TRIP_NS = MS


def run(
    faults: Cables,
    workers: int = 8,
    slots: int = 32,
    chunks: int = 192,
    collectives: int = 1,
    start_ns: Callable[[int], int] = lambda worker: 0,
    seed: int = 1,
) -> Star:
    """Sum ones; returns the network when all have the right sums."""

    def plan(admission: Admission, sequence: int) -> Collective[Any]:
        return AllReduceRequest(np.ones(chunks * 64, np.float32)).plan(admission, sequence)

    switch = star_switch(64)
    network = Star(switch, faults, seed)
    network.add_job(switch.admit(workers, slots), lambda worker: [plan] * collectives, start_ns=start_ns)
    network.run()
    for host in network.workers:
        for outcome in host.outcomes:
            assert outcome.error is None
            assert outcome.result is not None
            assert (outcome.result == workers).all()
    return network


def counted(network: Star, name: str) -> list[int]:
    return [host.core.counters()[name] for host in network.workers]


@pytest.mark.parametrize(
    ("workers", "drop", "multiple"), [(2, 0.05, 6), (8, 0.01, 4), (8, 0.05, 8), (8, 0.1, 16), (8, 0.2, 40)]
)
def test_losses_cost_a_few_round_trips(workers: int, drop: float, multiple: int) -> None:
    undisturbed = run(Cables(delay_ns=ROUND_TRIP_NS // 2), workers)
    assert counted(undisturbed, "retransmissions") == counted(undisturbed, "probes") == [0] * workers
    lossy = run(Cables(delay_ns=ROUND_TRIP_NS // 2, drop=drop), workers)
    assert lossy.now_ns < multiple * undisturbed.now_ns
    for host in lossy.workers:
        assert host.core.state["srtt_ns"][0] == ROUND_TRIP_NS, "of the way, not of others' recoveries"


@pytest.mark.parametrize("drop", [0.3, 0.45, 0.5])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_where_every_second_packet_is_lost_small_arrays_are_summed_within_seconds(
    workers: int, drop: float
) -> None:
    for seed in range(3):
        lossy = run(Cables(delay_ns=100_000, drop=drop), workers, slots=64, chunks=16, seed=seed)
        assert lossy.now_ns < 5_000 * MS


def test_small_collectives_whose_last_packets_are_lost() -> None:
    lossy = run(Cables(delay_ns=ROUND_TRIP_NS // 2, drop=0.02), chunks=4, collectives=30)
    assert lossy.now_ns < 30 * 16 * MS, "a pause of silence and a few round trips for each"


def test_a_slow_switch_is_not_flooded() -> None:
    """BMv2 takes some 100 us a packet: 8 workers with 64 chunks in flight each keep it busy for 50 ms."""
    service_ns = MS // 10
    network = run(Cables(delay_ns=10_000, service_ns=service_ns), slots=64)
    assert counted(network, "retransmissions") == [0] * 8
    packets = sum(counted(network, "packets_sent"))
    assert sum(counted(network, "probes")) < 0.05 * packets
    assert network.now_ns < 1.1 * packets * service_ns


def test_a_slow_switch_with_losses_is_not_flooded() -> None:
    service_ns = MS // 10
    network = run(Cables(delay_ns=10_000, service_ns=service_ns, drop=0.02), slots=64)
    chunks = sum(counted(network, "chunks"))
    assert sum(counted(network, "packets_sent")) < 2 * chunks
    assert network.now_ns < 3 * chunks * service_ns


def test_a_late_worker_is_waited_for_in_peace() -> None:
    late_ns = 20_000 * MS
    network = run(Cables(delay_ns=ROUND_TRIP_NS // 2), start_ns=lambda worker: late_ns if worker == 3 else 0)
    assert counted(network, "retransmissions") == [0] * 8
    assert max(counted(network, "probes")) < 200
    assert network.now_ns < late_ns + 100 * MS


def test_a_late_worker_and_losses() -> None:
    late_ns = 1_000 * MS
    network = run(
        Cables(delay_ns=ROUND_TRIP_NS // 2, drop=0.05), start_ns=lambda worker: late_ns if worker == 3 else 0
    )
    # A worker that misses the first RESULTs finds out with its next PROBE, an eighth of the wait later at most.
    assert network.now_ns < late_ns * 9 // 8 + 300 * MS
