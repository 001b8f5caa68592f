"""Times on a star against closed forms, exactly; and that the sums are those of the definition."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest, Collective
from host_agent.wire import Admission
from sim.network.network import Network
from sim.network.parameters import HostCost, LinkParameters, SwitchCost
from tests.sim.network.switch_with_jobs import SwitchWithJobs
from topologies import generated

BUILD = Path(__file__).resolve().parents[3] / "p4" / "build"
PS_PER_S = 10**12
HEADERS_BYTES = 66


def star(
    workers: int,
    chunks: int,
    *,
    slots: int = 64,
    lanes: int = 64,
    link: LinkParameters,
    switch_cost: SwitchCost | None = None,
    host_cost: HostCost | None = None,
    seed: int = 1,
) -> Network:
    """Reduce ones; returns the network when all have the right sums."""
    programmed = SwitchWithJobs(BUILD / f"netsum_v1model_{lanes}.json")
    network = Network(seed, lanes=lanes)
    costs = {"s1": switch_cost or SwitchCost()}
    network.add_topology(generated.star(workers), link, programmed={"s1": programmed}, switch_costs=costs)
    hub, *hosts = network.nodes
    values = [np.arange(chunks * lanes, dtype=np.int32) * (worker + 1) for worker in range(workers)]

    def plan(worker: int):  # type: ignore[no-untyped-def]
        def make(admission: Admission, sequence: int) -> Collective[Any]:
            return AllReduceRequest(values[worker], "max").plan(admission, sequence)

        return [make]

    job = programmed.create_job("job", network.endpoints(hosts, hub), slots)
    network.add_job(job, hosts, hub, plan, cost=lambda worker: host_cost or HostCost())
    network.run(limit_ns=10**12)
    for worker in network.workers:
        assert worker.outcomes[0].error is None
        assert np.array_equal(worker.outcomes[0].result, values[-1])  # type: ignore[arg-type]
    return network


def serialization_ps(lanes: int, link: LinkParameters) -> int:
    assert link.rate_bps is not None
    return (HEADERS_BYTES + 4 * lanes + link.framing_bytes) * 8 * PS_PER_S // link.rate_bps


@pytest.mark.parametrize("rate_bps", [10**6, 10**9, 10**10, 10**11, 8 * 10**11])
def test_a_chunk_takes_two_serializations_and_two_latencies(rate_bps: int) -> None:
    link = LinkParameters(rate_bps=rate_bps, latency_ns=1500)
    network = star(4, 1, link=link, switch_cost=SwitchCost(latency_ns=400))
    assert network.now_ps == 2 * serialization_ps(64, link) + 2 * 1_500_000 + 400_000


def test_a_busy_link_neither_gains_nor_loses_time() -> None:
    """A packet at 7 Gbit/s takes no whole number of picoseconds; a thousand take a thousand times as long."""
    link = LinkParameters(rate_bps=7 * 10**9, latency_ns=1000)
    network = star(2, 1000, slots=1024, link=link)
    up = network.link_records[0]
    assert link.rate_bps is not None
    exact = 1000 * (HEADERS_BYTES + 256 + link.framing_bytes) * 8 * PS_PER_S / link.rate_bps
    assert abs(int(up["busy_total_ps"]) - exact) < 1


@pytest.mark.parametrize("lanes", [64, 256])
@pytest.mark.parametrize("workers", [2, 8])
def test_enough_slots_fill_the_link_whatever_the_number_of_workers(workers: int, lanes: int) -> None:
    link = LinkParameters(rate_bps=10**10, latency_ns=1000)
    chunks = 500
    network = star(workers, chunks, slots=64, lanes=lanes, link=link)
    one_ps = serialization_ps(lanes, link)
    # The pipe is filled once; then a result follows the other.
    assert network.now_ps == chunks * one_ps + one_ps + 2 * 1_000_000


def test_few_slots_wait_for_round_trips() -> None:
    link = LinkParameters(rate_bps=10**11, latency_ns=10_000)
    network = star(2, 64, slots=4, link=link)
    one_ps = serialization_ps(64, link)
    # Four chunks at a time; the last of four leaves three serializations after the first, and so do all that follow.
    round_ps = 2 * one_ps + 2 * 10_000_000
    assert network.now_ps == 16 * round_ps + 3 * one_ps


def test_a_host_that_takes_longer_than_the_link_is_the_limit() -> None:
    link = LinkParameters(rate_bps=10**11, latency_ns=1000)
    chunks = 200
    network = star(2, chunks, link=link, host_cost=HostCost(send_ns=1000, receive_ns=500))
    busy_ps = int(network.worker_records[0]["busy_total_ps"])
    assert busy_ps == chunks * 1_500_000
    # Nothing is sent or received without the host having worked for it, but for the first round trip.
    assert 0 <= max(worker.ended_ns[0] for worker in network.workers) * 1000 - busy_ps < 10_000_000


def test_a_switch_that_serves_one_packet_after_the_other_is_the_limit() -> None:
    link = LinkParameters(rate_bps=10**11, latency_ns=1000)
    network = star(4, 100, link=link, switch_cost=SwitchCost(service_ns=5000))
    assert 0 <= network.now_ps - 400 * 5_000_000 < 10_000_000
