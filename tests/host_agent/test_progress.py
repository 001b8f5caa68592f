"""A communicator's progress, driven by the caller and by its own thread."""

import threading

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest, BarrierRequest
from host_agent.errors import BrokenCommunicatorError, MismatchError
from host_agent.lifecycle import LifecycleState
from host_agent.progress import Progress
from host_agent.transport.udp import UdpLink
from host_agent.wire import Header
from host_agent.wire.constants import FLAG_MISMATCH
from tests.host_agent.bench_core import BenchCore, result, status

FUTURE_S = 60
"""Far more than a future takes to be resolved."""


class BatchLink(UdpLink):
    """A link whose switch answers all contributions, and the last of them with a MISMATCH for what follows, in one batch.

    `mismatch`: whether it does the latter.
    """

    def __init__(self, bench: BenchCore, mismatch: bool = True) -> None:
        super().__init__(bench.core, ("127.0.0.1", 0))
        self._bench = bench
        self._mismatch = mismatch
        self.drivers: list[int] = []  # Ids of the threads that called `exchange`.
        self.interrupts = 0  # How many of the next calls a signal's handler interrupts.

    def exchange(self, seconds: float) -> int:
        self.drivers.append(threading.get_ident())
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        sent = self._bench.send()
        if sent:
            if not self._mismatch:
                self._bench.receive(*map(result, sent))
                return 0
            following = Header.from_bytes(sent[-1]).chunk + 1
            index = following * 2
            mismatch = status(sent[-1], 1, chunk=following, pool_index=index, flags=FLAG_MISMATCH)
            self._bench.receive(*map(result, sent), mismatch)
        return 0


@pytest.mark.parametrize("own_thread", [False, True])
def test_a_mismatch_behind_the_last_result_fails_the_next_collective(own_thread: bool) -> None:
    bench = BenchCore(slots=8)
    progress = Progress(bench.core, BatchLink(bench))
    if own_thread:
        progress.start_thread()
    ones = np.ones(64, np.float32)
    future = progress.submit(AllReduceRequest(ones, "max").plan(bench.admission, 0))
    if not own_thread:
        progress.wait(future)
    assert (future.result(FUTURE_S) == 1).all()
    assert progress.state in (LifecycleState.RUNNING, LifecycleState.IDLE)
    barrier = progress.submit(BarrierRequest().plan(bench.admission, 1))
    with pytest.raises(MismatchError, match="barrier number 1"):
        barrier.result(FUTURE_S) if own_thread else progress.wait(barrier)
    with pytest.raises(BrokenCommunicatorError, match="do not agree"):
        progress.submit(BarrierRequest().plan(bench.admission, 2))
    progress.close()


def test_the_caller_s_thread_drives_what_it_begins_in_the_block_and_waits_for() -> None:
    bench = BenchCore(slots=8)
    link = BatchLink(bench, mismatch=False)
    progress = Progress(bench.core, link)
    progress.start_thread()
    own = threading.get_ident()
    for number in range(2):
        with progress.driven_by_caller():
            progress.wait(progress.submit(BarrierRequest().plan(bench.admission, number)))
    assert set(link.drivers) == {own}
    progress.submit(BarrierRequest().plan(bench.admission, 2)).result(FUTURE_S)
    assert link.drivers[-1] != own
    progress.close()


def test_the_thread_takes_over_what_the_block_leaves_undone() -> None:
    bench = BenchCore(slots=8)
    link = BatchLink(bench, mismatch=False)
    progress = Progress(bench.core, link)
    progress.start_thread()
    with progress.driven_by_caller():
        left = progress.submit(BarrierRequest().plan(bench.admission, 0))
    assert left.result(FUTURE_S) is None
    link.interrupts = 1
    with progress.driven_by_caller():
        interrupted = progress.submit(BarrierRequest().plan(bench.admission, 1))
        with pytest.raises(KeyboardInterrupt):
            progress.wait(interrupted)
    assert interrupted.result(FUTURE_S) is None
    progress.close()


def test_an_interruption_breaks_a_communicator_without_a_thread() -> None:
    bench = BenchCore(slots=8)
    link = BatchLink(bench, mismatch=False)
    progress = Progress(bench.core, link)
    link.interrupts = 1
    with pytest.raises(KeyboardInterrupt), progress.driven_by_caller():
        progress.wait(progress.submit(BarrierRequest().plan(bench.admission, 0)))
    assert progress.state is LifecycleState.BROKEN
    progress.close()


def test_a_caller_drives_only_if_nothing_is_under_way() -> None:
    bench = BenchCore(slots=8)
    link = BatchLink(bench, mismatch=False)
    progress = Progress(bench.core, link)
    before = progress.submit(BarrierRequest().plan(bench.admission, 0))
    with progress.driven_by_caller():
        progress.start_thread()  # Started here, as it could be done with the first before the block begins.
        after = progress.submit(BarrierRequest().plan(bench.admission, 1))
        progress.drive(after)  # returns at once
        assert after.result(FUTURE_S) is None
    assert before.done()
    assert threading.get_ident() not in link.drivers
    progress.close()
