"""Background traffic: packets from a host to another at a rate, in bursts or at random, whatever becomes of them."""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from sim.network.engine import dice
from sim.network.engine.compiled import Integer, Record, carray, compiled, pointer
from sim.network.engine.events import GENERATE, push
from sim.network.engine.links import send
from sim.network.engine.packets import BACKGROUND, packet_of, release, take
from sim.network.engine.records import GENERATOR

__all__ = ["generate", "on_background"]


@compiled
def generate(world: Record, number: Integer) -> None:
    """Send the packets of a generator that are due, and schedule its next ones."""
    source = carray(pointer(world.generators), (number + 1,), GENERATOR)[number]
    if world.now_ps >= source.until_ps:
        return
    shape = (world.node_count, world.node_count)
    link = np.int64(carray(pointer(world.next_link), shape, np.int32)[source.source, source.target])
    for _ in range(source.burst):
        packet = take(world)
        described = packet_of(world, packet)
        described.kind = BACKGROUND
        described.length = 0
        described.wire_bytes = source.packet_bytes
        described.target = source.target
        described.flow = number
        described.marked = 0
        described.sent_ps = world.now_ps
        source.sent += 1
        if link < 0:
            release(world, packet)
        else:
            send(world, link, packet, world.now_ps)
    interval_ps = source.interval_ps
    if source.random != 0:
        source.thrown += 1
        die = dice.philox(world.seed, np.int64(dice.TRAFFIC), number, source.thrown) >> 12
        interval_ps = (interval_ps >> 19) * die + ((interval_ps & 0x7FFFF) * die >> 19)
    push(world, world.now_ps + interval_ps, np.int64(GENERATE), number, np.int64(0))


@compiled
def on_background(world: Record, packet: Integer) -> None:
    """Take in a packet at its target."""
    number = packet_of(world, packet).flow
    carray(pointer(world.generators), (number + 1,), GENERATOR)[number].received += 1
    release(world, packet)
