"""Loss detection of a worker core, and its limit of chunks in flight after a loss.

A chunk is presumed lost at the packet threshold or the time threshold of RFC 9002, section 6.1, when RESULTs of chunks sent
later have arrived; at the probe timeout, when no RESULT at all has (the oldest few only: if other workers are late, more PROBEs
give no information); or when others near it turn out to be lost. Every chunk presumed lost is probed. If the STATUS says that
this worker's contribution is missing, or that the RESULT is in the slot, the chunk is sent again; if other workers'
contributions are missing, the chunk is probed again later, as it is without a STATUS. It is probed again at once when the
RESULT of a chunk arrives that was probed later (RFC 8985, section 6.2). The intervals grow with the time that the chunk has
waited, by the same fraction each time. That bounds how much longer a worker waits than it must, and so the delay that it causes
for the others. Doubling the intervals does not: with many workers there is always one that waits twice as long as the others,
then one that waits twice as long as that one.

The queue. One lost contribution lets all workers miss the RESULT. If all send theirs again, all but one are needless: on a link
that is busy they delay the chunks behind them. So where PROBEs show that packets queue, a chunk at a threshold is probed first.
Where they do not, the link has room, and a round trip takes as long as processes wait for a processor: the chunk is sent again
at once. The queue delays the PROBE and the retransmission, too, while the chunk S further on waits. So for a while after a loss
fewer chunks are in flight: enough for the link, not for the queue.
"""

from typing import Final

import numpy as np

from host_agent.protocol.congestion import is_gone
from host_agent.protocol.records import (
    DUE_FAST_RETRANSMIT,
    DUE_NO,
    DUE_PROBE,
    DUE_RETRANSMIT,
    NEVER,
    slot_of,
)
from host_agent.protocol.timeout import PACKET_THRESHOLD, loss_delay_ns
from netsum_common.compiled import Record, Records, compiled, compiled_inline

LEAST_QUEUE_NS: Final = 350_000  # A process waits for a processor for some tenths of a millisecond.
PTO_PROBES: Final = 2  # How many chunks are probed when no RESULT has arrived for a while,
MAX_PTO_PROBES: Final = 16  # and how many at most when PROBEs stay without an answer.
WINDOW_SHARE: Final = 4  # After a loss at least 1/n of the slots is used,
LEAST_WINDOW: Final = 24  # and at least this number of slots,
WINDOW_ROUNDS: Final = 8  # for n times as many chunks as there are slots.


@compiled_inline
def has_queue(core: Record) -> bool:
    """Return whether PROBEs take longer than the shortest by more than they differ from each other."""
    queued_ns = core.srtt_ns - core.base_ns
    least_ns = LEAST_QUEUE_NS if core.congestion == 0 else min(LEAST_QUEUE_NS, core.base_ns)
    return bool(core.measured != 0 and queued_ns > max(core.rttvar_ns, least_ns))


@compiled
def limit_window(core: Record) -> None:
    """Let fewer chunks be in flight for a while, if there is a queue: as many as pass in two round trips without it.

    As many as are in flight pass in `result_ns` (Little's law).
    """
    if core.congestion != 0 or core.result_ns == 0 or not has_queue(core):
        return
    passing = 2 * core.base_ns * core.in_flight // core.result_ns
    core.window = min(max(passing, core.slot_count // WINDOW_SHARE, LEAST_WINDOW), core.slot_count)
    core.window_ends = core.next_chunk + WINDOW_ROUNDS * core.slot_count


@compiled_inline
def window_is_full(core: Record) -> bool:
    """Return whether the window keeps the next chunk back; chunks presumed lost do not count."""
    if core.congestion != 0:
        return bool(core.flight_bytes >= core.window_bytes)
    return bool(core.next_chunk < core.window_ends and core.in_flight - core.presumed_lost >= core.window)


@compiled
def probe_oldest(core: Record, slots: Records) -> None:
    """Make PROBEs due for the few oldest chunks in flight that have none due yet.

    While PROBEs themselves are lost they are twice as many each time: a burst of losses ends after a number of packets.
    """
    most = min(max(np.int64(PTO_PROBES), core.unanswered), np.int64(MAX_PTO_PROBES))
    count = 0
    for chunk in range(core.oldest_chunk, core.next_chunk):
        slot = slots[slot_of(core, chunk)]
        if slot.in_flight == 0:
            continue
        if slot.due == DUE_NO and slot.loss_time_ns == NEVER:
            slot.due = DUE_PROBE
            core.due += 1
        count += 1
        if count == most:
            return


@compiled
def probe_more(core: Record, slots: Records) -> None:
    """Make PROBEs due for `extra_probes` more chunks among those in flight for at least a round trip."""
    for chunk in range(core.oldest_chunk, core.next_chunk):
        slot = slots[slot_of(core, chunk)]
        if slot.in_flight == 0 or slot.due != DUE_NO or slot.loss_time_ns != NEVER:
            continue
        if slot.last_sequence > core.probe_before:
            break  # first transmissions are in order
        slot.due = DUE_PROBE
        core.due += 1
        core.extra_probes -= 1
        if core.extra_probes == 0:
            return
    core.extra_probes = 0


@compiled
def detect_lost(core: Record, slots: Records, now_ns: int) -> None:
    """Detect lost chunks, and chunks whose next PROBE is due."""
    # If no chunk has a check, only those below `largest_acked` need one, and first transmissions are in order.
    none_waits = core.loss_time_ns == NEVER
    core.loss_time_ns = NEVER
    core.loss_detected_at = core.largest_acked
    after_ns = loss_delay_ns(core)
    queue = has_queue(core)
    for chunk in range(core.oldest_chunk, core.next_chunk):
        slot = slots[slot_of(core, chunk)]
        if slot.in_flight == 0 or slot.due != DUE_NO:
            continue
        due = DUE_NO
        if slot.loss_time_ns != NEVER:
            loss_time_ns = slot.loss_time_ns
            if now_ns >= loss_time_ns or slot.asked_ns + core.srtt_ns // 2 < core.recovered_ns:
                due = DUE_RETRANSMIT if slot.lost else DUE_PROBE
        elif slot.last_sequence < core.largest_acked:
            loss_time_ns = slot.last_sent_ns + after_ns
            if core.largest_acked - slot.last_sequence >= PACKET_THRESHOLD or now_ns >= loss_time_ns:
                due = DUE_PROBE if queue else DUE_FAST_RETRANSMIT
                limit_window(core)
                is_gone(core, slot)
        elif none_waits:
            break
        else:
            continue
        if due == DUE_NO:
            core.loss_time_ns = min(core.loss_time_ns, loss_time_ns)
        else:
            slot.due = due
            core.due += 1
