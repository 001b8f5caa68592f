"""The datagrams that a worker core sends, and its next timer.

Chunks go out in order. Chunk c waits for the RESULT of c - S, whose slot it takes (S slots; this also is what keeps a RESULT
readable in the switch until all have it, across collectives), and within its pass for that of the chunk it depends on, whose
exponent or high words it needs. Both are in flight or done, so the slot's state is sufficient. Where chunk c - S was that of a
quorum chunk, which not all workers had to contribute to, c waits for the RESULT of c - S + 1 too.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.payload import block_has_lanes, has_exponents, is_absent, own_exponent, write_block
from host_agent.protocol.congestion import frame_bytes, leaves
from host_agent.protocol.records import (
    CONTRIBUTES_DATA,
    CONTRIBUTES_NOTHING,
    DUE_FAST_RETRANSMIT,
    DUE_NO,
    DUE_OFFER,
    DUE_PROBE,
    FAILURE_DEADLINE,
    FAILURE_NONE,
    NEVER,
    PASS_RING,
    PROBE_NUMBERS,
    PROBE_RING,
    has_data,
    is_header_only,
    pool_index_of,
    slot_of,
)
from host_agent.protocol.recovery import detect_lost, probe_more, probe_oldest, window_is_full
from host_agent.protocol.timeout import pto_after_ns, repeat_after_ns, set_loss_time
from host_agent.wire.constants import (
    COMPLETER_UNKNOWN,
    FLAG_HEADER_ONLY,
    FLAG_LANES,
    HEADER_BYTES,
    KIND_CONTRIBUTE,
    KIND_PROBE,
    LANE_BYTES,
    VERSION,
)
from host_agent.wire.header import HEADER_WORDS, write_header
from netsum_common.compiled import Integer, Record, Records, Words, borrowed, compiled, compiled_inline
from netsum_common.memory import prefetch_to_write

# Distance of the row that is prefetched for writing: a switch that has read it has it in another cache.
_ROWS_AHEAD: Final = 4


@compiled
def transmit(
    state: Records,
    slots: Records,
    passes: Records,
    now_ns: int,
    tx: npt.NDArray[np.uint8],
    tx_bytes: npt.NDArray[np.int32],
) -> Integer:
    """Write the datagrams that are to be sent now.

    Parameters
    ----------
    tx : uint8 array, (at least 2, row_bytes)
        Filled with a datagram a row; `row_bytes` is `WorkerCore.row_bytes`, or a larger multiple of 4.

    Returns
    -------
    int
        How many rows were filled. If that is all of them or all but one, there may be more: call again.
    """
    state, slots, passes, tx_bytes = borrowed(state), borrowed(slots), borrowed(passes), borrowed(tx_bytes)
    core = state[0]
    fail_at_deadline(state, now_ns)
    words = borrowed(tx).view(np.uint32)
    if core.failure != FAILURE_NONE:
        return _object(core, slots, passes, words, tx_bytes)
    if core.passes_done == core.passes_begun:
        return 0
    expired = core.in_flight > 0 and now_ns >= core.pto_ns
    if core.in_flight > 0:
        if expired:
            core.pto_ns = now_ns + pto_after_ns(core, now_ns - core.progress_ns)
            probe_oldest(core, slots)
        if core.extra_probes > 0:
            probe_more(core, slots)
        if core.largest_acked > core.loss_detected_at or now_ns >= core.loss_time_ns:
            detect_lost(core, slots, now_ns)
    rows = tx.shape[0]
    # A plain 0 is a type of its own to Numba: _send_again would be compiled twice.
    filled: Integer = np.int64(0)
    chunk = core.oldest_chunk
    while core.due > 0 and filled + 2 <= rows and chunk < core.next_chunk:
        slot = slots[slot_of(core, chunk)]
        waits = not expired and slot.due > DUE_PROBE and core.congestion != 0 and window_is_full(core)
        if slot.in_flight != 0 and slot.due != DUE_NO and not waits:
            filled += _send_again(core, passes, slot, now_ns, words, tx_bytes, filled)
        chunk += 1
    while filled < rows and _may_send_next(core, slots, passes):
        if filled + _ROWS_AHEAD < rows:
            length = HEADER_BYTES + LANE_BYTES * core.lanes
            prefetch_to_write(words[filled + _ROWS_AHEAD].ctypes.data, length)
        filled += _send_next(core, slots, passes, now_ns, words[filled], tx_bytes, filled)
    if core.congestion != 0 and core.sending_pass != core.passes_begun and window_is_full(core):
        core.round_full = 1
    return filled


@compiled
def fail_at_deadline(state: Records, now_ns: int) -> None:
    """Fail if the deadline has passed. A driver that cannot send calls this instead of `transmit`."""
    core = state[0]
    if now_ns >= deadline_ns(state):
        core.failure = FAILURE_DEADLINE
        core.failure_chunk = core.oldest_chunk


@compiled
def deadline_ns(state: Records) -> Integer:
    """Return when the core fails unless a RESULT arrives; `NEVER` if nothing is in flight."""
    core = state[0]
    if core.failure != FAILURE_NONE or core.passes_done == core.passes_begun:
        return NEVER
    return core.progress_ns + core.timeout_ns


@compiled
def _object(
    core: Record,
    slots: Records,
    passes: Records,
    words: npt.NDArray[np.uint32],
    tx_bytes: npt.NDArray[np.int32],
) -> Integer:
    """Contribute headers alone to the chunk of a MISMATCH: the arrays are the caller's again."""
    slot = slots[slot_of(core, core.failure_chunk)]
    record = passes[slot.pass_number % PASS_RING]
    filled: Integer = np.int64(0)
    while core.objections > 0 and filled < tx_bytes.size:
        _write_header(
            core, record, slot, np.int64(KIND_CONTRIBUTE), np.int64(0), slot.exponent, words[filled]
        )
        tx_bytes[filled] = HEADER_BYTES
        core.packets_sent += 1
        core.bytes_sent += HEADER_BYTES
        core.objections -= 1
        filled += 1
    return filled


@compiled
def next_timer_ns(state: Records) -> Integer:
    """Return when `transmit` must be called again even if nothing arrives; `NEVER` if nothing is in flight."""
    core = state[0]
    if core.failure != FAILURE_NONE or core.passes_done == core.passes_begun:
        return NEVER
    return min(core.pto_ns, core.loss_time_ns, deadline_ns(state))


@compiled
def _send_again(
    core: Record,
    passes: Records,
    slot: Record,
    now_ns: int,
    words: npt.NDArray[np.uint32],
    tx_bytes: npt.NDArray[np.int32],
    row: int,
) -> Integer:
    """Send a PROBE for a chunk, and the chunk itself unless only the PROBE is due; return the number of datagrams."""
    record = passes[slot.pass_number % PASS_RING]
    rows = np.int64(0)
    if slot.due == DUE_OFFER:
        slot.due = DUE_NO
        core.due -= 1
        tx_bytes[row] = _write_contribution(core, record, slot, words[row])
        _sent(core, slot, now_ns, tx_bytes[row])
        if slot.loss_time_ns != NEVER:  # its time may have come while the contribution was due
            set_loss_time(core, slot, now_ns + repeat_after_ns(core, slot.unanswered))
        return rows + 1
    if slot.due != DUE_PROBE:
        if slot.due == DUE_FAST_RETRANSMIT:
            core.fast_retransmissions += 1
        slot.lost = 0
        slot.retransmissions += 1
        core.retransmissions += 1
        record.retransmissions += 1
        tx_bytes[row] = _write_contribution(core, record, slot, words[row])
        _sent(core, slot, now_ns, tx_bytes[row])
        rows += 1
    slot.due = DUE_NO
    core.due -= 1
    set_loss_time(core, slot, now_ns + repeat_after_ns(core, slot.unanswered))
    slot.unanswered += 1
    core.probe = core.probe % PROBE_NUMBERS + 1
    probe = core.probe % PROBE_RING
    core.probe_number[probe] = core.probe
    core.probe_sequence[probe] = core.next_sequence
    core.probe_sent_ns[probe] = now_ns
    slot.asked_ns = now_ns
    _write_header(
        core,
        record,
        slot,
        np.int64(KIND_PROBE),
        np.int64(0),
        np.int64(core.probe),
        words[row + rows],
    )
    tx_bytes[row + rows] = HEADER_BYTES
    core.probes += 1
    core.asked += 1
    core.unanswered += 1
    core.next_sequence += 1
    core.packets_sent += 1
    core.bytes_sent += HEADER_BYTES
    return rows + 1


@compiled
def _may_send_next(core: Record, slots: Records, passes: Records) -> bool:
    if core.sending_pass == core.passes_begun or window_is_full(core):
        return False
    chunk = core.next_chunk
    if slots[slot_of(core, chunk)].in_flight != 0:
        return False
    if slots[slot_of(core, chunk)].quorum != 0:
        # The RESULT of a quorum chunk did not need all workers. The RESULT behind it did.
        behind = slots[slot_of(core, chunk + 1)]
        if behind.in_flight != 0 and behind.chunk == chunk + 1 - core.slot_count:
            return False
    dependency = passes[core.sending_pass % PASS_RING].dependency
    if 0 < dependency <= core.sending_index:
        needed = slots[slot_of(core, chunk - dependency)]
        if needed.in_flight != 0 and needed.chunk == chunk - dependency:
            return False
    return True


@compiled
def _send_next(
    core: Record,
    slots: Records,
    passes: Records,
    now_ns: int,
    words: Words,
    tx_bytes: npt.NDArray[np.int32],
    row: int,
) -> Integer:
    """Begin the next chunk; returns the number of datagrams, 0 for a quorum chunk that this worker has no part in yet."""
    record = passes[core.sending_pass % PASS_RING]
    slot = slots[slot_of(core, core.next_chunk)]
    slot.chunk = core.next_chunk
    slot.in_flight = 1
    slot.pass_number = core.sending_pass
    slot.index = core.sending_index
    slot.exponent = record.part
    if has_exponents(record.payload) and slot.index < record.payload.data_blocks:
        slot.exponent = own_exponent(record.payload, slot.index, core.lanes)
    slot.first_sequence = core.next_sequence
    slot.first_sent_ns = now_ns
    slot.retransmissions = 0
    slot.unanswered = 0
    slot.due = DUE_NO
    slot.loss_time_ns = NEVER
    slot.lost = 0
    slot.padding = 0
    slot.quorum = record.quorum
    block = slot.index - record.lead
    slot.frame_bytes = frame_bytes(core, block >= 0 and block_has_lanes(record.payload, block))
    slot.under_way = 0
    if core.in_flight == 0:
        core.pto_ns = now_ns + pto_after_ns(core, np.int64(0))
    core.in_flight += 1
    core.next_chunk += 1
    core.sending_index += 1
    if core.sending_index == record.chunks:
        core.sending_pass += 1
        core.sending_index = 0
    if record.quorum != 0 and record.offered == 0:
        slot.last_sequence = core.next_sequence
        slot.last_sent_ns = now_ns
        core.next_sequence += 1
        return np.int64(0)
    tx_bytes[row] = _write_contribution(core, record, slot, words)
    _sent(core, slot, now_ns, tx_bytes[row])
    return np.int64(1)


@compiled
def offer(state: Records, slots: Records, passes: Records, number: int) -> None:
    """Let this worker contribute to a quorum chunk that was begun without its contribution.

    Parameters
    ----------
    number : int
        Of the pass, counted from the core's first.
    """
    state, slots, passes = borrowed(state), borrowed(slots), borrowed(passes)
    core = state[0]
    record = passes[number % PASS_RING]
    record.offered = 1
    if number < core.passes_done or core.sending_pass <= number:
        return  # it is decided, or it has not begun, and goes out when it does
    slot = slots[slot_of(core, core.next_chunk - 1)]
    if slot.in_flight == 0 or slot.pass_number != number:
        return
    if slot.due == DUE_NO:
        core.due += 1
    slot.due = DUE_OFFER


@compiled_inline
def _sent(core: Record, slot: Record, now_ns: int, length: int) -> None:
    leaves(core, slot)
    slot.last_sequence = core.next_sequence
    slot.last_sent_ns = now_ns
    core.next_sequence += 1
    core.packets_sent += 1
    core.bytes_sent += length


@compiled
def _write_contribution(core: Record, record: Record, slot: Record, words: Words) -> Integer:
    """Write a CONTRIBUTE; returns its length."""
    lane_count = core.lanes
    block = slot.index - record.lead
    has_lanes = block >= 0 and block_has_lanes(record.payload, block)
    contributes = record.contributes
    flags = np.int64(0)
    if not has_lanes:
        pass
    elif contributes == CONTRIBUTES_DATA and (
        is_absent(record.payload, block) or not has_data(record, block)
    ):
        contributes = np.int64(CONTRIBUTES_NOTHING)
    if has_lanes and is_header_only(record, block):
        flags |= FLAG_HEADER_ONLY
        if slot.padding != 0 and core.levels == 1:
            has_lanes = False  # The slot is full: it is the RESULT that is asked for, without lanes.
    if contributes == CONTRIBUTES_NOTHING and slot.padding == 0 and core.padding == 0:
        has_lanes = False
    if has_lanes:
        flags |= FLAG_LANES
    _write_header(core, record, slot, np.int64(KIND_CONTRIBUTE), flags, slot.exponent, words)
    if not has_lanes:
        return HEADER_BYTES
    lanes = words[HEADER_WORDS : HEADER_WORDS + lane_count]
    if contributes == CONTRIBUTES_DATA:
        write_block(record.payload, block, lane_count, core.headroom, lanes)
    else:
        lanes[:] = np.uint32(0)
    return HEADER_BYTES + LANE_BYTES * lane_count


@compiled_inline
def _write_header(
    core: Record, record: Record, slot: Record, kind: Integer, flags: Integer, exponent: Integer, words: Words
) -> None:
    write_header(
        words,
        VERSION,
        kind,
        flags,
        core.job_id,
        record.quorum,
        record.op,
        record.fingerprint,
        core.token,
        core.worker_id,
        0,
        pool_index_of(core, slot.chunk),
        slot.chunk,
        exponent,
        0,
        core.rank if kind == KIND_CONTRIBUTE and slot.retransmissions == 0 else COMPLETER_UNKNOWN,
    )
