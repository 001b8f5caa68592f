"""The worker core: begin passes, feed it datagrams and time, send its datagrams, read the outcome.

Theory of operation
-------------------
A driver (the socket, a simulator, a test) owns time and transport. Whenever datagrams have come it calls
`on_datagram`; then, and whenever `next_timer_ns` has come, it calls `transmit` until no more rows are filled, and
sends them. Passes are begun in the same order by all workers of the job; several may be under way, and the chunks of
one follow those of the one before without a gap. A pass is done when all its RESULTs have come, all passes are done
in order, and nothing that arrives afterwards touches their arrays.

After a failure nothing is sent any more and nothing that arrives has an effect. There is no way back but a new core
with a new admission: chunk numbers of this epoch that the others have used cannot be used again.
"""

from collections import deque

import numpy as np
import numpy.typing as npt

from host_agent.errors import MisuseError
from host_agent.protocol import arrivals, departures
from host_agent.protocol.beginning import begin_pass
from host_agent.protocol.congestion import reset_congestion
from host_agent.protocol.passes import Pass
from host_agent.protocol.records import CORE, COUNTERS, FAILURE_NONE, NEVER, PASS, PASS_RING, SLOT
from host_agent.protocol.timeout import reset_timeout
from host_agent.wire import Admission
from host_agent.wire.constants import LANE_BYTES
from host_agent.wire.header import HEADER_WORDS, STATUS_WORDS
from host_agent.wire.path import masks
from netsum_common.compiled import Records


class WorkerCore:
    """State of one worker in one epoch of a job.

    `timeout_ns`: a collective fails if no RESULT comes for that long. `first_chunk`: chunk number to start with; all workers
    of the job must agree.
    """

    def __init__(self, admission: Admission, timeout_ns: int, first_chunk: int = 0) -> None:
        self.admission = admission
        # Bytes of a row in an array of datagrams: one word more than the longest valid one, so that longer ones show.
        self.row_bytes = 4 * (max(HEADER_WORDS + admission.lanes, STATUS_WORDS) + 1)
        self._under_way: deque[Pass] = deque()
        state = np.zeros(1, CORE)
        core = state[0]
        core["job_id"] = admission.job_id
        core["token"] = admission.token
        core["worker_id"] = admission.worker_id
        core["num_workers"] = admission.num_workers
        core["slot_count"] = admission.slot_count
        core["lanes"] = admission.lanes
        core["lane_bytes"] = LANE_BYTES * admission.lanes
        core["quorum"] = admission.quorum
        core["rank"] = admission.rank
        core["headroom"] = (admission.world_size - 1).bit_length()
        own, every, reach = masks(admission.path)
        core["levels"], core["reach"] = len(own), reach
        core["path_worker"][: len(own)] = own
        core["path_mask"][: len(own)] = every
        core["next_chunk"] = core["oldest_chunk"] = first_chunk
        core["next_sequence"] = 1
        core["loss_time_ns"] = NEVER
        core["timeout_ns"] = timeout_ns
        core["heard_ns"] = -1
        core["status_chunk"] = -1
        reset_congestion(core)
        reset_timeout(core)
        self._counts = _counts_of(state)
        slots = np.zeros(admission.slot_count, SLOT)
        slots["chunk"] = -1
        # The structured arrays that the compiled functions take.
        self.records = (state, slots, np.zeros(PASS_RING, PASS))

    def move_to(self, state: Records, slots: Records, passes: Records) -> None:
        """Keep the records in other memory, such as that of a simulator with many cores; it holds nothing yet."""
        for old, new in zip(self.records, (state, slots, passes), strict=True):
            new[:] = old
        self.records = (state, slots, passes)
        self._counts = _counts_of(state)

    @property
    def state(self) -> Records:
        """The record `CORE`, one element."""
        return self.records[0]

    @property
    def window_bytes(self) -> int:
        """The congestion window; 0: there is none."""
        return int(self.state["window_bytes"][0] * self.state["congestion"][0])

    @property
    def failed(self) -> bool:
        """Whether the core has failed; `host_agent.protocol.outcome` says how."""
        return bool(self.state["failure"][0] != FAILURE_NONE)

    @property
    def passes_under_way(self) -> int:
        """How many passes were begun and are not done."""
        return int(self.state["passes_begun"][0] - self.state["passes_done"][0])

    @property
    def has_room(self) -> bool:
        """Whether another pass can be begun."""
        return self.passes_under_way < PASS_RING

    def load(self) -> None:
        """Compile the code that `begin` runs, or load it from the cache; the core does not change."""
        state, _, passes = self.records
        begin_pass(state.copy(), passes.copy(), np.zeros(1, PASS)[0], 0)

    def begin(self, work: Pass, now_ns: int) -> None:
        """Queue a pass. Its arrays must neither be changed nor read until it is done or the core has failed.

        Raises MisuseError if the core has failed or is full.
        """
        if self.failed:
            raise MisuseError("the worker core has failed: start a new one with a new admission")
        if not self.has_room:
            raise MisuseError(f"at most {PASS_RING} passes can be under way: wait until one is done")
        state, _, passes = self.records
        given = self.admission
        record = work.lay_out(given.lanes, given.slot_count, given.header_only)
        begin_pass(state, passes, record[0], now_ns)
        self._under_way.append(work)

    def offer(self, work: Pass) -> None:
        """Contribute to a quorum chunk that was begun without this worker's contribution, unless its RESULT is there."""
        first = int(self.state["passes_begun"][0]) - len(self._under_way)
        for number, each in enumerate(self._under_way, first):
            if each is work:
                departures.offer(*self.records, number)

    def take_done(self) -> list[Pass]:
        """Return the passes that were done since the last call, in order, with their records up to date."""
        done = []
        passes = self.records[2]
        first = int(self.state["passes_begun"][0]) - len(self._under_way)
        for number in range(first, int(self.state["passes_done"][0])):
            work = self._under_way.popleft()
            work.record[0] = passes[number % PASS_RING]
            work.done = True
            done.append(work)
        return done

    def on_datagram(self, datagram: npt.NDArray[np.uint8], now_ns: int) -> None:
        """Take in a datagram; see `arrivals.on_datagram`."""
        state, slots, passes = self.records
        arrivals.on_datagram(state[0], slots, passes, datagram.ctypes.data, datagram.size, now_ns)

    def transmit(self, now_ns: int, tx: npt.NDArray[np.uint8], tx_bytes: npt.NDArray[np.int32]) -> int:
        """Write the datagrams that are due; see `departures.transmit`."""
        return int(departures.transmit(*self.records, now_ns, tx, tx_bytes))

    def next_timer_ns(self) -> int:
        """Return the time at which `transmit` must be called even if nothing arrives."""
        return int(departures.next_timer_ns(self.state))

    def counters(self) -> dict[str, int]:
        """Return all counters since the core was made."""
        return dict(zip(COUNTERS, self._counts.tolist(), strict=True))


def _counts_of(state: Records) -> npt.NDArray[np.int64]:
    """Return the counters of a core's state."""
    first = CORE.fields[COUNTERS[0]][1] // 8  # type: ignore[index]
    counts: npt.NDArray[np.int64] = state.view(np.int64)[first : first + len(COUNTERS)]
    return counts
