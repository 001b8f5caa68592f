"""A worker core to and from the bytes of a state.

What only times things is left out: it has no effect but on when a timer fires and a chunk is presumed lost, and both are
choices here. All that remains of time is whether a timer is armed. Sequence numbers are compared only, and their differences
only with the packet threshold; they are renumbered so that order and differences up to the threshold stay.
tests/sim/explore/core_fields.py lists every field of the core's records, and why those that are left out decide nothing.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.records import DUE_NO, DUE_RETRANSMIT, NEVER, PROBE_RING
from host_agent.protocol.timeout import REPEATS_AT_ONCE
from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import pointer
from sim.explore.engine import world as w
from sim.explore.engine.views import core_of, passes_of, slots_of, state_of

NOW_NS: Final = 1_000_000_000_000  # The time at every call of the worker core.
LATER_NS: Final = 2_000_000_000_000  # Time for which timers are armed that do not fire.
FIRST_NS: Final = NOW_NS - 1_000_000_000
SRTT_NS: Final = 1_000_000
MANY_TRIES: Final = REPEATS_AT_ONCE  # Retransmissions after which a chunk waits.


@compiled_inline
def host_at(world: Record, host: Integer) -> Integer:
    """Return where in the fixed part of a state a host's block begins."""
    return w.HEAD_BYTES + world.switch_bytes + host * world.host_bytes


@compiled_inline
def quorum_chunk_at(world: Record, host: Integer) -> Integer:
    """Return where a host has, for each round, whether it contributed to the quorum chunk, and whose are in its RESULT."""
    return host_at(world, host) + w.HOST_BYTES + world.slots * w.SLOT_BYTES + world.rounds + world.blocks * 2


@compiled
def choose_sources(world: Record, host: Integer, owner: Integer) -> None:
    """Let the reductions of contributors take a contributor's elements, or zeros, as the quorum chunk before each says."""
    kinds = carray(pointer(world.kinds), (world.rounds,), np.int64)
    sources = carray(pointer(world.sources), (world.owners, world.rounds, 2), np.int64)
    passes = passes_of(world, owner)
    for number in range(1, world.rounds):
        if kinds[number] == w.CONTRIBUTORS:
            mine = passes[number - 1].added >> (host % world.workers) & 1
            passes[number].payload.source = sources[owner, number, mine]


@compiled_inline
def tables_at(switch: Integer) -> Integer:
    """Return where in the head of a state the version of a switch's tables stands."""
    return w.AT_RESTARTS + switch if switch > 0 else np.int64(w.AT_TABLES)


@compiled_inline
def owner_of(world: Record, host: Integer, epoch: Integer) -> Integer:
    """Return the row of a host's records in an epoch."""
    return host * world.epochs + epoch


@compiled
def unpack(world: Record, host: Integer) -> Integer:
    """Put a host's block of the state that is worked on into its core's records; returns the owner."""
    state = state_of(world)
    at = host_at(world, host)
    owner = owner_of(world, host, np.int64(state[at + w.AT_EPOCH]))
    core = core_of(world, owner)
    first = world.first_chunk
    core.next_chunk = first + state[at + w.AT_NEXT]
    core.oldest_chunk = first + state[at + w.AT_OLDEST]
    core.in_flight = state[at + w.AT_IN_FLIGHT]
    core.passes_begun = state[at + w.AT_BEGUN]
    core.passes_done = state[at + w.AT_DONE]
    core.sending_pass = state[at + w.AT_PASS]
    core.sending_index = state[at + w.AT_INDEX]
    flags = np.int64(state[at + w.AT_FLAGS])
    core.loss_time_ns = np.int64(LATER_NS) if flags & 1 else np.int64(NEVER)
    core.pto_ns = np.int64(LATER_NS) if flags & 2 else np.int64(NEVER)
    core.largest_acked = state[at + w.AT_LARGEST_ACKED]
    core.loss_detected_at = core.largest_acked - (1 if flags & 4 else 0)
    core.failure = state[at + w.AT_FAILURE]
    core.next_sequence = state[at + w.AT_SEQUENCE]
    core.extra_probes = state[at + w.AT_EXTRA_PROBES]
    core.padding = flags >> 3 & 1
    core.presumed_lost = 0
    core.recovered_ns = 0
    core.probe_before = state[at + w.AT_SUSPECTS_BEFORE]
    core.due = state[at + w.AT_DUE]
    core.objections = state[at + w.AT_OBJECTIONS]
    core.failure_chunk = state[at + w.AT_FAILED_SLOT]
    core.chunks = 0
    core.progress_ns = NOW_NS
    core.measured = 1
    core.base_ns = SRTT_NS
    core.srtt_ns = SRTT_NS
    core.rttvar_ns = 0
    core.rto_ns = SRTT_NS
    core.heard_ns = -1
    core.unanswered = 0
    core.status_chunk = -1
    slots = slots_of(world, owner)
    ranks = carray(pointer(world.old_last), (16,), np.int64)
    count = np.int64(0)
    for number in range(world.slots):
        at_slot = at + w.HOST_BYTES + number * w.SLOT_BYTES
        slot = slots[number]
        slot.chunk = first + state[at_slot + w.AT_CHUNK] - 1
        if state[at_slot + w.AT_CHUNK] == 0:
            slot.chunk = -1
        bits = np.int64(state[at_slot + w.AT_BITS])
        slot.in_flight = bits & 1
        slot.due = (bits >> 1 & 3) | (bits >> 4 & 4)
        slot.loss_time_ns = np.int64(LATER_NS) if bits & 8 else np.int64(NEVER)
        slot.lost = bits >> 4 & 1
        slot.padding = bits >> 5 & 1
        slot.quorum = bits >> 7 & 1
        slot.pass_number = state[at_slot + w.AT_SLOT_PASS]
        slot.index = state[at_slot + w.AT_SLOT_INDEX]
        slot.first_sequence = state[at_slot + w.AT_FIRST]
        slot.last_sequence = state[at_slot + w.AT_LAST]
        slot.retransmissions = state[at_slot + w.AT_TRIES]
        slot.exponent = (
            np.int64(state[at_slot + w.AT_EXPONENT]) | np.int64(state[at_slot + w.AT_EXPONENT + 1]) << 8
        )
        slot.first_sent_ns = FIRST_NS
        slot.last_sent_ns = NOW_NS
        slot.asked_ns = NOW_NS
        slot.unanswered = 0
        if slot.in_flight == 0 and slot.chunk >= 0:
            _leave_used(slot)
        elif slot.in_flight != 0:
            core.presumed_lost += bits >> 3 & 1
            place = count
            while place > 0 and ranks[place - 1] > slot.last_sequence:
                ranks[place] = ranks[place - 1]
                place -= 1
            ranks[place] = slot.last_sequence
            count += 1
    world.old_count = count
    for label in range(1, world.slots + 1):
        core.probe_number[label] = label if label <= count else 0
        core.probe_sent_ns[label] = NOW_NS
        core.probe_sequence[label] = ranks[label - 1] if label <= count else 0
    core.probe = world.slots
    at_more = at + w.HOST_BYTES + world.slots * w.SLOT_BYTES
    passes = passes_of(world, owner)
    for number in range(world.rounds):
        passes[number].results = state[at_more + number]
    at_more += world.rounds
    exponents = carray(pointer(world.exponents), (world.owners, world.blocks * 2), np.uint8)
    for number in range(world.blocks * 2):
        exponents[owner, number] = state[at_more + number]
    if world.quorum != 0:
        at_more = quorum_chunk_at(world, host)
        for number in range(world.rounds):
            passes[number].offered = state[at_more + 2 * number]
            passes[number].added = state[at_more + 2 * number + 1]
        choose_sources(world, host, owner)
    return owner


@compiled_inline
def _leave_used(slot: Record) -> None:
    """Give a slot that no chunk is in flight in what chunks may have left there.

    A state holds nothing of such slots, and the next chunk begins with zeros where the core forgets to reset a field. A field
    whose zero is the harmless value has the other one here. Pass, index, sequence numbers and exponent are zero, as an older
    chunk's.
    """
    slot.due = DUE_RETRANSMIT
    slot.loss_time_ns = np.int64(LATER_NS)
    slot.lost = 1
    slot.padding = 1
    slot.retransmissions = MANY_TRIES


@compiled
def pack(world: Record, host: Integer, owner: Integer) -> bool:
    """Write a host's core into its block of the state that is worked on; returns whether the block has changed."""
    state = state_of(world)
    at = host_at(world, host)
    core = core_of(world, owner)
    slots = slots_of(world, owner)
    _rank(world, core, slots)
    first = world.first_chunk
    changed = _put(state, at + w.AT_NEXT, core.next_chunk - first)
    changed |= _put(state, at + w.AT_OLDEST, core.oldest_chunk - first)
    changed |= _put(state, at + w.AT_IN_FLIGHT, core.in_flight)
    changed |= _put(state, at + w.AT_BEGUN, core.passes_begun)
    changed |= _put(state, at + w.AT_DONE, core.passes_done)
    changed |= _put(state, at + w.AT_PASS, core.sending_pass)
    changed |= _put(state, at + w.AT_INDEX, core.sending_index)
    changed |= _put(state, at + w.AT_FAILURE, core.failure)
    changed |= _put(state, at + w.AT_DUE, core.due)
    changed |= _put(state, at + w.AT_OBJECTIONS, core.objections)
    failed_slot = np.int64(0)
    if core.objections > 0:
        failed_slot = core.failure_chunk & (world.slots - 1)  # only the slot is used
    changed |= _put(state, at + w.AT_FAILED_SLOT, failed_slot)
    armed = behind_acked = sent_before = False
    for number in range(world.slots):
        slot = slots[number]
        at_slot = at + w.HOST_BYTES + number * w.SLOT_BYTES
        changed |= _put(state, at_slot + w.AT_CHUNK, 0 if slot.chunk < 0 else slot.chunk - first + 1)
        if slot.in_flight == 0:
            changed |= _put(state, at_slot + w.AT_BITS, slot.quorum << 7)
            for each in range(w.AT_BITS + 1, w.SLOT_BYTES):
                changed |= _put(state, at_slot + each, np.int64(0))
            continue
        armed |= slot.loss_time_ns != NEVER
        idle = slot.due == DUE_NO and slot.loss_time_ns == NEVER
        behind_acked |= idle and slot.last_sequence < core.largest_acked
        sent_before |= idle and slot.last_sequence <= core.probe_before
        bits = (
            1
            | (slot.due & 3) << 1
            | slot.lost << 4
            | slot.padding << 5
            | (slot.due & 4) << 4
            | slot.quorum << 7
        )
        if slot.loss_time_ns != NEVER:
            bits |= 8
        tries = np.int64(0) if world.attrition else min(slot.retransmissions, np.int64(MANY_TRIES))
        changed |= _put(state, at_slot + w.AT_BITS, bits)
        changed |= _put(state, at_slot + w.AT_SLOT_PASS, slot.pass_number)
        changed |= _put(state, at_slot + w.AT_SLOT_INDEX, slot.index)
        changed |= _put(state, at_slot + w.AT_FIRST, _renumbered(world, slot.first_sequence))
        changed |= _put(state, at_slot + w.AT_LAST, _renumbered(world, slot.last_sequence))
        changed |= _put(state, at_slot + w.AT_TRIES, tries)
        changed |= _put(state, at_slot + w.AT_EXPONENT, slot.exponent & 255)
        changed |= _put(state, at_slot + w.AT_EXPONENT + 1, slot.exponent >> 8)
    # An expired timer without a slot to check, a check against the largest acknowledged without a chunk behind that, and extra
    # probes for which there is no chunk are dropped at the next call, without effect.
    flags = np.int64(0)
    if core.loss_time_ns != NEVER and (armed or behind_acked):
        flags |= 1
    if core.pto_ns != NEVER and core.in_flight > 0:
        flags |= 2
    if core.largest_acked > core.loss_detected_at and behind_acked:
        flags |= 4
    extra_probes = np.int64(0)
    before = np.int64(0)
    if core.extra_probes > 0 and sent_before:
        extra_probes = min(core.extra_probes, world.slots)
        before = _renumbered(world, core.probe_before)
    if core.padding != 0:
        flags |= 8
    changed |= _put(state, at + w.AT_FLAGS, flags)
    changed |= _put(state, at + w.AT_EXTRA_PROBES, extra_probes)
    changed |= _put(state, at + w.AT_SUSPECTS_BEFORE, before)
    changed |= _put(state, at + w.AT_LARGEST_ACKED, _renumbered(world, core.largest_acked))
    changed |= _put(state, at + w.AT_SEQUENCE, _renumbered(world, core.next_sequence))
    at_more = at + w.HOST_BYTES + world.slots * w.SLOT_BYTES
    passes = passes_of(world, owner)
    for number in range(world.rounds):
        changed |= _put(state, at_more + number, passes[number].results)
    at_more += world.rounds
    exponents = carray(pointer(world.exponents), (world.owners, world.blocks * 2), np.uint8)
    for number in range(world.blocks * 2):
        changed |= _put(state, at_more + number, np.int64(exponents[owner, number]))
    if world.quorum != 0:
        at_more = quorum_chunk_at(world, host)
        for number in range(world.rounds):
            changed |= _put(state, at_more + 2 * number, passes[number].offered)
            changed |= _put(state, at_more + 2 * number + 1, passes[number].added)
    return changed


@compiled_inline
def _put(state: Record, at: Integer, value: Integer) -> bool:
    byte = np.uint8(value)
    different = state[at] != byte
    state[at] = byte
    return different


@compiled
def _rank(world: Record, core: Record, slots: Record) -> None:
    """Order the transmissions of chunks in flight, and renumber all sequence numbers that are read again."""
    ranks = carray(pointer(world.new_last), (16,), np.int64)
    values = carray(pointer(world.values), (64,), np.int64)
    canon = carray(pointer(world.canon), (64,), np.int64)
    count = np.int64(0)
    total = np.int64(0)
    lowest = core.next_sequence
    for number in range(world.slots):
        slot = slots[number]
        if slot.in_flight == 0:
            continue
        if world.slots == 1:
            slot.first_sequence = slot.last_sequence  # which only counts against other slots' chunks
        count = _insert(ranks, count, slot.last_sequence)
        total = _insert(values, total, slot.first_sequence)
        total = _insert(values, total, slot.last_sequence)
        lowest = min(lowest, slot.first_sequence)
    world.new_count = count
    if core.largest_acked < lowest:
        # No chunk in flight was sent before it, and later numbers are larger.
        core.loss_detected_at += lowest - 1 - core.largest_acked
        core.largest_acked = lowest - 1
    total = _insert(values, total, core.largest_acked)
    total = _insert(values, total, core.next_sequence)
    if core.extra_probes > 0:
        total = _insert(values, total, core.probe_before)
    world.value_count = total
    canon[0] = 1
    for place in range(1, total):
        canon[place] = canon[place - 1] + min(values[place] - values[place - 1], world.gap)


@compiled
def _insert(values: Record, count: Integer, value: Integer) -> Integer:
    """Insert into a sorted array unless it is there; returns the new count."""
    place = count
    while place > 0 and values[place - 1] > value:
        place -= 1
    if place > 0 and values[place - 1] == value:
        return count
    for each in range(count, place, -1):
        values[each] = values[each - 1]
    values[place] = value
    return count + 1


@compiled
def _renumbered(world: Record, value: Integer) -> Integer:
    values = carray(pointer(world.values), (64,), np.int64)
    canon = carray(pointer(world.canon), (64,), np.int64)
    for place in range(world.value_count):
        if values[place] == value:
            return canon[place]
    return np.int64(0)


@compiled
def label_of(world: Record, sequence: Integer) -> Integer:
    """Return the label of a PROBE by its sequence number, after `pack`."""
    ranks = carray(pointer(world.new_last), (16,), np.int64)
    label = np.int64(0)
    while label < world.new_count and ranks[label] <= sequence:
        label += 1
    return label if label > 0 else np.int64(w.DEAD)


@compiled
def relabelled(world: Record, label: Integer) -> Integer:
    """Return the label after `pack` of a PROBE that had this label at `unpack`."""
    if label == 0 or label == w.DEAD:
        return label
    if label > world.old_count:
        return np.int64(w.DEAD)
    return label_of(world, carray(pointer(world.old_last), (16,), np.int64)[label - 1])


@compiled_inline
def probe_sequence_of(core: Record, number: Integer) -> Integer:
    """Return the sequence number of a PROBE that the core has just sent."""
    return core.probe_sequence[number % PROBE_RING]
