"""Background traffic: packets from a host to another at a rate, in bursts or at random, without retransmission."""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.network.engine import dice
from sim.network.engine.engine_records import GAPS, GENERATOR
from sim.network.engine.events import GENERATE, push
from sim.network.engine.links import send
from sim.network.engine.packets import BACKGROUND, packet_of, release, take_packet
from sim.network.engine.ways import link_towards

_EVEN: Final = GAPS.index("even")
_UNIFORM: Final = GAPS.index("uniform")
_LN_2: Final = 363_409  # ln 2 in steps of 2^-19.


@compiled
def _exponential(die: Integer) -> Integer:
    """Return −ln(u) in steps of 2^-19, for u = (die + 1/2) / 2^20; integer arithmetic gives the same on every machine."""
    mantissa, whole = 2 * die + 1, np.int64(21)
    while mantissa >= 2:
        # The mantissa is normalized to 1 ≤ m < 2; `square` keeps its fraction in 30 bits.
        mantissa >>= 1
        whole -= 1
    square = (2 * die + 1) << 30 >> (21 - whole)
    fraction = np.int64(0)
    for _ in range(19):
        square = square * square >> 30
        fraction <<= 1
        if square >= 1 << 31:
            square >>= 1
            fraction += 1
    return ((whole << 19) - fraction) * _LN_2 >> 19


@compiled
def generate(world: Record, number: Integer) -> None:
    """Send a generator's burst and schedule the next one; if gaps are random, its first event sends none."""
    source = carray(pointer(world.generators), (number + 1,), GENERATOR)[number]
    if world.now_ps >= source.until_ps:
        return
    link = link_towards(world, source.source, source.target)
    due = source.burst if source.gaps == _EVEN or source.thrown > 0 else np.int64(0)
    for _ in range(due):
        packet = take_packet(
            world, np.int64(BACKGROUND), np.int64(0), source.packet_bytes, source.target, number
        )
        source.sent += 1
        if link < 0:
            release(world, packet)
        else:
            send(world, link, packet, world.now_ps)
    interval_ps = source.interval_ps
    if source.gaps != _EVEN:
        source.thrown += 1
        die = dice.philox(world.seed, np.int64(dice.TRAFFIC), number, source.thrown) >> 12
        factor = die if source.gaps == _UNIFORM else _exponential(die)
        interval_ps = (interval_ps >> 19) * factor + ((interval_ps & 0x7FFFF) * factor >> 19)
    push(world, world.now_ps + interval_ps, np.int64(GENERATE), number, np.int64(0))


@compiled
def on_background(world: Record, packet: Integer) -> None:
    """Count a packet at its target, and release it."""
    number = packet_of(world, packet).flow
    carray(pointer(world.generators), (number + 1,), GENERATOR)[number].received += 1
    release(world, packet)
