"""The effect of a datagram on a worker core: first a verdict, then the changes.

A RESULT counts only if it is, field by field, the answer to a chunk in flight. Every other datagram changes nothing and is
counted as

malformed
    not a RESULT or STATUS of this version and of the right size, or with values that no switch sends;
foreign
    of another job, epoch (token), worker or collective;
duplicate
    the RESULT of a chunk that already had it;
stale
    the RESULT or STATUS of any other chunk that is not in flight.
"""

from typing import Final

import numpy as np
from numba import carray

from host_agent.codecs.payload import (
    block_has_lanes,
    exponent_is_possible,
    has_exponents,
    learn_exponent,
    read_block,
)
from host_agent.protocol.congestion import count_loss, count_result, frame_bytes, is_gone, take_path_time
from host_agent.protocol.records import (
    DUE_NO,
    DUE_RETRANSMIT,
    FAILURE_MISMATCH,
    FAILURE_NONE,
    NEVER,
    PASS_RING,
    PROBE_NUMBERS,
    PROBE_RING,
    is_header_only,
    pool_index_of,
    slot_of,
)
from host_agent.protocol.recovery import limit_window
from host_agent.protocol.timeout import (
    REPEATS_AT_ONCE,
    probe_again_after_ns,
    pto_after_ns,
    repeat_after_ns,
    set_loss_time,
    take_probe_time,
    take_result_time,
)
from host_agent.wire.constants import (
    COMPLETER_UNKNOWN,
    EXPONENT_ALL_ZERO,
    FLAG_CONGESTED,
    FLAG_LANES,
    FLAG_MISMATCH,
    HEADER_BYTES,
    KIND_RESULT,
    KIND_STATUS,
    LANE_BYTES,
    OP_BOR,
    OP_SUM,
    VERSION,
)
from host_agent.wire.header import HEADER_WORDS, STATUS_DATAGRAM_BYTES, read_header, swap
from netsum_common.compiled import Integer, Record, Records, Words, compiled, compiled_inline
from netsum_common.memory import pointer

CHUNK_MASK: Final = 0xFFFFFFFF
EXTRA_PROBES_PER_LOSS: Final = 2  # Chunks probed when one loss is detected: losses come in bursts.
MALFORMED, FOREIGN, STALE, DUPLICATE, DISPUTED, ACCEPTED = range(6)
"""Verdicts on a datagram. DISPUTED: a MISMATCH of this job."""

WAITING, SENT_SINCE, SENT_OFTEN, LOST = range(4)
"""Verdicts on a chunk whose PROBE was answered: other workers' contributions are missing; the chunk was sent again after the
PROBE; the chunk is lost, but was sent too often to be sent again at once; the chunk is lost."""

OBJECTIONS: Final = 8
"""Contributions to a chunk after its MISMATCH arrived. A PROBE that finds a MISMATCH leaves the slot as it was; a contribution
makes the slot disputed, and the switch sends the MISMATCH to all workers again."""


@compiled
def on_datagram(
    core: Record,
    slots: Records,
    passes: Records,
    datagram: int,
    length: int,
    now_ns: int,
) -> None:
    """Take in a datagram.

    Parameters
    ----------
    slots, passes : structured arrays
        The core's others (`WorkerCore.records`).
    length : int
        Length of the datagram in bytes.
    now_ns : int
        The time, on any clock that does not go back.
    """
    words = carray(pointer(datagram), (HEADER_WORDS + core.lanes,), np.uint32)
    core.packets_received += 1
    core.bytes_received += max(length, 0)
    if length < HEADER_BYTES:
        core.malformed += 1
        return
    header = read_header(words)
    _, kind, _, job_id, _, _, _, token, worker_id, num_workers, _, chunk, number, level, _ = header
    slot = slots[slot_of(core, chunk)]
    if not _is_well_formed(core, header, length):
        core.malformed += 1
        return
    ours = job_id == core.job_id and token == core.token and worker_id == core.worker_id
    if not ours or num_workers != core.num_workers:
        core.foreign += 1
        return
    if core.failure != FAILURE_NONE:
        core.stale += 1  # the arrays of the collective that failed are the caller's again
        return
    core.heard_ns = now_ns
    core.unanswered = 0
    if kind == KIND_RESULT:
        verdict = _verdict_on_result(core, passes, slot, words, header)
    else:
        verdict = _verdict_on_status(core, passes, slot, words, header)
    if verdict == DISPUTED:
        core.statuses += 1
        core.failure = FAILURE_MISMATCH
        core.failure_chunk = chunk
        core.objections = OBJECTIONS if _is_waiting(slot, chunk) else 0
    elif verdict == ACCEPTED and kind == KIND_RESULT:
        record = passes[slot.pass_number % PASS_RING]
        _take_payload(core, record, slot, words, header)
        last = header[14] == core.rank and core.rank != COMPLETER_UNKNOWN
        _note_progress(core, record, slot, last, now_ns)
        if core.congestion != 0:
            count_result(core, slot.chunk, header[2] & FLAG_CONGESTED != 0, now_ns)
        _retire(core, slots, passes, record, slot)
    elif verdict == ACCEPTED:
        _on_status(core, passes[slot.pass_number % PASS_RING], slot, words, level, number, now_ns)
    elif verdict == MALFORMED:
        core.malformed += 1
    elif verdict == FOREIGN:
        core.foreign += 1
    elif verdict == STALE:
        core.stale += 1
    else:
        core.duplicates += 1


@compiled_inline
def _is_well_formed(core: Record, header: tuple[int, ...], length: int) -> bool:
    """Return whether a switch sends packets of this form and length."""
    version, kind, flags, _, quorum, op, _, _, _, _, pool_index, chunk, _, level, _ = header
    known = version == VERSION and OP_SUM <= op <= OP_BOR
    if kind == KIND_RESULT:
        flags &= ~FLAG_CONGESTED
        expected = STATUS_DATAGRAM_BYTES if quorum != 0 else HEADER_BYTES
        known &= level == 0 and (
            (flags == 0 and length == expected)
            or (flags == FLAG_LANES and quorum == 0 and length == HEADER_BYTES + LANE_BYTES * core.lanes)
        )
    else:
        known &= (
            kind == KIND_STATUS
            and length == STATUS_DATAGRAM_BYTES
            and flags & ~FLAG_MISMATCH == 0
            and level < core.levels
        )
    known &= pool_index == pool_index_of(core, chunk)
    return bool(known)


@compiled_inline
def is_quorum(core: Record, workers: Integer) -> bool:
    """Return whether this is the bitmap of a quorum of the job's workers."""
    count = np.int64(0)
    rest = workers
    while rest != 0:
        rest &= rest - 1
        count += 1
    return bool(workers & ~core.path_mask[0] == 0 and count == core.quorum)


@compiled_inline
def _is_waiting(slot: Record, chunk: Integer) -> bool:
    return bool(slot.in_flight != 0 and slot.chunk & CHUNK_MASK == chunk)


@compiled_inline
def _carries_exponent(record: Record, index: Integer) -> bool:
    return bool(has_exponents(record.payload) and index < record.payload.data_blocks)


@compiled
def _verdict_on_result(
    core: Record, passes: Records, slot: Record, words: Words, header: tuple[int, ...]
) -> Integer:
    _, _, flags, _, quorum, op, fingerprint, _, _, _, _, chunk, exponent, _, _ = header
    if slot.chunk < 0 or slot.chunk & CHUNK_MASK != chunk:
        return np.int64(STALE)
    if slot.in_flight == 0:
        return np.int64(DUPLICATE)
    record = passes[slot.pass_number % PASS_RING]
    if op != record.op or fingerprint != record.fingerprint:
        return np.int64(FOREIGN)
    possible = exponent == slot.exponent
    if _carries_exponent(record, slot.index):
        possible = exponent_is_possible(record.payload, exponent, slot.exponent)
    possible &= quorum == record.quorum
    if quorum != 0:
        possible &= is_quorum(core, np.int64(swap(words[HEADER_WORDS])))
    block = slot.index - record.lead
    has_lanes = block >= 0 and block_has_lanes(record.payload, block)
    came = flags & FLAG_LANES != 0
    may_be_cut = has_lanes and is_header_only(record, block)
    if not possible or (has_lanes != came and not may_be_cut):
        return np.int64(MALFORMED)
    return np.int64(ACCEPTED)


@compiled_inline
def _take_payload(core: Record, record: Record, slot: Record, words: Words, header: tuple[int, ...]) -> None:
    """Let the codec read the exponent and the lanes of a RESULT."""
    flags, quorum, exponent, completer = header[2], header[4], header[12], header[14]
    core.completed += completer == core.rank and completer != COMPLETER_UNKNOWN
    core.congested += flags & FLAG_CONGESTED != 0
    record.added = np.int64(swap(words[HEADER_WORDS])) if quorum != 0 else np.int64(0)
    if _carries_exponent(record, slot.index):
        learn_exponent(record.payload, slot.index, exponent)
    block = slot.index - record.lead
    if block < 0:
        return
    if not block_has_lanes(record.payload, block):
        read_block(record.payload, block, core.lanes, core.headroom, words[:0])
    elif not is_header_only(record, block):  # Lanes that are not needed are not read.
        lanes = words[HEADER_WORDS : HEADER_WORDS + core.lanes]
        read_block(record.payload, block, core.lanes, core.headroom, lanes)


@compiled_inline
def _note_progress(core: Record, record: Record, slot: Record, last: bool, now_ns: int) -> None:
    """Count a RESULT, and let it move the timers; `last`: it answers this worker's contribution."""
    core.chunks += 1
    core.progress_ns = now_ns
    core.asked = 0
    core.answered = 0
    core.pto_ns = now_ns + pto_after_ns(core, np.int64(0))
    # To the RESULT of a quorum chunk this worker need not have contributed.
    if slot.retransmissions == 0 and record.quorum == 0:
        take_result_time(core, now_ns - slot.first_sent_ns)
        if last and core.congestion != 0:
            take_probe_time(core, now_ns - slot.first_sent_ns)
            take_path_time(core, now_ns - slot.first_sent_ns)
            if slot.frame_bytes == frame_bytes(core, True):
                core.path_ns = min(core.path_ns, now_ns - slot.first_sent_ns)
    # The first transmission even if there were more: which one the RESULT answers is not known, and to take it for a
    # later one than it was would put chunks beyond the packet threshold that are not.
    core.largest_acked = max(core.largest_acked, slot.first_sequence)
    is_gone(core, slot)
    if slot.loss_time_ns != NEVER:
        core.presumed_lost -= 1
        core.recovered_ns = max(core.recovered_ns, slot.asked_ns)
        core.loss_time_ns = now_ns


@compiled_inline
def _retire(core: Record, slots: Records, passes: Records, record: Record, slot: Record) -> None:
    """Take a chunk out of those in flight."""
    slot.in_flight = 0
    core.in_flight -= 1
    if slot.due != DUE_NO:
        slot.due = DUE_NO
        core.due -= 1
    while core.oldest_chunk < core.next_chunk:
        oldest = slots[slot_of(core, core.oldest_chunk)]
        if oldest.in_flight != 0 and oldest.chunk == core.oldest_chunk:
            break
        core.oldest_chunk += 1
    record.results += 1
    while core.passes_done < core.passes_begun:
        first = passes[core.passes_done % PASS_RING]
        if first.results < first.chunks:
            break
        core.passes_done += 1


@compiled
def _verdict_on_status(
    core: Record, passes: Records, slot: Record, words: Words, header: tuple[int, ...]
) -> Integer:
    _, _, flags, _, quorum, op, fingerprint, _, _, _, _, chunk, _, level, _ = header
    waiting = _is_waiting(slot, chunk)
    if flags == FLAG_MISMATCH:
        # A MISMATCH goes to the whole job and may come before this worker has begun the collective concerned.
        ahead = (chunk - core.next_chunk) & CHUNK_MASK
        return np.int64(DISPUTED if waiting or ahead < 2 * core.slot_count else STALE)
    if np.int64(swap(words[HEADER_WORDS])) & ~core.path_mask[level] != 0:
        return np.int64(MALFORMED)
    if not waiting:
        return np.int64(STALE)
    record = passes[slot.pass_number % PASS_RING]
    agrees = quorum == record.quorum and op == record.op and fingerprint == record.fingerprint
    return np.int64(ACCEPTED if agrees else FOREIGN)


@compiled_inline
def _verdict_on_loss(core: Record, slot: Record, probe: Integer, level: Integer, known: bool) -> Integer:
    """Judge a chunk by the answer to its PROBE.

    Packets are answered in the order in which they were sent: a packet that was sent before the PROBE and is not there is lost. A
    retransmission of this worker gets up to level `reach`; above, that of another worker, which gets the same STATUS.
    """
    if not known or level > core.reach:
        return np.int64(WAITING)
    if slot.last_sequence > core.probe_sequence[probe]:
        return np.int64(SENT_SINCE)
    if slot.retransmissions >= REPEATS_AT_ONCE:
        return np.int64(SENT_OFTEN)
    return np.int64(LOST)


@compiled_inline
def _needs_padding(core: Record, slot: Record, level: Integer, full: bool) -> bool:
    """Return whether the switch at a level lacks lanes for the RESULT that this worker has not sent along.

    Lanes that a switch below the root lacks must get past it. Once is enough.
    """
    return full and min(level + 1, core.levels - 1) <= core.reach and slot.padding == 0


@compiled
def _on_status(
    core: Record, record: Record, slot: Record, words: Words, level: Integer, number: Integer, now_ns: int
) -> None:
    """Let a STATUS about a chunk in flight decide whether the chunk is sent again."""
    seen = np.int64(swap(words[HEADER_WORDS]))
    slot_chunk = np.int64(swap(words[HEADER_WORDS + 1]))
    core.statuses += 1
    slot.unanswered = 0
    if slot.chunk == core.oldest_chunk:
        core.status_chunk = slot.chunk
        core.status_level = level
        core.status_seen = seen
        core.status_slot_chunk = slot_chunk
        core.status_ns = now_ns
    held = slot_chunk == slot.chunk & CHUNK_MASK
    full = held and seen == core.path_mask[level]
    missing = not held or seen >> core.path_worker[level] & 1 == 0
    if record.quorum != 0:
        full = held and is_quorum(core, seen)
        missing &= record.offered != 0
    probe = number % PROBE_RING
    if number != EXPONENT_ALL_ZERO and core.probe_number[probe] == number:
        core.probe_number[probe] = 0
        core.answered += 1
        take_probe_time(core, now_ns - core.probe_sent_ns[probe])
        if core.congestion != 0:
            take_path_time(core, now_ns - core.probe_sent_ns[probe])
        verdict = _verdict_on_loss(core, slot, probe, level, full or missing)
        if verdict != SENT_SINCE:
            is_gone(core, slot)
        if verdict == WAITING:
            after_ns = probe_again_after_ns(core, now_ns - slot.first_sent_ns)
            set_loss_time(core, slot, core.probe_sent_ns[probe] + after_ns)
        elif verdict == SENT_OFTEN:
            slot.lost = 1
            set_loss_time(core, slot, slot.last_sent_ns + repeat_after_ns(core, slot.retransmissions))
        if verdict != LOST:
            return
        core.extra_probes += EXTRA_PROBES_PER_LOSS
        limit_window(core)
        if core.congestion != 0:
            count_loss(core, slot.chunk, now_ns)
        core.probe_before = core.probe_sequence[probe]
    else:  # One that comes unasked says that the switch could not grow the packet into the RESULT.
        asked = number != EXPONENT_ALL_ZERO and number <= PROBE_NUMBERS
        if full and not asked:
            core.padding = 1
        if not _needs_padding(core, slot, level, full):
            return
    if full or level > 0:
        slot.padding = 1  # also where the switch below has lanes that must go up
    if slot.due == DUE_NO:
        core.due += 1
    slot.due = DUE_RETRANSMIT
