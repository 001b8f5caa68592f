"""S3: from every state that is reached, with all packets lost, a fair network leads to the end.

In a round every worker makes every step that it can, every armed timer fires, and every packet arrives. If the rounds come to a
halt before all workers are done, the workers that are left must be able to say who is missing.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.records import FAILURE_DEADLINE, FAILURE_MISMATCH, FAILURE_NONE
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.explore.engine import world as w
from sim.explore.engine.packets import remove_copy
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.step_codes import QUEUE
from sim.explore.engine.switch_steps import arrive_at_switch, control, restore_switch, stage_of
from sim.explore.engine.views import entries_of, packet_of, state_of
from sim.explore.engine.visited import hash_bytes
from sim.explore.engine.worker_steps import (
    arrive_at_worker,
    begin,
    drive,
    has_offered,
    join,
    offer,
    quorum_chunk,
    timers_of,
)

FAIR_ROUNDS: Final = 64


@compiled
def all_done(world: Record) -> bool:
    """Whether every living worker has all its results, or the error that it must have.

    A worker that hears of a mismatch repeats it a few times. If the network loses all of that, the others end at their
    deadline.
    """
    state = state_of(world)
    good = carray(pointer(world.acceptable), (world.owners, world.rounds), np.uint8)
    notified = False
    for host in range(world.hosts):
        at = host_at(world, host)
        notified |= state[at + w.AT_FAILURE] == FAILURE_MISMATCH and state[at + w.AT_OBJECTIONS] == 0
    for host in range(world.hosts):
        at = host_at(world, host)
        if state[at + w.AT_LIFE] != w.ALIVE or state[at + w.AT_FAILURE] == FAILURE_DEADLINE:
            continue
        if _any_disagreed(world, good[host * world.epochs]):
            if state[at + w.AT_FAILURE] == FAILURE_NONE and not notified:
                return False
        elif state[at + w.AT_DONE] < world.rounds or state[at + w.AT_FAILURE] != FAILURE_NONE:
            return False
    return True


@compiled
def someone_is_dead(world: Record) -> bool:
    """Whether a worker has died that does not start again, or run into its deadline: then the others end with an error."""
    state = state_of(world)
    for host in range(world.hosts):
        at = host_at(world, np.int64(host))
        if state[at + w.AT_LIFE] == w.DEAD_HOST or state[at + w.AT_FAILURE] == FAILURE_DEADLINE:
            return True
    return False


@compiled
def _any_disagreed(world: Record, good: Record) -> bool:
    for number in range(world.rounds):  # noqa: SIM110 - compiled code has no generators
        if good[number] == 0:
            return True
    return False


@compiled
def fair_round(world: Record, blank: Integer) -> Integer:
    """Let everything happen once; all packets arrive."""
    state = state_of(world)
    if stage_of(world) > 0 and world.epochs > 1:
        while control(world) != w.NOTHING:
            pass
        for host in range(world.hosts):
            join(world, np.int64(host), blank)
    for host in range(world.hosts):
        if state[host_at(world, host) + w.AT_LIFE] != w.ALIVE:
            continue
        if state[host_at(world, host) + w.AT_BEGUN] < world.rounds:
            result = begin(world, np.int64(host), np.int64(0))
            if result < 0:
                return result
        if _is_needed(world, np.int64(host)):
            offer(world, np.int64(host), np.int64(0))
        owner = unpack(world, np.int64(host))
        result = drive(world, np.int64(host), timers_of(world, owner) & ~QUEUE)
        if result < 0:
            return result
        result = _deliver_all(world)
        if result < 0:
            return result
    return np.int64(w.NOTHING)


@compiled
def _is_needed(world: Record, host: Integer) -> bool:
    """Whether a worker's contribution is needed for a quorum chunk: without need, it computes for ever."""
    number = quorum_chunk(world, host)
    if number < 0 or has_offered(world, host, number):
        return False
    offered = np.int64(0)
    for each in range(world.hosts):
        offered += has_offered(world, np.int64(each), number)
    return bool(offered < world.quorum)


@compiled
def _deliver_all(world: Record) -> Integer:
    entries = entries_of(world)
    number = np.int64(-1)
    for _ in range(64 * (world.hosts + world.switches - 1) * (world.slots + 1)):
        if world.entry_count == 0:
            return np.int64(w.NOTHING)
        # In turn: a PROBE that is sent again and again does not keep others from arriving.
        place = np.int64(0)
        while place < world.entry_count and np.int64(entries[place]) >> w.PACKET_SHIFT <= number:
            place += 1
        if place == world.entry_count:
            place = np.int64(0)
        entry = np.int64(entries[place])
        remove_copy(world, place)
        number = entry >> w.PACKET_SHIFT
        world.fair_calls += 1
        switch = packet_of(world, number).to
        if switch == w.TO_WORKER:
            result = arrive_at_worker(world, entry, np.int64(0))
            if result >= 0 and world.batches == 1:
                result = drive(world, packet_of(world, number).port, np.int64(0))
        else:
            restore_switch(world, switch)
            result = arrive_at_switch(world, entry)
        if result < 0:
            return result
    return np.int64(w.NOTHING)


@compiled
def fair_end(
    world: Record, table: Record, mask: Integer, blank: Integer, seen: Record, work: Record
) -> Integer:
    """Run fair rounds from the state that is worked on, which is used up.

    `table`, `mask`: hashes of states without packets that lead to the end. `blank`: address of a worker's block at the
    start. `seen`: uint64[FAIR_ROUNDS, 2], to work in. `work`: uint64[2], to work in. Returns NOTHING, STUCK if the rounds
    come to a halt before the end, or what else was found on the way.
    """
    words = world.fixed_bytes // 8
    for turn in range(FAIR_ROUNDS):
        world.entry_count = 0
        if all_done(world):
            return np.int64(w.NOTHING)
        hash_bytes(world.state, words, work.ctypes.data)
        if turn > 0:
            at = np.int64(work[1] & np.uint64(mask))
            while table[at, 0] != 0:
                if table[at, 0] == work[0] and table[at, 1] == work[1]:
                    return np.int64(w.NOTHING)
                at = (at + 1) & mask
            for each in range(turn):
                if seen[each, 0] == work[0] and seen[each, 1] == work[1]:
                    return np.int64(w.STUCK)
        seen[turn, 0] = work[0]
        seen[turn, 1] = work[1]
        result = fair_round(world, blank)
        if result < 0:
            return result
    return np.int64(w.STUCK)
