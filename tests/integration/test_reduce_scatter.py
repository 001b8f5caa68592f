"""Reduce-scatter and all-gather by real worker cores and the real P4 program: bytes that each worker sends and receives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import (
    AllGatherRequest,
    AllReduceRequest,
    BroadcastRequest,
    Collective,
    Op,
    ReduceScatterRequest,
)
from host_agent.errors import ArrayError, MisuseError
from host_agent.wire import Admission
from sim.network.worker import Worker
from tests.integration.simulated.star import Cables, Star, StarSwitch, star_switch
from tests.integration.simulated.tree import Fabric, Shape, TreeNetwork

HEADER, SLOTS, RANKS = 24, 4, 4
Plan = Callable[[Admission, int], Collective[Any]]


def run(
    lanes: int,
    plan: Callable[[int], Plan],
    ranks: int = RANKS,
    cables: Cables | None = None,
    *,
    knows_flag: bool = True,
    grows: bool = True,
) -> list[Worker]:
    switch = star_switch(lanes, grows) if knows_flag else StarSwitch(lanes)
    switch.ledger.capabilities = replace(switch.capabilities, header_only=knows_flag)
    network = Star(switch, cables or Cables(), 0)
    workers = network.add_job(switch.admit(ranks, SLOTS), lambda rank: [plan(rank)])
    network.run()
    network.drain()
    return workers


def values(rank: int, size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32) % 97 + 1 + rank


def scattering(size: int, ranks: int = RANKS) -> Callable[[int], Plan]:
    return lambda rank: ReduceScatterRequest(values(rank, size * ranks), "sum", None, "raise", "never").plan


def gathering(size: int) -> Callable[[int], Plan]:
    return lambda rank: AllGatherRequest(values(rank, size)).plan


@pytest.mark.parametrize("lanes", [64, 256])
def test_a_reduce_scatter_brings_a_worker_its_part_and_headers(lanes: int) -> None:
    blocks = 10
    for worker in run(lanes, scattering(blocks * lanes)):
        rank, counted = worker.admission.rank, worker.core.counters()
        total = np.sum([values(each, RANKS * blocks * lanes) for each in range(RANKS)], axis=0)
        np.testing.assert_array_equal(worker.outcomes[0].result, total.reshape(RANKS, -1)[rank])
        assert counted["chunks"] == RANKS * (blocks + SLOTS)
        assert counted["bytes_received"] == HEADER * counted["chunks"] + 4 * lanes * blocks
        assert counted["bytes_sent"] == HEADER * counted["chunks"] + 4 * lanes * blocks * RANKS


@pytest.mark.parametrize("ends", [0, 24])
@pytest.mark.parametrize("lanes", [64, 256])
def test_an_all_gather_brings_a_worker_what_the_others_have(lanes: int, ends: int) -> None:
    blocks = 10
    size = blocks * lanes + ends  # With ends, parts meet within blocks.
    total = -(-RANKS * size // lanes)
    for worker in run(lanes, gathering(size)):
        rank, counted = worker.admission.rank, worker.core.counters()
        np.testing.assert_array_equal(
            worker.outcomes[0].result, [values(each, size) for each in range(RANKS)]
        )
        first, last = rank * size, (rank + 1) * size
        touched = -(-last // lanes) - first // lanes
        alone = -(-last // lanes) if rank == RANKS - 1 else last // lanes
        alone -= -(-first // lanes)
        assert counted["chunks"] == total
        assert counted["bytes_received"] == HEADER * total + 4 * lanes * (total - alone)
        assert counted["bytes_sent"] == HEADER * total + 4 * lanes * touched


@pytest.mark.parametrize("shape", [RANKS, (2, 2), (1, 3)], ids=str)
def test_who_learns_that_results_have_no_room_sends_lanes_from_then_on(shape: Shape) -> None:
    lanes, blocks, plan = 256, 40, gathering(40 * 256)
    if shape == RANKS:
        workers = run(lanes, plan, grows=False)
    else:
        network = TreeNetwork(Fabric(shape, lanes, grows=False), Cables(), 0)
        workers = network.add_workers(network.start_job(SLOTS).admissions, lambda rank: [plan(rank)])
        network.run()
    for worker in workers:
        counted = worker.core.counters()
        np.testing.assert_array_equal(
            worker.outcomes[0].result, [values(each, blocks * lanes) for each in range(RANKS)]
        )
        assert counted["statuses"] <= 2 * SLOTS
        assert counted["bytes_sent"] - HEADER * counted["packets_sent"] >= 4 * lanes * (
            4 * blocks - 2 * SLOTS
        )


def test_a_switch_that_does_not_know_the_flag_sends_all_to_all() -> None:
    lanes, blocks = 64, 5  # As the controller says it of Tofino's programs of several passes.
    for plan, data in ((scattering(blocks * lanes), RANKS), (gathering(blocks * lanes), RANKS)):
        for worker in run(lanes, plan, knows_flag=False):
            assert worker.outcomes[0].error is None
            counted = worker.core.counters()
            assert counted["bytes_received"] == HEADER * counted["chunks"] + 4 * lanes * blocks * data


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_what_all_workers_must_learn_comes_to_all(dtype: str) -> None:
    op: Op = "sum" if dtype == "int32" else "max"

    def plan(rank: int) -> Plan:
        array = values(rank, 64 * RANKS * 8).astype(dtype)
        return ReduceScatterRequest(array, op, None, "raise", "never").plan

    for worker in run(64, plan):
        assert worker.outcomes[0].error is None
        counted = worker.core.counters()
        assert counted["bytes_received"] >= 4 * 64 * 8 * RANKS


def test_the_root_of_a_broadcast_receives_headers() -> None:
    def plan(rank: int) -> Plan:
        return BroadcastRequest(values(rank, 640), 1).plan

    for worker in run(64, plan, ranks=2):
        np.testing.assert_array_equal(worker.outcomes[0].result, values(1, 640))
        received = worker.core.counters()["bytes_received"]
        assert received == 10 * HEADER + (0 if worker.admission.rank == 1 else 4 * 640)


@pytest.mark.parametrize("lanes", [64, 256])
@pytest.mark.parametrize("drop", [0.02, 0.3])
def test_under_losses_no_lanes_come_that_are_not_needed(lanes: int, drop: float) -> None:
    def plan(rank: int) -> Plan:
        return AllReduceRequest(values(rank, 40 * lanes), "sum", None, "raise", "never", root=0).plan

    for worker in run(lanes, plan, cables=Cables(drop=drop, jitter_ns=30_000)):
        assert worker.outcomes[0].error is None
        counted = worker.core.counters()
        beyond_headers = counted["bytes_received"] - HEADER * counted["packets_received"]
        if worker.admission.rank == 0:
            total = np.sum([values(rank, 40 * lanes) for rank in range(RANKS)], axis=0)
            np.testing.assert_array_equal(worker.outcomes[0].result, total)
            assert beyond_headers >= 4 * lanes * 40
        else:  # A STATUS has 8 bytes more than a header.
            assert beyond_headers <= 8 * (counted["statuses"] + counted["stale"])


def test_a_tree_brings_lanes_to_switches_below_which_a_worker_needs_them() -> None:
    tree = Fabric((2, 2), 64)
    network = TreeNetwork(tree, Cables(), 0)
    job = network.start_job(SLOTS)
    plan = scattering(640)
    workers = network.add_workers(job.admissions, lambda rank: [plan(rank)])
    network.run()
    for worker in workers:
        counted = worker.core.counters()
        assert worker.outcomes[0].error is None
        assert counted["bytes_received"] == HEADER * counted["chunks"] + 4 * 640


def admission(quorum: int = 0) -> Admission:
    return Admission(1, 1, 1, 0, 2, 4, 64, quorum=quorum)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (
            lambda given: ReduceScatterRequest(np.zeros(4)).plan(given, 0),
            "reduce_scatter",
        ),
        (lambda given: AllGatherRequest(np.zeros(4)).plan(given, 0), "all_gather"),
    ],
)
def test_a_job_with_a_quorum_has_none(plan: Callable[[Admission], Collective[Any]], what: str) -> None:
    with pytest.raises(
        MisuseError, match=f"^{what} is unavailable in quorum jobs: all workers need all results$"
    ):
        plan(admission(quorum=1))


@pytest.mark.parametrize("shape", [(), (3,), (1, 2)])
def test_an_array_that_cannot_be_divided_is_refused(shape: Sequence[int]) -> None:
    with pytest.raises(ArrayError, match="the first dimension must be a multiple of 2"):
        ReduceScatterRequest(np.zeros(shape)).plan(admission(), 0)


def test_an_out_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ArrayError, match=r"out must be a writable float32 array of shape \(2, 4\)"):
        AllGatherRequest(np.zeros(4, np.float32), np.zeros(8, np.float32)).plan(admission(), 0)


def test_an_out_that_is_no_array_is_refused() -> None:
    with pytest.raises(ArrayError, match=r"out must be a writable float32 array of shape \(2, 4\), got list"):
        AllGatherRequest(np.zeros(4, np.float32), []).plan(admission(), 0)  # type: ignore[arg-type]


def test_workers_that_mean_another_root_get_an_error() -> None:
    def plan(rank: int) -> Plan:
        return AllReduceRequest(values(0, 640), "sum", None, "raise", "never", root=rank).plan

    for worker in run(64, plan, ranks=2):
        assert type(worker.outcomes[0].error).__name__ == "MismatchError"


@pytest.mark.parametrize("size", [64, 128, 1, 63, 65, 257])
def test_a_reduce_scatter_differs_from_an_all_reduce_by_the_bound_and_not_in_shards_of_whole_blocks(
    size: int,
) -> None:
    lanes = 64
    random = np.random.default_rng(size)
    spread = np.exp2(random.integers(-12, 12, RANKS * size))
    given = [(random.standard_normal(RANKS * size) * spread).astype(np.float32) for _ in range(RANKS)]
    scattered, reduced = (
        np.concatenate([worker.outcomes[0].result for worker in run(lanes, plan)])
        for plan in (
            lambda rank: ReduceScatterRequest(given[rank], "sum", None, "raise", "never").plan,
            lambda rank: AllReduceRequest(given[rank]).plan,
        )
    )
    whole = reduced[: RANKS * size]
    if size % lanes == 0:
        assert scattered.tobytes() == whole.tobytes()
        return
    largest = np.max(np.abs(given))  # The maximum of all blocks bounds that of the element's block.
    headroom = (RANKS - 1).bit_length()
    apart = np.abs(scattered.astype(np.float64) - whole)
    assert (apart <= 2.0 ** (2 * headroom - 29) * largest + np.spacing(np.abs(whole))).all()
