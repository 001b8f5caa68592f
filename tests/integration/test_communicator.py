"""Communicators over real sockets, through the P4 program in the embedded engine."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import sparse
from host_agent.communicator import Communicator
from host_agent.errors import (
    ArrayError,
    BrokenCommunicatorError,
    ClosedCommunicatorError,
    MismatchError,
    MissingWorkersError,
    MisuseError,
    SumOverflowError,
    SwitchSilentError,
    UnsupportedTypeError,
    UsedAdmissionError,
)
from host_agent.wire import Admission
from tests.integration.simulated.loopback import LoopbackSwitch, each_link, on_all
from tests.integration.simulated.reference import expected, same_bits
from tests.integration.simulated.workload import nasty_values

WORKERS = 3
DEADLINE_S = 400.0
"""Deadline of expected events; the machine may be running all other tests at once."""
SOON_S = 2.0
"""Time in which an unexpected event would happen: the others miss one by then."""


@contextmanager
def joined(switch: LoopbackSwitch, timeout_s: float = DEADLINE_S) -> Iterator[list[Communicator]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Communicator(admission, bind=address, timeout_s=timeout_s))
            for admission, address in switch.start_job()
        ]


link = pytest.fixture(each_link, scope="module", params=["udp", "memory", "program"], autouse=True)


@pytest.fixture(scope="module")
def switch() -> Iterator[LoopbackSwitch]:
    with LoopbackSwitch(64, WORKERS) as running:
        yield running


@pytest.fixture
def workers(switch: LoopbackSwitch) -> Iterator[list[Communicator]]:
    with joined(switch) as communicators:
        yield communicators


def parts_of(dtype: str, shape: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    return [nasty_values(rng, dtype, size).reshape(shape) for _ in range(WORKERS)]


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(
    ("dtype", "op"),
    [(dtype, op) for dtype in ("float32", "float64", "float16") for op in ("sum", "mean")]
    + [("int32", "sum"), ("int32", "bor"), ("int64", "sum"), ("int64", "bor")],
)
def test_sparse_results_have_the_bits_of_dense_ones(
    workers: list[Communicator], dtype: str, op: Any, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several slices and bitmaps, by the caller's thread and by one that is always there."""
    monkeypatch.setattr(sparse, "SLICE_BYTES", 1 << 14)
    blocks = 40 * 32 + 5
    rng = np.random.default_rng(blocks)
    parts = []
    for worker in range(WORKERS):
        present = (rng.random(blocks) < 0.02).repeat(64)[:-3]
        part = np.full(present.size, -0.0 if dtype.startswith("float") else 0).astype(dtype)
        few = nasty_values(rng, "int32" if dtype == "int64" else dtype, int(present.sum()))
        part[present] = few
        parts.append(part)
        if worker == 0:
            continue
        part[: blocks * 16] = parts[0][: blocks * 16]  # A quarter that all have alike.

    def reduce(worker: Communicator, choice: Any) -> Any:
        mine = parts[worker.worker_id]
        if in_thread:
            return worker.allreduce_async(mine, op, on_overflow="saturate", sparse=choice).result()
        return worker.allreduce(mine, op, on_overflow="saturate", sparse=choice)

    dense = on_all(workers, lambda worker: reduce(worker, "never"))
    left_out = on_all(workers, lambda worker: reduce(worker, "always"))
    assert all(same_bits(result, dense[0]) for result in (*dense, *left_out))
    for each in workers:
        stats = each.stats
        assert (stats.sparse_collectives, stats.collectives) == (1, 1)
        assert 0 < stats.own_blocks < stats.union_blocks < stats.sparse_blocks / 5
        assert stats.saved_bytes > 0


def test_extremes_of_large_arrays_are_dense(workers: list[Communicator]) -> None:
    array = np.zeros(sparse.AUTO_LEAST_BYTES // 4, np.float32)
    array[5] = -1
    results = on_all(workers, lambda worker: worker.allreduce(array, "min"))
    assert all(same_bits(result, array) for result in results)
    assert all(worker.stats.sparse_collectives == 0 for worker in workers)


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(dtype, op) for dtype in ("float32", "float64", "float16") for op in ("sum", "mean", "min", "max")]
    + [("int32", op) for op in ("sum", "min", "max", "bor")],
)
@pytest.mark.parametrize("shape", [(1000,), (), (0,), (3, 0, 2), (7, 11, 13)])
def test_every_type_and_operation(
    workers: list[Communicator], dtype: str, op: Any, shape: tuple[int, ...]
) -> None:
    parts = parts_of(dtype, shape)
    results = on_all(
        workers, lambda worker: worker.allreduce(parts[worker.worker_id], op, on_overflow="saturate")
    )
    reference = expected(op, parts, 64)
    for result in results:
        assert isinstance(result, np.ndarray), result
        assert same_bits(result, results[0])
        if op == "mean":  # by 3: rounded twice
            np.testing.assert_allclose(result, reference, rtol=1e-6 if dtype != "float16" else 1e-3)
        else:
            assert same_bits(result, reference)


def test_arrays_of_any_layout(workers: list[Communicator]) -> None:
    base = np.arange(2 * 30 * 40, dtype=np.float32).reshape(2, 30, 40)
    layouts = [
        base[0],
        np.asfortranarray(base[0]),
        base[0].astype(">f4"),
        base[:, ::-1, ::-1][0][::-1, ::-1],
        np.frombuffer(b"\0" + base[0].tobytes(), np.uint8)[1:].view(np.float32).reshape(30, 40),
    ]
    for layout in layouts:
        for result in on_all(workers, partial(Communicator.allreduce, array=layout)):
            np.testing.assert_array_equal(result, 3 * base[0])
            assert result.dtype == np.float32


def test_results_go_where_they_are_wanted(workers: list[Communicator]) -> None:
    def run(worker: Communicator) -> None:
        values = np.arange(500, dtype=np.float32)
        assert worker.allreduce(values, out=values) is values
        np.testing.assert_array_equal(values, 3 * np.arange(500))
        wide = np.zeros((500, 2), np.float32)
        out = wide[:, 1]
        assert worker.allreduce(values, "max", out=out) is out
        np.testing.assert_array_equal(wide[:, 1], values)
        assert not wide[:, 0].any()
        # Overlapping, but not the same memory.
        both = np.arange(600, dtype=np.int32) << 22
        before = both.copy()
        worker.allreduce(both[:500], out=both[100:], on_overflow="saturate")
        exact = np.clip(3 * before[:500].astype(np.int64), -(2**31), 2**31 - 1)
        np.testing.assert_array_equal(both[100:], exact)

    assert on_all(workers, run) == [None] * WORKERS


@pytest.mark.parametrize(
    ("values", "op", "out", "kind"),
    [
        (np.zeros(3, np.int64), "mean", None, UnsupportedTypeError),
        (np.zeros(3, np.int64), "median", None, MisuseError),
        (np.zeros(3, np.uint32), "sum", None, UnsupportedTypeError),
        (np.zeros(3, np.complex64), "sum", None, UnsupportedTypeError),
        (np.zeros(3, bool), "bor", None, UnsupportedTypeError),
        (np.zeros(3, object), "sum", None, UnsupportedTypeError),
        (np.zeros(3, np.float32), "bor", None, UnsupportedTypeError),
        (np.zeros(3, np.int32), "mean", None, UnsupportedTypeError),
        (np.zeros(3, np.float32), "median", None, MisuseError),
        (np.zeros(3, np.float32), "sum", np.zeros(4, np.float32), ArrayError),
        (np.zeros(3, np.float32), "sum", np.zeros(3, np.float64), ArrayError),
        (np.zeros(3, np.float32), "sum", [0, 0, 0], ArrayError),
        (np.zeros(3, np.float32), "sum", np.broadcast_to(np.float32(0), 3), ArrayError),
    ],
)
def test_what_cannot_be_reduced_is_refused_before_anything_is_sent(
    workers: list[Communicator], values: Any, op: Any, out: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        workers[0].allreduce(values, op, out=out)
    assert issubclass(kind, ValueError | TypeError) or kind is MisuseError
    for worker in workers:
        assert worker.total_stats.packets_sent == 0
    assert on_all(workers, lambda worker: worker.barrier()) == [None] * WORKERS, "still usable"


def test_an_int32_sum_that_does_not_fit_is_an_error_everywhere_and_no_end(
    workers: list[Communicator],
) -> None:
    values = np.array([2**31 - 1, 5, -(2**31), 2**30], np.int32)
    for error in on_all(workers, lambda worker: worker.allreduce(values)):
        assert isinstance(error, SumOverflowError)
        assert isinstance(error, OverflowError)
        assert error.elements == 3
    for result in on_all(workers, lambda worker: worker.allreduce(values, on_overflow="saturate")):
        np.testing.assert_array_equal(result, [2**31 - 1, 15, -(2**31), 2**31 - 1])


@pytest.mark.parametrize("dtype", ["<i8", ">i8"])
def test_int64_is_exact(workers: list[Communicator], dtype: str) -> None:
    rng = np.random.default_rng(5)
    parts = [(rng.integers(-(2**62), 2**62, 200) >> rng.integers(0, 62, 200)) for _ in workers]
    reductions = {"sum": np.add, "min": np.minimum, "max": np.maximum, "bor": np.bitwise_or}
    for op, ufunc in reductions.items():
        reference = ufunc.reduce([part.astype(object) for part in parts]).clip(-(2**63), 2**63 - 1)
        for result in on_all(
            workers,
            lambda worker, op=op: worker.allreduce(  # type: ignore[misc]  # the default
                parts[worker.worker_id].astype(dtype), op, on_overflow="saturate"
            ),
        ):
            assert result.dtype == np.int64
            assert result.tolist() == reference.tolist()
    for error in on_all(workers, lambda worker: worker.allreduce(np.full(7, 2**62, dtype))):
        assert isinstance(error, SumOverflowError)
        assert error.elements == 7


def test_every_collective_has_a_future(workers: list[Communicator]) -> None:
    begun = [
        (
            worker.allreduce_async(np.full(300, 1, np.int64)),
            worker.broadcast_async(np.full(9, worker.worker_id), 2),
            worker.barrier_async(),
        )
        for worker in workers
    ]
    for total, sent, met in begun:
        assert (total.result(DEADLINE_S) == 3).all()
        assert (sent.result(DEADLINE_S) == 2).all()
        assert met.result(DEADLINE_S) is None
        assert met.done()


@pytest.mark.parametrize("collective", ["allreduce", "broadcast", "barrier"])
def test_labels_must_agree(switch: LoopbackSwitch, collective: str) -> None:
    arguments = {"allreduce": (np.ones(5),), "broadcast": (np.ones(5), 0), "barrier": ()}[collective]
    with joined(switch) as workers:
        for labels in (["", "", ""], ["one"] * 3, ["one", "one", "other"]):
            results = on_all(
                workers,
                lambda worker, labels=labels: getattr(worker, collective)(  # type: ignore[misc]  # the default
                    *arguments, label=labels[worker.worker_id]
                ),
            )
            if len(set(labels)) == 1:
                assert not any(isinstance(result, Exception) for result in results)
            else:
                assert all(isinstance(result, MismatchError) for result in results)
                assert str(results[2]).startswith("other, number 2")


def test_futures_progress_by_themselves_and_in_order(workers: list[Communicator]) -> None:
    order: list[list[int]] = [[] for _ in workers]

    def run(worker: Communicator) -> list[Future[Any]]:
        futures = []
        for i in range(40):
            values = np.full(50 * i, i, np.float32 if i % 3 else np.int32)
            future = worker.allreduce_async(values, "max" if i % 2 else "sum")
            future.add_done_callback(lambda _, i=i: order[worker.worker_id].append(i))  # type: ignore[misc]  # the default
            futures.append(future)
        return futures

    submitted = [run(worker) for worker in workers]
    for futures in submitted:
        assert not futures[-1].cancel()
        for i, future in enumerate(futures):
            assert (future.result(DEADLINE_S) == (i if i % 2 else 3 * i)).all()
    assert on_all(workers, lambda worker: worker.allreduce(np.float32(1))) == [3] * WORKERS
    assert order == [list(range(40))] * WORKERS


def test_a_callback_can_submit_but_not_wait(workers: list[Communicator]) -> None:
    outcomes: list[Any] = []

    def then(worker: Communicator) -> Future[Any]:
        done: Future[Any] = Future()

        def submit(_: Future[Any]) -> None:
            try:
                worker.barrier()
            except MisuseError as error:
                outcomes.append(error)
            worker.allreduce_async(np.ones(3, np.float32)).add_done_callback(
                lambda f: done.set_result(f.result())
            )

        worker.allreduce_async(np.ones(3, np.float32)).add_done_callback(submit)
        return done

    for done in [then(worker) for worker in workers]:
        np.testing.assert_array_equal(done.result(DEADLINE_S), [3, 3, 3])
    assert len(outcomes) == WORKERS


def _broadcast_own(parts: list[Any], worker: Communicator) -> Any:
    return worker.broadcast(parts[worker.worker_id], 1)


def test_broadcast_and_barrier(workers: list[Communicator]) -> None:
    for dtype in ("u1", "<i8", ">f4", "S3", "f8", "?"):
        parts = [np.arange(worker, worker + 777).astype(dtype).reshape(7, 111) for worker in range(WORKERS)]
        for result in on_all(workers, partial(_broadcast_own, parts)):
            np.testing.assert_array_equal(result, parts[1])
    out = [np.zeros(5, np.uint8) for _ in workers]
    on_all(workers, lambda w: w.broadcast(np.full(5, w.worker_id, np.uint8), 2, out=out[w.worker_id]))
    assert [list(each) for each in out] == [[2] * 5] * WORKERS
    with pytest.raises(MisuseError, match="root"):
        workers[0].broadcast(np.zeros(3), 3)
    with pytest.raises(TypeError, match="objects"):
        workers[0].broadcast(np.array([None]), 0)


def test_a_barrier_waits_for_the_last_worker(workers: list[Communicator]) -> None:
    early = [worker.barrier_async() for worker in workers[:2]]
    assert not wait(early, timeout=0.1).done
    workers[2].barrier()
    for each in early:
        assert each.result(DEADLINE_S) is None


def test_statistics(workers: list[Communicator]) -> None:
    values = np.ones(10_000, np.float32)
    on_all(workers, lambda worker: worker.allreduce(values))
    on_all(workers, lambda worker: worker.allreduce(values * np.nan))
    stats, total = workers[0].stats, workers[0].total_stats
    assert (stats.collectives, total.collectives) == (1, 2)
    assert (stats.elements, total.elements) == (10_000, 20_000)
    chunks = -(-10_000 // 64) + 16
    assert (stats.chunks, total.chunks) == (chunks, 2 * chunks)
    assert stats.non_finite == chunks - 16
    assert stats.packets_sent >= chunks
    assert stats.bytes_sent >= 24 * chunks
    assert 0 < stats.min_result_ns <= stats.result_ns <= stats.max_result_ns < total.duration_ns
    assert 0 < stats.srtt_ns < total.duration_ns
    assert stats.elements_per_s == pytest.approx(10_000 / stats.duration_ns * 1e9)


def test_two_readings_of_the_statistics_can_be_subtracted(workers: list[Communicator]) -> None:
    values = np.ones(1_000, np.float32)
    on_all(workers, lambda worker: worker.allreduce(values))
    before = workers[0].total_stats
    on_all(workers, lambda worker: worker.allreduce(values))
    after = workers[0].total_stats
    assert (before.collectives, after.collectives) == (1, 2)
    between = after - before
    assert (between.collectives, between.elements) == (1, 1_000)
    assert between.chunks == workers[0].stats.chunks
    assert between.srtt_ns == after.srtt_ns


def test_the_same_bits_with_losses() -> None:
    parts = parts_of("float32", (30_000,), seed=3)
    with LoopbackSwitch(64, WORKERS, drop_ppm=20_000) as lossy, joined(lossy) as workers:
        results = on_all(workers, lambda worker: worker.allreduce(parts[worker.worker_id]))
        assert sum(worker.stats.retransmissions for worker in workers) > 0
    for result in results:
        assert same_bits(result, expected("sum", parts, 64))


def test_a_switch_killed_and_restarted(link: str) -> None:
    values = np.ones(200_000, np.float32)
    with LoopbackSwitch(64, WORKERS) as first, joined(first, timeout_s=SOON_S) as workers:
        begun = [[worker.allreduce_async(values) for _ in range(100)] for worker in workers]
        begun[0][0].result(DEADLINE_S)
        first.kill()
        for futures in begun:
            error = futures[-1].exception(DEADLINE_S)
            assert isinstance(error, SwitchSilentError)
            reasons = {
                "udp": "connection refused",
                "memory": "taken back the memory",
                "program": "taken back the memory",
            }
            assert reasons[link] in str(error)
        for error in on_all(workers, lambda worker: worker.barrier()):
            assert isinstance(error, BrokenCommunicatorError)
            assert "new admission" in str(error)
            assert error.__cause__ is not None
    with LoopbackSwitch(64, WORKERS) as second, joined(second) as workers:
        for result in on_all(workers, lambda worker: worker.allreduce(values[:1000])):
            np.testing.assert_array_equal(result, 3)


def test_a_killed_worker_is_named(switch: LoopbackSwitch) -> None:
    with joined(switch, timeout_s=SOON_S) as workers:
        workers[1].close()
        for begun in [worker.allreduce_async(np.ones(9, np.float32)) for worker in (workers[0], workers[2])]:
            error = begun.exception(DEADLINE_S)
            assert isinstance(error, MissingWorkersError)
            assert error.missing == (1,)


def test_workers_that_disagree(switch: LoopbackSwitch) -> None:
    with joined(switch) as workers:
        sizes = [100, 100, 101]
        for error in on_all(workers, lambda w: w.allreduce(np.ones(sizes[w.worker_id], np.float32))):
            assert isinstance(error, MismatchError)


def test_close_fails_what_is_not_done_and_wakes_who_waits(switch: LoopbackSwitch) -> None:
    with joined(switch) as workers:
        future = workers[0].allreduce_async(np.ones(3, np.float32))
        closing = threading.Timer(0.1, workers[0].close)
        closing.start()
        with pytest.raises(ClosedCommunicatorError):
            future.result(DEADLINE_S / 2)
        closing.join()
        workers[0].close()
        with pytest.raises(ClosedCommunicatorError):
            workers[0].barrier()


def test_no_thread_and_no_socket_is_left_behind(switch: LoopbackSwitch) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with joined(switch) as workers:
            addresses = [worker.address for worker in workers]
            for worker in workers:
                worker.allreduce_async(np.ones(3, np.float32))
        for address in addresses:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
                again.bind(address)
    assert set(threading.enumerate()) <= before


def test_ctrl_c_interrupts_a_collective_that_waits(switch: LoopbackSwitch) -> None:
    with joined(switch) as workers:

        def interrupt() -> None:
            while not workers[0].activity().in_flight:
                time.sleep(0.01)
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        old = signal.signal(signal.SIGUSR1, signal.default_int_handler)
        try:
            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                workers[0].barrier()
            interrupter.join()
        finally:
            signal.signal(signal.SIGUSR1, old)
        with pytest.raises(BrokenCommunicatorError, match="interrupted"):
            workers[0].barrier()


def test_an_admission_serves_one_communicator(switch: LoopbackSwitch) -> None:
    with joined(switch) as workers:
        admissions = [worker.admission for worker in workers]
        for admission in admissions:
            with pytest.raises(UsedAdmissionError, match="has served a communicator already"):
                Communicator(admission)
        totals = on_all(workers, lambda worker: worker.allreduce(np.ones(4, np.float32)))
        assert all((total == WORKERS).all() for total in totals)
    for admission in admissions:
        with pytest.raises(UsedAdmissionError):
            Communicator(admission)


def test_addresses_that_cannot_be_bound() -> None:
    admission = Admission(1, 1, 1, 0, 1, 1, 64)
    with pytest.raises(MisuseError, match="192.0.2.1"):
        Communicator(admission, bind=("192.0.2.1", 0))
    with pytest.raises(MisuseError, match="timeout_s"):
        Communicator(admission, timeout_s=0)
