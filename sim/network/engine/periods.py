"""The state of workers and packets that fast-forward reads and changes (`sim.network.forwarding`).

A worker's state has all values on which its next steps depend: times relative to now, and numbers of chunks and transmissions
relative to the next ones. docs/simulator.md lists the omitted fields, and why no step depends on them.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import carray

from host_agent.protocol.passes import ALL_BLOCKS
from host_agent.protocol.records import CORE, COUNTERS, FAILURE_NONE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import pointer
from sim.network.engine import dice
from sim.network.engine.engine_records import LINK, NEVER, OUTPUT, PS_PER_NS, WORKER
from sim.network.engine.events import (
    ARRIVAL,
    CONTROL,
    HEAP_WORDS,
    WORKER_TIMER,
    event_kind,
    event_packet,
    event_target,
)
from sim.network.engine.packets import packet_of

Numbers = npt.NDArray[np.int64]

WORKER_WORDS: Final = 59
SLOT_WORDS: Final = 8
"""Maximum number of values that describe a worker, and each of its slots."""
IRREGULAR: Final = -1

COUNTS: Final = len(COUNTERS) + 1  # A core's counters, and the busy time of its host.
CHUNKS: Final = COUNTERS.index("chunks")
_COUNTS_AT: Final = int(CORE.fields[COUNTERS[0]][1])  # type: ignore[index]
_NONE_YET: Final = NEVER - 1


@compiled_inline
def _since(value: Integer, now: Integer) -> Integer:
    """Return a time relative to now; `NEVER` and "none yet" are returned unchanged."""
    if value == NEVER:
        return value
    return np.int64(_NONE_YET) if value < 0 else value - now


@compiled_inline
def _parts(world: Record, number: Integer) -> tuple[Record, Record, Record]:
    """Return a worker, its core, and the pass whose chunks it sends."""
    worker = carray(pointer(world.workers), (number + 1,), WORKER)[number]
    core = carray(pointer(worker.core), (1,), CORE)[0]
    passes = carray(pointer(worker.passes), (PASS_RING,), PASS)
    return worker, core, passes[core.sending_pass % PASS_RING]


@compiled
def describe_workers(worlds: Any, numbers: Numbers, out: Numbers) -> Integer:
    """Write the state of workers; return the number of values, or `IRREGULAR` if a state cannot repeat, as after a loss."""
    world, at = worlds[0], np.int64(0)
    now_ns = world.now_ps // PS_PER_NS
    for number in numbers:
        worker, core, work = _parts(world, number)
        begins, index = work.lead, core.sending_index
        ends = work.payload.data_blocks
        steady = worker.alive != 0 and worker.deaf == 0 and core.failure == FAILURE_NONE
        steady = (
            steady and core.extra_probes == 0 and core.due == 0 and core.status_chunk != core.oldest_chunk
        )
        steady = steady and core.next_chunk >= core.window_ends
        steady = steady and core.sending_pass == core.passes_done and core.sending_pass < core.passes_begun
        steady = steady and work.quorum == 0 and work.payload.encode != 0 and begins <= index < ends
        # A pass whose worker sends or needs the lanes of a part of the array changes at that part's ends.
        steady = steady and work.header_only_from == 0 and work.data_from == 0
        steady = steady and work.header_only_to % ALL_BLOCKS[1] == 0 and work.data_to % ALL_BLOCKS[1] == 0
        if not steady or work.chunks != begins + ends:
            return np.int64(IRREGULAR)
        for value in (
            max(worker.busy_ps - world.now_ps, np.int64(0)),
            core.next_chunk & (2 * core.slot_count - 1),
            core.oldest_chunk - core.next_chunk,
            core.in_flight,
            core.passes_begun - core.passes_done,
            work.results - index,
            work.retransmissions,
            work.op,
            work.fingerprint,
            begins,
            work.dependency,
            work.header_only_to,
            work.data_to,
            core.srtt_ns,
            core.rttvar_ns,
            core.rto_ns,
            core.measured,
            core.max_rto_ns,
            core.base_ns,
            core.result_ns,
            core.min_result_ns,
            core.max_result_ns,
            core.largest_acked - core.next_sequence,
            core.loss_detected_at - core.next_sequence,
            _since(core.loss_time_ns, now_ns),
            _since(core.pto_ns, now_ns),
            _since(core.progress_ns, now_ns),
            _since(core.heard_ns, now_ns),
            core.probe,
            core.unanswered,
            core.asked,
            core.answered,
            core.flight_bytes,
            core.window_bytes,
            core.threshold_bytes,
            core.largest_bytes,
            _since(core.largest_ns, now_ns),
            core.competes,
            core.path_ns,
            core.starting,
            core.trimming,
            max(core.recover_chunk, core.oldest_chunk) - core.next_chunk,
            core.counted_lost,
            core.counted,
            core.jitter_ns,
            core.marked_share,
            (core.round_end - core.next_chunk) * core.congestion,
            core.round_least_ns,
            core.round_total_ns,
            core.round_samples,
            core.round_lost,
            core.round_marked,
            core.round_results,
            core.round_full,
            core.trial_rounds,
            core.trial_wait,
            core.trial_ns,
            core.trial_bytes,
            core.doubts,
        ):
            out[at] = value
            at += 1
        slots = carray(pointer(worker.slots), (worker.slot_count,), SLOT)
        for place in range(worker.slot_count):
            slot = slots[place]
            out[at] = slot.chunk - core.next_chunk
            out[at + 1] = slot.in_flight
            at += 2
            if slot.in_flight == 0:
                continue
            troubled = (
                slot.retransmissions + slot.unanswered + slot.due + slot.lost + slot.padding + slot.quorum
            )
            elsewhere = slot.pass_number != core.sending_pass or not begins <= slot.index < ends
            if troubled != 0 or slot.loss_time_ns != NEVER or elsewhere:
                return np.int64(IRREGULAR)
            out[at] = slot.index - index
            out[at + 1] = slot.first_sequence - core.next_sequence
            out[at + 2] = slot.last_sequence - core.next_sequence
            out[at + 3] = slot.first_sent_ns - now_ns
            out[at + 4] = slot.last_sent_ns - now_ns
            out[at + 5] = slot.under_way
            at += 6
    return at


@compiled
def blocks_left(worlds: Any, numbers: Numbers, out: Numbers) -> None:
    """Write for each worker the number of data chunks that it has yet to begin in its pass; 0 without a pass."""
    for at, number in enumerate(numbers):
        _, core, work = _parts(worlds[0], number)
        out[at] = np.int64(0)
        if core.sending_pass < core.passes_begun:
            out[at] = max(work.payload.data_blocks - core.sending_index, np.int64(0))


@compiled
def count_workers(worlds: Any, numbers: Numbers, out: Any) -> None:
    """Write the counts of each worker: the counters of its core, and the busy time of its host."""
    for at, number in enumerate(numbers):
        worker, _, _ = _parts(worlds[0], number)
        out[at, : COUNTS - 1] = carray(pointer(worker.core + _COUNTS_AT), (COUNTS - 1,), np.int64)
        out[at, COUNTS - 1] = worker.busy_total_ps


@compiled
def skip_workers(worlds: Any, numbers: Numbers, more: Any, shift_ps: Integer) -> None:
    """Advance workers by a time, and reduce the blocks that are left of their passes.

    `more`: the growth of each counter in that time.
    """
    world, shift_ns = worlds[0], shift_ps // PS_PER_NS
    outputs = carray(pointer(world.outputs), (world.output_count,), OUTPUT)
    for at, number in enumerate(numbers):
        worker, core, work = _parts(world, number)
        counts = carray(pointer(worker.core + _COUNTS_AT), (COUNTS - 1,), np.int64)
        for each in range(COUNTS - 1):
            counts[each] += more[at, each]
        worker.busy_total_ps += more[at, COUNTS - 1]
        worker.busy_ps += shift_ps
        if worker.timer_ps != NEVER:
            worker.timer_ps += shift_ps
        if core.loss_time_ns != NEVER:
            core.loss_time_ns += shift_ns
        core.pto_ns += shift_ns
        core.progress_ns += shift_ns
        if core.heard_ns >= 0:
            core.heard_ns += shift_ns
        if core.largest_ns >= 0:
            core.largest_ns += shift_ns
        slots = carray(pointer(worker.slots), (worker.slot_count,), SLOT)
        for place in range(worker.slot_count):
            slots[place].first_sent_ns += shift_ns
            slots[place].last_sent_ns += shift_ns
        blocks = more[at, CHUNKS]
        work.chunks -= blocks
        work.payload.data_blocks -= blocks
        if worker.checked != 0:
            for output in outputs:
                if output.target == work.payload.target:
                    carray(pointer(output.blocks), (worker.rank + 1,), np.int64)[worker.rank] += blocks


@compiled
def packets_under_way(worlds: Any, group_of_link: Any, group: Integer, out: Any) -> tuple[Integer, Integer]:
    """Write (time of arrival, tie, link, packet) of the packets on a group's links, in any order.

    Returns the number of packets, and the time of Python's first event.
    """
    world, count, control_ps = worlds[0], np.int64(0), np.int64(NEVER)
    heap = carray(pointer(world.heap), (world.heap_count, HEAP_WORDS), np.int64)
    for at in range(world.heap_count):
        what = heap[at, 2]
        if event_kind(what) == CONTROL:
            control_ps = min(control_ps, heap[at, 0])
        if event_kind(what) != ARRIVAL or group_of_link[event_target(what)] != group:
            continue
        number, packet = event_target(what), event_packet(what)
        out[count, 0], out[count, 1], out[count, 2], out[count, 3] = heap[at, 0], heap[at, 1], number, packet
        count += 1
        if carray(pointer(world.links), (number + 1,), LINK)[number].first_packet != packet + 1:
            continue
        behind = packet_of(world, packet).next
        while behind != 0:
            described = packet_of(world, behind - 1)
            out[count, 0], out[count, 1] = described.arrive_ps, described.tie
            out[count, 2], out[count, 3] = number, behind - 1
            count += 1
            behind = described.next
    return count, control_ps


@compiled
def shift_events(
    worlds: Any, group_of_link: Any, group_of_worker: Any, group: Integer, shift_ps: Integer
) -> None:
    """Delay a group's events in the heap; the caller must restore the heap's order afterwards."""
    world = worlds[0]
    heap = carray(pointer(world.heap), (world.heap_count, HEAP_WORDS), np.int64)
    for at in range(world.heap_count):
        kind, target = event_kind(heap[at, 2]), event_target(heap[at, 2])
        arrives = kind == ARRIVAL and group_of_link[target] == group
        if arrives or (kind == WORKER_TIMER and group_of_worker[target] == group):
            heap[at, 0] += shift_ps


@compiled
def next_loss(seed: Integer, link: Integer, thrown: Integer, chance: Integer, most: Integer) -> Integer:
    """Return the number of the first packet after `thrown` that a link loses; ``thrown + most + 1`` if none before is lost."""
    for number in range(thrown + 1, thrown + most + 1):
        if dice.philox(seed, np.int64(dice.LOSS), link, number) < chance:
            return np.int64(number)
    return thrown + most + 1
