"""What a worker core sends, and when it must be asked again.

Chunks go out in order. Chunk c waits for the RESULT of c - S, whose slot it takes (S slots; this also is what keeps a
RESULT readable in the switch until all have it, across collectives), and within its pass for that of the chunk it
depends on, whose exponent or high words it needs. Both are in flight or done, so one look at a slot answers each
question.

A chunk is sent again when the timer expires (RFC 6298; the oldest few only: if nothing at all comes back, more would
add load and no information), when RESULTs of chunks sent later have overtaken it (RFC 9002, section 6.1), or when a
STATUS says that its RESULT is there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.compiled import Integer, Record, Records, Words, compiled, compiled_inline
from host_agent.packetize.blocks import block_has_lanes, has_exponents, own_exponent, write_block
from host_agent.protocol.records import (
    CONTRIBUTES_DATA,
    CONTRIBUTES_NOTHING,
    DUE_NO,
    DUE_OVERTAKEN,
    DUE_STATUS,
    DUE_TIMER,
    FAILURE_DEADLINE,
    FAILURE_NONE,
    NEVER,
    PASS_RING,
    pool_index_of,
    slot_of,
)
from host_agent.protocol.timeout import MAX_BACKOFF, PACKET_THRESHOLD, backed_off_rto_ns, overtaken_after_ns
from host_agent.wire.constants import (
    EXPONENT_ALL_ZERO,
    FLAG_LANES,
    HEADER_BYTES,
    KIND_CONTRIBUTE,
    KIND_PROBE,
    LANE_BYTES,
    VERSION,
)
from host_agent.wire.header import HEADER_WORDS, write_header

OLDEST_RETRANSMITTED: Final = 8
"""How many chunks are sent again when the timer expires."""
PROBE_AFTER: Final = 2
"""A chunk that was retransmitted this often is asked after as well."""


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
    state, slots, passes : structured arrays
        The worker core.
    now_ns : int
        The time.
    tx : uint8 array, (at least 2, row_bytes)
        Filled with a datagram a row; `row_bytes` as for `on_datagrams`.
    tx_bytes : int32 array
        Filled with their lengths.

    Returns
    -------
    int
        How many rows were filled. If that is all of them or all but one, there may be more: call again.
    """
    core = state[0]
    if core.failure != FAILURE_NONE or core.passes_done == core.passes_begun:
        return 0
    if now_ns - core.progress_ns >= core.timeout_ns:
        core.failure = FAILURE_DEADLINE
        core.failure_chunk = core.oldest_chunk
        return 0
    if core.in_flight > 0:
        _mark_overtaken(core, slots, now_ns)
        if now_ns >= core.timer_base_ns + backed_off_rto_ns(core):
            _mark_oldest(core, slots)
            core.backoff = min(core.backoff + 1, MAX_BACKOFF)
            core.timer_base_ns = now_ns
    words = tx.view(np.uint32)
    room = tx.shape[0]
    filled: Integer = np.int64(
        0
    )  # a plain 0 is a type of its own to Numba: _send_again would be compiled twice
    chunk = core.oldest_chunk
    while core.due > 0 and filled + 2 <= room and chunk < core.next_chunk:
        slot = slots[slot_of(core, chunk)]
        if slot.in_flight != 0 and slot.due != DUE_NO:
            filled += _send_again(core, passes, slot, now_ns, words, tx_bytes, filled)
        chunk += 1
    while filled < room and _may_send_next(core, slots, passes):
        _send_next(core, slots, passes, now_ns, words[filled], tx_bytes, filled)
        filled += 1
    return filled


@compiled
def next_timer_ns(state: Records) -> Integer:
    """When `transmit` must be called again even if nothing arrives; `NEVER` if nothing is under way."""
    core = state[0]
    if core.failure != FAILURE_NONE or core.passes_done == core.passes_begun:
        return NEVER
    timer_ns = min(core.timer_base_ns + backed_off_rto_ns(core), core.progress_ns + core.timeout_ns)
    return min(timer_ns, core.loss_timer_ns)


@compiled
def _mark_overtaken(core: Record, slots: Records, now_ns: int) -> None:
    core.loss_timer_ns = NEVER
    if slots[slot_of(core, core.oldest_chunk)].first_sequence > core.overtaker:
        return  # first transmissions are in order, so nothing was overtaken
    after_ns = overtaken_after_ns(core)
    for chunk in range(core.oldest_chunk, core.next_chunk):
        slot = slots[slot_of(core, chunk)]
        if slot.in_flight == 0 or slot.due != DUE_NO or slot.last_sequence >= core.overtaker:
            continue
        lost_ns = slot.last_sent_ns + after_ns
        if core.overtaker - slot.last_sequence >= PACKET_THRESHOLD or now_ns >= lost_ns:
            slot.due = DUE_OVERTAKEN
            core.due += 1
        else:
            core.loss_timer_ns = min(core.loss_timer_ns, lost_ns)


@compiled
def _mark_oldest(core: Record, slots: Records) -> None:
    marked = 0
    for chunk in range(core.oldest_chunk, core.next_chunk):
        slot = slots[slot_of(core, chunk)]
        if slot.in_flight == 0:
            continue
        if slot.due == DUE_NO:
            core.due += 1
        slot.due = DUE_TIMER
        marked += 1
        if marked == OLDEST_RETRANSMITTED:
            return


@compiled
def _send_again(
    core: Record,
    passes: Records,
    slot: Record,
    now_ns: int,
    words: npt.NDArray[np.uint32],
    tx_bytes: npt.NDArray[np.int32],
    row: int,
) -> int:
    """Retransmit a chunk, with a PROBE if it has been often; returns the number of datagrams."""
    record = passes[slot.pass_number % PASS_RING]
    probes = slot.due != DUE_STATUS and slot.retransmissions >= PROBE_AFTER
    if slot.due == DUE_OVERTAKEN:
        core.overtaken += 1
    if slot.due != DUE_STATUS:
        slot.fetched = 0
    slot.due = DUE_NO
    core.due -= 1
    slot.retransmissions += 1
    core.retransmissions += 1
    record.retransmissions += 1
    tx_bytes[row] = _write_contribution(core, record, slot, words[row])
    _sent(core, slot, now_ns, tx_bytes[row])
    if not probes:
        return 1
    _write_header(
        core, record, slot, np.int64(KIND_PROBE), np.int64(0), np.int64(EXPONENT_ALL_ZERO), words[row + 1]
    )
    tx_bytes[row + 1] = HEADER_BYTES
    core.probes += 1
    if slot.chunk == core.oldest_chunk:
        core.unanswered += 1
    core.packets_sent += 1
    core.bytes_sent += HEADER_BYTES
    return 2


@compiled
def _may_send_next(core: Record, slots: Records, passes: Records) -> bool:
    if core.sending_pass == core.passes_begun:
        return False
    chunk = core.next_chunk
    if slots[slot_of(core, chunk)].in_flight != 0:
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
) -> None:
    record = passes[core.sending_pass % PASS_RING]
    slot = slots[slot_of(core, core.next_chunk)]
    slot.chunk = core.next_chunk
    slot.in_flight = 1
    slot.pass_number = core.sending_pass
    slot.index = core.sending_index
    slot.exponent = EXPONENT_ALL_ZERO
    if has_exponents(record.coding) and slot.index < record.data_blocks:
        slot.exponent = own_exponent(record, slot.index, core.lanes)
    slot.first_sequence = core.next_sequence
    slot.first_sent_ns = now_ns
    slot.retransmissions = 0
    slot.due = DUE_NO
    slot.fetched = 0
    slot.room = 0
    if core.in_flight == 0:
        core.timer_base_ns = now_ns
    core.in_flight += 1
    core.next_chunk += 1
    core.sending_index += 1
    if core.sending_index == record.chunks:
        core.sending_pass += 1
        core.sending_index = 0
    tx_bytes[row] = _write_contribution(core, record, slot, words)
    _sent(core, slot, now_ns, tx_bytes[row])


@compiled_inline
def _sent(core: Record, slot: Record, now_ns: int, length: int) -> None:
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
    has_lanes = block >= 0 and block_has_lanes(record, block)
    if record.contributes == CONTRIBUTES_NOTHING and slot.room == 0:
        has_lanes = False
    flags = np.int64(FLAG_LANES if has_lanes else 0)
    _write_header(core, record, slot, np.int64(KIND_CONTRIBUTE), flags, slot.exponent, words)
    if not has_lanes:
        return HEADER_BYTES
    lanes = words[HEADER_WORDS : HEADER_WORDS + lane_count]
    if record.contributes == CONTRIBUTES_DATA:
        write_block(record, block, lane_count, core.headroom, lanes)
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
        record.op,
        flags,
        core.job_id,
        core.token,
        core.worker_id,
        0,
        pool_index_of(core, slot.chunk),
        slot.chunk,
        exponent,
        record.fingerprint,
    )
