"""Compiled: random runs, the explorer's steps chosen by a seeded generator instead of all of them."""

# Numba's decorators are untyped, and the integers of compiled code are NumPy's.
# mypy: disable-error-code="untyped-decorator,no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import copy_bytes, pointer
from sim.explore.engine import step_codes as codes
from sim.explore.engine import world as w
from sim.explore.engine.fair import all_done, fair_end, someone_is_dead
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.step_codes import step_code
from sim.explore.engine.steps import apply
from sim.explore.engine.switch_steps import stage_of
from sim.explore.engine.views import entries_of, packet_of, state_of
from sim.explore.engine.worker_steps import timers_of

WEIGHTS: Final = ("lose", "keep", "timers", "begin", "kill", "control", "restart", "offer", "deadline")
"""Chances of a step, in parts of 65,536: a packet is lost or kept when its turn comes, a worker sends, its timers fire, …"""

WALK: Final = np.dtype(
    [
        ("generator", np.uint64),  # State of the generator; never 0.
        ("generator_of_run", np.uint64),  # State of the generator when the last run began.
        *((name, np.int64) for name in WEIGHTS),
        ("limit", np.int64),  # Steps after which a fair network brings a run to its end.
        ("budget", np.int64),  # Steps of one call of `random_runs`.
        # Totals.
        ("runs", np.int64),
        ("rounds", np.int64),
        ("steps", np.int64),
        ("ended", np.int64),  # Runs that a fair network had to bring to their end.
        # The run that is made.
        ("run_steps", np.int64),
        ("restarted", np.int64),  # Whether a switch has restarted.
    ],
    align=True,
)

FAULT_KINDS: Final = (
    "in turn",
    "a copy was kept",
    "reordered",
    "of an old epoch",
    "after a restart",
    "after a death",
)
"""Faults present when a packet reaches the switch."""
_IN_TURN, _KEPT, _REORDERED, _OLD_EPOCH, _AFTER_RESTART, _AFTER_DEATH = range(len(FAULT_KINDS))


@compiled
def _next(walk: Record) -> Integer:
    """Return 31 random bits (xorshift64*, Vigna 2016)."""
    x = walk.generator
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    walk.generator = x
    return np.int64((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33))


@compiled
def _rounds_done(world: Record) -> Integer:
    """Return how many rounds the slowest living worker has done in its epoch."""
    state = state_of(world)
    least = world.rounds
    for host in range(world.hosts):
        at = host_at(world, host)
        if state[at + w.AT_LIFE] == w.ALIVE:
            least = min(least, np.int64(state[at + w.AT_DONE]))
    return least


@compiled
def _count_outcome(outcomes: tuple[Record, Record, Record], kind: Integer) -> None:
    """Find the counter that has moved since the last call, and count its outcome with a kind of fault."""
    counters, before, pairs = outcomes
    for each in range(counters.shape[0]):
        now = carray(pointer(counters[each]), (1,), np.int64)[0]
        if now != before[each]:
            before[each] = now
            pairs[each, kind] += 1


@compiled
def _draw_step(world: Record, walk: Record) -> tuple[Integer, Integer]:
    """Draw the kind of the next step, and the host, the switch or the place of the packet that makes it."""
    draw = _next(walk)
    left = draw & 0xFFFF
    host = (draw >> 16) % world.hosts
    left -= walk.kill
    if left < 0:
        return np.int64(codes.KILL), host
    left -= walk.control
    if left < 0:
        return np.int64(codes.JOIN if stage_of(world) == 2 else codes.CONTROL), host
    left -= walk.restart
    if left < 0:
        return np.int64(codes.RESTART), (draw >> 16) % world.switches
    left -= walk.deadline
    if left < 0:
        return np.int64(codes.FAIL), host
    left -= walk.offer
    if left < 0:
        return np.int64(codes.OFFER), host
    left -= walk.begin
    if left < 0:
        return np.int64(codes.BEGIN), host
    if left < walk.timers or world.entry_count == 0:
        return np.int64(codes.DRIVE), host
    place = _next(walk) % world.entry_count
    fate = _next(walk) & 0xFFFF
    if fate < walk.lose:
        return np.int64(codes.LOSE), place
    if fate < walk.lose + walk.keep:
        return np.int64(codes.KEEP), place
    return np.int64(codes.DELIVER), place


@compiled
def _draw_timers(world: Record, walk: Record, kind: Integer, host: Integer) -> Integer:
    """Draw which timers of a worker have expired when it sends."""
    sends = kind in (codes.DRIVE, codes.BEGIN, codes.OFFER, codes.DELIVER, codes.KEEP)
    timers = np.int64(0)
    if sends and _next(walk) & 1:
        timers = _next(walk) & codes.TIMERS
    state = state_of(world)
    if kind == codes.DRIVE and state[host_at(world, host) + w.AT_LIFE] == w.ALIVE:
        timers &= timers_of(world, unpack(world, host))
    return timers


@compiled
def _packet_at(world: Record, place: Integer) -> Integer:
    entries = entries_of(world)
    return np.int64(entries[place]) >> w.PACKET_SHIFT


@compiled
def _fault_of(world: Record, walk: Record, kind: Integer, place: Integer) -> Integer:
    """Return the kind of fault that is present when the packet at a place arrives."""
    owner = packet_of(world, _packet_at(world, place)).owner
    if world.epochs > 1 and stage_of(world) > 0 and owner < world.owners and owner % world.epochs == 0:
        return np.int64(_OLD_EPOCH)
    if walk.restarted != 0:
        return np.int64(_AFTER_RESTART)
    state = state_of(world)
    if state[w.AT_KILLS] > 0:
        return np.int64(_AFTER_DEATH)
    if kind == codes.KEEP:
        return np.int64(_KEPT)
    is_reordered = place > 0 and place + 1 < world.entry_count
    return np.int64(_REORDERED if is_reordered else _IN_TURN)


@compiled
def _step(
    world: Record, walk: Record, blank: Integer, outcomes: tuple[Record, Record, Record]
) -> tuple[Integer, Integer]:
    """Make one step at random; returns its code, and a negative violation or another result."""
    kind, what = _draw_step(world, walk)
    code = step_code(kind, what, _draw_timers(world, walk, kind, what))
    fault = np.int64(-1)
    if kind in (codes.DELIVER, codes.KEEP) and packet_of(world, _packet_at(world, what)).to != w.TO_WORKER:
        fault = _fault_of(world, walk, kind, what)
    result = apply(world, code, blank)
    if kind == codes.RESTART and result == 1:
        walk.restarted = 1
    if fault >= 0:
        _count_outcome(outcomes, fault)
    return code, result


@compiled
def random_runs(
    world: Record,
    walk: Record,
    blank: Integer,
    root: Record,
    trail: Record,
    outcomes: tuple[Record, Record, Record],
    fair: tuple[Record, Record, Record],
) -> Integer:
    """Make random runs until `walk.budget` steps are made.

    `walk`: a record `WALK`, whose totals grow. `root`: the state without packets that each run begins with. `trail`:
    uint32[limit], filled with the steps of the last run. `outcomes`: addresses of the program's outcome
    counters, their last values, and how often each has moved with each kind of fault. `fair`: work arrays of `fair_end`.
    Returns 0, or the violation of the last run.
    """
    made = np.int64(0)
    ends, seen, work = fair
    while made < walk.budget:
        walk.generator_of_run = walk.generator
        walk.runs += 1
        walk.run_steps = 0
        walk.restarted = 0
        copy_bytes(np.uintp(world.state), np.uintp(root.ctypes.data), np.uintp(root.size))
        world.entry_count = 0
        result = np.int64(0)
        while result >= 0 and walk.run_steps < walk.limit and not all_done(world):
            trail[walk.run_steps], result = _step(world, walk, blank, outcomes)
            walk.run_steps += 1
        walk.steps += walk.run_steps
        if result < 0:
            return result
        made += walk.run_steps
        done = _rounds_done(world)
        if not all_done(world):
            walk.ended += 1
            result = fair_end(world, ends, np.int64(ends.shape[0] - 1), blank, seen, work)
            if result < 0 and not (result == w.STUCK and someone_is_dead(world)):
                return result
            done = max(done, _rounds_done(world))
        walk.rounds += done
    return np.int64(0)
