"""A reliable transport for peers: packets with a window, acknowledged one by one.

The model, after RFC 5681 (congestion control), RFC 6298 (timer) and RFC 9002 (loss detection):

- every other packet is acknowledged (RFC 5681, section 4.2); an acknowledgement names the packet, its transmission, and the
  first missing packet; a packet that is out of order, marked, or the last in the sender's window is acknowledged at once;
- an acknowledgement waits for at most one packet of its host, as with fair queueing at hosts (RFC 8290);
- a packet is lost when a transmission three or more after its own was acknowledged (RFC 9002, section 6.1.1);
- slow start, then one packet more per round trip; all losses or marks of a window halve it once (RFC 5681, RFC 3168); the
  windows of background flows are those of `sim.network.engine.tcp`;
- a timer after RFC 6298; when it expires, all outstanding packets count as lost, and the window becomes one packet.

There is no handshake, no timer delays an acknowledgement, and a flow that pauses keeps its window: all three favour the
peers. A message on a flow is delivered when all its packets and those before it have arrived; messages that wait only for it
then become ready, by which `sim.peers` describe a collective. Messages may take turns at a place, such as a processor: one
message is delivered when its turn begins, and a later message ends the turn.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import pointer
from sim.network.engine.engine_records import FLOW, LINK, MESSAGE, NODE, PACKET, PLACE, RING, STALL
from sim.network.engine.events import CONTROL, FLOW_TIMER, MESSAGE_READY, push
from sim.network.engine.links import send
from sim.network.engine.packets import ACKNOWLEDGEMENT, SEGMENT, packet_of, release, take_packet
from sim.network.engine.tcp import LEAST_WINDOW, PER_PACKET, grow, host_queue_is_full, shrink, take_marks
from sim.network.engine.ways import link_towards

PACKET_THRESHOLD: Final = 3  # kPacketThreshold of RFC 9002.
WITHIN_HOST: Final = -1
TO_PYTHON: Final = -2
"""Values of a message's `flow`: the message stays within its host; Python acts when it is ready (`bytes`: the CONTROL event)."""
TAKES_TURN: Final = -3
"""Value of a message's `flow`: the message takes a turn at place `last_number`, once no message has a turn there or at place
`bytes`. Places are numbered from 1; 0: no place."""
_SENT: Final = -4  # Value of a message's `flow` once its last packet was sent; its next event ends a turn.
RING_ACKNOWLEDGED: Final = -1
_RING_LOST: Final = -2
_MOST_BACKOFF: Final = 6
_PERCENT: Final = 100


@compiled_inline
def _flow_of(world: Record, number: Integer) -> Record:
    return carray(pointer(world.flows), (number + 1,), FLOW)[number]


@compiled_inline
def _message_of(world: Record, number: Integer) -> Record:
    return carray(pointer(world.messages), (number + 1,), MESSAGE)[number]


@compiled_inline
def _place_of(world: Record, flow: Integer, number: Integer) -> Record:
    """Return the entry of a packet in its flow's ring."""
    at = flow * world.flow_window + (number & (world.flow_window - 1))
    return carray(pointer(world.flow_rings), (at + 1,), RING)[at]


@compiled
def host_work(world: Record, node: Integer, wire_bytes: Integer) -> Integer:
    """Occupy a host with a packet; return the time at which the host has handled it."""
    host = carray(pointer(world.nodes), (node + 1,), NODE)[node]
    cost_ps = (host.packet_ps + wire_bytes * host.byte_ps) * host.slower // _PERCENT
    host.busy_ps = max(host.busy_ps, world.now_ps) + cost_ps
    return host.busy_ps


# Messages.


@compiled
def on_message_ready(world: Record, number: Integer) -> None:
    """Put a message on its flow; deliver a message within a host at once."""
    message = _message_of(world, number)
    if message.flow < 0:
        if message.flow == TO_PYTHON:
            push(world, world.now_ps, np.int64(CONTROL), np.int64(0), message.bytes)
        elif message.flow == TAKES_TURN:
            _take_turns(world, number)
            return
        elif message.flow == _SENT:
            _end_turn(world, message.frees)
            return
        _delivered(world, number)
        _end_turn(world, message.frees)
        return
    flow = _flow_of(world, message.flow)
    packets = max((message.bytes + flow.segment_bytes - 1) // flow.segment_bytes, 1)
    flow.end_number += packets
    flow.bytes += message.bytes
    message.last_number = flow.end_number - 1
    message.next = -1
    if flow.last_message >= 0:
        _message_of(world, flow.last_message).next = number
    flow.last_message = number
    if flow.sending < 0:
        flow.sending = number
    if flow.delivering < 0:
        flow.delivering = number
    _send_what_may_be(world, message.flow)


@compiled
def _delivered(world: Record, number: Integer) -> None:
    """Note that a message is delivered, and schedule the messages that waited only for it."""
    message = _message_of(world, number)
    message.done_ps = world.now_ps
    world.messages_left -= 1
    last = message.first_successor + message.successor_count
    successors = carray(pointer(world.successors), (last,), np.int32)
    for at in range(message.first_successor, last):
        following = np.int64(successors[at])
        other = _message_of(world, following)
        other.waits_for -= 1
        if other.waits_for == 0:
            push(world, world.now_ps + other.delay_ps, np.int64(MESSAGE_READY), np.int64(0), following)


# Turns.


@compiled_inline
def _place(world: Record, number: Integer) -> Record:
    return carray(pointer(world.places), (number,), PLACE)[number - 1]


@compiled
def _take_turns(world: Record, number: Integer) -> None:
    """Let a message begin or join its line; if it is in a line already, let the first message there that can begin."""
    message = _message_of(world, number)
    line_number = _place(world, max(message.bytes, message.last_number)).line
    line = _place(world, line_number)
    if message.next < 0:
        if line.freed == 0 and _begins(world, number):
            return
        message.next = 0
        if line.first > 0:
            _message_of(world, line.last - 1).next = number + 1
        else:
            line.first = number + 1
        line.last = number + 1
        return
    freed, before, at = line.freed, np.int64(0), line.first
    line.freed = 0
    while at > 0:
        following = _message_of(world, at - 1).next
        if _begins(world, at - 1):
            if before > 0:
                _message_of(world, before - 1).next = following
            else:
                line.first = following
            if following == 0:
                line.last = before
            if _message_of(world, at - 1).last_number != freed:
                _wake(world, line_number, freed)
            return
        before, at = at, following


@compiled
def _begins(world: Record, number: Integer) -> bool:
    """Let a message begin if no message has a turn at its places; return whether it begins."""
    message = _message_of(world, number)
    for place in (message.bytes, message.last_number):
        if place > 0 and _place(world, place).taken != 0:
            return False
    if message.last_number > 0:
        _place(world, message.last_number).taken = 1
    _delivered(world, number)
    return True


@compiled
def _end_turn(world: Record, place: Integer) -> None:
    if place > 0:
        _place(world, place).taken = 0
        _wake(world, _place(world, place).line, place)


@compiled
def _wake(world: Record, line_number: Integer, freed: Integer) -> None:
    """Schedule an event at which a message of a line may begin, as a place was freed."""
    line = _place(world, line_number)
    if line.first == 0:
        return
    if line.freed == 0:
        push(world, world.now_ps, np.int64(MESSAGE_READY), np.int64(0), line.first - 1)
    line.freed = freed if line.freed == 0 or line.freed == freed else np.int64(-1)


# The sender.


@compiled
def _send_what_may_be(world: Record, number: Integer) -> None:
    flow = _flow_of(world, number)
    room = flow.window // PER_PACKET - flow.outstanding
    fresh = min(flow.end_number, flow.acknowledged + world.flow_window) - flow.next_number
    for left in range(min(room, flow.lost + fresh) - 1, -1, -1):
        last = np.int64(left == 0)
        if host_queue_is_full(world, flow):
            break
        if flow.lost > 0:
            _send_again(world, number, last)
        else:
            _send_next(world, number, last)
    if flow.outstanding > 0 and flow.timer_set == 0:
        flow.timer_set = 1
        push(world, flow.deadline_ps, np.int64(FLOW_TIMER), number, np.int64(0))


@compiled
def _send_next(world: Record, number: Integer, last: Integer) -> None:
    flow = _flow_of(world, number)
    packet, sending = flow.next_number, flow.sending
    message = _message_of(world, sending)
    size = flow.segment_bytes
    if packet == message.last_number:
        size = message.bytes - (message.bytes - 1) // flow.segment_bytes * flow.segment_bytes
        if message.bytes == 0:
            size = np.int64(0)
        flow.sending = message.next
    flow.next_number += 1
    _place_of(world, number, packet).bytes = size
    _transmit(world, number, packet, last)
    if packet == message.last_number and message.frees > 0:
        message.flow = _SENT
        way = link_towards(world, flow.source, flow.target)
        busy_ps = carray(pointer(world.links), (way + 1,), LINK)[way].busy_ps if way >= 0 else np.int64(0)
        push(world, max(busy_ps, world.now_ps), np.int64(MESSAGE_READY), np.int64(0), sending)


@compiled
def _send_again(world: Record, number: Integer, last: Integer) -> None:
    flow = _flow_of(world, number)
    for packet in range(flow.acknowledged, flow.next_number):
        if _place_of(world, number, packet).order == _RING_LOST:
            flow.lost -= 1
            flow.resends += 1
            _transmit(world, number, packet, last)
            return


@compiled
def _transmit(world: Record, number: Integer, packet: Integer, last: Integer) -> None:
    flow = _flow_of(world, number)
    place = _place_of(world, number, packet)
    if flow.outstanding == 0:
        flow.deadline_ps = world.now_ps + (flow.rto_ps << flow.backoff)
    flow.order += 1
    flow.packets += 1
    flow.outstanding += 1
    place.order = flow.order
    size = place.bytes + flow.header_bytes
    row = take_packet(world, np.int64(SEGMENT), np.int64(0), size, flow.target, number)
    described = packet_of(world, row)
    described.number = packet
    described.order = flow.order
    described.urgent = last
    ready_ps = host_work(world, flow.source, described.wire_bytes)
    _send_towards(world, flow.source, flow.target, row, ready_ps)


@compiled
def on_acknowledgement(world: Record, row: Integer) -> None:
    """Process an acknowledgement at the sender."""
    records = carray(pointer(world.packets), (world.packet_room,), PACKET)
    described = records[row]
    number = described.flow
    flow = _flow_of(world, number)
    host_work(world, flow.source, described.wire_bytes)
    packet, order, missing = described.number, described.order, described.missing
    rtt_ps, marked = world.now_ps - described.sent_ps, described.marked
    release(world, row)
    fresh = _acknowledge(world, number, packet)
    while flow.acknowledged < missing:
        fresh += _acknowledge(world, number, flow.acknowledged)
    if fresh > 0:
        _take_sample(flow, rtt_ps)
        flow.backoff = 0
        flow.deadline_ps = world.now_ps + flow.rto_ps
        grow(world, flow, fresh)
    take_marks(flow, packet, fresh, marked)
    if order > flow.order_acknowledged:
        flow.order_acknowledged = order
    _find_losses(world, number)
    _send_what_may_be(world, number)


@compiled
def _acknowledge(world: Record, number: Integer, packet: Integer) -> Integer:
    """Note that a packet was acknowledged; return 1 if that is new, else 0."""
    flow = _flow_of(world, number)
    fresh = np.int64(0)
    if packet >= flow.acknowledged:
        place = _place_of(world, number, packet)
        if place.order != RING_ACKNOWLEDGED:
            if place.order == _RING_LOST:
                flow.lost -= 1
            else:
                flow.outstanding -= 1
            place.order = RING_ACKNOWLEDGED
            fresh = np.int64(1)
    while (
        flow.acknowledged < flow.next_number
        and _place_of(world, number, flow.acknowledged).order == RING_ACKNOWLEDGED
    ):
        flow.acknowledged += 1
    return fresh


@compiled
def _find_losses(world: Record, number: Integer) -> None:
    flow = _flow_of(world, number)
    before = flow.order_acknowledged - PACKET_THRESHOLD
    for packet in range(flow.acknowledged, flow.next_number):
        place = _place_of(world, number, packet)
        if place.order < 0:
            continue
        if place.order > flow.order_acknowledged:
            if flow.lost == 0 and flow.resends == 0:
                break  # nothing was sent again, so all following packets were sent later
            continue
        if place.order <= before:
            place.order = _RING_LOST
            flow.lost += 1
            flow.outstanding -= 1
            if packet >= flow.recover:
                shrink(flow)


@compiled
def on_flow_timer(world: Record, number: Integer) -> None:
    """Schedule the sender's timer anew if its deadline has moved; else handle the timeout."""
    flow = _flow_of(world, number)
    flow.timer_set = 0
    if flow.outstanding == 0:
        return
    if world.now_ps < flow.deadline_ps:
        flow.timer_set = 1
        push(world, flow.deadline_ps, np.int64(FLOW_TIMER), number, np.int64(0))
        return
    flow.timeouts += 1
    flow.epoch_ps = np.int64(-1)
    flow.threshold = max(flow.outstanding * PER_PACKET // 2, LEAST_WINDOW)
    flow.window = PER_PACKET
    flow.recover = flow.next_number
    flow.backoff = min(flow.backoff + 1, _MOST_BACKOFF)
    for packet in range(flow.acknowledged, flow.next_number):
        place = _place_of(world, number, packet)
        if place.order >= 0:
            place.order = _RING_LOST
            flow.lost += 1
    flow.outstanding = 0
    _send_what_may_be(world, number)


@compiled
def _take_sample(flow: Record, rtt_ps: Integer) -> None:
    flow.least_rtt_ps = min(flow.least_rtt_ps, rtt_ps)
    if flow.srtt_ps == 0:
        flow.srtt_ps = rtt_ps
        flow.rttvar_ps = rtt_ps // 2
    else:
        flow.rttvar_ps += (abs(flow.srtt_ps - rtt_ps) - flow.rttvar_ps) // 4
        flow.srtt_ps += (rtt_ps - flow.srtt_ps) // 8
    flow.rto_ps = max(flow.srtt_ps + 4 * flow.rttvar_ps, flow.least_rto_ps)


# The receiver.


@compiled
def on_segment(world: Record, row: Integer) -> None:
    """Process a packet at the receiver, and acknowledge it at once or with the next packet."""
    described = packet_of(world, row)
    number, packet, order = described.flow, described.number, described.order
    sent_ps, marked, wire_bytes = described.sent_ps, described.marked, described.wire_bytes
    urgent = described.urgent != 0 or marked != 0
    release(world, row)
    flow = _flow_of(world, number)
    flow.unacknowledged += 1
    urgent = urgent or packet != flow.expected or flow.unacknowledged >= flow.ack_every
    if packet >= flow.expected:
        _place_of(world, number, packet).received = packet + 1
        while _place_of(world, number, flow.expected).received == flow.expected + 1:
            flow.expected += 1
        while flow.delivering >= 0 and _message_of(world, flow.delivering).last_number < flow.expected:
            message = flow.delivering
            flow.delivering = _message_of(world, message).next
            _delivered(world, message)
        if flow.missing > 0 and flow.expected >= flow.missing:
            flow.missing = 0
            stall = carray(pointer(world.stalls), (flow.stall + 1,), STALL)[flow.stall]
            stall.flows -= 1
            stall.total_ps += world.now_ps - stall.since_ps if stall.flows == 0 else 0
    ready_ps = host_work(world, flow.target, wire_bytes)
    if not urgent and packet + 1 == flow.expected:
        return
    flow.unacknowledged = 0
    answer = take_packet(world, np.int64(ACKNOWLEDGEMENT), np.int64(0), flow.ack_bytes, flow.source, number)
    described = packet_of(world, answer)
    described.number = packet
    described.order = order
    described.missing = flow.expected
    described.sent_ps = sent_ps
    described.marked = marked
    described.urgent = 1
    _send_towards(world, flow.target, flow.source, answer, ready_ps)


@compiled
def _send_towards(world: Record, node: Integer, target: Integer, row: Integer, at_ps: Integer) -> None:
    link = link_towards(world, node, target)
    if link < 0:
        release(world, row)
        return
    send(world, link, row, at_ps)
