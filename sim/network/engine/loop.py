"""The loop over events, which alone advances virtual time."""

# mypy: disable-error-code="no-any-return,return-value"

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.network.engine.engine_records import LINK, NODE
from sim.network.engine.events import (
    ARRIVAL,
    CONTROL,
    FLOW_TIMER,
    GENERATE,
    MESSAGE_READY,
    WORKER_TIMER,
    event_kind,
    event_packet,
    event_target,
    first_event,
    remove_first,
)
from sim.network.engine.flows import on_acknowledgement, on_flow_timer, on_message_ready, on_segment
from sim.network.engine.links import follow
from sim.network.engine.packets import ACKNOWLEDGEMENT, BACKGROUND, SLOT_PROTOCOL, lose, packet_of, release
from sim.network.engine.prefetching import bring_closer
from sim.network.engine.switches import SWITCH_NODE, UNFINISHED, on_packet
from sim.network.engine.traffic import generate, on_background
from sim.network.engine.workers import (
    CONTINUES,
    NEEDS_PYTHON,
    SAMPLED,
    SUM_MISSING,
    after_frame,
    on_frame,
    on_timer,
    worker_of,
)

(
    NOTHING_LEFT,
    TIME_UP,
    BUDGET_SPENT,
    CONTROL_DUE,
    WORKER_DUE,
    SWITCH_UNFINISHED,
    NEEDS_ROOM,
    TRACE_FULL,
    MESSAGES_DONE,
    SAMPLE_DUE,
    SUM_DUE,
) = range(11)
"""Reasons why the loop returns. `world.subject` is the number of the control event, worker or switch concerned."""


@compiled
def advance(worlds: Record, until_ps: Integer, budget: Integer, margin: Integer) -> Integer:
    """Run events in order; return why the loop stopped. `margin`: most packets and events that one event may need."""
    world = worlds[0]
    while True:
        if world.heap_count == 0:
            return np.int64(NOTHING_LEFT)
        first_ps, what = first_event(world)
        if first_ps > until_ps:
            return np.int64(TIME_UP)
        if budget <= 0:
            return np.int64(BUDGET_SPENT)
        if world.free_count < margin or world.heap_room - world.heap_count < margin:
            return np.int64(NEEDS_ROOM)
        if world.trace_room > 0 and world.trace_room - world.trace_count < margin:
            return np.int64(TRACE_FULL)
        budget -= 1
        world.events += 1
        world.now_ps = first_ps
        kind = event_kind(what)
        target = event_target(what)
        if kind == ARRIVAL:
            follow(world, target, event_packet(what))
            bring_closer(world)
            outcome = _arrive(world, target, event_packet(what))
            if outcome != NOTHING_LEFT:
                return outcome
        else:
            remove_first(world)
        if kind == WORKER_TIMER:
            if on_timer(world, target) == NEEDS_PYTHON:
                world.subject = target
                return np.int64(WORKER_DUE)
        elif kind == FLOW_TIMER:
            on_flow_timer(world, target)
        elif kind == MESSAGE_READY:
            on_message_ready(world, event_packet(what))
        elif kind == GENERATE:
            generate(world, target)
        elif kind == CONTROL:
            world.subject = event_packet(what)
            return np.int64(CONTROL_DUE)
        if world.messages_watched != 0 and world.messages_left == 0:
            world.messages_watched = 0
            return np.int64(MESSAGES_DONE)


@compiled
def _arrive(world: Record, number: Integer, packet: Integer) -> Integer:
    """Handle a packet at the end of a link; return `NOTHING_LEFT` if Python has nothing to do."""
    link = carray(pointer(world.links), (number + 1,), LINK)[number]
    if link.up == 0:
        link.lost_while_down += 1
        lose(world, packet)
        return np.int64(NOTHING_LEFT)
    node = carray(pointer(world.nodes), (link.to_node + 1,), NODE)[link.to_node]
    if node.kind == SWITCH_NODE:
        if on_packet(world, node.index, link.to_port, packet) == UNFINISHED:
            world.subject = node.index
            return np.int64(SWITCH_UNFINISHED)
        return np.int64(NOTHING_LEFT)
    kind = packet_of(world, packet).kind
    if kind == SLOT_PROTOCOL:
        worker = worker_of(world, link.to_node, packet)
        if worker < 0:
            release(world, packet)
            return np.int64(NOTHING_LEFT)
        return _attended(world, worker, on_frame(world, worker, packet))
    if kind == BACKGROUND:
        on_background(world, packet)
    elif kind == ACKNOWLEDGEMENT:
        on_acknowledgement(world, packet)
    else:
        on_segment(world, packet)
    return np.int64(NOTHING_LEFT)


@compiled
def compare(worlds: Record) -> Integer:
    """Compare the RESULT whose sum was missing, and resume its worker; return why the loop stops, as `advance` does."""
    world = worlds[0]
    worker = world.subject
    reason = _attended(world, worker, after_frame(world, worker, world.due_packet, True))
    return np.int64(BUDGET_SPENT if reason == NOTHING_LEFT else reason)


@compiled
def _attended(world: Record, worker: Integer, outcome: Integer) -> Integer:
    """Return the service that a worker needs from Python after a frame; `NOTHING_LEFT` if none."""
    if outcome == CONTINUES:
        return np.int64(NOTHING_LEFT)
    world.subject = worker
    if outcome == SUM_MISSING:
        return np.int64(SUM_DUE)
    return np.int64(SAMPLE_DUE if outcome == SAMPLED else WORKER_DUE)
