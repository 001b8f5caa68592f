"""One direction of a link: a drop-tail queue, a rate, a latency, and faults.

A packet needs one event: it departs after all packets before it, so its departure and arrival are known when it is sent. Its
wait determines the number of bytes before it in the queue.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.network.engine import dice
from sim.network.engine.engine_records import LINK, PS_PER_S
from sim.network.engine.events import ARRIVAL, next_tie, push, remove_first, replace_first
from sim.network.engine.packets import (
    ACKNOWLEDGEMENT,
    LINK_HEADER_BYTES,
    copy_packet,
    lose,
    mark,
    packet_of,
)
from sim.network.engine.scripts import DELAY, PASSES, scripted_action
from sim.network.engine.trace import LEAVES, LOST_ON_LINK, note

_BITS: Final = 8


@compiled
def send(world: Record, number: Integer, packet: Integer, at_ps: Integer) -> None:
    """Put a packet into the queue of a link at a time, which must not be before that of an earlier call.

    The packet's arrival becomes an event; a lost packet is released here. An acknowledgement that leaves its host waits for at
    most one packet: hosts send the packets of their flows in turn (RFC 8290), and acknowledgements form a flow of their own.
    """
    link = carray(pointer(world.links), (number + 1,), LINK)[number]
    described = packet_of(world, packet)
    if link.up == 0:
        link.lost_while_down += 1
        _lose(world, link, number, packet, at_ps)
        return
    if described.wire_bytes - LINK_HEADER_BYTES > link.mtu:
        link.lost_too_long += 1
        _lose(world, link, number, packet, at_ps)
        return
    start_ps = link.busy_ps
    if start_ps <= at_ps:
        start_ps = at_ps
        link.remainder = 0
    passes_others = described.kind == ACKNOWLEDGEMENT and described.urgent != 0
    if passes_others:
        described.urgent = 0
        start_ps = min(start_ps, at_ps + link.longest_packet_ps)
    wait_ps = start_ps - at_ps
    if wait_ps > link.queue_ps:
        link.lost_in_queue += 1
        _lose(world, link, number, packet, at_ps)
        return
    if wait_ps > link.longest_wait_ps:
        link.longest_wait_ps = wait_ps
    if wait_ps > link.mark_ps:
        link.marked += mark(world, packet)
    depart_ps = start_ps
    taken_ps = np.int64(0)
    if link.rate_bps > 0:
        # The remainder of the division is carried over, so that a busy link does not gain or lose time.
        bits = (described.wire_bytes + link.framing_bytes) * _BITS * PS_PER_S + link.remainder
        taken_ps = bits // link.rate_bps
        link.remainder = bits - taken_ps * link.rate_bps
        depart_ps += taken_ps
        link.busy_total_ps += taken_ps
        link.longest_packet_ps = max(link.longest_packet_ps, taken_ps)
    link.busy_ps = max(link.busy_ps, start_ps) + taken_ps
    link.packets += 1
    link.bytes += described.wire_bytes
    if link.tapped != 0 or world.trace_all != 0:
        waits = np.int64(0)
        if link.rate_bps > 0:
            waits = wait_ps // (_BITS * PS_PER_S // link.rate_bps)
        note(world, LEAVES, number, packet, start_ps, depart_ps, waits)
    arrive_ps = depart_ps + link.latency_ps
    if link.faulty != 0:
        _try_fate(world, link, number, packet, arrive_ps)
    else:
        _schedule(world, link, number, packet, arrive_ps)


@compiled
def _schedule(world: Record, link: Record, number: Integer, packet: Integer, arrive_ps: Integer) -> None:
    """Schedule a packet's arrival: append it to the packets in flight, or push an event if it is the first or overtakes them."""
    if link.first_packet == 0:
        link.first_packet = link.last_packet = packet + 1
        described = packet_of(world, packet)
        described.arrive_ps = arrive_ps
        described.next = 0
        push(world, arrive_ps, np.int64(ARRIVAL), number, packet)
        return
    last = packet_of(world, link.last_packet - 1)
    if arrive_ps < last.arrive_ps:
        push(world, arrive_ps, np.int64(ARRIVAL), number, packet)
        return
    described = packet_of(world, packet)
    described.arrive_ps = arrive_ps
    described.tie = next_tie(world, np.int64(ARRIVAL))
    described.next = 0
    last.next = packet + 1
    link.last_packet = packet + 1


@compiled
def follow(world: Record, number: Integer, packet: Integer) -> None:
    """Remove the first event, a packet's arrival, from the heap; the next packet on the link takes its place."""
    link = carray(pointer(world.links), (number + 1,), LINK)[number]
    if link.first_packet != packet + 1:
        remove_first(world)
        return
    behind = packet_of(world, packet).next
    link.first_packet = behind
    if behind == 0:
        link.last_packet = 0
        remove_first(world)
        return
    described = packet_of(world, behind - 1)
    replace_first(world, described.arrive_ps, described.tie, np.int64(ARRIVAL), number, behind - 1)


@compiled
def _lose(world: Record, link: Record, number: Integer, packet: Integer, at_ps: Integer) -> None:
    if link.tapped != 0 or world.trace_all != 0:
        note(world, LOST_ON_LINK, number, packet, at_ps, at_ps, np.int64(0))
    lose(world, packet)


@compiled
def _try_fate(world: Record, link: Record, number: Integer, packet: Integer, arrive_ps: Integer) -> None:
    """Apply a link's faults to a packet: lose, duplicate or delay it."""
    lost = False
    if link.scripted != 0:
        action, delay_ps = scripted_action(world, number, packet)
        if action != PASSES:
            if action == DELAY:
                push(world, arrive_ps + delay_ps, np.int64(ARRIVAL), number, packet)
                return
            lost = True
    if link.bursts != 0:
        link.thrown_burst += 1
        die = dice.philox(world.seed, np.int64(dice.TO_CHANGE), number, link.thrown_burst)
        if link.bad != 0:
            if die < link.to_good:
                link.bad = 0
        elif die < link.to_bad:
            link.bad = 1
    chance = link.loss_bad if link.bad != 0 else link.loss
    if chance > 0:
        link.thrown_loss += 1
        lost = lost or dice.philox(world.seed, np.int64(dice.LOSS), number, link.thrown_loss) < chance
    copies = 1
    if link.duplicate > 0:
        link.thrown_duplicate += 1
        if dice.philox(world.seed, np.int64(dice.DUPLICATE), number, link.thrown_duplicate) < link.duplicate:
            copies = 2
            link.duplicated += 1
    if lost:
        link.lost += 1
        copies -= 1
        if copies == 0:
            _lose(world, link, number, packet, arrive_ps)
            return
        if link.tapped != 0 or world.trace_all != 0:
            note(world, LOST_ON_LINK, number, packet, arrive_ps, arrive_ps, np.int64(0))
    for copy in range(copies):
        this = packet
        if copy > 0:
            this = copy_packet(world, packet)
        _schedule(world, link, number, this, arrive_ps + _delay_ps(world, link, number))


@compiled
def _delay_ps(world: Record, link: Record, number: Integer) -> Integer:
    delay_ps = np.int64(0)
    if link.jitter_ps > 0:
        link.thrown_jitter += 1
        delay_ps += _share(world, np.int64(dice.JITTER), number, link.thrown_jitter, link.jitter_ps)
    if link.straggle > 0:
        link.thrown_straggle += 2
        die = dice.philox(world.seed, np.int64(dice.STRAGGLE), number, link.thrown_straggle)
        if die < link.straggle:
            delay_ps += _share(
                world, np.int64(dice.STRAGGLE), number, link.thrown_straggle + 1, link.straggle_ps
            )
    return delay_ps


@compiled
def _share(world: Record, purpose: Integer, number: Integer, thrown: Integer, whole_ps: Integer) -> Integer:
    """Return a uniformly distributed time from 0 to below `whole_ps`, in steps of 2^-20 of it."""
    die = dice.philox(world.seed, purpose, number, thrown) >> 12
    return (whole_ps >> 20) * die + ((whole_ps & 0xFFFFF) * die >> 20)
