"""Block-sparse and packed reductions by real worker cores and the real P4 program on a terrible network."""

import random

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest, sparse
from host_agent.collectives.rows import AllReduceRowsRequest, Rows
from host_agent.errors import ArrayError, MisuseError
from tests.integration.simulated.reference import expected
from tests.integration.simulated.star import Cables, Star, StarSwitch, star_switch
from tests.integration.simulated.workload import CollectiveTask, random_task, sparse_task
from tests.integration.test_terrible_network import check, terrible


def run(switch: StarSwitch, workers: int, tasks: list[CollectiveTask], faults: Cables, seed: int) -> Star:
    chance = random.Random(seed)
    network = Star(switch, faults, seed)
    admissions = switch.admit(workers, chance.choice([1, 2, 4, 8]))
    completed = switch.count("results")
    hosts = network.add_job(
        admissions,
        lambda worker: [task.plan(worker) for task in tasks],
        at_once=chance.choice([1, 2, 5]),
        first_chunk=chance.choice([0, 2**32 - 5]),
    )
    network.run()
    network.drain()
    check(tasks, hosts)
    chunks = {host.core.counters()["chunks"] for host in hosts}
    assert chunks == {switch.count("results") - completed}, "each chunk is completed once"
    return network


@pytest.mark.parametrize(
    ("workers", "lanes", "schedules"), [(2, 64, 30), (4, 64, 30), (8, 64, 5), (3, 256, 15)]
)
def test_sparse_reductions_have_the_bits_of_dense_ones(workers: int, lanes: int, schedules: int) -> None:
    for seed in range(schedules):
        rng = np.random.default_rng(seed)
        tasks = [sparse_task(rng, workers, lanes, int(rng.integers(1, 40))) for _ in range(3)]
        tasks.insert(1, random_task(rng, workers, lanes))
        try:
            run(star_switch(lanes), workers, tasks, terrible(random.Random(seed), workers), seed)
        except AssertionError as error:
            raise AssertionError(f"workers={workers} lanes={lanes} seed={seed}: {error}") from error


@pytest.mark.parametrize("seed", range(4))
def test_arrays_of_several_bitmaps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = sparse_task(rng, 2, 64, 5 * 64 * 32 + 7)
    network = run(star_switch(64), 2, [task, random_task(rng, 2, 64)], Cables(drop=0.02), seed)
    for host in network.workers:
        statistics = host.outcomes[0].statistics
        assert 0 <= statistics.own_blocks <= statistics.union_blocks < 60
        # Bitmaps, the exponents that travel ahead and the union; not thousands of blocks.
        assert statistics.chunks < 200


def test_blocks_behind_a_dense_part_are_not_searched_but_later_ones_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lanes, workers = 64, 2
    first = 64  # Blocks of each of the first two bitmaps.
    monkeypatch.setattr(sparse, "AUTO_LEAST_BYTES", 0)
    monkeypatch.setattr(sparse, "SLICE_BYTES", first * 4 * lanes)
    # Two bitmaps of dense blocks, then blocks that no worker searches, and then those that bitmaps leave out.
    unseen = 2 * first * sparse.UNSEARCHED
    present = np.zeros(2 * first + unseen + 3_000, bool)
    present[: 2 * first + 5] = present[-1] = True
    parts = [np.repeat(present, lanes) * np.float32(worker + 1) for worker in range(workers)]
    task = CollectiveTask("sum", parts, expected("sum", parts, lanes), False, False, False)
    network = run(star_switch(lanes), workers, [task], Cables(), 0)
    for host in network.workers:
        assert host.outcomes[0].statistics.union_blocks == 2 * first + unseen + 1


@pytest.mark.parametrize(("lanes", "grows"), [(64, True), (64, False), (256, True), (256, False)])
def test_a_worker_without_a_block_sends_a_header_where_the_result_can_grow(lanes: int, grows: bool) -> None:
    """Two workers with four of eight blocks each: bytes are those of headers but for own blocks, or zeros too."""
    parts = [np.zeros(8 * lanes, np.float32) for _ in range(2)]
    parts[0][: 4 * lanes] = 1
    parts[1][4 * lanes :] = 2
    task = CollectiveTask("sum", parts, parts[0] + parts[1], False, False, False, "always")
    network = run(star_switch(lanes, grows), 2, [task], Cables(), 0)
    for host in network.workers:
        sent = host.core.counters()
        statistics = host.outcomes[0].statistics
        assert (statistics.sparse_blocks, statistics.own_blocks, statistics.union_blocks) == (8, 4, 8)
        with_lanes, rest = divmod(sent["bytes_sent"] - 24 * sent["packets_sent"], 4 * lanes)
        assert rest == 0
        if grows or lanes == 64:
            assert with_lanes == 4 + 1, "the bitmap has lanes too"
        else:
            assert with_lanes > 4 + 1


def test_workers_that_choose_otherwise_get_an_error() -> None:
    zeros = np.zeros(640, np.float32)
    tasks = [
        CollectiveTask("sum", [zeros, zeros], None, False, False, False, choice)
        for choice in ("always", "never")
    ]
    network = Star(star_switch(64), Cables(), 0)
    hosts = network.add_job(star_switch(64).admit(2, 4), lambda worker: [tasks[worker].plan(worker)])
    network.run()
    for host in hosts:
        assert type(host.outcomes[0].error).__name__ == "MismatchError"


@pytest.mark.parametrize(
    ("dtype", "width", "row_count"), [("float32", 8, 300), ("int64", 3, 50), ("float32", 1, 600_000)]
)
def test_rows_of_workers_are_added_where_any_has_them(dtype: str, width: int, row_count: int) -> None:
    rng = np.random.default_rng(row_count)
    parts, whole = [], np.zeros((row_count, width), dtype)
    for count in (0, 5, 20):
        numbers = np.sort(rng.choice(row_count, count, replace=False)).astype(np.int64)
        values = rng.integers(-99, 99, (count, width)).astype(dtype)
        whole[numbers] += values
        parts.append(Rows(numbers, values))
    switch = star_switch(64)
    network = Star(switch, Cables(drop=0.05, duplicate=0.1, jitter_ns=50_000), 1)
    hosts = network.add_job(
        switch.admit(3, 8),
        lambda worker: [AllReduceRowsRequest(parts[worker], row_count).plan],
    )
    network.run()
    union = np.unique(np.concatenate([part.numbers for part in parts]))
    for host in hosts:
        assert host.outcomes[0].error is None
        result: Rows = host.outcomes[0].result  # type: ignore[assignment]
        np.testing.assert_array_equal(result.numbers, union)
        np.testing.assert_array_equal(result.values, whole[union])
        assert result.values.dtype == dtype
        assert host.outcomes[0].statistics.chunks < 150, "rows that no worker has do not travel"


@pytest.mark.parametrize(
    ("numbers", "shape", "row_count", "message"),
    [
        ([1, 1], (2, 3), 9, "ascending, each once, from 0 to 8"),
        ([1, 9], (2, 3), 9, "ascending, each once, from 0 to 8"),
        ([1, 2], (3, 3), 9, "as many row numbers as rows of values"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    numbers: list[int], shape: tuple[int, ...], row_count: int, message: str
) -> None:
    rows = Rows(np.array(numbers, np.int64), np.zeros(shape, np.float32))
    with pytest.raises(ArrayError, match=message):
        AllReduceRowsRequest(rows, row_count).plan(star_switch(64).admit(1, 4)[0], 0)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_zeros_take_part_in_extremes(op: str, dtype: str) -> None:
    admission = star_switch(64).admit(1, 4)[0]
    array = np.zeros(1000, dtype)
    with pytest.raises(MisuseError, match=f"op '{op}' cannot leave out zeros"):
        AllReduceRequest(array, op, None, "raise", "always").plan(admission, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["sum", "bor"])
def test_int64_is_reduced_block_sparse_too(op: str) -> None:
    parts = [np.zeros(64 * 40, np.int64) for _ in range(2)]
    parts[0][64 * 3] = -(2**62) if op == "sum" else 2**62
    parts[1][64 * 30 + 5] = 12345
    task = CollectiveTask(op, parts, parts[0] | parts[1], False, False, False, "always")
    network = run(star_switch(64), 2, [task], Cables(drop=0.1), 0)
    assert all(host.outcomes[0].statistics.union_blocks < 7 for host in network.workers)
