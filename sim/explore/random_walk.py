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
from sim.explore.engine.worker_steps import timers_of

WEIGHTS: Final = ("lose", "keep", "timers", "begin", "kill", "control", "restart", "offer", "deadline")
"""Parts of 65,536: a packet is lost or kept when its turn comes, a worker sends, and its timers may have fired, …"""

FAULT_KINDS: Final = (
    "in turn",
    "a copy was kept",
    "overtaken",
    "of an old epoch",
    "after a restart",
    "after a death",
)
"""Fault present when a packet reaches the switch."""


@compiled
def _next(generator: Record) -> Integer:
    """Return 31 random bits (xorshift64*, Vigna 2016)."""
    x = generator[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    generator[0] = x
    return np.int64((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33))


@compiled
def _rounds_done(world: Record) -> Integer:
    """Return how many rounds the slowest living worker has done in its epoch."""
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    least = world.rounds
    for host in range(world.hosts):
        at = host_at(world, host)
        if state[at + w.AT_LIFE] == w.ALIVE:
            least = min(least, np.int64(state[at + w.AT_DONE]))
    return least


@compiled
def _count_outcome(counters: Record, before: Record, pairs: Record, kind: Integer) -> None:
    """Find the counter that has moved since the last call, and count its outcome with a kind of fault."""
    for each in range(counters.shape[0]):
        now = carray(pointer(counters[each]), (1,), np.int64)[0]
        if now != before[each]:
            before[each] = now
            pairs[each, kind] += 1


@compiled
def random_runs(
    world: Record,
    blank: Integer,
    root: Record,
    root_count: Integer,
    generator: Record,
    weights: Record,
    limit: Integer,
    budget: Integer,
    trail: Record,
    totals: Record,
    counters: Record,
    before: Record,
    pairs: Record,
    ends: Record,
    seen: Record,
    work: Record,
) -> Integer:
    """Make random runs until this many steps are made.

    `root`, `root_count`: the state that each run begins with. `generator`: uint64[1]; its content at the beginning of the
    last run is left in `totals`. `weights`: int64, one of each of `WEIGHTS`. `limit`, `budget`: steps after which a run is
    brought to its end by a fair network; steps in all. `trail`: uint32[limit], filled with the steps of the last run.
    `totals`: int64[6]: runs, rounds, steps, runs that the fair network had to end, the last run's steps, its seed.
    `counters`, `before`, `pairs`: addresses of the program's outcome counters, their last values, and how often each has
    moved with each kind of fault. `ends`, `seen`, `work`: to work in, for `fair_end`. Returns 0, or what the last run
    violates.
    """
    made = np.int64(0)
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    entries = carray(pointer(world.entries), (w.MAX_ENTRIES,), np.uint32)
    targets = carray(pointer(world.to), (w.MAX_PACKETS,), np.int8)
    owners = carray(pointer(world.of), (w.MAX_PACKETS,), np.int16)
    while made < budget:
        totals[5] = np.int64(generator[0])
        totals[0] += 1
        copy_bytes(np.uintp(world.state), np.uintp(root.ctypes.data), np.uintp(root.size))
        world.entry_count = root_count
        restarted = False
        steps = np.int64(0)
        while steps < limit and not all_done(world):
            draw = _next(generator)
            chance = draw & 0xFFFF
            host = (draw >> 16) % world.hosts
            kind = np.int64(codes.DRIVE)
            what = host
            if chance < weights[4]:
                kind = np.int64(codes.KILL)
            elif chance < weights[4] + weights[5]:
                kind = np.int64(codes.CONTROL)
                if stage_of(world) == 2:
                    kind = np.int64(codes.JOIN)
            elif chance < weights[4] + weights[5] + weights[6]:
                kind = np.int64(codes.RESTART)
                what = (draw >> 16) % world.switches
            elif chance < weights[4] + weights[5] + weights[6] + weights[8]:
                kind = np.int64(codes.FAIL)
            elif chance < weights[4] + weights[5] + weights[6] + weights[8] + weights[7]:
                kind = np.int64(codes.OFFER)
            elif chance < weights[4] + weights[5] + weights[6] + weights[8] + weights[7] + weights[3]:
                kind = np.int64(codes.BEGIN)
            elif chance >= weights[4:9].sum() + weights[3] + weights[2] and world.entry_count > 0:
                what = _next(generator) % world.entry_count
                fate = _next(generator) & 0xFFFF
                kind = np.int64(codes.DELIVER)
                if fate < weights[0]:
                    kind = np.int64(codes.LOSE)
                elif fate < weights[0] + weights[1]:
                    kind = np.int64(codes.KEEP)
            # Now and then some of a worker's timers have expired when it sends.
            how = np.int64(0)
            if (
                kind in (codes.DRIVE, codes.BEGIN, codes.OFFER, codes.DELIVER, codes.KEEP)
                and _next(generator) & 1
            ):
                how = _next(generator) & codes.TIMERS
            if kind == codes.DRIVE and state[host_at(world, host) + w.AT_LIFE] == w.ALIVE:
                how &= timers_of(world, unpack(world, host))
            fault = np.int64(0)
            up = False
            if kind in (codes.DELIVER, codes.KEEP):
                packet = np.int64(entries[what]) >> w.PACKET_SHIFT
                up = targets[packet] != w.TO_WORKER
                if kind == codes.KEEP:
                    fault = np.int64(1)
                elif what + 1 < world.entry_count and what > 0:
                    fault = np.int64(2)
                first_epoch = owners[packet] < world.owners and owners[packet] % world.epochs == 0
                if world.epochs > 1 and stage_of(world) > 0 and first_epoch:
                    fault = np.int64(3)
                if fault != 3 and restarted:
                    fault = np.int64(4)
                elif fault != 3 and state[w.AT_KILLS] > 0:
                    fault = np.int64(5)
            trail[steps] = np.uint32(step_code(kind, what, how))
            result = apply(world, step_code(kind, what, how), blank)
            if kind == codes.RESTART and result == 1:
                restarted = True
            if up:
                _count_outcome(counters, before, pairs, fault)
            steps += 1
            if result < 0:
                totals[2] += steps
                totals[4] = steps
                return result
        made += steps
        totals[2] += steps
        totals[4] = steps
        done = _rounds_done(world)
        if not all_done(world):
            totals[3] += 1
            result = fair_end(world, ends, np.int64(ends.shape[0] - 1), blank, seen, work)
            if result < 0 and not (result == w.STUCK and someone_is_dead(world)):
                return result
            done = max(done, _rounds_done(world))
        totals[1] += done
    return np.int64(0)
