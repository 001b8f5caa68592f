"""What a communicator's progress makes of a batch of datagrams, driven by the caller and by its own thread."""

import numpy as np
import pytest

from host_agent.collectives import plan_allreduce, plan_barrier
from host_agent.errors import BrokenCommunicatorError, MismatchError
from host_agent.lifecycle import State
from host_agent.progress import Progress
from host_agent.transport.udp import UdpLink
from host_agent.wire import Header
from host_agent.wire.constants import FLAG_MISMATCH
from tests.host_agent.bench_core import BenchCore, result, status

FUTURE_S = 60
"""Far more than a future takes to be resolved."""


class BatchLink(UdpLink):
    """A link whose switch answers all contributions, and the last of them with a MISMATCH for what follows, in one batch."""

    def __init__(self, bench: BenchCore) -> None:
        super().__init__(bench.core, ("127.0.0.1", 0))
        self._bench = bench

    def exchange(self, seconds: float) -> int:
        sent = self._bench.send()
        if sent:
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
    future = progress.submit(plan_allreduce(bench.admission, 0, ones, "max", None, "raise"))
    if not own_thread:
        progress.wait(future)
    assert (future.result(FUTURE_S) == 1).all()
    assert progress.state in (State.RUNNING, State.IDLE)
    future = progress.submit(plan_barrier(bench.admission, 1))
    with pytest.raises(MismatchError, match="barrier number 1"):
        future.result(FUTURE_S) if own_thread else progress.wait(future)
    with pytest.raises(BrokenCommunicatorError, match="do not agree"):
        progress.submit(plan_barrier(bench.admission, 2))
    progress.close()
