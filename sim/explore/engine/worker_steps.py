"""The steps of a worker: it sends, a packet arrives at it, it begins a round, dies, or joins the next epoch."""

# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.records import (
    CORE,
    DUE_NO,
    FAILURE_DEADLINE,
    FAILURE_MISMATCH,
    FAILURE_NONE,
    NEVER,
    PASS,
    PASS_RING,
    SLOT,
)
from host_agent.wire.constants import HEADER_BYTES, HEADER_OFFSET_CHUNK
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import copy_bytes, pointer
from sim.core_calls import call_begin, call_offer, call_receive, call_send
from sim.explore.engine import world as w
from sim.explore.engine.packets import add_entry, datagram_label, entry_of, intern, packet_at, write_number
from sim.explore.engine.packing import (
    LATER_NS,
    MANY_TRIES,
    NOW_NS,
    choose_sources,
    host_at,
    label_of,
    owner_of,
    pack,
    probe_sequence_of,
    quorum_chunk_at,
    relabelled,
    unpack,
)
from sim.explore.engine.step_codes import ANSWERED, QUEUE, TIRED
from sim.explore.engine.switch_steps import first_is_gone
from sim.explore.engine.views import core_of, entries_of, packet_of, passes_of, slots_of, state_of
from sim.frames import HEADERS_BYTES

_CORE_BYTES: Final = CORE.itemsize
_SLOT_RECORD_BYTES: Final = SLOT.itemsize
_PASS_BYTES: Final = PASS.itemsize


@compiled
def after_worker(world: Record, host: Integer, owner: Integer, sent: Integer) -> Integer:
    """Pack a worker after a call of its core, and put its packets into flight."""
    changed = pack(world, host, owner)
    core = core_of(world, owner)
    entries = entries_of(world)
    # Labels move when chunks are sent again or done. They become smaller, or dead, so entries may fall together.
    if world.old_count > 0:
        place = np.int64(0)
        while place < world.entry_count:
            entry = np.int64(entries[place])
            label = entry >> w.LABEL_SHIFT & 15
            if label == 0 or packet_of(world, entry >> w.PACKET_SHIFT).owner != owner:
                place += 1
                continue
            moved = relabelled(world, label)
            if moved == label or label == w.DEAD:
                place += 1
                continue
            changed = True
            place = _relabel(world, place, moved)
    for row in range(sent):
        length = frame_of_row(world, host, np.int64(row))
        probe = datagram_label(world, np.int64(w.UP), world.in_frame, length)
        label = np.int64(0)
        if probe != 0:
            label = label_of(world, probe_sequence_of(core, probe))
        number = intern(world, np.int64(w.UP), owner, host, world.in_frame, length)
        if number < 0 or world.entry_count + 8 > w.MAX_ENTRIES:
            return np.int64(w.MACHINE_ERROR)
        changed |= add_entry(world, entry_of(number, label))
    return np.int64(w.CHANGED if changed else w.NOTHING)


@compiled
def frame_of_row(world: Record, host: Integer, row: Integer) -> Integer:
    """Put headers before a datagram that a worker's core has sent, in `in_frame`; return the frame's length."""
    length = np.int64(carray(pointer(world.tx_lengths), (w.TX_ROWS,), np.int32)[row])
    templates = carray(pointer(world.headers), (world.hosts, 3, HEADERS_BYTES), np.uint8)
    frame = carray(pointer(world.in_frame), (HEADERS_BYTES,), np.uint8)
    frame[:] = templates[host, 0 if length == HEADER_BYTES else 1]
    datagram = world.tx + row * world.row_bytes
    copy_bytes(np.uintp(world.in_frame + HEADERS_BYTES), np.uintp(datagram), np.uintp(length))
    return length + HEADERS_BYTES


@compiled
def _relabel(world: Record, place: Integer, label: Integer) -> Integer:
    """Give the packet at a place another label; returns the place of the next one that has not been examined."""
    entries = entries_of(world)
    entry = np.int64(entries[place])
    copies = entry & 255
    world.entry_count -= 1
    for each in range(place, world.entry_count):
        entries[each] = entries[each + 1]
    changed = entry >> w.PACKET_SHIFT << w.PACKET_SHIFT | label << w.LABEL_SHIFT
    before = world.entry_count
    for _ in range(copies):
        add_entry(world, changed | 1)
    if label < (entry >> w.LABEL_SHIFT & 15):
        # The packet has moved before this place, or into an entry there.
        return place + (world.entry_count - before)
    return place


@compiled
def arrive_at_worker(world: Record, entry: Integer, how: Integer) -> Integer:
    """Hand a packet to the worker it is for."""
    number = entry >> w.PACKET_SHIFT
    host = packet_of(world, number).port
    state = state_of(world)
    if state[host_at(world, host)] != w.ALIVE:
        return np.int64(w.NOTHING)
    owner = unpack(world, host)
    core = core_of(world, owner)
    slots = slots_of(world, owner)
    if how & TIRED:
        for each in range(world.slots):
            slots[each].retransmissions = MANY_TRIES
    length = packet_of(world, number).length - HEADERS_BYTES
    frame = packet_at(world, number)
    copy_bytes(np.uintp(world.in_frame), np.uintp(frame), np.uintp(length + HEADERS_BYTES))
    label = entry >> w.LABEL_SHIFT & 15
    write_number(world, number, np.int64(w.DEAD) if how & ANSWERED else label, world.in_frame)
    kept = min(length, world.row_bytes)
    copy_bytes(np.uintp(world.rx), np.uintp(world.in_frame + HEADERS_BYTES), np.uintp(kept))
    carray(pointer(world.rx_length), (1,), np.int32)[0] = length
    chunk = np.int64(swap(carray(pointer(world.rx + HEADER_OFFSET_CHUNK), (1,), np.uint32)[0]))
    slot = slots[chunk & (world.slots - 1)]
    at_pass, at_index = slot.pass_number, slot.index
    words = carray(pointer(world.targets), (world.owners, world.words), np.uint32)
    for each in range(world.words):
        words[owner, each] = np.uint32(w.BEFORE)
    failure = core.failure
    receive_now(world, owner)
    if failure != FAILURE_NONE and core.chunks > 0:  # the arrays are the caller's again
        return np.int64(w.STRAY_WRITE)
    result = _check_targets(world, owner, core.chunks, at_pass, at_index)
    if result < 0:
        return result
    if core.failure == FAILURE_MISMATCH and failure == FAILURE_NONE and not _anyone_disagrees(world, owner):
        return np.int64(w.DISPUTED_FALSELY)
    return after_call(world, host, owner, how)


@compiled
def _anyone_disagrees(world: Record, owner: Integer) -> bool:
    good = carray(pointer(world.acceptable), (world.owners, world.rounds), np.uint8)
    return good[owner, :].min() == 0


@compiled
def _check_targets(
    world: Record, owner: Integer, accepted: Integer, number: Integer, index: Integer
) -> Integer:
    """Compare the core's output with the expected one: one block of one round, if it accepted a RESULT."""
    words = carray(pointer(world.targets), (world.owners, world.words), np.uint32)
    expected = carray(pointer(world.expected), (world.owners, world.words), np.uint32)
    good = carray(pointer(world.acceptable), (world.owners, world.rounds), np.uint8)
    works = carray(pointer(world.works), (world.owners, world.rounds), PASS)
    written = np.int64(-1)
    kind = np.int64(w.ORDINARY)
    sums = carray(pointer(world.sums), (1,), np.uint32)
    if accepted > 0:
        if good[owner, number] == 0:
            return np.int64(w.AGREED_FALSELY)
        if world.quorum != 0:
            kind = carray(pointer(world.kinds), (world.rounds,), np.int64)[number]
        if kind == w.QUORUM_CHUNK and not _are_contributors(world, owner, number):
            return np.int64(w.WRONG_RESULT)
        if kind == w.CONTRIBUTORS:
            passes = passes_of(world, owner)
            subset = number << world.workers | passes[number - 1].added
            sums = carray(pointer(world.sums + subset * w.ELEMENTS * 4), (w.ELEMENTS,), np.uint32)
        if index >= works[owner, number].lead and works[owner, number].payload.elements > 0:
            written = number
    for each in range(world.words):
        word = words[owner, each]
        if each // w.ELEMENTS == written:
            if word != (sums[each % w.ELEMENTS] if kind == w.CONTRIBUTORS else expected[owner, each]):
                return np.int64(w.WRONG_RESULT)
        elif word != np.uint32(w.BEFORE):
            return np.int64(w.STRAY_WRITE)
    return np.int64(w.NOTHING)


@compiled
def _are_contributors(world: Record, owner: Integer, number: Integer) -> bool:
    """Whether a quorum chunk has as many contributors as the quorum, all have contributed, and all workers know the same."""
    state = state_of(world)
    passes = passes_of(world, owner)
    added = passes[number].added
    count = np.int64(0)
    for host in range(world.hosts):
        if host == owner // world.epochs:
            offered = passes[number].offered
            announced = added
        else:
            at = quorum_chunk_at(world, np.int64(host)) + 2 * number
            offered = np.int64(state[at])
            announced = np.int64(state[at + 1])
        if announced not in (0, added):
            return False
        if added >> host & 1:
            count += 1
            if offered == 0:
                return False
    return bool(count == world.quorum and added >> world.hosts == 0)


@compiled_inline
def _records(world: Record, owner: Integer) -> tuple[Integer, Integer, Integer, Integer]:
    """Return the first arguments of the core's functions: the addresses of its records, and how many slots there are."""
    return (
        np.int64(world.cores + owner * _CORE_BYTES),
        np.int64(world.core_slots + owner * world.slots * _SLOT_RECORD_BYTES),
        np.int64(world.slots),
        np.int64(world.core_passes + owner * PASS_RING * _PASS_BYTES),
    )


@compiled
def receive_now(world: Record, owner: Integer) -> None:
    """Let an unpacked core take in the datagram in the receive row."""
    world.worker_calls += 1
    length = np.int64(carray(pointer(world.rx_length), (1,), np.int32)[0])
    call_receive(world.receive, (*_records(world, owner), np.int64(world.rx), length, np.int64(NOW_NS)))


@compiled
def send_now(world: Record, owner: Integer) -> Integer:
    """Let an unpacked core send; returns how many datagrams are in the rows."""
    world.worker_calls += 1
    return call_send(
        world.send,
        (
            *_records(world, owner),
            np.int64(world.tx),
            np.int64(world.tx_rows),
            np.int64(world.row_bytes),
            np.int64(world.tx_lengths),
            np.int64(NOW_NS),
        ),
    )


@compiled
def after_call(world: Record, host: Integer, owner: Integer, how: Integer) -> Integer:
    """Let a worker send after a call of its core, when these timers have expired, unless it sends in batches, and pack it."""
    sent = np.int64(0)
    if world.batches == 0:
        world.armed = timers_of(world, owner)
        fire(world, owner, how & world.armed)
        sent = send_now(world, owner)
    return after_worker(world, host, owner, sent)


@compiled
def timers_of(world: Record, owner: Integer) -> Integer:
    """Return the timers of an unpacked core that are armed: bit 0, no RESULT has come for a while; bit 1 + s, slot s.

    `QUEUE` is among them where it matters whether PROBEs have shown one: a chunk is behind an acknowledged one.
    """
    core = core_of(world, owner)
    slots = slots_of(world, owner)
    if core.failure != FAILURE_NONE or core.in_flight == 0:
        return np.int64(0)
    armed = np.int64(0)
    if core.pto_ns != NEVER:
        armed |= 1
    if core.loss_time_ns == NEVER and core.largest_acked <= core.loss_detected_at:
        return armed
    for number in range(world.slots):
        slot = slots[number]
        if slot.in_flight == 0:
            continue
        # A timer runs on while its slot is due: it may expire in the call in which the slot's packet is sent.
        if slot.loss_time_ns != NEVER:
            armed |= 2 << number
        elif slot.due == DUE_NO and slot.last_sequence < core.largest_acked:
            armed |= 2 << number | QUEUE
    return armed


@compiled
def drive(world: Record, host: Integer, timers: Integer) -> Integer:
    """Let a worker send, at a time when these of its timers have expired and the others have not."""
    state = state_of(world)
    if state[host_at(world, host)] != w.ALIVE:
        return np.int64(w.NOTHING)
    owner = unpack(world, host)
    fire(world, owner, timers)
    return after_worker(world, host, owner, send_now(world, owner))


@compiled
def fire(world: Record, owner: Integer, timers: Integer) -> None:
    """Set the times of an unpacked core so that these timers have expired."""
    core = core_of(world, owner)
    slots = slots_of(world, owner)
    if timers & 1:
        core.pto_ns = NOW_NS
    if timers & QUEUE:
        core.base_ns = 0
    for number in range(world.slots):
        slot = slots[number]
        if timers >> (1 + number) & 1 == 0:
            continue
        if slot.loss_time_ns != NEVER:
            slot.loss_time_ns = NOW_NS
        slot.last_sent_ns = NOW_NS - LATER_NS // 4
        if core.loss_time_ns != NEVER:
            core.loss_time_ns = NOW_NS


@compiled
def begin(world: Record, host: Integer, how: Integer) -> Integer:
    """Let a worker begin its next round."""
    state = state_of(world)
    at = host_at(world, host)
    begun, done = np.int64(state[at + w.AT_BEGUN]), np.int64(state[at + w.AT_DONE])
    if state[at + w.AT_LIFE] != w.ALIVE or state[at + w.AT_FAILURE] != FAILURE_NONE or begun >= world.rounds:
        return np.int64(w.NOTHING)
    waits = world.ahead == 0
    if world.quorum != 0:  # The reduction begins when its contributors are known.
        waits |= carray(pointer(world.kinds), (world.rounds,), np.int64)[begun] == w.CONTRIBUTORS
    if waits and begun != done:
        return np.int64(w.NOTHING)
    owner = unpack(world, host)
    world.worker_calls += 1
    call_begin(
        world.begin,
        (
            np.int64(world.cores + owner * _CORE_BYTES),
            np.int64(world.core_passes + owner * PASS_RING * _PASS_BYTES),
            np.int64(world.works + (owner * world.rounds + begun) * _PASS_BYTES),
            np.int64(NOW_NS),
        ),
    )
    if world.quorum != 0:
        choose_sources(world, host, owner)
    return after_call(world, host, owner, how)


@compiled
def quorum_chunk(world: Record, host: Integer) -> Integer:
    """Return the number of the quorum chunk that a worker has begun and that is not done, or -1."""
    state = state_of(world)
    at = host_at(world, host)
    begun = np.int64(state[at + w.AT_BEGUN])
    alive = state[at + w.AT_LIFE] == w.ALIVE and state[at + w.AT_FAILURE] == FAILURE_NONE
    if world.quorum == 0 or not alive or begun == state[at + w.AT_DONE]:
        return np.int64(-1)
    kinds = carray(pointer(world.kinds), (world.rounds,), np.int64)
    return begun - 1 if kinds[begun - 1] == w.QUORUM_CHUNK else np.int64(-1)


@compiled
def has_offered(world: Record, host: Integer, number: Integer) -> bool:
    """Whether a worker has contributed to a quorum chunk."""
    state = state_of(world)
    return bool(state[quorum_chunk_at(world, host) + 2 * number] != 0)


@compiled
def offer(world: Record, host: Integer, how: Integer) -> Integer:
    """Let a worker contribute to the quorum chunk that it has begun: its array is there."""
    number = quorum_chunk(world, host)
    if number < 0 or has_offered(world, host, number):
        return np.int64(w.NOTHING)
    owner = unpack(world, host)
    world.worker_calls += 1
    call_offer(world.offer, (*_records(world, owner), number))
    return after_call(world, host, owner, how)


@compiled
def fail(world: Record, host: Integer) -> Integer:
    """Let a worker's deadline pass."""
    state = state_of(world)
    failed = np.int64(0)
    for each in range(world.hosts):
        failed += state[host_at(world, np.int64(each)) + w.AT_FAILURE] == FAILURE_DEADLINE
    at = host_at(world, host)
    if (
        failed >= world.deadlines
        or state[at + w.AT_LIFE] != w.ALIVE
        or state[at + w.AT_FAILURE] != FAILURE_NONE
    ):
        return np.int64(w.NOTHING)
    owner = unpack(world, host)
    core = core_of(world, owner)
    core.progress_ns = NOW_NS - core.timeout_ns
    return after_worker(world, host, owner, send_now(world, owner))


@compiled
def kill(world: Record, host: Integer) -> Integer:
    """Let a worker die."""
    state = state_of(world)
    at = host_at(world, host)
    if state[w.AT_KILLS] >= world.kills or state[at + w.AT_LIFE] != w.ALIVE:
        return np.int64(w.NOTHING)
    state[w.AT_KILLS] += np.uint8(1)
    for each in range(world.host_bytes):
        slot, field = divmod(each - w.HOST_BYTES, w.SLOT_BYTES)
        # How far it was says which of its packets are finished.
        if 0 <= slot < world.slots and field == w.AT_BITS:
            state[at + each] &= np.uint8(1)
        elif each != w.AT_EPOCH and not (0 <= slot < world.slots and field == w.AT_CHUNK):
            state[at + each] = np.uint8(0)
    state[at + w.AT_LIFE] = np.uint8(w.DEAD_HOST)
    _bury_labels(world, owner_of(world, host, np.int64(state[at + w.AT_EPOCH])))
    return np.int64(w.CHANGED)


@compiled
def _bury_labels(world: Record, owner: Integer) -> None:
    entries = entries_of(world)
    place = np.int64(0)
    while place < world.entry_count:
        entry = np.int64(entries[place])
        label = entry >> w.LABEL_SHIFT & 15
        if label != 0 and label != w.DEAD and packet_of(world, entry >> w.PACKET_SHIFT).owner == owner:
            place = _relabel(world, place, np.int64(w.DEAD))
        else:
            place += 1


@compiled
def join(world: Record, host: Integer, blank: Integer) -> Integer:
    """Let a worker start again in the second epoch, once no switch has any of the first.

    The controller lets workers know of an epoch only when all switches have it. The order of its entries is safe without that.
    """
    state = state_of(world)
    at = host_at(world, host)
    if world.epochs < 2 or state[at + w.AT_EPOCH] != 0 or not first_is_gone(world):
        return np.int64(w.NOTHING)
    _bury_labels(world, owner_of(world, host, np.int64(0)))
    copy_bytes(np.uintp(world.state + at), np.uintp(blank), np.uintp(world.host_bytes))
    state[at + w.AT_EPOCH] = np.uint8(1)
    return np.int64(w.CHANGED)
